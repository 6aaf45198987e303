//! Buckets: gradients that travel together, in the order in which backward completes them.
//!
//! The first bucket is small, so that the wire starts early; after it a bucket is closed when it
//! would pass the cap. A weight is never split, so one larger than the cap has a bucket of its
//! own. A weight used twice counts from its last contribution, because its gradient is the node
//! that adds it.

use crate::build::{BuildError, Result};
use crate::memory::{align, storage_roots};
use monarch_graph::{Bucket, BucketId, Graph, Node, NodeId, Op, Part, WeightId};
use std::collections::BTreeSet;

/// Sizes of buckets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketPolicy {
    pub first_bytes: u64,
    pub cap_bytes: u64,
}

impl Default for BucketPolicy {
    fn default() -> BucketPolicy {
        BucketPolicy { first_bytes: 256 << 10, cap_bytes: 4 << 20 }
    }
}

/// A training graph in which each gradient is alone in its memory.
#[derive(Clone, Debug)]
pub struct Settled {
    pub graph: Graph,
    pub gradients: Vec<Option<NodeId>>,
    /// Where old nodes went.
    pub map: Vec<NodeId>,
}

/// Copies gradients that share their memory with something else (another weight's gradient, a
/// value that is used later, a forward value), so that each can be written straight into the
/// slab and the slab belongs to the reduction as soon as it is complete.
pub fn settle(graph: &Graph, forward: usize, gradients: &[Option<NodeId>]) -> Result<Settled> {
    let roots = storage_roots(graph);
    let mut used = vec![false; graph.nodes.len()];
    for node in &graph.nodes {
        if node.op != Op::Reshape {
            for input in &node.inputs {
                used[roots[input.index()]] = true;
            }
        }
    }
    let mut copies: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let mut taken = BTreeSet::new();
    for (weight, gradient) in gradients.iter().enumerate() {
        let Some(id) = gradient else { continue };
        let root = roots[id.index()];
        if used[root] || root < forward || !taken.insert(root) {
            let after = id.index().max(forward.saturating_sub(1));
            copies[after].push(weight);
        }
    }
    let mut out = Graph::default();
    let mut map: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    let mut settled = vec![None; gradients.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        let inputs = node.inputs.iter().map(|n| map[n.index()]).collect();
        map.push(out.push(Node { inputs, ..node.clone() }));
        for &weight in &copies[i] {
            let Some(Some(source)) = gradients.get(weight) else { continue };
            let Some(&from) = map.get(source.index()) else {
                let message = format!("the gradient of weight {weight} comes too late");
                return Err(BuildError { message, span: node.span });
            };
            let op = Op::Affine { mul: 1.0, add: 0.0 };
            let of = graph.node(*source).clone();
            settled[weight] = Some(out.push(Node { op, inputs: vec![from], ..of }));
        }
    }
    for (slot, gradient) in settled.iter_mut().zip(gradients) {
        *slot = slot.or(gradient.and_then(|id| map.get(id.index()).copied()));
    }
    Ok(Settled { graph: out, gradients: settled, map })
}

/// Fills buckets. `elements[w]` is the size of weight `w` in f32 elements; a weight without a
/// gradient is in no bucket.
pub fn fill(elements: &[u64], gradients: &[Option<NodeId>], policy: BucketPolicy) -> Vec<Bucket> {
    let mut ready: Vec<(NodeId, usize)> = gradients
        .iter()
        .enumerate()
        .filter_map(|(weight, gradient)| gradient.map(|node| (node, weight)))
        .collect();
    ready.sort_unstable();
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut start = 0;
    for (_, weight) in ready {
        let size = elements.get(weight).copied().unwrap_or(0);
        let room = match buckets.len() {
            0 | 1 => policy.first_bytes,
            _ => policy.cap_bytes,
        };
        let fits = |b: &Bucket| (b.elements + align(size)) * 4 <= room;
        if !buckets.last().is_some_and(fits) {
            let id = BucketId(buckets.len() as u32);
            buckets.push(Bucket { id, start, elements: 0, parts: Vec::new() });
        }
        if let Some(bucket) = buckets.last_mut() {
            let weight = WeightId(weight as u32);
            bucket.parts.push(Part { weight, start, elements: size });
            bucket.elements += align(size);
            start += align(size);
        }
    }
    buckets
}

/// Offset of each weight's gradient in the slab.
pub fn offsets(buckets: &[Bucket], weights: usize) -> Vec<Option<u64>> {
    let mut out = vec![None; weights];
    for part in buckets.iter().flat_map(|b| &b.parts) {
        if let Some(slot) = out.get_mut(part.weight.index()) {
            *slot = Some(part.start);
        }
    }
    out
}
