//! A builder that only makes well-typed graphs: one constructor per operation.

use crate::infer::{Typed, infer};
use monarch_graph::{
    BinaryOp, CompareOp, DType, Einsum, Graph, Node, NodeId, Op, ReduceOp, RopeAngles, Shape, Span,
    UnaryOp, Windows,
};
use std::fmt;

/// A node that does not fit its inputs: a mistake of ours, never of the program's author. It is
/// shown as an internal error at the line that asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    pub message: String,
    pub span: Span,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BuildError {}

pub type Result<T> = std::result::Result<T, BuildError>;

/// Appends checked nodes to a graph.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    graph: Graph,
    span: Span,
}

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Goes on where `graph` ends.
    pub fn extend(graph: Graph) -> Builder {
        Builder { graph, span: Span::default() }
    }

    /// Nodes made from here on belong to this line of the job.
    pub fn at(&mut self, span: Span) {
        self.span = span;
    }

    pub fn span(&self) -> Span {
        self.span
    }

    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub fn finish(self) -> Graph {
        self.graph
    }

    pub fn len(&self) -> usize {
        self.graph.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.graph.nodes.is_empty()
    }

    pub fn shape(&self, id: NodeId) -> Shape {
        self.graph.nodes.get(id.index()).map(|n| n.shape.clone()).unwrap_or_default()
    }

    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(BuildError { message: message.into(), span: self.span })
    }

    /// Adds a node of any operation after checking it.
    pub fn push(
        &mut self,
        op: Op,
        inputs: &[NodeId],
        declared: Option<(Shape, DType)>,
    ) -> Result<NodeId> {
        let mut types: Vec<Typed> = Vec::with_capacity(inputs.len());
        for id in inputs {
            match self.graph.nodes.get(id.index()) {
                Some(node) => types.push((&node.shape, node.dtype)),
                None => return self.error(format!("`{op:?}` uses node {} too early", id.0)),
            }
        }
        let hint = declared.as_ref().map(|(shape, dtype)| (shape, *dtype));
        match infer(&op, &types, hint) {
            Ok((shape, dtype)) => {
                let (inputs, span) = (inputs.to_vec(), self.span);
                Ok(self.graph.push(Node { op, inputs, shape, dtype, span }))
            }
            Err(e) => self.error(format!("`{op:?}` {e}")),
        }
    }

    fn shaped(&mut self, op: Op, inputs: &[NodeId], shape: Shape) -> Result<NodeId> {
        let dtype = inputs
            .last()
            .and_then(|id| self.graph.nodes.get(id.index()))
            .map_or(DType::F32, |node| node.dtype);
        self.push(op, inputs, Some((shape, dtype)))
    }

    pub fn weight(&mut self, weight: u32, lengths: &[u64]) -> Result<NodeId> {
        self.push(Op::Weight(weight), &[], Some((Shape::fixed(lengths), DType::F32)))
    }

    pub fn column(&mut self, column: u32, shape: Shape, dtype: DType) -> Result<NodeId> {
        self.push(Op::Column(column), &[], Some((shape, dtype)))
    }

    pub fn constant(&mut self, value: f64, shape: Shape, dtype: DType) -> Result<NodeId> {
        self.push(Op::Const(value), &[], Some((shape, dtype)))
    }

    pub fn unary(&mut self, op: UnaryOp, x: NodeId) -> Result<NodeId> {
        self.push(Op::Unary(op), &[x], None)
    }

    pub fn unary_grad(&mut self, op: UnaryOp, x: NodeId, dy: NodeId) -> Result<NodeId> {
        self.push(Op::UnaryGrad(op), &[x, dy], None)
    }

    /// x * mul + add; `x` itself when that changes nothing.
    pub fn affine(&mut self, x: NodeId, mul: f64, add: f64) -> Result<NodeId> {
        if mul == 1.0 && add == 0.0 {
            return Ok(x);
        }
        self.push(Op::Affine { mul, add }, &[x], None)
    }

    pub fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.push(Op::Binary(op), &[a, b], None)
    }

    pub fn compare(&mut self, op: CompareOp, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.push(Op::Compare(op), &[a, b], None)
    }

    pub fn to_float(&mut self, x: NodeId) -> Result<NodeId> {
        self.push(Op::ToFloat, &[x], None)
    }

    /// `x` repeated along `axes` of the result, which has shape `to`.
    pub fn broadcast(&mut self, x: NodeId, axes: &[u8], to: Shape) -> Result<NodeId> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.shaped(Op::Broadcast { axes: axes.to_vec() }, &[x], to)
    }

    /// The same elements as `to`; `x` itself when it has that shape.
    pub fn reshape(&mut self, x: NodeId, to: Shape) -> Result<NodeId> {
        if self.shape(x) == to {
            return Ok(x);
        }
        self.shaped(Op::Reshape, &[x], to)
    }

    /// Axis i of the result is axis `order[i]` of `x`.
    pub fn permute(&mut self, x: NodeId, order: &[u8]) -> Result<NodeId> {
        if order.iter().copied().eq(0..order.len() as u8) {
            return Ok(x);
        }
        self.push(Op::Permute(order.to_vec()), &[x], None)
    }

    /// Elements `start..start + length` of `axis`.
    pub fn slice(&mut self, x: NodeId, axis: u8, start: u64, length: u64) -> Result<NodeId> {
        let mut shape = self.shape(x);
        match shape.0.get_mut(usize::from(axis)) {
            Some(dim) if dim.per == length && start == 0 && !dim.batch => return Ok(x),
            Some(dim) => dim.per = length,
            None => return self.error(format!("`Slice` has no axis {axis}")),
        }
        self.shaped(Op::Slice { axis, start }, &[x], shape)
    }

    /// Zeros of shape `to` with `x` at `start` of `axis`.
    pub fn unslice(&mut self, x: NodeId, axis: u8, start: u64, to: Shape) -> Result<NodeId> {
        self.shaped(Op::Unslice { axis, start }, &[x], to)
    }

    pub fn concat(&mut self, inputs: &[NodeId], axis: u8) -> Result<NodeId> {
        match inputs {
            [x] => Ok(*x),
            _ => self.push(Op::Concat { axis }, inputs, None),
        }
    }

    pub fn reduce(&mut self, op: ReduceOp, x: NodeId, axes: &[u8]) -> Result<NodeId> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.push(Op::Reduce { op, axes: axes.to_vec() }, &[x], None)
    }

    /// Sums leading axes away until `rank` are left: the adjoint of suffix broadcasting.
    pub fn sum_leading(&mut self, x: NodeId, rank: usize) -> Result<NodeId> {
        let extra = self.shape(x).rank().saturating_sub(rank) as u8;
        self.reduce(ReduceOp::Sum, x, &(0..extra).collect::<Vec<_>>())
    }

    pub fn arg_max(&mut self, x: NodeId, axis: u8) -> Result<NodeId> {
        self.push(Op::ArgMax { axis }, &[x], None)
    }

    pub fn einsum(&mut self, e: Einsum, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.push(Op::Einsum(e), &[a, b], None)
    }

    pub fn softmax(&mut self, x: NodeId, axis: u8) -> Result<NodeId> {
        self.push(Op::Softmax { axis }, &[x], None)
    }

    pub fn softmax_grad(&mut self, y: NodeId, dy: NodeId, axis: u8) -> Result<NodeId> {
        self.push(Op::SoftmaxGrad { axis }, &[y, dy], None)
    }

    pub fn causal(&mut self, x: NodeId, fill: f64) -> Result<NodeId> {
        self.push(Op::Causal { fill }, &[x], None)
    }

    pub fn cross_entropy(&mut self, logits: NodeId, targets: NodeId) -> Result<NodeId> {
        self.push(Op::CrossEntropy, &[logits, targets], None)
    }

    pub fn cross_entropy_grad(
        &mut self,
        logits: NodeId,
        targets: NodeId,
        dy: NodeId,
    ) -> Result<NodeId> {
        self.push(Op::CrossEntropyGrad, &[logits, targets, dy], None)
    }

    pub fn rms_norm(&mut self, x: NodeId, eps: f64) -> Result<NodeId> {
        self.push(Op::RmsNorm { eps }, &[x], None)
    }

    pub fn rms_norm_grad(&mut self, x: NodeId, dy: NodeId, eps: f64) -> Result<NodeId> {
        self.push(Op::RmsNormGrad { eps }, &[x, dy], None)
    }

    pub fn layer_norm(&mut self, x: NodeId, eps: f64) -> Result<NodeId> {
        self.push(Op::LayerNorm { eps }, &[x], None)
    }

    pub fn layer_norm_grad(&mut self, x: NodeId, dy: NodeId, eps: f64) -> Result<NodeId> {
        self.push(Op::LayerNormGrad { eps }, &[x, dy], None)
    }

    pub fn gather(&mut self, table: NodeId, ids: NodeId) -> Result<NodeId> {
        self.push(Op::Gather, &[table, ids], None)
    }

    /// Rows of `dy` added to a zero table of shape `table`.
    pub fn scatter_add(&mut self, ids: NodeId, dy: NodeId, table: Shape) -> Result<NodeId> {
        self.push(Op::ScatterAdd, &[ids, dy], Some((table, DType::F32)))
    }

    /// Drops elements with probability `p`; `number` tells the dropouts of a program apart.
    pub fn dropout(&mut self, x: NodeId, p: f64, number: u32) -> Result<NodeId> {
        self.push(Op::Dropout { p, number }, &[x], None)
    }

    /// The axis disappears.
    pub fn log_sum_exp(&mut self, x: NodeId, axis: u8) -> Result<NodeId> {
        self.push(Op::LogSumExp { axis }, &[x], None)
    }

    /// Windows of images [.., Y, X, C], as many as `to` says; `fill` outside.
    pub fn unfold(&mut self, x: NodeId, w: Windows, fill: f64, to: Shape) -> Result<NodeId> {
        self.shaped(Op::Unfold { windows: w, fill }, &[x], to)
    }

    /// Windows added up to images of shape `to`.
    pub fn fold(&mut self, x: NodeId, w: Windows, to: Shape) -> Result<NodeId> {
        self.shaped(Op::Fold(w), &[x], to)
    }

    pub fn rope(
        &mut self,
        x: NodeId,
        axis: u8,
        angles: impl Into<RopeAngles>,
        inverse: bool,
    ) -> Result<NodeId> {
        self.push(Op::Rope { axis, angles: angles.into(), inverse }, &[x], None)
    }
}
