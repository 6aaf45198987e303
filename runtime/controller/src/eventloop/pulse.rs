//! Signs of life: pages of workers on this machine, messages from those elsewhere.

use super::EventLoop;
use crate::link::Input;
use monarch_pulse::{Hang, Judge, Limits, Monitor, Page, Phase, Role, Sample, Sign};
use monarch_pulse::{StreamSample, Verdict};
use monarch_sched::{Event, WorkerId};
use monarch_wire::Hello;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

/// Most that one look adds to the time in which this loop is well: it looks every 20 ms.
const LOOK_NS: u64 = 50_000_000;

/// Who is watched, and how.
pub(crate) struct Pulses {
    /// None when there is no thread to be had: hangs are then found by the last deadline alone.
    monitor: Option<Monitor>,
    domain: String,
    /// Whose page cannot be seen from here, with what they said last.
    far: BTreeMap<WorkerId, (Judge, Sample)>,
    /// Time in which this machine was well, and this loop has heard all that there was to hear.
    clock_ns: u64,
    healthy_ns: u64,
}

impl Pulses {
    pub fn start(inbox: Sender<Input>) -> Pulses {
        let tell = move |worker, sign| {
            // Nobody listens any more once the run is over.
            let _ = inbox.send(Input::Pulse(WorkerId(worker), sign));
        };
        Pulses {
            monitor: Monitor::start(tell).ok(),
            domain: monarch_pulse::domain(),
            far: BTreeMap::new(),
            clock_ns: 0,
            healthy_ns: 0,
        }
    }

    /// Watches a worker that has introduced itself, by its page if that can be seen from here.
    pub fn joined(&mut self, worker: WorkerId, hello: &Hello) {
        let near = hello.shm_domain == self.domain;
        let page = hello.pulse.filter(|_| near).map(|fd| Page::open(hello.pid, fd));
        match (&self.monitor, page) {
            (Some(monitor), Some(Ok(page))) => {
                let apart = hello.pid != std::process::id();
                monitor.watch(worker.0, hello.pid, page, Limits::near(), apart);
            }
            // One that was started here sends no messages; its end is noticed all the same.
            _ if hello.slot.is_some() => {}
            _ => {
                let first = (Judge::new(Limits::far()), Sample::default());
                self.far.insert(worker, first);
            }
        }
    }

    /// What a worker says of itself; of one that is seen, it says nothing new.
    pub fn heard(&mut self, worker: WorkerId, pulse: &monarch_wire::Pulse) {
        if let Some((_, sample)) = self.far.get_mut(&worker) {
            let stream = |s: &monarch_wire::PulseStream| {
                let (phase, count) = (Phase::of(s.phase), s.count);
                Some(StreamSample { role: Role::of(s.role)?, phase, count, thread: s.thread })
            };
            *sample = Sample {
                beats: pulse.beats,
                step: pulse.step,
                streams: pulse.streams.iter().filter_map(stream).collect(),
            };
        }
    }

    pub fn forget(&mut self, worker: WorkerId) {
        self.far.remove(&worker);
        if let Some(monitor) = &self.monitor {
            monitor.forget(worker.0);
        }
    }

    /// Those elsewhere that are not to be counted on any more. What this loop has not heard yet
    /// is held against nobody.
    fn look(&mut self, drained: bool) -> Vec<(WorkerId, Hang)> {
        let healthy_ns = self.monitor.as_ref().map_or(0, Monitor::healthy_ns);
        let passed = healthy_ns.saturating_sub(self.healthy_ns);
        self.healthy_ns = healthy_ns;
        if drained {
            self.clock_ns += passed.min(LOOK_NS);
        }
        let mut hung = Vec::new();
        for (worker, (judge, sample)) in &mut self.far {
            if let Verdict::Hung(hang) = judge.look(self.clock_ns, sample) {
                hung.push((*worker, hang));
            }
        }
        hung
    }
}

impl EventLoop<'_> {
    pub(super) fn look_afar(&mut self, drained: bool) {
        for (worker, hang) in self.pulses.look(drained) {
            self.sign(worker, Sign::Hung(hang, None));
        }
    }

    /// Something was seen of a worker.
    pub(super) fn sign(&mut self, worker: WorkerId, sign: Sign) {
        self.pulses.forget(worker);
        let event = match sign {
            Sign::Died => Event::Lost { worker, why: "its process has died".to_string() },
            Sign::Hung(hang, seen) => {
                let mut evidence = hang.to_string();
                if let Some(seen) = seen {
                    evidence = format!("{evidence}; {seen}");
                }
                let phase = hang.phase.name().to_string();
                Event::Hung {
                    worker,
                    hang: monarch_sched::Hang { phase, step: hang.step, evidence },
                }
            }
        };
        self.feed(event);
    }
}
