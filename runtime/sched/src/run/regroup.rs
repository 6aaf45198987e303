//! A run between two generations of its workers.

use super::{PendingEval, Reject, Run, agree_on_evaluation, agree_on_step, due_by_step};
use crate::{Command, EvalNumbers};

impl Run {
    /// Goes on from edge `base` with `world` ranks: the furthest that any of them has come.
    ///
    /// Reports of a step are equal on all ranks, so that one of a step below `base` stands for
    /// all. Of what lies beyond, nothing has been recorded: it is done again, to the same bits.
    pub fn regroup(&mut self, base: u64, world: u32, out: &mut Vec<Command>) -> Result<(), Reject> {
        let from = self.done;
        self.before_going_on(base);
        self.merge_up_to(base, out)?;
        self.reports.clear();
        self.reported.clear();
        self.next = vec![base; world as usize];
        self.until = base;
        self.failed_save = self.failed_save.take().filter(|(step, _)| *step <= base);
        if base < self.done {
            // Those who were further are gone too, or all go back.
            self.done = base;
            self.eval_edge = None;
            self.evals.clear();
        }
        let save = self.save.take_if(|s| !s.committing).map(|s| s.step);
        let with_eval = self.config.saves.after_eval
            && (self.eval_edge == save || self.evals.iter().any(|e| Some(e.step) == save));
        self.take_evaluations(base, save, out)?;
        if let Some(step) = save {
            let why = "a worker was lost while it was written".to_string();
            out.push(Command::Discard { step, why });
            self.save_is_void(step, base, with_eval);
        }
        self.after_going_on(from, base);
        Ok(())
    }

    /// A checkpoint was not written to the end: another one is, unless one is due anyway.
    fn save_is_void(&mut self, step: u64, base: u64, with_eval: bool) {
        let comes_again = step == self.end_step()
            || (step >= base && (with_eval || self.config.saves_by_step(step)));
        // Weights of a later step are not the best ones.
        let was_best = step < base && self.forget_best(step);
        match step < base {
            true => self.save_instead |= !was_best,
            false => self.save_wanted |= !comes_again,
        }
    }

    fn merge_up_to(&mut self, base: u64, out: &mut Vec<Command>) -> Result<(), Reject> {
        while self.done < base {
            self.evaluated_again(out)?;
            let row = self.reports.pop_front();
            let said: Vec<_> = row.iter().flat_map(|r| r.said().copied()).collect();
            let Some(merged) = agree_on_step(&said)? else {
                let step = self.done;
                return Err(Reject::Protocol(format!("is beyond step {step}, and never said so")));
            };
            self.done += 1;
            self.record_step(merged, out);
        }
        Ok(())
    }

    /// Evaluations that some rank has reported are done; the others are asked for again. `save` is
    /// the checkpoint that will not be written.
    fn take_evaluations(
        &mut self,
        base: u64,
        save: Option<u64>,
        out: &mut Vec<Command>,
    ) -> Result<(), Reject> {
        let mut pending = std::mem::take(&mut self.evals);
        let said = |e: &PendingEval| e.got.said().cloned().collect::<Vec<EvalNumbers>>();
        // Those at one edge are asked for together, and so they are again.
        let again = pending.iter().any(|e| e.step == base && e.got.is_empty());
        // What was asked for by the clock has no step of its own: it is due at once.
        let (every, end) = (self.config.eval_every, self.end_step());
        let with_save = |step: u64| {
            let again = save == Some(step) && !self.save_tried(step);
            self.config.eval_after_save && (again || self.config.saves_by_step(step))
        };
        let by_clock =
            |e: &PendingEval| !due_by_step(every, e.step) && e.step != end && !with_save(e.step);
        let dropped = |e: &&PendingEval| e.step > base || (e.step == base && again);
        let wanted = pending.iter().filter(dropped).any(by_clock);
        self.eval_wanted |= wanted;
        pending.retain(|e| e.step < base || (e.step == base && !again));
        for eval in pending {
            let Some(merged) = agree_on_evaluation(said(&eval))? else {
                let step = eval.step;
                let what = format!("is beyond the evaluation at step {step}, and never said so");
                return Err(Reject::Protocol(what));
            };
            self.record_evaluation(merged, out);
        }
        if again {
            self.eval_edge = None;
        } else if self.eval_edge.is_some_and(|edge| edge > base) {
            // If there was one at this edge, it is done.
            self.eval_edge = self.last_recorded_eval.map(|e| e.0).filter(|step| *step == base);
        }
        Ok(())
    }
}
