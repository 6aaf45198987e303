//! What follows from a worker's counters. Pure: healthy time comes in as an argument.

use crate::page::{Phase, Role};
use std::fmt;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const PHASES: usize = Phase::ALL.len();
/// Steps, or visits of a phase that not every step has, after which its longest gap is known.
const KNOWN: u64 = 2;

/// Counters of a worker at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Rises as long as the process runs.
    pub beats: u64,
    /// The step at hand.
    pub step: Option<u64>,
    pub streams: Vec<StreamSample>,
}

/// One thread of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSample {
    pub role: Role,
    pub phase: Phase,
    /// Rises with everything that the thread finishes.
    pub count: u64,
    /// The kernel's number for it.
    pub thread: u32,
}

/// How long, in healthy nanoseconds, a worker may show nothing new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Without a beat: it is perhaps frozen.
    pub suspect_ns: u64,
    /// Without a beat: it is frozen.
    pub frozen_ns: u64,
    /// By phase: without progress, before it is known how long the phase may take.
    pub first_ns: [u64; PHASES],
    /// By phase: without progress, at least, when it is known.
    pub later_ns: [u64; PHASES],
    /// And at least so many times the longest gap seen in that phase.
    pub multiple: u64,
}

impl Limits {
    /// For a worker whose page is on this machine.
    pub fn near() -> Limits {
        let work = 60 * SECOND;
        // Idle, waiting, data, forward and backward, update, evaluation, save, set-up: the set-up
        // has a deadline of its own, and a disk that is slow to sync is no reason to lose a worker.
        let first_ns = [0, 0, work, work, work, work, 600 * SECOND, 600 * SECOND];
        let soon = 2 * SECOND;
        let later_ns = [0, 0, 30 * SECOND, soon, soon, soon, 600 * SECOND, 600 * SECOND];
        let (suspect_ns, frozen_ns) = (50 * MILLISECOND, 500 * MILLISECOND);
        Limits { suspect_ns, frozen_ns, first_ns, later_ns, multiple: 20 }
    }

    /// For one on another machine, whose own troubles and link are not seen from here.
    pub fn far() -> Limits {
        let mut limits = Limits::near();
        (limits.suspect_ns, limits.frozen_ns) = (300 * MILLISECOND, 2 * SECOND);
        for phase in [Phase::Compute, Phase::Update, Phase::Evaluate] {
            limits.later_ns[phase as usize] = 10 * SECOND;
        }
        limits
    }
}

/// What is thought of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Alive,
    /// No beat for a while; it may come back.
    Suspect,
    /// Not to be counted on any more.
    Hung(Hang),
}

/// What a hang is and what speaks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hang {
    pub what: What,
    /// Healthy time without a sign.
    pub waited_ns: u64,
    /// The longest one before, of a phase.
    pub longest_ns: u64,
    /// The step at hand.
    pub step: Option<u64>,
    /// What most of its threads that work were at; of a stuck one, what that was at.
    pub phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The whole process runs no more.
    Frozen,
    /// The process answers, and one of its threads does not get on.
    Stuck { role: Role, thread: u32 },
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        match self.what {
            What::Frozen => {
                write!(f, "its process gave no sign of life for {:.1} s", seconds(self.waited_ns))
            }
            What::Stuck { role, .. } => {
                let who = match role {
                    Role::Main => "its main thread".to_string(),
                    Role::Lane(n) => format!("its lane {n}"),
                    Role::Saver => "its saving thread".to_string(),
                };
                let (waited, longest) = (seconds(self.waited_ns), seconds(self.longest_ns));
                write!(f, "{who} finished nothing for {waited:.1} s")?;
                if self.longest_ns > 0 {
                    write!(f, " (longest before: {longest:.2} s)")?;
                }
                write!(f, ", while its process answers")
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    role: Role,
    thread: u32,
    phase: Phase,
    count: u64,
    /// Of the worker's own time.
    since_ns: u64,
}

/// Watches the counters of one worker.
#[derive(Debug)]
pub struct Judge {
    limits: Limits,
    started: bool,
    /// Healthy time at the last look, and since the last beat.
    looked_ns: u64,
    stale_ns: u64,
    beats: u64,
    /// Healthy time in which the process ran: a freeze is not the fault of its threads.
    own_ns: u64,
    streams: Vec<Seen>,
    longest_ns: [u64; PHASES],
    visits: [u64; PHASES],
    step: Option<u64>,
    steps: u64,
}

impl Judge {
    pub fn new(limits: Limits) -> Judge {
        Judge {
            limits,
            started: false,
            looked_ns: 0,
            stale_ns: 0,
            beats: 0,
            own_ns: 0,
            streams: Vec::new(),
            longest_ns: [0; PHASES],
            visits: [0; PHASES],
            step: None,
            steps: 0,
        }
    }

    /// Looks at the counters. `healthy_ns` must not run backwards.
    pub fn look(&mut self, healthy_ns: u64, sample: &Sample) -> Verdict {
        let passed = healthy_ns.saturating_sub(self.looked_ns);
        self.looked_ns = healthy_ns;
        if !self.started || sample.beats != self.beats {
            if self.started {
                self.own_ns += (self.stale_ns + passed).min(self.limits.suspect_ns);
            }
            (self.started, self.beats, self.stale_ns) = (true, sample.beats, 0);
        } else {
            self.stale_ns += passed;
        }
        if sample.step != self.step {
            self.steps += u64::from(self.step.is_some());
            self.step = sample.step;
        }
        self.streams.retain(|old| sample.streams.iter().any(|new| same(old, new)));
        let found = sample.streams.iter().filter_map(|s| self.stuck(s)).min_by_key(|h| h.phase);
        if self.stale_ns >= self.limits.frozen_ns {
            return Verdict::Hung(Hang {
                what: What::Frozen,
                waited_ns: self.stale_ns,
                longest_ns: 0,
                step: self.step,
                phase: at_work(sample),
            });
        }
        match found {
            _ if self.stale_ns >= self.limits.suspect_ns => Verdict::Suspect,
            Some(hang) => Verdict::Hung(hang),
            None => Verdict::Alive,
        }
    }

    /// Takes note of one thread; Some when it has not got on for too long.
    fn stuck(&mut self, stream: &StreamSample) -> Option<Hang> {
        let now = self.own_ns;
        let Some(seen) = self.streams.iter_mut().find(|old| same(old, stream)) else {
            let StreamSample { role, thread, phase, count } = *stream;
            self.streams.push(Seen { role, thread, phase, count, since_ns: now });
            return None;
        };
        let (before, gap) = (seen.phase as usize, now.saturating_sub(seen.since_ns));
        if (seen.count, seen.phase) != (stream.count, stream.phase) {
            self.longest_ns[before] = self.longest_ns[before].max(gap);
            self.visits[before] += u64::from(seen.phase != stream.phase);
            (seen.count, seen.phase, seen.since_ns) = (stream.count, stream.phase, now);
            return None;
        }
        let phase = stream.phase;
        let hung = phase.works() && gap >= self.deadline_ns(phase);
        hung.then(|| Hang {
            what: What::Stuck { role: stream.role, thread: stream.thread },
            waited_ns: gap,
            longest_ns: self.longest_ns[phase as usize],
            step: self.step,
            phase,
        })
    }

    /// How long a thread may show no progress in a phase.
    pub fn deadline_ns(&self, phase: Phase) -> u64 {
        let known = match phase {
            Phase::Evaluate => self.visits[phase as usize] >= KNOWN,
            _ => self.steps >= KNOWN,
        };
        let floors = if known { &self.limits.later_ns } else { &self.limits.first_ns };
        let longest = self.longest_ns[phase as usize].saturating_mul(self.limits.multiple);
        floors[phase as usize].max(longest)
    }
}

fn same(old: &Seen, new: &StreamSample) -> bool {
    (old.role, old.thread) == (new.role, new.thread)
}

/// What the threads were at: work before waiting.
fn at_work(sample: &Sample) -> Phase {
    let phases = || sample.streams.iter().map(|s| s.phase);
    let working = phases().find(|p| p.works() && *p != Phase::Save);
    working.or_else(|| phases().max()).unwrap_or(Phase::Idle)
}

#[cfg(test)]
mod tests;
