//! `rearrange`: split axes, permute, join.

use super::{Frame, Lowerer, Result, internal, join, mixing};
use monarch_check::hir::Rearrange;
use monarch_graph::{Dim, NodeId, Shape, Span};

impl Lowerer<'_> {
    pub(super) fn rearrange(
        &mut self,
        r: &Rearrange,
        x: NodeId,
        frame: &Frame,
        span: Span,
    ) -> Result<NodeId> {
        let shape = self.b.shape(x);
        let lead = shape.rank().checked_sub(r.input.len()).filter(|&n| n == 0 || r.rest);
        let lead = lead.ok_or_else(|| internal(span, "`rearrange` has too few axes"))?;
        let leading: Vec<Dim> = shape.0.iter().take(lead).copied().collect();
        // Split.
        let mut split = leading.clone();
        let mut labels: Vec<u8> = Vec::new();
        for parts in &r.input {
            let mut dims = Vec::with_capacity(parts.len());
            for (label, size) in parts {
                dims.push(frame.dim(size, span)?);
                labels.push(*label);
            }
            samples_outermost(&dims, span)?;
            split.extend(dims);
        }
        let mut node = self.b.reshape(x, Shape(split.clone()))?;
        // Permute.
        let mut order: Vec<u8> = (0..lead as u8).collect();
        let mut joined = leading;
        for axis in &r.output {
            let mut dims = Vec::with_capacity(axis.len());
            for label in axis {
                let place = labels.iter().position(|l| l == label).map(|p| p + lead);
                let place = place.ok_or_else(|| internal(span, "an axis has no source"))?;
                order.push(place as u8);
                dims.extend(split.get(place));
            }
            samples_outermost(&dims, span)?;
            let dim = join(&dims).ok_or_else(|| mixing::diagnostic(span, "an axis"))?;
            joined.push(dim);
        }
        node = self.b.permute(node, &order)?;
        // Join.
        Ok(self.b.reshape(node, Shape(joined))?)
    }
}

/// A joined axis counts samples in its outermost part, or a sample's elements would be spread.
fn samples_outermost(dims: &[Dim], span: Span) -> Result<()> {
    let before = dims.iter().take_while(|d| !d.batch);
    let all_ones = before.clone().all(|d| d.per == 1);
    if all_ones || before.count() == dims.len() {
        return Ok(());
    }
    Err(mixing::diagnostic(span, "the order of a joined axis"))
}
