use crate::fault::Fault;
use crate::ranks;
use crate::recover::{Gone, Halting, UNFIT};
use crate::run::{End, Reject, Run, agree};
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
    /// Came while the run was under way; they take their places with the next generation.
    pub(crate) reserve: Vec<Joined>,
    /// Number of times that the members have changed.
    pub(crate) generation: u64,
    /// Weights may have seen a step.
    pub(crate) begun: bool,
    /// Lost, and not told of yet.
    pub(crate) gone: Vec<Gone>,
    /// By slot: workers lost in a row without a step between.
    pub(crate) losses: BTreeMap<u32, u32>,
    /// Slots whose next worker is on its way.
    pub(crate) awaited: BTreeSet<u32>,
    /// Members that do not hold the weights yet.
    pub(crate) newcomers: BTreeSet<WorkerId>,
    /// Fingerprint of the weights at the start, once somebody has said it.
    first_print: Option<String>,
    /// Fingerprint per rank, of the weights at the start, later at the end.
    pub(crate) prints: Vec<Option<String>>,
    /// When a worker of this rank was seen to be gone while it took its leave.
    pub(crate) gone_ns: Vec<Option<u64>>,
    pub(crate) run: Run,
    /// When the first interrupt came.
    interrupted_ns: Option<u64>,
    pub(crate) out: Vec<Command>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Waiting for workers.
    Gathering,
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
            reserve: Vec::new(),
            generation: 0,
            begun: false,
            gone: Vec::new(),
            losses: BTreeMap::new(),
            awaited: BTreeSet::new(),
            newcomers: BTreeSet::new(),
            first_print: None,
            prints: vec![None; config.world as usize],
            gone_ns: vec![None; config.world as usize],
            run: Run::new(config.clone(), now_ns),
            interrupted_ns: None,
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
        self.check_halting(now_ns);
        self.check_deadlines(now_ns);
        self.tell_of_losses(now_ns);
        if self.run.done() > done {
            self.losses.retain(|_, times| *times == UNFIT);
        }
        if matches!(self.phase, Phase::Running) {
            self.check_end(now_ns);
        }
        if matches!(self.phase, Phase::Running) {
            if self.reserve.is_empty() {
                self.run.advance(&mut self.out);
                self.check_end(now_ns);
            } else {
                self.admit(now_ns);
            }
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, now_ns: u64, event: Event) {
        if !matches!(event, Event::Tick) {
            self.heard_ns = now_ns;
        }
        if self.about_strangers(&event) {
            return;
        }
        match event {
            Event::Joined(joined) => self.joined(now_ns, joined),
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
            Event::Exited { slot, exit } => self.exited(now_ns, slot, exit),
            Event::Committed { step, error } => self.run.committed(step, error, &mut self.out),
            Event::SaveRefused { step, why } => self.run.refused(step, why, &mut self.out),
            Event::Broken { what } => self.fail(Cause::Controller { what }),
            Event::Interrupt => self.interrupt(now_ns),
            Event::Stop => self.stop(),
            Event::Checkpoint => self.run.ask_to_save(),
            Event::Tick if matches!(self.phase, Phase::Running) => self.run.tick(now_ns),
            Event::Tick => {}
            report => self.report(report),
        }
    }

    fn rank(&self, worker: WorkerId) -> Option<u32> {
        if matches!(self.phase, Phase::Gathering) {
            return None;
        }
        self.workers.iter().position(|w| w.worker == worker).map(|r| r as u32)
    }

    fn joined(&mut self, now_ns: u64, joined: Joined) {
        let (worker, guest) = (joined.worker, joined.slot.is_none());
        if let Some(why) = joined.objection {
            self.out.push(Command::Refuse { worker, why: why.clone() });
            if !guest && matches!(self.phase, Phase::Gathering) {
                self.fail(Cause::Refused { worker, why });
            } else {
                self.out.push(Command::Warn(Warning::Refused { worker, why }));
            }
            return;
        }
        if matches!(self.phase, Phase::Gathering) {
            let same = |w: &Joined| w.slot.is_some() && w.slot == joined.slot;
            if self.workers.iter().any(|w| same(w) && w.worker > worker) {
                return;
            }
            self.awaited.retain(|slot| Some(*slot) != joined.slot);
            // The one before it has ended, and the news of that is still under way.
            self.workers.retain(|w| !same(w));
            self.workers.push(joined);
            if self.workers.len() == self.config.world as usize {
                self.start(now_ns);
            }
        } else if let Err(why) = self.late(joined) {
            self.out.push(Command::Refuse { worker, why: why.clone() });
            // Nobody but the controller waits for one that it has started.
            if guest {
                self.out.push(Command::Warn(Warning::Refused { worker, why }));
            }
        }
    }

    fn start(&mut self, now_ns: u64) {
        let Config { first_step, steps, .. } = self.config;
        if first_step > steps {
            return self.fail(Cause::BeyondEnd { first_step, steps });
        }
        let placements = ranks::place(&self.config, &mut self.workers);
        match ranks::links(&self.config, &self.workers) {
            Ok(links) => self.out.push(Command::Start { placements, links }),
            Err(hosts) => return self.fail(Cause::NoSharedMemory { hosts }),
        }
        self.enter(now_ns, Phase::Starting);
    }

    pub(crate) fn enter(&mut self, now_ns: u64, phase: Phase) {
        self.phase = phase;
        self.since_ns = now_ns;
        self.heard_ns = now_ns;
    }

    fn ready(&mut self, now_ns: u64, worker: WorkerId, generation: u64, fingerprint: String) {
        let Some(rank) = self.rank(worker) else { return };
        if !self.begun && !fingerprint.is_empty() {
            // Those who keep what they hold do not say it again.
            self.first_print = Some(fingerprint.clone());
        }
        if generation < self.generation {
            // Under way when that generation was halted.
            return;
        }
        if !matches!(self.phase, Phase::Starting) {
            return self.out_of_turn(rank, "said `ready` out of turn");
        }
        if let Some(slot) = self.prints.get_mut(rank as usize) {
            *slot = Some(fingerprint);
        }
        let Some(prints) = self.prints.iter().cloned().collect::<Option<Vec<_>>>() else { return };
        self.prints.fill(None);
        if let Err(reject) = agree(self.config.first_step, "weights at the start", &prints) {
            return self.reject(rank, reject);
        }
        self.newcomers.clear();
        if self.begun {
            let (generation, step) = (self.generation, self.run.done());
            let world = self.workers.len() as u32;
            let waited_ns = now_ns.saturating_sub(self.since_ns);
            self.out.push(Command::Formed { generation, step, world, waited_ns });
        } else {
            self.begun = true;
            let fingerprint = self.first_print.take().unwrap_or_default();
            self.out.push(Command::Started { fingerprint });
            let config = Config { world: self.workers.len() as u32, ..self.config.clone() };
            self.run = Run::new(config, now_ns);
        }
        self.enter(now_ns, Phase::Running);
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

    pub(crate) fn reject(&mut self, rank: u32, reject: Reject) {
        match reject {
            Reject::Protocol(what) => self.out_of_turn(rank, &what),
            Reject::Mismatch { step, what, groups } => {
                self.fail(Cause::Mismatch { step, what, groups });
            }
        }
    }

    fn out_of_turn(&mut self, rank: u32, what: &str) {
        if matches!(self.phase, Phase::Failing(_) | Phase::Committing(_)) {
            // The run has come to its end for another reason; this word was under way.
            return;
        }
        let worker = self.workers.get(rank as usize).map_or(WorkerId(u64::MAX), |w| w.worker);
        self.fail(Cause::Protocol { rank, worker, what: what.to_string() });
    }

    fn finished(&mut self, worker: WorkerId, step: u64, fingerprint: String) {
        let Some(rank) = self.rank(worker) else { return };
        if !matches!(self.phase, Phase::Finishing) {
            return self.out_of_turn(rank, "took its leave before the end");
        }
        if step != self.run.done() {
            let what = format!("finished at step {step} of {}", self.run.done());
            return self.out_of_turn(rank, &what);
        }
        if let Some(slot) = self.prints.get_mut(rank as usize) {
            *slot = Some(fingerprint);
        }
    }

    fn failed(&mut self, now_ns: u64, worker: WorkerId, failure: Failure) {
        let Some(rank) = self.rank(worker) else { return };
        if matches!(self.phase, Phase::Finishing) {
            return self.left(now_ns, rank, &failure.message, false);
        }
        if self.is_unfit(worker, &failure) {
            return self.dismiss(now_ns, rank, worker, failure);
        }
        self.suspect(now_ns, Cause::Worker { rank, worker, failure });
    }

    fn lost(&mut self, now_ns: u64, worker: WorkerId, why: String) {
        if matches!(self.phase, Phase::Gathering) {
            let before = self.workers.len();
            // One that was started here has a story to tell: its exit follows.
            self.workers.retain(|w| w.worker != worker);
            if self.workers.len() < before {
                self.out.push(Command::Warn(Warning::LeftEarly { worker, why }));
            }
            return;
        }
        let Some(rank) = self.rank(worker) else { return };
        if matches!(self.phase, Phase::Finishing) {
            return self.left(now_ns, rank, &why, false);
        }
        self.suspect(now_ns, Cause::Lost { rank, worker, why });
    }

    fn exited(&mut self, now_ns: u64, slot: u32, exit: Exit) {
        if matches!(self.phase, Phase::Gathering) {
            self.workers.retain(|w| w.slot != Some(slot));
            // By a signal: not for a reason of its own.
            if !(exit.by_signal && self.replace(slot)) {
                self.fail(Cause::NeverJoined { slot, exit });
            }
            return;
        }
        let place = self.workers.iter().position(|w| w.slot == Some(slot));
        let Some((rank, w)) = place.and_then(|r| Some((r as u32, self.workers.get(r)?))) else {
            return;
        };
        let worker = w.worker;
        if matches!(self.phase, Phase::Finishing) {
            return self.left(now_ns, rank, &exit.text, exit.clean);
        }
        self.suspect(now_ns, Cause::Exited { rank, worker, exit });
    }

    /// A worker is gone when there is nothing left to do but to say goodbye.
    fn left(&mut self, now_ns: u64, rank: u32, why: &str, clean: bool) {
        let said_goodbye = self.prints.get(rank as usize).is_some_and(|p| p.is_some());
        let Some(slot) = self.gone_ns.get_mut(rank as usize) else { return };
        if slot.is_none() && !said_goodbye {
            *slot = Some(now_ns);
            if !clean {
                let why = why.to_string();
                self.out.push(Command::Warn(Warning::BadGoodbye { rank, why }));
            }
        }
    }

    fn suspect(&mut self, now_ns: u64, cause: Cause) {
        if self.recovers(&cause) {
            return self.halt(now_ns, Some(cause));
        }
        match &mut self.phase {
            Phase::Failing(fault) => fault.hear(cause),
            Phase::Committing(_) | Phase::Concluded => {}
            Phase::Halting(_) => self.hear(now_ns, cause),
            _ => {
                let guests = self.guests();
                self.enter(now_ns, Phase::Failing(Fault::new(now_ns, cause, guests)));
            }
        }
    }

    /// Ranks that nobody started here.
    pub(crate) fn guests(&self) -> Vec<u32> {
        let guests = (0..).zip(&self.workers).filter(|(_, w)| w.slot.is_none());
        guests.map(|(rank, _)| rank).collect()
    }

    /// Under way, or about to be again.
    fn is_running(&self) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Starting | Phase::Halting(_) => self.begun,
            _ => false,
        }
    }

    fn interrupt(&mut self, now_ns: u64) {
        let running = self.is_running();
        if running && self.interrupted_ns.is_none() {
            self.interrupted_ns = Some(now_ns);
            let step = self.run.ask_to_stop(true).unwrap_or(self.run.end_step());
            self.out.push(Command::Warn(Warning::Stopping { step }));
            return;
        }
        if matches!(self.phase, Phase::Finishing) && self.interrupted_ns.is_none() {
            // Everything is saved; only goodbyes are missing.
            self.interrupted_ns = Some(now_ns);
            return;
        }
        self.interrupted_ns.get_or_insert(now_ns);
        self.stop_now();
    }

    /// The second interrupt, or the end of the grace time.
    fn stop_now(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Concluded) {
            Phase::Failing(fault) => {
                self.abort("interrupted");
                self.conclude(Ended::Failed(fault.into_cause()));
            }
            Phase::Committing(cause) => self.conclude(Ended::Failed(cause)),
            _ => {
                let saved = self.run.saved().is_some_and(|s| s == self.run.done());
                self.abort("interrupted");
                self.conclude(Ended::Interrupted { saved });
            }
        }
    }

    fn stop(&mut self) {
        match self.phase {
            _ if self.is_running() => {
                self.run.ask_to_stop(false);
            }
            Phase::Gathering | Phase::Starting | Phase::Halting(_) => {
                self.abort("stopped on request");
                self.conclude(Ended::Stopped);
            }
            _ => {}
        }
    }

    fn check_deadlines(&mut self, now_ns: u64) {
        let times = self.config.timeouts;
        let waited_ns = now_ns.saturating_sub(self.since_ns);
        let grace_over =
            self.interrupted_ns.is_some_and(|at| now_ns.saturating_sub(at) >= times.grace_ns);
        match &self.phase {
            Phase::Gathering if waited_ns >= times.join_ns => {
                let (came, world) = (self.workers.len() as u32, self.config.world);
                self.fail(Cause::TooFew { came, world, waited_ns });
            }
            _ if grace_over && self.is_running() => self.stop_now(),
            Phase::Starting if waited_ns >= times.ready_ns => {
                let missing = |r: &u32| self.prints.get(*r as usize).is_some_and(|p| p.is_none());
                let ranks = (0..self.workers.len() as u32).filter(missing).collect();
                let cause = Cause::NotReady { ranks, waited_ns };
                if self.begun && self.recovers(&cause) {
                    self.halt(now_ns, Some(cause));
                } else {
                    self.fail(cause);
                }
            }
            Phase::Running => self.check_stall(now_ns),
            Phase::Finishing => self.check_goodbyes(now_ns, waited_ns >= times.grace_ns),
            Phase::Failing(fault) if fault.settled(now_ns, times.settle_ns) => {
                if let Phase::Failing(fault) = std::mem::replace(&mut self.phase, Phase::Concluded)
                {
                    self.fail(fault.into_cause());
                }
            }
            Phase::Committing(_) => {
                let over = waited_ns >= times.grace_ns;
                if (over || self.run.committing().is_none())
                    && let Phase::Committing(cause) =
                        std::mem::replace(&mut self.phase, Phase::Concluded)
                {
                    self.conclude(Ended::Failed(cause));
                }
            }
            _ => {}
        }
    }

    fn check_stall(&mut self, now_ns: u64) {
        let waited_ns = now_ns.saturating_sub(self.heard_ns);
        if waited_ns < self.config.timeouts.stall_ns {
            return;
        }
        let ranks = self.run.owing();
        if !ranks.is_empty() {
            let cause = Cause::Stalled { ranks, waited_ns, step: self.run.done() };
            // Who still answers says so when all are halted.
            return if self.recovers(&cause) {
                self.halt(now_ns, Some(cause));
            } else {
                self.fail(cause);
            };
        }
        if let Some(step) = self.run.committing() {
            let seconds = waited_ns / 1_000_000_000;
            let why = format!("the disk did not answer for {seconds} s");
            self.run.committed(step, Some(why), &mut self.out);
        }
    }

    fn check_end(&mut self, now_ns: u64) {
        if !self.run.complete() {
            return;
        }
        if let Some((step, why)) = self.run.final_save_failed() {
            let cause = Cause::FinalSave { step, why: why.to_string() };
            return self.fail(cause);
        }
        let why = "the run is over".to_string();
        for Joined { worker, .. } in std::mem::take(&mut self.reserve) {
            self.out.push(Command::Refuse { worker, why: why.clone() });
        }
        self.out.push(Command::Finish);
        self.enter(now_ns, Phase::Finishing);
    }

    fn check_goodbyes(&mut self, now_ns: u64, over: bool) {
        let settle_ns = self.config.timeouts.settle_ns;
        let settled =
            |gone: &Option<u64>| gone.is_some_and(|at| now_ns.saturating_sub(at) >= settle_ns);
        let mut all = true;
        for (rank, (print, gone)) in self.prints.iter().zip(&self.gone_ns).enumerate() {
            if print.is_some() || settled(gone) {
                continue;
            }
            if over {
                let why = "did not leave in time".to_string();
                self.out.push(Command::Warn(Warning::BadGoodbye { rank: rank as u32, why }));
            } else {
                all = false;
            }
        }
        if !all {
            return;
        }
        let prints: Vec<String> = self.prints.iter().flatten().cloned().collect();
        if let Err(Reject::Mismatch { step, what, groups }) =
            agree(self.run.done(), "fingerprint of the weights", &prints)
        {
            return self.fail(Cause::Mismatch { step, what, groups });
        }
        let saved = self.run.saved() == Some(self.run.done());
        self.conclude(match self.run.end() {
            End::Natural => Ended::Completed,
            End::Rule { rule, value, .. } => Ended::Rule { rule, value },
            End::Asked { interrupted: true, .. } => Ended::Interrupted { saved },
            End::Asked { interrupted: false, .. } => Ended::Stopped,
        });
    }

    /// The cause is known: everybody leaves.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.abort("the run has failed");
        if self.run.committing().is_some() {
            self.phase = Phase::Committing(cause);
        } else {
            self.conclude(Ended::Failed(cause));
        }
    }

    fn abort(&mut self, why: &str) {
        self.out.push(Command::Abort { why: why.to_string() });
        if let Some(step) = self.run.half_saved() {
            self.out.push(Command::Discard { step, why: why.to_string() });
        }
    }

    fn conclude(&mut self, ended: Ended) {
        self.phase = Phase::Concluded;
        self.tell_of_losses(u64::MAX);
        let fingerprint = self.prints.iter().flatten().next().cloned();
        self.out.push(Command::Conclude(Box::new(Outcome {
            ended,
            steps: self.run.done(),
            fingerprint,
            checkpoint: self.run.saved(),
        })));
    }
}
