//! What is heard of a loss or a failure.

use super::*;

impl Scheduler {
    pub(crate) fn reject(&mut self, rank: u32, reject: Reject) {
        match reject {
            Reject::Protocol(what) => self.out_of_turn(rank, &what),
            Reject::Mismatch { step, what, groups } => {
                self.fail(Cause::Mismatch { step, what, groups });
            }
        }
    }

    pub(crate) fn out_of_turn(&mut self, rank: u32, what: &str) {
        if matches!(self.phase, Phase::Failing(_) | Phase::Committing(_)) {
            // The run has come to its end for another reason; this word was under way.
            return;
        }
        let worker = self.workers.get(rank as usize).map_or(WorkerId(u64::MAX), |w| w.worker);
        self.fail(Cause::Protocol { rank, worker, what: what.to_string() });
    }

    pub(crate) fn failed(&mut self, now_ns: u64, worker: WorkerId, failure: Failure) {
        let Some(rank) = self.rank(worker) else { return };
        if matches!(self.phase, Phase::Finishing) {
            return self.left(now_ns, rank, &failure.message, false);
        }
        if self.is_unfit(worker, &failure) {
            return self.dismiss(now_ns, rank, worker, failure);
        }
        self.suspect(now_ns, Cause::Worker { rank, worker, failure });
    }

    pub(crate) fn lost(&mut self, now_ns: u64, worker: WorkerId, why: String) {
        if matches!(self.phase, Phase::Gathering) {
            let before = self.workers.len();
            // One that was started here has a story to tell: its exit follows.
            self.workers.retain(|w| w.worker != worker);
            if self.workers.len() < before {
                self.out.push(Command::Warn(Warning::LeftEarly { worker, why }));
            }
            return;
        }
        if matches!(self.phase, Phase::Returning(_)) {
            return self.will_not_return(|w| w.worker == worker, None);
        }
        let Some(rank) = self.rank(worker) else { return };
        if matches!(self.phase, Phase::Finishing) {
            return self.left(now_ns, rank, &why, false);
        }
        self.suspect(now_ns, Cause::Lost { rank, worker, why });
    }

    pub(crate) fn exited(&mut self, now_ns: u64, slot: u32, exit: Exit) {
        if matches!(self.phase, Phase::Gathering) {
            self.workers.retain(|w| w.slot != Some(slot));
            if self.is_closed(slot) {
                return;
            }
            // By a signal: not for a reason of its own.
            if !(exit.by_signal && self.replace(slot)) {
                self.fail(Cause::NeverJoined { slot, exit });
            }
            return;
        }
        if matches!(self.phase, Phase::Returning(_)) {
            return self.will_not_return(|w| w.slot == Some(slot), Some(slot));
        }
        let place = self.workers.iter().position(|w| w.slot == Some(slot));
        let Some((rank, w)) = place.and_then(|r| Some((r as u32, self.workers.get(r)?))) else {
            return;
        };
        let worker = w.worker;
        if matches!(self.phase, Phase::Finishing) {
            return self.left(now_ns, rank, &exit.text, exit.clean);
        }
        self.suspect(now_ns, Cause::Exited { rank, worker, exit });
    }

    pub(crate) fn suspect(&mut self, now_ns: u64, cause: Cause) {
        if self.recovers(&cause) {
            return self.halt(now_ns, Some(cause));
        }
        match &mut self.phase {
            Phase::Failing(fault) => fault.hear(cause),
            Phase::Committing(_) | Phase::Concluded => {}
            Phase::Halting(_) => self.hear(now_ns, cause),
            _ => {
                let guests = self.guests();
                self.enter(now_ns, Phase::Failing(Fault::new(now_ns, cause, guests)));
            }
        }
    }

    /// Ranks that nobody started here.
    pub(crate) fn guests(&self) -> Vec<u32> {
        let guests = (0..).zip(&self.workers).filter(|(_, w)| w.slot.is_none());
        guests.map(|(rank, _)| rank).collect()
    }
}
