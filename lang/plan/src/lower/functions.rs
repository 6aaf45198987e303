//! Functions of the library that are made of others.

use super::{Frame, Lowerer, Result, internal};
use monarch_check::hir::{Composed, Static};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{BinaryOp, DType, NodeId, ReduceOp, Shape, Span, UnaryOp};

/// sqrt(2 / pi)
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;

impl Lowerer<'_> {
    pub(super) fn composed(
        &mut self,
        function: Composed,
        numbers: &[Static],
        args: &[NodeId],
        frame: &Frame,
        span: Span,
    ) -> Result<NodeId> {
        let mut n = Vec::with_capacity(numbers.len());
        for number in numbers {
            n.push(frame.number(number, span)?);
        }
        match (function, args, n.as_slice()) {
            (Composed::LeakyRelu, &[x], &[slope]) => {
                let below = self.below(x, slope)?;
                let above = self.b.unary(UnaryOp::Relu, x)?;
                self.add(above, below)
            }
            (Composed::Elu, &[x], &[alpha]) => {
                let below = self.below(x, 1.0)?;
                let grown = self.b.unary(UnaryOp::Exp, below)?;
                let below = self.b.affine(grown, alpha, -alpha)?;
                let above = self.b.unary(UnaryOp::Relu, x)?;
                self.add(above, below)
            }
            (Composed::LogSigmoid, &[x], []) => {
                let minus = self.b.affine(x, -1.0, 0.0)?;
                let soft = self.b.unary(UnaryOp::Softplus, minus)?;
                Ok(self.b.affine(soft, -1.0, 0.0)?)
            }
            (Composed::GeluTanh, &[x], []) => self.gelu_tanh(x),
            (Composed::Clamp, &[x], &[low, high]) => {
                if low > high {
                    return Err(range(format!("no number lies between {low} and {high}"), span));
                }
                let low = self.b.constant(low, Shape::scalar(), DType::F32)?;
                let high = self.b.constant(high, Shape::scalar(), DType::F32)?;
                let above = self.b.binary(BinaryOp::Max, x, low)?;
                Ok(self.b.binary(BinaryOp::Min, above, high)?)
            }
            (Composed::Swiglu, &[gate, x], []) => {
                let gate = self.b.unary(UnaryOp::Silu, gate)?;
                Ok(self.b.binary(BinaryOp::Mul, gate, x)?)
            }
            (Composed::LogSoftmax { from_end }, &[x], []) => self.log_softmax(x, from_end, span),
            (function, args, n) => self.loss(function, args, n, span),
        }
    }

    /// Elements of losses.
    fn loss(
        &mut self,
        function: Composed,
        args: &[NodeId],
        numbers: &[f64],
        span: Span,
    ) -> Result<NodeId> {
        let (&[x, y], numbers) = (args, numbers) else {
            return Err(internal(span, format!("`{function:?}` of {} arguments", args.len())));
        };
        match (function, numbers) {
            (Composed::Mse, []) => {
                let d = self.b.binary(BinaryOp::Sub, x, y)?;
                Ok(self.b.unary(UnaryOp::Square, d)?)
            }
            (Composed::L1, []) => {
                let d = self.b.binary(BinaryOp::Sub, x, y)?;
                Ok(self.b.unary(UnaryOp::Abs, d)?)
            }
            (Composed::Huber, &[delta]) => self.huber(x, y, delta, span),
            (Composed::BceWithLogits, []) => {
                let soft = self.b.unary(UnaryOp::Softplus, x)?;
                let product = self.b.binary(BinaryOp::Mul, x, y)?;
                Ok(self.b.binary(BinaryOp::Sub, soft, product)?)
            }
            (Composed::Kl, []) => {
                let (p, q) = (self.log_softmax(y, 0, span)?, self.log_softmax(x, 0, span)?);
                let apart = self.b.binary(BinaryOp::Sub, p, q)?;
                let last = self.last(y, span)?;
                let share = self.b.softmax(y, last)?;
                let product = self.b.binary(BinaryOp::Mul, share, apart)?;
                Ok(self.b.reduce(ReduceOp::Sum, product, &[last])?)
            }
            (Composed::SmoothCrossEntropy, &[smoothing]) => {
                if !(0.0..1.0).contains(&smoothing) {
                    let title = format!("`smoothing` is from 0 to below 1, not {smoothing}");
                    return Err(range(title, span));
                }
                let nll = self.b.cross_entropy(x, y)?;
                let nll = self.b.affine(nll, 1.0 - smoothing, 0.0)?;
                // The mean of -log softmax over all classes: logsumexp(x) - mean(x).
                let last = self.last(x, span)?;
                let width = self.b.shape(x).0.last().map_or(1, |d| d.per.max(1));
                let all = self.b.log_sum_exp(x, last)?;
                let sum = self.b.reduce(ReduceOp::Sum, x, &[last])?;
                let mean = self.b.affine(sum, 1.0 / width as f64, 0.0)?;
                let even = self.b.binary(BinaryOp::Sub, all, mean)?;
                let even = self.b.affine(even, smoothing, 0.0)?;
                self.add(nll, even)
            }
            (function, n) => Err(internal(span, format!("`{function:?}` of {n:?}"))),
        }
    }

    /// With e = |x - y| and q = min(e, delta): q^2 / 2 + delta (e - q).
    fn huber(&mut self, x: NodeId, y: NodeId, delta: f64, span: Span) -> Result<NodeId> {
        if delta <= 0.0 {
            return Err(range(format!("`delta` is above 0, not {delta}"), span));
        }
        let d = self.b.binary(BinaryOp::Sub, x, y)?;
        let e = self.b.unary(UnaryOp::Abs, d)?;
        let limit = self.b.constant(delta, Shape::scalar(), DType::F32)?;
        let q = self.b.binary(BinaryOp::Min, e, limit)?;
        let near = self.b.unary(UnaryOp::Square, q)?;
        let near = self.b.affine(near, 0.5, 0.0)?;
        let far = self.b.binary(BinaryOp::Sub, e, q)?;
        let far = self.b.affine(far, delta, 0.0)?;
        self.add(near, far)
    }

    /// slope * min(x, 0).
    fn below(&mut self, x: NodeId, slope: f64) -> Result<NodeId> {
        let minus = self.b.affine(x, -1.0, 0.0)?;
        let below = self.b.unary(UnaryOp::Relu, minus)?;
        Ok(self.b.affine(below, -slope, 0.0)?)
    }

    /// x / 2 (1 + tanh(u)) = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
    fn gelu_tanh(&mut self, x: NodeId) -> Result<NodeId> {
        let square = self.b.unary(UnaryOp::Square, x)?;
        let bend = self.b.affine(square, 2.0 * GELU_SCALE * 0.044_715, 2.0 * GELU_SCALE)?;
        let u = self.b.binary(BinaryOp::Mul, x, bend)?;
        let gate = self.b.unary(UnaryOp::Sigmoid, u)?;
        Ok(self.b.binary(BinaryOp::Mul, x, gate)?)
    }

    fn log_softmax(&mut self, x: NodeId, from_end: usize, span: Span) -> Result<NodeId> {
        let shape = self.b.shape(x);
        let axis = shape.rank().checked_sub(from_end + 1);
        let axis = axis.ok_or_else(|| internal(span, "there is no such axis"))? as u8;
        let all = self.b.log_sum_exp(x, axis)?;
        let all = self.b.broadcast(all, &[axis], shape)?;
        Ok(self.b.binary(BinaryOp::Sub, x, all)?)
    }

    fn last(&self, x: NodeId, span: Span) -> Result<u8> {
        let last = self.b.shape(x).rank().checked_sub(1);
        last.map(|a| a as u8).ok_or_else(|| internal(span, "a scalar has no last axis"))
    }

    fn add(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        Ok(self.b.binary(BinaryOp::Add, a, b)?)
    }
}

fn range(title: String, span: Span) -> Diagnostic {
    Diagnostic::error("M0112", title).label(span, "out of range")
}
