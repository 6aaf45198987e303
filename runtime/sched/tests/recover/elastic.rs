//! A cluster whose members change. A step ends on a rank once all members of its generation have
//! done their part of it; weights are a number that every step changes.

use crate::common::{self, MS, Seeded};
use monarch_sched::{
    Command, Config, DueKind, Event, Exit, Failure, Forming, Joined, Outcome, Placement, Recovery,
    Scheduler, StepNumbers, Times, Warning, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone)]
pub struct Plan {
    pub config: Config,
    /// Workers killed over the run.
    pub faults: u32,
    /// Some of them only stop answering.
    pub freezes: bool,
    /// Workers that come by themselves.
    pub guests: u32,
    /// Workers that are told to end.
    pub leaves: u32,
    /// Whoever starts in this slot dies before its first step, after the first time.
    pub cursed: Option<u32>,
    /// One worker reports a failure of its own at this step.
    pub fails_at: Option<u64>,
}

impl Default for Plan {
    fn default() -> Plan {
        let config = config(2, 40);
        let (cursed, fails_at) = (None, None);
        Plan { config, faults: 0, freezes: false, guests: 0, leaves: 0, cursed, fails_at }
    }
}

/// A job whose workers may be lost, and are waited for.
pub fn config(world: u32, steps: u64) -> Config {
    let mut config = common::config(world, steps);
    config.recovery = Recovery::default();
    (config.timeouts.join_ns, config.timeouts.ready_ns) = (60_000 * MS, 60_000 * MS);
    config
}

/// What was recorded.
pub struct Record {
    pub outcome: Outcome,
    pub steps: Vec<u64>,
    pub evals: Vec<u64>,
    pub lost: u64,
    /// Members that died before the last step.
    pub killed_under_way: u32,
    pub told: u32,
    pub started: u32,
    /// Workers let go.
    pub released: u32,
    pub given_up: Vec<u32>,
    pub all_died: bool,
}

#[derive(Clone, Debug)]
enum Told {
    Place { generation: u64, base: u64, rank: usize, members: Vec<WorkerId>, holders: Vec<bool> },
    Halt(u64),
    Window(u64, Vec<(u64, DueKind)>),
    Finish,
}

struct Worker {
    slot: Option<u32>,
    inbox: VecDeque<Told>,
    outbox: VecDeque<Event>,
    generation: u64,
    members: Vec<WorkerId>,
    /// Steps seen, and what they have made of the weights.
    state: Option<(u64, u64)>,
    /// Waits for its weights from this worker.
    donor: Option<(WorkerId, u64)>,
    /// Parts of steps done: the step at hand is computed, the others' parts may be missing.
    computed: u64,
    until: u64,
    due: VecDeque<(u64, DueKind)>,
    stopped: bool,
    gone: bool,
    frozen: bool,
    finish: bool,
}

pub struct Elastic {
    seed: u64,
    random: Seeded,
    plan: Plan,
    scheduler: Scheduler,
    workers: BTreeMap<WorkerId, Worker>,
    /// Members as the controller has placed them.
    current: Vec<WorkerId>,
    next_id: u64,
    exits: Vec<Event>,
    committing: Option<u64>,
    now_ns: u64,
    actions: u64,
    faults_left: u32,
    guests_left: u32,
    leaves_left: u32,
    cursed_lives: u32,
    record: Option<Outcome>,
    steps: Vec<u64>,
    evals: Vec<u64>,
    dead: BTreeSet<WorkerId>,
    killed_under_way: u32,
    lost: u64,
    told: u32,
    started: u32,
    released: u32,
    given_up: Vec<u32>,
}

fn mix(weights: u64, step: u64) -> u64 {
    (weights ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(17).wrapping_mul(0x94d0_49bb)
}

impl Elastic {
    pub fn new(plan: Plan, seed: u64) -> Elastic {
        let scheduler = Scheduler::new(plan.config.clone(), 0).expect("a sound configuration");
        let mut cluster = Elastic {
            seed,
            random: Seeded(seed),
            faults_left: plan.faults,
            guests_left: plan.guests,
            leaves_left: plan.leaves,
            cursed_lives: 0,
            scheduler,
            workers: BTreeMap::new(),
            current: Vec::new(),
            next_id: 0,
            exits: Vec::new(),
            committing: None,
            now_ns: 0,
            actions: 0,
            record: None,
            steps: Vec::new(),
            evals: Vec::new(),
            dead: BTreeSet::new(),
            killed_under_way: 0,
            lost: 0,
            told: 0,
            started: 0,
            released: 0,
            given_up: Vec::new(),
            plan,
        };
        for slot in 0..cluster.plan.config.world {
            cluster.arrive(Some(slot));
        }
        cluster
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.below(n)
    }

    fn arrive(&mut self, slot: Option<u32>) {
        let id = WorkerId(self.next_id);
        self.next_id += 1;
        let joined = Event::Joined(Joined {
            worker: id,
            host: "a".into(),
            shm_domain: "a".into(),
            cores: 4,
            peer_address: String::new(),
            slot,
            objection: None,
        });
        let worker = Worker {
            slot,
            inbox: VecDeque::new(),
            outbox: VecDeque::from([joined]),
            generation: 0,
            members: Vec::new(),
            state: None,
            donor: None,
            computed: 0,
            until: 0,
            due: VecDeque::new(),
            stopped: false,
            gone: false,
            frozen: false,
            finish: false,
        };
        self.workers.insert(id, worker);
        let cursed = slot.is_some() && slot == self.plan.cursed;
        if cursed {
            self.cursed_lives += 1;
            if self.cursed_lives > 1 {
                self.end(id);
            }
        }
    }

    pub fn run(mut self) -> Record {
        while self.record.is_none() {
            self.actions += 1;
            assert!(
                self.actions < 200_000,
                "seed {}: waits for ever {:?}",
                self.seed,
                self.scheduler
            );
            self.act();
        }
        assert!(self.scheduler.step(self.now_ns, Event::Tick).is_empty(), "seed {}", self.seed);
        Record {
            outcome: self.record.take().expect("recorded"),
            steps: self.steps,
            evals: self.evals,
            lost: self.lost,
            killed_under_way: self.killed_under_way,
            told: self.told,
            started: self.started,
            released: self.released,
            given_up: self.given_up,
            all_died: self.workers.values().all(|w| w.gone || w.frozen || w.state.is_none()),
        }
    }

    fn act(&mut self) {
        let trouble = self.below(60);
        if trouble == 0 && self.faults_left > 0 && self.actions > 4 {
            self.strike();
        }
        if trouble == 1 && self.guests_left > 0 {
            self.guests_left -= 1;
            self.arrive(None);
        }
        if trouble == 2 && self.leaves_left > 0 {
            self.leaves_left -= 1;
            let living = self.living();
            let worker = living[self.below(living.len())];
            let outbox = &mut self.workers.get_mut(&worker).expect("known").outbox;
            outbox.push_back(Event::Leaving { worker });
        }
        let ids: Vec<WorkerId> = self.workers.keys().copied().collect();
        let busy =
            |w: &Worker| !w.outbox.is_empty() || (!w.frozen && !w.gone && !w.inbox.is_empty());
        let n = ids.len();
        let mut moved = false;
        match self.below(n * 2 + 2) {
            i if i < n => moved = self.work(ids[i]),
            i if i < 2 * n => {
                let worker = self.workers.get_mut(&ids[i - n]).expect("known");
                if let Some(event) = worker.outbox.pop_front() {
                    moved = true;
                    self.tell(event);
                }
            }
            i if i == 2 * n => {
                if let Some(exit) = (!self.exits.is_empty()).then(|| self.exits.remove(0)) {
                    moved = true;
                    self.tell(exit);
                }
            }
            _ => {
                if let Some(step) = self.committing.take() {
                    moved = true;
                    self.tell(Event::Committed { step, finite: true, error: None });
                }
            }
        }
        let idle = !moved && !self.workers.values().any(busy) && self.exits.is_empty();
        self.now_ns += if idle { 5 * MS } else { MS / 100 };
        if idle {
            self.tell(Event::Tick);
        }
    }

    fn living(&self) -> Vec<WorkerId> {
        let all = self.workers.iter().filter(|(_, w)| !w.gone && !w.frozen);
        all.map(|(id, _)| *id).collect()
    }

    /// A worker is lost; never the last one that has the weights.
    fn strike(&mut self) {
        let living = self.living();
        let victim = living[self.below(living.len())];
        let holders = living.iter().filter(|w| self.workers[w].state.is_some()).count();
        let begun = !self.steps.is_empty();
        let early = !begun && !self.plan.config.recovery.replace;
        if living.len() < 2 || (begun && holders < 2) || early {
            return;
        }
        self.faults_left -= 1;
        self.lost += 1;
        if self.plan.freezes && self.below(2) == 0 && begun {
            self.workers.get_mut(&victim).expect("known").frozen = true;
            return;
        }
        self.end(victim);
    }

    /// A process ends: its last words arrive, then the news of its end, in two ways.
    fn end(&mut self, victim: WorkerId) {
        let order = self.below(3);
        let worker = self.workers.get_mut(&victim).expect("known");
        if worker.gone {
            return;
        }
        worker.gone = true;
        worker.frozen = false;
        self.dead.insert(victim);
        if order == 0 {
            // What was under way is lost with it.
            let joined = worker.outbox.pop_front().filter(|e| matches!(e, Event::Joined(_)));
            worker.outbox.clear();
            worker.outbox.extend(joined);
        }
        worker.outbox.push_back(Event::Lost { worker: victim, why: "reset".into() });
        let member = self.current.contains(&victim);
        let under_way = (self.steps.len() as u64) < self.plan.config.steps;
        self.killed_under_way += u32::from(member && under_way);
        if let Some(slot) = worker.slot {
            let by_signal = order != 1 || self.current.is_empty();
            let exit = Exit { text: "killed".into(), by_signal, clean: false };
            self.exits.push(Event::Exited { slot, exit });
        }
        if order == 2 {
            self.complain_of(victim);
        }
    }

    /// A peer notices before the controller does.
    fn complain_of(&mut self, victim: WorkerId) {
        let peers = self.workers.iter_mut().filter(|(_, w)| !w.gone && !w.frozen && !w.stopped);
        let mut peers = peers.filter(|(_, w)| w.members.contains(&victim));
        let Some((&worker, peer)) = peers.next() else { return };
        let rank = peer.members.iter().position(|m| *m == victim);
        let lost_peer = rank.map(|r| r as u32);
        let (task, message) = ("reduce".into(), "a peer is gone".into());
        let failure = Failure { step: None, task, message, span: None, lost_peer };
        peer.stopped = true;
        peer.outbox.push_back(Event::Failed { worker, failure });
    }

    fn work(&mut self, id: WorkerId) -> bool {
        let worker = self.workers.get_mut(&id).expect("known");
        if worker.gone || worker.frozen {
            return false;
        }
        if let Some(told) = worker.inbox.pop_front() {
            self.hear(id, told);
            return true;
        }
        let worker = &self.workers[&id];
        if worker.stopped {
            return false;
        }
        if let Some((donor, base)) = worker.donor {
            return self.receive(id, donor, base);
        }
        let Some((step, _)) = worker.state else { return false };
        if worker.due.front().is_some_and(|d| d.0 == step) {
            self.do_due(id, step);
            return true;
        }
        if step < worker.until {
            return self.do_step(id, step);
        }
        if worker.finish {
            let (step, weights) = worker.state.expect("has weights");
            let worker = self.workers.get_mut(&id).expect("known");
            let fingerprint = format!("{weights:x}");
            worker.outbox.push_back(Event::Finished { worker: id, step, fingerprint });
            worker.finish = false;
            return true;
        }
        false
    }

    fn hear(&mut self, id: WorkerId, told: Told) {
        let seed = self.seed;
        let worker = self.workers.get_mut(&id).expect("known");
        match told {
            Told::Place { generation, base, rank, members, holders } => {
                assert!(generation >= worker.generation, "seed {seed}");
                worker.generation = generation;
                worker.members = members;
                worker.stopped = false;
                (worker.until, worker.computed) = (base, base);
                worker.due.clear();
                if holders[rank] {
                    assert_eq!(worker.state.map(|s| s.0), Some(base), "seed {seed}");
                } else if let Some(holder) = holders.iter().position(|h| *h) {
                    worker.donor = Some((worker.members[holder], base));
                    return;
                } else {
                    worker.state = Some((base, 0));
                }
                self.ready(id);
            }
            Told::Halt(generation) => {
                worker.stopped = true;
                worker.donor = None;
                worker.due.clear();
                worker.generation = generation;
                let done = worker.state.map(|s| s.0);
                let peer_address = String::new();
                let event = Event::Halted { worker: id, generation, done, peer_address };
                worker.outbox.push_back(event);
            }
            Told::Window(until, due) => {
                worker.until = until;
                worker.due.extend(due);
            }
            Told::Finish => worker.finish = true,
        }
    }

    fn ready(&mut self, id: WorkerId) {
        let worker = self.workers.get_mut(&id).expect("known");
        let (step, weights) = worker.state.expect("has weights");
        let (generation, fingerprint) = (worker.generation, format!("{step}: {weights:x}"));
        worker.outbox.push_back(Event::Ready { worker: id, generation, fingerprint });
    }

    /// Weights arrive if the donor lives and is in the same generation.
    fn receive(&mut self, id: WorkerId, donor: WorkerId, base: u64) -> bool {
        let (generation, giver) = (self.workers[&id].generation, &self.workers[&donor]);
        if giver.gone || giver.frozen || giver.generation != generation || giver.stopped {
            return false;
        }
        let state = giver.state;
        assert_eq!(state.map(|s| s.0), Some(base), "seed {}", self.seed);
        let worker = self.workers.get_mut(&id).expect("known");
        worker.donor = None;
        worker.state = state;
        self.ready(id);
        true
    }

    fn do_step(&mut self, id: WorkerId, step: u64) -> bool {
        let failing = self.plan.fails_at == Some(step);
        let worker = self.workers.get_mut(&id).expect("known");
        if failing && worker.members.first() == Some(&id) {
            worker.stopped = true;
            let (task, message) = ("load data".into(), "not a number".into());
            let failure = Failure { step: None, task, message, span: None, lost_peer: None };
            worker.outbox.push_back(Event::Failed { worker: id, failure });
            worker.outbox.push_back(Event::Lost { worker: id, why: "closed".into() });
            worker.gone = true;
            return true;
        }
        if worker.computed == step {
            worker.computed += 1;
            return true;
        }
        // The step is over when all members have done their part: also one that has died since.
        let (generation, members) = (worker.generation, worker.members.clone());
        let all = members.iter().all(|m| {
            let peer = &self.workers[m];
            let (ahead, same) = (peer.computed > step, peer.generation == generation);
            ahead && same
        });
        if !all {
            return false;
        }
        let worker = self.workers.get_mut(&id).expect("known");
        let (_, weights) = worker.state.expect("has weights");
        worker.state = Some((step + 1, mix(weights, step)));
        let numbers = StepNumbers {
            step,
            epoch: 0,
            samples: 64,
            loss: 1.0 / (step + 1) as f64,
            grad_norm: 1.0,
            lr: 1e-3,
            total_ns: 100 * MS,
            times: Times::default(),
            finite: true,
        };
        worker.outbox.push_back(Event::Step { worker: id, numbers });
        true
    }

    fn do_due(&mut self, id: WorkerId, step: u64) {
        let worker = self.workers.get_mut(&id).expect("known");
        let (_, what) = worker.due.pop_front().expect("due");
        let event = match what {
            DueKind::Evaluate(evaluation) => Event::Evaluated {
                worker: id,
                step,
                evaluation,
                values: vec![step as f64 / 100.0],
                samples: 100,
                nanoseconds: 1,
            },
            DueKind::Save => {
                let fingerprint = format!("at {step}");
                Event::Saved { worker: id, step, fingerprint, error: None }
            }
        };
        worker.outbox.push_back(event);
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
                let holders = vec![false; placements.len()];
                self.place(0, 0, &placements, &holders);
            }
            Command::Form(Forming { generation, base, placements, holders, .. }) => {
                let done = self.steps.len() as u64;
                assert!(base <= done, "seed {seed}: goes on where the record ends");
                self.place(generation, base, &placements, &holders);
            }
            Command::Halt { generation, workers } => self.send(&workers, &Told::Halt(generation)),
            Command::Window { until, due } => {
                let due = due.iter().map(|d| (d.step, d.what)).collect();
                let everyone = self.current.clone();
                self.send(&everyone, &Told::Window(until, due));
            }
            Command::Step(numbers) => {
                assert_eq!(numbers.step, self.steps.len() as u64, "seed {seed}");
                self.steps.push(numbers.step);
            }
            Command::Evaluated(numbers) => {
                assert!(!self.evals.contains(&numbers.step), "seed {seed}: evaluated twice");
                self.evals.push(numbers.step);
            }
            Command::Commit { step, .. } => self.committing = Some(step),
            Command::Replace { slot } => {
                self.started += 1;
                self.arrive(Some(slot));
            }
            Command::Evict { worker, .. } => self.end(worker),
            Command::Warn(Warning::WorkerLost { worker, .. }) => {
                assert!(
                    self.dead.remove(&worker),
                    "seed {seed}: {worker:?} is not lost, or told of"
                );
                self.told += 1;
            }
            Command::Release { worker, .. } => {
                self.released += 1;
                let leaver = self.workers.get_mut(&worker).expect("known");
                leaver.gone = true;
                leaver.outbox.push_back(Event::Lost { worker, why: "goodbye".into() });
                if let Some(slot) = leaver.slot {
                    let exit = Exit { text: "left".into(), by_signal: false, clean: true };
                    self.exits.push(Event::Exited { slot, exit });
                }
            }
            Command::Warn(Warning::GivenUp { slot, .. }) => self.given_up.push(slot),
            Command::Finish => {
                let everyone = self.current.clone();
                self.send(&everyone, &Told::Finish);
            }
            Command::Conclude(outcome) => self.record = Some(*outcome),
            Command::Abort { .. } | Command::Refuse { .. } | Command::Discard { .. } => {}
            Command::Started { .. } | Command::Formed { .. } | Command::Warn(_) => {}
            Command::NotFinite { .. } | Command::Skip { .. } => panic!("all steps are finite"),
            Command::Slow { .. } => panic!("seed {seed}: nobody is slow here"),
        }
    }

    fn send(&mut self, to: &[WorkerId], told: &Told) {
        for id in to {
            if let Some(worker) = self.workers.get_mut(id) {
                worker.inbox.push_back(told.clone());
            }
        }
    }

    fn place(&mut self, generation: u64, base: u64, placements: &[Placement], holders: &[bool]) {
        let members: Vec<WorkerId> = placements.iter().map(|p| p.worker).collect();
        self.current = members.clone();
        for (rank, id) in members.iter().enumerate() {
            let (members, holders) = (members.clone(), holders.to_vec());
            let told = Told::Place { generation, base, rank, members, holders };
            self.workers.get_mut(id).expect("known").inbox.push_back(told);
        }
    }
}
