//! Rewrites that keep a graph's meaning and make it smaller: folding of affine chains, constants
//! and layouts, common subexpressions, dead nodes.
//!
//! One pass from first to last node suffices: every rewrite looks only at inputs, which are
//! already in their final form. The order of the nodes that stay is unchanged.

use crate::build::{BuildError, Builder, Result};
use monarch_graph::{BinaryOp, DType, Dim, Einsum, Graph, Node, NodeId, Op, Shape};
use std::collections::HashMap;

/// A simplified graph and where the old nodes went.
#[derive(Clone, Debug)]
pub struct Simplified {
    pub graph: Graph,
    map: Vec<Option<NodeId>>,
}

impl Simplified {
    /// The node that stands for `old` now. A root always has one.
    pub fn now(&self, old: NodeId) -> Result<NodeId> {
        self.map.get(old.index()).copied().flatten().ok_or_else(|| BuildError {
            message: format!("node {} was removed while it was needed", old.0),
            span: Default::default(),
        })
    }

    /// How many of the first `n` old nodes' successors lead the new graph: where the forward
    /// half ends. (Nodes keep their order, and a shared node keeps its first place.)
    pub fn boundary(&self, n: usize) -> usize {
        let last = self.map.iter().take(n).flatten().map(|id| id.index() + 1).max();
        last.unwrap_or(0)
    }
}

/// Simplifies `graph`; only what `roots` need stays.
pub fn simplify(graph: &Graph, roots: &[NodeId]) -> Result<Simplified> {
    let mut uses = vec![0; graph.nodes.len()];
    for id in graph.nodes.iter().flat_map(|n| &n.inputs).chain(roots) {
        if let Some(n) = uses.get_mut(id.index()) {
            *n += 1;
        }
    }
    let mut folder = Folder { b: Builder::new(), known: HashMap::new(), uses: Vec::new() };
    let mut map: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for (node, uses) in graph.nodes.iter().zip(uses) {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let Some(&now) = map.get(input.index()) else {
                let message = format!("node {} is used before it is made", input.0);
                return Err(BuildError { message, span: node.span });
            };
            inputs.push(now);
        }
        let node = Node { inputs, ..node.clone() };
        let id = folder.fold(node)?;
        folder.uses.resize(folder.b.len(), 0);
        if let Some(n) = folder.uses.get_mut(id.index()) {
            *n += uses;
        }
        map.push(id);
    }
    let folded = folder.b.finish();
    let roots: Vec<NodeId> = roots.iter().filter_map(|r| map.get(r.index()).copied()).collect();
    let (graph, kept) = drop_dead(&folded, &roots);
    let now = |id: &NodeId| kept.get(id.index()).copied().flatten();
    Ok(Simplified { graph, map: map.iter().map(now).collect() })
}

/// The nodes that `roots` need, in their order, and where each old node went.
fn drop_dead(graph: &Graph, roots: &[NodeId]) -> (Graph, Vec<Option<NodeId>>) {
    let mut live = vec![false; graph.nodes.len()];
    for root in roots {
        if let Some(flag) = live.get_mut(root.index()) {
            *flag = true;
        }
    }
    for i in (0..graph.nodes.len()).rev() {
        if live[i] {
            for input in &graph.nodes[i].inputs {
                live[input.index()] = true;
            }
        }
    }
    let mut out = Graph::default();
    let mut map = vec![None; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
        let inputs = node.inputs.iter().filter_map(|n| map[n.index()]).collect();
        map[i] = Some(out.push(Node { inputs, ..node.clone() }));
    }
    (out, map)
}

struct Folder {
    b: Builder,
    /// Nodes by what they compute: encoded operation, inputs, shape and dtype.
    known: HashMap<(Vec<u8>, Vec<NodeId>, Shape, DType), NodeId>,
    /// How often the old nodes that became a node were used.
    uses: Vec<u32>,
}

impl Folder {
    /// The node that computes what `node` says: an older one, a simpler one, or itself.
    fn fold(&mut self, node: Node) -> Result<NodeId> {
        self.b.at(node.span);
        match self.rewrite(&node) {
            Some(Rewrite::Same(id)) => Ok(id),
            Some(Rewrite::Node(op, inputs)) => {
                // A rewritten node may fold again, and is strictly simpler.
                self.fold(Node { op, inputs, ..node })
            }
            Some(Rewrite::Scaled { factor, operand, other, of }) => {
                let scale = Op::Affine { mul: factor, add: 0.0 };
                let scaled = self.b.shape(operand);
                let scale = Node { op: scale, inputs: vec![operand], shape: scaled, ..node };
                let scaled = self.fold(scale)?;
                let inputs = if other.0 { vec![other.1, scaled] } else { vec![scaled, other.1] };
                self.fold(Node { op: Op::Einsum(of), inputs, ..node })
            }
            None => self.intern(node),
        }
    }

    fn intern(&mut self, node: Node) -> Result<NodeId> {
        let code = wincode::serialize(&node.op).map_err(|e| BuildError {
            message: format!("`{:?}` cannot be encoded: {e}", node.op),
            span: node.span,
        })?;
        let key = (code, node.inputs, node.shape, node.dtype);
        if let Some(&id) = self.known.get(&key) {
            return Ok(id);
        }
        let id = self.b.push(node.op, &key.1, Some((key.2.clone(), key.3)))?;
        self.known.insert(key, id);
        Ok(id)
    }

    fn at(&self, id: NodeId) -> Option<&Node> {
        self.b.graph().nodes.get(id.index())
    }

    fn rewrite(&self, node: &Node) -> Option<Rewrite> {
        match (&node.op, node.inputs.as_slice()) {
            (&Op::Affine { mul, add }, &[x]) => self.affine(x, mul, add),
            (Op::Binary(op), &[a, b]) => self.binary(*op, a, b, &node.shape),
            (Op::Broadcast { .. }, &[x]) => match self.at(x)?.op {
                Op::Const(value) => Some(Rewrite::Node(Op::Const(value), vec![])),
                _ => None,
            },
            (Op::Reshape, &[x]) => self.reshape(x, node),
            (Op::Permute(order), &[x]) => self.permute(x, order),
            (Op::Einsum(e), &[a, b]) => self.einsum(e, a, b),
            (&Op::Causal { fill: 0.0 }, &[x]) if self.is_causal(x) => Some(Rewrite::Same(x)),
            (Op::Slice { .. }, &[x]) if self.at(x)?.shape == node.shape => Some(Rewrite::Same(x)),
            _ => None,
        }
    }

    fn affine(&self, x: NodeId, mul: f64, add: f64) -> Option<Rewrite> {
        if mul == 1.0 && add == 0.0 {
            return Some(Rewrite::Same(x));
        }
        let node = self.at(x)?;
        match (&node.op, node.inputs.as_slice()) {
            (&Op::Affine { mul: m, add: a }, &[inner]) => {
                let op = Op::Affine { mul: m * mul, add: a * mul + add };
                Some(Rewrite::Node(op, vec![inner]))
            }
            (&Op::Const(v), _) => Some(Rewrite::Node(Op::Const(v * mul + add), vec![])),
            (Op::Einsum(e), &[a, b]) if add == 0.0 && self.uses.get(x.index()) == Some(&1) => {
                self.sink(mul, e, [a, b], &node.shape)
            }
            _ => None,
        }
    }

    /// Moves a factor from a product to its smaller operand, where that is smaller than the
    /// product: `einsum(q, k) / sqrt(K)` scales q instead of all scores.
    fn sink(&self, factor: f64, e: &Einsum, [a, b]: [NodeId; 2], to: &Shape) -> Option<Rewrite> {
        // Powers of B first, then elements for each of them.
        let volume = |shape: &Shape| {
            let batches = shape.0.iter().filter(|d| d.batch).count();
            (batches, shape.0.iter().fold(1u64, |n, d| n.saturating_mul(d.per)))
        };
        let (left, right) = (volume(&self.at(a)?.shape), volume(&self.at(b)?.shape));
        if left.min(right) >= volume(to) {
            return None;
        }
        let swap = right < left;
        let (operand, other) = if swap { (b, a) } else { (a, b) };
        Some(Rewrite::Scaled { factor, operand, other: (swap, other), of: e.clone() })
    }

    /// A constant operand becomes part of an affine operation.
    fn binary(&self, op: BinaryOp, a: NodeId, b: NodeId, shape: &Shape) -> Option<Rewrite> {
        let (left, right) = (self.at(a)?, self.at(b)?);
        let constant = |n: &Node| match n.op {
            Op::Const(v) => Some(v),
            _ => None,
        };
        if let (Some(v), true) = (constant(right), left.shape == *shape) {
            let (mul, add) = match op {
                BinaryOp::Add => (1.0, v),
                BinaryOp::Sub => (1.0, -v),
                BinaryOp::Mul => (v, 0.0),
                BinaryOp::Div if v != 0.0 => (1.0 / v, 0.0),
                _ => return None,
            };
            return Some(Rewrite::Node(Op::Affine { mul, add }, vec![a]));
        }
        if let (Some(v), true) = (constant(left), right.shape == *shape) {
            let (mul, add) = match op {
                BinaryOp::Add => (1.0, v),
                BinaryOp::Sub => (-1.0, v),
                BinaryOp::Mul => (v, 0.0),
                _ => return None,
            };
            return Some(Rewrite::Node(Op::Affine { mul, add }, vec![b]));
        }
        None
    }

    fn reshape(&self, x: NodeId, node: &Node) -> Option<Rewrite> {
        let inner = self.at(x)?;
        if inner.shape == node.shape {
            return Some(Rewrite::Same(x));
        }
        match (&inner.op, inner.inputs.as_slice()) {
            (Op::Reshape, &[y]) => Some(Rewrite::Node(Op::Reshape, vec![y])),
            (&Op::Const(v), _) => Some(Rewrite::Node(Op::Const(v), vec![])),
            _ => None,
        }
    }

    fn permute(&self, x: NodeId, order: &[u8]) -> Option<Rewrite> {
        if order.iter().copied().eq(0..order.len() as u8) {
            return Some(Rewrite::Same(x));
        }
        let inner = self.at(x)?;
        if let (Op::Permute(first), &[y]) = (&inner.op, inner.inputs.as_slice()) {
            let joined: Option<Vec<u8>> =
                order.iter().map(|&i| first.get(usize::from(i)).copied()).collect();
            return Some(Rewrite::Node(Op::Permute(joined?), vec![y]));
        }
        // Moving only axes of length 1 moves no element.
        let long: Vec<u8> = order
            .iter()
            .copied()
            .filter(|&i| inner.shape.0.get(usize::from(i)) != Some(&Dim::fixed(1)))
            .collect();
        let still = long.windows(2).all(|w| w[0] < w[1]);
        still.then(|| Rewrite::Node(Op::Reshape, vec![x]))
    }

    /// Whether the future is 0 in `x` already: the gradient of a causal softmax, which has the
    /// softmax's zeros.
    fn is_causal(&self, x: NodeId) -> bool {
        let input = |n: &Node| n.inputs.first().and_then(|&id| self.at(id));
        let masked = || {
            let grad = self.at(x)?;
            let (Op::SoftmaxGrad { axis }, softmax) = (&grad.op, input(grad)?) else {
                return None;
            };
            let last = usize::from(*axis) + 1 == grad.shape.rank();
            let along = matches!(&softmax.op, Op::Softmax { axis: a } if a == axis);
            let mask = &input(softmax)?.op;
            let hides = matches!(mask, Op::Causal { fill } if *fill == f64::NEG_INFINITY);
            Some(last && along && hides)
        };
        masked() == Some(true)
    }

    /// A transposed operand is the operand with its labels in another order.
    fn einsum(&self, e: &Einsum, a: NodeId, b: NodeId) -> Option<Rewrite> {
        let left = self.untransposed(a, &e.a);
        let right = self.untransposed(b, &e.b);
        if left.is_none() && right.is_none() {
            return None;
        }
        let (a, left) = left.unwrap_or((a, e.a.clone()));
        let (b, right) = right.unwrap_or((b, e.b.clone()));
        let e = Einsum { a: left, b: right, out: e.out.clone() };
        Some(Rewrite::Node(Op::Einsum(e), vec![a, b]))
    }

    fn untransposed(&self, x: NodeId, labels: &[u8]) -> Option<(NodeId, Vec<u8>)> {
        let node = self.at(x)?;
        let (Op::Permute(order), &[inner]) = (&node.op, node.inputs.as_slice()) else {
            return None;
        };
        let mut out = vec![0; labels.len()];
        for (&label, &axis) in labels.iter().zip(order) {
            *out.get_mut(usize::from(axis))? = label;
        }
        Some((inner, out))
    }
}

enum Rewrite {
    /// An existing node does it.
    Same(NodeId),
    /// Another operation of the same shape and dtype does it.
    Node(Op, Vec<NodeId>),
    /// The contraction `of` an operand times `factor` with another one, which comes first if its
    /// flag says so.
    Scaled { factor: f64, operand: NodeId, other: (bool, NodeId), of: Einsum },
}
