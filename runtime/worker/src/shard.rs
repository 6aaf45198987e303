//! One shard on one lane: load, compute, fold.

use crate::WorkerError;
use crate::engine::{Engine, EngineError, Share};
use crate::setup::Bench;
use crate::step::{Spent, StepJob};
use crate::trace::{Spans, now_ns};
use monarch_collective::{CollectiveError, Stop};
use monarch_data::Order;
use monarch_device::Weights;
use monarch_graph::{Draw, Task, TaskKind, shard_range};
use monarch_pulse::{Phase, enter};
use std::ops::Range;

/// Name of the split that training reads.
pub(crate) const TRAIN: &str = "train";

/// How long a shard that has been begun may still take when members change.
const LINGER_NS: u64 = 2_000_000_000;

/// A thread's own memory for all programs.
pub(crate) struct Lane {
    pub(crate) number: usize,
    pub(crate) stop: Stop,
    pub(crate) train: Engine,
    pub(crate) evals: Vec<Engine>,
}

impl Lane {
    pub(crate) fn bytes(&self) -> u64 {
        self.train.bytes() + self.evals.iter().map(Engine::bytes).sum::<u64>()
    }

    /// Takes shards of the step until none is left.
    pub(crate) fn train(&mut self, bench: &Bench, job: &StepJob) -> Result<(), WorkerError> {
        let model = bench.model.read();
        let mut work = Work {
            bench,
            job,
            weights: &model.weights,
            spans: Spans::new(job.traced, self.number.to_string()),
            spent: Spent::default(),
        };
        // What has been begun is brought to an end also when members change: it is kept.
        while !bench.stop.is_set()
            && let Some(shard) = bench.fold.next_shard()
        {
            if !work.shard(self, shard)? {
                break;
            }
        }
        job.lane_done(work.spent, work.spans.take());
        Ok(())
    }
}

/// As it is shown to whoever watches. Folding waits for others' memory.
fn at(task: &Task) -> Phase {
    match task.kind {
        TaskKind::LoadBatch => Phase::Data,
        TaskKind::Compute { .. } => Phase::Compute,
        _ => Phase::Waiting,
    }
}

/// What a lane needs for a step.
struct Work<'a> {
    bench: &'a Bench,
    job: &'a StepJob,
    weights: &'a Weights,
    spans: Spans,
    spent: Spent,
}

impl Work<'_> {
    /// Computes a shard; false when the others had to be kept waiting for too long.
    fn shard(&mut self, lane: &mut Lane, shard: u32) -> Result<bool, WorkerError> {
        let positions = self.positions(shard);
        let samples = positions.end - positions.start;
        let first = positions.start - self.job.at.first;
        lane.train.draw(Draw { seed: self.bench.plan.seed, step: self.job.step, first });
        if samples == 0 {
            lane.train.clear();
            self.job.shard_done(shard, Share::default());
        }
        let tasks = &self.bench.tasks;
        let mut stopped_ns = None;
        for (i, task) in tasks.shard.iter().enumerate() {
            lane.stop.check().map_err(|e| self.collective(task, e))?;
            let start_ns = now_ns();
            if self.bench.stop.is_set()
                && start_ns.saturating_sub(*stopped_ns.get_or_insert(start_ns)) > LINGER_NS
            {
                return Ok(false);
            }
            enter(at(task));
            match task.kind {
                TaskKind::LoadBatch if samples > 0 => {
                    let order = Order::Epoch(self.job.at.epoch);
                    let loaded = lane.train.load(TRAIN, order, positions.clone());
                    loaded.map_err(|e| self.failed(task, shard, e))?;
                    self.spent.load_ns += now_ns() - start_ns;
                }
                TaskKind::Compute { start, end } if samples > 0 => {
                    let nodes = start as usize..end as usize;
                    let done = lane.train.run(nodes, samples, self.weights);
                    done.map_err(|e| self.failed(task, shard, e))?;
                    match i <= tasks.loss_after {
                        true => self.spent.forward_ns += now_ns() - start_ns,
                        false => self.spent.backward_ns += now_ns() - start_ns,
                    }
                }
                TaskKind::Fold { bucket } => self.fold(lane, task, shard, bucket.index())?,
                _ => continue,
            }
            self.spans.add(&task.name, start_ns, now_ns(), 0);
            if samples > 0 && i == tasks.loss_after {
                let loss = &self.bench.plan.train.loss;
                let share = lane.train.share(loss, samples, self.weights);
                let share = share.map_err(|e| self.failed(task, shard, e))?;
                self.job.shard_done(shard, share);
            }
        }
        self.job.shard_computed();
        Ok(true)
    }

    /// Positions in the epoch's order of a shard's samples.
    fn positions(&self, shard: u32) -> Range<u64> {
        let at = self.job.at;
        let range = shard_range(at.count, self.bench.plan.shards, shard);
        at.first + range.start..at.first + range.end
    }

    fn fold(&self, lane: &Lane, task: &Task, shard: u32, bucket: usize) -> Result<(), WorkerError> {
        let fold = &self.bench.fold;
        let range = fold.layout().start(bucket)..fold.layout().start(bucket + 1);
        let values = lane.train.gradients().get(range);
        let short = || CollectiveError::Layout(format!("bucket {bucket} lies outside the slab"));
        let done = values.ok_or_else(short).and_then(|v| fold.hand_in(shard, bucket, v));
        done.map_err(|e| self.collective(task, e))
    }

    fn failed(&self, task: &Task, shard: u32, error: EngineError) -> WorkerError {
        let span = error.span.unwrap_or(match task.kind {
            TaskKind::LoadBatch => self.bench.plan.data.span,
            _ => task.span,
        });
        WorkerError::Task {
            step: self.job.step,
            task: format!("{}, shard {shard}", task.name),
            message: error.message,
            span: Some(span),
        }
    }

    fn collective(&self, task: &Task, source: CollectiveError) -> WorkerError {
        WorkerError::Collective { step: Some(self.job.step), task: task.name.clone(), source }
    }
}
