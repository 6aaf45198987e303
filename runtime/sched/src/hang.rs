//! A worker that hangs: it is ended, the others go on, and what it says later is not heard.

use crate::scheduler::{Phase, Scheduler};
use crate::{Cause, Command, Event, Hang, Joined, Warning, WorkerId};

impl Scheduler {
    /// The worker lives and does not get on.
    pub(crate) fn hung(&mut self, now_ns: u64, worker: WorkerId, hang: Hang) {
        let why = hang.to_string();
        let waits = self.reserve.iter().any(|w| w.worker == worker);
        let place = self.workers.iter().position(|w| w.worker == worker);
        if place.is_none() && !waits {
            return;
        }
        self.fence(worker, &why);
        self.reserve.retain(|w| w.worker != worker);
        let Some(rank) = place.map(|r| r as u32) else { return };
        match self.phase {
            Phase::Gathering => {
                self.workers.retain(|w| w.worker != worker);
                self.out.push(Command::Warn(Warning::LeftEarly { worker, why }));
            }
            Phase::Returning(_) => self.will_not_return(|w| w.worker == worker, None),
            Phase::Finishing => self.left(now_ns, rank, &why, false),
            Phase::Halting(_) => self.hear(now_ns, Cause::Hung { rank, worker, hang }),
            Phase::Starting | Phase::Running => {
                let cause = Cause::Hung { rank, worker, hang };
                if self.recovers(&cause) {
                    self.halt(now_ns, Some(cause));
                } else {
                    // It will never say more of it.
                    self.fail(cause);
                }
            }
            _ => self.suspect(now_ns, Cause::Hung { rank, worker, hang }),
        }
    }

    /// Ends it, and hears it no more.
    fn fence(&mut self, worker: WorkerId, why: &str) {
        self.fenced.insert(worker);
        self.out.push(Command::Evict { worker, why: why.to_string() });
    }

    /// Whether this is the word of one that is not counted on any more: it has woken up, and the
    /// others have gone on without it. That its connection ends is news all the same.
    pub(crate) fn is_fenced(&self, event: &Event) -> bool {
        let worker = match event {
            Event::Joined(Joined { worker, .. })
            | Event::Ready { worker, .. }
            | Event::Halted { worker, .. }
            | Event::Step { worker, .. }
            | Event::Evaluated { worker, .. }
            | Event::Saved { worker, .. }
            | Event::Finished { worker, .. }
            | Event::Failed { worker, .. }
            | Event::Hung { worker, .. } => worker,
            _ => return false,
        };
        self.fenced.contains(worker)
    }
}
