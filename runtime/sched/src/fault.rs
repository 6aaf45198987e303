use crate::Cause;

/// Collects what is said about a failure until its first cause is clear.
///
/// The first thing heard is often a survivor's complaint; the dead worker's own story (its exit
/// status) comes a little later. A story outranks a complaint; among equals the first heard wins.
#[derive(Debug)]
pub(crate) struct Fault {
    since_ns: u64,
    heard: Vec<Cause>,
    /// Ranks that were not started here: of their end nothing more is heard than that they are
    /// gone.
    guests: Vec<u32>,
}

/// How much a cause explains; less is better.
fn rank(cause: &Cause) -> u32 {
    match cause {
        Cause::Hung { .. } => 1,
        Cause::Exited { exit, .. } if exit.by_signal => 0,
        Cause::Worker { failure, .. } if failure.lost_peer.is_none() => 1,
        Cause::Exited { .. } => 2,
        Cause::Lost { .. } => 3,
        Cause::Worker { .. } => 4,
        _ => 1,
    }
}

impl Fault {
    pub fn new(now_ns: u64, cause: Cause, guests: Vec<u32>) -> Fault {
        Fault { since_ns: now_ns, heard: vec![cause], guests }
    }

    pub fn hear(&mut self, cause: Cause) {
        self.heard.push(cause);
    }

    /// Place of the best explanation so far.
    fn best(&self) -> Option<usize> {
        let candidates = self.heard.iter().enumerate().filter(|(_, c)| !self.explained(c));
        candidates.min_by_key(|(place, cause)| (rank(cause), *place)).map(|(place, _)| place)
    }

    /// That a worker left after its own report says nothing new: it should. A signal does, unless
    /// the worker had a trouble of its own and gave up.
    fn explained(&self, cause: &Cause) -> bool {
        let (gone, by_signal) = match cause {
            Cause::Exited { rank, exit, .. } => (*rank, exit.by_signal),
            Cause::Lost { rank, .. } => (*rank, false),
            _ => return false,
        };
        self.heard.iter().any(|c| match c {
            // Killed because it hung.
            Cause::Hung { rank, .. } => *rank == gone,
            Cause::Worker { rank, failure, .. } => {
                *rank == gone && (!by_signal || failure.lost_peer.is_none())
            }
            _ => false,
        })
    }

    /// True when waiting any longer would not make the cause clearer.
    pub fn settled(&self, now_ns: u64, settle_ns: u64) -> bool {
        let waited = now_ns.saturating_sub(self.since_ns);
        let best = self.best().and_then(|place| self.heard.get(place));
        let told = best.is_some_and(|cause| match cause {
            Cause::Lost { rank, .. } => self.guests.contains(rank),
            cause => rank(cause) <= 1,
        });
        // It may still turn out that this worker had said why.
        waited >= if told { settle_ns / 10 } else { settle_ns }
    }

    /// All that was said.
    pub fn heard(&self) -> &[Cause] {
        &self.heard
    }

    /// What followed from the cause: other workers' complaints, one of each.
    pub fn followed(&self) -> Vec<Cause> {
        let best = self.best().unwrap_or(0);
        let mut followed: Vec<Cause> = Vec::new();
        for (place, cause) in self.heard.iter().enumerate() {
            let Cause::Worker { rank, .. } = cause else { continue };
            let same = |c: &Cause| matches!(c, Cause::Worker { rank: r, .. } if r == rank);
            if place != best && !followed.iter().any(same) {
                followed.push(cause.clone());
            }
        }
        followed
    }

    pub fn into_cause(mut self) -> Cause {
        let place = self.best().unwrap_or(0);
        self.heard.swap_remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exit, Failure, Hang, WorkerId};

    fn report(rank: u32, lost_peer: Option<u32>) -> Cause {
        let (task, message) = (String::new(), String::new());
        let failure = Failure { step: None, task, message, span: None, lost_peer };
        Cause::Worker { rank, worker: WorkerId(0), failure }
    }

    fn exited(rank: u32, by_signal: bool) -> Cause {
        let exit = Exit { text: String::new(), by_signal, clean: false };
        Cause::Exited { rank, worker: WorkerId(0), exit }
    }

    fn hung(rank: u32) -> Cause {
        let (phase, evidence) = ("update".into(), "it finished nothing".into());
        let hang = Hang { phase, step: Some(3), evidence };
        Cause::Hung { rank, worker: WorkerId(0), hang }
    }

    #[test]
    fn that_a_worker_was_ended_because_it_hung_is_no_cause() {
        assert_eq!(cause([hung(1), exited(1, true), lost(1)]), hung(1));
        assert_eq!(cause([report(0, Some(1)), hung(1), exited(1, true)]), hung(1));
    }

    fn lost(rank: u32) -> Cause {
        Cause::Lost { rank, worker: WorkerId(0), why: String::new() }
    }

    /// The cause, whatever the order in which three things are heard.
    fn cause(heard: [Cause; 3]) -> Cause {
        let [a, b, c] = heard;
        let orders =
            [[&a, &b, &c], [&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]];
        let mut found = orders.map(|order| {
            let mut fault = Fault::new(0, order[0].clone(), Vec::new());
            fault.hear(order[1].clone());
            fault.hear(order[2].clone());
            fault.into_cause()
        });
        let last = found[5].clone();
        assert!(found.iter_mut().all(|c| *c == last), "{found:?}");
        last
    }

    #[test]
    fn a_signal_explains_a_complaint_and_a_lost_connection() {
        assert_eq!(cause([report(0, Some(1)), lost(1), exited(1, true)]), exited(1, true));
    }

    #[test]
    fn a_report_explains_an_exit() {
        assert_eq!(cause([report(1, None), lost(1), exited(1, false)]), report(1, None));
        assert_eq!(cause([report(1, None), lost(1), exited(1, true)]), report(1, None));
    }

    #[test]
    fn a_survivor_that_leaves_after_its_complaint_is_not_the_cause() {
        assert_eq!(cause([report(0, Some(1)), exited(0, false), lost(1)]), lost(1));
    }

    #[test]
    fn the_loss_of_a_guest_is_all_that_will_be_heard() {
        let settled = |fault: &Fault| [99, 100, 999, 1000].map(|ns| fault.settled(ns, 1000));
        let mut fault = Fault::new(0, report(0, Some(1)), vec![1]);
        assert_eq!(settled(&fault), [false, false, false, true]);
        fault.hear(lost(1));
        assert_eq!(settled(&fault), [false, true, true, true]);
        // One that was started here has a story to tell.
        let fault = Fault::new(0, lost(1), vec![0]);
        assert_eq!(settled(&fault), [false, false, false, true]);
    }

    #[test]
    fn what_followed_is_what_others_said() {
        let mut fault = Fault::new(0, report(0, Some(1)), Vec::new());
        for cause in [exited(1, true), report(2, Some(1)), lost(1), report(0, Some(1))] {
            fault.hear(cause);
        }
        assert_eq!(fault.followed(), [report(0, Some(1)), report(2, Some(1))]);
        assert_eq!(fault.into_cause(), exited(1, true));
    }

    #[test]
    fn a_complaint_is_better_than_nothing() {
        let heard = [report(0, Some(1)), exited(0, false), lost(0)];
        assert_eq!(cause(heard), report(0, Some(1)));
    }
}
