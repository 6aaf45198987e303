//! What holds of a graph's nodes under every layout.

use super::traced::Traced;
use monarch_graph::Op;

/// Per node of a traced graph.
pub(crate) struct Facts {
    /// Two axes along the sequence.
    pub scores: Vec<bool>,
    /// Scores half of which a causal mask hides.
    pub masked: Vec<bool>,
    /// Inside a chain of elementwise operations: never in memory.
    pub inner: Vec<bool>,
    /// Backward that only the gradient of a weight needs.
    pub weight_only: Vec<bool>,
    /// Weights with the forward nodes that use them.
    pub weights: Vec<(u32, usize)>,
}

impl Facts {
    pub fn new(traced: &Traced) -> Facts {
        let scores: Vec<bool> =
            (0..traced.graph.nodes.len()).map(|n| traced.is_scores(n)).collect();
        let mut weights = Vec::new();
        for (i, node) in traced.graph.nodes[..traced.forward].iter().enumerate() {
            for input in &node.inputs {
                if let Op::Weight(w) = traced.graph.node(*input).op {
                    weights.push((w, i));
                }
            }
        }
        let masked = masked(traced, &scores);
        let (inner, weight_only) = (inner(traced), weight_only(traced));
        Facts { scores, masked, inner, weight_only, weights }
    }
}

/// Scores half of which a causal mask hides.
fn masked(traced: &Traced, scores: &[bool]) -> Vec<bool> {
    let nodes = &traced.graph.nodes;
    let mut out = vec![false; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let behind = node.inputs.iter().any(|n| out[n.index()]);
        out[i] = scores[i] && (matches!(node.op, Op::Causal { .. }) || behind);
    }
    for (i, node) in nodes.iter().enumerate().rev() {
        if out[i] {
            for input in &node.inputs {
                out[input.index()] |= scores[input.index()];
            }
        }
    }
    out
}

/// Operations that one kernel does together with its neighbours.
fn fusable(op: &Op) -> bool {
    !matches!(
        op,
        Op::Weight(_)
            | Op::Column(_)
            | Op::Einsum(_)
            | Op::Gather
            | Op::ScatterAdd
            | Op::CrossEntropy
            | Op::CrossEntropyGrad
            | Op::Reduce { .. }
            | Op::ArgMax { .. }
            | Op::Concat { .. }
    )
}

/// Nodes inside a chain: their only user in their half of the graph continues it.
fn inner(traced: &Traced) -> Vec<bool> {
    let nodes = &traced.graph.nodes;
    let mut users = vec![0u32; nodes.len()];
    let mut goes_on = vec![true; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        if !traced.live[i] || matches!(node.op, Op::Reshape | Op::Permute(_)) {
            continue;
        }
        for input in &node.inputs {
            let base = traced.base(input.index());
            if (base < traced.forward) == (i < traced.forward) {
                users[base] += 1;
                goes_on[base] &= fusable(&node.op);
            }
        }
    }
    for root in traced.gradients.iter().flatten() {
        goes_on[traced.base(root.index())] = false;
    }
    let chain = |i: usize| users[i] == 1 && goes_on[i] && fusable(&nodes[i].op);
    (0..nodes.len()).map(chain).collect()
}

/// Backward nodes whose users, if any, are the same kind and derive the same operation: what the
/// gradient of a layer's input does not wait for.
fn weight_only(traced: &Traced) -> Vec<bool> {
    let nodes = &traced.graph.nodes;
    let mut out = vec![true; nodes.len()];
    for (i, node) in nodes.iter().enumerate().skip(traced.forward).rev() {
        let origin = traced.origin(i);
        let sums_up = matches!(nodes[origin].op, Op::Weight(_));
        for input in node.inputs.iter().filter(|_| traced.live[i]) {
            let same = traced.origin(input.index()) == origin || sums_up;
            out[input.index()] &= out[i] && same;
        }
    }
    out
}
