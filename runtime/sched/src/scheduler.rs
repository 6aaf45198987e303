mod deadlines;
mod end;
mod leave;
mod start;
mod trouble;

use crate::blame::Blame;
use crate::fault::Fault;
use crate::ranks;
use crate::recover::{Gone, Halting, UNFIT};
use crate::restore::Returning;
use crate::run::{End, Reject, Run, agree};
use crate::slow::Slow;
use crate::{
    Cause, Command, Config, ConfigError, Ended, EvalNumbers, Event, Exit, Failure, Joined, Outcome,
    Warning, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet};

/// One run, from the first worker to the last.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) phase: Phase,
    /// Start of the phase at hand.
    since_ns: u64,
    /// Last word from any worker.
    heard_ns: u64,
    /// In order of joining; in order of rank once the job has started.
    pub(crate) workers: Vec<Joined>,
    /// Rank of each, once the job has started.
    pub(crate) places: BTreeMap<WorkerId, u32>,
    /// Came while the run was under way; they take their places with the next generation.
    pub(crate) reserve: Vec<Joined>,
    /// Members that leave on purpose, and since when they wait for it.
    pub(crate) leaving: BTreeMap<WorkerId, u64>,
    /// Per shard: who computes it.
    pub(crate) owners: Vec<WorkerId>,
    /// Members that they were dealt to.
    pub(crate) members: usize,
    /// Somebody has fewer shards than it could have, until this step is done.
    pub(crate) uneven: Option<u64>,
    /// Number of times that the members have changed.
    pub(crate) generation: u64,
    /// Weights may have seen a step.
    pub(crate) begun: bool,
    /// Lost, and not told of yet.
    pub(crate) gone: Vec<Gone>,
    /// By slot: workers lost in a row without a step between.
    pub(crate) losses: BTreeMap<u32, u32>,
    /// Troubles that may come again.
    pub(crate) blame: Blame,
    /// What the failure's cause has led to.
    followed: Vec<Cause>,
    /// Slots whose next worker is on its way.
    pub(crate) awaited: BTreeSet<u32>,
    /// Given up while they lived: not heard any more.
    pub(crate) fenced: BTreeSet<WorkerId>,
    /// Members that do not hold the weights yet.
    pub(crate) newcomers: BTreeSet<WorkerId>,
    /// Fingerprint of the weights at the start, once somebody has said it.
    first_print: Option<String>,
    /// Fingerprint per rank, of the weights at the start, later at the end.
    pub(crate) prints: Vec<Option<String>>,
    /// How many of them are there.
    pub(crate) printed: usize,
    /// When a worker of this rank was seen to be gone while it took its leave.
    pub(crate) gone_ns: Vec<Option<u64>>,
    pub(crate) run: Run,
    /// When the first interrupt came.
    pub(crate) interrupted_ns: Option<u64>,
    pub(crate) slow: Slow,
    /// Why the run was asked to end, if that is a failure.
    pub(crate) stop_for: Option<Cause>,
    /// The controller was started again, and its workers have not gone on yet.
    pub(crate) comes_back: bool,
    pub(crate) out: Vec<Command>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Waiting for workers.
    Gathering,
    /// Waiting for those of a controller that is gone.
    Returning(Returning),
    /// Workers open data, set weights, connect to each other.
    Starting,
    Running,
    /// Members change: those who stay stop at once.
    Halting(Halting),
    /// All work is done and saved: workers take their leave.
    Finishing,
    /// Something went wrong: waiting for the cause to become clear.
    Failing(Fault),
    /// The cause is clear, and a checkpoint that is whole is still being committed.
    Committing(Cause),
    Concluded,
}

impl Scheduler {
    pub fn new(config: Config, now_ns: u64) -> Result<Scheduler, ConfigError> {
        config.check()?;
        Ok(Scheduler {
            phase: Phase::Gathering,
            since_ns: now_ns,
            heard_ns: now_ns,
            workers: Vec::new(),
            places: BTreeMap::new(),
            reserve: Vec::new(),
            leaving: BTreeMap::new(),
            owners: Vec::new(),
            members: 0,
            uneven: None,
            generation: 0,
            begun: false,
            gone: Vec::new(),
            losses: BTreeMap::new(),
            blame: Blame::default(),
            followed: Vec::new(),
            awaited: BTreeSet::new(),
            fenced: BTreeSet::new(),
            newcomers: BTreeSet::new(),
            first_print: None,
            prints: vec![None; config.world as usize],
            printed: 0,
            gone_ns: vec![None; config.world as usize],
            run: Run::new(config.clone(), now_ns),
            interrupted_ns: None,
            slow: Slow::new(&config.slow),
            stop_for: None,
            comes_back: false,
            out: Vec::new(),
            config,
        })
    }

    /// True once the run is concluded: every further event is ignored.
    pub fn concluded(&self) -> bool {
        matches!(self.phase, Phase::Concluded)
    }

    /// Steps done by all ranks.
    pub fn done(&self) -> u64 {
        self.run.done()
    }

    /// What follows from one event. `now_ns` must not run backwards.
    pub fn step(&mut self, now_ns: u64, event: Event) -> Vec<Command> {
        if self.concluded() {
            return Vec::new();
        }
        let done = self.run.done();
        self.take(now_ns, event);
        self.check_return(now_ns);
        self.check_halting(now_ns);
        self.check_slow(now_ns);
        self.check_leaving(now_ns);
        self.check_deadlines(now_ns);
        self.tell_of_losses(now_ns);
        if self.run.done() > done {
            self.losses.retain(|_, times| *times == UNFIT);
        }
        if matches!(self.phase, Phase::Running) && self.run.goes_back() {
            self.halt(now_ns, None);
        }
        if matches!(self.phase, Phase::Running) {
            self.check_end(now_ns);
        }
        if matches!(self.phase, Phase::Running) {
            if self.members_change() {
                self.admit(now_ns);
            } else {
                self.run.advance(&mut self.out);
                self.check_end(now_ns);
            }
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, now_ns: u64, event: Event) {
        if !matches!(event, Event::Tick) {
            self.heard_ns = now_ns;
        }
        if self.is_fenced(&event) || self.hear_again(&event) || self.about_strangers(&event) {
            return;
        }
        match event {
            Event::Joined(joined) => self.joined(now_ns, joined),
            Event::Returned { joined, generation } => self.returned(now_ns, joined, generation),
            Event::Halted { worker, generation, done, peer_address } => {
                self.halted(worker, generation, done, peer_address);
            }
            Event::Ready { worker, generation, fingerprint } => {
                self.ready(now_ns, worker, generation, fingerprint);
            }
            Event::Finished { worker, step, fingerprint } => {
                self.finished(worker, step, fingerprint);
            }
            Event::Failed { worker, failure } => self.failed(now_ns, worker, failure),
            Event::Lost { worker, why } => self.lost(now_ns, worker, why),
            Event::Crashed { slot } => self.blame.crashed(slot, self.run.done()),
            Event::Hung { worker, hang } => self.hung(now_ns, worker, hang),
            Event::Exited { slot, exit } => self.exited(now_ns, slot, exit),
            Event::Committed { step, finite, error } => {
                self.run.committed(step, finite, error, &mut self.out);
            }
            Event::SaveRefused { step, why } => self.run.refused(step, why, &mut self.out),
            Event::Broken { what } => self.fail(Cause::Controller { what }),
            Event::Leaving { worker } => self.leaving(now_ns, worker),
            Event::Drain { rank } => self.drain(now_ns, rank),
            Event::Interrupt => self.interrupt(now_ns),
            Event::Stop => self.stop(),
            Event::Checkpoint => self.run.ask_to_save(),
            Event::Tick if matches!(self.phase, Phase::Running) => self.run.tick(now_ns),
            Event::Tick => {}
            report => self.report(report),
        }
    }

    fn rank(&self, worker: WorkerId) -> Option<u32> {
        if matches!(self.phase, Phase::Gathering | Phase::Returning(_)) {
            return None;
        }
        self.places.get(&worker).copied()
    }

    pub(crate) fn enter(&mut self, now_ns: u64, phase: Phase) {
        self.phase = phase;
        self.since_ns = now_ns;
        self.heard_ns = now_ns;
    }

    /// A report of work done.
    fn report(&mut self, event: Event) {
        let (Event::Step { worker, .. }
        | Event::Evaluated { worker, .. }
        | Event::Saved { worker, .. }) = &event
        else {
            return;
        };
        let Some(rank) = self.rank(*worker) else { return };
        match self.phase {
            Phase::Running | Phase::Halting(_) | Phase::Failing(_) => {}
            Phase::Committing(_) | Phase::Concluded => return,
            _ => return self.out_of_turn(rank, "reported work that nobody had asked for"),
        }
        let out = &mut self.out;
        let taken = match event {
            Event::Step { numbers, .. } => self.run.step(rank, numbers, out),
            Event::Evaluated { step, evaluation, values, samples, nanoseconds, .. } => {
                let numbers = EvalNumbers { step, evaluation, values, samples, nanoseconds };
                self.run.evaluated(rank, numbers, out)
            }
            Event::Saved { step, fingerprint, error, .. } => {
                self.run.part_saved(rank, step, fingerprint, error, out)
            }
            _ => Ok(()),
        };
        if let Err(reject) = taken {
            self.reject(rank, reject);
        }
    }

    /// Under way, or about to be again.
    fn is_running(&self) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Starting | Phase::Halting(_) => self.begun,
            _ => false,
        }
    }
}
