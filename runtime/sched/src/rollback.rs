//! What follows when the loss or the gradients of a step are no numbers.
//!
//! The update of such a step is never made. Every worker holds the weights that it had before the
//! step and waits for what is said here; the answers are tried one after another, and how far they
//! have been tried is a function of the steps alone, so that runs that are killed, resumed or
//! spread over other workers answer alike.

use crate::{Command, Config};
use std::collections::BTreeMap;

/// One answer to a step whose numbers are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The update is left out; for so many steps in a row at most.
    Skip { steps: u64 },
    /// All go back to the weights of the last finite checkpoint that the steps had asked for, and
    /// on with the next batch: those since then are not seen again, which would end the same way.
    Rollback,
    /// The run is saved and ends.
    Stop,
}

/// How far the answers have been tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Place of the answer at hand.
    pub answer: u32,
    /// Times that it was given without having helped yet.
    pub times: u64,
    /// It has helped when this edge is reached; None: with the next step that is finite.
    pub until: Option<u64>,
}

/// Where weights and optimizer come from when a generation begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// From those members that hold them; if nobody does, as the run began.
    #[default]
    Members,
    /// The values that they had before the first step of all.
    Beginning,
    /// The checkpoint of this step, for everybody.
    Checkpoint(u64),
}

/// What was decided on a step that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Skip,
    /// Back to the weights of this edge: a checkpoint, or 0 for the beginning.
    Rollback {
        to: u64,
    },
    Stop,
}

/// Members are to go on elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// Steps done when they go on.
    pub base: u64,
    pub source: Source,
    /// A checkpoint that must be whole, if it is being written.
    awaits: Option<u64>,
}

/// The answers of a run, and how far they have come.
#[derive(Debug)]
pub(crate) struct Answers {
    chain: Vec<Answer>,
    /// By edge, where it changes.
    tried: BTreeMap<u64, Tried>,
    /// Whole checkpoints that the steps had asked for, and whether they are finite.
    points: BTreeMap<u64, bool>,
    back: Option<Back>,
    /// What is done about the step at hand is not in the record yet.
    untold: bool,
    /// Step whose way back was missing, and the steps since another checkpoint done again for it.
    again: Option<u64>,
}

impl Answers {
    pub fn new(config: &Config) -> Answers {
        let mut tried = BTreeMap::new();
        if config.tried != Tried::default() {
            tried.insert(config.first_step, config.tried);
        }
        Answers {
            chain: config.answers.clone(),
            tried,
            points: config.points.clone(),
            back: None,
            untold: false,
            again: None,
        }
    }

    /// How far they have been tried when `edge` steps are done.
    pub fn tried(&self, edge: u64) -> Tried {
        self.tried.range(..=edge).next_back().map_or_else(Tried::default, |t| *t.1)
    }

    /// Whether any answer was given.
    pub fn has_answered(&self) -> bool {
        !self.tried.is_empty() || self.back.is_some() || self.again.is_some()
    }

    /// What all members are to go back to, if they are.
    pub fn back(&self) -> Option<Back> {
        self.back
    }

    /// Everybody has taken the place that it led to.
    pub fn arrived(&mut self) {
        self.back = None;
    }

    /// A checkpoint is whole.
    pub fn saved(&mut self, config: &Config, step: u64, finite: bool) {
        if config.is_point(step) {
            self.points.insert(step, finite);
        }
    }

    /// Whether members may go back now: not while the checkpoint that they go to is written.
    pub fn may_go(&self, saving: Option<u64>) -> bool {
        self.back.is_some_and(|back| back.awaits.is_none() || back.awaits != saving)
    }

    /// A step was finite.
    pub fn helped(&mut self, step: u64) {
        let now = self.tried(step);
        let over = now.until.is_none_or(|edge| step + 1 >= edge);
        let skips = matches!(self.chain.get(now.answer as usize), Some(Answer::Skip { .. }));
        let next = match (over, skips) {
            (true, _) => Tried::default(),
            // A row of steps left out ends, also on the way to the next checkpoint.
            (false, true) => Tried { times: 0, ..now },
            (false, false) => now,
        };
        if next != now {
            self.tried.insert(step + 1, next);
        }
    }

    /// What is done about a step that is not finite.
    pub fn decide(&mut self, config: &Config, step: u64, saving: Option<u64>) -> Verdict {
        let mut now = self.tried(step);
        let verdict = loop {
            match self.chain.get(now.answer as usize) {
                Some(Answer::Skip { steps }) if now.times < *steps => break Verdict::Skip,
                Some(Answer::Rollback) if now.times == 0 => {
                    now.until = Some(config.next_point(step).unwrap_or(u64::MAX));
                    break self.way_back(config, step, saving);
                }
                Some(Answer::Stop) | None => break Verdict::Stop,
                Some(_) => now = Tried { answer: now.answer + 1, times: 0, ..now },
            }
        };
        now.times += 1;
        self.tried.insert(step + 1, now);
        verdict
    }

    fn way_back(&mut self, config: &Config, step: u64, saving: Option<u64>) -> Verdict {
        let mut to = config.last_point(step);
        while to > 0 && self.points.get(&to) == Some(&false) {
            to = config.last_point(to - 1);
        }
        let there = to == 0 || self.points.contains_key(&to);
        if there || saving == Some(to) {
            let source = if to == 0 { Source::Beginning } else { Source::Checkpoint(to) };
            let awaits = (!there).then_some(to);
            self.back = Some(Back { base: step + 1, source, awaits });
            return Verdict::Rollback { to };
        }
        // It was lost on its way to the disk: what led to it is done again, to the same bits.
        if self.again.replace(step) == Some(step) {
            return Verdict::Stop;
        }
        let before = self.points.range(..to).rev().find(|p| *p.1).map_or(0, |p| *p.0);
        let source = if before == 0 { Source::Beginning } else { Source::Checkpoint(before) };
        self.back = Some(Back { base: before, source, awaits: None });
        Verdict::Rollback { to }
    }

    /// The run ends at this edge: members drop all that was asked of them beyond it.
    pub fn end_at(&mut self, edge: u64) {
        self.back = Some(Back { base: edge, source: Source::Members, awaits: None });
    }

    /// The fate of the checkpoint that was waited for is known, whatever it is: the step, and where
    /// the way leads now.
    pub fn settle(&mut self, config: &Config, save: u64) -> Option<(u64, Verdict)> {
        let at = self.back.filter(|b| b.awaits == Some(save))?.base.checked_sub(1)?;
        self.back = None;
        Some((at, self.way_back(config, at, None)))
    }
}

impl Config {
    /// Whether the steps alone ask for a checkpoint at this edge: what members can go back to.
    pub fn is_point(&self, edge: u64) -> bool {
        let with_eval = self.saves.after_eval && crate::run::due_by_step(self.eval_every, edge);
        edge > 0 && (with_eval || self.saves_by_step(edge))
    }

    fn point_intervals(&self) -> impl Iterator<Item = u64> {
        let steps = |every| match every {
            Some(monarch_graph::Every::Steps(n)) => Some(n),
            _ => None,
        };
        let evals = steps(self.eval_every).filter(|_| self.saves.after_eval);
        [self.saves.also, steps(self.save_every), evals].into_iter().flatten().filter(|n| *n > 0)
    }

    /// The last such edge up to `edge`; 0 without one.
    fn last_point(&self, edge: u64) -> u64 {
        self.point_intervals().map(|n| edge / n * n).max().unwrap_or(0)
    }

    /// The first such edge beyond `edge`.
    fn next_point(&self, edge: u64) -> Option<u64> {
        self.point_intervals().map(|n| (edge / n + 1).saturating_mul(n)).min()
    }
}

impl crate::run::Run {
    /// Answers a step that all ranks report as not finite. True when the step counts as done.
    pub(crate) fn answer(&mut self, step: u64, out: &mut Vec<Command>) -> bool {
        let saving = self.saving();
        let verdict = self.answers.decide(&self.config, step, saving);
        let told = step < self.recorded;
        if self.answers.back().is_none_or(|back| back.awaits.is_none()) {
            out.push(Command::NotFinite { step, verdict, told });
        } else {
            // Where it leads is said when it is known.
            self.answers.untold = !told;
        }
        match verdict {
            Verdict::Skip => out.push(Command::Skip { step }),
            Verdict::Rollback { .. } => {}
            Verdict::Stop => self.stop_at_fault(step),
        }
        verdict != Verdict::Stop
    }

    /// All members are to stop, to go on elsewhere.
    pub(crate) fn goes_back(&self) -> bool {
        self.answers.may_go(self.saving())
    }

    /// Whether what members are to go back to is there or is not to be; without one that is only
    /// half written.
    pub(crate) fn way_is_clear(&mut self, overdue: bool, out: &mut Vec<Command>) -> bool {
        let awaited = self.answers.back().and_then(|back| back.awaits);
        let Some(step) = awaited.filter(|step| self.saving() == Some(*step)) else { return true };
        if self.committing() != Some(step) {
            self.point_is_settled(step, out);
        } else if overdue {
            self.committed(step, false, Some("the disk did not answer".to_string()), out);
        }
        self.committing() != Some(step)
    }

    /// Where the next generation has its weights from.
    pub(crate) fn source(&self) -> Source {
        self.answers.back().map_or(Source::Members, |back| back.source)
    }

    /// The edge at which the next generation begins, when its members have come to `base`.
    pub(crate) fn back_to(&self, base: Option<u64>) -> Option<u64> {
        let back = self.answers.back().filter(|back| back.source != Source::Members);
        back.map(|back| back.base).or(base)
    }

    /// All members have taken their places.
    pub(crate) fn arrived(&mut self) {
        self.answers.arrived();
    }

    /// Members may have been about to go back to this checkpoint, which is whole now or is not to
    /// be.
    pub(crate) fn point_is_settled(&mut self, save: u64, out: &mut Vec<Command>) {
        let Some((step, verdict)) = self.answers.settle(&self.config, save) else { return };
        let told = !std::mem::take(&mut self.answers.untold);
        out.push(Command::NotFinite { step, verdict, told });
        if verdict == Verdict::Stop {
            self.done = step;
            self.stop_at_fault(step);
        }
    }

    fn stop_at_fault(&mut self, step: u64) {
        self.end = crate::run::End::Fault { at: step };
        self.answers.end_at(step);
    }
}
