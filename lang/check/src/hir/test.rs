//! `test` blocks: steps in order, each tensor a local. What only a run or a plan can tell is
//! spoken of by [`Measure`]s.

use super::{Expr, Let, Local, LocalId, MeshAxis, Static, StaticOp, Value};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{CompareOp, DType, Span};

/// `test "name" { .. }`
#[derive(Clone, Debug)]
pub struct Test {
    pub name: String,
    /// Of the name.
    pub span: Span,
    pub rejects: Option<Rejects>,
    /// Tensors, in the order in which they get a value. Every axis has a number.
    pub locals: Vec<Local>,
    pub steps: Vec<TestStep>,
    /// How many results `fit` and `plan` give: [`ResultId`]s are below this.
    pub results: u32,
}

/// `rejects M0312`: the block must be refused with this code, by the check or by a plan in it.
#[derive(Clone, Debug)]
pub struct Rejects {
    pub code: String,
    pub span: Span,
    /// What the check has against the block, errors alone. If there is any, `steps` is what is
    /// left of the block, and not to be run.
    pub found: Vec<Diagnostic>,
}

/// Number of a result of `fit` or `plan` within its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResultId(pub u32);

#[derive(Clone, Debug)]
pub enum TestStep {
    /// `let h = net(x)`
    Let(Let),
    /// `random(i32[1, T], below = V)`: whole numbers from 0 to below `below`, as i32 or f32;
    /// without `below` standard normal numbers.
    Random { local: LocalId, dtype: DType, shape: Vec<u64>, below: Option<u64>, span: Span },
    /// `replace(x, over = T, at = 3, with = 0)`: the same tensor with one slice overwritten.
    Replace { local: LocalId, x: Expr, from_end: usize, at: u64, with: f64, span: Span },
    /// `x.at(T = 0)`: one slice; the axis disappears.
    At { local: LocalId, x: Expr, from_end: usize, at: u64, span: Span },
    /// `fit(job, steps = 200, batches = 1)`
    Fit {
        result: ResultId,
        steps: u64,
        /// Train on the first so many batches of the `train` split alone.
        batches: Option<u64>,
        span: Span,
    },
    /// `plan(job, pp = 64)`
    Plan {
        result: ResultId,
        /// Lengths of the mesh's axes instead of those that the job's plan says.
        lengths: Vec<(MeshAxis, u32)>,
        span: Span,
    },
    Assert {
        holds: Condition,
        /// Of the whole statement.
        span: Span,
    },
}

/// What an `assert` claims.
#[derive(Clone, Debug)]
pub struct Condition {
    pub kind: ConditionKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ConditionKind {
    /// Known before anything runs.
    Known(bool),
    /// Two numbers of one kind.
    Numbers {
        op: CompareOp,
        left: Number,
        right: Number,
    },
    /// All elements; one side's axes are a trailing part of the other's, or it is a scalar.
    Tensors {
        op: CompareOp,
        left: Expr,
        right: Expr,
    },
    /// `near(a, b, within = 1e-5)`: no two elements are further apart.
    Near {
        left: Expr,
        right: Expr,
        within: f64,
    },
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

/// A number, perhaps with a unit, that may depend on what `fit` and `plan` find.
#[derive(Clone, Debug)]
pub struct Number {
    pub kind: NumberKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum NumberKind {
    Known(Value),
    /// Of a result.
    Measured(ResultId, Measure),
    /// Memory of one device of a cluster (index into [`super::Program::clusters`]), in bytes.
    DeviceMemory(usize),
    /// A tensor without axes.
    Element(Box<Expr>),
    Neg(Box<Number>),
    Binary(StaticOp, Box<Number>, Box<Number>),
}

/// What there is to ask of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A metric over the steps of `fit`.
    Series(Series, Fold),
    /// Steps that `fit` took, or that the plan has: a number.
    Steps,
    /// Bytes on the fullest device of the plan.
    Memory(MemoryPart),
    /// Share of the time in which devices wait for the pipeline.
    Bubble,
    /// Devices of the plan: a number.
    Devices,
    /// Seconds of one step, as the cost model estimates it.
    StepTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    Loss,
    Lr,
    GradNorm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    First,
    Last,
    Min,
    Max,
    Mean,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPart {
    /// All of it.
    Peak,
    Weights,
    Gradients,
    Optimizer,
    Activations,
}

impl TestStep {
    /// Where it is written.
    pub fn span(&self) -> Span {
        match self {
            TestStep::Let(binding) => binding.value.span,
            TestStep::Random { span, .. }
            | TestStep::Replace { span, .. }
            | TestStep::At { span, .. }
            | TestStep::Fit { span, .. }
            | TestStep::Plan { span, .. }
            | TestStep::Assert { span, .. } => *span,
        }
    }
}

impl Number {
    /// A number that is known, from a static value without symbols.
    pub(crate) fn known(value: &Static, span: Span) -> Option<Number> {
        let env = super::StaticEnv { sizes: &[], fields: &[] };
        let value = value.eval(&env).ok()?;
        Some(Number { kind: NumberKind::Known(value), span })
    }
}
