//! Losses and metrics as ratios: a numerator summed over the batch, and what it is divided by.

use super::{Lowerer, Mode, Result, internal, mixing, refuse_mixing};
use crate::simplify::simplify;
use monarch_check::hir;
use monarch_graph::{Column, Count, DType, Dim, Graph, NodeId, Ratio, Shape, Span};

/// A forward graph, simplified, with its results.
#[derive(Clone, Debug)]
pub struct LoweredProgram {
    pub graph: Graph,
    pub columns: Vec<Column>,
    pub ratios: Vec<Ratio>,
}

impl LoweredProgram {
    /// Nodes that outlive the program.
    pub fn results(&self) -> Vec<NodeId> {
        results(&self.ratios)
    }
}

/// Numerators, and denominators that are nodes.
pub fn results(ratios: &[Ratio]) -> Vec<NodeId> {
    let mut out = Vec::new();
    for ratio in ratios {
        out.push(ratio.numerator);
        if let Count::Sum(node) = ratio.denominator {
            out.push(node);
        }
    }
    out
}

/// Ratios of a graph that was rewritten.
pub fn remap(
    ratios: &[Ratio],
    now: impl Fn(NodeId) -> crate::build::Result<NodeId>,
) -> crate::build::Result<Vec<Ratio>> {
    let mut out = Vec::with_capacity(ratios.len());
    for ratio in ratios {
        let denominator = match ratio.denominator {
            Count::Sum(node) => Count::Sum(now(node)?),
            count => count,
        };
        let numerator = now(ratio.numerator)?;
        out.push(Ratio { name: ratio.name.clone(), numerator, denominator });
    }
    Ok(out)
}

/// Lowers objectives into one graph; what they share is computed once.
pub fn lower_objectives(
    program: &hir::Program,
    job: &hir::Job,
    objectives: &[&hir::Objective],
    mode: Mode,
) -> Result<LoweredProgram> {
    let mut lowerer = Lowerer::new(program, job, mode);
    let mut ratios = Vec::with_capacity(objectives.len());
    for objective in objectives {
        ratios.push(lowerer.objective(objective)?);
    }
    let Lowerer { b, columns, .. } = lowerer;
    let graph = b.finish();
    let simple = simplify(&graph, &results(&ratios))?;
    refuse_mixing(&simple.graph)?;
    let ratios = remap(&ratios, |n| simple.now(n))?;
    Ok(LoweredProgram { graph: simple.graph, columns, ratios })
}

impl<'a> Lowerer<'a> {
    pub(super) fn objective(&mut self, objective: &'a hir::Objective) -> Result<Ratio> {
        let frame = self.call_on_columns(&objective.function)?;
        let result = self.eval(&objective.function.result, &frame)?;
        let span = objective.function.result.span;
        let numerator = self.per_sample(result, span)?;
        let denominator = match &objective.weight {
            None => Count::PerSample(self.elements_per_sample(numerator, objective.span)?),
            Some(weight) => {
                let node = self.eval(weight, &frame)?;
                Count::Sum(self.spread(node, numerator, weight.span)?)
            }
        };
        Ok(Ratio { name: objective.name.clone(), numerator, denominator })
    }

    fn elements_per_sample(&self, node: NodeId, span: Span) -> Result<u64> {
        let dims = self.b.shape(node).0;
        let fail = || mixing::diagnostic(span, "this mean");
        let per = super::join(&dims).ok_or_else(fail)?;
        Ok(per.per)
    }

    /// A value that is the same for all samples counts once for each of them, so that the mean
    /// over the batch is the value.
    fn per_sample(&mut self, node: NodeId, span: Span) -> Result<NodeId> {
        let mut dims = self.b.shape(node).0;
        if self.b.graph().node(node).dtype != DType::F32 {
            return Err(internal(span, "a mean of whole numbers"));
        }
        if dims.iter().any(|d| d.batch) {
            return Ok(node);
        }
        dims.insert(0, Dim::samples());
        self.b.at(span);
        Ok(self.b.broadcast(node, &[0], Shape(dims))?)
    }

    /// Weights as many as the elements that they weigh.
    fn spread(&mut self, weight: NodeId, elements: NodeId, span: Span) -> Result<NodeId> {
        let (to, from) = (self.b.shape(elements), self.b.shape(weight));
        let lead = to.rank().checked_sub(from.rank());
        match lead {
            Some(lead) if to.0.ends_with(&from.0) => {
                self.b.at(span);
                let axes: Vec<u8> = (0..lead as u8).collect();
                Ok(self.b.broadcast(weight, &axes, to)?)
            }
            _ => Err(internal(span, "weights that do not fit what they weigh")),
        }
    }
}
