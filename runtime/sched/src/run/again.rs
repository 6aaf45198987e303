//! A run as its journal and the workers' reports make it again.

use super::{End, PendingEval, PendingSave, Reject, Run, Tally, agree_on_evaluation};
use crate::restore::{EndedBy, Facts};
use crate::{Command, Config, EvalNumbers, StepNumbers};

/// Steps between the record and what a worker may report.
const MOST_AHEAD: u64 = 1 << 20;

impl Run {
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            begun: false,
            generation: 0,
            recorded: self.recorded,
            evaluated: self.last_recorded_eval,
            eval_wanted: self.eval_wanted,
            saved: self.saved,
            saving: self.save.as_ref().map(|s| s.step),
            failed_save: self.failed_save.clone(),
            save_wanted: self.save_wanted,
            save_instead: self.save_instead,
            best: self.best,
            best_before: self.best_before,
            answered: self.answers.has_answered() || matches!(self.end, End::Fault { .. }),
            end: match self.end {
                End::Natural | End::Fault { .. } => None,
                End::Rule { at, rule, value } => Some((at, EndedBy::Rule { rule, value })),
                End::Asked { at, interrupted } => Some((at, EndedBy::Asked { interrupted })),
            },
        }
    }

    pub(crate) fn restore(config: Config, facts: Facts, now_ns: u64) -> Run {
        let mut run = Run::new(config, now_ns);
        let Facts { recorded, evaluated, eval_wanted, saved, saving, failed_save, .. } = facts;
        (run.recorded, run.done, run.until) = (recorded, recorded, recorded);
        (run.last_recorded_eval, run.eval_wanted) = (evaluated, eval_wanted);
        (run.saved, run.failed_save) = (saved, failed_save);
        (run.save_wanted, run.save_instead) = (facts.save_wanted, facts.save_instead);
        (run.best, run.best_before) = (facts.best, facts.best_before);
        run.end = match facts.end {
            None => End::Natural,
            Some((at, EndedBy::Rule { rule, value })) => End::Rule { at, rule, value },
            Some((at, EndedBy::Asked { interrupted })) => End::Asked { at, interrupted },
        };
        // No part of it will come any more.
        run.save = saving.map(|step| PendingSave { step, got: Tally::new(0), committing: false });
        run.again = true;
        run
    }

    /// A step that the controller before may have heard of, or nobody.
    pub(crate) fn hear_step(&mut self, numbers: StepNumbers) {
        let place = numbers.step.checked_sub(self.done).filter(|place| *place <= MOST_AHEAD);
        let Some(place) = place else { return };
        while self.reports.len() as u64 <= place {
            self.reports.push_back(Tally::new(0));
        }
        if let Some(row) = self.reports.get_mut(place as usize) {
            row.add(numbers);
        }
    }

    pub(crate) fn hear_evaluation(&mut self, numbers: EvalNumbers) {
        let key = (numbers.step, numbers.evaluation);
        let names = self.config.evals.get(numbers.evaluation as usize);
        let complete = names.is_some_and(|n| n.metrics.len() == numbers.values.len());
        if Some(key) <= self.last_recorded_eval || !complete {
            return;
        }
        let place = self.evals.partition_point(|e| (e.step, e.evaluation) < key);
        match self.evals.get_mut(place).filter(|e| (e.step, e.evaluation) == key) {
            Some(eval) => eval.got.add(numbers),
            None => {
                let (step, evaluation) = key;
                let mut got = Tally::new(0);
                got.add(numbers);
                self.evals.insert(place, PendingEval { step, evaluation, got });
            }
        }
    }

    /// Before the reports are taken: workers go no further than an edge where a rule decides, so
    /// that an end that was not in the journal lies at the furthest one's edge.
    pub(crate) fn before_going_on(&mut self, base: u64) {
        if self.again {
            self.until = base;
        }
    }

    /// Evaluations that were made before the next step come before it on record.
    pub(crate) fn evaluated_again(&mut self, out: &mut Vec<Command>) -> Result<(), Reject> {
        while self.again
            && let Some(eval) = self.evals.first().filter(|e| e.step <= self.done)
        {
            let said = eval.got.said().cloned().collect();
            self.evals.remove(0);
            if let Some(merged) = agree_on_evaluation(said)? {
                self.record_evaluation(merged, out);
            }
        }
        Ok(())
    }

    /// After they are taken: what was done at this edge, and what was not.
    pub(crate) fn after_going_on(&mut self, from: u64, base: u64) {
        if !std::mem::replace(&mut self.again, false) {
            return;
        }
        let all = self.config.evals.len() as u32;
        let last = self.last_recorded_eval.filter(|(step, n)| *step == base && *n + 1 >= all);
        self.eval_edge = last.map(|(step, _)| step);
        // Asked for when the journal had not heard of it.
        let missed = |edge: u64| self.config.saves_by_step(edge) && !self.save_tried(edge);
        let passed = (from..base).rev().take(MOST_AHEAD as usize).any(missed);
        self.save_instead |= passed && self.saved.is_none_or(|saved| saved < base);
    }
}
