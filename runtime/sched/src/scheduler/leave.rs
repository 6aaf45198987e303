//! All work is done: workers take their leave.

use super::*;

impl Scheduler {
    pub(crate) fn finished(&mut self, worker: WorkerId, step: u64, fingerprint: String) {
        let Some(rank) = self.rank(worker) else { return };
        if !matches!(self.phase, Phase::Finishing) {
            return self.out_of_turn(rank, "took its leave before the end");
        }
        if step != self.run.done() {
            let what = format!("finished at step {step} of {}", self.run.done());
            return self.out_of_turn(rank, &what);
        }
        self.print(rank, fingerprint);
    }

    /// A rank has said what its weights are.
    pub(crate) fn print(&mut self, rank: u32, fingerprint: String) {
        if let Some(slot) = self.prints.get_mut(rank as usize) {
            self.printed += usize::from(slot.replace(fingerprint).is_none());
        }
    }

    /// A worker is gone when there is nothing left to do but to say goodbye.
    pub(crate) fn left(&mut self, now_ns: u64, rank: u32, why: &str, clean: bool) {
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

    pub(crate) fn check_end(&mut self, now_ns: u64) {
        if !self.run.complete() {
            return;
        }
        if let Some((step, why)) = self.run.final_save_failed().filter(|_| !self.run.is_faulty()) {
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

    pub(crate) fn check_goodbyes(&mut self, now_ns: u64, over: bool) {
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
        if let Some(cause) = self.stop_for.take() {
            return self.conclude(Ended::Failed(cause));
        }
        self.conclude(match self.run.end() {
            End::Natural => Ended::Completed,
            End::Rule { rule, value, .. } => Ended::Rule { rule, value },
            End::Asked { interrupted: true, .. } => Ended::Interrupted { saved },
            End::Asked { interrupted: false, .. } => Ended::Stopped,
            End::Fault { at } => Ended::Failed(Cause::NotFinite { step: at }),
        });
    }
}
