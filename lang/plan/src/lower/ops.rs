//! Operations of the language as nodes.

use super::{Frame, Lowerer, Mode, Result, internal, is_float, mixing};
use monarch_check::hir::{Op, Reduction, Static};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{NodeId, ReduceOp, RopeAngles, RopeStretch, Span, UnaryOp};

impl Lowerer<'_> {
    pub(super) fn op(
        &mut self,
        op: &Op,
        args: &[NodeId],
        frame: &Frame,
        span: Span,
    ) -> Result<NodeId> {
        match (op, args) {
            (Op::Einsum { inputs, output, names }, args) => {
                self.einsum(inputs, output, names.len(), args, span)
            }
            (Op::Unary(op), &[x]) => {
                self.needs_float(x, span)?;
                Ok(match op {
                    UnaryOp::Neg => self.b.affine(x, -1.0, 0.0)?,
                    _ => self.b.unary(*op, x)?,
                })
            }
            (Op::Binary(op), &[a, b]) => {
                self.needs_float(a, span)?;
                self.needs_float(b, span)?;
                Ok(self.b.binary(*op, a, b)?)
            }
            (Op::Compare(op), &[a, b]) => Ok(self.b.compare(*op, a, b)?),
            (Op::ToFloat, &[x]) => {
                if is_float(self.b.graph().node(x).dtype) {
                    Ok(x)
                } else {
                    Ok(self.b.to_float(x)?)
                }
            }
            (Op::MatMul, &[a, b]) => self.matmul(a, b, span),
            (Op::Rearrange(r), &[x]) => self.rearrange(r, x, frame, span),
            (Op::Gather, &[table, ids]) => {
                if self.b.shape(table).0.iter().any(|d| d.batch) {
                    return Err(mixing::diagnostic(span, "this choice of rows"));
                }
                self.ids_fit(ids, self.b.shape(table).0.first().map(|d| d.per), span)?;
                Ok(self.b.gather(table, ids)?)
            }
            (Op::CrossEntropy, &[logits, targets]) => {
                self.ids_fit(targets, self.b.shape(logits).0.last().map(|d| d.per), span)?;
                Ok(self.b.cross_entropy(logits, targets)?)
            }
            (Op::Composed { function, numbers }, args) => {
                self.composed(*function, numbers, args, frame, span)
            }
            (Op::Conv2d(conv), &[x, w]) => self.conv2d([x, w], conv, frame, span),
            (Op::Pool(pool), &[x]) => self.pool(x, pool, frame, span),
            (op, &[x]) => self.along(op, x, frame, span),
            (op, args) => Err(internal(span, format!("`{op:?}` of {} arguments", args.len()))),
        }
    }

    /// Operations along axes of one tensor.
    fn along(&mut self, op: &Op, x: NodeId, frame: &Frame, span: Span) -> Result<NodeId> {
        let axis = |l: &Self, from_end: usize| -> Result<u8> {
            let rank = l.b.shape(x).rank();
            let axis = rank.checked_sub(from_end + 1);
            axis.map(|a| a as u8).ok_or_else(|| internal(span, "there is no such axis"))
        };
        match op {
            Op::Softmax { from_end } => {
                let axis = axis(self, *from_end)?;
                Ok(self.b.softmax(x, axis)?)
            }
            Op::LogSumExp { from_end } => {
                let axis = axis(self, *from_end)?;
                Ok(self.b.log_sum_exp(x, axis)?)
            }
            Op::Dropout { p } => {
                let p = frame.share(p, span)?;
                self.dropped(x, p)
            }
            Op::Causal => {
                // Here rather than later, since the builder takes only fixed axes.
                let dims = self.b.shape(x).0;
                if dims.iter().rev().take(2).any(|d| d.batch) {
                    return Err(mixing::diagnostic(span, "this mask"));
                }
                Ok(self.b.causal(x, f64::NEG_INFINITY)?)
            }
            Op::RmsNorm { eps } => {
                let eps = frame.number(eps, span)?;
                Ok(self.b.rms_norm(x, eps)?)
            }
            Op::LayerNorm { eps } => {
                let eps = frame.number(eps, span)?;
                Ok(self.b.layer_norm(x, eps)?)
            }
            Op::Rope { from_end, base, stretch } => {
                let (axis, base) = (axis(self, *from_end)?, frame.number(base, span)?);
                let stretch = match stretch {
                    Some(four) => stretch_of(four, frame, span)?,
                    None => None,
                };
                self.rope(x, axis, RopeAngles { base, stretch }, span)
            }
            Op::ArgMax { from_end } => {
                let axis = axis(self, *from_end)?;
                Ok(self.b.arg_max(x, axis)?)
            }
            Op::Reduce { kind, from_end } => {
                let mut axes = Vec::with_capacity(from_end.len());
                for n in from_end {
                    axes.push(axis(self, *n)?);
                }
                axes.sort_unstable();
                self.fold(*kind, x, &axes, span)
            }
            Op::Slice { from_end, start, length } => {
                let (axis, start) = (axis(self, *from_end)?, frame.whole(start, span)?);
                let length = frame.dim(length, span)?;
                let whole = self.b.shape(x).0.get(usize::from(axis)).copied();
                if length.batch || whole.is_some_and(|d| d.batch) {
                    return Err(mixing::diagnostic(span, "this slice"));
                }
                Ok(self.b.slice(x, axis, start, length.per)?)
            }
            op => Err(internal(span, format!("`{op:?}` of one argument"))),
        }
    }

    fn fold(&mut self, kind: Reduction, x: NodeId, axes: &[u8], span: Span) -> Result<NodeId> {
        let op = match kind {
            Reduction::Max | Reduction::Min => ReduceOp::Max,
            Reduction::Sum | Reduction::Mean => ReduceOp::Sum,
        };
        let dims = self.b.shape(x).0;
        let mut count: u64 = 1;
        for &axis in axes {
            match dims.get(usize::from(axis)) {
                Some(dim) if !dim.batch => count = count.saturating_mul(dim.per),
                _ => return Err(mixing::diagnostic(span, "this reduction")),
            }
        }
        // The smallest is the largest of the negatives.
        let sign = if kind == Reduction::Min { -1.0 } else { 1.0 };
        let x = self.b.affine(x, sign, 0.0)?;
        let folded = self.b.reduce(op, x, axes)?;
        match kind {
            Reduction::Mean => Ok(self.b.affine(folded, 1.0 / count.max(1) as f64, 0.0)?),
            Reduction::Min => Ok(self.b.affine(folded, -1.0, 0.0)?),
            Reduction::Sum | Reduction::Max => Ok(folded),
        }
    }

    /// x with a share of its elements dropped, while training.
    pub(super) fn dropped(&mut self, x: NodeId, p: f64) -> Result<NodeId> {
        if p == 0.0 || self.mode == Mode::Evaluate {
            return Ok(x);
        }
        let number = self.dropouts;
        self.dropouts += 1;
        Ok(self.b.dropout(x, p, number)?)
    }

    fn rope(&mut self, x: NodeId, axis: u8, angles: RopeAngles, span: Span) -> Result<NodeId> {
        let dims = self.b.shape(x).0;
        let last = dims.last().copied();
        if dims.get(usize::from(axis)).is_some_and(|d| d.batch) || last.is_some_and(|d| d.batch) {
            return Err(mixing::diagnostic(span, "this rotation"));
        }
        match last {
            Some(k) if k.per % 2 == 0 => Ok(self.b.rope(x, axis, angles, false)?),
            _ => {
                let k = last.map_or(0, |k| k.per);
                let title = format!("rope turns pairs, and {k} is odd");
                let error = Diagnostic::error("M0316", title);
                Err(error.label(span, format!("the last axis has length {k}")))
            }
        }
    }

    fn needs_float(&self, x: NodeId, span: Span) -> Result<()> {
        if is_float(self.b.graph().node(x).dtype) {
            return Ok(());
        }
        let error = Diagnostic::error("M0210", "arithmetic needs f32, and this is i32");
        Err(error.label(span, "a whole number").help("`float(x)` turns it into f32"))
    }
}

/// Factor, low, high and context of stretched positions; None if nothing is stretched.
fn stretch_of(four: &[Static; 4], frame: &Frame, span: Span) -> Result<Option<RopeStretch>> {
    let mut n = [0.0; 4];
    for (to, from) in n.iter_mut().zip(four) {
        *to = frame.number(from, span)?;
    }
    let [factor, low, high, context] = n;
    if factor == 1.0 {
        return Ok(None);
    }
    if factor > 0.0 && low > 0.0 && high > low && context > 0.0 {
        return Ok(Some(RopeStretch { factor, low, high, context }));
    }
    let error = Diagnostic::error("M0313", "positions cannot be stretched like this");
    let found = format!("factor {factor}, low {low}, high {high}, context {context}");
    Err(error.label(span, found).help("all are above 0, and `low` is below `high`"))
}
