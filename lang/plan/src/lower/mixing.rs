//! A result may not depend on which samples share a shard: else the numbers would depend on how
//! the batch is cut. Only the loss joins samples, by its mean.

use super::Result;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Graph, Node, Op, Span};

/// Refuses a forward graph in which samples meet.
pub fn refuse_mixing(graph: &Graph) -> Result<()> {
    for node in &graph.nodes {
        if let Some(what) = mixes(graph, node) {
            return Err(diagnostic(node.span, what));
        }
    }
    Ok(())
}

pub(super) fn diagnostic(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("M0214", format!("{what} joins the samples of a batch"))
        .label(span, "the result would depend on which samples share a shard")
        .help("let each sample have its own result: the mean over the batch is the loss's")
}

fn mixes(graph: &Graph, node: &Node) -> Option<&'static str> {
    if node.shape.0.iter().filter(|d| d.batch).count() > 1 {
        return Some("this product");
    }
    let input = |i: usize| node.inputs.get(i).map(|&id| &graph.node(id).shape);
    let batch = |axis: usize| input(0).is_some_and(|s| s.0.get(axis).is_some_and(|d| d.batch));
    let last = input(0).map_or(0, |s| s.rank().saturating_sub(1));
    let hit = match &node.op {
        Op::Reduce { axes, .. } => axes.iter().any(|&a| batch(usize::from(a))),
        Op::ArgMax { axis } | Op::Softmax { axis } | Op::Rope { axis, .. } => {
            batch(usize::from(*axis))
        }
        Op::LogSumExp { axis } => batch(usize::from(*axis)),
        Op::Unfold { .. } => (0..3).any(|i| batch(last.saturating_sub(i))),
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => batch(last),
        Op::Causal { .. } => batch(last) || batch(last.saturating_sub(1)),
        Op::Einsum(e) => {
            let dropped = |(l, d): (&u8, &monarch_graph::Dim)| d.batch && !e.out.contains(l);
            input(0).is_some_and(|s| e.a.iter().zip(&s.0).any(dropped))
        }
        _ => false,
    };
    hit.then_some(match node.op {
        Op::Einsum(_) => "this product",
        Op::Reduce { .. } => "this sum",
        _ => "this operation",
    })
}
