mod deeds;
mod inputs;
mod journal;
mod members;
mod nan;
mod pulse;
mod saves;

use crate::children::Children;
use crate::config::RunConfig;
use crate::control::ControlRequest;
use crate::event::{EvalEvent, Observer, RunEvent, StartedEvent, WorkerEvent};
use crate::link::{Input, Links, LocalEvent, Origin};
use crate::measure::Probe;
use crate::merge::{Merge, step_event};
use crate::recorder::{Notes, Recorder};
use crate::saver::Saver;
use crate::words;
use monarch_net::ServerEvent;
use monarch_sched::{
    Command, Due, DueKind, EvalNumbers, Event, Facts, Failure, Forming, Joined, Outcome, Scheduler,
    Source, StepNumbers, Warning, WorkerId,
};
use monarch_wire::{FromWorker, Halted, Hello, Ready, ToWorker, Window, WireError, decode};
pub(crate) use pulse::Pulses;
use saves::Save;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How often children and deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Inputs taken between two looks at the clock.
const BURST: usize = 64;

/// Newcomers of whose being turned away is told.
const STRANGERS: u32 = 16;

/// What is known of a worker.
#[derive(Default)]
pub(crate) struct WorkerInfo {
    pub hello: Option<Hello>,
    pub rank: Option<u32>,
    pub threads: u32,
    pub ready: Option<Ready>,
    /// It has been sent the job.
    started: bool,
    /// Turned away, or its connection is closed.
    is_gone: bool,
    /// Its loss is in the record.
    pub is_told_of: bool,
}

/// Turns inputs into events for the scheduler, and its commands into deeds.
pub(crate) struct EventLoop<'a> {
    pub config: &'a RunConfig,
    pub observer: &'a mut dyn Observer,
    pub recorder: Recorder,
    pub inbox: Receiver<Input>,
    pub scheduler: Scheduler,
    pub links: Links,
    pub children: Children<'a>,
    pub saver: Saver,
    pub started: Instant,
    /// Absolute: workers on other hosts find it under the same path.
    pub run_dir: PathBuf,
    /// Where it listens.
    pub address: Option<SocketAddr>,
    pub workers: BTreeMap<WorkerId, WorkerInfo>,
    /// In order of rank.
    pub ranks: Vec<WorkerId>,
    pub merge: Merge,
    pub metrics: BTreeMap<String, f64>,
    pub best: BTreeMap<String, (f64, u64)>,
    /// Evaluations by steps done, the last few.
    evaluated: BTreeMap<u64, BTreeMap<String, f64>>,
    /// Last whole checkpoint.
    pub checkpoint: Option<(PathBuf, u64)>,
    /// Fingerprint in the last whole checkpoint.
    pub saved_fingerprint: Option<String>,
    save: Option<Save>,
    /// Step of the checkpoint that the saver is at.
    pub committing: Option<u64>,
    /// Kept until all workers have mapped it, and after that for as long as the run.
    memory: Option<File>,
    transport: &'static str,
    joined_ns: u64,
    pub probe: Option<Probe>,
    pulses: Pulses,
    strangers: u32,
    backlog: VecDeque<Input>,
    later: VecDeque<Event>,
    pub outcome: Option<Outcome>,
    /// What is said of the step that is not finite and ends the run.
    pub not_finite: Option<String>,
    pub notes: Option<Notes>,
    /// The facts that were noted last.
    noted: Facts,
    /// Something is decided that is to be noted at once.
    note_now: bool,
    /// Its end, which the kernel closes with this process, is how adopted workers see that.
    pub lifeline: Option<Lifeline>,
    /// The workers of the controller before this one are waited for.
    comes_back: bool,
}

/// A pipe into which nobody ever writes.
pub(crate) struct Lifeline {
    pub path: String,
    pub _ends: (PipeReader, PipeWriter),
}

/// The parts that are made before the loop.
pub(crate) struct Parts<'a> {
    pub config: &'a RunConfig,
    pub observer: &'a mut dyn Observer,
    pub recorder: Recorder,
    pub inbox: Receiver<Input>,
    pub scheduler: Scheduler,
    pub links: Links,
    pub children: Children<'a>,
    pub saver: Saver,
    pub started: Instant,
    pub run_dir: PathBuf,
    pub address: Option<SocketAddr>,
    pub probe: Option<Probe>,
    /// The last evaluation before this run, by the steps of its weights.
    pub evaluated: BTreeMap<u64, BTreeMap<String, f64>>,
    pub pulses: Pulses,
    pub notes: Option<Notes>,
    pub lifeline: Option<Lifeline>,
}

impl<'a> EventLoop<'a> {
    pub fn new(parts: Parts<'a>) -> EventLoop<'a> {
        let Parts { config, observer, recorder, inbox, scheduler, .. } = parts;
        let Parts { links, children, saver, started, run_dir, address, probe, .. } = parts;
        let Parts { notes, lifeline, evaluated, pulses, .. } = parts;
        let mut this = EventLoop {
            config,
            observer,
            recorder,
            inbox,
            scheduler,
            links,
            children,
            saver,
            started,
            run_dir,
            address,
            workers: BTreeMap::new(),
            ranks: Vec::new(),
            merge: Merge::new(config.workers),
            metrics: config.resume.as_ref().map(|r| r.metrics.clone()).unwrap_or_default(),
            best: BTreeMap::new(),
            evaluated,
            checkpoint: config.resume.as_ref().map(|r| (r.directory.clone(), r.step)),
            saved_fingerprint: None,
            save: None,
            committing: None,
            memory: None,
            transport: "none",
            joined_ns: 0,
            probe,
            pulses,
            strangers: 0,
            backlog: VecDeque::new(),
            later: VecDeque::new(),
            outcome: None,
            not_finite: None,
            notes,
            noted: Facts::default(),
            note_now: false,
            lifeline,
            comes_back: false,
        };
        this.restore();
        this
    }

    /// Until the scheduler concludes.
    pub fn run(&mut self) {
        let mut last_tick = Instant::now();
        while self.outcome.is_none() {
            let wait = TICK.saturating_sub(last_tick.elapsed());
            let mut next = self.backlog.pop_front().or_else(|| self.inbox.recv_timeout(wait).ok());
            for _ in 0..BURST {
                let Some(input) = next else { break };
                self.take(input);
                next = self.backlog.pop_front().or_else(|| self.inbox.try_recv().ok());
            }
            let drained = next.is_none();
            if let Some(input) = next {
                self.backlog.push_front(input);
            }
            if last_tick.elapsed() >= TICK {
                last_tick = Instant::now();
                self.look_at_children();
                self.look_afar(drained);
                self.feed(Event::Tick);
                self.note();
                for text in self.recorder.complaints() {
                    self.emit(RunEvent::Warning { text });
                }
            }
        }
    }

    fn look_at_children(&mut self) {
        for event in self.children.poll() {
            self.feed(event);
        }
    }

    pub fn emit(&mut self, event: RunEvent) {
        self.observer.event(&event);
        self.recorder.event(&event);
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// One event, and what follows from it.
    fn feed(&mut self, event: Event) {
        self.later.push_back(event);
        while let Some(event) = self.later.pop_front() {
            let now_ns = self.now_ns();
            for command in self.scheduler.step(now_ns, event) {
                self.obey(command);
            }
        }
        if std::mem::take(&mut self.note_now) {
            self.note();
        }
    }
}

/// What is said of a worker that says what nobody can say.
fn breach(what: &str) -> Failure {
    Failure {
        step: None,
        task: "control messages".to_string(),
        message: what.to_string(),
        span: None,
        lost_peer: None,
    }
}
