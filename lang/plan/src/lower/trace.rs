//! Where the nodes of a lowered graph come from: the layer that made each, and the names that the
//! program has for their axes. A layout is written in those names.

use super::{Frame, Lowerer, Mode, Result, refuse_mixing};
use monarch_check::hir;
use monarch_graph::{Graph, NodeId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Names of the enclosing layers for an axis of a layer: `Linear[I = D, ..]` has `I` -> `D`.
pub(crate) type Aliases = BTreeMap<String, Vec<String>>;

/// Nodes that a layer made, those of its sublayers included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// `blocks.0.attn`
    pub path: String,
    pub nodes: Range<usize>,
}

/// What a graph was lowered from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// Node, axis, and a name of that axis.
    pub names: Vec<(NodeId, u8, String)>,
    /// Inner calls before the calls that make them.
    pub calls: Vec<Call>,
}

/// The job's loss with a trace, as it is written: not simplified.
pub(crate) fn lower_traced(
    program: &hir::Program,
    job: &hir::Job,
) -> Result<(Graph, NodeId, Trace)> {
    let mut lowerer = Lowerer::new(program, job, Mode::Train);
    lowerer.trace = Some(Trace::default());
    let ratio = lowerer.objective(&job.loss)?;
    let Lowerer { b, trace, .. } = lowerer;
    let graph = b.finish();
    refuse_mixing(&graph)?;
    Ok((graph, ratio.numerator, trace.unwrap_or_default()))
}

impl<'a> Lowerer<'a> {
    pub(super) fn trace_call(&mut self, instance: &hir::Instance, start: usize) {
        let nodes = start..self.b.len();
        if let Some(trace) = &mut self.trace {
            trace.calls.push(Call { path: instance.path.clone(), nodes });
        }
    }

    /// Names that the type of an expression has for the trailing axes of its node.
    pub(super) fn trace_type(&mut self, frame: &Frame, ty: &hir::TensorType, node: NodeId) {
        if self.trace.is_none() {
            return;
        }
        self.name_axes(frame, &ty.axes, node);
    }

    pub(super) fn trace_weight(&mut self, frame: &Frame, index: u32, node: NodeId) {
        if self.trace.is_none() {
            return;
        }
        let layer = frame.instance.and_then(|i| self.program.layer(i.layer));
        let weight = layer.and_then(|l| l.weights.get(index as usize));
        if let Some(weight) = weight {
            self.name_axes(frame, &weight.axes, node);
        }
    }

    fn name_axes(&mut self, frame: &Frame, axes: &[hir::Axis], node: NodeId) {
        let rank = self.b.shape(node).rank();
        let Some(lead) = rank.checked_sub(axes.len()) else { return };
        let Some(trace) = &mut self.trace else { return };
        for (i, axis) in axes.iter().enumerate() {
            // An axis without a name may have the size of a named one: `H * K` is as long as `D`.
            let Some(name) = &axis.name else { continue };
            let outer = frame.aliases.get(name).into_iter().flatten();
            for name in std::iter::once(name).chain(outer) {
                trace.names.push((node, (lead + i) as u8, name.clone()));
            }
        }
    }

    /// What the axes of a sublayer are called outside it.
    pub(super) fn aliases(&self, frame: &Frame, sub: u32) -> Aliases {
        let mut out = Aliases::new();
        if self.trace.is_none() {
            return out;
        }
        let outer = frame.instance.and_then(|i| self.program.layer(i.layer));
        let Some(def) = outer.and_then(|l| l.subs.get(sub as usize)) else { return out };
        let Some(inner) = self.program.layer(def.layer) else { return out };
        for (symbol, size) in inner.symbols.iter().zip(&def.dims) {
            let name = size.as_symbol().and_then(|s| outer?.symbols.get(s.index()));
            let Some(name) = name else { continue };
            let mut names = frame.aliases.get(&name.name).cloned().unwrap_or_default();
            names.push(name.name.clone());
            names.sort();
            names.dedup();
            out.insert(symbol.name.clone(), names);
        }
        out
    }
}
