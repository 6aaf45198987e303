//! Workers that leave on purpose: told to end by a signal, or sent away by a person.
//!
//! Nothing is lost: all of the window at hand is done, then the others form the next generation.
//! Whoever holds the only copy of the weights stays until somebody else has them; the last one
//! leaves with the run, which is saved first.

use crate::recover::UNFIT;
use crate::scheduler::{Phase, Scheduler};
use crate::{Command, Joined, Warning, WorkerId};

/// Of the grace time: the share after which the work at hand is not waited for any more.
const PATIENCE: u64 = 4;

impl Scheduler {
    /// A worker says that it was told to end.
    pub(crate) fn leaving(&mut self, now_ns: u64, worker: WorkerId) {
        if matches!(self.phase, Phase::Gathering) {
            return self.leaves_early(now_ns, worker);
        }
        if matches!(self.phase, Phase::Returning(_)) {
            // Its controller knew, and this one is told once more.
            return self.let_go(now_ns, worker);
        }
        if !self.can_leave() || self.leaves_reserve(worker) {
            // The run is at its end: it is saved with this worker's help.
            return;
        }
        if !self.workers.iter().any(|w| w.worker == worker) {
            return;
        }
        self.let_go(now_ns, worker);
        if !self.may_spare() {
            // Its goodbye is the run's.
            self.leaving.clear();
            let left = self.workers.len().saturating_sub(1) as u32;
            self.out.push(Command::Warn(Warning::LastLeaves { worker, left }));
            self.interrupt(now_ns);
        }
    }

    /// A person wants a member to leave.
    pub(crate) fn drain(&mut self, now_ns: u64, rank: u32) {
        let world = self.workers.len();
        let member = self.workers.get(rank as usize).map(|w| w.worker);
        let why = match member {
            _ if matches!(self.phase, Phase::Gathering | Phase::Returning(_)) => {
                "the run has not begun".to_string()
            }
            _ if !self.can_leave() => "the run is at its end".to_string(),
            None => format!("there are {world} workers, from 0 on"),
            Some(worker) => {
                let before = self.leaving.clone();
                let losses = self.losses.clone();
                self.let_go(now_ns, worker);
                if self.may_spare() {
                    return;
                }
                (self.leaving, self.losses) = (before, losses);
                match self.config.recovery.least {
                    0 => "the workers of this run stay as they are (`worker.lost = stop`)".into(),
                    1 => "it is the last one: stop the run instead".to_string(),
                    least => format!("the job wants {least} workers at least: stop it instead"),
                }
            }
        };
        self.out.push(Command::Warn(Warning::NotDrained { rank, why }));
    }

    /// Another one is started in the place of a member, once that has left.
    pub(crate) fn exchange(&mut self, now_ns: u64, rank: u32) {
        let Some((worker, slot)) = self.workers.get(rank as usize).map(|w| (w.worker, w.slot))
        else {
            return;
        };
        let others = self.workers.len() + self.reserve.len() > 1;
        if slot.is_none() || !self.config.recovery.replace || !others || !self.can_leave() {
            return self.drain(now_ns, rank);
        }
        self.leaving.entry(worker).or_insert(now_ns);
    }

    fn let_go(&mut self, now_ns: u64, worker: WorkerId) {
        self.leaving.entry(worker).or_insert(now_ns);
        let slot = self.workers.iter().find(|w| w.worker == worker).and_then(|w| w.slot);
        self.close_slot(slot);
    }

    /// Nobody is started in the place of one that leaves on purpose.
    fn close_slot(&mut self, slot: Option<u32>) {
        if let Some(slot) = slot {
            self.losses.insert(slot, UNFIT);
            self.awaited.remove(&slot);
        }
    }

    /// Steps go on, or are about to, and nobody has asked for their end.
    fn can_leave(&self) -> bool {
        let under_way = matches!(self.phase, Phase::Starting | Phase::Running | Phase::Halting(_));
        under_way && !self.run.is_ending()
    }

    /// Whether enough others stay.
    fn may_spare(&self) -> bool {
        let least = self.config.recovery.least;
        let stays = |w: &&Joined| !self.leaving.contains_key(&w.worker);
        let left = self.workers.iter().chain(&self.reserve).filter(stays).count();
        least > 0 && left >= least as usize
    }

    fn leaves_reserve(&mut self, worker: WorkerId) -> bool {
        let Some(place) = self.reserve.iter().position(|w| w.worker == worker) else {
            return false;
        };
        let slot = self.reserve.remove(place).slot;
        self.close_slot(slot);
        self.out.push(Command::Release { worker, step: self.run.done() });
        true
    }

    /// Before the job has begun: it begins without this one, if it was started here.
    fn leaves_early(&mut self, now_ns: u64, worker: WorkerId) {
        let Some(place) = self.workers.iter().position(|w| w.worker == worker) else { return };
        let slot = self.workers.remove(place).slot;
        self.out.push(Command::Release { worker, step: self.config.first_step });
        let why = "it was told to end".to_string();
        self.out.push(Command::Warn(Warning::LeftEarly { worker, why }));
        if slot.is_none() {
            // Others may come.
            return;
        }
        self.close_slot(slot);
        let least = self.config.recovery.least;
        if least == 0 || self.config.world <= least.max(1) {
            return self.stop_now();
        }
        self.config.world -= 1;
        self.prints.truncate(self.config.world as usize);
        self.gone_ns.truncate(self.config.world as usize);
        if self.workers.len() == self.config.world as usize {
            self.start(now_ns);
        }
    }

    /// Whether the slot's worker has left on purpose, or was found unfit.
    pub(crate) fn is_closed(&self, slot: u32) -> bool {
        self.losses.get(&slot) == Some(&UNFIT)
    }

    /// Long steps, evaluations and saves are not waited for to their end.
    pub(crate) fn check_leaving(&mut self, now_ns: u64) {
        if self.leaving.is_empty() {
            return;
        }
        let patience_ns = self.config.timeouts.grace_ns / PATIENCE;
        let over = |since: &u64| now_ns.saturating_sub(*since) >= patience_ns;
        // Who alone holds the weights must pass them on first: to begin anew again and again would
        // leave nobody the time to do that, or to complain of a peer.
        let held = |w: &Joined| {
            !self.newcomers.contains(&w.worker) && !self.leaving.contains_key(&w.worker)
        };
        let waits = match self.phase {
            Phase::Starting => self.newcomers.is_empty() || self.workers.iter().any(held),
            Phase::Running => true,
            _ => false,
        };
        if waits && !self.run.is_ending() && self.leaving.values().any(over) {
            self.halt(now_ns, None);
        }
    }

    /// Divides the living into those who form the next generation and those who may go. `holds`
    /// are those with the weights of `base`, if anybody has weights.
    pub(crate) fn part(
        &mut self,
        now_ns: u64,
        base: u64,
        left: Vec<Joined>,
        holds: &[WorkerId],
    ) -> Parted {
        self.leaving.retain(|worker, _| left.iter().any(|w| w.worker == *worker));
        if self.run.is_ending() {
            // It ends with the help of all.
            self.leaving.clear();
        }
        if self.leaving.is_empty() {
            return Parted { stay: left, ends: false };
        }
        let goes = |w: &Joined| self.leaving.contains_key(&w.worker);
        let (mut go, mut stay): (Vec<Joined>, Vec<Joined>) = left.into_iter().partition(goes);
        let least = self.config.recovery.least.max(1) as usize;
        if stay.len() + self.reserve.len() < least {
            // Others are gone meanwhile.
            self.leaving.clear();
            stay.append(&mut go);
            return Parted { stay, ends: true };
        }
        if !(holds.is_empty() || stay.iter().any(|w| holds.contains(&w.worker))) {
            // First they pass on what they alone hold.
            self.leaving.values_mut().for_each(|since| *since = now_ns);
            stay.append(&mut go);
            return Parted { stay, ends: false };
        }
        for Joined { worker, .. } in go {
            self.leaving.remove(&worker);
            self.out.push(Command::Release { worker, step: base });
        }
        Parted { stay, ends: false }
    }
}

/// Those who stay, and whether they are too few to go on: then the run is saved and ends.
pub(crate) struct Parted {
    pub stay: Vec<Joined>,
    pub ends: bool,
}
