//! What must hold at every event, and at the end.

use crate::cluster::Cluster;
use crate::weights;
use monarch_sched::{Cause, Ended, EvalNumbers, Outcome, StepNumbers, Times};

/// What a rank says of a step.
pub(crate) fn numbers(step: u64, gradients: u64) -> StepNumbers {
    StepNumbers {
        step,
        epoch: 0,
        samples: 64,
        loss: weights::loss(gradients),
        grad_norm: 1.0,
        lr: 1e-3,
        total_ns: 100 * crate::schedule::MS,
        times: Times::default(),
        finite: true,
    }
}

impl Cluster {
    /// Each step once, in order, with the loss of the run that nothing disturbs.
    pub fn record_step(&mut self, numbers: &StepNumbers) {
        let next = self.hub.steps;
        if numbers.step != next {
            let step = numbers.step;
            return self.violate(format!("step {step} is recorded where {next} was next"));
        }
        let loss = self.quiet.losses.get(next as usize).copied().unwrap_or(f64::NAN);
        if loss.to_bits() != numbers.loss.to_bits() {
            let other = numbers.loss;
            self.violate(format!("step {next} has loss {other} in place of {loss}"));
        }
        self.hub.steps += 1;
    }

    pub fn record_evaluation(&mut self, numbers: &EvalNumbers) {
        let step = numbers.step;
        if self.hub.evals.last().is_some_and(|last| *last >= step) {
            return self.violate(format!("the evaluation at {step} is recorded out of turn"));
        }
        let value = self.quiet.accuracy.get(step as usize).copied().unwrap_or(f64::NAN);
        let said = numbers.values.first().copied().unwrap_or(f64::NAN);
        if said.to_bits() != value.to_bits() {
            self.violate(format!("the evaluation at {step} is {said} in place of {value}"));
        }
        self.hub.evals.push(step);
    }

    pub fn judge_outcome(&mut self) {
        let Some(outcome) = self.hub.outcome.clone() else { return };
        let fault = match &outcome.ended {
            Ended::Completed | Ended::Rule { .. } => self.judge_whole(&outcome),
            Ended::Stopped if self.done_to.stops + self.done_to.told_to_end == 0 => {
                Some("nobody asked for a stop".into())
            }
            Ended::Interrupted { .. }
                if self.done_to.interrupts + self.done_to.told_to_end == 0 =>
            {
                Some("nobody interrupted the run".into())
            }
            Ended::Stopped | Ended::Interrupted { .. } => self.judge_part(&outcome),
            Ended::Failed(cause) => self.judge_failure(cause),
        };
        let fault = fault.or_else(|| self.judge_evaluations(&outcome));
        if let Some(fault) = fault {
            self.violate(format!("{fault}: {outcome:?}"));
        }
    }

    /// All that was due is done and saved, and the weights are those of the quiet run.
    fn judge_whole(&self, outcome: &Outcome) -> Option<String> {
        let end = self.quiet.end;
        let by_rule = matches!(outcome.ended, Ended::Rule { .. });
        if by_rule && self.schedule.job.stop_above.is_none() {
            return Some("no rule asked for the end".into());
        }
        if outcome.steps != end || self.hub.steps != end {
            return Some(format!("the quiet run has {end} steps"));
        }
        if outcome.checkpoint != Some(end) || self.hub.checkpoint != Some(end) {
            return Some("the end is not saved".into());
        }
        self.judge_print(outcome)
    }

    fn judge_print(&self, outcome: &Outcome) -> Option<String> {
        let weights = self.quiet.weights.get(outcome.steps as usize).copied().unwrap_or_default();
        let print = crate::node::print(weights);
        let other = outcome.fingerprint.as_ref().filter(|p| **p != print);
        other.map(|_| format!("the quiet run has {print}"))
    }

    fn judge_part(&self, outcome: &Outcome) -> Option<String> {
        if outcome.steps > self.quiet.end {
            return Some("more steps than there are".into());
        }
        if let Ended::Interrupted { saved: true } = outcome.ended
            && outcome.steps > 0
            && self.hub.checkpoint != Some(outcome.steps)
        {
            return Some("it is said to be saved, and is not".into());
        }
        self.judge_print(outcome)
    }

    /// Evaluations that are due by the job alone are in the record.
    fn judge_evaluations(&self, outcome: &Outcome) -> Option<String> {
        let whole = matches!(outcome.ended, Ended::Completed | Ended::Rule { .. });
        let last = if whole { outcome.steps } else { outcome.steps.saturating_sub(1) };
        let failed = matches!(outcome.ended, Ended::Failed(_));
        // What was under way when a run failed is nobody's any more.
        let job = &self.schedule.job;
        let due = |edge: &u64| job.evaluates_by_step(*edge) && !self.hub.evals.contains(edge);
        let missing = (1..=last).find(due).filter(|_| !failed)?;
        let now = matches!(outcome.ended, Ended::Interrupted { .. } | Ended::Stopped)
            && (self.done_to.interrupts + self.done_to.stops + self.done_to.told_to_end > 1);
        (!now).then(|| format!("the evaluation at {missing} is missing"))
    }

    /// A run may fail only where the policy says so, or where nobody is left who could go on.
    fn judge_failure(&self, cause: &Cause) -> Option<String> {
        let own =
            |c: &Cause| matches!(c, Cause::Worker { failure, .. } if failure.lost_peer.is_none());
        if own(cause) {
            let excused = self.done_to.failures > 0;
            return (!excused).then(|| "no worker had a trouble of its own".into());
        }
        if matches!(cause, Cause::Mismatch { .. } | Cause::Protocol { .. }) {
            return Some("nobody said a wrong word".into());
        }
        if matches!(cause, Cause::FinalSave { .. }) {
            return (!self.done_to.disk).then(|| "the disk had no fault".into());
        }
        // A complaint of a peer that is not gone ends the run so far.
        let complaint = matches!(cause, Cause::Worker { .. });
        if complaint && !self.apart.is_empty() {
            return None;
        }
        // It would have ended anyway, whatever is said to be the cause.
        if self.done_to.failures > 0 {
            return None;
        }
        let policy = self.schedule.job.recovery;
        let begun = self.hub.generation > 0 || self.hub.steps > 0;
        let healthy = self.nodes.iter().filter(|n| n.alive && !n.touched && n.held.is_some());
        let healthy = healthy.count() as u32;
        if begun && policy.least > 0 && healthy >= policy.least {
            return Some(format!("{healthy} workers could have gone on"));
        }
        if !self.nodes.iter().any(|n| n.touched) {
            return Some("nothing had happened to anybody".into());
        }
        None
    }
}
