//! All-reduce within one host, in place: every rank's gradients lie in one file in memory that
//! all ranks map; rank r adds slice r of all buffers and stores the sum into all of them. Small
//! buckets are copied aside and added by every rank for itself, which saves a barrier.
//!
//! The file needs no preparation: zeros are its valid initial state, and it grows as ranks attach.
//! Words at its front are atomics; floats change hands at barriers. Works between processes and
//! between threads alike.

mod arena;
mod barrier;
mod map;

use crate::sum::{BLOCK, Sum};
use crate::transport::{Settings, Transport, check_parts};
use crate::{CollectiveError, Layout, Piece, Pool};
pub(crate) use arena::Arena;
use barrier::{Barrier, Tag};
use map::{PAGE, PeerArena};
pub use map::{Region, as_bytes, as_bytes_mut, monotonic_ns};
use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The shared-memory transport. Built, used and dropped on one thread.
pub struct SharedMemory {
    layout: Layout,
    barrier: Barrier,
    pool: Arc<Pool>,
    /// Arenas in order of rank; None at our own place.
    peers: Vec<Option<PeerArena>>,
    sum: Sum,
    /// Room, used in turn, for copies of this rank's nodes of a small bucket.
    stages: Option<[Region; 2]>,
    sent_bytes: u64,
    thread: PhantomData<*const ()>,
}

/// Nodes of a bucket over all ranks, in elements, up to which every rank adds all of it for
/// itself: cheaper than the second barrier of adding a chunk each.
const SMALL: usize = 1 << 16;

fn is_small(layout: &Layout, bucket: usize) -> bool {
    let nodes: usize = (0..layout.world()).map(|rank| layout.nodes(rank).len()).sum();
    nodes.saturating_mul(layout.elements(bucket)) <= SMALL
}

/// An empty file in memory for [`SharedMemory::attach`]: the file, which must stay open until all
/// ranks have attached, and the path under which other processes of this user find it.
pub fn create_file() -> Result<(File, String), CollectiveError> {
    use std::os::fd::AsRawFd;
    let memory = |source| CollectiveError::Memory { what: "cannot create memory".into(), source };
    let file = map::memfd(c"monarch-gradients").map_err(memory)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path))
}

impl SharedMemory {
    /// Maps the file at `path` (made by [`create_file`], or made here when there is none), says
    /// there where the partial sums of `pool` lie, and waits for all peers to do the same.
    pub fn attach(
        path: &str,
        layout: &Layout,
        pool: &Arc<Pool>,
        settings: &Settings,
    ) -> Result<SharedMemory, CollectiveError> {
        let memory = |what: &str| {
            let what = format!("{what} {path}");
            move |source| CollectiveError::Memory { what, source }
        };
        let most = (0..layout.world()).map(|rank| layout.nodes(rank).len()).max().unwrap_or(0);
        if most >= barrier::PLACES {
            let what = format!("a worker with {most} separate partial sums: too many for one host");
            return Err(CollectiveError::Layout(what));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(memory("cannot open shared memory"))?;
        let barrier =
            Barrier::attach(&file, layout, settings).map_err(memory("cannot map shared memory"))?;
        barrier.agree(layout)?;
        let stages = {
            let private = || CollectiveError::Layout("partial sums in private memory".into());
            let mut arena = pool.arena().ok_or_else(private)?;
            let stages = arena.stages(stage(layout));
            let stages = stages.map_err(memory("cannot reserve gradients in"))?;
            barrier.announce(&arena.place());
            stages
        };
        let mut shared = SharedMemory {
            layout: layout.clone(),
            barrier,
            pool: pool.clone(),
            peers: Vec::new(),
            sum: Sum::new(layout),
            stages: Some(stages),
            sent_bytes: 0,
            thread: PhantomData,
        };
        shared.barrier.meet(settings.attach, "waiting for peers to attach")?;
        let other = |rank| (rank != layout.rank()).then(|| shared.barrier.place(rank));
        let places: Vec<_> = (0..layout.world()).map(other).collect();
        let peers = pool.arena().map_or_else(|| Ok(Vec::new()), |mut a| a.peers(&places));
        shared.peers = peers.map_err(|(rank, e)| {
            let why = format!("its gradients cannot be mapped: {e}");
            CollectiveError::PeerLost { rank, why }
        })?;
        shared.barrier.meet(settings.attach, "waiting for peers to attach")?;
        pool.release();
        if layout.rank() == 0 && !path.starts_with("/proc/") {
            // All have it open: nothing is left behind whatever happens from here on.
            let _ = std::fs::remove_file(path);
        }
        Ok(shared)
    }

    /// Copies this rank's nodes of a small bucket to where peers may read them; where that is.
    fn stage(&mut self, parts: &[Piece]) -> Vec<usize> {
        let mut offsets = Vec::new();
        let Some(stages) = &mut self.stages else { return offsets };
        let stage = &mut stages[self.barrier.next_parity()];
        let (start, mut at) = (stage.offset(), 0);
        for part in parts {
            let values = part.region();
            offsets.push(start + at);
            // A stage holds the nodes of the largest small bucket.
            if let Some(room) = stage.get_mut(at..at + values.len()) {
                room.copy_from_slice(values);
            }
            at += values.len();
        }
        offsets
    }

    /// Adds elements `range` of all ranks' nodes into `home`, and into that of every rank when
    /// `to_all`. Postings are the places of a rank's nodes, then that of its sum.
    fn reduce(
        &mut self,
        parts: &[Piece],
        home: &mut Piece,
        postings: &[Vec<usize>],
        range: Range<usize>,
        to_all: bool,
    ) -> Result<(), CollectiveError> {
        let SharedMemory { peers, sum, .. } = self;
        let elements = home.region().len();
        let wrong = |rank: u32| CollectiveError::Mismatch {
            rank,
            ours: format!("an arena that holds {elements} elements"),
            theirs: "a place beyond it".into(),
        };
        for at in range.clone().step_by(BLOCK) {
            let length = BLOCK.min(range.end - at);
            let mut sources: Vec<&[f32]> = Vec::new();
            for (rank, (peer, offsets)) in (0..).zip(peers.iter().zip(postings)) {
                match peer {
                    None => sources.extend(parts.iter().map(|p| &p.region()[at..at + length])),
                    Some(arena) => {
                        for offset in offsets.split_last().map_or(&[][..], |(_, nodes)| nodes) {
                            let source = offset.checked_add(at);
                            let source = source.and_then(|start| arena.read(start, length));
                            sources.push(source.ok_or_else(|| wrong(rank))?);
                        }
                    }
                }
            }
            let total = sum.block(length, |i| sources[i]);
            for (rank, (peer, offsets)) in (0..).zip(peers.iter().zip(postings)) {
                let Some(arena) = peer.as_ref().filter(|_| to_all) else { continue };
                let place = offsets.last().and_then(|home| home.checked_add(at));
                if !arena.write(place.ok_or_else(|| wrong(rank))?, total) {
                    return Err(wrong(rank));
                }
            }
            home.region_mut()[at..at + length].copy_from_slice(total);
        }
        Ok(())
    }
}

/// Elements of the nodes of this rank's largest small bucket.
fn stage(layout: &Layout) -> usize {
    let small = (0..layout.buckets()).filter(|&b| is_small(layout, b));
    let most = small.map(|b| layout.elements(b)).max().unwrap_or(0);
    most * layout.nodes(layout.rank()).len()
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let (Some(stages), Some(mut arena)) = (self.stages.take(), self.pool.arena()) {
            arena.keep_stages(stages);
        }
    }
}

impl Transport for SharedMemory {
    fn all_reduce(
        &mut self,
        step: u64,
        bucket: usize,
        parts: &[Piece],
        sum: &mut Piece,
    ) -> Result<(), CollectiveError> {
        check_parts(&self.layout, bucket, parts, sum)?;
        let elements = self.layout.elements(bucket);
        let tag = Tag { step, op: 1 + bucket as u64, elements: elements as u64 };
        let what = format!("reduce bucket {bucket} of step {step}");
        let small = is_small(&self.layout, bucket);
        let mut offsets = if small {
            self.stage(parts)
        } else {
            parts.iter().map(|p| p.region().offset()).collect()
        };
        offsets.push(sum.region().offset());
        self.barrier.post(&tag, &offsets)?;
        self.barrier.meet_now(&what)?;
        let mut postings = Vec::new();
        for rank in 0..self.layout.world() {
            let places = self.layout.nodes(rank).len() + 1;
            postings.push(self.barrier.posting(rank, &tag, places)?);
        }
        let others = self.layout.world() as usize - 1;
        if small {
            // Peers read the copies, which stay as they are until all have met once more.
            self.reduce(parts, sum, &postings, 0..elements, false)?;
            self.sent_bytes += 4 * (parts.len() * elements * others) as u64;
            return Ok(());
        }
        let chunk = self.layout.chunk(elements, self.layout.rank());
        let own = chunk.len();
        self.reduce(parts, sum, &postings, chunk, true)?;
        self.barrier.meet_now(&what)?;
        self.sent_bytes += 4 * (parts.len() * (elements - own) + own * others) as u64;
        Ok(())
    }

    fn copy(
        &mut self,
        step: u64,
        bucket: usize,
        (from, to): (u32, &[bool]),
        values: &mut Piece,
    ) -> Result<(), CollectiveError> {
        let elements = values.region().len();
        let tag = Tag { step, op: 1 + bucket as u64, elements: elements as u64 };
        let what = format!("copy bucket {bucket} after step {step}");
        self.barrier.post(&tag, &[values.region().offset()])?;
        self.barrier.meet_now(&what)?;
        let me = self.layout.rank();
        if to.get(me as usize) == Some(&true) && from != me {
            let place = self.barrier.posting(from, &tag, 1)?;
            let arena = self.peers.get(from as usize).and_then(Option::as_ref);
            let source = arena.zip(place.first());
            let source = source.and_then(|(arena, at)| arena.read(*at, elements));
            let source = source.ok_or_else(|| CollectiveError::Mismatch {
                rank: from,
                ours: format!("a copy of {elements} elements"),
                theirs: "a place beyond its arena".into(),
            })?;
            values.region_mut().copy_from_slice(source);
        }
        // Only now may the source be changed.
        self.barrier.meet_now(&what)?;
        Ok(())
    }

    fn all_gather(&mut self, step: u64, words: &[u64]) -> Result<Vec<Vec<u64>>, CollectiveError> {
        let mut all = vec![Vec::new(); self.layout.world() as usize];
        let mut round = 0;
        loop {
            let tag = Tag { step, op: 0, elements: round as u64 };
            self.barrier.post_words(&tag, words, round)?;
            self.barrier.meet_now(&format!("gather numbers of step {step}"))?;
            let mut more = false;
            for (rank, into) in (0..).zip(all.iter_mut()) {
                more |= self.barrier.words(rank, &tag, into)?;
            }
            if !more {
                return Ok(all);
            }
            round += 1;
        }
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}
