//! Declared machines, and how a job is laid out on them.

pub use monarch_graph::Float;
use monarch_graph::Span;

/// `device = MI300X { count = 8, memory = 192 GiB }`: what each node has.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// As the cost model's table calls it: `MI300X`, `H100`, `CPU`.
    pub kind: String,
    /// Devices of one node.
    pub count: u32,
    /// Of one device; the table's figure if the program does not say.
    pub memory_bytes: Option<u64>,
    pub span: Span,
    /// Of `memory = ..`, if it is written.
    pub memory_span: Option<Span>,
}

/// `link = { intra = 448 GB/s, inter = 50 GB/s }`, in bytes a second and device, one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// Between the devices of one node.
    pub intra: Option<f64>,
    /// Between nodes.
    pub inter: Option<f64>,
    pub span: Span,
}

/// Where the cluster's key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// `key = "cluster.key"`
    File(String),
    /// `key = env("MONARCH_KEY")`: the variable holds the key itself. Read when a run begins and
    /// never before.
    Env { name: String, span: Span },
}

/// An axis of the mesh of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MeshAxis {
    /// Pipeline stages.
    Pp,
    /// Data parallel: replicas.
    Dp,
    /// Context parallel: parts of a sequence.
    Cp,
    /// Expert parallel.
    Ep,
    /// Tensor parallel: parts of a layer.
    Tp,
}

impl MeshAxis {
    /// From the slowest links to the fastest: neighbours along `tp` are neighbours in a node.
    pub const ALL: [MeshAxis; 5] =
        [MeshAxis::Pp, MeshAxis::Dp, MeshAxis::Cp, MeshAxis::Ep, MeshAxis::Tp];

    pub fn name(self) -> &'static str {
        match self {
            MeshAxis::Pp => "pp",
            MeshAxis::Dp => "dp",
            MeshAxis::Cp => "cp",
            MeshAxis::Ep => "ep",
            MeshAxis::Tp => "tp",
        }
    }
}

/// A block `plan name on cluster { .. }`. What it says is consistent with itself (axes are in
/// the mesh, paths match layers); whether it fits the job and the devices is settled by the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub name: String,
    /// Of the block's header.
    pub span: Span,
    /// Index into [`super::Program::clusters`].
    pub cluster: Option<usize>,
    pub mesh: Mesh,
    pub shard: Vec<Sharding>,
    /// Of the block `shard`, if it is written.
    pub shard_span: Option<Span>,
    /// `sequence = tp`: activations outside attention and MLP are split over this axis.
    pub sequence: Option<(MeshAxis, Span)>,
    pub pipeline: Option<Pipeline>,
    pub zero: Option<Zero>,
    /// Instances whose activations are computed again in backward: patterns, and the paths
    /// (`blocks.0.attn`) that each matched in the job's model.
    pub recompute: Vec<Recompute>,
    pub offload: Offload,
    pub precision: Precision,
    pub overlap: Overlap,
}

/// `mesh = { pp = 2, dp = _, tp = 4 }`
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// In the order written; an axis that is not listed has length 1.
    pub axes: Vec<MeshLength>,
    pub span: Span,
}

/// One axis of a mesh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeshLength {
    pub axis: MeshAxis,
    /// None for `_`: whatever makes the product the number of devices.
    pub length: Option<u32>,
    /// Of `pp = 2`.
    pub span: Span,
}

/// `H -> tp`: an axis of the model's tensors is divided over an axis of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharding {
    /// A name of the glossary: `B`, `T`, `H`, `G`, `F`, `V`, `E`.
    pub axis: String,
    pub over: MeshAxis,
    pub span: Span,
}

/// `pipeline { split = llm.blocks, over = pp, schedule = "1f1b", microbatches = 16 }`
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Path of the repeated sublayer in the job's model: `blocks`.
    pub split: String,
    pub over: MeshAxis,
    pub schedule: PipelineSchedule,
    /// Micro-batches of a step; None: as the batch or `accumulate` says.
    pub microbatches: Option<u64>,
    pub span: Span,
    /// Of the setting `microbatches`.
    pub microbatches_span: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// All forwards, then all backwards (Huang et al. 2019, GPipe).
    GPipe,
    /// One forward, one backward (Narayanan et al. 2021, PipeDream-Flush).
    OneFOneB,
    /// `"interleaved"`: each device holds this many chunks of the model (Narayanan et al. 2021).
    Interleaved { chunks: u32 },
    /// `"zb-h1"`: backward split in two, at 1F1B's memory (Qi et al. 2023).
    ZeroBubbleH1,
}

/// `zero { stage = 1, over = dp }`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zero {
    /// 1: optimizer state; 2: gradients too; 3: weights too (Rajbhandari et al. 2019).
    pub stage: u8,
    pub over: MeshAxis,
    /// From `zero` to the end of `stage = 1`.
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recompute {
    pub pattern: String,
    pub paths: Vec<String>,
    pub span: Span,
}

/// `offload = { optimizer = never }`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offload {
    /// Whether the optimizer's state lives in the host's memory.
    pub optimizer: bool,
}

/// `precision = { weights = bf16, grads = f32, optimizer = f32 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Of weights and activations in forward and backward.
    pub weights: Float,
    pub grads: Float,
    /// Of the optimizer's moments; with narrower weights also of their master copy.
    pub optimizer: Float,
}

impl Default for Precision {
    fn default() -> Precision {
        Precision { weights: Float::F32, grads: Float::F32, optimizer: Float::F32 }
    }
}

/// `overlap { grads = buckets(64 MiB), tp = true, exact = false }`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// Whether gradients are reduced under backward.
    pub grads: bool,
    /// Size of a bucket of gradients; None: chosen by the plan.
    pub bucket_bytes: Option<u64>,
    /// Whether the collectives of tensor parallelism run under compute.
    pub tp: bool,
    /// Sum in the fixed order (the same bits for any number of ranks) or as the library likes.
    pub exact: bool,
}

impl Default for Overlap {
    fn default() -> Overlap {
        Overlap { grads: true, bucket_bytes: None, tp: false, exact: true }
    }
}
