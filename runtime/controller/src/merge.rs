use crate::event::StepEvent;
use monarch_sched::{StepNumbers, Times};
use monarch_wire::{NotFinite, Phases, StepReport, TraceSpan};
use std::collections::{BTreeMap, VecDeque};

/// Keeps the workers' reports of a step until all agree on it, and adds up what they say.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    world: usize,
    waiting: BTreeMap<u64, Vec<Option<Part>>>,
    pub stepping_ns: u64,
    pub samples: u64,
    total_ns: u64,
    wait_ns: u64,
    /// Losses of the last steps: a checkpoint is committed some steps after the one it holds.
    losses: VecDeque<(u64, f64)>,
    /// By step and rank: what was said of numbers that are not finite.
    troubles: BTreeMap<u64, BTreeMap<u32, NotFinite>>,
}

#[derive(Clone, Debug)]
struct Part {
    phases: Phases,
    spans: Vec<TraceSpan>,
}

/// Steps whose losses are kept.
const LOSSES: usize = 4096;

/// A step on which all ranks agree.
pub(crate) struct Merged {
    pub phases: Vec<Phases>,
    /// Spans by rank, for traced steps.
    pub spans: Vec<Vec<TraceSpan>>,
}

impl Merge {
    pub fn new(world: u32) -> Merge {
        Merge { world: world as usize, ..Merge::default() }
    }

    /// Other members from here on: what their predecessors said of steps to come is void.
    pub fn regroup(&mut self, world: u32) {
        self.world = world as usize;
        self.waiting.clear();
    }

    /// Takes a report and returns what must be equal on all ranks.
    pub fn add(&mut self, rank: u32, report: StepReport) -> StepNumbers {
        let world = self.world;
        let parts = self.waiting.entry(report.step).or_insert_with(|| vec![None; world]);
        let numbers = numbers(&report);
        if let Some(trouble) = report.trouble {
            self.troubles.entry(report.step).or_default().insert(rank, trouble);
        }
        if let Some(slot) = parts.get_mut(rank as usize) {
            *slot = Some(Part { phases: report.phases, spans: report.spans });
        }
        numbers
    }

    /// The same of one that has no rank yet: it says again what the controller before has heard.
    pub fn add_again(&mut self, report: StepReport) -> StepNumbers {
        let numbers = numbers(&report);
        let parts = self.waiting.entry(report.step).or_default();
        parts.push(Some(Part { phases: report.phases, spans: report.spans }));
        numbers
    }

    pub fn take(&mut self, numbers: &StepNumbers) -> Merged {
        let parts = self.waiting.remove(&numbers.step).unwrap_or_default();
        // Of steps that were done again, and are in the record already.
        self.waiting = self.waiting.split_off(&numbers.step);
        let parts: Vec<Part> = parts.into_iter().flatten().collect();
        self.stepping_ns += numbers.total_ns;
        self.samples += numbers.samples;
        self.total_ns += parts.iter().map(|p| p.phases.total_ns).sum::<u64>();
        self.wait_ns += parts.iter().map(|p| p.phases.wait_ns).sum::<u64>();
        if self.losses.len() == LOSSES {
            self.losses.pop_front();
        }
        if numbers.finite {
            self.losses.push_back((numbers.step, numbers.loss));
        }
        let (phases, spans) = parts.into_iter().map(|p| (p.phases, p.spans)).unzip();
        Merged { phases, spans }
    }

    /// What the ranks said of a step that is not finite; of earlier ones nobody asks any more.
    pub fn troubles(&mut self, step: u64) -> BTreeMap<u32, NotFinite> {
        self.troubles = self.troubles.split_off(&step);
        self.troubles.get(&step).cloned().unwrap_or_default()
    }

    /// Loss of the step, if it was among the last ones.
    pub fn loss(&self, step: u64) -> Option<f64> {
        self.losses.iter().rev().find(|(s, _)| *s == step).map(|(_, loss)| *loss)
    }

    /// A step of before.
    pub fn remember(&mut self, step: u64, loss: f64) {
        self.losses.push_back((step, loss));
    }

    pub fn last_step(&self) -> Option<(u64, f64)> {
        self.losses.back().copied()
    }

    pub fn last_loss(&self) -> Option<f64> {
        self.losses.back().map(|(_, loss)| *loss)
    }

    pub fn wait_share(&self) -> f64 {
        share(self.wait_ns, self.total_ns)
    }
}

fn times(phases: &Phases) -> Times {
    let &Phases { load_ns, forward_ns, backward_ns, update_ns, .. } = phases;
    Times { load_ns, forward_ns, backward_ns, update_ns }
}

fn numbers(report: &StepReport) -> StepNumbers {
    StepNumbers {
        step: report.step,
        epoch: report.epoch,
        samples: report.samples,
        loss: report.loss,
        grad_norm: report.grad_norm,
        lr: report.lr,
        total_ns: report.phases.total_ns,
        times: times(&report.phases),
        finite: report.trouble.is_none(),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The event of a merged step.
pub(crate) fn step_event(
    numbers: &StepNumbers,
    phases: Vec<Phases>,
    steps: u64,
    tokens_per_sample: Option<u64>,
) -> StepEvent {
    let seconds = numbers.total_ns as f64 * 1e-9;
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let total = phases.iter().map(|p| p.total_ns).sum();
    StepEvent {
        step: numbers.step,
        steps,
        epoch: numbers.epoch,
        samples: numbers.samples,
        loss: numbers.loss,
        grad_norm: numbers.grad_norm,
        lr: numbers.lr,
        finite: numbers.finite,
        seconds,
        samples_per_second: rate(numbers.samples),
        tokens_per_second: tokens_per_sample.map(|t| rate(numbers.samples * t)),
        wait_share: share(phases.iter().map(|p| p.wait_ns).sum(), total),
        phases,
    }
}
