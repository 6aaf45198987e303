//! The end of a step: global norm, clipping, and the optimizer's update of every weight.

use crate::WorkerError;
use crate::model::State;
use crate::run::Worker;
use crate::setup::Bench;
use crate::step::{flagged_shards, loss_span};
use monarch_collective::{Piece, Scalars};
use monarch_device::optim::{self, Step, Target};
use monarch_graph::{Part, Span, UpdateRule};
use monarch_pulse::{Phase, enter, tick};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// From this many elements on, threads share an update.
const SHARED: usize = 1 << 18;

/// What is known of a step once its numbers are reduced.
pub(crate) struct Update {
    step: u64,
    loss: f64,
    denominator: f64,
}

/// Why an update cannot be made: numbers that are not finite, the same on all ranks.
pub(crate) struct Bad {
    pub(crate) what: String,
    pub(crate) loss: f64,
    pub(crate) norm: f64,
    pub(crate) span: Option<Span>,
    pub(crate) sink: Sink,
}

/// Where they have come to light.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink {
    /// In the loss of those shards whose flag is set.
    Loss { flags: u64 },
    /// In the gradient of this weight.
    Gradient { weight: usize },
}

impl Update {
    /// Refuses a loss that is not finite.
    pub(crate) fn new(bench: &Bench, step: u64, sums: &Scalars) -> Result<Update, Bad> {
        let (numerator, denominator) = match sums.values.first().map(Vec::as_slice) {
            Some([numerator, denominator]) => (*numerator, *denominator),
            _ => (f64::NAN, f64::NAN),
        };
        let plan = &bench.plan;
        let name = &plan.train.loss.name;
        let loss = numerator / denominator;
        let bad = |what: String| {
            let (norm, sink) = (f64::NAN, Sink::Loss { flags: sums.flags });
            Bad { what, loss, norm, span: loss_span(plan), sink }
        };
        if sums.flags != 0 {
            let shards = flagged_shards(sums.flags, plan.shards);
            return Err(bad(format!("`{name}` is not finite in shard {shards}")));
        }
        if denominator == 0.0 {
            let what = "the counts that it is divided by add up to 0 over the whole batch";
            return Err(bad(format!("`{name}` has no value: {what}")));
        }
        if !loss.is_finite() {
            return Err(bad(format!("`{name}` is {loss} ({numerator} / {denominator})")));
        }
        Ok(Update { step, loss, denominator })
    }
}

/// Reduced gradients, bucket by bucket: the sum is in the first piece of each.
type Buckets = Vec<Vec<Piece>>;

/// All gradients of the plan, in its order of buckets.
fn parts(bench: &Bench) -> Vec<(usize, Part)> {
    let buckets = bench.plan.buckets.iter().enumerate();
    buckets.flat_map(|(i, b)| b.parts.iter().map(move |p| (i, *p))).collect()
}

fn gradient<'a>(bench: &Bench, buckets: &'a Buckets, bucket: usize, part: &Part) -> &'a [f32] {
    let start = part.start as usize - bench.fold.layout().start(bucket).min(part.start as usize);
    let sum = buckets.get(bucket).and_then(|pieces| pieces.first());
    sum.and_then(|p| p.region().get(start..start + part.elements as usize)).unwrap_or_default()
}

impl Worker {
    /// Updates all weights; loss, and norm of the whole gradient before clipping. Nothing is
    /// changed when the gradient is not finite.
    pub(crate) fn update(
        &mut self,
        update: Update,
        buckets: &Arc<Buckets>,
    ) -> Result<Result<(f64, f64), Bad>, WorkerError> {
        let bench = self.bench.clone();
        let parts = Arc::new(parts(&bench));
        let norm = match self.norm(&update, &parts, buckets)? {
            Ok(norm) => norm,
            Err(bad) => return Ok(Err(bad)),
        };
        let clip = optim::clip_coefficient(bench.plan.optimizer.clip, norm);
        let factor = clip / update.denominator;
        let step = Step { lr: bench.plan.schedule.at(update.step), step: update.step, factor };
        enter(Phase::Update);
        let mut state = bench.model.write();
        let jobs = jobs(&bench, &parts, buckets, &mut state);
        let threads = if bench.fold.layout().slab() < SHARED { 1 } else { self.crew.lanes() };
        apply(&bench, step, jobs, threads)?;
        Ok(Ok((update.loss, norm)))
    }

    /// The norm of the gradient of the loss over all weights; squares are added weight by weight
    /// in one order, whoever squares them.
    fn norm(
        &mut self,
        update: &Update,
        parts: &Arc<Vec<(usize, Part)>>,
        buckets: &Arc<Buckets>,
    ) -> Result<Result<f64, Bad>, WorkerError> {
        let bench = self.bench.clone();
        let squares = Arc::new(Mutex::new(vec![0.0; parts.len()]));
        let (its_bench, its_buckets, its_squares) =
            (bench.clone(), buckets.clone(), squares.clone());
        self.share(parts.clone(), move |i, bucket, part| {
            let gradient = gradient(&its_bench, &its_buckets, bucket, part);
            let square = optim::norm2(its_bench.isa, gradient);
            let mut squares = its_squares.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = squares.get_mut(i) {
                *place = square;
            }
            Ok(())
        })?;
        let squares = squares.lock().unwrap_or_else(PoisonError::into_inner);
        let sum: f64 = squares.iter().sum();
        let norm = sum.sqrt() / update.denominator.abs();
        if norm.is_finite() {
            return Ok(Ok(norm));
        }
        let first = squares.iter().position(|s| !s.is_finite()).and_then(|i| parts.get(i));
        let number = first.map(|(_, part)| part.weight.index());
        let weight = number.and_then(|i| bench.plan.weights.get(i));
        let what = match weight {
            Some(weight) => format!("the gradient of `{}` is not finite", weight.name),
            None => format!("the norm of the gradient is {norm}"),
        };
        let span = weight.map(|w| w.span).or_else(|| loss_span(&bench.plan));
        let sink = Sink::Gradient { weight: number.unwrap_or(usize::MAX) };
        Ok(Err(Bad { what, loss: update.loss, norm, span, sink }))
    }

    /// Does `work` for every gradient, on all lanes when there is enough of it.
    fn share(
        &mut self,
        parts: Arc<Vec<(usize, Part)>>,
        work: impl Fn(usize, usize, &Part) -> Result<(), WorkerError> + Send + Sync + 'static,
    ) -> Result<(), WorkerError> {
        let small = self.bench.fold.layout().slab() < SHARED;
        let (stop, next) = (self.bench.stop.clone(), AtomicUsize::new(0));
        let job: crate::crew::Job = Arc::new(move |_| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some((bucket, part)) = parts.get(i) else { return Ok(()) };
                enter(Phase::Update);
                work(i, *bucket, part)?;
            }
        });
        if small { self.crew.run_alone(&job) } else { self.crew.run(&stop, job) }
    }
}

/// One weight's update: what changes, and its gradient.
struct Job<'a> {
    rule: UpdateRule,
    shape: &'a [u64],
    weight: &'a mut [f32],
    slots: Vec<&'a mut [f32]>,
    gradient: &'a [f32],
}

fn jobs<'a>(
    bench: &'a Bench,
    parts: &[(usize, Part)],
    buckets: &'a Buckets,
    state: &'a mut State,
) -> Vec<Job<'a>> {
    let mut slots: Vec<_> = state.slots.iter_mut().map(|s| s.iter_mut()).collect();
    let mut jobs = Vec::new();
    for (i, weight) in state.weights.iter_mut().enumerate() {
        let slots = slots.iter_mut().filter_map(Iterator::next);
        let Some(planned) = bench.plan.weights.get(i) else { continue };
        let kind = &bench.plan.optimizer.kind;
        let has = |slot: usize| kind.has_slot(slot, planned);
        let slots = slots.enumerate().filter(|(slot, _)| has(*slot)).map(|(_, s)| s).collect();
        // Frozen weights have no gradient.
        if let Some((bucket, part)) = parts.iter().find(|(_, p)| p.weight.index() == i) {
            let rule = bench.plan.optimizer.rule(planned);
            let (shape, gradient) = (&planned.shape, gradient(bench, buckets, *bucket, part));
            jobs.push(Job { rule, shape, weight, slots, gradient });
        }
    }
    jobs
}

/// Carries out the updates; each is one thread's, so their number changes nothing.
fn apply(bench: &Bench, step: Step, jobs: Vec<Job<'_>>, threads: usize) -> Result<(), WorkerError> {
    let queue = Mutex::new(jobs);
    let work = || -> Result<(), WorkerError> {
        loop {
            let job = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut job) = job else { return Ok(()) };
            let step = Step { lr: step.lr * job.rule.rate, ..step };
            let target = Target { shape: job.shape, weight: job.weight, gradient: job.gradient };
            optim::update(bench.isa, &job.rule.kind, step, target, &mut job.slots)
                .map_err(|e| WorkerError::task(step.step, "update", e))?;
            tick();
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            let panicked = || WorkerError::Panic {
                task: "update".into(),
                message: "a thread of the update ended".into(),
            };
            result = result.and(other.join().unwrap_or_else(|_| Err(panicked())));
        }
        result
    })
}
