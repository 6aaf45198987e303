//! The checked program: every name resolved, every type known, every value with its origin.
//!
//! How to lower it
//! - [`Program::job`] holds what is trained. Everything about it that does not need a tensor graph
//!   is final already: steps, batch in samples, schedule, splits and columns are in the types of
//!   `monarch_graph`, to be copied into the plan.
//! - Functions ([`Function`]: `forward`, `loss`, metrics) are interpreted with numbers. A function
//!   speaks of sizes through [`Sym`]s. Inside a layer, symbols `0..layer.fixed` have the numbers
//!   of the instance at hand ([`Instance::sizes`]); all others are free axes, bound by matching the
//!   axes of the parameters with the shapes of the arguments ([`bind`]), so B becomes
//!   `Dim::samples()`. [`Poly::dim`] and [`Static::eval`] do the rest.
//! - Axes are counted from the end, since `..` may stand for any leading axes.

mod control;
mod expr;
mod instance;
mod mesh;
mod statics;
mod sweep;
mod test;
mod windows;

use monarch_diagnostic::{Diagnostic, Sources};
use monarch_graph as graph;
use monarch_graph::{DType, Span};

pub use crate::poly::{Poly, Sym};
pub use control::*;
pub use expr::*;
pub use instance::*;
pub use mesh::*;
pub use statics::*;
pub use sweep::*;
pub use test::*;
pub use windows::*;

/// A program that can be planned.
#[derive(Clone, Debug)]
pub struct Program {
    /// All texts that spans refer to, the job's own first; standard library files are named
    /// `std.nn`, values from the command line stand in a text named `command line`.
    pub sources: Sources,
    pub params: Vec<Param>,
    pub layers: Vec<LayerDef>,
    pub models: Vec<Model>,
    pub clusters: Vec<Cluster>,
    /// `plan` blocks.
    pub layouts: Vec<Layout>,
    /// The `train` block; None in a file that only defines things.
    pub job: Option<Job>,
    /// Settings of the job with where each came from, for `explain job.mon train.lr`.
    pub settings: Vec<Setting>,
    /// What a run would have to ignore: see [`crate::run_gate`].
    pub not_run_yet: Vec<Diagnostic>,
    /// `test` blocks, in the order of the text.
    pub tests: Vec<Test>,
    /// `sweep` blocks of the job, in the order of the text.
    pub sweeps: Vec<Sweep>,
    /// Hashes that files must have; see [`crate::pins::verify`].
    pub pins: Vec<Pin>,
}

/// `sha256 = ".."`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub files: Vec<String>,
    /// Hexadecimal digits, small; fewer than 64 are the beginning of the hash.
    pub sha256: String,
    pub span: Span,
}

impl Program {
    pub fn layer(&self, id: LayerId) -> Option<&LayerDef> {
        self.layers.get(id.0 as usize)
    }

    pub fn model(&self, id: ModelId) -> Option<&Model> {
        self.models.get(id.0 as usize)
    }
}

/// Index into [`Program::layers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(pub u32);

/// Index into [`Program::models`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub u32);

/// A param with the value of this run.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: String,
    /// As written: `int`, `tokens`.
    pub kind: String,
    /// The `##` lines before it, joined.
    pub doc: String,
    pub value: Value,
    pub origin: Origin,
    /// Of its name.
    pub span: Span,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Written in the program, here.
    Program(Span),
    /// Given as `--name text`; the span lies in the text `command line`.
    CommandLine { text: String, span: Span },
    /// The registry's default.
    Default,
}

/// One setting of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// `train.batch`, `train.eval.every`.
    pub path: String,
    /// As a person writes it.
    pub value: String,
    /// Params that the value was computed from, by name.
    pub params: Vec<String>,
    pub origin: Origin,
}

/// `layer Name[dims](fields) { .. }`, checked once for all sizes.
#[derive(Clone, Debug)]
pub struct LayerDef {
    pub name: String,
    pub span: Span,
    /// Header axes, then whole-number fields (both are `0..fixed`), then free axes of `forward`.
    pub symbols: Vec<Symbol>,
    /// Number of symbols that an instance fixes: `Instance::sizes` has this length.
    pub fixed: usize,
    /// `(depth: int)`, in order.
    pub fields: Vec<FieldDef>,
    pub weights: Vec<WeightDef>,
    pub subs: Vec<SubDef>,
    /// Static lets of the body (`K = D / H`) are substituted wherever they are used.
    pub forward: Function,
}

/// A symbol of a layer or function.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    pub name: String,
    pub span: Span,
}

/// A field of a layer's header.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDef {
    pub name: String,
    pub span: Span,
    /// The symbol that stands for a whole-number field in sizes.
    pub symbol: Option<Sym>,
}

/// `w: [D, F] ~ normal(0.02)`
#[derive(Clone, Debug)]
pub struct WeightDef {
    pub name: String,
    pub span: Span,
    pub axes: Vec<Axis>,
    /// The weight exists when this is true (`b: [O] ~ if bias { zeros } else { none }`);
    /// uses in `forward` stand under the same condition.
    pub exists: Option<Static>,
}

/// `attn = Attention[D, H](..)` or `blocks = repeat(Block[D, H], depth)`
#[derive(Clone, Debug)]
pub struct SubDef {
    pub name: String,
    pub span: Span,
    pub layer: LayerId,
    /// Sizes for the header axes of `layer`, in order, over the symbols of the outer layer.
    pub dims: Vec<Poly>,
    /// Values for the fields of `layer`, in order.
    pub fields: Vec<Static>,
    /// Number of copies, applied one after another; None for a single one.
    pub repeat: Option<Static>,
    pub exists: Option<Static>,
}

/// An axis of a tensor type.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What people call it: `T`; None for plain numbers and unnamed products.
    pub name: Option<String>,
    pub size: Poly,
}

/// A tensor type: `..` (any leading axes) if `rest`, then the axes. A scalar has none.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    pub dtype: DType,
    pub rest: bool,
    pub axes: Vec<Axis>,
}

/// A block `cluster name { .. }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub name: String,
    pub workers: Option<u32>,
    /// Threads of each worker.
    pub threads: Option<u32>,
    /// Address on which the controller listens.
    pub listen: Option<String>,
    pub key: Option<Key>,
    /// Addresses of declared machines.
    pub nodes: Vec<String>,
    pub device: Option<Device>,
    pub links: Option<Links>,
    pub span: Span,
}

/// The `train` block.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: String,
    /// Of the block's header.
    pub span: Span,
    pub model: ModelId,
    pub data: graph::Data,
    /// All columns of the data set; shapes without the sample axis.
    pub columns: Vec<graph::Column>,
    /// Samples in the whole set; 0 if only a run can count them (an object store).
    pub rows: u64,
    /// Tokens of one sample, for data that is text; 1 otherwise.
    pub tokens_per_sample: u64,
    pub loss: Objective,
    pub optimizer: graph::Optimizer,
    pub schedule: graph::Schedule,
    /// Optimizer steps of the whole run, at least 1.
    pub steps: u64,
    /// Samples of a full step, at least 1 and at most the `train` split.
    pub batch: u64,
    /// Samples that a replica computes at once, where the program settles that.
    pub micro: Option<u64>,
    /// Micro-batches of a replica in one step, where the program settles that.
    pub accumulate: Option<u64>,
    pub shards: u32,
    pub seed: u64,
    pub drop_last: bool,
    pub overlap: bool,
    pub eval: Option<Eval>,
    pub checkpoint: Option<graph::CheckpointPolicy>,
    /// `on metric(above = ..) => stop` and `=> checkpoint`.
    pub rules: Vec<graph::Rule>,
    /// All other `on`.
    pub hooks: Vec<Hook>,
    /// Faults that the program speaks of, in the order of [`FaultKind::ALL`].
    pub faults: Vec<Fault>,
    pub metrics: graph::Metrics,
    /// Index into [`Program::clusters`]: the one it names, or the only one.
    pub cluster: Option<usize>,
    /// Index into [`Program::layouts`]: the one that `train .. on` names.
    pub layout: Option<usize>,
}

/// `eval { every = 1 epoch, .. }`
#[derive(Clone, Debug)]
pub struct Eval {
    /// None: with every checkpoint, or at the end of the run alone.
    pub every: Option<graph::Every>,
    /// `after = checkpoint`
    pub after_checkpoint: bool,
    /// None: the whole `eval` split.
    pub batches: Option<u64>,
    /// After the loss, which is always evaluated: `accuracy`, ...
    pub metrics: Vec<Objective>,
    pub span: Span,
}

/// A loss or a metric: a mean over the whole batch of the elements of a tensor.
///
/// `cross_entropy(logits, next, weight)` has the elements `weight * nll` and the denominator
/// `sum(weight)`; without weight, and for `mean(x)`, the denominator is the number of elements.
#[derive(Clone, Debug)]
pub struct Objective {
    /// `loss`, `accuracy`
    pub name: String,
    /// Parameters are columns of the data set, by name; `result` is the tensor of elements, whose
    /// sum is the numerator.
    pub function: Function,
    /// Its sum is the denominator; it may use the function's locals. None: the number of
    /// elements of the result.
    pub weight: Option<Expr>,
    pub span: Span,
}

#[cfg(test)]
mod tests;
