//! Work and shapes of the planned program, by the places that asked for them.

use monarch_check::hir::Program;
use monarch_graph::{Shape, Span};
use monarch_plan::Facts;
use monarch_plan::cost::node_work;
use std::collections::BTreeMap;

/// What one place of the program costs, over all layers that share it.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Floating-point operations of contractions, forward, for one sample.
    pub flops: f64,
    /// Its shape, with `B` where samples are counted.
    pub shape: Shape,
}

/// Costs of the forward pass of a job.
#[derive(Clone, Debug)]
pub struct Costs {
    by_span: BTreeMap<Span, Cost>,
}

impl Costs {
    /// Plans the program; None if it cannot be planned.
    pub fn of(program: &Program) -> Option<Costs> {
        let (plan, _) = monarch_plan::plan(program, &Facts::default()).0?;
        let graph = &plan.train.program.graph;
        let mut by_span: BTreeMap<Span, Cost> = BTreeMap::new();
        for node in graph.nodes.iter().take(plan.train.forward as usize) {
            let cost = by_span
                .entry(node.span)
                .or_insert_with(|| Cost { flops: 0.0, shape: node.shape.clone() });
            cost.flops += node_work(graph, node, 1).flops;
            // The last node of a place is its result.
            cost.shape = node.shape.clone();
        }
        Some(Costs { by_span })
    }

    /// Floating-point operations of everything within a span, forward, for one sample.
    pub fn flops_within(&self, span: Span) -> f64 {
        let from = Span { end: span.start, ..span };
        let within = self.by_span.range(from..).take_while(|(s, _)| s.file == span.file);
        let within = within.take_while(|(s, _)| s.start <= span.end);
        within.filter(|(s, _)| s.end <= span.end).map(|(_, cost)| cost.flops).sum()
    }

    /// Floating-point operations of the whole forward pass, for one sample.
    pub fn flops(&self) -> f64 {
        self.by_span.values().map(|cost| cost.flops).sum()
    }

    /// The shape of the expression at exactly this place.
    pub fn shape(&self, span: Span) -> Option<&Shape> {
        self.by_span.get(&span).map(|cost| &cost.shape)
    }
}
