//! How far workers may go, and what is due on the way.

use super::*;

impl Run {
    /// What time alone makes due.
    pub fn tick(&mut self, now_ns: u64) {
        if due_by_time(self.config.save_every, self.last_save_ns, now_ns) {
            self.save_wanted = true;
            self.last_save_ns = now_ns;
        }
        if due_by_time(self.config.eval_every, self.last_eval_ns, now_ns) {
            self.eval_wanted = true;
            self.last_eval_ns = now_ns;
        }
    }

    /// Opens the next window, if it is time for one.
    pub fn advance(&mut self, out: &mut Vec<Command>) {
        if self.answers.back().is_some() {
            return;
        }
        let before = self.until;
        let ahead = self.ahead();
        // Extending at every report would be a message a step; half a window is early enough.
        let low = self.until.saturating_sub(self.done) <= ahead / 2;
        let target = if low { self.done + ahead } else { self.until };
        let target = target.min(self.limit.unwrap_or(u64::MAX));
        let mut due = Vec::new();
        while self.pass(self.until, &mut due) && self.until < target {
            self.until = self.next_edge(target);
        }
        if self.until > before || !due.is_empty() {
            out.push(Command::Window { until: self.until, due });
        }
    }

    pub(crate) fn ahead(&self) -> u64 {
        let (least, most) = AHEAD_STEPS;
        AHEAD_NS.checked_div(self.step_ns).map_or(least, |steps| steps.clamp(least, most))
    }

    /// The nearest edge after `until` at which something may be due, at most `target`.
    pub(crate) fn next_edge(&self, target: u64) -> u64 {
        let limit = self.limit.unwrap_or(u64::MAX);
        let mut edge = target.min(self.end_step()).min(limit);
        for every in [self.config.eval_every, self.config.save_every] {
            if let Some(Every::Steps(n)) = every
                && n > 0
            {
                edge = edge.min((self.until / n + 1).saturating_mul(n));
            }
        }
        if let Some(n) = self.config.saves.also.filter(|n| *n > 0) {
            edge = edge.min((self.until / n + 1).saturating_mul(n));
        }
        if self.decides_each_step() { edge.min(self.until + 1) } else { edge }
    }

    /// Asks for what is due at this edge. True when workers may go beyond it.
    pub(crate) fn pass(&mut self, edge: u64, due: &mut Vec<Due>) -> bool {
        if self.eval_due(edge) {
            self.ask_evaluations(edge, due);
        }
        let undecided = self.evals.iter().any(|e| e.step == edge && self.decides(e.evaluation));
        if undecided || (self.decides_each_step() && self.done < edge) {
            return false;
        }
        if self.save_due(edge) {
            if self.save.is_some() {
                // One at a time: training waits for the slow disk rather than piling up.
                return false;
            }
            due.push(Due { step: edge, what: DueKind::Save });
            (self.save_wanted, self.save_instead) = (false, false);
            let got = Tally::new(self.next.len());
            self.save = Some(PendingSave { step: edge, got, committing: false });
        }
        let saving = self.save.as_ref().is_some_and(|s| s.step == edge);
        edge < self.end_step() && !(saving && self.config.saves.waits)
    }

    pub(crate) fn ask_evaluations(&mut self, edge: u64, due: &mut Vec<Due>) {
        self.eval_edge = Some(edge);
        self.eval_wanted = false;
        for evaluation in 0..self.config.evals.len() as u32 {
            due.push(Due { step: edge, what: DueKind::Evaluate(evaluation) });
            let got = Tally::new(self.next.len());
            self.evals.push(PendingEval { step: edge, evaluation, got });
        }
    }

    /// Also at the edge from which a run is resumed: a run stopped there before its evaluation
    /// was complete must still make the decision that hangs on it.
    pub(crate) fn eval_due(&self, edge: u64) -> bool {
        if edge == 0 || self.config.evals.is_empty() || self.eval_edge == Some(edge) {
            return false;
        }
        let last = edge == self.end_step();
        let asked = matches!(self.end, End::Asked { .. } | End::Fault { .. });
        // Also where that save has failed, and members have changed since.
        let save_due = self.save_asked(edge) || self.config.saves_by_step(edge);
        let with_save = self.config.eval_after_save && !(last && asked) && save_due;
        (last && !asked)
            || self.eval_wanted
            || with_save
            || due_by_step(self.config.eval_every, edge)
    }

    pub(crate) fn save_due(&self, edge: u64) -> bool {
        self.save_asked(edge) || (self.save_instead && !self.save_tried(edge))
    }

    pub(crate) fn save_tried(&self, edge: u64) -> bool {
        self.saved == Some(edge)
            || self.save.as_ref().is_some_and(|s| s.step == edge)
            || self.failed_save.as_ref().is_some_and(|(step, _)| *step == edge)
    }

    pub(crate) fn save_asked(&self, edge: u64) -> bool {
        let at_end = edge == self.end_step() && edge > 0 && self.config.save_at_end;
        let with_eval = self.config.saves.after_eval && self.eval_edge == Some(edge);
        let asked = at_end || self.save_wanted || with_eval || self.config.saves_by_step(edge);
        asked && !self.save_tried(edge)
    }

    pub(crate) fn decides(&self, evaluation: u32) -> bool {
        let watches =
            |metric| matches!(metric, Some(Metric::Eval { evaluation: e, .. }) if e == evaluation);
        let best = self.config.saves.best.as_ref().map(|b| b.metric.as_str());
        let rules = self.config.rules.iter().map(|r| r.metric.as_str());
        rules.chain(best).any(|name| watches(self.config.metric(name)))
    }

    pub(crate) fn decides_each_step(&self) -> bool {
        self.config.rules.iter().any(|r| self.config.metric(&r.metric) == Some(Metric::Loss))
    }
}
