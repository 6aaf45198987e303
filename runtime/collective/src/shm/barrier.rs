//! The words at the front of the shared file: who is there, what each is doing, and the barrier.

use super::arena::Place;
use super::map::{Map, futex_wait, futex_wake_all, reserve};
use crate::transport::Settings;
use crate::{CollectiveError, Layout};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// "MONARCH" and the version of this layout.
const MAGIC: u64 = 0x4d4f_4e41_5243_4802;
/// Looks at the bell before going to sleep.
const SPINS: u32 = 200;
/// Longest sleep before looking at `Stop` again.
const SLICE: Duration = Duration::from_millis(2);
/// How often a sleeper asks the kernel whether its peers live.
const PULSE: Duration = Duration::from_millis(20);

// Bytes of the header.
const AT_MAGIC: usize = 0;
const AT_HASH: usize = 8;
const AT_ARRIVED: usize = 24;
const AT_BELL: usize = 32;
const HEADER: usize = 128;

// Bytes within a rank's slot.
const AT_STATE: usize = 0;
const AT_PID: usize = 8;
const AT_BORN: usize = 16;
const AT_SPACE: usize = 24;
const AT_ARENA: usize = 32;
const AT_BYTES: usize = 40;
const AT_PHASE: usize = 48;
const AT_INODE: usize = 56;
/// Two postings, used in turn: words tag[4], count, then that many words.
const AT_POSTING: usize = 128;
const POSTING_WORDS: usize = 1024;
const POSTING: usize = POSTING_WORDS * 8;
/// Words of a posting before its contents.
const FRONT: usize = 6;
/// Most places that a rank can post: its nodes and its sum.
pub(super) const PLACES: usize = POSTING_WORDS - FRONT;
const SLOT: usize = AT_POSTING + 2 * POSTING;

const ATTACHED: u64 = 1;
const LEFT: u64 = 2;

/// Longest world: keeps offsets far from overflow.
const MAX_WORLD: u32 = 1 << 16;

/// What a rank is doing. Equal on all ranks, or the run is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) step: u64,
    /// 0: gather; otherwise 1 + bucket.
    pub(super) op: u64,
    pub(super) elements: u64,
}

impl Tag {
    fn words(&self, generation: u32) -> [u64; 4] {
        [u64::from(generation), self.step, self.op, self.elements]
    }
}

fn describe(words: [u64; 4]) -> String {
    let [generation, step, op, elements] = words;
    match op {
        0 => format!("numbers, round {elements}, of step {step} (generation {generation})"),
        _ => format!(
            "bucket {} with {elements} elements of step {step} (generation {generation})",
            op - 1
        ),
    }
}

pub(super) struct Barrier {
    map: Map,
    rank: u32,
    world: u32,
    generation: u32,
    settings: Settings,
    /// Barriers passed so far.
    passed: u64,
    /// Collectives begun so far: their parity chooses the posting.
    begun: u64,
    /// Number of this process's pid namespace: only within one do pids mean anything.
    space: u64,
    /// Stands in for words beyond the mapping, which was made long enough for all of them.
    nowhere: (AtomicU64, AtomicU32),
}

impl Barrier {
    /// Maps the words and says that this rank is here.
    pub(super) fn attach(file: &File, layout: &Layout, settings: &Settings) -> io::Result<Barrier> {
        if layout.world() > MAX_WORLD {
            return Err(io::Error::other(format!("{} ranks on one host", layout.world())));
        }
        let bytes = Barrier::bytes(layout.world());
        reserve(file, 0, bytes as u64)?;
        Ok(Barrier {
            map: Map::shared(file, 0, bytes)?,
            rank: layout.rank(),
            world: layout.world(),
            generation: settings.generation,
            settings: settings.clone(),
            passed: 0,
            begun: 0,
            space: pid_namespace(),
            nowhere: Default::default(),
        })
    }

    /// Bytes in front of the arenas.
    fn bytes(world: u32) -> usize {
        (HEADER + world as usize * SLOT).next_multiple_of(super::PAGE)
    }

    /// Checks that all who use the file mean the same job, cut in the same way. One who has slept
    /// through a change of members, and comes with an old path, changes nothing in it.
    pub(super) fn agree(&self, layout: &Layout) -> Result<(), CollectiveError> {
        for (at, ours, what) in
            [(AT_MAGIC, MAGIC, "format"), (AT_HASH, layout.hash(), "layout of gradients")]
        {
            let word = self.word(at);
            let theirs = word.compare_exchange(0, ours, Ordering::AcqRel, Ordering::Acquire);
            if let Err(theirs) = theirs.or_else(|t| if t == ours { Ok(t) } else { Err(t) }) {
                let ours = format!("{what} {ours:016x}");
                let theirs = format!("{what} {theirs:016x}");
                let rank = if self.rank == 0 { 1 } else { 0 };
                return Err(CollectiveError::Mismatch { rank, ours, theirs });
            }
        }
        let state = self.own(AT_STATE);
        if state.swap(ATTACHED, Ordering::AcqRel) != 0 {
            let what = format!("rank {} is already in the shared memory", self.rank);
            return Err(CollectiveError::Layout(what));
        }
        let pid = std::process::id();
        self.own(AT_PID).store(u64::from(pid), Ordering::Relaxed);
        self.own(AT_SPACE).store(self.space, Ordering::Relaxed);
        // Last: a peer believes the others only when this is there.
        self.own(AT_BORN).store(born(pid).unwrap_or(0), Ordering::Release);
        Ok(())
    }

    /// Tells the peers where this rank's gradients lie.
    pub(super) fn announce(&self, place: &Place) {
        self.own(AT_ARENA).store(u64::from(place.fd), Ordering::Release);
        self.own(AT_INODE).store(place.inode, Ordering::Release);
        self.own(AT_BYTES).store(place.bytes, Ordering::Release);
    }

    /// Where those of a peer lie.
    pub(super) fn place(&self, rank: u32) -> Place {
        let at = |field| self.slot(rank, field).load(Ordering::Acquire);
        Place {
            pid: at(AT_PID) as u32,
            born: at(AT_BORN),
            fd: at(AT_ARENA) as u32,
            inode: at(AT_INODE),
            bytes: at(AT_BYTES),
        }
    }

    /// Parity of the collective that is about to begin: what was published under the same parity
    /// before has been read by all, since all have begun the one in between.
    pub(super) fn next_parity(&self) -> usize {
        ((self.begun + 1) % 2) as usize
    }

    /// Begins a collective: says where this rank's nodes lie.
    pub(super) fn post(&mut self, tag: &Tag, offsets: &[usize]) -> Result<(), CollectiveError> {
        let words: Vec<u64> = offsets.iter().map(|&o| o as u64).collect();
        self.post_words(tag, &words, 0)
    }

    /// Begins a collective with round `round` of `words`.
    pub(super) fn post_words(
        &mut self,
        tag: &Tag,
        words: &[u64],
        round: usize,
    ) -> Result<(), CollectiveError> {
        let room = POSTING_WORDS - FRONT;
        let from = round.saturating_mul(room).min(words.len());
        let now = &words[from..words.len().min(from + room)];
        self.begun += 1;
        let posting = self.posting_at(self.rank);
        let more = u64::from(from + now.len() < words.len());
        let front = tag.words(self.generation).into_iter().chain([now.len() as u64, more]);
        for (i, word) in front.chain(now.iter().copied()).enumerate() {
            self.word(posting + i * 8).store(word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Appends what `rank` posted for this collective; true when another round follows.
    pub(super) fn words(
        &self,
        rank: u32,
        tag: &Tag,
        into: &mut Vec<u64>,
    ) -> Result<bool, CollectiveError> {
        let at = self.posting_at(rank);
        let word = |i: usize| self.word(at + i * 8).load(Ordering::Relaxed);
        let theirs = [word(0), word(1), word(2), word(3)];
        let ours = tag.words(self.generation);
        let count = word(4) as usize;
        if theirs != ours || count > POSTING_WORDS - FRONT {
            let (ours, theirs) = (describe(ours), describe(theirs));
            return Err(CollectiveError::Mismatch { rank, ours, theirs });
        }
        into.extend((0..count).map(|i| word(FRONT + i)));
        Ok(word(5) != 0)
    }

    /// The `places` that `rank` has for this collective, in elements of its arena.
    pub(super) fn posting(
        &self,
        rank: u32,
        tag: &Tag,
        places: usize,
    ) -> Result<Vec<usize>, CollectiveError> {
        let mut words = Vec::new();
        self.words(rank, tag, &mut words)?;
        if words.len() != places {
            let (ours, theirs) = (format!("{places} places"), format!("{} places", words.len()));
            return Err(CollectiveError::Mismatch { rank, ours, theirs });
        }
        Ok(words.into_iter().map(|w| w as usize).collect())
    }

    /// Waits until all ranks are here, with the usual patience.
    pub(super) fn meet_now(&mut self, what: &str) -> Result<(), CollectiveError> {
        self.meet(self.settings.patience, what)
    }

    /// Waits until all ranks are here.
    pub(super) fn meet(&mut self, patience: Duration, what: &str) -> Result<(), CollectiveError> {
        self.passed += 1;
        let goal = self.passed;
        self.own(AT_PHASE).store(goal, Ordering::Release);
        let arrived = self.word(AT_ARRIVED).fetch_add(1, Ordering::AcqRel) + 1;
        if arrived == goal * u64::from(self.world) {
            self.bell().store(goal as u32, Ordering::Release);
            futex_wake_all(self.bell());
            return Ok(());
        }
        for _ in 0..SPINS {
            if self.rang(goal) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.sleep(goal, patience, what)
    }

    fn sleep(&self, goal: u64, patience: Duration, what: &str) -> Result<(), CollectiveError> {
        let start = Instant::now();
        let mut asked = start;
        loop {
            let seen = self.bell().load(Ordering::Acquire);
            if self.rang(goal) {
                return Ok(());
            }
            self.settings.stop.check()?;
            let now = Instant::now();
            let ask_kernel = now - asked >= PULSE;
            if ask_kernel {
                asked = now;
            }
            self.look_for_losses(goal, ask_kernel)?;
            if now - start >= patience {
                let missing = (0..self.world).filter(|&r| self.is_missing(r, goal)).collect();
                let what = what.to_string();
                return Err(CollectiveError::Timeout { waited: now - start, missing, what });
            }
            futex_wait(self.bell(), seen, SLICE);
        }
    }

    /// True once the bell has been rung for barrier `goal` (or a later one).
    fn rang(&self, goal: u64) -> bool {
        let bell = self.bell().load(Ordering::Acquire);
        bell.wrapping_sub(goal as u32) < 1 << 31
    }

    fn is_missing(&self, rank: u32, goal: u64) -> bool {
        self.slot(rank, AT_PHASE).load(Ordering::Acquire) < goal
    }

    fn look_for_losses(&self, goal: u64, ask_kernel: bool) -> Result<(), CollectiveError> {
        for rank in (0..self.world).filter(|&r| self.is_missing(r, goal)) {
            let lost = |why: &str| {
                // It may have arrived and left since.
                let missing = self.is_missing(rank, goal);
                if missing {
                    Err(CollectiveError::PeerLost { rank, why: why.into() })
                } else {
                    Ok(())
                }
            };
            match self.slot(rank, AT_STATE).load(Ordering::Acquire) {
                LEFT => lost("it has left the reduction")?,
                ATTACHED if ask_kernel && !self.lives(rank) => lost("its process has died")?,
                _ => {}
            }
        }
        Ok(())
    }

    fn lives(&self, rank: u32) -> bool {
        let at = |field| self.slot(rank, field).load(Ordering::Relaxed);
        let (pid, birth) = (at(AT_PID), at(AT_BORN));
        if self.space == 0 || at(AT_SPACE) != self.space || birth == 0 {
            return true;
        }
        u32::try_from(pid).is_ok_and(|pid| born(pid) == Some(birth))
    }

    fn posting_at(&self, rank: u32) -> usize {
        HEADER + rank as usize * SLOT + AT_POSTING + (self.begun % 2) as usize * POSTING
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.map.word64(at).unwrap_or(&self.nowhere.0)
    }

    fn slot(&self, rank: u32, field: usize) -> &AtomicU64 {
        self.word(HEADER + rank as usize * SLOT + field)
    }

    fn own(&self, field: usize) -> &AtomicU64 {
        self.slot(self.rank, field)
    }

    /// The word that sleepers watch: the number of the last barrier passed.
    fn bell(&self) -> &AtomicU32 {
        self.map.word32(AT_BELL).unwrap_or(&self.nowhere.1)
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.own(AT_STATE).store(LEFT, Ordering::Release);
        futex_wake_all(self.bell());
    }
}

/// The kernel's number for the pid namespace of this process; 0 when unknown.
fn pid_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").ok();
    let text = link.as_ref().and_then(|l| l.to_str());
    let number = text.and_then(|t| t.strip_prefix("pid:[")?.strip_suffix(']'));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// When the process started, in ticks since boot; None when it is no more (or only a zombie).
pub(super) fn born(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted after it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
