//! Checkpoints: from the parts to the whole.

use super::*;

impl Run {
    /// The save at the end has failed.
    pub fn final_save_failed(&self) -> Option<(u64, &str)> {
        let (step, why) = self.failed_save.as_ref()?;
        (*step == self.end_step() && self.config.save_at_end).then_some((*step, why.as_str()))
    }

    /// The checkpoint that is being written.
    pub(crate) fn saving(&self) -> Option<u64> {
        self.save.as_ref().map(|s| s.step)
    }

    /// The run ends since a step is not finite.
    pub(crate) fn is_faulty(&self) -> bool {
        matches!(self.end, End::Fault { .. })
    }

    /// A whole checkpoint is being put together by the controller.
    pub fn committing(&self) -> Option<u64> {
        self.save.as_ref().filter(|s| s.committing).map(|s| s.step)
    }

    /// A checkpoint is begun, and not all parts of it are there.
    pub fn half_saved(&self) -> Option<u64> {
        self.save.as_ref().filter(|s| !s.committing).map(|s| s.step)
    }

    /// Windows never pass an edge where the best is decided, so it is saved at that edge.
    pub(crate) fn keep_best(&mut self, step: u64, metric: Metric, value: f64) {
        if !self.config.is_best(metric) || value.is_nan() {
            return;
        }
        let smallest = self.config.saves.best.as_ref().is_some_and(|b| b.smallest);
        let better = |old: f64| if smallest { value < old } else { value > old };
        if self.best.is_none_or(better) {
            let before = self.best_before.map_or(self.best, |(_, before)| before);
            self.best_before = Some((step, before));
            self.best = Some(value);
            self.save_wanted = true;
        }
    }

    /// The weights of this step are on no disk: the best is again what is. True if they were it.
    pub(crate) fn forget_best(&mut self, step: u64) -> bool {
        let before = self.best_before.take_if(|(edge, _)| *edge == step);
        if let Some((_, before)) = before {
            self.best = before;
        }
        before.is_some()
    }

    pub fn part_saved(
        &mut self,
        rank: u32,
        step: u64,
        fingerprint: String,
        error: Option<String>,
        out: &mut Vec<Command>,
    ) -> Result<(), Reject> {
        let early = self.next.get(rank as usize).is_none_or(|&next| next < step);
        let save = self.save.as_mut().filter(|s| s.step == step && !s.committing && !early);
        let part = SavePart { fingerprint, error };
        let Some(save) = save.and_then(|s| s.got.put(rank, part).then_some(s)) else {
            return Err(Reject::Protocol(format!(
                "reported a save at step {step}, which was not asked for"
            )));
        };
        if !save.got.is_complete() {
            return Ok(());
        }
        let error = |(rank, part): (usize, &SavePart)| {
            part.error.as_ref().map(|why| format!("worker {rank}: {why}"))
        };
        let failed = save.got.said().enumerate().find_map(error);
        if let Some(why) = failed {
            out.push(Command::Discard { step, why: why.clone() });
            self.save_failed(step, why, out);
            return Ok(());
        }
        let prints: Vec<String> = save.got.said().map(|p| p.fingerprint.clone()).collect();
        agree(step, "fingerprint of the weights", &prints)?;
        save.committing = true;
        let fingerprint = prints.into_iter().next().unwrap_or_default();
        let (tried, only_finite) = (self.answers.tried(step), self.is_faulty());
        out.push(Command::Commit { step, fingerprint, tried, only_finite });
        Ok(())
    }

    pub fn committed(
        &mut self,
        step: u64,
        finite: bool,
        error: Option<String>,
        out: &mut Vec<Command>,
    ) {
        if self.committing() != Some(step) {
            return;
        }
        match error {
            None => {
                self.answers.saved(&self.config, step, finite);
                self.saved = Some(step);
                self.save = None;
                self.best_before = self.best_before.filter(|(edge, _)| *edge > step);
                self.point_is_settled(step, out);
            }
            Some(why) => self.save_failed(step, why, out),
        }
    }

    /// The save asked for at this step cannot be begun.
    pub fn refused(&mut self, step: u64, why: String, out: &mut Vec<Command>) {
        if self.half_saved() == Some(step) {
            self.save_failed(step, why, out);
        }
    }

    pub(crate) fn save_failed(&mut self, step: u64, why: String, out: &mut Vec<Command>) {
        self.save = None;
        self.forget_best(step);
        self.failed_save = Some((step, why.clone()));
        self.point_is_settled(step, out);
        // At the end it is the run that fails, in these words.
        if self.is_faulty() {
            out.push(Command::Warn(Warning::NotSaved { step, why }));
        } else if self.final_save_failed().is_none() {
            out.push(Command::Warn(Warning::SaveFailed { step, why }));
        }
    }
}
