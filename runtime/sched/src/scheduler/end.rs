//! Interrupts, failures and the conclusion.

use super::*;

impl Scheduler {
    pub(crate) fn interrupt(&mut self, now_ns: u64) {
        let running = self.is_running();
        // All stay until it is saved.
        self.leaving.clear();
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
    pub(crate) fn stop_now(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Concluded);
        if !matches!(phase, Phase::Finishing) {
            // What was said of the weights was about those at the beginning.
            self.prints.fill(None);
        }
        match phase {
            Phase::Failing(fault) => {
                self.abort("interrupted");
                self.followed = fault.followed();
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

    pub(crate) fn stop(&mut self) {
        match self.phase {
            _ if self.is_running() => {
                self.run.ask_to_stop(false);
            }
            Phase::Gathering | Phase::Returning(_) | Phase::Starting | Phase::Halting(_) => {
                self.abort("stopped on request");
                self.prints.fill(None);
                self.conclude(Ended::Stopped);
            }
            _ => {}
        }
    }

    /// All has been heard of it that will be.
    pub(crate) fn fail_by(&mut self, fault: Fault) {
        self.followed = fault.followed();
        self.fail(fault.into_cause());
    }

    /// The cause is known: everybody leaves.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.abort("the run has failed");
        self.prints.fill(None);
        if self.run.committing().is_some() {
            self.phase = Phase::Committing(cause);
        } else {
            self.conclude(Ended::Failed(cause));
        }
    }

    pub(crate) fn abort(&mut self, why: &str) {
        self.out.push(Command::Abort { why: why.to_string() });
        if let Some(step) = self.run.half_saved() {
            self.out.push(Command::Discard { step, why: why.to_string() });
        }
    }

    pub(crate) fn conclude(&mut self, ended: Ended) {
        self.phase = Phase::Concluded;
        self.tell_of_losses(u64::MAX);
        let fingerprint = self.prints.iter().flatten().next().cloned();
        self.out.push(Command::Conclude(Box::new(Outcome {
            ended,
            steps: self.run.done(),
            fingerprint,
            checkpoint: self.run.saved(),
            followed: std::mem::take(&mut self.followed),
        })));
    }
}
