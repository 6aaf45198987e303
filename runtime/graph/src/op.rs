use crate::{DType, NodeId, RopeAngles, Shape, Span};
use wincode::{SchemaRead, SchemaWrite};

/// A tensor graph for one shard, in topological order: inputs come before their users.
///
/// Forward and backward operations are nodes of the same kind; a graph after differentiation is
/// just a longer graph.
#[derive(Clone, Debug, Default, PartialEq, SchemaWrite, SchemaRead)]
pub struct Graph {
    pub nodes: Vec<Node>,
}

/// One operation with one result.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<NodeId>,
    pub shape: Shape,
    pub dtype: DType,
    /// The line of the job that asked for it (for a backward node: of its forward node).
    pub span: Span,
}

impl Graph {
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }
}

/// The operations. `x`, `dy`, ... name the inputs in order; `..` stands for any leading axes.
/// Axis numbers count from 0, outermost.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum Op {
    /// Weight number `.0` of the plan.
    Weight(u32),
    /// Column number `.0` of the program's columns: the samples of this shard.
    Column(u32),
    /// Every element is this value (of the node's dtype).
    Const(f64),
    /// f(x), elementwise.
    Unary(UnaryOp),
    /// (x, dy) -> dy * f'(x), elementwise.
    UnaryGrad(UnaryOp),
    /// x * mul + add, elementwise.
    Affine { mul: f64, add: f64 },
    /// (a, b): the shape of one is a trailing part of the other's (equal, or a suffix, or a
    /// scalar) and is repeated along the leading axes of the other.
    Binary(BinaryOp),
    /// Like `Binary`; the result is f32, 1 where the comparison holds and 0 elsewhere. Both
    /// sides have one dtype, f32 or i32.
    Compare(CompareOp),
    /// i32 -> f32.
    ToFloat,
    /// x repeated along new axes: `axes` lists those axes of the result that x lacks, ascending.
    Broadcast { axes: Vec<u8> },
    /// Same elements in row-major order under another shape.
    Reshape,
    /// Axis i of the result is axis `.0[i]` of x.
    Permute(Vec<u8>),
    /// Elements `start..start + length` of one axis; `length` is in the node's shape.
    Slice { axis: u8, start: u64 },
    /// Zeros of the node's shape with x at `start` of `axis` (the adjoint of `Slice`).
    Unslice { axis: u8, start: u64 },
    /// Inputs one after another along `axis`.
    Concat { axis: u8 },
    /// Folds `axes` (ascending) away.
    Reduce { op: ReduceOp, axes: Vec<u8> },
    /// Index (i32) of the largest element of `axis`, which disappears; the first of equals.
    ArgMax { axis: u8 },
    /// (a, b) -> contraction; see [`Einsum`].
    Einsum(Einsum),
    /// Softmax over `axis`.
    Softmax { axis: u8 },
    /// (y = softmax, dy) -> y * (dy - sum(y * dy)).
    SoftmaxGrad { axis: u8 },
    /// x [.., T, S]: elements with s > t + (S - T) become `fill`. With fill 0 it is its own
    /// adjoint.
    Causal { fill: f64 },
    /// (logits [.., V], targets i32 [..]) -> -log softmax(logits)[target], shape [..].
    CrossEntropy,
    /// (logits [.., V], targets i32 [..], dy [..]) -> dlogits [.., V].
    CrossEntropyGrad,
    /// x / sqrt(mean(x^2) + eps) over the last axis.
    RmsNorm { eps: f64 },
    /// (x, dy) -> dx.
    RmsNormGrad { eps: f64 },
    /// (x - mean) / sqrt(var + eps) over the last axis (biased variance).
    LayerNorm { eps: f64 },
    /// (x, dy) -> dx.
    LayerNormGrad { eps: f64 },
    /// (table [R, ..], ids i32 [I..]) -> [I.., ..]: rows of the table. An id outside 0..R is an
    /// error that names it.
    Gather,
    /// (ids i32 [I..], dy [I.., ..]) -> [R, ..]: rows of dy added in order (adjoint of `Gather`).
    ScatterAdd,
    /// log of the sum of exp(x) over `axis`, which disappears.
    LogSumExp { axis: u8 },
    /// x [.., Y, X, C] -> [.., Y', X', P, Q, C]: windows of x side by side; see [`Windows`].
    /// Outside the image there is `fill`.
    Unfold { windows: Windows, fill: f64 },
    /// (windows [.., Y', X', P, Q, C]) -> [.., Y, X, C]: what they have of each element, added in
    /// their order (adjoint of `Unfold`).
    Fold(Windows),
    /// x / (1 - p) where it is kept, 0 elsewhere: each element is dropped with probability p, by
    /// the random number of (seed, step, sample, `number`, element of the sample). Its own adjoint:
    /// the same numbers are drawn again, no mask is stored. `p` is from 0 to below 1; `number`
    /// tells the dropouts of a program apart. (Srivastava et al., "Dropout", JMLR 2014.)
    Dropout { p: f64, number: u32 },
    /// Rotary position embedding, half-split: x [.., K] with the position along `axis`:
    /// pairs (x[i], x[i + K/2]) turned by position * frequency of [`RopeAngles`]; `inverse` turns
    /// back.
    Rope { axis: u8, angles: RopeAngles, inverse: bool },
}

/// Elementwise functions of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum UnaryOp {
    Neg,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Square,
    Abs,
    Recip,
    Tanh,
    Sigmoid,
    Relu,
    /// x * Phi(x), exact (erf).
    Gelu,
    /// x * sigmoid(x).
    Silu,
    /// log(1 + exp(x)).
    Softplus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum ReduceOp {
    Sum,
    Max,
}

/// out[..] = sum over labels absent from `out` of a[..] * b[..].
///
/// A label is a small number; each operand lists one label per axis, without repeats. A label of
/// a single operand that is absent from `out` does not occur (reduce it first), and every label
/// of `out` occurs in an operand. Labels in a, b and out are batch; in a and out rows (m); in b
/// and out columns (n); in a and b only, contracted (k), in the order in which `a` lists them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub struct Einsum {
    pub a: Vec<u8>,
    pub b: Vec<u8>,
    pub out: Vec<u8>,
}

/// Windows over the rows and columns of an image: the first begins `before` the image's corner,
/// each `stride` after the one before it; how many there are, the shape of the result says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub struct Windows {
    pub size: [u64; 2],
    pub stride: [u64; 2],
    pub before: [u64; 2],
}
