//! The plan: all that a cluster needs to carry out a training job, and nothing it must guess.

use crate::{
    BucketId, DType, Float, Graph, NodeId, Optimizer, Schedule, Source, Span, TaskGraph, WeightId,
};
use wincode::{SchemaRead, SchemaWrite};

/// A training job, resolved: no names to look up, no value to be known later.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Plan {
    /// Name of the `train` block.
    pub name: String,
    /// Files that spans refer to: shown names, in order of their numbers.
    pub files: Vec<String>,
    pub seed: u64,
    pub weights: Vec<Weight>,
    pub data: Data,
    pub train: Training,
    /// At most one today; a list so that a job may evaluate on several sets.
    pub evals: Vec<Evaluation>,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
    /// Optimizer steps of the whole run.
    pub steps: u64,
    /// Samples of a full step, over all workers.
    pub batch: u64,
    /// Pieces into which each step's batch is cut; fixed by the program, never by the cluster.
    pub shards: u32,
    /// Skip the last, smaller batch of an epoch.
    pub drop_last: bool,
    pub buckets: Vec<Bucket>,
    pub tasks: TaskGraph,
    pub eval_every: Option<Every>,
    /// Evaluate whenever a checkpoint is saved.
    pub eval_after_checkpoint: bool,
    pub checkpoint: Option<CheckpointPolicy>,
    pub rules: Vec<Rule>,
    pub metrics: Metrics,
    /// Reductions start while backward goes on. Never changes a bit of the result.
    pub overlap: bool,
}

/// A named parameter tensor, float32 master copy.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Weight {
    /// Path in the model: `blocks.0.attn.qkv`.
    pub name: String,
    pub shape: Vec<u64>,
    /// Symbolic axes for people and for re-sharding: `["3", "D", "H", "K"]`.
    pub axes: Vec<String>,
    pub init: Init,
    /// False for frozen weights: no gradient, no update.
    pub trainable: bool,
    /// What the program stores it as. A device without this type holds f32 values that were
    /// rounded to it once, before the first step.
    pub stored: Float,
    /// Part of an adapter on a model: what `checkpoint { what = adapters }` saves.
    pub adapter: bool,
    pub span: Span,
}

impl Weight {
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Initial value of a weight. Random ones are functions of (seed, name, element).
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum Init {
    Zeros,
    Ones,
    Constant(f64),
    /// Mean 0, this standard deviation (Box-Muller over Philox).
    Normal(f64),
    /// Uniform in [-bound, bound).
    Uniform(f64),
    /// Normal, drawn again beyond two standard deviations.
    TruncatedNormal(f64),
    /// This times a matrix with orthonormal rows or columns, whichever are fewer; all axes but the
    /// last are one (Saxe et al. 2014).
    Orthogonal(f64),
    /// 1 where both indices are equal.
    Eye,
    /// Tensor `name` of a safetensors file (F64, F32, BF16 or F16, read as f32) of the same
    /// shape; with `transpose` a matrix whose rows and columns are exchanged.
    File {
        path: String,
        name: String,
        transpose: bool,
    },
}

/// A compiled program for one shard.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Program {
    pub graph: Graph,
    /// Columns that the program reads, in order of `Op::Column` numbers.
    pub columns: Vec<Column>,
    pub memory: MemoryPlan,
}

/// A column of the data set as a program reads it.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Column {
    pub name: String,
    pub dtype: DType,
    /// Lengths after the sample axis.
    pub shape: Vec<u64>,
    /// Ids must lie in 0..limit (a vocabulary, a number of classes), when known.
    pub below: Option<u64>,
    pub span: Span,
}

/// Where each node's result lies in the arena of a lane: planned once for the largest shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct MemoryPlan {
    /// Size of the arena in f32 elements, for a shard of `max_samples`.
    pub arena: u64,
    pub max_samples: u64,
    /// Per node: its place.
    pub places: Vec<Place>,
}

/// Where a node's result lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Place {
    /// Offset in the lane's arena, in f32 elements, a multiple of 16. It never overlaps the place
    /// of an input: kernels do not work in place.
    Arena(u64),
    /// The weight itself.
    Weight(u32),
    /// The column buffer of the shard.
    Column(u32),
    /// The gradient of a weight: written straight into the shard's gradient slab at this offset.
    Gradient(u64),
    /// Same memory as another node (a reshape).
    Alias(NodeId),
    /// Never computed (dead, or folded into its user).
    None,
}

/// The training program with its loss.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Training {
    pub program: Program,
    pub loss: Ratio,
    /// Nodes `0..forward` are the forward pass.
    pub forward: u32,
    /// Gradient of the loss's numerator for each weight, where it has one.
    pub gradients: Vec<Option<NodeId>>,
}

/// A mean over the whole batch: sums over shards of both, divided once.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Ratio {
    pub name: String,
    /// Tensor whose elements are summed (in f64, row-major order): the numerator of the shard.
    pub numerator: NodeId,
    pub denominator: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum Count {
    /// This many per sample.
    PerSample(u64),
    /// The sum of a tensor (weights of targets).
    Sum(NodeId),
}

/// Evaluation: every sample of a split exactly once (or the first `batches`), no update.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Evaluation {
    /// `eval`: metrics are reported as `eval.loss`, `eval.accuracy`.
    pub name: String,
    pub program: Program,
    pub metrics: Vec<Ratio>,
    /// Batches of `Plan::batch` samples; None for the whole split.
    pub batches: Option<u64>,
}

/// Bytes of gradient that travel together, in the order in which backward completes them.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Bucket {
    pub id: BucketId,
    /// First element in the gradient slab; a multiple of 16.
    pub start: u64,
    /// Elements, padding included; a multiple of 16.
    pub elements: u64,
    pub parts: Vec<Part>,
}

/// A weight's gradient within the slab. A weight is never split over buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Part {
    pub weight: WeightId,
    /// First element in the gradient slab (not in the bucket).
    pub start: u64,
    pub elements: u64,
}

/// The data set of a job.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Data {
    pub source: Source,
    /// Parts of the set, in order; `train` is one of them.
    pub splits: Vec<Split>,
    pub order: Order,
    pub span: Span,
}

/// Samples `start..end` of the set.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Split {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Order {
    /// A permutation per epoch, computed from (seed, epoch).
    Shuffled,
    /// As stored.
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Every {
    Steps(u64),
    /// Decided by the controller's clock; takes hold at a step that it names. Milliseconds.
    Time(u64),
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct CheckpointPolicy {
    pub every: Option<Every>,
    /// Also saved after every so many steps, and these are kept for good.
    pub also: Option<u64>,
    /// Saved with every evaluation.
    pub after_eval: bool,
    /// Newest whole ones kept.
    pub keep: u64,
    /// An evaluation that beats all before it is saved, and kept until it is beaten.
    pub best: Option<Best>,
    pub what: Contents,
    /// Training goes on while it is written. Never changes a bit of the result.
    pub background: bool,
    /// Directory; `{run.id}` is replaced when the run starts.
    pub to: String,
    pub span: Span,
}

impl Default for CheckpointPolicy {
    fn default() -> CheckpointPolicy {
        CheckpointPolicy {
            every: None,
            also: None,
            after_eval: false,
            keep: 3,
            best: None,
            what: Contents::All,
            background: true,
            to: "runs/{run.id}".to_owned(),
            span: Span::default(),
        }
    }
}

/// What makes one checkpoint better than another.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Best {
    /// A metric of an evaluation: `eval.loss`.
    pub metric: String,
    /// The smallest is the best, otherwise the largest.
    pub smallest: bool,
}

/// What a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Contents {
    /// All weights, and the optimizer's state.
    All,
    /// The weights that are trained, and their optimizer state: enough to go on, since the others
    /// are those that the job begins with.
    Adapters,
    /// All weights without the optimizer's state: to load elsewhere, not to go on.
    Weights,
}

/// What is recorded of steps.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Metrics {
    /// Steps: the last of each so many is recorded, and the last of the run.
    pub every: u64,
    /// Names of the language: `loss`, `tokens_per_s`; None for all.
    pub log: Option<Vec<String>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics { every: 1, log: None }
    }
}

impl Metrics {
    /// Whether a step with this number, of a run of so many, is recorded.
    pub fn records(&self, step: u64, steps: u64) -> bool {
        let done = step.saturating_add(1);
        done == steps || done.is_multiple_of(self.every.max(1))
    }

    /// Whether this number of a step is recorded.
    pub fn logs(&self, name: &str) -> bool {
        self.log.as_ref().is_none_or(|log| log.iter().any(|n| n == name))
    }
}

/// `on eval.accuracy(above = 98%) => stop`.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Rule {
    /// `eval.accuracy`, `eval.loss`, `loss`.
    pub metric: String,
    pub above: Option<f64>,
    pub below: Option<f64>,
    pub action: Action,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Action {
    Stop,
    Checkpoint,
}

impl Plan {
    /// f32 elements of the gradient slab.
    pub fn slab_elements(&self) -> u64 {
        self.buckets.last().map_or(0, |b| b.start + b.elements)
    }

    /// Samples of the split, if there is one of that name.
    pub fn split(&self, name: &str) -> Option<&Split> {
        self.data.splits.iter().find(|s| s.name == name)
    }

    /// Optimizer steps in one epoch of the `train` split.
    pub fn steps_per_epoch(&self) -> u64 {
        let n = self.split("train").map_or(0, |s| s.end - s.start);
        let batch = self.batch.max(1);
        if self.drop_last { n / batch } else { n.div_ceil(batch) }
    }
}
