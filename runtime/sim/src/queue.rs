//! What is to happen, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Of two things at one time the one that was put in first comes first.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Item<T>>,
    count: u64,
}

#[derive(Debug)]
struct Item<T> {
    at_ns: u64,
    number: u64,
    what: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    pub fn push(&mut self, at_ns: u64, what: T) {
        self.count += 1;
        self.heap.push(Item { at_ns, number: self.count, what });
    }

    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|item| (item.at_ns, item.what))
    }
}

impl<T> PartialEq for Item<T> {
    fn eq(&self, other: &Item<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Item<T> {}

impl<T> PartialOrd for Item<T> {
    fn partial_cmp(&self, other: &Item<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Item<T> {
    fn cmp(&self, other: &Item<T>) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}
