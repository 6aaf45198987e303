//! What follows when a worker holds the others up: `worker.slow` of the job, link by link.

use crate::scheduler::{Phase, Scheduler};
use crate::straggle::{Verdict, Watch};
use crate::{Cause, Command, SlowAnswer, Warning, WorkerId};
use std::collections::BTreeMap;

/// A link without a time of its own follows after this long, if the one before has not helped.
const NEXT_NS: u64 = 60_000_000_000;

/// Workers that are slow, and how far the answers to each have come.
#[derive(Debug)]
pub(crate) struct Slow {
    pub watch: Watch,
    answers: Vec<SlowAnswer>,
    under: BTreeMap<WorkerId, Under>,
    /// Shards are to be dealt anew at the next edge at which nothing is left to do.
    pub reshape: bool,
}

#[derive(Clone, Copy, Debug)]
struct Under {
    since_ns: u64,
    /// The answer that comes next, and since when the one before has been in force.
    next: usize,
    link_ns: u64,
}

impl Slow {
    pub fn new(answers: &[SlowAnswer]) -> Slow {
        let above = answers.iter().find_map(|a| match a {
            SlowAnswer::Warn { after } | SlowAnswer::Rebalance { after } => Some(*after),
            _ => None,
        });
        let watch = Watch::new(above.unwrap_or(0.2));
        Slow { watch, answers: answers.to_vec(), under: BTreeMap::new(), reshape: false }
    }
}

impl Scheduler {
    /// Looks at the steps that have been reported since the last time.
    pub(crate) fn check_slow(&mut self, now_ns: u64) {
        let steps = self.run.take_reported();
        if self.slow.answers.is_empty() {
            return;
        }
        for step in steps {
            for verdict in self.slow.watch.observe(&step) {
                self.judged(now_ns, verdict);
            }
        }
        if !matches!(self.phase, Phase::Running) || self.run.is_ending() {
            return;
        }
        let under: Vec<WorkerId> = self.slow.under.keys().copied().collect();
        under.into_iter().for_each(|worker| self.answer(now_ns, worker));
        // Where somebody waits for its share, all is dealt anew in a moment.
        if !self.slow.reshape
            && self.uneven.is_none()
            && let Some(better) = self.slow.watch.better_deal(now_ns)
        {
            self.slow.reshape = true;
            self.tell_of_deal(&better);
        }
    }

    fn judged(&mut self, now_ns: u64, verdict: Verdict) {
        match verdict {
            Verdict::Slow { worker, .. } => {
                let under = Under { since_ns: now_ns, next: 0, link_ns: now_ns };
                self.slow.under.insert(worker, under);
            }
            Verdict::Recovered { rank, worker } => {
                self.slow.under.remove(&worker);
                self.out.push(Command::Warn(Warning::Recovered { rank, worker }));
            }
        }
    }

    /// The answers that are due for a worker that is slow.
    fn answer(&mut self, now_ns: u64, worker: WorkerId) {
        let Some(rank) = self.workers.iter().position(|w| w.worker == worker) else {
            self.slow.under.remove(&worker);
            return;
        };
        while let Some(under) = self.slow.under.get(&worker).copied()
            && let Some(answer) = self.slow.answers.get(under.next).copied()
            && let Some(what) = self.slow.watch.what(worker)
            && !self.leaving.contains_key(&worker)
        {
            let waited_ns = now_ns.saturating_sub(under.link_ns);
            let due = match answer {
                SlowAnswer::Warn { after } | SlowAnswer::Rebalance { after } => {
                    what.overall >= 1.0 + after
                }
                SlowAnswer::Exclude { after_ns } => {
                    now_ns.saturating_sub(under.since_ns) >= after_ns
                }
                _ => under.next == 0 || waited_ns >= NEXT_NS,
            };
            if !due {
                return;
            }
            if let Some(under) = self.slow.under.get_mut(&worker) {
                (under.next, under.link_ns) = (under.next + 1, now_ns);
            }
            self.carry_out(now_ns, answer, rank as u32, worker);
        }
    }

    fn carry_out(&mut self, now_ns: u64, answer: SlowAnswer, rank: u32, worker: WorkerId) {
        let Some(what) = self.slow.watch.what(worker) else { return };
        match answer {
            SlowAnswer::Warn { .. } => {
                self.out.push(Command::Slow { rank, worker, what, shards: None });
            }
            SlowAnswer::Rebalance { .. } => {
                self.slow.watch.deal_by_pace(worker);
                match self.slow.watch.better_deal(now_ns) {
                    Some(better) => {
                        self.slow.reshape = true;
                        self.tell_of_deal(&better);
                    }
                    // A shard less would not help, or the last deal is too short a time ago.
                    None => self.out.push(Command::Slow { rank, worker, what, shards: None }),
                }
            }
            SlowAnswer::Exclude { .. } => {
                self.out.push(Command::Slow { rank, worker, what, shards: None });
                self.drain(now_ns, rank);
            }
            SlowAnswer::Replace => {
                self.out.push(Command::Slow { rank, worker, what, shards: None });
                self.exchange(now_ns, rank);
            }
            SlowAnswer::Stop => {
                self.stop_for = Some(Cause::Slow { rank, worker, what });
                self.run.ask_to_stop(false);
            }
        }
    }

    /// One word for each slow worker whose shards change.
    fn tell_of_deal(&mut self, better: &[(u32, u32)]) {
        for (rank, (member, shards)) in (0..).zip(self.workers.iter().zip(better)) {
            let worker = member.worker;
            if let Some(what) = self.slow.watch.what(worker)
                && shards.0 != shards.1
            {
                let shards = Some(*shards);
                self.out.push(Command::Slow { rank, worker, what, shards });
            }
        }
    }

    /// The steps of the run are seen by all who take part in this deal.
    pub(crate) fn watch_anew(&mut self, now_ns: u64, members: &[(WorkerId, u32)], deal: &[u32]) {
        if std::mem::take(&mut self.slow.reshape) {
            self.slow.watch.dealt(now_ns);
        }
        self.slow.watch.form(members, deal);
    }
}
