//! What each stage's devices hold.

use super::profile::{Profile, Segment};
use super::setup::Setup;
use super::shard::Sharded;
use super::traced::Traced;
use monarch_check::hir::Float;
use monarch_graph::{Op, Weight};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes on one device of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageMemory {
    pub weights: u64,
    pub gradients: u64,
    /// Moments, and a master copy of narrow weights.
    pub optimizer: u64,
    /// Kept from forward to backward, of all micro-batches in flight.
    pub activations: u64,
    /// Kept logits and what the loss needs for a moment.
    pub logits: u64,
    /// A recomputed layer's activations, and the largest tensor with its gradient.
    pub workspace: u64,
    /// Buckets, gathered tensors, what is sent to other stages.
    pub buffers: u64,
    /// In the host's memory, not counted in the total.
    pub offloaded: u64,
}

impl StageMemory {
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("logits", self.logits),
            ("workspace", self.workspace),
            ("buffers", self.buffers),
        ]
    }

    /// Weights, gradients and optimizer.
    pub fn state(&self) -> u64 {
        self.weights + self.gradients + self.optimizer
    }
}

/// Weights of a stage on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Elements, of all weights and of those that are trained.
    pub all: u64,
    /// Bytes of all: frozen weights in the type that the program stores them in.
    pub bytes: u64,
    pub trained: u64,
    /// Elements of the largest segment's weights: what ZeRO 3 gathers at once.
    pub largest: u64,
}

/// Parts into which each weight is divided, by number.
pub(crate) fn weight_parts(traced: &Traced, sharded: &Sharded, weights: usize) -> Vec<u64> {
    let mut out = vec![1; weights];
    for (i, node) in traced.graph.nodes.iter().enumerate() {
        if let Op::Weight(w) = node.op
            && let Some(parts) = out.get_mut(w as usize)
        {
            *parts = sharded.parts[i].max(1);
        }
    }
    out
}

pub(crate) fn held(
    segments: &[Segment],
    weights: &[Weight],
    parts: &[u64],
    trained: &[bool],
    width: u64,
) -> Held {
    let size = |w: u32| {
        let elements = weights.get(w as usize).map_or(0, Weight::elements);
        elements.div_ceil(parts.get(w as usize).copied().unwrap_or(1))
    };
    let all: BTreeSet<u32> = segments.iter().flat_map(|s| s.weights.iter().copied()).collect();
    let is_trained = |w: &u32| trained.get(*w as usize) == Some(&true);
    let stored = |w: u32| match weights.get(w as usize) {
        Some(weight) if !is_trained(&w) => weight.stored.bytes().min(width),
        _ => width,
    };
    Held {
        all: all.iter().map(|&w| size(w)).sum(),
        bytes: all.iter().map(|&w| size(w) * stored(w)).sum(),
        trained: all.iter().filter(|w| is_trained(w)).map(|&w| size(w)).sum(),
        largest: segments
            .iter()
            .map(|s| s.weights.iter().map(|&w| size(w)).sum())
            .max()
            .unwrap_or(0),
    }
}

/// Bytes of optimizer state per trained weight: its moments, and a master copy if the weights
/// that compute are narrower.
pub(crate) fn state_width(setup: &Setup) -> u64 {
    let width = setup.precision.optimizer.bytes();
    let master = setup.precision.weights != Float::F32 && width > setup.width();
    setup.slots * width + if master { width } else { 0 }
}

/// Memory of the stage that holds `range`, with `in_flight` micro-batches at once.
pub(crate) fn memory(
    profile: &Profile,
    range: Range<usize>,
    held: Held,
    in_flight: f64,
    bucket: u64,
    setup: &Setup,
) -> StageMemory {
    let segments = profile.segments.get(range.clone()).unwrap_or(&[]);
    let (width, grads) = (setup.width(), setup.precision.grads.bytes());
    let replicas = setup.replicas().max(1);
    let divide = |bytes: u64, from: u8| match setup.zero >= from {
        true => bytes.div_ceil(replicas),
        false => bytes,
    };
    let times = |bytes: u64| (bytes as f64 * in_flight).round() as u64;
    let most = |of: fn(&Segment) -> u64| segments.iter().map(of).max().unwrap_or(0);
    let state = divide(held.trained * state_width(setup), 1);
    let mut buffers = most(|s| s.gathered);
    if setup.gradient_group().ranks > 1 {
        // One bucket is filled while another is on its way.
        buffers += 2 * bucket.min(held.trained * grads);
    }
    if setup.zero >= 3 && replicas > 1 {
        // The layer at hand and the next one.
        buffers += 2 * held.largest * width;
    }
    for cut in [range.start.checked_sub(1), Some(range.end.saturating_sub(1))] {
        let crossing = cut.and_then(|c| profile.boundaries.get(c));
        buffers += 2 * crossing.copied().filter(|_| setup.stages() > 1).unwrap_or(0);
    }
    StageMemory {
        weights: divide(held.bytes, 3),
        gradients: divide(held.trained * grads, 2),
        optimizer: if setup.offload.optimizer { 0 } else { state },
        activations: times(segments.iter().map(|s| s.kept).sum()),
        logits: times(segments.iter().map(|s| s.logits).sum())
            + segments.iter().map(|s| s.loss_work).sum::<u64>(),
        workspace: most(|s| s.brought_back) + most(|s| s.largest),
        buffers,
        offloaded: if setup.offload.optimizer { state } else { 0 },
    }
}
