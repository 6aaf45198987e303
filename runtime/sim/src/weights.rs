//! Training with hashes in place of numbers: a shard left out, counted twice, of other weights or
//! of another step changes the bits of all that follows.

use crate::rng::mix;
use crate::schedule::Job;

/// Most shards of a simulated job.
pub const SHARDS: usize = 8;

/// Weights before the first step.
pub fn initial(seed: u64) -> u64 {
    mix(seed, 0x5eed)
}

/// Gradient of one shard.
pub fn gradient(weights: u64, step: u64, shard: u32) -> u64 {
    mix(mix(weights, step), u64::from(shard))
}

/// Sum over all shards in the one fixed binary tree.
pub fn sum(shards: &[u64]) -> u64 {
    match shards {
        [] => 0,
        [one] => *one,
        many => {
            let (left, right) = many.split_at(many.len().next_power_of_two() / 2);
            mix(sum(left), sum(right))
        }
    }
}

/// Weights after a step.
pub fn update(weights: u64, gradients: u64, step: u64) -> u64 {
    mix(mix(weights, gradients), step)
}

/// In 0..1.
pub fn unit(bits: u64) -> f64 {
    (bits >> 12) as f64 / (1u64 << 52) as f64
}

/// Loss of a step from the sum of its gradients.
pub fn loss(gradients: u64) -> f64 {
    unit(mix(gradients, 0x1055))
}

/// Part of one shard in an evaluation.
pub fn score(weights: u64, step: u64, shard: u32) -> u64 {
    mix(gradient(weights, step, shard), 0xe7a1)
}

/// What an evaluation says.
pub fn accuracy(scores: u64) -> f64 {
    unit(mix(scores, 0xacc))
}

/// A run that nothing disturbs.
#[derive(Clone, Debug)]
pub struct Quiet {
    /// After so many steps.
    pub weights: Vec<u64>,
    pub losses: Vec<f64>,
    /// After so many steps.
    pub accuracy: Vec<f64>,
    /// Where the run ends by the job and its rules.
    pub end: u64,
}

impl Quiet {
    pub fn of(job: &Job) -> Quiet {
        let mut weights = vec![initial(job.seed)];
        let (mut losses, mut scores) = (Vec::new(), Vec::new());
        let all = |of: &dyn Fn(u32) -> u64| sum(&(0..job.shards).map(of).collect::<Vec<_>>());
        for step in 0..=job.steps {
            let now = weights.last().copied().unwrap_or_default();
            scores.push(accuracy(all(&|v| score(now, step, v))));
            let gradients = all(&|v| gradient(now, step, v));
            losses.push(loss(gradients));
            weights.push(update(now, gradients, step));
        }
        let stops = |edge: &u64| {
            let value = scores.get(*edge as usize).copied().unwrap_or(0.0);
            job.evaluates_by_step(*edge) && job.stop_above.is_some_and(|limit| value > limit)
        };
        let end = (1..=job.steps).find(stops).unwrap_or(job.steps);
        Quiet { weights, losses, accuracy: scores, end }
    }
}
