//! Controllers that are killed between any two commands, with their journal somewhat behind, and
//! sometimes with a worker; another one is made of the journal and of what the workers bring.
//! Whatever the seed: each step and each evaluation is on record once, and the run completes.

mod common;

use common::{MS, Seeded, config};
use monarch_graph::Every;
use monarch_sched::{
    Cause, Command, Config, DueKind, Ended, Event, Facts, Joined, Outcome, Recovery, Scheduler,
    StepNumbers, Times, WorkerId,
};
use std::collections::{BTreeSet, VecDeque};

const WORLD: u32 = 3;
const STEPS: u64 = 43;

enum Told {
    Halt(u64),
    Form { generation: u64, base: u64, keeps: bool },
    Window(u64, Vec<(u64, DueKind)>, u64),
    Finish,
}

struct Worker {
    id: WorkerId,
    slot: u32,
    inbox: VecDeque<Told>,
    outbox: VecDeque<Event>,
    /// Reports that nobody has said to have on record.
    kept: Vec<Event>,
    /// Steps that its weights have seen.
    done: Option<u64>,
    has_job: bool,
    generation: u64,
    halted: bool,
    until: u64,
    due: VecDeque<(u64, DueKind)>,
    finish: bool,
    gone: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Line {
    Step(u64),
    Eval(u64),
}

struct World {
    seed: u64,
    random: Seeded,
    config: Config,
    scheduler: Scheduler,
    workers: Vec<Worker>,
    next_id: u64,
    now_ns: u64,
    /// As it is written; what lies beyond the journal is cut off by the next controller.
    record: Vec<Line>,
    journal: Facts,
    commits: Vec<u64>,
    disk: BTreeSet<u64>,
    outcome: Option<Outcome>,
    crash_in: Option<usize>,
    killed: u32,
}

fn worker(id: u64, slot: u32) -> Worker {
    let mut worker = Worker {
        id: WorkerId(id),
        slot,
        inbox: VecDeque::new(),
        outbox: VecDeque::new(),
        kept: Vec::new(),
        done: None,
        has_job: false,
        generation: 0,
        halted: false,
        until: 0,
        due: VecDeque::new(),
        finish: false,
        gone: false,
    };
    worker.outbox.push_back(Event::Joined(joined(&worker)));
    worker
}

fn joined(worker: &Worker) -> Joined {
    Joined {
        worker: worker.id,
        host: "a".into(),
        shm_domain: "a".into(),
        cores: 2,
        peer_address: String::new(),
        slot: Some(worker.slot),
        objection: None,
    }
}

/// Edge that a report is about, and whether it is of a step.
fn about(event: &Event) -> Option<(u64, bool)> {
    match event {
        Event::Step { numbers, .. } => Some((numbers.step, true)),
        Event::Evaluated { step, .. } => Some((*step, false)),
        _ => None,
    }
}

fn renamed(event: &Event, id: WorkerId) -> Event {
    let mut event = event.clone();
    if let Event::Step { worker, .. } | Event::Evaluated { worker, .. } = &mut event {
        *worker = id;
    }
    event
}

impl World {
    fn new(seed: u64) -> World {
        let mut config = config(WORLD, STEPS);
        config.eval_every = Some(Every::Steps(10));
        config.save_every = Some(Every::Steps(7));
        config.recovery = Recovery::default();
        World {
            seed,
            random: Seeded(seed),
            scheduler: Scheduler::new(config.clone(), 0).expect("a sound configuration"),
            config,
            workers: (0..WORLD).map(|slot| worker(u64::from(slot), slot)).collect(),
            next_id: 100,
            now_ns: 0,
            record: Vec::new(),
            journal: Facts::default(),
            commits: Vec::new(),
            disk: BTreeSet::new(),
            outcome: None,
            crash_in: None,
            killed: 0,
        }
    }

    fn run(mut self) -> World {
        let mut left = 1 + self.random.below(4);
        for action in 0.. {
            assert!(action < 200_000, "seed {}: waits for ever: {:?}", self.seed, self.scheduler);
            if self.outcome.is_some() {
                return self;
            }
            if left > 0 && self.random.below(120) == 0 {
                left -= 1;
                self.crash_in = Some(self.random.below(4));
            }
            self.act();
        }
        self
    }

    fn act(&mut self) {
        let n = self.workers.len();
        match self.random.below(2 * n + 2) {
            i if i < n => self.work(i),
            i if i < 2 * n => {
                if let Some(event) = self.workers[i - n].outbox.pop_front() {
                    self.tell(event);
                }
            }
            i if i == 2 * n => {
                self.now_ns += MS / 2;
                self.tell(Event::Tick);
            }
            _ => {
                if let Some(step) = self.commits.pop() {
                    self.disk.insert(step);
                    self.tell(Event::Committed { step, finite: true, error: None });
                }
            }
        }
    }

    fn work(&mut self, at: usize) {
        let slowest = self.workers.iter().filter_map(|w| w.done).min();
        let w = &mut self.workers[at];
        if w.gone {
            return;
        }
        match w.inbox.pop_front() {
            Some(Told::Halt(generation)) => {
                (w.until, w.halted, w.generation) = (0, true, w.generation.max(generation));
                w.due.clear();
                let peer_address = String::new();
                let (worker, done) = (w.id, w.done);
                w.outbox.push_back(Event::Halted { worker, generation, done, peer_address });
            }
            Some(Told::Form { generation, base, keeps }) => {
                w.kept.retain(|e| about(e).is_some_and(|(s, step)| s + u64::from(step) <= base));
                (w.done, w.halted, w.has_job) = (Some(base), false, true);
                w.generation = w.generation.max(generation);
                let fingerprint = if keeps { String::new() } else { format!("at {base}") };
                w.outbox.push_back(Event::Ready { worker: w.id, generation, fingerprint });
            }
            Some(Told::Window(until, due, kept)) => {
                w.until = w.until.max(until);
                w.due.extend(due);
                w.kept.retain(|e| about(e).is_some_and(|(step, _)| step >= kept));
            }
            Some(Told::Finish) => w.finish = true,
            None => {}
        }
        let Some(done) = w.done.filter(|_| !w.halted) else { return };
        if w.due.front().is_some_and(|(step, _)| *step <= done) {
            let Some((step, what)) = w.due.pop_front() else { return };
            let worker = w.id;
            match what {
                DueKind::Evaluate(evaluation) => {
                    let (values, samples, nanoseconds) = (vec![step as f64], 10, 1);
                    let report =
                        Event::Evaluated { worker, step, evaluation, values, samples, nanoseconds };
                    w.kept.push(report.clone());
                    w.outbox.push_back(report);
                }
                DueKind::Save => {
                    let fingerprint = format!("at {step}");
                    w.outbox.push_back(Event::Saved { worker, step, fingerprint, error: None });
                }
            }
        } else if done < w.until && slowest.is_none_or(|slowest| slowest >= done) {
            let (worker, loss) = (w.id, 1.0 / (done + 1) as f64);
            let numbers = StepNumbers {
                step: done,
                epoch: 0,
                samples: 8,
                loss,
                grad_norm: 1.0,
                lr: 0.1,
                total_ns: MS,
                times: Times::default(),
                finite: true,
            };
            let report = Event::Step { worker, numbers };
            w.done = Some(done + 1);
            w.kept.push(report.clone());
            w.outbox.push_back(report);
        } else if w.finish {
            let (worker, fingerprint) = (w.id, format!("at {done}"));
            w.outbox.push_back(Event::Finished { worker, step: done, fingerprint });
            w.gone = true;
        }
    }

    fn tell(&mut self, event: Event) {
        for command in self.scheduler.step(self.now_ns, event) {
            match &mut self.crash_in {
                Some(0) => return self.crash(),
                Some(left) => *left -= 1,
                None => {}
            }
            self.obey(command);
        }
        // Records and journal are written by another thread, in their order, some time later.
        if self.random.below(3) == 0 {
            self.journal = self.scheduler.facts();
        }
    }

    fn to(&mut self, id: WorkerId, told: Told) {
        if let Some(w) = self.workers.iter_mut().find(|w| w.id == id && !w.gone) {
            w.inbox.push_back(told);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start { placements, .. } => {
                for p in placements {
                    self.to(p.worker, Told::Form { generation: 0, base: 0, keeps: false });
                }
            }
            Command::Halt { generation, workers } => {
                workers.into_iter().for_each(|w| self.to(w, Told::Halt(generation)));
            }
            Command::Form(forming) => {
                let keeps = forming.holders.iter().all(|h| *h);
                let (generation, base) = (forming.generation, forming.base);
                for p in forming.placements {
                    self.to(p.worker, Told::Form { generation, base, keeps });
                }
            }
            Command::Window { until, due } => {
                let due: Vec<_> = due.iter().map(|d| (d.step, d.what)).collect();
                let kept = self.journal.recorded;
                for at in 0..self.workers.len() {
                    let id = self.workers[at].id;
                    self.to(id, Told::Window(until, due.clone(), kept));
                }
            }
            Command::Replace { slot } => {
                self.next_id += 1;
                self.workers.retain(|w| w.slot != slot);
                self.workers.push(worker(self.next_id, slot));
            }
            Command::Finish => {
                for at in 0..self.workers.len() {
                    let id = self.workers[at].id;
                    self.to(id, Told::Finish);
                }
            }
            Command::Step(numbers) => self.record.push(Line::Step(numbers.step)),
            Command::Evaluated(numbers) => self.record.push(Line::Eval(numbers.step)),
            Command::Commit { step, .. } => self.commits.push(step),
            Command::Abort { .. } => self.workers.iter_mut().for_each(|w| w.gone = true),
            Command::Conclude(outcome) => self.outcome = Some(*outcome),
            _ => {}
        }
    }

    /// The controller is gone, and perhaps a worker; what was on its way to it is lost, and of
    /// what was on its way from it some.
    fn crash(&mut self) {
        self.crash_in = None;
        for step in std::mem::take(&mut self.commits) {
            if self.random.below(2) == 0 {
                self.disk.insert(step);
            }
        }
        let holders = self.workers.iter().filter(|w| w.done.is_some() && !w.gone).count();
        if holders > 1 && self.random.below(3) == 0 {
            let victim = self.random.below(self.workers.len());
            self.workers[victim].gone = true;
            self.killed += 1;
        }
        let mut facts = self.journal.clone();
        let at = facts.recorded;
        let mut evals = u32::from(facts.evaluated.is_some_and(|(step, _)| step == at));
        self.record.retain(|line| match line {
            Line::Step(step) => *step < at,
            Line::Eval(step) if *step == at => std::mem::take(&mut evals) > 0,
            Line::Eval(step) => *step < at,
        });
        if let Some(step) = facts.saving.filter(|step| self.disk.contains(step)) {
            (facts.saved, facts.saving) = (Some(step), None);
        }
        let mut living = Vec::new();
        for mut w in std::mem::take(&mut self.workers) {
            self.next_id += 1;
            if w.gone {
                self.workers.push(worker(self.next_id, w.slot));
                continue;
            }
            living.push(w.slot);
            w.id = WorkerId(self.next_id);
            w.outbox.clear();
            let keep = self.random.below(w.inbox.len() + 1);
            w.inbox.truncate(keep);
            let hello = match w.has_job {
                true => Event::Returned { joined: joined(&w), generation: w.generation },
                false => Event::Joined(joined(&w)),
            };
            w.outbox.push_back(hello);
            w.outbox.extend(w.kept.iter().map(|report| renamed(report, w.id)));
            self.workers.push(w);
        }
        self.now_ns += MS;
        self.scheduler = Scheduler::restore(self.config.clone(), facts, &living, 0, self.now_ns)
            .expect("a sound configuration");
    }
}

#[test]
fn a_controller_killed_at_any_command_changes_nothing() {
    let seeds = std::env::var("CHAOS").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000u64);
    let mut back = 0;
    for seed in 0..seeds {
        let end = World::new(seed).run();
        let Some(outcome) = end.outcome else { panic!("seed {seed}: no end") };
        if let Ended::Failed(Cause::NoWayBack { why }) = &outcome.ended {
            // Those who could have told were killed, or had taken their leave.
            assert!(end.killed > 0 || end.journal.recorded == STEPS, "seed {seed}: {why}");
            back += 1;
            continue;
        }
        assert_eq!(outcome.ended, Ended::Completed, "seed {seed}");
        let mut expected = Vec::new();
        for step in 0..=STEPS {
            if step > 0 && (step % 10 == 0 || step == STEPS) {
                expected.push(Line::Eval(step));
            }
            if step < STEPS {
                expected.push(Line::Step(step));
            }
        }
        assert_eq!(end.record, expected, "seed {seed}");
        assert_eq!(outcome.checkpoint, Some(STEPS), "seed {seed}");
    }
    assert!(back * 10 < seeds, "{back} of {seeds} had to go back to a checkpoint");
}

fn facts() -> Facts {
    Facts { begun: true, generation: 4, recorded: 7, ..Facts::default() }
}

fn back(id: u64, slot: Option<u32>, generation: u64) -> Event {
    let one = worker(id, slot.unwrap_or_default());
    Event::Returned { joined: Joined { slot, ..joined(&one) }, generation }
}

fn is_refusal(command: &Command, id: u64) -> bool {
    matches!(command, Command::Refuse { worker, .. } if worker.0 == id)
}

/// A guest that was given up, and woke up when nobody could tell it, is not counted in the place of
/// one that the run waits for.
#[test]
fn who_was_given_up_before_is_not_counted_on() {
    let recovery = Recovery::default();
    let config = Config { recovery, ..config(2, STEPS) };
    let mut scheduler = Scheduler::restore(config, facts(), &[0], 1, 0).expect("a config");
    assert_eq!(scheduler.step(MS, back(10, Some(0), 4)), Vec::new());
    let out = scheduler.step(2 * MS, back(11, None, 2));
    assert!(matches!(&out[..], [refusal] if is_refusal(refusal, 11)), "{out:?}");
    let report = Event::Halted {
        worker: WorkerId(11),
        generation: 5,
        done: Some(3),
        peer_address: String::new(),
    };
    assert_eq!(scheduler.step(3 * MS, report), Vec::new());
    // The one that is missed had heard of the generation before the last one.
    let out = scheduler.step(4 * MS, back(12, None, 3));
    let halt = Command::Halt { generation: 5, workers: vec![WorkerId(10), WorkerId(12)] };
    assert_eq!(out, [halt]);
}

/// `worker.lost = stop`: a run whose workers do not all come back goes on from its checkpoint.
#[test]
fn who_wants_all_of_them_goes_back_without_one() {
    let config = config(2, STEPS);
    let late = config.timeouts.return_ns;
    let mut scheduler = Scheduler::restore(config, facts(), &[0], 0, 0).expect("a config");
    assert_eq!(scheduler.step(MS, back(10, Some(0), 4)), Vec::new());
    let out = scheduler.step(late, Event::Tick);
    let ended = out.iter().find_map(|command| match command {
        Command::Conclude(outcome) => Some(outcome.ended.clone()),
        _ => None,
    });
    let Some(Ended::Failed(Cause::NoWayBack { why })) = ended else { panic!("{out:?}") };
    assert!(why.starts_with("1 of 2 workers came back"), "{why}");
}
