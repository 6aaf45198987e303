//! All-reduce within one host, in place: every rank's gradients lie in one file in memory that
//! all ranks map; rank r adds slice r of all buffers and stores the sum into all of them.
//!
//! The file needs no preparation: zeros are its valid initial state, and it grows as ranks attach.
//! Words at its front are atomics; floats change hands at barriers. Works between processes and
//! between threads alike.

mod barrier;
mod map;

use crate::pool::stride;
use crate::sum::{BLOCK, Sum};
use crate::transport::{Settings, Transport, check_parts};
use crate::{CollectiveError, Layout, Piece, Pool};
use barrier::{Barrier, Tag};
use map::{Map, PAGE, PeerArena};
pub use map::{Region, as_bytes, as_bytes_mut, monotonic_ns};
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;

/// The shared-memory transport. Built, used and dropped on one thread.
pub struct SharedMemory {
    layout: Layout,
    barrier: Barrier,
    /// Arenas in order of rank; None at our own place.
    peers: Vec<Option<PeerArena>>,
    sum: Sum,
    sent_bytes: u64,
    thread: PhantomData<*const ()>,
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
    /// Maps the file at `path` (made by [`create_file`], or made here when there is none), adds
    /// room for this rank's partial sums to it and waits for all peers to do the same.
    pub fn attach(
        path: &str,
        layout: &Layout,
        lanes: usize,
        settings: &Settings,
    ) -> Result<(SharedMemory, Pool), CollectiveError> {
        let memory = |what: &str| {
            let what = format!("{what} {path}");
            move |source| CollectiveError::Memory { what, source }
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(memory("cannot open shared memory"))?;
        let barrier =
            Barrier::attach(&file, layout, settings).map_err(memory("cannot map shared memory"))?;
        barrier.agree(layout)?;
        let pool = own_arena(&file, &barrier, layout, lanes)
            .map_err(memory("cannot reserve gradients in"))?
            .map_err(|what| CollectiveError::Layout(what.to_string()))?;
        let mut shared = SharedMemory {
            layout: layout.clone(),
            barrier,
            peers: Vec::new(),
            sum: Sum::new(layout),
            sent_bytes: 0,
            thread: PhantomData,
        };
        shared.barrier.meet(settings.attach, "waiting for peers to attach")?;
        for rank in 0..layout.world() {
            let arena = (rank != layout.rank()).then(|| shared.map_peer(&file, rank));
            let arena = arena.transpose().map_err(memory("cannot map gradients of a peer in"))?;
            shared.peers.push(arena);
        }
        shared.barrier.meet(settings.attach, "waiting for peers to attach")?;
        if layout.rank() == 0 && !path.starts_with("/proc/") {
            // All have it open: nothing is left behind whatever happens from here on.
            let _ = std::fs::remove_file(path);
        }
        Ok((shared, pool))
    }

    fn map_peer(&self, file: &File, rank: u32) -> io::Result<PeerArena> {
        let (offset, bytes) = self.barrier.arena(rank);
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        if !offset.is_multiple_of(PAGE as u64) || bytes == 0 {
            return Err(io::Error::other(format!("worker {rank} announced no arena")));
        }
        Map::shared(file, offset, bytes).map(PeerArena)
    }

    /// Adds our chunk of all ranks' nodes and stores the sum at every rank's first node.
    fn reduce_chunk(
        &mut self,
        parts: &mut [Piece],
        postings: &[Vec<usize>],
    ) -> Result<(), CollectiveError> {
        let SharedMemory { layout, peers, sum, .. } = self;
        let me = layout.rank();
        let elements = parts.first().map_or(0, |p| p.region().len());
        let chunk = layout.chunk(elements, me);
        let wrong = |rank: u32| CollectiveError::Mismatch {
            rank,
            ours: format!("an arena that holds {elements} elements"),
            theirs: "a place beyond it".into(),
        };
        for at in chunk.clone().step_by(BLOCK) {
            let length = BLOCK.min(chunk.end - at);
            let mut sources: Vec<&[f32]> = Vec::new();
            for (rank, (peer, offsets)) in (0..).zip(peers.iter().zip(postings)) {
                match peer {
                    None => sources.extend(parts.iter().map(|p| &p.region()[at..at + length])),
                    Some(arena) => {
                        for offset in offsets {
                            let source = offset.checked_add(at);
                            let source = source.and_then(|start| arena.read(start, length));
                            sources.push(source.ok_or_else(|| wrong(rank))?);
                        }
                    }
                }
            }
            let total = sum.block(length, |i| sources[i]);
            for (rank, (peer, offsets)) in (0..).zip(peers.iter().zip(postings)) {
                let Some(arena) = peer else { continue };
                let home = offsets.first().ok_or_else(|| wrong(rank))?;
                if !arena.write(home + at, total) {
                    return Err(wrong(rank));
                }
            }
            if let Some(first) = parts.first_mut() {
                first.region_mut()[at..at + length].copy_from_slice(total);
            }
        }
        Ok(())
    }
}

fn own_arena(
    file: &File,
    barrier: &Barrier,
    layout: &Layout,
    lanes: usize,
) -> io::Result<Result<Pool, CollectiveError>> {
    let (copies, stride) = (layout.copies(lanes), stride(layout.slab()));
    // Ranks' buffers are staggered too: see `stride`.
    let lead = (layout.rank() as usize * 0x440) % 0x4000;
    let elements = lead + copies * stride;
    let bytes = (elements * 4).next_multiple_of(PAGE);
    let offset = barrier.claim(file, bytes as u64)?;
    let mut arena = Region::of(Map::shared(file, offset, bytes)?, elements);
    // The lead belongs to no copy and is never used.
    drop(arena.split_front(lead));
    Ok(Pool::new(layout, arena, copies, stride))
}

impl Transport for SharedMemory {
    fn all_reduce(
        &mut self,
        step: u64,
        bucket: usize,
        parts: &mut [Piece],
    ) -> Result<(), CollectiveError> {
        check_parts(&self.layout, bucket, parts)?;
        let elements = self.layout.elements(bucket);
        let tag = Tag { step, op: 1 + bucket as u64, elements: elements as u64 };
        let offsets: Vec<usize> = parts.iter().map(|p| p.region().offset()).collect();
        self.barrier.post(&tag, &offsets)?;
        let what = format!("reduce bucket {bucket} of step {step}");
        self.barrier.meet_now(&what)?;
        let mut postings = Vec::new();
        for rank in 0..self.layout.world() {
            let nodes = self.layout.nodes(rank).len();
            postings.push(self.barrier.posting(rank, &tag, nodes)?);
        }
        self.reduce_chunk(parts, &postings)?;
        self.barrier.meet_now(&what)?;
        let own = self.layout.chunk(elements, self.layout.rank()).len();
        let others = self.layout.world() as usize - 1;
        self.sent_bytes += 4 * (parts.len() * (elements - own) + own * others) as u64;
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
