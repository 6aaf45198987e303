//! Reverse-mode differentiation, graph to graph: backward operations are ordinary nodes that
//! follow the forward ones.
//!
//! - Nodes are visited from last to first, and a node's adjoint is added up in the order in which
//!   its users are visited, so every sum has one fixed order and the gradients of the last layers
//!   are complete first.
//! - The seed is 1 for every element of the loss's numerator.
//! - Where a function has no derivative, one rule is fixed: `relu` and `abs` have 0 at 0; `max(a,
//!   b)` and `min(a, b)` give equals to `a`; a maximum over an axis shares equally among equals.

use crate::build::{BuildError, Builder, Result};
use monarch_graph::{
    BinaryOp, CompareOp, DType, Einsum, Graph, Node, NodeId, Op, ReduceOp, Shape, UnaryOp,
};

/// A graph with its backward half.
#[derive(Clone, Debug)]
pub struct Differentiated {
    pub graph: Graph,
    /// Nodes `0..forward` are the forward half, as it was.
    pub forward: usize,
    /// Per weight number: its gradient, where the loss depends on it and it was wanted.
    pub gradients: Vec<Option<NodeId>>,
    /// Per node of the backward half, from `forward` on: the node that it is the derivative of.
    pub origins: Vec<NodeId>,
}

/// Gradients of the sum of `loss`'s elements for every weight `w` with `trainable[w]`.
pub fn differentiate(graph: Graph, loss: NodeId, trainable: &[bool]) -> Result<Differentiated> {
    let forward = graph.nodes.len();
    let active = active(&graph, trainable);
    let mut sweep =
        Sweep { adjoints: vec![Adjoint::default(); forward], active, b: Builder::extend(graph) };
    let mut gradients = vec![None; trainable.len()];
    let mut origins = Vec::new();
    if sweep.active.get(loss.index()) == Some(&true) {
        let shape = sweep.b.shape(loss);
        sweep.b.at(sweep.b.graph().node(loss).span);
        let one = sweep.b.constant(1.0, shape, DType::F32)?;
        sweep.give(loss, Term::Whole(one))?;
        for i in (0..=loss.index()).rev() {
            sweep.visit(NodeId(i as u32), &mut gradients)?;
            origins.resize(sweep.b.len() - forward, NodeId(i as u32));
        }
    }
    Ok(Differentiated { graph: sweep.b.finish(), forward, gradients, origins })
}

/// Nodes whose value depends on a trainable weight through operations that have a derivative.
fn active(graph: &Graph, trainable: &[bool]) -> Vec<bool> {
    let mut active: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let own = match &node.op {
            Op::Weight(w) => trainable.get(*w as usize) == Some(&true),
            Op::Compare(_) | Op::ArgMax { .. } | Op::ToFloat => false,
            _ => node.inputs.iter().any(|i| active.get(i.index()) == Some(&true)),
        };
        active.push(own);
    }
    active
}

/// Whether `node` has a derivative with respect to a trainable weight.
pub fn depends_on(graph: &Graph, node: NodeId, trainable: &[bool]) -> bool {
    active(graph, trainable).get(node.index()) == Some(&true)
}

/// A contribution to an adjoint.
#[derive(Clone, Copy, Debug)]
enum Term {
    Whole(NodeId),
    /// This tensor at `start` of `axis`, zero elsewhere.
    Part {
        value: NodeId,
        axis: u8,
        start: u64,
        length: u64,
    },
}

/// What has been given to a node so far.
#[derive(Clone, Debug, Default)]
struct Adjoint {
    sum: Option<NodeId>,
    /// Parts that may yet make up the whole, so that slices of one tensor join without zeros.
    parts: Vec<Term>,
}

struct Sweep {
    b: Builder,
    active: Vec<bool>,
    adjoints: Vec<Adjoint>,
}

impl Sweep {
    fn visit(&mut self, id: NodeId, gradients: &mut [Option<NodeId>]) -> Result<()> {
        if !self.is_active(id) {
            return Ok(());
        }
        let node = self.b.graph().node(id).clone();
        self.b.at(node.span);
        let Some(dy) = self.total(id, &node.shape)? else { return Ok(()) };
        if let Op::Weight(w) = node.op {
            if let Some(slot) = gradients.get_mut(w as usize) {
                *slot = Some(match *slot {
                    Some(other) => self.b.binary(BinaryOp::Add, other, dy)?,
                    None => dy,
                });
            }
            return Ok(());
        }
        self.adjoint(id, &node, dy)
    }

    fn is_active(&self, id: NodeId) -> bool {
        self.active.get(id.index()) == Some(&true)
    }

    /// Adds to the adjoint of `to`, unless nothing trainable lies behind it.
    fn give(&mut self, to: NodeId, term: Term) -> Result<()> {
        if !self.is_active(to) {
            return Ok(());
        }
        let sum = self.adjoints.get(to.index()).and_then(|a| a.sum);
        let whole = match (term, sum) {
            (Term::Whole(x), None) => x,
            (Term::Whole(x), Some(sum)) => self.b.binary(BinaryOp::Add, sum, x)?,
            (part, _) => {
                if let Some(adjoint) = self.adjoints.get_mut(to.index()) {
                    adjoint.parts.push(part);
                }
                return Ok(());
            }
        };
        if let Some(adjoint) = self.adjoints.get_mut(to.index()) {
            adjoint.sum = Some(whole);
        }
        Ok(())
    }

    /// The complete adjoint of a node all of whose users have been visited.
    fn total(&mut self, id: NodeId, shape: &Shape) -> Result<Option<NodeId>> {
        let Some(adjoint) = self.adjoints.get_mut(id.index()) else { return Ok(None) };
        let Adjoint { mut sum, parts } = std::mem::take(adjoint);
        if let Some((axis, inputs)) = tiles(&parts, shape) {
            let joined = self.b.concat(&inputs, axis)?;
            return self.plus(sum, joined).map(Some);
        }
        for part in parts {
            if let Term::Part { value, axis, start, .. } = part {
                let padded = self.b.unslice(value, axis, start, shape.clone())?;
                sum = Some(self.plus(sum, padded)?);
            }
        }
        Ok(sum)
    }

    fn plus(&mut self, sum: Option<NodeId>, x: NodeId) -> Result<NodeId> {
        match sum {
            Some(sum) => self.b.binary(BinaryOp::Add, sum, x),
            None => Ok(x),
        }
    }

    fn whole(&mut self, to: NodeId, value: NodeId) -> Result<()> {
        self.give(to, Term::Whole(value))
    }

    fn adjoint(&mut self, id: NodeId, node: &Node, dy: NodeId) -> Result<()> {
        match (&node.op, node.inputs.as_slice()) {
            (Op::Unary(op), &[x]) => self.unary(*op, x, id, dy),
            (Op::Affine { mul, .. }, &[x]) => {
                let dx = self.b.affine(dy, *mul, 0.0)?;
                self.whole(x, dx)
            }
            (Op::Binary(op), &[a, b]) => self.binary(*op, a, b, id, dy),
            (Op::Reduce { .. } | Op::Broadcast { .. }, &[x]) => self.fold(node, x, id, dy),
            (Op::Einsum(e), &[a, b]) => self.einsum(e, a, b, dy),
            (
                Op::Reshape
                | Op::Permute(_)
                | Op::Slice { .. }
                | Op::Unslice { .. }
                | Op::Concat { .. },
                inputs,
            ) => self.layout(node, inputs, dy),
            (Op::Gather, &[table, ids]) => {
                let shape = self.b.shape(table);
                let dx = self.b.scatter_add(ids, dy, shape)?;
                self.whole(table, dx)
            }
            (Op::ScatterAdd, &[ids, rows]) => {
                let dx = self.b.gather(dy, ids)?;
                self.whole(rows, dx)
            }
            (_, inputs) => self.fused(node, inputs, id, dy),
        }
    }

    /// Operations whose adjoint is one operation of its own.
    fn fused(&mut self, node: &Node, inputs: &[NodeId], y: NodeId, dy: NodeId) -> Result<()> {
        let (x, dx) = match (&node.op, inputs) {
            (Op::Softmax { axis }, &[x]) => (x, self.b.softmax_grad(y, dy, *axis)?),
            (Op::Causal { .. }, &[x]) => (x, self.b.causal(dy, 0.0)?),
            (&Op::LogSumExp { axis }, &[x]) => {
                let (share, shape) = (self.b.softmax(x, axis)?, self.b.shape(x));
                let spread = self.b.broadcast(dy, &[axis], shape)?;
                (x, self.b.binary(BinaryOp::Mul, share, spread)?)
            }
            (&Op::Unfold { windows, .. }, &[x]) => {
                let shape = self.b.shape(x);
                (x, self.b.fold(dy, windows, shape)?)
            }
            (&Op::Fold(windows), &[x]) => {
                let shape = self.b.shape(x);
                (x, self.b.unfold(dy, windows, 0.0, shape)?)
            }
            (&Op::Dropout { p, number }, &[x]) => (x, self.b.dropout(dy, p, number)?),
            (Op::Rope { axis, angles, inverse }, &[x]) => {
                (x, self.b.rope(dy, *axis, *angles, !inverse)?)
            }
            (Op::RmsNorm { eps }, &[x]) => (x, self.b.rms_norm_grad(x, dy, *eps)?),
            (Op::LayerNorm { eps }, &[x]) => (x, self.b.layer_norm_grad(x, dy, *eps)?),
            (Op::CrossEntropy, &[logits, targets]) => {
                (logits, self.b.cross_entropy_grad(logits, targets, dy)?)
            }
            (op, _) => {
                let message = format!("`{op:?}` has no derivative here");
                return Err(BuildError { message, span: node.span });
            }
        };
        self.whole(x, dx)
    }

    /// Uses the result instead of the argument where it serves: the argument's memory is free
    /// earlier.
    fn unary(&mut self, op: UnaryOp, x: NodeId, y: NodeId, dy: NodeId) -> Result<()> {
        let dx = match op {
            UnaryOp::Neg => self.b.affine(dy, -1.0, 0.0)?,
            UnaryOp::Exp => self.b.binary(BinaryOp::Mul, dy, y)?,
            UnaryOp::Relu => self.b.unary_grad(op, y, dy)?,
            _ => self.b.unary_grad(op, x, dy)?,
        };
        self.whole(x, dx)
    }

    fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId, y: NodeId, dy: NodeId) -> Result<()> {
        match op {
            BinaryOp::Add => {
                self.suffix(a, dy)?;
                self.suffix(b, dy)
            }
            BinaryOp::Sub => {
                self.suffix(a, dy)?;
                if !self.is_active(b) {
                    return Ok(());
                }
                let summed = self.b.sum_leading(dy, self.b.shape(b).rank())?;
                let db = self.b.affine(summed, -1.0, 0.0)?;
                self.whole(b, db)
            }
            BinaryOp::Mul => {
                self.scaled(a, dy, b)?;
                self.scaled(b, dy, a)
            }
            BinaryOp::Div => {
                if self.is_active(a) {
                    let da = self.b.binary(BinaryOp::Div, dy, b)?;
                    self.suffix(a, da)?;
                }
                if !self.is_active(b) {
                    return Ok(());
                }
                let scaled = self.b.binary(BinaryOp::Mul, dy, y)?;
                let over = self.b.binary(BinaryOp::Div, scaled, b)?;
                let db = self.b.affine(over, -1.0, 0.0)?;
                self.suffix(b, db)
            }
            BinaryOp::Max => self.choice([CompareOp::Ge, CompareOp::Lt], a, b, dy),
            BinaryOp::Min => self.choice([CompareOp::Le, CompareOp::Gt], a, b, dy),
        }
    }

    fn choice(&mut self, keep: [CompareOp; 2], a: NodeId, b: NodeId, dy: NodeId) -> Result<()> {
        for (to, op) in [a, b].into_iter().zip(keep) {
            if self.is_active(to) {
                let mask = self.b.compare(op, a, b)?;
                self.scaled(to, dy, mask)?;
            }
        }
        Ok(())
    }

    /// Gives `dy * by` to `to`, which was repeated along leading axes.
    fn scaled(&mut self, to: NodeId, dy: NodeId, by: NodeId) -> Result<()> {
        if !self.is_active(to) {
            return Ok(());
        }
        let product = self.b.binary(BinaryOp::Mul, dy, by)?;
        self.suffix(to, product)
    }

    fn suffix(&mut self, to: NodeId, dy: NodeId) -> Result<()> {
        if !self.is_active(to) {
            return Ok(());
        }
        let dx = self.b.sum_leading(dy, self.b.shape(to).rank())?;
        self.whole(to, dx)
    }

    fn fold(&mut self, node: &Node, x: NodeId, y: NodeId, dy: NodeId) -> Result<()> {
        let to = self.b.shape(x);
        let dx = match &node.op {
            Op::Broadcast { axes } => self.b.reduce(ReduceOp::Sum, dy, axes)?,
            Op::Reduce { op: ReduceOp::Sum, axes } => self.b.broadcast(dy, axes, to)?,
            Op::Reduce { op: ReduceOp::Max, axes } => {
                let largest = self.b.broadcast(y, axes, to.clone())?;
                let mask = self.b.compare(CompareOp::Eq, x, largest)?;
                let equals = self.b.reduce(ReduceOp::Sum, mask, axes)?;
                let share = self.b.binary(BinaryOp::Div, dy, equals)?;
                let share = self.b.broadcast(share, axes, to)?;
                self.b.binary(BinaryOp::Mul, mask, share)?
            }
            op => return self.b.error(format!("`{op:?}` folds nothing")),
        };
        self.whole(x, dx)
    }

    /// The adjoint of a contraction is a contraction of the result's adjoint with the other
    /// operand. A weight's gradient comes before an activation's, so that its bucket starts
    /// earlier.
    fn einsum(&mut self, e: &Einsum, a: NodeId, b: NodeId, dy: NodeId) -> Result<()> {
        let is_weight = |s: &Sweep, n: NodeId| matches!(s.b.graph().node(n).op, Op::Weight(_));
        let first = if is_weight(self, b) { [false, true] } else { [true, false] };
        for left in first {
            let to = if left { a } else { b };
            if !self.is_active(to) {
                continue;
            }
            let dx = if left {
                let e = Einsum { a: e.out.clone(), b: e.b.clone(), out: e.a.clone() };
                self.b.einsum(e, dy, b)?
            } else {
                let e = Einsum { a: e.a.clone(), b: e.out.clone(), out: e.b.clone() };
                self.b.einsum(e, a, dy)?
            };
            self.whole(to, dx)?;
        }
        Ok(())
    }

    fn layout(&mut self, node: &Node, inputs: &[NodeId], dy: NodeId) -> Result<()> {
        let length = |shape: &Shape, axis: u8| shape.0.get(usize::from(axis)).map_or(0, |d| d.per);
        match (&node.op, inputs) {
            (Op::Reshape, &[x]) => {
                let dx = self.b.reshape(dy, self.b.shape(x))?;
                self.whole(x, dx)
            }
            (Op::Permute(order), &[x]) => {
                let mut back = vec![0u8; order.len()];
                for (i, &axis) in order.iter().enumerate() {
                    if let Some(slot) = back.get_mut(usize::from(axis)) {
                        *slot = i as u8;
                    }
                }
                let dx = self.b.permute(dy, &back)?;
                self.whole(x, dx)
            }
            (&Op::Slice { axis, start }, &[x]) => {
                let length = length(&node.shape, axis);
                self.give(x, Term::Part { value: dy, axis, start, length })
            }
            (&Op::Unslice { axis, start }, &[x]) => {
                let dx = self.b.slice(dy, axis, start, length(&self.b.shape(x), axis))?;
                self.whole(x, dx)
            }
            (&Op::Concat { axis }, inputs) => {
                let mut start = 0;
                for &x in inputs {
                    let length = length(&self.b.shape(x), axis);
                    if self.is_active(x) {
                        let dx = self.b.slice(dy, axis, start, length)?;
                        self.whole(x, dx)?;
                    }
                    start += length;
                }
                Ok(())
            }
            (op, _) => self.b.error(format!("`{op:?}` moves nothing")),
        }
    }
}

/// The parts in order along their axis, when they make up `shape` without gap or overlap.
fn tiles(parts: &[Term], shape: &Shape) -> Option<(u8, Vec<NodeId>)> {
    let mut sorted = Vec::with_capacity(parts.len());
    for part in parts {
        if let Term::Part { value, axis, start, length } = part {
            sorted.push((*start, *length, *value, *axis));
        }
    }
    sorted.sort_by_key(|&(start, ..)| start);
    let axis = sorted.first()?.3;
    let mut at = 0;
    for &(start, length, _, other) in &sorted {
        if start != at || other != axis {
            return None;
        }
        at += length;
    }
    let whole = shape.0.get(usize::from(axis))?.per == at;
    whole.then(|| (axis, sorted.into_iter().map(|(_, _, value, _)| value).collect()))
}
