mod again;
mod regroup;
mod saves;
mod tally;
mod window;

use crate::config::Metric;
use crate::rollback::Answers;
use crate::{Command, Config, Due, DueKind, EvalNumbers, StepNumbers, Warning};
use monarch_graph::{Action, Every};
use std::collections::VecDeque;
use tally::Tally;

/// Work that workers should have before them, so that the controller is never waited for.
const AHEAD_NS: u64 = 500_000_000;
/// Fewest and most steps before them.
const AHEAD_STEPS: (u64, u64) = (2, 1024);

/// The middle of a run: which steps are allowed, what is due, and what has been reported.
///
/// An *edge* is a number of steps done; edge `s` lies before step number `s`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) config: Config,
    /// Edge up to which workers may go. Shrinks only when members change.
    until: u64,
    /// Members change again at this edge: workers do not go beyond it.
    limit: Option<u64>,
    /// Steps reported by all ranks.
    pub(crate) done: u64,
    /// Steps in the record. More than `done` when some are done again, to the same bits.
    pub(crate) recorded: u64,
    /// Per rank: the step that it reports next.
    next: Vec<u64>,
    /// Reports of steps `done..`.
    reports: VecDeque<Tally<StepNumbers>>,
    /// Smoothed duration of a step; 0 before the first.
    step_ns: u64,
    evals: Vec<PendingEval>,
    /// Last edge at which evaluations were asked for.
    eval_edge: Option<u64>,
    eval_wanted: bool,
    /// Step and number of the last one in the record.
    last_recorded_eval: Option<(u64, u32)>,
    last_eval_ns: u64,
    save: Option<PendingSave>,
    /// Last edge that a whole checkpoint holds.
    saved: Option<u64>,
    failed_save: Option<(u64, String)>,
    save_wanted: bool,
    /// In place of one that was lost, with all that was due with it.
    save_instead: bool,
    last_save_ns: u64,
    /// Best value of the metric that decides which checkpoint is the best.
    best: Option<f64>,
    /// Step of that, and the best before it, until the checkpoint that it asks for is whole.
    best_before: Option<(u64, Option<f64>)>,
    pub(crate) end: End,
    /// To steps that are not finite.
    pub(crate) answers: Answers,
    /// Steps that all ranks have reported, as each saw them, until somebody takes them.
    reported: Vec<Vec<StepNumbers>>,
    /// The controller was started again, and the workers' reports are being heard again.
    again: bool,
}

/// Where the run ends and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Natural,
    Rule {
        at: u64,
        rule: usize,
        value: f64,
    },
    Asked {
        at: u64,
        interrupted: bool,
    },
    /// The step after this edge is not finite.
    Fault {
        at: u64,
    },
}

#[derive(Debug)]
struct PendingEval {
    step: u64,
    evaluation: u32,
    got: Tally<EvalNumbers>,
}

#[derive(Debug)]
struct PendingSave {
    step: u64,
    got: Tally<SavePart>,
    committing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SavePart {
    fingerprint: String,
    error: Option<String>,
}

/// Why a report cannot be accepted.
#[derive(Debug)]
pub(crate) enum Reject {
    /// It makes no sense at this point.
    Protocol(String),
    /// Ranks that must agree to the bit do not.
    Mismatch { step: u64, what: &'static str, groups: Vec<(Vec<u32>, String)> },
}

impl Run {
    pub fn new(config: Config, now_ns: u64) -> Run {
        let first = config.first_step;
        Run {
            until: first,
            limit: None,
            done: first,
            recorded: first,
            next: vec![first; config.world as usize],
            reports: VecDeque::new(),
            step_ns: 0,
            evals: Vec::new(),
            eval_edge: None,
            eval_wanted: false,
            last_recorded_eval: None,
            last_eval_ns: now_ns,
            save: None,
            saved: (first > 0).then_some(first),
            failed_save: None,
            save_wanted: false,
            save_instead: false,
            last_save_ns: now_ns,
            best: config.saves.best_so_far,
            best_before: None,
            end: End::Natural,
            answers: Answers::new(&config),
            reported: Vec::new(),
            again: false,
            config,
        }
    }

    /// Lets workers go no further than this edge.
    pub fn limit(&mut self, edge: Option<u64>) {
        self.limit = edge;
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn saved(&self) -> Option<u64> {
        self.saved
    }

    pub fn end(&self) -> End {
        self.end
    }

    /// Somebody or something has asked for the end.
    pub fn is_ending(&self) -> bool {
        self.end != End::Natural
    }

    /// Edge at which the run ends.
    pub fn end_step(&self) -> u64 {
        match self.end {
            End::Natural => self.config.steps,
            End::Rule { at, .. } | End::Asked { at, .. } | End::Fault { at } => at,
        }
    }

    /// All steps done, all evaluations reported, everything saved.
    pub fn complete(&self) -> bool {
        let end = self.end_step();
        let saved = !self.config.save_at_end
            || self.saved == Some(end)
            || self.failed_save.as_ref().is_some_and(|(step, _)| *step == end);
        self.done >= end
            && self.until >= end
            && self.evals.is_empty()
            && self.save.is_none()
            && !self.eval_due(end)
            && (saved || end == 0)
    }

    /// All that was asked for is done: no worker has anything before it.
    pub fn at_rest(&self) -> bool {
        self.done == self.until && self.owing().is_empty()
    }

    /// Ranks that have something to report.
    pub fn owing(&self) -> Vec<u32> {
        let owes = |rank: &u32| {
            let r = *rank as usize;
            self.next.get(r).is_some_and(|&next| next < self.until)
                || self.evals.iter().any(|e| e.got.awaits(*rank))
                || self.save.iter().any(|s| s.got.awaits(*rank))
        };
        (0..self.next.len() as u32).filter(owes).collect()
    }

    /// Stop in good order at the next edge that no worker has passed. Returns that edge, or None
    /// when the run ends there anyway.
    pub fn ask_to_stop(&mut self, interrupted: bool) -> Option<u64> {
        if self.end != End::Natural || self.until >= self.config.steps {
            return None;
        }
        self.end = End::Asked { at: self.until, interrupted };
        Some(self.until)
    }

    pub fn ask_to_save(&mut self) {
        self.save_wanted = true;
    }

    pub fn step(
        &mut self,
        rank: u32,
        numbers: StepNumbers,
        out: &mut Vec<Command>,
    ) -> Result<(), Reject> {
        let until = self.until;
        let world = self.next.len();
        let Some(next) = self.next.get_mut(rank as usize) else {
            return Err(Reject::Protocol(format!("no rank {rank} takes part")));
        };
        if numbers.step != *next || numbers.step >= until {
            let (step, next) = (numbers.step, *next);
            return Err(Reject::Protocol(format!(
                "reported step {step} where step {next} (below {until}) was next"
            )));
        }
        *next += 1;
        let place = (numbers.step - self.done) as usize;
        while self.reports.len() <= place {
            self.reports.push_back(Tally::new(world));
        }
        if let Some(row) = self.reports.get_mut(place) {
            row.put(rank, numbers);
        }
        self.merge(out)
    }

    /// Records the steps that all ranks have reported.
    fn merge(&mut self, out: &mut Vec<Command>) -> Result<(), Reject> {
        while self.reports.front().is_some_and(Tally::is_complete) {
            let Some(row) = self.reports.pop_front() else { break };
            let reports: Vec<StepNumbers> = row.said().copied().collect();
            let Some(merged) = agree_on_step(&reports)? else { break };
            if merged.finite {
                self.answers.helped(merged.step);
            } else if !self.answer(merged.step, out) {
                self.reports.clear();
                break;
            }
            self.done += 1;
            self.step_ns = match self.step_ns {
                0 => merged.total_ns.max(1),
                old => (old - old / 4 + merged.total_ns / 4).max(1),
            };
            self.record_step(merged, out);
            self.reported.push(reports);
        }
        Ok(())
    }

    pub fn take_reported(&mut self) -> Vec<Vec<StepNumbers>> {
        std::mem::take(&mut self.reported)
    }

    fn record_step(&mut self, merged: StepNumbers, out: &mut Vec<Command>) {
        if merged.step >= self.recorded {
            self.recorded = merged.step + 1;
            out.push(Command::Step(merged));
        }
        if merged.finite {
            self.apply_rules(Metric::Loss, merged.loss);
        }
    }

    pub fn evaluated(
        &mut self,
        rank: u32,
        numbers: EvalNumbers,
        out: &mut Vec<Command>,
    ) -> Result<(), Reject> {
        let key = (numbers.step, numbers.evaluation);
        let place = self.evals.iter().position(|e| (e.step, e.evaluation) == key);
        let early = self.next.get(rank as usize).is_none_or(|&next| next < numbers.step);
        let names = self.config.evals.get(numbers.evaluation as usize);
        let complete = names.is_some_and(|n| n.metrics.len() == numbers.values.len());
        let pending = place.and_then(|p| self.evals.get_mut(p)).filter(|_| !early && complete);
        let all = pending.and_then(|e| e.got.put(rank, numbers).then(|| e.got.is_complete()));
        let (Some(place), Some(all)) = (place, all) else {
            let (step, evaluation) = key;
            return Err(Reject::Protocol(format!(
                "reported evaluation {evaluation} at step {step}, which was not asked for"
            )));
        };
        if !all {
            return Ok(());
        }
        let eval = self.evals.remove(place);
        if let Some(merged) = agree_on_evaluation(eval.got.said().cloned().collect())? {
            self.record_evaluation(merged, out);
        }
        Ok(())
    }

    fn record_evaluation(&mut self, merged: EvalNumbers, out: &mut Vec<Command>) {
        let key = Some((merged.step, merged.evaluation));
        if key > self.last_recorded_eval {
            self.last_recorded_eval = key;
            out.push(Command::Evaluated(merged.clone()));
        }
        for (value, &number) in merged.values.iter().enumerate() {
            let metric = Metric::Eval { evaluation: merged.evaluation, value };
            self.apply_rules(metric, number);
            self.keep_best(merged.step, metric, number);
        }
    }

    fn apply_rules(&mut self, metric: Metric, value: f64) {
        for (rule, r) in self.config.rules.iter().enumerate() {
            let hit = r.above.is_some_and(|a| value > a) || r.below.is_some_and(|b| value < b);
            if self.config.metric(&r.metric) != Some(metric) || !hit {
                continue;
            }
            match r.action {
                // Windows never pass an edge where a rule decides, so `until` is that edge.
                Action::Stop if self.end == End::Natural => {
                    self.end = End::Rule { at: self.until, rule, value };
                }
                Action::Stop => {}
                Action::Checkpoint => self.save_wanted = true,
            }
        }
    }
}

pub(crate) fn due_by_step(every: Option<Every>, edge: u64) -> bool {
    matches!(every, Some(Every::Steps(n)) if n > 0 && edge.is_multiple_of(n))
}

fn due_by_time(every: Option<Every>, last_ns: u64, now_ns: u64) -> bool {
    let Some(Every::Time(ms)) = every else { return false };
    ms > 0 && now_ns.saturating_sub(last_ns) >= ms.saturating_mul(1_000_000)
}

/// Checks that all ranks say the same; else groups them by what they say.
pub(crate) fn agree(step: u64, what: &'static str, said: &[String]) -> Result<(), Reject> {
    let mut groups: Vec<(Vec<u32>, String)> = Vec::new();
    for (rank, text) in said.iter().enumerate() {
        match groups.iter_mut().find(|(_, t)| t == text) {
            Some((ranks, _)) => ranks.push(rank as u32),
            None => groups.push((vec![rank as u32], text.clone())),
        }
    }
    if groups.len() <= 1 { Ok(()) } else { Err(Reject::Mismatch { step, what, groups }) }
}

/// A number with its bits, since numbers that differ may print alike. All NaN are one: which
/// bits a NaN carries is the processor's choice.
fn bits(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    format!("{value} (bits {:016x})", value.to_bits())
}

fn agree_on_step(reports: &[StepNumbers]) -> Result<Option<StepNumbers>, Reject> {
    let Some(&first) = reports.first() else { return Ok(None) };
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let equal = |r: &StepNumbers| {
        r.finite == first.finite
            && same(r.loss, first.loss)
            && same(r.grad_norm, first.grad_norm)
            && same(r.lr, first.lr)
            && (r.epoch, r.samples) == (first.epoch, first.samples)
    };
    if !reports.iter().all(equal) {
        let say = |text: fn(&StepNumbers) -> String| reports.iter().map(text).collect::<Vec<_>>();
        agree(first.step, "loss", &say(|r| bits(r.loss)))?;
        agree(first.step, "gradient norm", &say(|r| bits(r.grad_norm)))?;
        agree(first.step, "learning rate", &say(|r| bits(r.lr)))?;
        agree(first.step, "finiteness", &say(|r| r.finite.to_string()))?;
        agree(first.step, "epoch and samples", &say(|r| format!("{}, {}", r.epoch, r.samples)))?;
    }
    let total_ns = reports.iter().map(|r| r.total_ns).max().unwrap_or(0);
    Ok(Some(StepNumbers { total_ns, ..first }))
}

fn agree_on_evaluation(all: Vec<EvalNumbers>) -> Result<Option<EvalNumbers>, Reject> {
    let say = |e: &EvalNumbers| {
        let values: Vec<String> = e.values.iter().map(|&v| bits(v)).collect();
        format!("{} over {} samples", values.join(", "), e.samples)
    };
    let step = all.first().map_or(0, |e| e.step);
    agree(step, "evaluation", &all.iter().map(say).collect::<Vec<_>>())?;
    let slowest = all.iter().map(|e| e.nanoseconds).max().unwrap_or(0);
    let first = all.into_iter().next();
    Ok(first.map(|e| EvalNumbers { nanoseconds: slowest, ..e }))
}
