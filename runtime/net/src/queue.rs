//! A queue from the network's thread to any number of takers.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Takers wait with a limit; the giver never does.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    TimedOut,
    Closed,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State { items: VecDeque::new(), closed: false };
        Queue { state: Mutex::new(state), ready: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: T) {
        self.lock().items.push_back(item);
        self.ready.notify_one();
    }

    /// What is queued can still be taken; then takers learn that it is closed.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    /// Takes the first item; waits for one up to `wait`.
    pub(crate) fn pop(&self, wait: Duration) -> Result<T, Empty> {
        let deadline = Instant::now().checked_add(wait);
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Ok(item);
            }
            if state.closed {
                return Err(Empty::Closed);
            }
            let left = deadline.map_or(wait, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Empty::TimedOut);
            }
            let woken = self.ready.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takers_get_items_in_order_then_the_end() {
        let queue = Queue::default();
        assert_eq!(queue.pop(Duration::ZERO), Err(Empty::TimedOut));
        queue.push(1);
        queue.push(2);
        queue.close();
        assert_eq!(queue.pop(Duration::ZERO), Ok(1));
        assert_eq!(queue.pop(Duration::MAX), Ok(2));
        assert_eq!(queue.pop(Duration::MAX), Err(Empty::Closed));
    }

    #[test]
    fn a_waiting_taker_is_woken() {
        let queue = std::sync::Arc::new(Queue::default());
        let taker = queue.clone();
        let waiting = std::thread::spawn(move || taker.pop(Duration::from_secs(20)));
        queue.push(7);
        assert_eq!(waiting.join().unwrap(), Ok(7));
    }
}
