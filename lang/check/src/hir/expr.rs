//! Functions and their expressions.

use super::{ModelId, Poly, Static, Sym, Symbol, TensorType};
use monarch_graph::{BinaryOp, CompareOp, Dim, Span, UnaryOp};

/// `forward`, `loss` or a metric.
#[derive(Clone, Debug)]
pub struct Function {
    /// For a layer: empty, the layer's symbols are meant. For `loss` and metrics: free axes.
    pub symbols: Vec<Symbol>,
    pub params: Vec<ParamDef>,
    /// Types and names of all locals, parameters first.
    pub locals: Vec<Local>,
    pub lets: Vec<Let>,
    pub result: Expr,
    pub span: Span,
}

/// Index into [`Function::locals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalId(pub u32);

/// A tensor parameter.
#[derive(Clone, Debug)]
pub struct ParamDef {
    pub name: String,
    pub local: LocalId,
    pub ty: TensorType,
    pub span: Span,
}

/// A named value of a function.
#[derive(Clone, Debug)]
pub struct Local {
    pub name: String,
    pub ty: TensorType,
    pub span: Span,
}

/// `let x = value` or `let [q, k, v] = value`.
#[derive(Clone, Debug)]
pub struct Let {
    pub pattern: Pattern,
    pub value: Expr,
}

/// What a `let` binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    One(LocalId),
    /// Slices of the leading axis, which disappears; it is as long as the list.
    Split(Vec<LocalId>),
}

/// An expression with a tensor as its value.
#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub ty: TensorType,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    Local(LocalId),
    /// Index into the layer's weights.
    Weight(u32),
    /// A number known when the plan is made, as a scalar of the type's dtype.
    Static(Static),
    /// Index into the layer's subs. A repeated one takes and gives one tensor, of one type.
    Sub {
        sub: u32,
        args: Vec<Expr>,
    },
    /// The `forward` of a model, from `loss` or a metric.
    Model {
        model: ModelId,
        args: Vec<Expr>,
    },
    Op {
        op: Op,
        args: Vec<Expr>,
    },
    If {
        condition: Static,
        yes: Box<Expr>,
        no: Box<Expr>,
    },
}

/// Operations; arguments are in `ExprKind::Op::args`. `from_end` counts axes from the last (0).
#[derive(Clone, Debug)]
pub enum Op {
    /// (x)
    Unary(UnaryOp),
    /// (a, b): one's axes are a trailing part of the other's, or it is a scalar.
    Binary(BinaryOp),
    /// Like `Binary`; the result is f32, 1 or 0.
    Compare(CompareOp),
    /// i32 -> f32
    ToFloat,
    /// (a, b): the last axis of a with the first axis of b.
    MatMul,
    /// One label list for each argument; see [`Labels`].
    Einsum { inputs: Vec<Labels>, output: Labels, names: Vec<String> },
    /// (x)
    Rearrange(Rearrange),
    /// (table [R, ..], ids i32 [I..]) -> [I.., ..]
    Gather,
    /// (x)
    Softmax { from_end: usize },
    /// (x): in training, this share of the elements is 0 and the others are scaled up.
    Dropout { p: Static },
    /// (x [.., T, S]): elements with s > t + (S - T) become minus infinity.
    Causal,
    /// (logits [.., V], targets i32 [..]) -> negative log-likelihoods [..]
    CrossEntropy,
    /// (x): over the last axis; see `graph::Op::RmsNorm`.
    RmsNorm { eps: Static },
    /// (x): over the last axis; see `graph::Op::LayerNorm`.
    LayerNorm { eps: Static },
    /// (x): position along `from_end`, pairs in the last axis; see `graph::Op::Rope`.
    /// `stretch`: factor, low, high, context of `graph::RopeStretch`.
    Rope { from_end: usize, base: Static, stretch: Option<Box<[Static; 4]>> },
    /// (x): the axis disappears; see `graph::Op::LogSumExp`.
    LogSumExp { from_end: usize },
    /// (images [.., Y, X, C], weight [P, Q, C / groups, O]) -> [.., Y', X', O]; see
    /// [`super::windows_along`].
    Conv2d(Box<Conv>),
    /// (images [.., Y, X, C]) -> [.., Y', X', C]: windows of `size` by `size` are folded.
    Pool(Box<Pool>),
    /// A function that is made of others when the plan is made.
    Composed { function: Composed, numbers: Vec<Static> },
    /// (x): these axes disappear; ascending from the end.
    Reduce { kind: Reduction, from_end: Vec<usize> },
    /// (x): the axis disappears.
    ArgMax { from_end: usize },
    /// (x): the number of the axis' elements changes to its first `length`, from `start`.
    Slice { from_end: usize, start: Static, length: Poly },
}

/// A convolution's numbers.
#[derive(Clone, Debug)]
pub struct Conv {
    pub stride: Static,
    pub padding: Padding,
    pub groups: Static,
}

/// A pooling's numbers; `kind` is the largest or the mean.
#[derive(Clone, Debug)]
pub struct Pool {
    pub kind: Reduction,
    pub size: Static,
    pub stride: Static,
    pub padding: Padding,
}

/// How an image is extended with zeros (for maxima: minus infinity) at its borders.
#[derive(Clone, Debug, PartialEq)]
pub enum Padding {
    /// So that there is a window for each `stride` elements.
    Same,
    /// By this many elements on each side.
    Each(Static),
}

/// Functions made of others. `numbers` are those of the signature, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Composed {
    /// (x), slope
    LeakyRelu,
    /// (x), alpha
    Elu,
    /// (x)
    LogSigmoid,
    /// (x): with tanh in place of erf
    GeluTanh,
    /// (x), low, high
    Clamp,
    /// (gate, x): silu(gate) * x
    Swiglu,
    /// (x)
    LogSoftmax {
        from_end: usize,
    },
    /// (x, y) -> elements of the mean
    Mse,
    L1,
    /// (x, y), delta
    Huber,
    /// (logits, targets)
    BceWithLogits,
    /// (logits [.., V], targets [.., V], logits too) -> [..]
    Kl,
    /// (logits [.., V], targets i32 [..]), smoothing -> [..]
    SmoothCrossEntropy,
}

/// What an axis is folded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
}

/// Labels of an operand's axes: indices into `names`, without repeats within an operand. With
/// `rest` any leading axes come before them, the same ones in each operand that has `rest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    pub rest: bool,
    pub axes: Vec<u8>,
}

/// Split axes, permute, join axes (einops `rearrange`). With `rest` leading axes stay in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Rearrange {
    pub rest: bool,
    /// Per axis of the input, the parts into which it is split, outermost first: label and size.
    pub input: Vec<Vec<(u8, Poly)>>,
    /// Per axis of the result, the labels joined into it; a permutation of all labels.
    pub output: Vec<Vec<u8>>,
}

/// Free axes of a function call, bound by matching parameter axes with argument lengths.
///
/// `known` gives symbols that are fixed already (an instance's sizes); `args` are the shapes of
/// the arguments in order. Returns the length of each symbol of `0..symbols`, None for one that
/// no parameter mentions alone, or None altogether when the shapes do not fit.
pub fn bind(
    params: &[ParamDef],
    args: &[Vec<Dim>],
    symbols: usize,
    known: &impl Fn(Sym) -> Option<Dim>,
) -> Option<Vec<Option<Dim>>> {
    let mut out: Vec<Option<Dim>> = (0..symbols).map(|i| known(Sym(i as u32))).collect();
    for (param, shape) in params.iter().zip(args) {
        let lead = shape.len().checked_sub(param.ty.axes.len())?;
        if lead > 0 && !param.ty.rest {
            return None;
        }
        for (axis, length) in param.ty.axes.iter().zip(shape.get(lead..)?) {
            if let Some(sym) = axis.size.as_symbol()
                && let Some(slot @ None) = out.get_mut(sym.index())
            {
                *slot = Some(*length);
            }
        }
    }
    let fits = params.iter().zip(args).all(|(param, shape)| {
        let lead = shape.len() - param.ty.axes.len();
        let pairs = param.ty.axes.iter().zip(&shape[lead..]);
        pairs.into_iter().all(|(axis, length)| {
            axis.size.dim(&|s| out.get(s.index()).copied().flatten()) == Some(*length)
        })
    });
    fits.then_some(out)
}
