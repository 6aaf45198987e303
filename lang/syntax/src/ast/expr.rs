//! Expressions, and what stands in their brackets.

use monarch_graph::Span;

use super::{Assign, Axis, Broken, Ident, Path, Rule, Str};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// All of it.
    pub span: Span,
    /// Which.
    pub kind: ExprKind,
}

/// The kinds of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `3e-4`, `4 GiB`, `2B tokens`, `10%`
    Number(Number),
    /// `"text"`
    Str(Str),
    /// The text between ```` ```rhai ```` and ```` ``` ````.
    Rhai(Rhai),
    /// `name`; `_` too.
    Name(Ident),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `{ train = 90%, H -> tp }`
    Record(Record),
    /// `(a)`
    Paren(Box<Expr>),
    /// `(a, b)`: two or more.
    Tuple(Vec<Expr>),
    /// `base.member`; the member may be `*`.
    Member(Box<Expr>, Ident),
    /// `base(a, name = b)`
    Call(Box<Expr>, Vec<Arg>),
    /// `base[D, F = 4 * D]` or `einsum[B T D, V D -> B T V]`
    Index(Box<Expr>, Index),
    /// `-a`, `not a`
    Unary(UnaryOp, Span, Box<Expr>),
    /// `left op right`, with the span of the operator.
    Binary(BinaryOp, Span, Box<Expr>, Box<Expr>),
    /// `if a { b } else { c }`
    If(Box<If>),
    /// What did not parse, or was too deep.
    Broken,
}

/// `if condition { yes } else { no }`
#[derive(Clone, Debug, PartialEq)]
pub struct If {
    /// What decides.
    pub condition: Expr,
    /// The value if it holds.
    pub yes: Expr,
    /// The value if it does not.
    pub no: Expr,
}

/// A number with or without a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The number alone.
    pub span: Span,
    /// The nearest float64; infinite if too large.
    pub value: f64,
    /// The exact value if it was written as a whole number and fits.
    pub integer: Option<i64>,
    /// As written: `128_256`, `3e-4`.
    pub raw: String,
    /// As written: `GiB`, `%`, `B tokens`, `GB/s`.
    pub unit: Option<Ident>,
}

/// A hook's text in Rhai.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rhai {
    /// Between the fences.
    pub span: Span,
    /// Between the fences, untouched.
    pub source: String,
}

/// `{ ..path, name = value, H -> tp }`
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// `..path`
    pub spread: Option<Path>,
    /// In the order written.
    pub entries: Vec<RecordEntry>,
}

/// One entry of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordEntry {
    /// `name = value`
    Assign(Assign),
    /// `H -> tp`
    Rule(Rule),
    /// What did not parse.
    Broken(Broken),
}

/// An argument of a call: `value` or `name = value`
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// All of it.
    pub span: Span,
    /// `name =`
    pub name: Option<Ident>,
    /// The value.
    pub value: Expr,
}

/// What stands in the brackets after an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// With the brackets.
    pub span: Span,
    /// Which.
    pub kind: IndexKind,
}

/// The kinds of indices.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexKind {
    /// `[D, F = 4 * D]`
    Axes(Vec<AxisArg>),
    /// `[B T (H K) -> B H T K]`
    Einops(Einops),
}

/// `D` or `F = 4 * D`
#[derive(Clone, Debug, PartialEq)]
pub struct AxisArg {
    /// All of it.
    pub span: Span,
    /// `F =`
    pub name: Option<Ident>,
    /// The axis.
    pub axis: Axis,
}

/// The pattern of `einsum` and `rearrange`.
#[derive(Clone, Debug, PartialEq)]
pub struct Einops {
    /// One list of axes for each operand.
    pub inputs: Vec<EinopsAxes>,
    /// The axes after `->`.
    pub output: EinopsAxes,
}

/// The axes of one operand.
#[derive(Clone, Debug, PartialEq)]
pub struct EinopsAxes {
    /// From the first axis to the last; empty where they would stand.
    pub span: Span,
    /// In order.
    pub axes: Vec<EinopsAxis>,
}

/// One axis of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct EinopsAxis {
    /// Where.
    pub span: Span,
    /// Which.
    pub kind: EinopsKind,
}

/// The kinds of axes in a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum EinopsKind {
    /// `B`
    Name(String),
    /// `2`
    Int(i64),
    /// `..`
    Rest,
    /// `(H K)`: axes joined into one.
    Group(Vec<EinopsAxis>),
}

/// Operators before an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `not`
    Not,
}

/// Operators between operands, from the loosest to the tightest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `then`
    Then,
    /// `|>`
    Pipe,
    /// `or`
    Or,
    /// `and`
    And,
    /// `in`
    In,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `..`
    Range,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `@`
    MatMul,
    /// `^`
    Pow,
}

impl BinaryOp {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Then => "then",
            BinaryOp::Pipe => "|>",
            BinaryOp::Or => "or",
            BinaryOp::And => "and",
            BinaryOp::In => "in",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Range => "..",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::MatMul => "@",
            BinaryOp::Pow => "^",
        }
    }
}
