//! Whom the others do without: one end of a broken link, and one that ends by itself again and
//! again.
//!
//! Two workers that reach the controller and not each other both complain, or the faster one
//! does. The link may be whole again: the first time, the same members try once more. If the same
//! trouble comes again within [`WINDOW`] steps, one of them has to leave: the one with the most
//! broken links; among equals one that does not hold the weights yet, then a guest before a worker
//! of this machine, then the later rank. One leaves at a time, and what was said is remembered, so
//! that each quarrel ends: with the worker whose links are broken outside, or with too few workers,
//! which ends the run by policy.

use crate::{Cause, Joined, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Steps after which an old trouble is forgotten.
const WINDOW: u64 = 1_000;

/// Times that a quarrel is settled by another try, without anybody's leaving.
const PARDONS: u32 = 1;

/// Own ends within [`WINDOW`] steps after which a slot stays empty.
const CRASHES: usize = 4;

/// Times that guests from one address were told to leave, after which none is let in from there.
const EXPULSIONS: u32 = 3;

/// What is remembered of troubles that may come again.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    /// Links that were complained of, the lower number first: step of the last time.
    links: BTreeMap<(WorkerId, WorkerId), u64>,
    /// Tries to go on with the same members, since the step of the last trouble.
    pardons: u32,
    last_step: u64,
    /// By slot: steps at which its worker ended by its own doing.
    crashes: BTreeMap<u32, VecDeque<u64>>,
    /// By host and address: guests that were told to leave.
    expelled: BTreeMap<String, u32>,
}

/// What follows from complaints when nobody is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same members try again.
    Again,
    /// This one is to leave.
    Leave(WorkerId),
}

/// How a guest's place is known, whichever process comes from there.
fn place(member: &Joined) -> String {
    let host = member.peer_address.rsplit_once(':').map_or("", |(host, _)| host);
    format!("{} {host}", member.host)
}

impl Blame {
    /// Takes down what was heard, and judges. None: nobody has complained of a member.
    pub fn judge(
        &mut self,
        heard: &[Cause],
        members: &[Joined],
        newcomers: &BTreeSet<WorkerId>,
        step: u64,
    ) -> Option<Verdict> {
        let of = |rank: u32| members.get(rank as usize).map(|m| m.worker);
        let mut said = false;
        for cause in heard {
            let Cause::Worker { worker, failure, .. } = cause else { continue };
            let peer = failure.lost_peer.and_then(of);
            let Some(peer) = peer.filter(|peer| peer != worker) else { continue };
            self.links.insert((*worker.min(&peer), *worker.max(&peer)), step);
            said = true;
        }
        if !said {
            return None;
        }
        self.links.retain(|_, at| step.saturating_sub(*at) < WINDOW);
        if step.saturating_sub(self.last_step) >= WINDOW {
            self.pardons = 0;
        }
        self.last_step = step;
        if self.pardons < PARDONS {
            self.pardons += 1;
            return Some(Verdict::Again);
        }
        let broken = |w: WorkerId| self.links.keys().filter(|(a, b)| *a == w || *b == w).count();
        let ranked = members.iter().enumerate().map(|(rank, m)| {
            let new = newcomers.contains(&m.worker);
            (broken(m.worker), new, m.slot.is_none(), rank, m.worker)
        });
        let (_, _, _, _, worst) = ranked.max()?;
        Some(Verdict::Leave(worst))
    }

    /// This one was told to leave, for its links.
    pub fn expel(&mut self, member: &Joined) {
        self.links.retain(|(a, b), _| *a != member.worker && *b != member.worker);
        // Who stays has deserved another try.
        self.pardons = 0;
        if member.slot.is_none() {
            *self.expelled.entry(place(member)).or_default() += 1;
        }
    }

    /// Why one that comes cannot stay, if it has been here too often.
    pub fn bars(&self, newcomer: &Joined) -> Option<String> {
        let times = self.expelled.get(&place(newcomer)).filter(|n| **n >= EXPULSIONS)?;
        (newcomer.slot.is_none()).then(|| {
            format!(
                "workers from there had to leave {times} times, because other workers could not \
                 reach them: mend the network between the workers first"
            )
        })
    }

    /// A worker of this slot has ended by its own doing.
    pub fn crashed(&mut self, slot: u32, step: u64) {
        let list = self.crashes.entry(slot).or_default();
        list.push_back(step);
        list.retain(|at| step.saturating_sub(*at) < WINDOW);
    }

    /// How often a worker of this slot has ended by its own doing, if that is too often.
    pub fn crashes_on(&self, slot: u32) -> Option<u32> {
        let times = self.crashes.get(&slot)?.len();
        (times > CRASHES).then_some(times as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    fn members(guests: &[bool]) -> Vec<Joined> {
        let member = |(rank, guest): (usize, &bool)| Joined {
            worker: WorkerId(10 + rank as u64),
            host: "h".into(),
            shm_domain: String::new(),
            cores: 1,
            peer_address: format!("10.0.0.{rank}:1"),
            slot: (!guest).then_some(rank as u32),
            objection: None,
        };
        guests.iter().enumerate().map(member).collect()
    }

    fn complaint(from: u32, of: u32) -> Cause {
        let (task, message) = (String::new(), String::new());
        let failure = Failure { step: None, task, message, span: None, lost_peer: Some(of) };
        Cause::Worker { rank: from, worker: WorkerId(10 + u64::from(from)), failure }
    }

    /// Who has to leave when these are heard one after the other.
    fn leaves(guests: &[bool], heard: &[(u32, u32)]) -> Option<u64> {
        let (mut blame, members) = (Blame::default(), members(guests));
        let mut last = None;
        for (from, of) in heard {
            last = blame.judge(&[complaint(*from, *of)], &members, &BTreeSet::new(), 5);
        }
        match last {
            Some(Verdict::Leave(worker)) => Some(worker.0 - 10),
            _ => None,
        }
    }

    #[test]
    fn the_first_quarrel_is_pardoned_and_the_second_costs_the_later_rank() {
        let all = [false; 4];
        assert_eq!(leaves(&all, &[(1, 2)]), None);
        assert_eq!(leaves(&all, &[(1, 2), (2, 1)]), Some(2));
        assert_eq!(leaves(&all, &[(2, 1), (2, 1)]), Some(2));
    }

    #[test]
    fn a_guest_leaves_before_a_worker_of_this_machine() {
        assert_eq!(leaves(&[true, false, false], &[(2, 0), (0, 2)]), Some(0));
        assert_eq!(leaves(&[true, true, false], &[(2, 0), (0, 1)]), Some(0));
    }

    #[test]
    fn most_broken_links_outweigh_the_rank() {
        assert_eq!(leaves(&[false; 4], &[(3, 1), (2, 1)]), Some(1));
        assert_eq!(leaves(&[false, false, true, true], &[(1, 3), (1, 2)]), Some(1));
    }

    #[test]
    fn one_without_weights_leaves_before_one_that_holds_them() {
        let (mut blame, members) = (Blame::default(), members(&[false; 3]));
        let new = BTreeSet::from([WorkerId(10)]);
        let mut judge = || blame.judge(&[complaint(2, 0)], &members, &new, 5);
        assert_eq!((judge(), judge()), (Some(Verdict::Again), Some(Verdict::Leave(WorkerId(10)))));
    }

    #[test]
    fn old_quarrels_are_forgotten() {
        let (mut blame, members) = (Blame::default(), members(&[false; 3]));
        let heard = [complaint(0, 1)];
        let none = BTreeSet::new();
        let mut judge = |heard: &[Cause], step| blame.judge(heard, &members, &none, step);
        assert_eq!(judge(&heard, 5), Some(Verdict::Again));
        assert_eq!(judge(&heard, 5 + WINDOW), Some(Verdict::Again));
        let second = judge(&heard, 6 + WINDOW);
        assert_eq!(second, Some(Verdict::Leave(WorkerId(11))));
        assert_eq!(judge(&[], 7 + WINDOW), None);
    }

    #[test]
    fn guests_from_a_place_that_cannot_be_reached_are_barred_in_the_end() {
        let (mut blame, members) = (Blame::default(), members(&[false, true, true]));
        for _ in 0..EXPULSIONS {
            assert!(blame.bars(&members[1]).is_none());
            blame.expel(&members[1]);
        }
        assert!(blame.bars(&members[1]).is_some());
        assert!(blame.bars(&members[2]).is_none());
        assert!(blame.bars(&members[0]).is_none());
    }

    #[test]
    fn a_slot_whose_workers_end_by_themselves_is_given_up() {
        let mut blame = Blame::default();
        for step in 0..CRASHES as u64 {
            blame.crashed(3, step);
            assert_eq!(blame.crashes_on(3), None);
        }
        // Long ago: it has worked since.
        blame.crashed(3, 10 * WINDOW);
        assert_eq!(blame.crashes_on(3), None);
        for _ in 0..CRASHES {
            blame.crashed(3, 10 * WINDOW);
        }
        assert_eq!(blame.crashes_on(3), Some(CRASHES as u32 + 1));
        assert_eq!(blame.crashes_on(2), None);
    }
}
