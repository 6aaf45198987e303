//! A simulated cluster: workers, a network that keeps order per worker and nothing else, a disk,
//! and a clock. All from one seed.

use crate::common::{MS, Seeded};
use monarch_sched::{
    Command, Config, DueKind, Event, Exit, Failure, Joined, Outcome, Scheduler, StepNumbers, Times,
    Warning, WorkerId,
};
use std::collections::{BTreeSet, VecDeque};

/// What goes wrong. Moments are counted in the victim's or the whole simulation's actions.
#[derive(Clone, Default)]
pub struct Faults {
    pub interrupt_after: Option<u64>,
    pub second_interrupt: bool,
    /// (rank, actions of the simulation).
    pub kill: Option<(u32, u64)>,
    /// (rank, step): the worker reports a failure of its own.
    pub fail: Option<(u32, u64)>,
    pub hang: Option<(u32, u64)>,
    pub wrong_loss: Option<(u32, u64)>,
    pub bad_saves: Vec<u64>,
    pub bad_commits: Vec<u64>,
    /// Workers that never come.
    pub absent: u32,
    pub two_hosts: bool,
}

/// What was recorded.
pub struct End {
    pub outcome: Outcome,
    pub steps: Vec<u64>,
    pub evals: Vec<u64>,
    pub commits: Vec<u64>,
    pub save_failures: Vec<u64>,
    pub goodbyes_missing: Vec<u32>,
}

/// What a worker has been told.
enum Told {
    Start,
    Window(u64, Vec<(u64, DueKind)>),
    Finish,
}

struct Worker {
    inbox: VecDeque<Told>,
    /// On the way to the controller.
    outbox: VecDeque<Event>,
    step: u64,
    until: u64,
    due: VecDeque<(u64, DueKind)>,
    actions: u64,
    gone: bool,
    finish: bool,
}

pub struct Cluster {
    seed: u64,
    random: Seeded,
    config: Config,
    faults: Faults,
    scheduler: Scheduler,
    workers: Vec<Worker>,
    /// Exits on their way: (slot, clean).
    exits: Vec<Event>,
    commits_at_work: Vec<u64>,
    now_ns: u64,
    actions: u64,
    until: u64,
    dues: BTreeSet<(u64, u32)>,
    saved_parts: BTreeSet<(u64, u32)>,
    aborted: bool,
    record: Option<Outcome>,
    steps: Vec<u64>,
    evals: Vec<u64>,
    commits: Vec<u64>,
    save_failures: Vec<u64>,
    goodbyes_missing: Vec<u32>,
}

impl Cluster {
    pub fn new(config: Config, seed: u64, faults: Faults) -> Cluster {
        let scheduler = Scheduler::new(config.clone(), 0).expect("a sound configuration");
        let worker = |rank: u32| {
            let host = if faults.two_hosts && rank % 2 == 1 { "b" } else { "a" };
            let joined = Event::Joined(Joined {
                worker: WorkerId(u64::from(rank)),
                host: host.into(),
                shm_domain: host.into(),
                cores: 4,
                peer_address: format!("127.0.0.1:{rank}"),
                slot: Some(rank),
                objection: None,
            });
            Worker {
                inbox: VecDeque::new(),
                outbox: VecDeque::from([joined]),
                step: config.first_step,
                until: config.first_step,
                due: VecDeque::new(),
                actions: 0,
                gone: false,
                finish: false,
            }
        };
        let workers = (0..config.world - faults.absent).map(worker).collect();
        Cluster {
            seed,
            random: Seeded(seed),
            until: config.first_step,
            config,
            faults,
            scheduler,
            workers,
            exits: Vec::new(),
            commits_at_work: Vec::new(),
            now_ns: 0,
            actions: 0,
            dues: BTreeSet::new(),
            saved_parts: BTreeSet::new(),
            aborted: false,
            record: None,
            steps: Vec::new(),
            evals: Vec::new(),
            commits: Vec::new(),
            save_failures: Vec::new(),
            goodbyes_missing: Vec::new(),
        }
    }

    pub fn run(mut self) -> End {
        while self.record.is_none() {
            self.actions += 1;
            assert!(self.actions < 400_000, "seed {}: waits for ever", self.seed);
            self.act();
        }
        // Nothing may follow the conclusion.
        assert!(self.scheduler.step(self.now_ns, Event::Tick).is_empty(), "seed {}", self.seed);
        assert!(self.scheduler.step(self.now_ns, Event::Interrupt).is_empty());
        End {
            outcome: self.record.take().expect("recorded"),
            steps: self.steps,
            evals: self.evals,
            commits: self.commits,
            save_failures: self.save_failures,
            goodbyes_missing: self.goodbyes_missing,
        }
    }

    /// One thing happens somewhere.
    fn act(&mut self) {
        if self.faults.kill.is_some_and(|(_, at)| at == self.actions) {
            self.kill();
        }
        let at = self.faults.interrupt_after;
        if at == Some(self.actions)
            || (self.faults.second_interrupt && at.is_some_and(|at| at + 5 == self.actions))
        {
            return self.tell(Event::Interrupt);
        }
        let quiet = self.workers.iter().all(|w| w.outbox.is_empty() && !runnable(w))
            && self.exits.is_empty()
            && self.commits_at_work.is_empty();
        let n = self.workers.len();
        match self.random.below(n * 2 + 2) {
            _ if quiet => self.tick(20 * MS),
            i if i < n => self.work(i),
            i if i < 2 * n => {
                if let Some(event) = self.workers[i - n].outbox.pop_front() {
                    self.tell(event);
                }
            }
            i if i == 2 * n => {
                self.tick(MS / 4);
                if !self.exits.is_empty() {
                    let exit = self.exits.remove(0);
                    self.tell(exit);
                }
            }
            _ => {
                if let Some(step) = self.commits_at_work.pop() {
                    let bad = self.faults.bad_commits.contains(&step);
                    if !bad {
                        self.commits.push(step);
                    }
                    let error = bad.then(|| "No space left on device".to_string());
                    self.tell(Event::Committed { step, finite: true, error });
                }
            }
        }
    }

    fn tick(&mut self, ns: u64) {
        self.now_ns += ns;
        self.tell(Event::Tick);
    }

    fn kill(&mut self) {
        let Some((victim, _)) = self.faults.kill else { return };
        let worker = WorkerId(u64::from(victim));
        self.workers[victim as usize].gone = true;
        let lost = Event::Lost { worker, why: "connection reset".into() };
        self.workers[victim as usize].outbox.push_back(lost);
        let text = "killed by signal 9 (SIGKILL)".to_string();
        let exit = Exit { text, by_signal: true, clean: false };
        self.exits.push(Event::Exited { slot: victim, exit });
        for (rank, other) in self.workers.iter_mut().enumerate() {
            if rank as u32 != victim && other.actions > 0 && !other.gone {
                other.gone = true;
                let failure = Failure {
                    step: Some(other.step),
                    task: "reduce bucket 0".into(),
                    message: "a peer is gone".into(),
                    span: None,
                    lost_peer: Some(victim),
                };
                let worker = WorkerId(rank as u64);
                other.outbox.push_back(Event::Failed { worker, failure });
                other.outbox.push_back(Event::Lost { worker, why: "closed".into() });
            }
        }
    }

    /// A worker does its next piece of work.
    fn work(&mut self, rank: usize) {
        if self.faults.hang == Some((rank as u32, self.workers[rank].actions)) {
            return;
        }
        let id = WorkerId(rank as u64);
        let worker = &mut self.workers[rank];
        if worker.gone {
            return;
        }
        match worker.inbox.pop_front() {
            Some(Told::Start) => {
                let fingerprint = "start".to_string();
                worker.outbox.push_back(Event::Ready { worker: id, generation: 0, fingerprint });
                worker.actions += 1;
            }
            Some(Told::Window(until, due)) => {
                assert!(due.iter().all(|d| d.0 >= worker.step), "a due in the past");
                worker.until = until;
                worker.due.extend(due);
            }
            Some(Told::Finish) => worker.finish = true,
            None => {}
        }
        let worker = &mut self.workers[rank];
        if let Some(&(step, what)) = worker.due.front()
            && step == worker.step
        {
            worker.due.pop_front();
            worker.actions += 1;
            let event = self.do_due(rank as u32, step, what);
            self.workers[rank].outbox.push_back(event);
        } else if worker.step < worker.until {
            worker.actions += 1;
            self.do_step(rank as u32);
        } else if worker.finish {
            let fingerprint = format!("at {}", worker.step);
            let event = Event::Finished { worker: id, step: worker.step, fingerprint };
            worker.outbox.push_back(event);
            worker.outbox.push_back(Event::Lost { worker: id, why: "closed".into() });
            worker.gone = true;
        }
    }

    fn do_step(&mut self, rank: u32) {
        let worker = &mut self.workers[rank as usize];
        let (id, step) = (WorkerId(u64::from(rank)), worker.step);
        if self.faults.fail == Some((rank, step)) {
            let message = "token id 99 is not below 65".to_string();
            let task = "load data".to_string();
            let failure = Failure { step: Some(step), task, message, span: None, lost_peer: None };
            worker.outbox.push_back(Event::Failed { worker: id, failure });
            worker.gone = true;
            return;
        }
        worker.step += 1;
        let wrong = f64::from(self.faults.wrong_loss == Some((rank, step)));
        let numbers = StepNumbers {
            step,
            epoch: 0,
            samples: 64,
            loss: 1.0 / (step + 1) as f64 + wrong * 1e-12,
            grad_norm: f64::NAN,
            lr: 1e-3,
            total_ns: 100 * MS,
            times: Times::default(),
            finite: true,
        };
        worker.outbox.push_back(Event::Step { worker: id, numbers });
    }

    fn do_due(&mut self, rank: u32, step: u64, what: DueKind) -> Event {
        let worker = WorkerId(u64::from(rank));
        match what {
            DueKind::Evaluate(evaluation) => {
                let values = vec![step as f64 / 100.0];
                Event::Evaluated { worker, step, evaluation, values, samples: 100, nanoseconds: 1 }
            }
            DueKind::Save => {
                let bad = self.faults.bad_saves.contains(&step) && rank == 0;
                if !bad {
                    self.saved_parts.insert((step, rank));
                }
                let error = bad.then(|| "No space left on device".to_string());
                Event::Saved { worker, step, fingerprint: format!("at {step}"), error }
            }
        }
    }

    fn tell(&mut self, event: Event) {
        for command in self.scheduler.step(self.now_ns, event) {
            assert!(self.record.is_none(), "seed {}: {command:?} after the end", self.seed);
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        let seed = self.seed;
        match command {
            Command::Start { placements, .. } => {
                let ranks: Vec<u32> = placements.iter().map(|p| p.rank).collect();
                assert_eq!(ranks, (0..self.config.world).collect::<Vec<_>>(), "seed {seed}");
                self.workers.iter_mut().for_each(|w| w.inbox.push_back(Told::Start));
            }
            Command::Window { until, due } => self.check_window(until, due),
            Command::Step(numbers) => {
                let next = self.config.first_step + self.steps.len() as u64;
                assert_eq!(numbers.step, next, "seed {seed}: steps are recorded in order, once");
                self.steps.push(numbers.step);
            }
            Command::Evaluated(numbers) => {
                assert!(!self.evals.contains(&numbers.step), "seed {seed}: evaluated twice");
                assert_eq!(
                    self.steps.last().map_or(self.config.first_step, |s| s + 1),
                    numbers.step.max(self.steps.last().map_or(0, |s| s + 1)),
                    "seed {seed}"
                );
                self.evals.push(numbers.step);
            }
            Command::Commit { step, .. } => {
                for rank in 0..self.config.world {
                    assert!(self.saved_parts.contains(&(step, rank)), "seed {seed}: not saved");
                }
                assert!(self.commits_at_work.is_empty(), "seed {seed}: one at a time");
                self.commits_at_work.push(step);
            }
            Command::Warn(Warning::SaveFailed { step, .. }) => self.save_failures.push(step),
            Command::Warn(Warning::BadGoodbye { rank, .. }) => self.goodbyes_missing.push(rank),
            Command::Finish => {
                self.workers.iter_mut().for_each(|w| w.inbox.push_back(Told::Finish));
            }
            Command::Abort { .. } => {
                assert!(!self.aborted, "seed {seed}: aborted twice");
                self.aborted = true;
                self.workers.iter_mut().for_each(|w| w.gone = true);
            }
            Command::Conclude(outcome) => self.record = Some(*outcome),
            Command::Refuse { .. } | Command::Started { .. } | Command::Discard { .. } => {}
            Command::Warn(_) => {}
            other => panic!("seed {seed}: {other:?} without recovery"),
        }
    }

    fn check_window(&mut self, until: u64, due: Vec<monarch_sched::Due>) {
        let seed = self.seed;
        assert!(until >= self.until, "seed {seed}: a window shrank");
        assert!(until <= self.config.steps, "seed {seed}: beyond the end");
        let mut last = self.until;
        for d in &due {
            assert!(d.step >= last && d.step <= until, "seed {seed}: {d:?} out of order");
            last = d.step;
            let kind = match d.what {
                DueKind::Evaluate(n) => n,
                DueKind::Save => u32::MAX,
            };
            assert!(self.dues.insert((d.step, kind)), "seed {seed}: {d:?} twice");
        }
        // No window passes an edge at which a rule has still to decide.
        if self.config.rules.iter().any(|r| r.metric.starts_with("eval.")) {
            for (step, _) in self.dues.iter().filter(|(_, kind)| *kind == 0) {
                let decided = self.evals.contains(step);
                assert!(until <= *step || decided, "seed {seed}: passed the decision at {step}");
            }
        }
        if self.config.rules.iter().any(|r| r.metric == "loss") {
            let done = self.config.first_step + self.steps.len() as u64;
            assert!(until <= done + 1, "seed {seed}: passed a decision on the loss");
        }
        self.until = until;
        let due: Vec<(u64, DueKind)> = due.iter().map(|d| (d.step, d.what)).collect();
        for worker in &mut self.workers {
            worker.inbox.push_back(Told::Window(until, due.clone()));
        }
    }
}

/// Has something to do without further word.
fn runnable(worker: &Worker) -> bool {
    !worker.gone
        && (!worker.inbox.is_empty() || worker.step < worker.until || !worker.due.is_empty())
}
