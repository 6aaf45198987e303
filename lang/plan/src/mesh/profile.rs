//! What one micro-batch costs each piece of the model: the part before the split, every block,
//! the part after it. Read off the divided graph.
//!
//! Conventions
//! - A multiplication and an addition are two operations. Scores of attention that a causal mask
//!   hides are not counted, nor computed: half of them.
//! - Chains of elementwise operations and row statistics are one kernel: what lies inside a chain
//!   is neither written to memory nor kept, and backward computes it again from the chain's
//!   inputs.
//! - On devices with fused attention no tensor of scores is kept; backward computes the scores
//!   again from queries and keys, and a number per row is kept.

use super::facts::Facts;
use super::setup::Setup;
use super::shard::{Collective, Sharded};
use super::traced::Traced;
use crate::cost::node_work;
use monarch_check::hir::MeshAxis;
use monarch_graph::{DType, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Work of one micro-batch on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub flops: f64,
    /// Without collectives.
    pub seconds: f64,
    /// Of collectives within the micro-batch.
    pub collectives: f64,
}

impl Cost {
    pub fn add(&mut self, other: &Cost) {
        self.flops += other.flops;
        self.seconds += other.seconds;
        self.collectives += other.collectives;
    }
}

/// A piece of the model that stays on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Segment {
    pub forward: Cost,
    /// Backward up to the gradient of the segment's input, and what only weights need.
    pub input_grad: Cost,
    pub weight_grad: Cost,
    /// Forward work done a second time, at the beginning of backward.
    pub again: Cost,
    /// Bytes kept from forward to backward.
    pub kept: u64,
    /// Largest set of bytes that a recomputed layer brings back at once.
    pub brought_back: u64,
    /// Logits kept, and what their loss needs for a moment.
    pub logits: u64,
    pub loss_work: u64,
    /// The largest tensor and its gradient.
    pub largest: u64,
    /// Largest gathered tensor.
    pub gathered: u64,
    /// Numbers of the weights used.
    pub weights: BTreeSet<u32>,
    /// Bytes of those weights on one device.
    pub weight_bytes: u64,
    /// Bytes sent per device, by mesh axis.
    pub sent: BTreeMap<MeshAxis, f64>,
}

/// All segments, and totals over the devices.
pub(crate) struct Profile {
    pub segments: Vec<Segment>,
    /// Bytes that cross from each segment to the next, per device and micro-batch.
    pub boundaries: Vec<u64>,
    /// Operations that the model asks for, for one sample, all devices: forward and backward.
    pub model_flops: f64,
    /// The same for attention's scores alone.
    pub attention_flops: f64,
}

/// Profiles a micro-batch of `samples`.
pub(crate) fn profile(
    (traced, facts): (&Traced, &Facts),
    sharded: &Sharded,
    setup: &Setup,
    samples: u64,
) -> Profile {
    let mut p = Profiler::new((traced, facts), sharded, setup, samples);
    for &(weight, user) in &facts.weights {
        if p.at(user).weights.insert(weight) {
            let bytes = p.weight_bytes(user, weight);
            p.at(user).weight_bytes += bytes;
        }
    }
    for node in 0..traced.graph.nodes.len() {
        if traced.live[node] {
            p.count(node);
        }
    }
    for collective in &sharded.collectives {
        p.communicate(collective);
    }
    p.keep();
    let boundaries = p.boundaries();
    let (model_flops, attention_flops) = (p.model_flops, p.attention_flops);
    Profile { segments: p.segments, boundaries, model_flops, attention_flops }
}

struct Profiler<'a> {
    traced: &'a Traced,
    facts: &'a Facts,
    sharded: &'a Sharded,
    setup: &'a Setup,
    samples: u64,
    /// Per node of the forward half.
    segment: Vec<usize>,
    /// Per node of the forward half: the recomputed layer that it is in.
    region: Vec<Option<usize>>,
    /// Regions of which backward needs something.
    active: BTreeSet<usize>,
    segments: Vec<Segment>,
    model_flops: f64,
    attention_flops: f64,
}

impl<'a> Profiler<'a> {
    fn new(
        (traced, facts): (&'a Traced, &'a Facts),
        sharded: &'a Sharded,
        setup: &'a Setup,
        samples: u64,
    ) -> Profiler<'a> {
        let (segment, count) = segments(traced, setup);
        let region = regions(traced, &setup.recompute);
        let mut p = Profiler {
            traced,
            facts,
            sharded,
            setup,
            samples,
            segment,
            region,
            active: BTreeSet::new(),
            segments: vec![Segment::default(); count],
            model_flops: 0.0,
            attention_flops: 0.0,
        };
        p.find_active();
        p
    }

    fn at(&mut self, node: usize) -> &mut Segment {
        let segment = self.segment.get(self.traced.origin(node)).copied().unwrap_or(0);
        let last = self.segments.len() - 1;
        &mut self.segments[segment.min(last)]
    }

    fn flash(&self, node: usize) -> bool {
        self.setup.machine.flash && self.facts.scores[node]
    }

    /// Bytes of a node's part on one device.
    fn bytes(&self, node: usize) -> u64 {
        let n = &self.traced.graph.nodes[node];
        let width = if n.dtype == DType::I32 { 4 } else { self.setup.width() };
        let elements = n.shape.elements(self.samples) / self.sharded.parts[node].max(1);
        elements.saturating_mul(width)
    }

    fn weight_bytes(&self, user: usize, weight: u32) -> u64 {
        let inputs = self.traced.graph.nodes[user].inputs.iter();
        let mut of = inputs.filter(|i| self.traced.graph.node(**i).op == Op::Weight(weight));
        of.next().map_or(0, |i| self.bytes(i.index()))
    }

    /// Bytes that an operation moves to and from memory.
    fn traffic(&self, node: usize) -> u64 {
        let n = &self.traced.graph.nodes[node];
        let mut bytes =
            if self.facts.inner[node] || self.flash(node) { 0 } else { self.bytes(node) };
        for input in &n.inputs {
            let base = self.traced.base(input.index());
            let op = &self.traced.graph.nodes[base].op;
            if !(self.facts.inner[base] || self.flash(base) || matches!(op, Op::Const(_))) {
                bytes += self.bytes(base);
            }
        }
        bytes
    }

    fn count(&mut self, node: usize) {
        let n = &self.traced.graph.nodes[node];
        if n.inputs.is_empty() || matches!(n.op, Op::Reshape | Op::Permute(_)) {
            return;
        }
        let attends =
            self.facts.scores[node] || n.inputs.iter().any(|i| self.facts.scores[i.index()]);
        let hidden =
            self.facts.masked[node] || n.inputs.iter().any(|i| self.facts.masked[i.index()]);
        let share = if hidden { 0.5 } else { 1.0 };
        let one = node_work(&self.traced.graph, n, 1).flops * share;
        let all = node_work(&self.traced.graph, n, self.samples).flops * share;
        self.model_flops += one;
        if attends {
            self.attention_flops += one;
        }
        let flops = all / self.sharded.work[node].max(1) as f64;
        let machine = &self.setup.machine;
        let share = if attends { machine.attention_share } else { 1.0 };
        let rate = machine.achieved(self.setup.precision.weights) * share;
        let moved = match attends && machine.flash && !matches!(n.op, Op::Einsum(_)) {
            true => 0.0,
            false => self.traffic(node) as f64 / (machine.bandwidth * machine.bandwidth_share),
        };
        let cost = Cost { flops, seconds: f64::max(flops / rate, moved), collectives: 0.0 };
        let (backward, weights) = (node >= self.traced.forward, self.facts.weight_only[node]);
        let again = !backward && self.region[node].is_some_and(|r| self.active.contains(&r));
        // Fused attention computes the scores again in backward.
        let again = again || (!backward && self.flash(node) && flops > 0.0);
        let segment = self.at(node);
        match (backward, weights) {
            (false, _) => segment.forward.add(&cost),
            (true, false) => segment.input_grad.add(&cost),
            (true, true) => segment.weight_grad.add(&cost),
        }
        if again {
            segment.again.add(&cost);
        }
    }

    fn communicate(&mut self, c: &Collective) {
        let width = if c.statistics { 4.0 } else { self.setup.width() as f64 };
        let samples = if c.per_sample { self.samples } else { 1 };
        let bytes = c.elements * samples as f64 * width;
        let group = self.setup.group(c.axis);
        let cost = Cost { collectives: group.seconds(c.kind, bytes), ..Cost::default() };
        let mut sent = group.sent(c.kind, bytes);
        let (backward, weights) = (c.node >= self.traced.forward, self.facts.weight_only[c.node]);
        let again = !backward && self.region[c.node].is_some_and(|r| self.active.contains(&r));
        if again {
            sent *= 2.0;
        }
        let is_gather = c.kind == super::shard::Kind::AllGather;
        let segment = self.at(c.node);
        *segment.sent.entry(c.axis).or_default() += sent;
        if is_gather {
            segment.gathered = segment.gathered.max(bytes as u64);
        }
        match (backward, weights) {
            (false, _) => segment.forward.add(&cost),
            (true, false) => segment.input_grad.add(&cost),
            (true, true) => segment.weight_grad.add(&cost),
        }
        if again {
            segment.again.add(&cost);
        }
    }

    /// Every read of a forward node by backward: the node, and the layer for whose derivative.
    fn reads(&self) -> Vec<(usize, Option<usize>)> {
        let mut out = Vec::new();
        for (i, node) in self.traced.graph.nodes.iter().enumerate().skip(self.traced.forward) {
            if !self.traced.live[i] {
                continue;
            }
            let reader = self.region.get(self.traced.origin(i)).copied().flatten();
            for input in &node.inputs {
                let base = self.traced.base(input.index());
                if base < self.traced.forward {
                    out.push((base, reader));
                }
            }
        }
        out
    }

    fn find_active(&mut self) {
        let mut active = BTreeSet::new();
        for (node, reader) in self.reads() {
            let region = self.region[node];
            let leaf = self.traced.graph.nodes[node].inputs.is_empty();
            if region.is_some() && region == reader && !leaf {
                active.extend(region);
            }
        }
        self.active = active;
    }

    /// Adds what must be kept so that backward can read `node`.
    fn need(&self, node: usize, reader: Option<usize>, kept: &mut BTreeSet<usize>) {
        let node = self.traced.base(node);
        let n = &self.traced.graph.nodes[node];
        if n.inputs.is_empty() || kept.contains(&node) {
            return;
        }
        if reader.is_some() && self.region[node] == reader {
            return;
        }
        if self.flash(node) && !matches!(n.op, Op::Softmax { .. }) {
            return;
        }
        if self.facts.inner[node] && !self.flash(node) {
            for input in &n.inputs {
                self.need(input.index(), reader, kept);
            }
            return;
        }
        kept.insert(node);
    }

    fn keep(&mut self) {
        let mut kept = BTreeSet::new();
        let mut whole = BTreeSet::new();
        for (node, reader) in self.reads() {
            self.need(node, reader, &mut kept);
            self.need(node, None, &mut whole);
        }
        for (i, node) in self.traced.graph.nodes[..self.traced.forward].iter().enumerate() {
            let Some(region) = self.region[i].filter(|r| self.active.contains(r)) else { continue };
            for input in &node.inputs {
                let base = self.traced.base(input.index());
                if self.region[base] != Some(region) {
                    self.need(base, None, &mut kept);
                }
            }
        }
        let logits: BTreeSet<usize> = self.logits();
        for &node in &kept {
            let bytes = self.kept_bytes(node);
            match logits.contains(&node) {
                true => self.at(node).logits += bytes,
                false => self.at(node).kept += bytes,
            }
        }
        for &node in &logits {
            // Softmax in f32; the gradient of the logits takes the logits' place.
            let elements = self.bytes(node) / self.setup.width();
            self.at(node).loss_work += elements * 4;
        }
        self.bring_back(&whole.difference(&kept).copied().collect());
        for node in 0..self.traced.forward {
            let leaf = self.traced.graph.nodes[node].inputs.is_empty();
            if leaf || self.facts.inner[node] || self.flash(node) || logits.contains(&node) {
                continue;
            }
            let bytes = 2 * self.bytes(node);
            let segment = self.at(node);
            segment.largest = segment.largest.max(bytes);
        }
    }

    /// What a recomputed layer holds while its backward runs.
    fn bring_back(&mut self, gone: &BTreeSet<usize>) {
        let mut per_region: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
        for &node in gone {
            let Some(region) = self.region[node] else { continue };
            let bytes = self.kept_bytes(node);
            per_region.entry(region).or_insert((node, 0)).1 += bytes;
        }
        for (node, bytes) in per_region.into_values() {
            let segment = self.at(node);
            segment.brought_back = segment.brought_back.max(bytes);
        }
    }

    fn kept_bytes(&self, node: usize) -> u64 {
        if !self.flash(node) {
            return self.bytes(node);
        }
        // One f32 for each row of scores.
        let row = self.traced.graph.nodes[node].shape.0.last().map_or(1, |d| d.per);
        self.bytes(node) / self.setup.width() / row.max(1) * 4
    }

    fn logits(&self) -> BTreeSet<usize> {
        let forward = &self.traced.graph.nodes[..self.traced.forward];
        let losses = forward.iter().filter(|n| matches!(n.op, Op::CrossEntropy));
        losses.filter_map(|n| n.inputs.first()).map(|i| self.traced.base(i.index())).collect()
    }

    fn boundaries(&self) -> Vec<u64> {
        let mut out = vec![0; self.segments.len().saturating_sub(1)];
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for (i, node) in self.traced.graph.nodes[..self.traced.forward].iter().enumerate() {
            for input in &node.inputs {
                let base = self.traced.base(input.index());
                let leaf = self.traced.graph.nodes[base].inputs.is_empty();
                if !leaf && self.traced.live[i] {
                    let user = last.entry(base).or_default();
                    *user = (*user).max(self.segment[i]);
                }
            }
        }
        for (node, user) in last {
            for cut in self.segment[node]..user {
                if let Some(bytes) = out.get_mut(cut) {
                    *bytes += self.bytes(node);
                }
            }
        }
        out
    }
}

/// Per forward node its segment, and how many there are: before the split, each block, after.
fn segments(traced: &Traced, setup: &Setup) -> (Vec<usize>, usize) {
    let mut out = vec![0; traced.forward];
    let Some((split, blocks)) = &setup.split else { return (out, 1) };
    let count = *blocks as usize + 2;
    let mut end = 0;
    for call in &traced.calls {
        let number = call.path.strip_prefix(split).and_then(|rest| rest.strip_prefix('.'));
        let Some(number) = number.and_then(|n| n.parse::<usize>().ok()) else { continue };
        for segment in out.get_mut(call.nodes.clone()).into_iter().flatten() {
            *segment = (number + 1).min(count - 1);
        }
        end = end.max(call.nodes.end);
    }
    for segment in out.iter_mut().skip(end) {
        *segment = count - 1;
    }
    (out, count)
}

/// Per forward node the outermost layer in `paths` that made it, one number per call.
fn regions(traced: &Traced, paths: &[String]) -> Vec<Option<usize>> {
    let mut out = vec![None; traced.forward];
    // Outer calls come after the inner ones that they make, and win.
    for (number, call) in traced.calls.iter().enumerate() {
        if paths.contains(&call.path) {
            for region in out.get_mut(call.nodes.clone()).into_iter().flatten() {
                *region = Some(number);
            }
        }
    }
    out
}
