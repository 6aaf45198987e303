//! A rank's gradients in a file in memory of its own, which outlives the members that share it.

use super::barrier::born;
use super::map::{Map, PAGE, PeerArena, Region, memfd, reserve};
use crate::Piece;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Where peers find an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pid: u32,
    /// When that process started.
    pub(super) born: u64,
    pub(super) fd: u32,
    /// Tells the file apart from one that has taken its descriptor.
    pub(super) inode: u64,
    pub(super) bytes: u64,
}

/// A file in memory that only grows, and what is known of those of the peers.
pub(crate) struct Arena {
    file: File,
    inode: u64,
    bytes: u64,
    /// Room for copies of small buckets while nobody uses it.
    stages: Option<[Region; 2]>,
    /// Mapped for the members before: most of them are members again.
    peers: Vec<(Place, Arc<Map>)>,
    /// Pieces that some of these processes may still write into.
    quarantine: Vec<(Piece, Vec<Place>)>,
}

impl Arena {
    pub(crate) fn new() -> io::Result<Arena> {
        let file = memfd(c"monarch-gradients")?;
        let inode = file.metadata()?.ino();
        // Ranks' buffers are staggered too: see `stride`.
        let bytes = u64::from(std::process::id() % 4) * PAGE as u64;
        Ok(Arena { file, inode, bytes, stages: None, peers: Vec::new(), quarantine: Vec::new() })
    }

    /// Room for so many elements more.
    pub(crate) fn extend(&mut self, elements: usize) -> io::Result<Region> {
        let bytes = elements.saturating_mul(4).max(1).next_multiple_of(PAGE);
        reserve(&self.file, self.bytes, bytes as u64)?;
        let map = Map::shared(&self.file, self.bytes, bytes)?;
        let region = Region::of(map, self.bytes as usize / 4, elements);
        self.bytes += bytes as u64;
        Ok(region)
    }

    /// Two regions of at least so many elements.
    pub(super) fn stages(&mut self, elements: usize) -> io::Result<[Region; 2]> {
        match self.stages.take() {
            Some(stages) if stages.iter().all(|s| s.len() >= elements) => Ok(stages),
            _ => {
                let mut both = self.extend(2 * elements)?;
                Ok([both.split_front(elements), both])
            }
        }
    }

    pub(super) fn keep_stages(&mut self, stages: [Region; 2]) {
        self.stages = Some(stages);
    }

    pub(super) fn place(&self) -> Place {
        let (pid, fd) = (std::process::id(), self.file.as_raw_fd() as u32);
        Place { pid, born: born(pid).unwrap_or(0), fd, inode: self.inode, bytes: self.bytes }
    }

    /// Takes a piece whose reduction has failed: a peer that was stopped in the middle of it, and
    /// is no peer any more, may go on one day.
    pub(crate) fn quarantine(&mut self, piece: Piece) {
        let peers = self.peers.iter().map(|(place, _)| *place).collect();
        self.quarantine.push((piece, peers));
    }

    /// Pieces that nobody can write into any more: who could is dead, or a peer of the generation
    /// at hand, and so has left the one before.
    pub(crate) fn released(&mut self) -> Vec<Piece> {
        let peers = &self.peers;
        let harmless = |place: &Place| {
            let same = |p: &Place| (p.pid, p.born, p.inode) == (place.pid, place.born, place.inode);
            peers.iter().any(|(p, _)| same(p)) || born(place.pid) != Some(place.born)
        };
        let all = std::mem::take(&mut self.quarantine);
        let (free, kept): (Vec<_>, _) = all.into_iter().partition(|(_, p)| p.iter().all(harmless));
        self.quarantine = kept;
        free.into_iter().map(|(piece, _)| piece).collect()
    }

    /// The arenas of peers; who is no peer any more is forgotten.
    pub(super) fn peers(
        &mut self,
        places: &[Option<Place>],
    ) -> Result<Vec<Option<PeerArena>>, (u32, io::Error)> {
        let mut known = Vec::new();
        let mut out = Vec::new();
        for (rank, place) in (0..).zip(places) {
            let Some(place) = place else {
                out.push(None);
                continue;
            };
            let old = self.peers.iter().find(|(at, _)| at == place);
            let map = match old {
                Some((_, map)) => map.clone(),
                None => Arc::new(map_peer(place).map_err(|e| (rank, e))?),
            };
            known.push((*place, map.clone()));
            out.push(Some(PeerArena(map)));
        }
        self.peers = known;
        Ok(out)
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} bytes)", self.bytes)
    }
}

fn map_peer(place: &Place) -> io::Result<Map> {
    let bytes = usize::try_from(place.bytes).map_err(io::Error::other)?;
    let path = format!("/proc/{}/fd/{}", place.pid, place.fd);
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.ino() != place.inode || bytes == 0 {
        return Err(io::Error::other("its memory is gone"));
    }
    Map::shared(&file, 0, bytes)
}
