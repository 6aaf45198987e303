//! Which axes of an operation's operands and result are one and the same.
//!
//! Every operation is seen as an einsum: each axis of each operand and of the result has a label;
//! axes with one label are equally long and, when a layout divides them, divided alike.

use monarch_graph::{Dim, Graph, Node, Op, ReduceOp, Shape};

/// Labels per operand and of the result. [`FREE`] is an axis like no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub inputs: Vec<Vec<u16>>,
    pub output: Vec<u16>,
    pub sum: Sum,
}

/// What happens to labels that the result lacks, or along which an operation looks at all
/// elements at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// They are summed: parts give partial sums of the result.
    Partial,
    /// Statistics of rows are exchanged: `count` numbers per element of the rows' result.
    Rows { label: u16, count: u64 },
    /// Nothing of the kind.
    No,
}

pub(crate) const FREE: u16 = u16::MAX;

/// Labels of an operation.
pub(crate) fn rule(graph: &Graph, node: &Node) -> Rule {
    let shape = |i: usize| node.inputs.get(i).map(|&id| &graph.node(id).shape);
    let rank = |i: usize| shape(i).map_or(0, Shape::rank);
    let out: Vec<u16> = (0..node.shape.rank() as u16).collect();
    let suffix = |n: usize| out.get(out.len().saturating_sub(n)..).unwrap_or(&[]).to_vec();
    let all_suffix = || (0..node.inputs.len()).map(|i| suffix(rank(i))).collect();
    let plain = |inputs: Vec<Vec<u16>>| Rule { inputs, output: out.clone(), sum: Sum::No };
    let rows = |axis: usize, count: u64| Rule {
        inputs: all_suffix(),
        output: out.clone(),
        sum: Sum::Rows { label: axis as u16, count },
    };
    let last = out.len().saturating_sub(1);
    match &node.op {
        Op::Einsum(e) => {
            let of = |labels: &[u8]| labels.iter().map(|&l| u16::from(l)).collect::<Vec<_>>();
            Rule { inputs: vec![of(&e.a), of(&e.b)], output: of(&e.out), sum: Sum::Partial }
        }
        Op::Reduce { op, axes } => folded(rank(0), axes, *op == ReduceOp::Sum),
        Op::ArgMax { axis } => folded(rank(0), &[*axis], false),
        Op::Broadcast { axes } => {
            let kept = |l: &u16| !axes.iter().any(|&a| u16::from(a) == *l);
            plain(vec![out.iter().copied().filter(kept).collect()])
        }
        Op::Permute(order) => {
            let mut labels = vec![FREE; order.len()];
            for (i, &axis) in order.iter().enumerate() {
                if let Some(slot) = labels.get_mut(usize::from(axis)) {
                    *slot = i as u16;
                }
            }
            plain(vec![labels])
        }
        Op::Reshape => reshaped(shape(0), &node.shape),
        Op::Slice { axis, .. } | Op::Unslice { axis, .. } | Op::Concat { axis } => {
            let mut labels = out.clone();
            if let Some(slot) = labels.get_mut(usize::from(*axis)) {
                *slot = FREE;
            }
            Rule { inputs: vec![labels.clone(); node.inputs.len()], output: labels, sum: Sum::No }
        }
        Op::Gather => gathered(rank(0), rank(1), out),
        Op::ScatterAdd => {
            let Rule { inputs, output, .. } =
                gathered(rank_of(&node.shape), rank(0), (0..rank(1) as u16).collect());
            let mut inputs = inputs.into_iter();
            let (table, ids) = (inputs.next().unwrap_or_default(), inputs.next());
            let inputs = vec![ids.unwrap_or_default(), output];
            Rule { inputs, output: table, sum: Sum::Partial }
        }
        Op::CrossEntropy => {
            let vocabulary = out.len() as u16;
            let logits = out.iter().copied().chain([vocabulary]).collect();
            // The largest logit, the sum of exponentials and the target's logit.
            let sum = Sum::Rows { label: vocabulary, count: 3 };
            Rule { inputs: vec![logits, out.clone()], output: out, sum }
        }
        Op::CrossEntropyGrad => {
            let rest = out.get(..last).unwrap_or(&[]).to_vec();
            plain(vec![out.clone(), rest.clone(), rest])
        }
        Op::Softmax { axis } => rows(usize::from(*axis), 2),
        Op::SoftmaxGrad { axis } => rows(usize::from(*axis), 1),
        Op::RmsNorm { .. } | Op::RmsNormGrad { .. } => rows(last, 1),
        Op::LayerNorm { .. } | Op::LayerNormGrad { .. } => rows(last, 2),
        Op::Weight(_) | Op::Column(_) | Op::Const(_) => plain(Vec::new()),
        _ => other(graph, node, out),
    }
}

fn rank_of(shape: &Shape) -> usize {
    shape.rank()
}

/// Elementwise where the shapes say so; of anything else only the samples are known to match.
fn other(graph: &Graph, node: &Node, out: Vec<u16>) -> Rule {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    let mut samples_only = false;
    for &id in &node.inputs {
        let shape = &graph.node(id).shape;
        samples_only |= !node.shape.0.ends_with(&shape.0);
    }
    let samples = |shape: &Shape| {
        let labels = shape.0.iter().map(|d| if d.batch { 0 } else { FREE });
        labels.collect::<Vec<u16>>()
    };
    for &id in &node.inputs {
        let shape = &graph.node(id).shape;
        inputs.push(match samples_only {
            true => samples(shape),
            false => out.get(out.len() - shape.rank()..).unwrap_or(&[]).to_vec(),
        });
    }
    let output = if samples_only { samples(&node.shape) } else { out };
    Rule { inputs, output, sum: Sum::No }
}

fn folded(rank: usize, axes: &[u8], linear: bool) -> Rule {
    let all: Vec<u16> = (0..rank as u16).collect();
    let gone = |l: &u16| axes.iter().any(|&a| u16::from(a) == *l);
    let output = all.iter().copied().filter(|l| !gone(l)).collect();
    let label = axes.first().map_or(FREE, |&a| u16::from(a));
    let sum = if linear { Sum::Partial } else { Sum::Rows { label, count: 1 } };
    Rule { inputs: vec![all], output, sum }
}

/// table [R, row..], ids [I..] -> [I.., row..]
fn gathered(table: usize, ids: usize, out: Vec<u16>) -> Rule {
    let row = out.get(ids..).unwrap_or(&[]);
    let label = out.len() as u16;
    let mut labels = vec![label];
    labels.extend(row.iter().copied().take(table.saturating_sub(1)));
    let ids = out.get(..ids).unwrap_or(&[]).to_vec();
    Rule { inputs: vec![labels, ids], output: out, sum: Sum::Partial }
}

/// Axes are joined and split in groups of equal volume; the outermost ones of a group match.
fn reshaped(from: Option<&Shape>, to: &Shape) -> Rule {
    let from: &[Dim] = from.map_or(&[], |s| &s.0);
    let mut input = vec![FREE; from.len()];
    let mut output = vec![FREE; to.0.len()];
    let volume = |dims: &[Dim]| {
        let per = dims.iter().fold(1u64, |n, d| n.saturating_mul(d.per));
        (dims.iter().filter(|d| d.batch).count(), per)
    };
    let (mut i, mut j, mut label) = (0, 0, 0);
    while i < from.len() && j < to.0.len() {
        let (start, begin) = (i, j);
        (i, j) = (i + 1, j + 1);
        loop {
            let (a, b) = (volume(&from[start..i]), volume(&to.0[begin..j]));
            if a == b {
                break;
            }
            if a < b && i < from.len() {
                i += 1;
            } else if b < a && j < to.0.len() {
                j += 1;
            } else {
                return Rule { inputs: vec![input], output, sum: Sum::No };
            }
        }
        let outermost = |dims: &[Dim], at: usize, end: usize| {
            (at..end).find(|&k| dims[k].batch || dims[k].per > 1)
        };
        if let (Some(a), Some(b)) = (outermost(from, start, i), outermost(&to.0, begin, j)) {
            (input[a], output[b]) = (label, label);
            label += 1;
        }
    }
    Rule { inputs: vec![input], output, sum: Sum::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_axes_match_at_their_outermost_part() {
        let dims = |lengths: &[u64]| {
            let rest = lengths.iter().map(|&n| Dim::fixed(n));
            Shape(std::iter::once(Dim::samples()).chain(rest).collect())
        };
        let split = reshaped(Some(&dims(&[6, 32])), &dims(&[6, 2, 4, 4]));
        assert_eq!(split.inputs, [vec![0, 1, 2]]);
        assert_eq!(split.output, [0, 1, 2, FREE, FREE]);
        let joined = reshaped(Some(&dims(&[6, 2, 4, 4])), &dims(&[6, 32]));
        assert_eq!(joined.inputs, [vec![0, 1, 2, FREE, FREE]]);
        assert_eq!(joined.output, [0, 1, 2]);
        let ones = reshaped(Some(&dims(&[1, 5])), &dims(&[5, 1]));
        assert_eq!(ones.inputs, [vec![0, FREE, 1]]);
        assert_eq!(ones.output, [0, 1, FREE]);
    }
}
