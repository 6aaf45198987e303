//! Who holds the others up, judged by each worker's own work alone: loading, forward and backward
//! of its shards, and the update. Waits for peers do not count: they mark victims.
//!
//! Steps are gathered into windows, so that a pause now and then weighs what it costs. A worker is
//! slow after [`STRIKES`] windows in a row in which it took longer than the median of the others by
//! the share that the job names, and is as fast as the others again after [`CALM`] windows in a row
//! below half of that. The time for a shard is compared, so who has fewer shards gains nothing.
//! The first steps of a generation are not looked at.
//!
//! Shards are dealt anew when that makes the longest part of a step shorter by more than [`GAIN`];
//! each time, the next one has to wait twice as long, from [`COOL_NS`] to [`COOLEST_NS`]: a dozen
//! times in the first hour at the most.

mod deal;

pub(crate) use deal::{counts, makespan};

use crate::{StepNumbers, Times, WorkerId};
use deal::spread;
use monarch_graph::shard_range;
use std::collections::BTreeMap;

/// So many workers have one median, with and without one of them.
const CROWD: usize = 32;
/// Steps at the beginning of a generation that are not looked at: memory is touched, caches fill.
const WARM_UP: u32 = 3;
/// Least of a window.
const WINDOW_NS: u64 = 1_000_000_000;
const WINDOW_STEPS: u32 = 3;
/// Windows in a row that make a worker slow.
const STRIKES: u32 = 4;
/// Windows in a row after which it is slow no more.
const CALM: u32 = 5;
/// Share by which the longest part of a step must become shorter.
const GAIN: f64 = 0.1;
/// Least time between two deals; doubles each time.
const COOL_NS: u64 = 10_000_000_000;
const COOLEST_NS: u64 = 600_000_000_000;

/// What a worker is slow in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPhase {
    Load,
    Forward,
    Backward,
    Update,
}

impl SlowPhase {
    /// As a person would say it.
    pub fn name(self) -> &'static str {
        match self {
            SlowPhase::Load => "loading data",
            SlowPhase::Forward => "forward",
            SlowPhase::Backward => "backward",
            SlowPhase::Update => "the update",
        }
    }
}

/// What is known of a slow worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowness {
    /// The phase that costs the most.
    pub phase: SlowPhase,
    /// In that phase: so many times the others' time.
    pub times: f64,
    /// Nanoseconds of that phase: for a shard, or for an update.
    pub own_ns: u64,
    pub others_ns: u64,
    /// Of a whole step's own work: so many times the others' time.
    pub overall: f64,
}

/// A member of the generation at hand.
#[derive(Clone, Debug)]
struct Member {
    worker: WorkerId,
    lanes: u32,
    held: Vec<u32>,
    /// Of the window at hand.
    sums: Times,
    /// Samples of the shards that `sums` are of.
    samples: u64,
    strikes: u32,
}

/// A worker that was found slow.
#[derive(Clone, Debug)]
struct Accused {
    what: Slowness,
    /// Time for a shard as a multiple of the others', smoothed.
    pace: f64,
    calm: u32,
    /// Its shards are dealt by its pace.
    dealt: bool,
}

/// What came out of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Slow { rank: u32, worker: WorkerId },
    Recovered { rank: u32, worker: WorkerId },
}

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// A worker is slow beyond this share.
    above: f64,
    members: Vec<Member>,
    shards: u32,
    skip: u32,
    steps: u32,
    window_ns: u64,
    accused: BTreeMap<WorkerId, Accused>,
    deals: u32,
    last_deal_ns: Option<u64>,
}

/// One of the phases, per sample or per step.
fn parts(member: &Member, steps: u32, unit: f64) -> [f64; 4] {
    let Times { load_ns, forward_ns, backward_ns, update_ns } = member.sums;
    let shard = |ns: u64| ns as f64 * unit / (member.samples.max(1)) as f64;
    [shard(load_ns), shard(forward_ns), shard(backward_ns), update_ns as f64 / f64::from(steps)]
}

const PHASES: [SlowPhase; 4] =
    [SlowPhase::Load, SlowPhase::Forward, SlowPhase::Backward, SlowPhase::Update];

/// The lower one of two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

impl Watch {
    pub fn new(above: f64) -> Watch {
        Watch {
            above: above.max(0.01),
            members: Vec::new(),
            shards: 0,
            skip: WARM_UP,
            steps: 0,
            window_ns: 0,
            accused: BTreeMap::new(),
            deals: 0,
            last_deal_ns: None,
        }
    }

    /// Members and their shards from here on; `members` are workers and their lanes by rank.
    pub fn form(&mut self, members: &[(WorkerId, u32)], deal: &[u32]) {
        let held = |rank: u32| {
            let mine = (0..).zip(deal).filter(|(_, owner)| **owner == rank);
            mine.map(|(shard, _)| shard).collect()
        };
        let member = |(rank, &(worker, lanes)): (u32, &(WorkerId, u32))| Member {
            worker,
            lanes,
            held: held(rank),
            sums: Times::default(),
            samples: 0,
            strikes: 0,
        };
        self.members = (0..).zip(members).map(member).collect();
        self.shards = deal.len() as u32;
        self.accused.retain(|worker, _| members.iter().any(|m| m.0 == *worker));
        (self.skip, self.steps, self.window_ns) = (WARM_UP, 0, 0);
    }

    /// A step as all ranks saw it.
    pub fn observe(&mut self, step: &[StepNumbers]) -> Vec<Verdict> {
        if self.skip > 0 || step.len() != self.members.len() || self.members.len() < 2 {
            self.skip = self.skip.saturating_sub(1);
            return Vec::new();
        }
        for (member, numbers) in self.members.iter_mut().zip(step) {
            let times = &numbers.times;
            member.sums.load_ns += times.load_ns;
            member.sums.forward_ns += times.forward_ns;
            member.sums.backward_ns += times.backward_ns;
            member.sums.update_ns += times.update_ns;
            let size = |shard: &u32| {
                let range = shard_range(numbers.samples, self.shards, *shard);
                range.end - range.start
            };
            member.samples += member.held.iter().map(size).sum::<u64>();
        }
        self.steps += 1;
        self.window_ns += step.iter().map(|n| n.total_ns).max().unwrap_or(0);
        if self.steps < WINDOW_STEPS || self.window_ns < WINDOW_NS {
            return Vec::new();
        }
        let verdicts = self.judge();
        for member in &mut self.members {
            (member.sums, member.samples) = (Times::default(), 0);
        }
        (self.steps, self.window_ns) = (0, 0);
        verdicts
    }

    /// The window is full.
    fn judge(&mut self) -> Vec<Verdict> {
        let all: u64 = self.members.iter().map(|m| m.samples).sum();
        let unit = all as f64 / f64::from(self.shards.max(1)) / f64::from(self.steps.max(1));
        let step_ns = self.window_ns as f64 / f64::from(self.steps.max(1));
        let even = f64::from(self.shards) / self.members.len().max(1) as f64;
        let steps = self.steps.max(1);
        let rows: Vec<[f64; 4]> = self.members.iter().map(|m| parts(m, steps, unit)).collect();
        let measured = self.members.iter().all(|m| m.samples > 0);
        // In a crowd one more or less does not matter.
        let all_of_them = (rows.len() > CROWD).then(|| Middle::of(&rows, None, even));
        let mut verdicts = Vec::new();
        for rank in 0..self.members.len() {
            let middle = all_of_them.unwrap_or_else(|| Middle::of(&rows, Some(rank), even));
            let found = rows.get(rank).and_then(|own| slowness(own, &middle, even));
            let Some((what, pace, costs)) = found else { continue };
            let is_slow = what.overall >= 1.0 + self.above && costs >= step_ns * self.above / 2.0;
            let is_calm = what.overall < 1.0 + self.above / 2.0;
            let Some(member) = self.members.get_mut(rank).filter(|_| measured) else { continue };
            let (worker, rank) = (member.worker, rank as u32);
            if let Some(accused) = self.accused.get_mut(&worker) {
                accused.calm = if is_calm { accused.calm + 1 } else { 0 };
                accused.pace = (accused.pace + pace) / 2.0;
                if is_slow {
                    accused.what = what;
                }
                if accused.calm >= CALM {
                    self.accused.remove(&worker);
                    member.strikes = 0;
                    verdicts.push(Verdict::Recovered { rank, worker });
                }
                continue;
            }
            member.strikes = if is_slow { member.strikes + 1 } else { 0 };
            if member.strikes >= STRIKES {
                member.strikes = 0;
                let accused = Accused { what, pace, calm: 0, dealt: false };
                self.accused.insert(worker, accused);
                verdicts.push(Verdict::Slow { rank, worker });
            }
        }
        verdicts
    }

    /// What is known of a worker that is slow.
    pub fn what(&self, worker: WorkerId) -> Option<Slowness> {
        self.accused.get(&worker).map(|a| a.what)
    }

    /// From now on its shards are dealt by its pace.
    pub fn deal_by_pace(&mut self, worker: WorkerId) {
        if let Some(accused) = self.accused.get_mut(&worker) {
            accused.dealt = true;
        }
    }

    /// By how much a worker's shards take longer than the others'.
    pub fn pace(&self, worker: WorkerId) -> f64 {
        self.accused.get(&worker).filter(|a| a.dealt).map_or(1.0, |a| a.pace.max(1.0))
    }

    /// Per rank: shards now, and shards as they would be dealt now, if that is worth a new deal and
    /// the last one is long enough ago.
    pub fn better_deal(&self, now_ns: u64) -> Option<Vec<(u32, u32)>> {
        let wait_ns = COOL_NS.checked_shl(self.deals.saturating_sub(1)).unwrap_or(COOLEST_NS);
        let wait_ns = wait_ns.min(COOLEST_NS);
        let early = self.last_deal_ns.is_some_and(|at| now_ns.saturating_sub(at) < wait_ns);
        if early || self.members.len() < 2 {
            return None;
        }
        let held: Vec<u32> = self.members.iter().map(|m| m.held.len() as u32).collect();
        let lanes: Vec<u32> = self.members.iter().map(|m| m.lanes).collect();
        let paces: Vec<f64> = self.members.iter().map(|m| self.pace(m.worker)).collect();
        let wanted = spread(self.shards, &lanes, &paces);
        let (now, then) = (makespan(&held, &lanes, &paces), makespan(&wanted, &lanes, &paces));
        (then < now * (1.0 - GAIN)).then(|| held.into_iter().zip(wanted).collect())
    }

    /// A new deal is under way.
    pub fn dealt(&mut self, now_ns: u64) {
        self.deals = self.deals.saturating_add(1);
        self.last_deal_ns = Some(now_ns);
    }
}

/// What ranks of a window take in the middle.
#[derive(Clone, Copy)]
struct Middle {
    parts: [f64; 4],
    /// A whole step's own work, and that for a shard.
    whole: f64,
    shard: f64,
}

/// A phase counts as often as it is in a step with an even deal.
fn weight(part: usize, even: f64) -> f64 {
    if part == 3 { 1.0 } else { even }
}

fn whole(row: &[f64; 4], even: f64) -> f64 {
    row.iter().enumerate().map(|(i, ns)| ns * weight(i, even)).sum()
}

fn shard(row: &[f64; 4]) -> f64 {
    row.iter().take(3).sum()
}

impl Middle {
    /// Of all rows, or of all but one.
    fn of(rows: &[[f64; 4]], without: Option<usize>, even: f64) -> Middle {
        let others = || rows.iter().enumerate().filter(|r| Some(r.0) != without).map(|r| r.1);
        Middle {
            parts: std::array::from_fn(|i| median(others().filter_map(|row| row.get(i).copied()))),
            whole: median(others().map(|row| whole(row, even))),
            shard: median(others().map(shard)),
        }
    }
}

/// How slow a rank is beside the others, its pace in shards, and what that costs a step.
fn slowness(own: &[f64; 4], middle: &Middle, even: f64) -> Option<(Slowness, f64, f64)> {
    let excess = |(i, ns, theirs): &(usize, f64, f64)| (ns - theirs) * weight(*i, even);
    let rows = own.iter().zip(middle.parts).enumerate().map(|(i, (ns, theirs))| (i, *ns, theirs));
    let (i, ns, theirs) = rows.max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 };
    let what = Slowness {
        phase: *PHASES.get(i)?,
        times: ratio(ns, theirs),
        own_ns: ns as u64,
        others_ns: theirs as u64,
        overall: ratio(whole(own, even), middle.whole),
    };
    Some((what, ratio(shard(own), middle.shard), whole(own, even) - middle.whole))
}

#[cfg(test)]
mod tests;
