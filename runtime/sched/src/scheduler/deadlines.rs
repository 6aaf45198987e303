//! Bounds on every wait.

use super::*;

impl Scheduler {
    pub(crate) fn check_deadlines(&mut self, now_ns: u64) {
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
                    self.fail_by(fault);
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

    pub(crate) fn check_stall(&mut self, now_ns: u64) {
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
            self.run.committed(step, false, Some(why), &mut self.out);
        }
    }
}
