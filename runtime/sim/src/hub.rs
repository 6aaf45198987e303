//! The controller: the real state machine, and what carries out its commands.

use crate::cluster::{Cluster, Thing, Word};
use crate::rng::Rng;
use crate::schedule::{Job, MS, US};
use monarch_sched::{
    Command, Due, DueKind, Event, Exit, Forming, LinkPlan, Outcome, Scheduler, Source, Warning,
    WorkerId,
};
use monarch_wire::{Form, Links, Window};
use std::collections::VecDeque;

/// What the controller knows of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    open: bool,
    /// It has had the job.
    started: bool,
    evicted: bool,
}

#[derive(Debug)]
struct Save {
    step: u64,
    attempt: usize,
    /// Ranks that have reported their part, with their generation.
    parts: Vec<(u32, u64)>,
}

pub(crate) struct Hub {
    scheduler: Scheduler,
    /// Its clock against that of the simulation.
    offset_ns: u64,
    rate_ppm: u64,
    peers: Vec<Peer>,
    /// By slot: the process in it, unless it is known to have ended.
    seats: Vec<Option<usize>>,
    pub ranks: Vec<usize>,
    pub generation: u64,
    until: u64,
    save: Option<Save>,
    committing: Option<(u64, Vec<(u32, u64)>)>,
    later: VecDeque<Event>,
    pub steps: u64,
    pub evals: Vec<u64>,
    pub checkpoint: Option<u64>,
    pub given_up: Vec<u32>,
    pub outcome: Option<Outcome>,
}

impl Hub {
    pub fn new(job: &Job, random: &mut Rng) -> Hub {
        let (offset_ns, rate_ppm) = (random.below(1 << 40), 999_000 + random.below(2_000));
        let start_ns = offset_ns;
        // A job that the generator has made is sound; if it is not, nothing will happen.
        let scheduler = Scheduler::new(job.config(), start_ns);
        #[allow(clippy::expect_used)]
        let scheduler = scheduler.expect("a sound configuration");
        Hub {
            scheduler,
            offset_ns,
            rate_ppm,
            peers: Vec::new(),
            seats: vec![None; job.world as usize],
            ranks: Vec::new(),
            generation: 0,
            until: 0,
            save: None,
            committing: None,
            later: VecDeque::new(),
            steps: 0,
            evals: Vec::new(),
            checkpoint: None,
            given_up: Vec::new(),
            outcome: None,
        }
    }

    pub fn open(&self, node: usize) -> bool {
        self.peers.get(node).is_some_and(|p| p.open)
    }

    pub fn connected(&mut self, node: usize, slot: Option<u32>) {
        self.peers.resize(node + 1, Peer::default());
        if let Some(peer) = self.peers.get_mut(node) {
            peer.open = true;
        }
        if let Some(seat) = slot.and_then(|s| self.seats.get_mut(s as usize)) {
            *seat = Some(node);
        }
    }

    /// False if it was closed before.
    pub fn close(&mut self, node: usize) -> bool {
        self.peers.get_mut(node).is_some_and(|p| std::mem::replace(&mut p.open, false))
    }

    pub fn describe(&self) -> String {
        format!("{:?}", self.scheduler)
    }
}

impl Cluster {
    /// One event, and what follows from it.
    pub fn feed(&mut self, event: Event) {
        self.hub.later.push_back(event);
        while let Some(event) = self.hub.later.pop_front() {
            let hub = &mut self.hub;
            let since = u128::from(self.now_ns) * u128::from(hub.rate_ppm) / 1_000_000;
            let now_ns = hub.offset_ns + since as u64;
            for command in hub.scheduler.step(now_ns, event) {
                if !matches!(command, Command::Window { .. }) {
                    self.note(|| format!("  controller: {command:?}"));
                }
                if self.hub.outcome.is_some() {
                    self.violate(format!("{command:?} follows the conclusion"));
                }
                self.obey(command);
            }
        }
    }

    pub fn feed_lost(&mut self, node: usize) {
        let why = "the connection is gone".to_string();
        self.feed(Event::Lost { worker: WorkerId(node as u64), why });
    }

    /// A message of a worker whose connection is open.
    pub fn hear(&mut self, node: usize, event: Event) {
        if let Event::Saved { step, .. } = &event {
            let rank = self.hub.ranks.iter().position(|n| *n == node);
            let generation = self.hub.generation;
            if let (Some(rank), Some(save)) = (rank, self.hub.save.as_mut())
                && save.step == *step
            {
                save.parts.push((rank as u32, generation));
            }
        }
        self.feed(event);
    }

    pub fn child_ended(&mut self, slot: u32, node: usize, exit: Exit) {
        let seat = self.hub.seats.get_mut(slot as usize);
        if let Some(seat) = seat.filter(|s| **s == Some(node)) {
            *seat = None;
            if self.hub.outcome.is_none() {
                self.feed(Event::Exited { slot, exit });
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Refuse { worker, why } => {
                self.send(worker.0 as usize, Word::Refused(why));
                self.shut(worker.0 as usize);
            }
            Command::Start { placements, deal, links } => {
                let holders = vec![false; placements.len()];
                let source = Source::Members;
                self.form(Forming {
                    generation: 0,
                    base: 0,
                    placements,
                    holders,
                    deal,
                    links,
                    source,
                });
            }
            Command::Form(forming) => self.form(forming),
            Command::Halt { generation, workers } => {
                for worker in workers {
                    self.send(worker.0 as usize, Word::Halt(generation));
                }
            }
            Command::Release { worker, .. } => self.send(worker.0 as usize, Word::Release),
            Command::Evict { worker, .. } => self.evict(worker.0 as usize),
            Command::Replace { slot } => {
                let at_ns = self.now_ns + self.random.within(500 * US, 20 * MS);
                self.queue.push(at_ns, Thing::Arrive(Some(slot)));
            }
            Command::Window { until, due } => self.window(until, due),
            Command::Step(numbers) => self.record_step(&numbers),
            Command::Evaluated(numbers) => self.record_evaluation(&numbers),
            Command::Commit { step, fingerprint, .. } => self.commit(step, &fingerprint),
            Command::Discard { step, .. } => drop(self.hub.save.take_if(|s| s.step == step)),
            Command::Warn(Warning::GivenUp { slot, .. }) => self.hub.given_up.push(slot),
            Command::Abort { why } => {
                for node in 0..self.nodes.len() {
                    self.send(node, Word::Abort(why.clone()));
                }
            }
            Command::Finish => {
                for node in self.hub.ranks.clone() {
                    self.send(node, Word::Finish);
                }
            }
            Command::Conclude(outcome) => self.conclude(*outcome),
            Command::NotFinite { step, .. } | Command::Skip { step } => {
                self.violate(format!("step {step} is not finite"));
            }
            Command::Slow { rank, .. } => self.violate(format!("rank {rank} is not slow")),
            Command::Formed { .. } | Command::Started { .. } | Command::Warn(_) => {}
        }
    }

    /// The controller's end of a connection is closed; the other end hears of it.
    fn shut(&mut self, node: usize) {
        if !self.hub.close(node) {
            return;
        }
        let delay = self.delay();
        if let Some(to) = self.nodes.get_mut(node) {
            let at_ns = to.inward.pass(self.now_ns, delay);
            self.queue.push(at_ns, Thing::NodeClosed(node));
        }
    }

    fn evict(&mut self, node: usize) {
        if let Some(peer) = self.hub.peers.get_mut(node) {
            peer.evicted = true;
        }
        let slot = self.nodes.get(node).and_then(|n| n.slot);
        let seat = slot.and_then(|s| self.hub.seats.get(s as usize).copied().flatten());
        self.shut(node);
        if let Some(seated) = seat {
            self.end_process(seated, true, "killed by signal 9 (SIGKILL)");
        }
    }

    fn form(&mut self, forming: Forming) {
        let Forming { generation, base, placements, holders, deal, links, source } = forming;
        if source != Source::Members {
            self.violate(format!("goes back to {source:?}, and all numbers are finite"));
        }
        if base > self.hub.steps {
            let steps = self.hub.steps;
            self.violate(format!("goes on at {base}, and the record ends at {steps}"));
        }
        self.hub.generation = generation;
        self.hub.until = base;
        self.hub.ranks = placements.iter().map(|p| p.worker.0 as usize).collect();
        let links = match links {
            LinkPlan::Quic { peers } => Links::Quic { peers },
            _ => Links::None,
        };
        for place in &placements {
            let node = place.worker.0 as usize;
            let Some(peer) = self.hub.peers.get_mut(node) else { continue };
            let (again, evicted) = (std::mem::replace(&mut peer.started, true), peer.evicted);
            let form = Form {
                generation,
                rank: place.rank,
                world: placements.len() as u32,
                threads: place.threads,
                links: links.clone(),
                base,
                holders: holders.clone(),
                deal: deal.clone(),
                source: Default::default(),
            };
            if evicted {
                self.violate(format!("w{node} is evicted, and has a place again"));
            }
            self.send(node, if again { Word::Form(form) } else { Word::Start(form) });
        }
    }

    fn window(&mut self, until: u64, due: Vec<Due>) {
        if until < self.hub.until || until > self.quiet.end.max(self.hub.steps) {
            let before = self.hub.until;
            self.violate(format!("a window up to {until} after one up to {before}"));
        }
        self.hub.until = until;
        let mut list = Vec::new();
        for Due { step, what } in due {
            let what = match what {
                DueKind::Evaluate(n) => monarch_wire::DueKind::Evaluate(n),
                DueKind::Save if self.now_ns < self.disk.full_until_ns => {
                    let why = "no space left on device".to_string();
                    self.hub.later.push_back(Event::SaveRefused { step, why });
                    continue;
                }
                DueKind::Save => {
                    let attempt = self.disk.begin(step);
                    self.hub.save = Some(Save { step, attempt, parts: Vec::new() });
                    monarch_wire::DueKind::Save { directory: attempt.to_string() }
                }
            };
            list.push(monarch_wire::Due { step, what });
        }
        // This controller is never started again: it asks for no report twice.
        let window = Window { until, due: list, kept: until };
        for place in 0..self.hub.ranks.len() {
            if let Some(&node) = self.hub.ranks.get(place) {
                self.send(node, Word::Window(window.clone()));
            }
        }
    }

    fn commit(&mut self, step: u64, fingerprint: &str) {
        let weights = self.quiet.weights.get(step as usize).copied().unwrap_or_default();
        if fingerprint != crate::node::print(weights) {
            self.violate(format!("the checkpoint of step {step} is of {fingerprint}"));
        }
        let Some(save) = self.hub.save.take_if(|s| s.step == step) else {
            return self.violate(format!("nobody began the checkpoint of step {step}"));
        };
        if self.hub.committing.is_some() {
            self.violate(format!("two checkpoints are committed at a time, at step {step}"));
        }
        self.hub.committing = Some((step, save.parts));
        let at_ns = self.now_ns + self.random.within(20 * US, 5 * MS);
        self.queue.push(at_ns, Thing::Committed(step, save.attempt));
    }

    pub fn committed(&mut self, step: u64, attempt: usize) {
        let Some((_, parts)) = self.hub.committing.take_if(|(s, _)| *s == step) else { return };
        let full = self.now_ns < self.disk.full_until_ns;
        if !full {
            let weights = self.quiet.weights.get(step as usize).copied().unwrap_or_default();
            if let Some(flaw) = self.disk.flaw(attempt, &parts, weights) {
                self.violate(flaw);
            }
            self.hub.checkpoint = Some(step);
        }
        if self.hub.outcome.is_none() {
            let error = full.then(|| "no space left on device".to_string());
            self.feed(Event::Committed { step, error, finite: true });
        }
    }

    /// Everybody leaves; who does not is ended, if it was started here.
    fn conclude(&mut self, outcome: Outcome) {
        self.hub.outcome = Some(outcome);
        self.judge_outcome();
        for node in 0..self.nodes.len() {
            self.shut(node);
            if self.nodes.get(node).is_some_and(|n| n.alive && n.slot.is_some()) {
                let at_ns = self.now_ns + crate::schedule::GRACE_NS;
                self.queue.push(at_ns, Thing::Kill(node));
            }
        }
    }
}
