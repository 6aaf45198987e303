mod members;
mod saves;

use crate::children::Children;
use crate::config::RunConfig;
use crate::control::ControlRequest;
use crate::event::{EvalEvent, Observer, RunEvent, StartedEvent, WorkerEvent};
use crate::link::{Input, Links, LocalEvent, Origin};
use crate::measure::Probe;
use crate::merge::{Merge, step_event};
use crate::recorder::Recorder;
use crate::saver::Saver;
use crate::words;
use monarch_net::ServerEvent;
use monarch_sched::{
    Command, Due, DueKind, EvalNumbers, Event, Failure, Forming, Joined, Outcome, Scheduler,
    StepNumbers, Warning, WorkerId,
};
use monarch_wire::{FromWorker, Halted, Hello, Ready, ToWorker, Window, WireError, decode};
use saves::Save;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How often children and deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Inputs taken between two looks at the clock.
const BURST: usize = 64;

/// Newcomers without a key that are told of.
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
    strangers: u32,
    backlog: VecDeque<Input>,
    later: VecDeque<Event>,
    pub outcome: Option<Outcome>,
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
}

impl<'a> EventLoop<'a> {
    pub fn new(parts: Parts<'a>) -> EventLoop<'a> {
        let Parts { config, observer, recorder, inbox, scheduler, .. } = parts;
        let Parts { links, children, saver, started, run_dir, address, probe, .. } = parts;
        EventLoop {
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
            evaluated: config.resume.iter().map(|r| (r.step, r.metrics.clone())).collect(),
            checkpoint: config.resume.as_ref().map(|r| (r.directory.clone(), r.step)),
            saved_fingerprint: None,
            save: None,
            committing: None,
            memory: None,
            transport: "none",
            joined_ns: 0,
            probe,
            strangers: 0,
            backlog: VecDeque::new(),
            later: VecDeque::new(),
            outcome: None,
        }
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
            if let Some(input) = next {
                self.backlog.push_front(input);
            }
            if last_tick.elapsed() >= TICK {
                last_tick = Instant::now();
                self.look_at_children();
                self.feed(Event::Tick);
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
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Net(ServerEvent::Connected { id, .. }) => {
                let worker = self.links.connected_net(id);
                self.workers.insert(worker, WorkerInfo::default());
            }
            Input::Net(ServerEvent::Frame { id, bytes }) => {
                if let Some(worker) = self.links.worker(Origin::Net(id)) {
                    match decode::<FromWorker>(&bytes) {
                        Ok(message) => self.message(worker, message),
                        Err(error) => self.malformed(worker, &error),
                    }
                }
            }
            Input::Net(ServerEvent::Closed { id, lost }) => {
                if let Some(worker) = self.links.closed(Origin::Net(id)) {
                    self.closed(worker, lost.to_string());
                }
            }
            Input::Net(ServerEvent::Refused { error }) => {
                // Somebody who tries again and again is told of a few times.
                self.strangers += 1;
                if self.strangers <= STRANGERS {
                    self.emit(RunEvent::Warning { text: format!("turned away: {error}") });
                }
            }
            Input::Local(LocalEvent::Connected { id, to_worker }) => {
                let worker = self.links.connected_local(id, to_worker);
                self.workers.insert(worker, WorkerInfo::default());
            }
            Input::Local(LocalEvent::Message { id, message }) => {
                if let Some(worker) = self.links.worker(Origin::Local(id)) {
                    self.message(worker, *message);
                }
            }
            Input::Local(LocalEvent::Closed { id }) => {
                if let Some(worker) = self.links.closed(Origin::Local(id)) {
                    self.closed(worker, "its thread has ended".to_string());
                }
            }
            Input::Control(ControlRequest::Interrupt) => self.feed(Event::Interrupt),
            Input::Control(ControlRequest::Stop) => self.feed(Event::Stop),
            Input::Control(ControlRequest::Checkpoint) => self.feed(Event::Checkpoint),
            Input::Saved(saved) => self.saved(saved),
            Input::ChildEnded => self.look_at_children(),
        }
    }

    fn malformed(&mut self, worker: WorkerId, error: &WireError) {
        let known = self.workers.get(&worker).is_some_and(|w| w.hello.is_some());
        if known {
            return self.feed(Event::Failed { worker, failure: breach(&error.to_string()) });
        }
        // It has not said who it is, and what it says cannot be understood.
        let why = error.to_string();
        self.refuse(worker, &why);
        self.emit(RunEvent::Warning { text: format!("turned away a worker: {why}") });
    }

    fn message(&mut self, worker: WorkerId, message: FromWorker) {
        let rank = self.workers.get(&worker).and_then(|w| w.rank);
        let event = match message {
            FromWorker::Hello(hello) => return self.hello(worker, hello),
            FromWorker::Ready(ready) => {
                let (generation, fingerprint) = (ready.generation, ready.fingerprint.clone());
                if let Some(info) = self.workers.get_mut(&worker) {
                    info.ready = Some(ready);
                }
                Event::Ready { worker, generation, fingerprint }
            }
            FromWorker::Halted(Halted { generation, done, peer_address }) => {
                Event::Halted { worker, generation, done, peer_address }
            }
            FromWorker::Step(report) => {
                let Some(rank) = rank else { return };
                Event::Step { worker, numbers: self.merge.add(rank, report) }
            }
            FromWorker::Evaluated(r) => Event::Evaluated {
                worker,
                step: r.step,
                evaluation: r.evaluation,
                values: r.values,
                samples: r.samples,
                nanoseconds: r.nanoseconds,
            },
            FromWorker::Saved(report) => self.part_saved(worker, report),
            FromWorker::Finished(f) => {
                Event::Finished { worker, step: f.step, fingerprint: f.fingerprint }
            }
            FromWorker::Failed(f) => Event::Failed {
                worker,
                failure: Failure {
                    step: f.step,
                    task: f.task,
                    message: f.message,
                    span: f.span,
                    lost_peer: f.lost_peer,
                },
            },
            FromWorker::Pong(_) => return,
        };
        self.feed(event);
    }

    fn hello(&mut self, worker: WorkerId, hello: Hello) {
        let info = self.workers.entry(worker).or_default();
        if info.hello.is_some() {
            return self.feed(Event::Failed { worker, failure: breach("it said hello twice") });
        }
        info.hello = Some(hello.clone());
        let objection = words::objection(&hello, &self.config.job_hash);
        let host = hello.host.clone();
        self.feed(Event::Joined(Joined {
            worker,
            host: hello.host,
            shm_domain: hello.shm_domain,
            cores: hello.cores,
            peer_address: hello.peer_address,
            slot: hello.slot,
            objection,
        }));
        if self.workers.get(&worker).is_some_and(|w| !w.is_gone) {
            let here = |w: &&WorkerInfo| w.hello.is_some() && !w.is_gone;
            let joined = self.workers.values().filter(here).count() as u32;
            self.emit(RunEvent::Joined { host, joined, world: self.config.workers });
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Refuse { worker, why } => self.refuse(worker, &why),
            Command::Start { placements, links } => {
                self.joined_ns = self.now_ns();
                let (base, holders) = (self.config.first_step(), vec![false; placements.len()]);
                self.form(Forming { generation: 0, base, placements, holders, links });
            }
            Command::Halt { generation, workers } => {
                self.tell_all(&workers, &ToWorker::Halt { generation });
            }
            Command::Form(forming) => {
                self.merge.regroup(forming.placements.len() as u32);
                self.form(forming);
            }
            Command::Formed { generation, step, world, waited_ns } => {
                let seconds = waited_ns as f64 * 1e-9;
                self.emit(RunEvent::Regrouped { generation, step, workers: world, seconds });
            }
            Command::Replace { slot } => self.replace(slot),
            Command::Evict { worker, why } => self.evict(worker, &why),
            Command::Started { fingerprint } => self.all_ready(fingerprint),
            Command::Window { until, due } => self.window(until, due),
            Command::Step(numbers) => self.step(numbers),
            Command::Evaluated(numbers) => self.evaluated(numbers),
            Command::Commit { step, fingerprint } => self.commit(step, &fingerprint),
            // Dropping the staging directory removes it.
            Command::Discard { step, .. } => drop(self.save.take_if(|s| s.step == step)),
            Command::Warn(warning) => self.warn(&warning),
            Command::Abort { why } => self.tell_all(&self.everyone(), &ToWorker::Abort { why }),
            Command::Finish => self.tell_all(&self.ranks.clone(), &ToWorker::Finish),
            Command::Conclude(outcome) => self.outcome = Some(*outcome),
        }
    }

    fn everyone(&self) -> Vec<WorkerId> {
        self.links.everyone()
    }

    fn tell_all(&mut self, workers: &[WorkerId], message: &ToWorker) {
        if let Err(error) = self.links.send(workers, message) {
            self.later.push_back(Event::Broken { what: error.to_string() });
        }
    }

    fn warn(&mut self, warning: &Warning) {
        if let Warning::WorkerLost { rank, worker, slot, why, step } = warning {
            return self.worker_lost(*rank, *worker, *slot, why, *step);
        }
        let name = |worker: WorkerId| {
            let hello = self.workers.get(&worker).and_then(|w| w.hello.as_ref());
            hello.map_or("a worker".to_string(), |h| {
                format!("the worker on {} (process {})", h.host, h.pid)
            })
        };
        let text = words::warning(warning, name);
        self.emit(RunEvent::Warning { text });
    }

    fn all_ready(&mut self, fingerprint: String) {
        let describe = |worker: &WorkerId| {
            let info = self.workers.get(worker)?;
            let (hello, ready) = (info.hello.as_ref()?, info.ready.as_ref()?);
            Some(WorkerEvent {
                rank: info.rank?,
                host: hello.host.clone(),
                pid: hello.pid,
                threads: ready.threads,
                bytes: ready.bytes,
                isa: ready.isa.clone(),
            })
        };
        let event = StartedEvent {
            run_id: self.config.run_id.clone(),
            run_dir: self.run_dir.clone(),
            job: self.config.plan.name.clone(),
            job_hash: self.config.job_hash,
            workers: self.ranks.iter().filter_map(describe).collect(),
            transport: self.transport,
            fingerprint,
            first_step: self.config.first_step(),
            steps: self.config.plan.steps,
            joined_ns: self.joined_ns,
            ready_ns: self.now_ns(),
        };
        if let Some(probe) = &mut self.probe {
            probe.measure(&event, &self.ranks, &self.links, &self.inbox, &mut self.backlog);
        }
        self.emit(RunEvent::Started(event));
    }

    fn window(&mut self, until: u64, due: Vec<Due>) {
        let mut list = Vec::new();
        for Due { step, what } in due {
            let what = match what {
                DueKind::Evaluate(n) => monarch_wire::DueKind::Evaluate(n),
                DueKind::Save => match self.begin_save(step) {
                    Some(directory) => monarch_wire::DueKind::Save { directory },
                    None => continue,
                },
            };
            list.push(monarch_wire::Due { step, what });
        }
        let window = ToWorker::Window(Window { until, due: list });
        self.tell_all(&self.ranks.clone(), &window);
    }

    fn step(&mut self, numbers: StepNumbers) {
        let merged = self.merge.take(&numbers);
        if merged.spans.iter().any(|s| !s.is_empty()) {
            self.recorder.spans(numbers.step, merged.spans);
        }
        let tokens = self.config.tokens_per_sample();
        let event = step_event(&numbers, merged.phases, self.config.plan.steps, tokens);
        self.emit(RunEvent::Step(event));
    }

    fn evaluated(&mut self, numbers: EvalNumbers) {
        let Some(eval) = self.config.plan.evals.get(numbers.evaluation as usize) else { return };
        let named =
            |(m, &v): (&monarch_graph::Ratio, &f64)| (format!("{}.{}", eval.name, m.name), v);
        let values: Vec<(String, f64)> =
            eval.metrics.iter().zip(&numbers.values).map(named).collect();
        let here = self.evaluated.entry(numbers.step).or_default();
        for (name, value) in &values {
            here.insert(name.clone(), *value);
            self.metrics.insert(name.clone(), *value);
            let Some(smallest) = words::smallest_is_best(name) else { continue };
            let best = self.best.entry(name.clone()).or_insert((*value, numbers.step));
            let better = if smallest { *value < best.0 } else { *value > best.0 };
            if better {
                *best = (*value, numbers.step);
            }
        }
        while self.evaluated.len() > 16 {
            self.evaluated.pop_first();
        }
        let event = EvalEvent {
            step: numbers.step,
            name: eval.name.clone(),
            values,
            samples: numbers.samples,
            seconds: numbers.nanoseconds as f64 * 1e-9,
        };
        self.emit(RunEvent::Evaluated(event));
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
