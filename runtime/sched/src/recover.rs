//! From the loss of a worker to the next generation.
//!
//! Everybody who is left halts and says how many steps its weights have seen. Ranks differ by one
//! step at most, since a step ends with all of them; the furthest one's edge is where the next
//! generation begins, and those behind it receive its weights. Nothing is asked of the dead.

use crate::blame::Verdict;
use crate::drain::Parted;
use crate::fault::Fault;
use crate::run::Reject;
use crate::scheduler::{Phase, Scheduler};
use crate::{
    Cause, Command, Event, Exit, Failure, Forming, Joined, Placement, Source, Warning, WorkerId,
    ranks,
};
use std::collections::{BTreeMap, BTreeSet};

/// In place of a number of losses: nobody is started in this slot again.
pub(crate) const UNFIT: u32 = u32::MAX;

/// Waiting for those who are left to stop.
#[derive(Debug)]
pub(crate) struct Halting {
    since_ns: u64,
    /// Members change without a loss: whoever leaves the reduction first does as it was told.
    planned: bool,
    /// What was said of the loss; None when members change without one.
    fault: Option<Fault>,
    /// Who has stopped, and after how many steps.
    halted: BTreeMap<WorkerId, Option<u64>>,
    /// Who is gone for certain, and why as far as is known.
    dead: BTreeMap<WorkerId, End>,
    /// Ended on their own; their last words may still be under way.
    ended: BTreeMap<WorkerId, Exit>,
}

/// How a worker is known to have ended.
#[derive(Clone, Debug)]
struct End {
    why: String,
    /// Nothing more will be heard of it.
    final_word: bool,
    /// It was ended from here, because of this.
    by_us: bool,
}

impl End {
    fn new(why: String, final_word: bool) -> End {
        End { why, final_word, by_us: false }
    }

    /// It has ended in these words, which say nothing new of one that was ended from here.
    fn exited(known: Option<&End>, text: &str) -> End {
        match known {
            Some(end) if end.by_us => End { final_word: true, ..end.clone() },
            _ => End::new(text.to_string(), true),
        }
    }
}

/// One that is gone, until it is known how it ended.
#[derive(Debug)]
pub(crate) struct Gone {
    at_ns: u64,
    rank: u32,
    worker: WorkerId,
    slot: Option<u32>,
    end: End,
    step: u64,
}

impl Scheduler {
    /// Whether the others can go on without the one that this is about.
    pub(crate) fn recovers(&self, cause: &Cause) -> bool {
        let others = self.workers.len().saturating_sub(1) as u32;
        let lost = match cause {
            Cause::Exited { .. } | Cause::Lost { .. } | Cause::Hung { .. } => true,
            Cause::Stalled { .. } | Cause::NotReady { .. } => true,
            Cause::Worker { failure, .. } => failure.lost_peer.is_some(),
            _ => false,
        };
        let least = self.config.recovery.least;
        // Somebody must have the weights, unless they are those of the beginning.
        let replaceable = self.config.recovery.replace && (others > 0 || self.at_beginning());
        let replaced = !self.reserve.is_empty() || (replaceable && self.may_return(cause));
        lost && least > 0
            && (others >= least || replaced)
            && matches!(self.phase, Phase::Starting | Phase::Running)
    }

    /// Whether another worker can be started for the one that this is about.
    fn may_return(&self, cause: &Cause) -> bool {
        let rank = match cause {
            Cause::Exited { rank, .. } | Cause::Lost { rank, .. } | Cause::Hung { rank, .. } => {
                Some(*rank)
            }
            Cause::Worker { failure, .. } => failure.lost_peer,
            _ => None,
        };
        let slot = rank.and_then(|r| self.workers.get(r as usize)).and_then(|w| w.slot);
        slot.is_some_and(|slot| {
            self.losses.get(&slot).is_none_or(|n| *n < self.config.recovery.attempts)
        })
    }

    /// No step is done: the weights are where the first of them came from.
    fn at_beginning(&self) -> bool {
        self.run.source() != Source::Members || self.run.done() == self.config.first_step
    }

    /// A member that has yet to receive its weights, and cannot: missing data, too little memory.
    /// The others do not need it.
    pub(crate) fn is_unfit(&self, worker: WorkerId, failure: &Failure) -> bool {
        failure.lost_peer.is_none()
            && self.newcomers.contains(&worker)
            && matches!(self.phase, Phase::Starting | Phase::Halting(_))
            && self.workers.len() as u32 > self.config.recovery.least
    }

    /// The others go on without it.
    pub(crate) fn dismiss(&mut self, now_ns: u64, rank: u32, worker: WorkerId, failure: Failure) {
        let why = format!("{}: {}", failure.task, failure.message);
        if let Some(slot) = self.workers.get(rank as usize).and_then(|w| w.slot) {
            self.losses.insert(slot, UNFIT);
        }
        if matches!(self.phase, Phase::Starting) {
            self.halt(now_ns, Some(Cause::Lost { rank, worker, why: why.clone() }));
        }
        self.out.push(Command::Evict { worker, why: why.clone() });
        if let Phase::Halting(halting) = &mut self.phase {
            halting.dead.insert(worker, End::new(why, true));
        }
    }

    /// Stops everybody at once; `cause` is None when members change without a loss.
    pub(crate) fn halt(&mut self, now_ns: u64, cause: Option<Cause>) {
        self.generation += 1;
        let members = self.workers.iter().map(|w| w.worker).collect();
        self.out.push(Command::Halt { generation: self.generation, workers: members });
        let halting = Halting {
            since_ns: now_ns,
            planned: cause.is_none(),
            fault: None,
            halted: BTreeMap::new(),
            dead: BTreeMap::new(),
            ended: BTreeMap::new(),
        };
        self.enter(now_ns, Phase::Halting(halting));
        if let Some(cause) = cause {
            self.hear(now_ns, cause);
        }
    }

    /// Something said of a loss while all are being halted.
    pub(crate) fn hear(&mut self, now_ns: u64, cause: Cause) {
        let guests = self.guests();
        if let Cause::Exited { rank, exit, .. } = &cause
            && exit.by_signal
        {
            self.replace_rank(*rank);
        }
        let Phase::Halting(halting) = &mut self.phase else { return };
        let complaint =
            matches!(&cause, Cause::Worker { failure, .. } if failure.lost_peer.is_some());
        if halting.planned && complaint {
            // The peer has heard of the halt a moment earlier. A link that is broken will be
            // complained of again.
            return;
        }
        match &cause {
            Cause::Lost { rank, worker, why } => {
                let end = End::new(why.clone(), guests.contains(rank));
                halting.dead.entry(*worker).or_insert(end);
            }
            Cause::Exited { worker, exit, .. } if exit.by_signal => {
                let end = End::exited(halting.dead.get(worker), &exit.text);
                halting.dead.insert(*worker, end);
            }
            Cause::Hung { rank, worker, hang } => {
                let (why, final_word) = (hang.to_string(), guests.contains(rank));
                halting.dead.insert(*worker, End { why, final_word, by_us: true });
            }
            Cause::Exited { worker, exit, .. } => {
                halting.ended.insert(*worker, exit.clone());
            }
            _ => {}
        }
        let own = matches!(&cause, Cause::Worker { failure, .. } if failure.lost_peer.is_none());
        match &mut halting.fault {
            Some(fault) => fault.hear(cause),
            None => halting.fault = Some(Fault::new(now_ns, cause, guests)),
        }
        if own && let Some(fault) = halting.fault.take() {
            // The job's own trouble: it would come again.
            self.enter(now_ns, Phase::Failing(fault));
        }
    }

    pub(crate) fn halted(
        &mut self,
        worker: WorkerId,
        generation: u64,
        done: Option<u64>,
        peer_address: String,
    ) {
        if generation != self.generation {
            return;
        }
        // Before the first step all begin anew, and say what they begin with.
        let keeps = self.begun || !self.comes_back;
        let Phase::Halting(halting) = &mut self.phase else { return };
        let rank = self.places.get(&worker);
        if let Some(member) = rank.and_then(|r| self.workers.get_mut(*r as usize)) {
            member.peer_address = peer_address;
            halting.halted.insert(worker, done.filter(|_| keeps));
        }
    }

    /// Goes on as soon as all who are left have stopped.
    pub(crate) fn check_halting(&mut self, now_ns: u64) {
        let times = self.config.timeouts;
        let Phase::Halting(halting) = &mut self.phase else { return };
        let waited_ns = now_ns.saturating_sub(halting.since_ns);
        let mut again = Vec::new();
        if waited_ns >= times.settle_ns / 10 {
            let ended = std::mem::take(&mut halting.ended);
            for (worker, exit) in ended {
                let end = End::exited(halting.dead.get(&worker), &exit.text);
                halting.dead.insert(worker, end);
                let rank = self.workers.iter().position(|w| w.worker == worker);
                again.extend(rank.map(|r| r as u32));
            }
        }
        again.into_iter().for_each(|rank| self.replace_rank(rank));
        if waited_ns >= times.halt_ns {
            self.evict_laggards(waited_ns);
        }
        let Phase::Halting(halting) = &mut self.phase else { return };
        if halting.halted.len() + halting.dead.len() < self.workers.len() {
            return;
        }
        let known = |w: &Joined| {
            halting.dead.contains_key(&w.worker) || halting.halted.contains_key(&w.worker)
        };
        if !self.workers.iter().all(known) {
            return;
        }
        let unexplained = halting.dead.is_empty() && halting.fault.is_some();
        if unexplained && waited_ns < times.settle_ns {
            return;
        }
        let overdue = waited_ns >= times.stall_ns;
        if self.waits_for_more(waited_ns) || !self.run.way_is_clear(overdue, &mut self.out) {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Concluded) {
            // Someone complained of a peer, and nobody is gone.
            Phase::Halting(halting) if unexplained => self.settle_quarrel(now_ns, halting),
            Phase::Halting(halting) => self.regroup(now_ns, halting),
            other => self.phase = other,
        }
    }

    /// Members that reach the controller do not reach each other.
    fn settle_quarrel(&mut self, now_ns: u64, mut halting: Halting) {
        let Some(fault) = halting.fault.take() else { return self.regroup(now_ns, halting) };
        let step = self.run.done();
        let verdict = self.blame.judge(fault.heard(), &self.workers, &self.newcomers, step);
        let said = fault.heard().iter().find_map(|cause| match cause {
            Cause::Worker { rank, failure, .. } => {
                Some((*rank, failure.lost_peer?, failure.message.clone()))
            }
            _ => None,
        });
        let (Some(verdict), Some((rank, peer, why))) = (verdict, said) else {
            return self.fail_by(fault);
        };
        let leaver = match verdict {
            Verdict::Again => {
                self.out.push(Command::Warn(Warning::LinkBroken { rank, peer, why }));
                return self.regroup(now_ns, halting);
            }
            Verdict::Leave(worker) => self.workers.iter().find(|w| w.worker == worker).cloned(),
        };
        let others = self.workers.len().saturating_sub(1) as u32 + self.reserve.len() as u32;
        let Some(leaver) = leaver.filter(|_| others >= self.config.recovery.least.max(1)) else {
            return self.fail_by(fault);
        };
        let why = format!(
            "workers {rank} and {peer} did not reach each other a second time, and both reach the \
             controller ({why}): this one had to leave"
        );
        self.blame.expel(&leaver);
        if let Some(slot) = leaver.slot {
            self.blame.crashed(slot, step);
        }
        self.out.push(Command::Evict { worker: leaver.worker, why: why.clone() });
        self.fenced.insert(leaver.worker);
        halting.dead.insert(leaver.worker, End { why, final_word: true, by_us: true });
        self.regroup(now_ns, halting);
    }

    /// Too few are left, and others may be on their way.
    fn waits_for_more(&self, waited_ns: u64) -> bool {
        let Phase::Halting(halting) = &self.phase else { return false };
        let left = self.workers.iter().filter(|w| !halting.dead.contains_key(&w.worker)).count();
        let enough = left + self.reserve.len() >= self.config.recovery.least.max(1) as usize;
        let has_weights = |w: &Joined| halting.halted.get(&w.worker).is_some_and(|d| d.is_some());
        if enough || !(self.at_beginning() || self.workers.iter().any(has_weights)) {
            return false;
        }
        let times = self.config.timeouts;
        // One of ours whose connection is gone: its end is still to be heard of.
        let ending = |w: &Joined| {
            w.slot.is_some() && halting.dead.get(&w.worker).is_some_and(|end| !end.final_word)
        };
        let settling = waited_ns < times.settle_ns && self.workers.iter().any(ending);
        let coming = waited_ns < times.join_ns && !self.awaited.is_empty();
        self.config.recovery.replace && (settling || coming)
    }

    fn evict_laggards(&mut self, waited_ns: u64) {
        let Phase::Halting(halting) = &mut self.phase else { return };
        for member in &self.workers {
            let worker = member.worker;
            if halting.halted.contains_key(&worker) || halting.dead.contains_key(&worker) {
                continue;
            }
            let why = format!("did not stop within {} s", waited_ns / 1_000_000_000);
            self.out.push(Command::Evict { worker, why: why.clone() });
            self.fenced.insert(worker);
            halting.dead.insert(worker, End { why, final_word: true, by_us: true });
        }
    }

    fn regroup(&mut self, now_ns: u64, halting: Halting) {
        let Halting { fault, halted, dead, .. } = halting;
        let step = self.run.done();
        let mut left = Vec::new();
        for (rank, member) in (0..).zip(std::mem::take(&mut self.workers)) {
            let Some(end) = dead.get(&member.worker) else {
                left.push(member);
                continue;
            };
            let (worker, slot, end) = (member.worker, member.slot, end.clone());
            self.gone.push(Gone { at_ns: now_ns, rank, worker, slot, end, step });
        }
        let base = halted.iter().filter(|(w, _)| !dead.contains_key(w)).filter_map(|h| *h.1).max();
        let holds: Vec<WorkerId> =
            halted.iter().filter(|h| base.is_some() && *h.1 == base).map(|h| *h.0).collect();
        let at = base.unwrap_or(self.config.first_step);
        let Parted { stay, ends } = self.part(now_ns, at, left, &holds);
        self.workers = stay;
        self.workers.append(&mut self.reserve);
        self.workers.truncate(self.config.shards as usize);
        let least = self.config.recovery.least;
        // A job whose workers stay as they are may be dealt anew, and loses none on the way.
        let too_few =
            (self.workers.len() as u32) < least.max(1) || (least == 0 && !dead.is_empty());
        // Weights that have seen steps, and are gone with all who held them.
        let nothing_left = base.is_none() && self.begun && !self.at_beginning();
        if too_few || nothing_left {
            if self.comes_back {
                let why = "no worker that holds the weights came back".to_string();
                return self.fail(Cause::NoWayBack { why });
            }
            let cause = fault.map(Fault::into_cause);
            let what = "nobody holds the weights any more".to_string();
            return self.fail(cause.unwrap_or(Cause::Controller { what }));
        }
        // Nobody holds what all are to go back to.
        let source = self.run.source();
        let base = self.run.back_to(base);
        let held = base.is_some() && source == Source::Members;
        let holders =
            self.workers.iter().map(|w| held && halted.get(&w.worker).copied().flatten() == base);
        let holders: BTreeSet<WorkerId> =
            self.workers.iter().zip(holders).filter(|h| h.1).map(|h| h.0.worker).collect();
        let base = base.unwrap_or(self.config.first_step);
        let world = self.workers.len() as u32;
        let comes_back = std::mem::replace(&mut self.comes_back, false);
        if let Err(reject) = self.run.regroup(base, world, &mut self.out) {
            return match reject {
                Reject::Protocol(what) if comes_back => self.gap(what),
                reject => self.reject(0, reject),
            };
        }
        self.form(now_ns, base, &holders);
        if ends {
            self.interrupt(now_ns);
        }
    }

    fn form(&mut self, now_ns: u64, base: u64, holders: &BTreeSet<WorkerId>) {
        let (placements, deal) = self.deal(now_ns, Some((base, holders)));
        let links = match ranks::links(&self.config, &self.workers) {
            Ok(links) => links,
            Err(hosts) => return self.fail(Cause::NoSharedMemory { hosts }),
        };
        let holds = |worker: WorkerId| holders.contains(&worker);
        let forming = Forming {
            generation: self.generation,
            base,
            source: self.run.source(),
            holders: placements.iter().map(|p| holds(p.worker)).collect(),
            placements,
            deal,
            links,
        };
        let shared = forming.holders.contains(&true);
        let members = forming.placements.iter().map(|p| p.worker);
        self.newcomers = members.filter(|w| shared && !holds(*w)).collect();
        self.prints = vec![None; self.workers.len()];
        self.printed = 0;
        self.gone_ns = vec![None; self.workers.len()];
        self.out.push(Command::Form(forming));
        self.enter(now_ns, Phase::Starting);
    }

    /// Who takes part, in order of rank, and who computes which shard. `going_on`: the edge at
    /// which a new generation begins, and who holds the weights of that.
    ///
    /// In the middle of a step, for all that is known, who has shards keeps them; who has yet to
    /// receive its weights gets none until then.
    pub(crate) fn deal(
        &mut self,
        now_ns: u64,
        going_on: Option<(u64, &BTreeSet<WorkerId>)>,
    ) -> (Vec<Placement>, Vec<u32>) {
        ranks::sort(&mut self.workers);
        self.places = self.workers.iter().map(|w| w.worker).zip(0..).collect();
        let watch = &self.slow.watch;
        let paces: Vec<f64> = self.workers.iter().map(|w| watch.pace(w.worker)).collect();
        let lanes = ranks::lanes(&self.config, &self.workers);
        let kept = going_on.and_then(|(_, holders)| self.kept_deal(|w| holders.contains(&w)));
        let deal = kept.unwrap_or_else(|| ranks::deal(self.config.shards, &lanes, &paces));
        if let Some((base, _)) = going_on {
            self.uneven = ranks::is_uneven(&deal, &lanes, &paces).then_some(base);
            self.run.limit(self.uneven.map(|base| base + 1));
        }
        let owner = |rank: &u32| self.workers.get(*rank as usize).map(|w| w.worker);
        self.owners = deal.iter().filter_map(owner).collect();
        self.members = self.workers.len();
        let members: Vec<(WorkerId, u32)> =
            self.workers.iter().map(|w| w.worker).zip(lanes.iter().copied()).collect();
        self.watch_anew(now_ns, &members, &deal);
        (ranks::place(&self.workers, &lanes, &deal), deal)
    }

    /// A deal in which the shards stay where they are, if there is a reason for that.
    fn kept_deal(&self, holds: impl Fn(WorkerId) -> bool) -> Option<Vec<u32>> {
        let before: BTreeSet<WorkerId> = self.owners.iter().copied().collect();
        let same = self.workers.len() == self.members
            && self.workers.iter().all(|w| holds(w.worker))
            && before.iter().all(|owner| self.places.contains_key(owner));
        let nobody = !self.workers.iter().any(|w| holds(w.worker));
        if same || nobody {
            return None;
        }
        let idle = |worker| !holds(worker) && !before.contains(&worker);
        Some(ranks::kept_deal(self.config.shards, &self.workers, &self.owners, idle))
    }

    fn replace_rank(&mut self, rank: u32) {
        if let Some(slot) = self.workers.get(rank as usize).and_then(|w| w.slot) {
            self.replace(slot);
        }
    }

    /// Asks for another worker in the place of one that has ended; false if none is to come.
    pub(crate) fn replace(&mut self, slot: u32) -> bool {
        if !self.config.recovery.replace || self.config.recovery.least == 0 {
            return false;
        }
        self.awaited.remove(&slot);
        if self.is_full(Some(slot)) {
            return false;
        }
        if let Some(times) = self.blame.crashes_on(slot) {
            if self.losses.insert(slot, UNFIT) != Some(UNFIT) {
                self.out.push(Command::Warn(Warning::GivenUp { slot, times }));
            }
            return false;
        }
        let times = self.losses.entry(slot).or_default();
        *times = times.saturating_add(1);
        let times = *times;
        if times <= self.config.recovery.attempts {
            self.awaited.insert(slot);
            self.out.push(Command::Replace { slot });
        } else if times == self.config.recovery.attempts + 1 {
            self.out.push(Command::Warn(Warning::GivenUp { slot, times }));
        }
        times <= self.config.recovery.attempts
    }

    /// A worker that comes while the run is under way, or why it cannot stay.
    pub(crate) fn late(&mut self, joined: Joined) -> Result<(), String> {
        let same = |w: &Joined| w.slot.is_some() && w.slot == joined.slot;
        let why = if !self.open() {
            "the run is at its end".to_string()
        } else if self.config.recovery.least == 0 {
            "the workers of this run stay as they are (`worker.lost = stop`)".to_string()
        } else if let Some(why) = self.blame.bars(&joined) {
            why
        } else if self.is_full(joined.slot) {
            let shards = self.config.shards;
            format!("the run has a worker for each of its {shards} shards")
        } else if self.reserve.iter().any(|w| same(w) && w.worker > joined.worker) {
            "another one has taken its place".to_string()
        } else {
            self.reserve.retain(|w| !same(w));
            self.awaited.retain(|slot| Some(*slot) != joined.slot);
            self.reserve.push(joined);
            return Ok(());
        };
        Err(why)
    }

    /// Whether another worker, of this slot, would find no shard.
    fn is_full(&self, slot: Option<u32>) -> bool {
        let all = self.workers.iter().chain(&self.reserve);
        let others = all.filter(|w| slot.is_none() || w.slot != slot).count();
        others >= self.config.shards as usize
    }

    /// One that had not taken its place yet is gone. True if it was one of those.
    fn reserve_lost(&mut self, gone: impl Fn(&Joined) -> bool) -> bool {
        let before = self.reserve.len();
        self.reserve.retain(|w| !gone(w));
        self.reserve.len() < before
    }

    /// Newcomers wait for their places, members for their leave, or for their share of the work.
    pub(crate) fn members_change(&self) -> bool {
        let dealt_anew = self.uneven.is_some_and(|base| self.run.done() > base);
        let inside = !self.leaving.is_empty() || self.slow.reshape;
        !self.reserve.is_empty() || dealt_anew || (inside && !self.run.is_ending())
    }

    /// Members change when all that was asked for is done.
    pub(crate) fn admit(&mut self, now_ns: u64) {
        if self.members_change() && self.run.at_rest() {
            self.halt(now_ns, None);
        }
    }

    /// A worker that is no member any more has ended: now it is known how.
    pub(crate) fn explained(&mut self, slot: u32, exit: &Exit) -> bool {
        let Some(place) = self.gone.iter().position(|g| g.slot == Some(slot)) else {
            return false;
        };
        let gone = self.gone.remove(place);
        let end = End::exited(Some(&gone.end), &exit.text);
        self.tell_of(Gone { end, ..gone });
        true
    }

    /// Tells of those whose end nobody has explained in time.
    pub(crate) fn tell_of_losses(&mut self, now_ns: u64) {
        let limit = self.config.timeouts.settle_ns;
        let due = |g: &Gone| g.end.final_word || now_ns.saturating_sub(g.at_ns) >= limit;
        let (told, kept) = std::mem::take(&mut self.gone).into_iter().partition(due);
        self.gone = kept;
        let told: Vec<Gone> = told;
        told.into_iter().for_each(|g| self.tell_of(g));
    }

    fn tell_of(&mut self, gone: Gone) {
        let Gone { rank, worker, slot, end: End { why, .. }, step, .. } = gone;
        self.out.push(Command::Warn(Warning::WorkerLost { rank, worker, slot, why, step }));
    }

    /// Whether an event is about a worker that has not taken its place yet, or is no member any
    /// more.
    pub(crate) fn about_strangers(&mut self, event: &Event) -> bool {
        match event {
            Event::Lost { worker, .. } | Event::Failed { worker, .. } => {
                self.reserve_lost(|w| w.worker == *worker)
            }
            Event::Exited { slot, exit } => {
                let member = self.workers.iter().any(|w| w.slot == Some(*slot));
                let known = self.explained(*slot, exit);
                let reserve = self.reserve_lost(|w| w.slot == Some(*slot));
                let gathering = matches!(self.phase, Phase::Gathering | Phase::Returning(_));
                let stranger = known || reserve || !(member || gathering);
                if stranger && self.open() {
                    self.replace(*slot);
                }
                stranger
            }
            _ => false,
        }
    }

    fn open(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running | Phase::Halting(_))
    }
}
