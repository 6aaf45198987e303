//! Evaluation: every sample of a split once, each rank its shards of every batch.

use crate::WorkerError;
use crate::engine::{EngineError, Share};
use crate::run::Worker;
use crate::setup::Bench;
use crate::shard::Lane;
use crate::trace::now_ns;
use monarch_collective::Scalars;
use monarch_data::{Order, batch_range};
use monarch_graph::{Evaluation, shard_range};
use monarch_pulse::{Phase, enter};
use monarch_wire::EvalReport;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One evaluation as lanes share it.
struct EvalJob {
    bench: Arc<Bench>,
    number: usize,
    step: u64,
    /// Samples of the split that take part.
    samples: u64,
    held: Vec<u32>,
    next: AtomicUsize,
    /// By batch, shard held and metric.
    shares: Mutex<Vec<Share>>,
}

impl EvalJob {
    fn evaluation(&self) -> Option<&Evaluation> {
        self.bench.plan.evals.get(self.number)
    }

    fn batches(&self) -> usize {
        self.samples.div_ceil(self.bench.plan.batch.max(1)) as usize
    }

    /// Takes shards of batches until none is left.
    fn run(&self, lane: &mut Lane) -> Result<(), WorkerError> {
        let Some(evaluation) = self.evaluation() else { return Ok(()) };
        let model = self.bench.model.read();
        let nodes = evaluation.program.graph.nodes.len();
        let (held, metrics) = (self.held.len(), evaluation.metrics.len());
        loop {
            let item = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&shard) = self.held.get(item.checked_rem(held).unwrap_or(0)) else {
                return Ok(());
            };
            if item >= self.batches() * held {
                return Ok(());
            }
            let failed = |source| self.collective("evaluate", source);
            lane.stop.check().and_then(|()| self.bench.stop.check()).map_err(failed)?;
            let batch = item / held;
            let positions = self.positions(batch as u64, shard);
            let samples = positions.end - positions.start;
            if samples == 0 {
                continue;
            }
            let Some(engine) = lane.evals.get_mut(self.number) else { return Ok(()) };
            let failed = |e: EngineError| self.failed(evaluation, shard, e);
            enter(Phase::Data);
            engine.load(&evaluation.name, Order::Stored, positions).map_err(failed)?;
            enter(Phase::Evaluate);
            engine.run(0..nodes, samples, &model.weights).map_err(failed)?;
            for (i, metric) in evaluation.metrics.iter().enumerate() {
                let share = engine.share(metric, samples, &model.weights).map_err(failed)?;
                let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(place) = shares.get_mut(item * metrics + i) {
                    *place = share;
                }
            }
        }
    }

    fn positions(&self, batch: u64, shard: u32) -> Range<u64> {
        let whole = batch_range(self.samples, self.bench.plan.batch, batch);
        let part = shard_range(whole.end - whole.start, self.bench.plan.shards, shard);
        whole.start + part.start..whole.start + part.end
    }

    fn failed(&self, evaluation: &Evaluation, shard: u32, error: EngineError) -> WorkerError {
        WorkerError::Task {
            step: self.step,
            task: format!("{}, shard {shard}", evaluation.name),
            message: error.message,
            span: error.span,
        }
    }

    fn collective(&self, task: &str, source: monarch_collective::CollectiveError) -> WorkerError {
        WorkerError::Collective { step: Some(self.step), task: task.into(), source }
    }

    /// Per shard held: numerator and denominator of every metric of every batch.
    fn scalars(&self, metrics: usize) -> Scalars {
        let shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.held.len();
        let of_shard = |shard: usize| {
            let items = (0..self.batches()).map(|batch| (batch * held + shard) * metrics);
            let shares = items.flat_map(|at| shares.get(at..at + metrics).unwrap_or_default());
            shares.flat_map(|s| [s.numerator, s.denominator]).collect()
        };
        Scalars { values: (0..held).map(of_shard).collect(), ..Scalars::default() }
    }
}

impl Worker {
    /// Runs evaluation `number` of the plan after `step` steps.
    pub(crate) fn evaluate(&mut self, number: u32, step: u64) -> Result<EvalReport, WorkerError> {
        let begun = now_ns();
        let bench = self.bench.clone();
        let unknown = || WorkerError::Protocol { what: format!("no evaluation {number}") };
        let evaluation = bench.plan.evals.get(number as usize).ok_or_else(unknown)?;
        let split = bench.plan.split(&evaluation.name).ok_or_else(unknown)?;
        let limit = evaluation.batches.map(|n| n.saturating_mul(bench.plan.batch));
        let samples = (split.end - split.start).min(limit.unwrap_or(u64::MAX));
        let metrics = evaluation.metrics.len();
        let mut job = EvalJob {
            bench: bench.clone(),
            number: number as usize,
            step,
            samples,
            held: bench.fold.layout().held().to_vec(),
            next: AtomicUsize::new(0),
            shares: Mutex::default(),
        };
        let items = job.batches() * job.held.len() * metrics;
        job.shares = Mutex::new(vec![Share::default(); items]);
        let job = Arc::new(job);
        let its_job = job.clone();
        let ran = self.crew.run(&bench.stop, Arc::new(move |lane| its_job.run(lane)));
        ran?;
        let sums = self.comm.scalars(&bench, step, job.scalars(metrics))?;
        let sums = sums.values.into_iter().next().unwrap_or_default();
        // Batches in order: the sum over a batch's shards has been made in the tree.
        let mut totals = vec![Share::default(); metrics];
        for batch in sums.chunks_exact(2 * metrics.max(1)) {
            for (total, sum) in totals.iter_mut().zip(batch.chunks_exact(2)) {
                total.numerator += sum[0];
                total.denominator += sum[1];
            }
        }
        let values = totals.iter().map(|t| t.numerator / t.denominator).collect();
        let nanoseconds = now_ns() - begun;
        Ok(EvalReport { step, evaluation: number, values, samples, nanoseconds })
    }
}
