//! A controller that was killed goes on: a scheduler made of what its journal knows, and of what
//! the workers bring.
//!
//! Workers keep their weights, and their reports of what may not be in the record yet. They come
//! back, are halted, say how far they are, and the next generation begins at the furthest edge,
//! as after any loss. What the journal does not know they say again; what it knows is not
//! recorded twice. Without them, or with a gap between the journal and what they say, there is
//! no way back but the last checkpoint.

use crate::run::Run;
use crate::scheduler::{Phase, Scheduler};
use crate::{Cause, Command, Config, ConfigError, EvalNumbers, Event, Joined, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// All of a scheduler that outlives its controller: numbers and decisions that no worker can say
/// again. Taken between two events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Steps have begun.
    pub begun: bool,
    pub generation: u64,
    /// Steps in the record.
    pub recorded: u64,
    /// Step and number of the last evaluation in the record.
    pub evaluated: Option<(u64, u32)>,
    /// An evaluation that time or a person asked for, and no edge.
    pub eval_wanted: bool,
    /// Last edge that a whole checkpoint holds.
    pub saved: Option<u64>,
    /// A checkpoint that is begun, and not known to be whole.
    pub saving: Option<u64>,
    pub failed_save: Option<(u64, String)>,
    pub save_wanted: bool,
    pub save_instead: bool,
    /// Best value of the metric that decides which checkpoint is the best.
    pub best: Option<f64>,
    /// Step of that, and the best before it, until the checkpoint that it asks for is whole.
    pub best_before: Option<(u64, Option<f64>)>,
    /// Something was done about a step that was not finite. What follows from that is in the
    /// checkpoints, from which such a run goes on.
    pub answered: bool,
    /// Edge at which the run ends before its last step, and why.
    pub end: Option<(u64, EndedBy)>,
}

/// What ends a run before its last step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EndedBy {
    Rule { rule: usize, value: f64 },
    Asked { interrupted: bool },
}

/// Waiting for the workers of the controller that is gone.
#[derive(Debug)]
pub(crate) struct Returning {
    since_ns: u64,
    /// Slots of those whose processes live, and have not come yet.
    slots: BTreeSet<u32>,
    /// How many others there were.
    guests: usize,
    /// Who is back, and the highest generation that each was told of.
    back: BTreeMap<WorkerId, u64>,
}

impl Scheduler {
    /// What a later scheduler must know to go on in this one's place.
    pub fn facts(&self) -> Facts {
        let run = self.run.facts();
        Facts { begun: self.begun, generation: self.generation, ..run }
    }

    /// Goes on with a run whose controller is gone. `slots` and `guests`: who of its workers may
    /// come back, as far as is known.
    ///
    /// # Errors
    /// Those of [`Scheduler::new`].
    pub fn restore(
        config: Config,
        facts: Facts,
        slots: &[u32],
        guests: u32,
        now_ns: u64,
    ) -> Result<Scheduler, ConfigError> {
        let mut this = Scheduler::new(config.clone(), now_ns)?;
        (this.begun, this.generation) = (facts.begun, facts.generation);
        if let Some((_, EndedBy::Asked { interrupted: true })) = facts.end {
            this.interrupted_ns = Some(now_ns);
        }
        this.run = Run::restore(config, facts, now_ns);
        let slots = slots.iter().copied().collect();
        let guests = guests as usize;
        let returning = Returning { since_ns: now_ns, slots, guests, back: BTreeMap::new() };
        this.comes_back = true;
        this.enter(now_ns, Phase::Returning(returning));
        Ok(this)
    }

    /// Events of a run whose workers are coming back; true for those that are dealt with here.
    pub(crate) fn hear_again(&mut self, event: &Event) -> bool {
        if !self.comes_back || !matches!(self.phase, Phase::Returning(_) | Phase::Halting(_)) {
            return false;
        }
        let known = |worker: &WorkerId| self.workers.iter().any(|w| w.worker == *worker);
        match event {
            Event::Step { worker, numbers } => {
                if known(worker) {
                    self.run.hear_step(*numbers);
                }
            }
            Event::Evaluated { worker, step, evaluation, values, samples, nanoseconds } => {
                if known(worker) {
                    let (step, evaluation) = (*step, *evaluation);
                    let (samples, nanoseconds) = (*samples, *nanoseconds);
                    let values = values.clone();
                    let numbers = EvalNumbers { step, evaluation, values, samples, nanoseconds };
                    self.run.hear_evaluation(numbers);
                }
            }
            // Of a checkpoint that was given up with its controller.
            Event::Saved { .. } => {}
            _ => return false,
        }
        true
    }

    /// A worker of the run is back, with a job and perhaps with weights.
    pub(crate) fn returned(&mut self, now_ns: u64, joined: Joined, generation: u64) {
        let worker = joined.worker;
        if joined.objection.is_some() {
            return self.joined(now_ns, joined);
        }
        let Phase::Returning(returning) = &mut self.phase else {
            let why = "the run has gone on without this worker".to_string();
            self.out.push(Command::Refuse { worker, why });
            return;
        };
        let same = |w: &Joined| w.slot.is_some() && w.slot == joined.slot;
        let other = self.workers.iter().find(|w| same(w)).map(|w| w.worker);
        if let Some(other) = other {
            // Of two that say they are the same one, the later generation has replaced the other.
            let newer = returning.back.get(&other).is_none_or(|g| *g < generation);
            let loser = if newer { other } else { worker };
            let why = "another one has taken its place".to_string();
            self.out.push(Command::Refuse { worker: loser, why });
            if !newer {
                return;
            }
            self.workers.retain(|w| w.worker != other);
            returning.back.remove(&other);
        }
        if let Some(slot) = joined.slot {
            returning.slots.remove(&slot);
        }
        returning.back.insert(worker, generation);
        self.workers.push(joined);
    }

    /// A newcomer while others are still to come back.
    pub(crate) fn joined_meanwhile(&mut self, joined: Joined) {
        let same = |w: &Joined| w.slot.is_some() && w.slot == joined.slot;
        if let Phase::Returning(returning) = &mut self.phase
            && let Some(slot) = joined.slot
        {
            // It had not had its job yet when its controller went.
            returning.slots.remove(&slot);
        }
        self.awaited.retain(|slot| Some(*slot) != joined.slot);
        self.reserve.retain(|w| !same(w));
        self.reserve.push(joined);
    }

    /// One that was expected, or had come, is gone for good.
    pub(crate) fn will_not_return(&mut self, gone: impl Fn(&Joined) -> bool, slot: Option<u32>) {
        self.workers.retain(|w| !gone(w));
        self.reserve.retain(|w| !gone(w));
        if let (Phase::Returning(returning), Some(slot)) = (&mut self.phase, slot) {
            returning.slots.remove(&slot);
            self.replace(slot);
        }
    }

    /// Those that were given up before, and whom nobody told so. Whoever is counted on has heard of
    /// the last generation or of the one before it: no other begins before all have answered.
    fn refuse_outsiders(&mut self) {
        let Phase::Returning(returning) = &mut self.phase else { return };
        let told = returning.back.values().copied().max().unwrap_or(0).max(self.generation);
        let outside: Vec<WorkerId> =
            returning.back.iter().filter(|b| *b.1 + 1 < told).map(|b| *b.0).collect();
        for worker in outside {
            returning.back.remove(&worker);
            self.workers.retain(|w| w.worker != worker);
            self.fenced.insert(worker);
            let why = "the run has gone on without this worker".to_string();
            self.out.push(Command::Refuse { worker, why });
        }
    }

    /// Goes on as soon as all who may come back are here, or the time for it is over.
    pub(crate) fn check_return(&mut self, now_ns: u64) {
        self.refuse_outsiders();
        let Phase::Returning(returning) = &self.phase else { return };
        let times = self.config.timeouts;
        let waited_ns = now_ns.saturating_sub(returning.since_ns);
        let guests = self.workers.iter().filter(|w| w.slot.is_none()).count();
        let all = returning.slots.is_empty() && guests >= returning.guests;
        let came = (self.workers.len() + self.reserve.len()) as u32;
        if !self.begun {
            // Nothing is lost yet: as many as at any beginning.
            if came < self.config.world {
                if waited_ns >= times.join_ns {
                    let world = self.config.world;
                    self.fail(Cause::TooFew { came, world, waited_ns });
                }
                return;
            }
        } else if !all && waited_ns < times.return_ns {
            return;
        } else if self.workers.is_empty() {
            let seconds = waited_ns as f64 * 1e-9;
            let why = format!("no worker that holds the weights came back within {seconds:.1} s");
            return self.fail(Cause::NoWayBack { why });
        }
        if self.begun && self.config.recovery.least == 0 && came < self.config.world {
            if waited_ns >= times.return_ns {
                let world = self.config.world;
                let why = format!(
                    "{came} of {world} workers came back, and the workers of this run stay as \
                     they are (`worker.lost = stop`)"
                );
                self.fail(Cause::NoWayBack { why });
            }
            return;
        }
        let told = returning.back.values().copied().max().unwrap_or(0);
        // Processes that live and do not come: others take their places.
        let silent: Vec<u32> = returning.slots.iter().copied().collect();
        for slot in silent {
            self.replace(slot);
        }
        self.generation = self.generation.max(told);
        self.places = self.workers.iter().map(|w| w.worker).zip(0..).collect();
        self.halt(now_ns, None);
    }

    /// The reports do not reach from the record to the edge of the weights.
    pub(crate) fn gap(&mut self, what: String) {
        let why = format!("what the workers report leaves a gap: one {what}");
        self.fail(Cause::NoWayBack { why });
    }
}
