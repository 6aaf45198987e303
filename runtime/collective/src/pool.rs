use crate::{CollectiveError, Layout, Region};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Room for one bucket's partial sum.
#[derive(Debug)]
pub struct Piece {
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

/// Room for a rank's partial sums: for each bucket a fixed number of pieces, lent and given back.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<Vec<Piece>>>,
}

impl Pool {
    /// Cuts `arena` into `copies` copies of all buckets, one every `stride` elements.
    pub(crate) fn new(
        layout: &Layout,
        mut arena: Region,
        copies: usize,
        stride: usize,
    ) -> Result<Pool, CollectiveError> {
        let mut free: Vec<Vec<Piece>> = (0..layout.buckets()).map(|_| Vec::new()).collect();
        for _ in 0..copies {
            let mut copy = arena.split_front(stride);
            if copy.len() < layout.slab() {
                let what = format!("the arena is too small for {copies} copies of the gradients");
                return Err(CollectiveError::Layout(what));
            }
            for (bucket, pieces) in free.iter_mut().enumerate() {
                let region = copy.split_front(layout.elements(bucket));
                pieces.push(Piece { bucket, region });
            }
        }
        Ok(Pool { free: Mutex::new(free) })
    }

    /// A pool in memory of this process, for `lanes` threads that compute shards.
    pub fn private(layout: &Layout, lanes: usize) -> Result<Pool, CollectiveError> {
        let (copies, stride) = (layout.copies(lanes), stride(layout.slab()));
        Pool::new(layout, Region::private(copies * stride)?, copies, stride)
    }

    /// Room for a partial sum of the bucket; None when all of it is lent, which
    /// [`Layout::copies`] rules out. Its contents are of earlier use.
    pub fn take(&self, bucket: usize) -> Option<Piece> {
        self.lock().get_mut(bucket)?.pop()
    }

    pub fn give(&self, piece: Piece) {
        if let Some(free) = self.lock().get_mut(piece.bucket) {
            free.push(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Piece>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Elements from copy to copy: staggered, since equal strides of a large power of two make the
/// caches of some processors thrash.
pub(crate) fn stride(slab: usize) -> usize {
    slab.next_multiple_of(16) + 0x440
}
