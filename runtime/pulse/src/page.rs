//! The page that a worker shows: a heartbeat, a word of life, and what each of its threads does.

use crate::judge::{Sample, StreamSample};
use crate::sys::{Map, futex_wait, is_sealed, sealed_memory};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// "PULSE" and the version of this layout.
const MAGIC: u64 = 0x5055_4c53_4500_0001;
const NAME: &str = "monarch-pulse";

// Bytes of the header.
const AT_MAGIC: usize = 0;
const AT_BEATS: usize = 8;
const AT_LIFE: usize = 16;
const AT_PID: usize = 24;
const AT_STEP: usize = 32;
/// Where the robust list of the thread that holds the word of life leads.
const AT_ENTRY: usize = 48;
const HEADER: usize = 128;

/// Bytes of a stream's slot: a cache line, so that threads do not slow each other down.
const SLOT: usize = 64;
const AT_WORD: usize = 0;
const AT_ROLE: usize = 8;
const AT_THREAD: usize = 12;

/// Threads that can be watched at a time.
pub(crate) const SLOTS: usize = 126;
const BYTES: usize = HEADER + SLOTS * SLOT;

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Nothing is asked of it.
    Idle = 0,
    /// It waits for others: never its own fault.
    Waiting = 1,
    /// Loads samples.
    Data = 2,
    /// Forward and backward.
    Compute = 3,
    Update = 4,
    Evaluate = 5,
    Save = 6,
    Setup = 7,
}

impl Phase {
    pub const ALL: [Phase; 8] = [
        Phase::Idle,
        Phase::Waiting,
        Phase::Data,
        Phase::Compute,
        Phase::Update,
        Phase::Evaluate,
        Phase::Save,
        Phase::Setup,
    ];

    /// Phase of that number; what is unknown counts as idle, so that it accuses nobody.
    pub fn of(number: u8) -> Phase {
        Phase::ALL.get(usize::from(number)).copied().unwrap_or(Phase::Idle)
    }

    /// Whether a thread in it must get on by itself.
    pub fn works(self) -> bool {
        !matches!(self, Phase::Idle | Phase::Waiting)
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Waiting => "waiting for others",
            Phase::Data => "loading data",
            Phase::Compute => "forward and backward",
            Phase::Update => "update",
            Phase::Evaluate => "evaluation",
            Phase::Save => "saving",
            Phase::Setup => "set-up",
        }
    }
}

/// Which of a worker's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that talks to the controller, and lane 0.
    Main,
    Lane(u16),
    Saver,
}

impl Role {
    fn number(self) -> u32 {
        match self {
            Role::Main => 1,
            Role::Saver => 2,
            Role::Lane(n) => 1 << 16 | u32::from(n),
        }
    }

    /// None for a slot that nobody uses.
    pub fn of(number: u32) -> Option<Role> {
        match number {
            1 => Some(Role::Main),
            2 => Some(Role::Saver),
            n if n >> 16 == 1 => Some(Role::Lane(n as u16)),
            _ => None,
        }
    }

    /// As a number that travels.
    pub fn code(self) -> u32 {
        self.number()
    }
}

/// Whether the process behind a page lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// It has ended without a word.
    Died,
    /// It says nothing of its life any more, in good order.
    Left,
}

/// The mapped page. Clones share it.
#[derive(Clone)]
pub struct Page {
    map: Arc<Map>,
    file: Arc<File>,
}

impl Page {
    /// A new page of this process.
    pub(crate) fn create() -> io::Result<Page> {
        let file = sealed_memory(c"monarch-pulse", BYTES as u64)?;
        let page = Page { map: Arc::new(Map::of(&file, BYTES, true)?), file: Arc::new(file) };
        page.word(AT_PID).store(u64::from(std::process::id()), Ordering::Relaxed);
        page.word(AT_MAGIC).store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Maps the page that process `pid` of this machine has under descriptor `fd`, for reading.
    ///
    /// # Errors
    /// When there is no such process or descriptor, when it may not be read, or when what is there
    /// is no page.
    pub fn open(pid: u32, fd: u32) -> io::Result<Page> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let wrong = |what: &str| io::Error::other(format!("{path} {what}"));
        // Whoever names it may name anything: only memory of this name is opened at all.
        let target = std::fs::read_link(&path)?;
        if !target.to_string_lossy().starts_with(&format!("/memfd:{NAME}")) {
            return Err(wrong("is no page of a worker"));
        }
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        if !is_sealed(&file) || file.metadata()?.len() != BYTES as u64 {
            return Err(wrong("has another length than this version's"));
        }
        let page = Page { map: Arc::new(Map::of(&file, BYTES, false)?), file: Arc::new(file) };
        if page.word(AT_MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(wrong("is the page of another version"));
        }
        if page.word(AT_PID).load(Ordering::Relaxed) != u64::from(pid) {
            return Err(wrong("is the page of another process"));
        }
        Ok(page)
    }

    /// Descriptor of the file, in this process.
    pub(crate) fn fd(&self) -> u32 {
        self.file.as_raw_fd() as u32
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        match self.map.at(at, 8) {
            // SAFETY: aligned and within the mapping, which lives as long as `self`; every bit
            // pattern is valid and all parties use atomics. A page mapped for reading only is
            // written by nobody: `beat`, `step`, and slots belong to the maker of the page.
            Some(word) => unsafe { AtomicU64::from_ptr(word.cast()) },
            None => &NOWHERE,
        }
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        match self.map.at(at, 4) {
            // SAFETY: as for `word`.
            Some(word) => unsafe { AtomicU32::from_ptr(word.cast()) },
            None => &NOWHERE,
        }
    }

    pub(crate) fn beats(&self) -> &AtomicU64 {
        self.word(AT_BEATS)
    }

    /// Number of the step at hand, plus one.
    pub(crate) fn step(&self) -> &AtomicU64 {
        self.word(AT_STEP)
    }

    pub(crate) fn life_word(&self) -> &AtomicU32 {
        self.word32(AT_LIFE)
    }

    /// The entry of a robust list, and how far from it the word of life lies.
    pub(crate) fn entry(&self) -> (&AtomicU64, isize) {
        (self.word(AT_ENTRY), AT_LIFE as isize - AT_ENTRY as isize)
    }

    /// Takes a slot for the calling thread; None when all are taken.
    pub(crate) fn take(&self, role: Role) -> Option<usize> {
        let thread = crate::sys::thread_id();
        (0..SLOTS).find(|&slot| {
            let word = self.word32(HEADER + slot * SLOT + AT_ROLE);
            let free = word.compare_exchange(0, role.number(), Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                self.word32(HEADER + slot * SLOT + AT_THREAD).store(thread, Ordering::Relaxed);
            }
            free.is_ok()
        })
    }

    pub(crate) fn give(&self, slot: usize) {
        let word = self.stream(slot);
        let count = word.load(Ordering::Relaxed) >> 8;
        word.store((count + 1) << 8, Ordering::Relaxed);
        self.word32(HEADER + slot * SLOT + AT_ROLE).store(0, Ordering::Release);
    }

    /// Of a slot: a count of what is done above eight bits of phase. Written by its thread alone.
    pub(crate) fn stream(&self, slot: usize) -> &AtomicU64 {
        self.word(HEADER + slot.min(SLOTS - 1) * SLOT + AT_WORD)
    }

    /// All counters as they are now.
    pub fn sample(&self) -> Sample {
        let slot = |slot: usize| {
            let at = HEADER + slot * SLOT;
            let role = Role::of(self.word32(at + AT_ROLE).load(Ordering::Acquire))?;
            let word = self.stream(slot).load(Ordering::Relaxed);
            Some(StreamSample {
                role,
                phase: Phase::of(word as u8),
                count: word >> 8,
                thread: self.word32(at + AT_THREAD).load(Ordering::Relaxed),
            })
        };
        Sample {
            beats: self.beats().load(Ordering::Relaxed),
            step: self.step().load(Ordering::Relaxed).checked_sub(1),
            streams: (0..SLOTS).filter_map(slot).collect(),
        }
    }

    /// Whether the process lives, as its own kernel says: known a moment after its end, before its
    /// memory is freed.
    pub fn life(&self) -> Life {
        Page::life_of(self.life_word().load(Ordering::Acquire))
    }

    fn life_of(word: u32) -> Life {
        match word {
            0 => Life::Left,
            word if word & libc::FUTEX_OWNER_DIED != 0 => Life::Died,
            _ => Life::Alive,
        }
    }

    /// Waits for the end of the process, at most `limit`. Of several who wait for one page, one
    /// alone is sure to be woken at once.
    pub fn wait_end(&self, limit: Duration) -> Life {
        let seen = self.life_word().load(Ordering::Acquire);
        if Page::life_of(seen) == Life::Alive {
            futex_wait(self.life_word(), seen, limit);
        }
        self.life()
    }
}
