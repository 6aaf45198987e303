use crate::{CollectiveError, Layout, Region, Stop};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a sleeper waits before it looks at [`Stop`] again.
pub(crate) const SLICE: Duration = Duration::from_millis(5);

/// A gradient slab in the hands of a lane, less the buckets already handed over.
#[derive(Debug)]
pub struct Slab {
    id: usize,
    next: usize,
    rest: Region,
    start: usize,
}

impl Slab {
    /// (first element, elements from there on) of what is still to be written.
    pub fn rest(&mut self) -> (usize, &mut [f32]) {
        (self.start, &mut self.rest)
    }

    /// The next bucket to be handed over.
    pub fn next_bucket(&self) -> usize {
        self.next
    }

    /// Hands over the next bucket; None when there is none left.
    pub fn take(&mut self, layout: &Layout) -> Option<Piece> {
        let bucket = self.next;
        if bucket >= layout.buckets() {
            return None;
        }
        let region = self.rest.split_front(layout.elements(bucket));
        self.start += region.len();
        self.next += 1;
        Some(Piece { slab: self.id, bucket, region })
    }
}

/// One bucket's part of a slab.
#[derive(Debug)]
pub struct Piece {
    slab: usize,
    bucket: usize,
    region: Region,
}

impl Piece {
    pub fn bucket(&self) -> usize {
        self.bucket
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn region_mut(&mut self) -> &mut Region {
        &mut self.region
    }
}

/// The gradient slabs of a rank: a fixed number, lent to lanes and given back bucket by bucket.
#[derive(Debug)]
pub struct Pool {
    buckets: usize,
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<Slab>,
    /// Pieces of each slab that have come back.
    back: Vec<Vec<Piece>>,
}

impl Pool {
    /// Slabs cut from `arena`, one every `stride` elements, each of `layout.slab()`.
    pub fn new(
        layout: &Layout,
        mut arena: Region,
        slabs: usize,
        stride: usize,
    ) -> Result<Pool, CollectiveError> {
        let mut free = Vec::new();
        for id in 0..slabs {
            let mut rest = arena.split_front(stride);
            let rest = rest.split_front(layout.slab());
            if rest.len() < layout.slab() {
                let what = format!("the arena is too small for {slabs} slabs");
                return Err(CollectiveError::Layout(what));
            }
            free.push(Slab { id, next: 0, rest, start: 0 });
        }
        free.reverse();
        let back = (0..slabs).map(|_| Vec::new()).collect();
        let state = Mutex::new(State { free, back });
        Ok(Pool { buckets: layout.buckets(), state, given: Condvar::new() })
    }

    /// A pool in memory of this process.
    pub fn private(layout: &Layout, lanes: usize) -> Result<Pool, CollectiveError> {
        let (slabs, stride) = (layout.slabs(lanes), stride(layout.slab()));
        Pool::new(layout, Region::private(slabs * stride)?, slabs, stride)
    }

    /// A free slab; waits until there is one. Contents are left from earlier use.
    pub fn acquire(&self, stop: &Stop) -> Result<Slab, CollectiveError> {
        let mut state = self.lock();
        loop {
            stop.check()?;
            if let Some(slab) = state.free.pop() {
                return Ok(slab);
            }
            let waited = self.given.wait_timeout(state, SLICE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes a piece back; its slab is free once all are back.
    pub fn give(&self, piece: Piece) {
        let mut state = self.lock();
        let id = piece.slab;
        let Some(back) = state.back.get_mut(id) else { return };
        back.push(piece);
        if back.len() < self.buckets {
            return;
        }
        let mut pieces = std::mem::take(back);
        pieces.sort_by_key(|p| p.bucket);
        let joined =
            pieces.into_iter().map(|p| p.region).try_fold(None, |whole, next| match whole {
                None => Ok(Some(next)),
                Some(whole) => Region::join(whole, next).map(Some),
            });
        // Pieces are made by `Slab::take` alone, so they are neighbours.
        if let Ok(Some(rest)) = joined {
            state.free.push(Slab { id, next: 0, rest, start: 0 });
            self.given.notify_one();
        }
    }

    /// Takes a slab back from which nothing was taken.
    pub fn give_slab(&self, mut slab: Slab, layout: &Layout) {
        while let Some(piece) = slab.take(layout) {
            self.give(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Elements from slab to slab: staggered, since equal strides of a large power of two make the
/// caches of some processors thrash.
pub(crate) fn stride(slab: usize) -> usize {
    slab.next_multiple_of(16) + 0x440
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_returns_when_all_its_pieces_have() {
        let layout = Layout::new(2, 1, 0, &[(0, 32), (32, 16)], 0).unwrap();
        let pool = Pool::private(&layout, 1).unwrap();
        let stop = Stop::new();
        let mut a = pool.acquire(&stop).unwrap();
        let b = pool.acquire(&stop).unwrap();
        a.rest().1[32] = 5.0;
        let first = a.take(&layout).unwrap();
        assert_eq!(a.rest().0, 32);
        assert_eq!(a.rest().1[0], 5.0);
        let second = a.take(&layout).unwrap();
        pool.give(second);
        let late = std::thread::scope(|s| {
            let waiter = s.spawn(|| pool.acquire(&stop).map(|mut slab| slab.rest().1.len()));
            std::thread::sleep(Duration::from_millis(10));
            pool.give(first);
            waiter.join().unwrap()
        });
        assert_eq!(late.unwrap(), 48);
        pool.give_slab(b, &layout);
        stop.set();
        assert!(matches!(pool.acquire(&stop), Err(CollectiveError::Aborted)));
    }
}
