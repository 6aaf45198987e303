//! Adapters of low rank beside products with frozen weights (Hu et al. 2021, "LoRA").

use super::{Frame, Lowerer, Result};
use monarch_check::hir::{Expr, ExprKind, Op};
use monarch_graph::{BinaryOp, NodeId, Span};

impl Lowerer<'_> {
    /// `product` of `x @ W`, plus what an adapter on W adds: scale * (x @ A) @ B.
    pub(super) fn adapted(
        &mut self,
        op: &Op,
        args: &[Expr],
        values: &[NodeId],
        product: NodeId,
        frame: &Frame,
        span: Span,
    ) -> Result<NodeId> {
        let (Op::MatMul, [_, weight], &[x, _]) = (op, args, values) else { return Ok(product) };
        let (ExprKind::Weight(weight), Some(instance)) = (&weight.kind, frame.instance) else {
            return Ok(product);
        };
        let Some(adapter) = instance.adapters.iter().find(|a| a.weight == *weight) else {
            return Ok(product);
        };
        let down = self.numbered_weight(frame, adapter.down, span)?;
        let up = self.numbered_weight(frame, adapter.up, span)?;
        self.b.at(span);
        let x = self.dropped(x, adapter.dropout)?;
        let low = self.matmul(x, down, span)?;
        let added = self.matmul(low, up, span)?;
        let scaled = match adapter.scale == 1.0 {
            true => added,
            false => self.b.affine(added, adapter.scale, 0.0)?,
        };
        Ok(self.b.binary(BinaryOp::Add, product, scaled)?)
    }
}
