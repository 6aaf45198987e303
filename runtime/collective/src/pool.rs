use crate::shm::Arena;
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

/// Room for a rank's partial sums: pieces for each bucket, lent and given back. It outlives the
/// members that it was made for, and grows when others need more.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<Vec<Piece>>>,
    /// Where new room comes from; None: from this process alone.
    arena: Option<Mutex<Arena>>,
    elements: Mutex<usize>,
}

impl Pool {
    fn empty(arena: Option<Arena>) -> Pool {
        Pool { free: Mutex::default(), arena: arena.map(Mutex::new), elements: Mutex::default() }
    }

    /// A pool in memory of this process, for `lanes` threads that compute shards.
    pub fn private(layout: &Layout, lanes: usize) -> Result<Pool, CollectiveError> {
        let pool = Pool::empty(None);
        pool.reserve(layout, |_| layout.copies(lanes))?;
        Ok(pool)
    }

    /// A pool in memory that peers on this host can map.
    pub fn shared(layout: &Layout, lanes: usize) -> Result<Pool, CollectiveError> {
        let memory =
            |source| CollectiveError::Memory { what: "cannot create memory".into(), source };
        let pool = Pool::empty(Some(Arena::new().map_err(memory)?));
        pool.reserve(layout, |_| layout.copies(lanes))?;
        Ok(pool)
    }

    pub fn is_shared(&self) -> bool {
        self.arena.is_some()
    }

    /// Bytes reserved so far.
    pub fn bytes(&self) -> u64 {
        4 * *self.elements.lock().unwrap_or_else(PoisonError::into_inner) as u64
    }

    /// Makes sure that `copies(bucket)` pieces of each bucket are free.
    pub fn reserve(
        &self,
        layout: &Layout,
        copies: impl Fn(usize) -> usize,
    ) -> Result<(), CollectiveError> {
        let mut free = self.lock();
        let buckets = layout.buckets().max(free.len());
        free.resize_with(buckets, Vec::new);
        let wanting =
            |(bucket, pieces): (usize, &Vec<Piece>)| copies(bucket).saturating_sub(pieces.len());
        let more = free.iter().enumerate().map(wanting).max().unwrap_or(0);
        if more == 0 {
            return Ok(());
        }
        let stride = stride(layout.slab());
        let mut room = self.obtain(more * stride)?;
        for _ in 0..more {
            let mut copy = room.split_front(stride);
            if copy.len() < layout.slab() {
                let what = format!("too little room for {more} copies of the gradients");
                return Err(CollectiveError::Layout(what));
            }
            for (bucket, pieces) in free.iter_mut().enumerate() {
                let region = copy.split_front(layout.elements(bucket));
                pieces.push(Piece { bucket, region });
            }
        }
        Ok(())
    }

    fn obtain(&self, elements: usize) -> Result<Region, CollectiveError> {
        let region = match self.arena() {
            None => Region::private(elements)?,
            Some(mut arena) => arena.extend(elements).map_err(|source| {
                let what = format!("cannot reserve {elements} f32 for gradients");
                CollectiveError::Memory { what, source }
            })?,
        };
        *self.elements.lock().unwrap_or_else(PoisonError::into_inner) += elements;
        Ok(region)
    }

    pub(crate) fn arena(&self) -> Option<MutexGuard<'_, Arena>> {
        self.arena.as_ref().map(|a| a.lock().unwrap_or_else(PoisonError::into_inner))
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

    /// Takes back a piece whose reduction has failed. It is lent again once no peer can write into
    /// it any more.
    pub fn quarantine(&self, piece: Piece) {
        match self.arena() {
            Some(mut arena) => arena.quarantine(piece),
            None => self.give(piece),
        }
    }

    /// Looks through what has been put apart, after the peers of a generation have met.
    pub(crate) fn release(&self) {
        let released = self.arena().map(|mut arena| arena.released()).unwrap_or_default();
        released.into_iter().for_each(|piece| self.give(piece));
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
