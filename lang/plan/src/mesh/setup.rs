//! A job on declared machines as plain numbers: what a layout says once every unknown is settled.

use super::machines::{LATENCY, Machine, efficiency};
use super::shard::{Kind, Lengths, index, length};
use monarch_check::hir::{MeshAxis, Offload, Overlap, PipelineSchedule, Precision};

/// All that the model of a plan needs besides the graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setup {
    pub machine: Machine,
    /// Of one device, bytes.
    pub memory: u64,
    pub nodes: u32,
    /// Devices of a node.
    pub per_node: u32,
    /// Bytes a second and device, one direction.
    pub intra: f64,
    pub inter: f64,
    pub lengths: Lengths,
    pub shard: Vec<(String, MeshAxis)>,
    pub sequence: Option<MeshAxis>,
    /// Path of the repeated sublayer that stages share, and how often it is repeated.
    pub split: Option<(String, u64)>,
    pub schedule: PipelineSchedule,
    pub microbatches: u64,
    /// 0: every replica holds all.
    pub zero: u8,
    /// Paths of the layers that are computed again.
    pub recompute: Vec<String>,
    pub offload: Offload,
    pub precision: Precision,
    pub overlap: Overlap,
    /// Samples of a step, over all devices.
    pub batch: u64,
    pub tokens_per_sample: u64,
    pub steps: u64,
    /// State tensors that the optimizer keeps per weight.
    pub slots: u64,
}

/// Devices along one axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    pub ranks: u64,
    /// Bytes a second and device, one direction.
    pub rate: f64,
    /// Whether its devices lie in several nodes.
    pub crosses: bool,
}

impl Setup {
    pub fn devices(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.per_node)
    }

    pub fn length(&self, axis: MeshAxis) -> u64 {
        length(&self.lengths, axis)
    }

    pub fn stages(&self) -> u64 {
        self.length(MeshAxis::Pp)
    }

    /// Copies of the model that see different data.
    pub fn replicas(&self) -> u64 {
        self.length(MeshAxis::Dp)
    }

    /// Samples of a micro-batch, if the batch divides.
    pub fn micro_samples(&self) -> Option<u64> {
        let pieces = self.replicas().checked_mul(self.microbatches)?;
        let whole = pieces > 0 && self.batch.is_multiple_of(pieces);
        (whole && self.batch >= pieces).then(|| self.batch / pieces)
    }

    /// Devices of `axis` that work together: neighbours in the order pp, dp, cp, ep, tp.
    pub fn group(&self, axis: MeshAxis) -> Group {
        let ranks = self.length(axis);
        let faster = MeshAxis::ALL.iter().skip(index(axis) + 1);
        let stride: u64 = faster.map(|a| self.length(*a)).product();
        self.strided(ranks, stride)
    }

    /// The devices that add their gradients up: all replicas and parts of a sequence.
    pub fn gradient_group(&self) -> Group {
        let faster = MeshAxis::ALL.iter().skip(index(MeshAxis::Cp) + 1);
        let stride: u64 = faster.map(|a| self.length(*a)).product();
        self.strided(self.replicas() * self.length(MeshAxis::Cp), stride)
    }

    fn strided(&self, ranks: u64, stride: u64) -> Group {
        let per_node = u64::from(self.per_node.max(1));
        let crosses = ranks * stride > per_node;
        // Members of a node use their own network cards side by side.
        let rails = (per_node / stride.max(1)).clamp(1, ranks.max(1)) as f64;
        let rate = if crosses { self.intra.min(self.inter * rails) } else { self.intra };
        Group { ranks, rate, crosses }
    }

    /// Bytes of an element of weights and activations.
    pub fn width(&self) -> u64 {
        self.precision.weights.bytes()
    }
}

impl Group {
    /// Bytes that each device sends for a collective over a tensor of `bytes`.
    pub fn sent(&self, kind: Kind, bytes: f64) -> f64 {
        let others = (self.ranks.max(1) - 1) as f64 / self.ranks.max(1) as f64;
        match kind {
            Kind::AllReduce => 2.0 * others * bytes,
            Kind::AllGather | Kind::ReduceScatter => others * bytes,
        }
    }

    /// Seconds of a collective: a latency, and the bytes of a ring at what messages of this size
    /// reach of the link.
    pub fn seconds(&self, kind: Kind, bytes: f64) -> f64 {
        if self.ranks < 2 || bytes <= 0.0 {
            return 0.0;
        }
        let rounds = (self.ranks as f64).log2().max(1.0);
        LATENCY * rounds + self.sent(kind, bytes) / (self.rate * efficiency(bytes))
    }

    /// Seconds from one device to the next.
    pub fn send_seconds(&self, bytes: f64) -> f64 {
        if self.ranks < 2 {
            return 0.0;
        }
        LATENCY + bytes / (self.rate * efficiency(bytes))
    }
}
