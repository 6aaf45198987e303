//! Which samples a step trains on.

use monarch_graph::Plan;
use std::ops::Range;

/// The global batch of an optimizer step: `count` samples of `epoch`, from position `first` in
/// that epoch's order. Also the data position that a checkpoint records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub epoch: u64,
    pub first: u64,
    pub count: u64,
}

impl Position {
    /// Positions in the epoch's order.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + self.count
    }
}

/// The samples of optimizer step `step` (counted from 0). The last batch of an epoch is smaller,
/// or left out when the plan says `drop_last`.
///
/// None when an epoch has no step: no `train` split, an empty one, or one smaller than a batch of
/// a plan that drops the last.
pub fn position(plan: &Plan, step: u64) -> Option<Position> {
    let split = plan.split("train")?;
    let samples = split.end.saturating_sub(split.start);
    let per_epoch = plan.steps_per_epoch();
    if per_epoch == 0 {
        return None;
    }
    let range = batch_range(samples, plan.batch, step % per_epoch);
    Some(Position { epoch: step / per_epoch, first: range.start, count: range.end - range.start })
}

/// Batch `index` of `samples` samples, in order; the last one is smaller, those beyond it empty.
/// Evaluation takes batches in this way, so each sample is counted exactly once.
pub fn batch_range(samples: u64, batch: u64, index: u64) -> Range<u64> {
    let start = index.saturating_mul(batch.max(1)).min(samples);
    start..start.saturating_add(batch.max(1)).min(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use monarch_graph as g;

    fn plan(samples: u64, batch: u64, drop_last: bool) -> Plan {
        let program = g::Program {
            graph: g::Graph::default(),
            columns: Vec::new(),
            memory: g::MemoryPlan::default(),
        };
        Plan {
            name: "t".into(),
            files: Vec::new(),
            seed: 0,
            weights: Vec::new(),
            data: g::Data {
                source: g::Source::Digits,
                splits: vec![g::Split { name: "train".into(), start: 0, end: samples }],
                order: g::Order::Shuffled,
                span: g::Span::default(),
            },
            train: g::Training {
                program,
                loss: g::Ratio {
                    name: "loss".into(),
                    numerator: g::NodeId(0),
                    denominator: g::Count::PerSample(1),
                },
                forward: 0,
                gradients: Vec::new(),
            },
            evals: Vec::new(),
            optimizer: g::Optimizer {
                kind: g::OptimizerKind::Sgd { momentum: 0.0, decay: 0.0, nesterov: false },
                clip: None,
                decay_on: Default::default(),
            },
            schedule: g::Schedule { pieces: Vec::new() },
            steps: 10,
            batch,
            shards: 8,
            drop_last,
            buckets: Vec::new(),
            tasks: g::TaskGraph::default(),
            eval_every: None,
            eval_after_checkpoint: false,
            checkpoint: None,
            rules: Vec::new(),
            metrics: Default::default(),
            overlap: true,
        }
    }

    #[test]
    fn every_sample_once_per_epoch() {
        for samples in 1..50 {
            for batch in 1..20 {
                let plan = plan(samples, batch, false);
                let steps = plan.steps_per_epoch();
                let mut seen = 0;
                for step in 0..2 * steps {
                    let at = position(&plan, step).unwrap();
                    assert_eq!(at.epoch, step / steps);
                    if step % steps == 0 {
                        seen = 0;
                    }
                    assert_eq!(at.first, seen);
                    assert!(at.count >= 1 && at.count <= batch);
                    seen = at.range().end;
                    if (step + 1) % steps == 0 {
                        assert_eq!(seen, samples);
                    }
                }
            }
        }
    }

    #[test]
    fn drop_last_keeps_batches_whole() {
        let plan = plan(10, 4, true);
        let at: Vec<_> = (0..4).map(|s| position(&plan, s).unwrap()).collect();
        assert!(at.iter().all(|p| p.count == 4));
        assert_eq!((at[2].epoch, at[2].first), (1, 0));
        assert_eq!(position(&self::plan(3, 4, true), 0), None);
        assert_eq!(position(&self::plan(0, 4, false), 0), None);
    }

    #[test]
    fn batches_beyond_the_end_are_empty() {
        assert_eq!(batch_range(10, 4, 2), 8..10);
        assert_eq!(batch_range(10, 4, 3), 10..10);
        assert_eq!(batch_range(10, 0, u64::MAX), 10..10);
    }
}
