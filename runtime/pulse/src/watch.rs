//! The watching side: maps pages of workers on this machine, looks at them again and again, and
//! sleeps on their words of life.

use crate::canary::{Canaries, HealthyClock};
use crate::judge::{Hang, Judge, Limits, Sample, Verdict, What};
use crate::page::{Life, Page};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks at the pages.
const LOOK: Duration = Duration::from_millis(10);
/// How long a sleeper on a word of life goes on when nobody cares any more.
const SLICE: Duration = Duration::from_millis(500);

/// What is seen of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Its process has ended without a word.
    Died,
    /// It is not to be counted on; with what the kernel says of it, where it says something.
    Hung(Hang, Option<String>),
}

type Tell = dyn Fn(u64, Sign) + Send + Sync;

struct Watched {
    page: Page,
    pid: u32,
    judge: Judge,
    /// Nobody cares any more.
    over: Arc<AtomicBool>,
}

struct Shared {
    watched: Mutex<BTreeMap<u64, Watched>>,
    healthy_ns: AtomicU64,
    stop: AtomicBool,
    tell: Box<Tell>,
}

/// Looks after the workers of this machine from a thread of its own. Dropped, it stops.
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// `tell` learns each worker's number and what is seen of it, once; must not wait.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(tell: impl Fn(u64, Sign) + Send + Sync + 'static) -> io::Result<Monitor> {
        let shared = Arc::new(Shared {
            watched: Mutex::default(),
            healthy_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            tell: Box::new(tell),
        });
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("monitor".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || its.watch())?;
        Ok(Monitor { shared, thread: Some(thread) })
    }

    /// Watches the worker of this number from now on. `apart`: it is another process, whose
    /// freezing and end mean something.
    pub fn watch(&self, worker: u64, pid: u32, page: Page, limits: Limits, apart: bool) {
        let over = Arc::new(AtomicBool::new(false));
        if apart {
            let (shared, page, over) = (self.shared.clone(), page.clone(), over.clone());
            let thread = std::thread::Builder::new().name("life".into()).stack_size(64 << 10);
            // Without it, the end is noticed by other signs.
            let _ = thread.spawn(move || shared.sleep(worker, &page, &over));
        }
        let limits = if apart { limits } else { Limits { frozen_ns: u64::MAX, ..limits } };
        let watched = Watched { page, pid, judge: Judge::new(limits), over };
        if let Some(old) = self.shared.lock().insert(worker, watched) {
            old.over.store(true, Ordering::Release);
        }
    }

    /// Looks at this worker no more.
    pub fn forget(&self, worker: u64) {
        if let Some(old) = self.shared.lock().remove(&worker) {
            old.over.store(true, Ordering::Release);
        }
    }

    /// Healthy time of this machine so far.
    pub fn healthy_ns(&self) -> u64 {
        self.shared.healthy_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for old in self.shared.lock().values() {
            old.over.store(true, Ordering::Release);
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let canaries = Canaries::start();
        let mut clock = HealthyClock::default();
        while !self.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK);
            let healthy_ns = clock.advance(&canaries.counts(), canaries.tick_ns());
            self.healthy_ns.store(healthy_ns, Ordering::Relaxed);
            let mut hung = Vec::new();
            let mut watched = self.lock();
            for (worker, one) in watched.iter_mut() {
                let sample: Sample = one.page.sample();
                if let Verdict::Hung(hang) = one.judge.look(healthy_ns, &sample)
                    && one.page.life() != Life::Died
                {
                    hung.push((*worker, one.pid, hang));
                }
            }
            for (worker, ..) in &hung {
                if let Some(old) = watched.remove(worker) {
                    old.over.store(true, Ordering::Release);
                }
            }
            drop(watched);
            for (worker, pid, hang) in hung {
                (self.tell)(worker, Sign::Hung(hang, evidence(pid, hang.what)));
            }
        }
    }

    /// Sleeps until the process has ended.
    fn sleep(&self, worker: u64, page: &Page, over: &AtomicBool) {
        while !over.load(Ordering::Acquire) {
            match page.wait_end(SLICE) {
                Life::Alive => {}
                Life::Left => return,
                Life::Died => {
                    if !over.swap(true, Ordering::AcqRel) {
                        (self.tell)(worker, Sign::Died);
                    }
                    return;
                }
            }
        }
    }
}

/// What the kernel says of a process or of the thread that is stuck.
fn evidence(pid: u32, what: What) -> Option<String> {
    let (path, who) = match what {
        What::Frozen => (format!("/proc/{pid}/stat"), "the process"),
        What::Stuck { thread, .. } => (format!("/proc/{pid}/task/{thread}/stat"), "the thread"),
    };
    let stat = std::fs::read_to_string(path).ok()?;
    // The name in parentheses may hold anything; fields are counted after it.
    let state = stat.rsplit_once(')')?.1.split_ascii_whitespace().next()?;
    Some(match state {
        "R" => format!("{who} is running"),
        "S" => format!("{who} sleeps in a system call"),
        "D" => format!("{who} is blocked in the kernel, as by a disk that does not answer"),
        "T" => format!("{who} is stopped by a signal (SIGSTOP or the like)"),
        "t" => format!("{who} is stopped by a debugger"),
        "Z" | "X" => format!("{who} has ended"),
        other => format!("{who} is in state {other}"),
    })
}
