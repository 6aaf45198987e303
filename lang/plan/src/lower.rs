//! From checked functions to nodes: layers become their instances, symbols become numbers, and
//! only the number of samples B stays open.
//!
//! A program that `check` accepted always lowers, but for what only numbers can show: sizes that
//! do not divide, and results that depend on which samples share a shard.

mod adapter;
mod einsum;
mod functions;
mod ids;
mod images;
mod layout;
mod mixing;
mod objective;
mod ops;
mod single;
mod statics;
mod trace;

use crate::build::{BuildError, Builder};
use crate::infer;
use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Column, DType, Dim, NodeId, Shape, Span};
use std::collections::BTreeMap;

pub use mixing::refuse_mixing;
pub use objective::{LoweredProgram, lower_objectives, remap, results};
pub use single::{Single, lengths, single};
pub(crate) use trace::{Call, Trace, lower_traced};

/// What a program is lowered for: dropout is only there in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Train,
    Evaluate,
}

pub(crate) type Result<T> = std::result::Result<T, Diagnostic>;

/// Elements of a tensor: 16 TiB of f32.
pub(crate) const MAX_ELEMENTS: u64 = 1 << 42;

/// Operations of a forward pass: several hundred layers.
const MAX_OPERATIONS: usize = 32_768;

/// A mistake of ours, shown at the line of the job that met it.
pub(crate) fn internal(span: Span, what: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::error("M0399", format!("this cannot be planned: {what}"))
        .label(span, "met here")
        .help("this is a fault of monarch, not of the program: please report it with this text")
}

impl From<BuildError> for Diagnostic {
    fn from(error: BuildError) -> Diagnostic {
        internal(error.span, error.message)
    }
}

/// Lowers functions into one graph.
pub(crate) struct Lowerer<'a> {
    program: &'a hir::Program,
    /// None for an expression of a test.
    job: Option<&'a hir::Job>,
    b: Builder,
    /// Columns read so far, in the order of their numbers.
    columns: Vec<Column>,
    column_nodes: BTreeMap<String, NodeId>,
    weight_nodes: BTreeMap<(hir::ModelId, u32), NodeId>,
    /// Weights read so far, where there is no job whose model numbers them.
    used: Vec<(hir::ModelId, u32)>,
    mode: Mode,
    /// Dropouts met so far.
    dropouts: u32,
    /// What each node came from, if that is wanted.
    trace: Option<Trace>,
}

/// What a function's names mean while it is lowered.
pub(crate) struct Frame<'a> {
    /// The layer at hand; None in a loss or a metric.
    instance: Option<&'a hir::Instance>,
    model: hir::ModelId,
    /// Length of each symbol, where it is known.
    symbols: Vec<Option<Dim>>,
    locals: Vec<Option<NodeId>>,
    /// Names outside the layer for its own axes; filled only for a trace.
    aliases: trace::Aliases,
}

impl Frame<'_> {
    fn dim(&self, size: &hir::Poly, span: Span) -> Result<Dim> {
        let of = |s: hir::Sym| self.symbols.get(s.index()).copied().flatten();
        size.dim(&of).ok_or_else(|| internal(span, "a size has no number"))
    }
}

impl<'a> Lowerer<'a> {
    pub(crate) fn new(program: &'a hir::Program, job: &'a hir::Job, mode: Mode) -> Lowerer<'a> {
        Lowerer::over(program, Some(job), mode)
    }

    fn over(program: &'a hir::Program, job: Option<&'a hir::Job>, mode: Mode) -> Lowerer<'a> {
        Lowerer {
            program,
            job,
            b: Builder::new(),
            columns: Vec::new(),
            column_nodes: BTreeMap::new(),
            weight_nodes: BTreeMap::new(),
            used: Vec::new(),
            mode,
            dropouts: 0,
            trace: None,
        }
    }

    /// The node of a column of the data set.
    fn column(&mut self, name: &str, span: Span) -> Result<NodeId> {
        if let Some(&node) = self.column_nodes.get(name) {
            return Ok(node);
        }
        let found = self.job.and_then(|job| job.columns.iter().find(|c| c.name == name));
        let column = found.ok_or_else(|| internal(span, format!("no column `{name}`")))?;
        let mut dims = vec![Dim::samples()];
        dims.extend(column.shape.iter().map(|&n| Dim::fixed(n)));
        self.b.at(span);
        let node = self.b.column(self.columns.len() as u32, Shape(dims), column.dtype)?;
        self.columns.push(Column { span, ..column.clone() });
        self.column_nodes.insert(name.to_owned(), node);
        Ok(node)
    }

    fn weight(&mut self, frame: &Frame, index: u32, span: Span) -> Result<NodeId> {
        let number = frame
            .instance
            .and_then(|instance| instance.weights.get(index as usize).copied().flatten())
            .ok_or_else(|| internal(span, "this weight does not exist here"))?;
        let node = self.numbered_weight(frame, number, span)?;
        self.trace_weight(frame, index, node);
        Ok(node)
    }

    /// The node of a weight of the model.
    fn numbered_weight(&mut self, frame: &Frame, number: u32, span: Span) -> Result<NodeId> {
        if let Some(&node) = self.weight_nodes.get(&(frame.model, number)) {
            return Ok(node);
        }
        let model = self.program.model(frame.model);
        let found = model.and_then(|m| m.weights.get(number as usize));
        let weight = found.ok_or_else(|| internal(span, "this weight has no number"))?;
        self.b.at(weight.span);
        let place = match self.job {
            Some(_) => number,
            None => self.used.len() as u32,
        };
        let node = self.b.weight(place, &weight.shape)?;
        self.used.push((frame.model, number));
        self.weight_nodes.insert((frame.model, number), node);
        Ok(node)
    }

    /// A loss or a metric with the data set's columns as its arguments.
    fn call_on_columns(&mut self, function: &'a hir::Function) -> Result<Frame<'a>> {
        let mut args = Vec::with_capacity(function.params.len());
        for param in &function.params {
            args.push(self.column(&param.name, param.span)?);
        }
        let model = self.job.ok_or_else(|| internal(function.span, "there is no job"))?.model;
        let known = |_: hir::Sym| None;
        let aliases = trace::Aliases::new();
        self.enter(function, None, model, function.symbols.len(), &known, &args, aliases)
    }

    /// `forward` of an instance.
    fn call(
        &mut self,
        model: hir::ModelId,
        instance: &'a hir::Instance,
        args: &[NodeId],
        span: Span,
        aliases: trace::Aliases,
    ) -> Result<NodeId> {
        let layer = self
            .program
            .layer(instance.layer)
            .ok_or_else(|| internal(span, "this layer does not exist"))?;
        let size = |s: hir::Sym| instance.sizes.get(s.index()).map(|&n| Dim::fixed(n));
        let (symbols, start) = (layer.symbols.len(), self.b.len());
        let function = &layer.forward;
        let frame = self.enter(function, Some(instance), model, symbols, &size, args, aliases)?;
        let result = self.eval(&layer.forward.result, &frame)?;
        self.trace_call(instance, start);
        Ok(result)
    }

    /// Binds arguments and lets.
    #[expect(clippy::too_many_arguments, reason = "a call has a callee, sizes and arguments")]
    fn enter(
        &mut self,
        function: &'a hir::Function,
        instance: Option<&'a hir::Instance>,
        model: hir::ModelId,
        symbols: usize,
        known: &impl Fn(hir::Sym) -> Option<Dim>,
        args: &[NodeId],
        aliases: trace::Aliases,
    ) -> Result<Frame<'a>> {
        let shapes: Vec<Vec<Dim>> = args.iter().map(|&a| self.b.shape(a).0).collect();
        let bound = hir::bind(&function.params, &shapes, symbols, known);
        let symbols = bound.ok_or_else(|| {
            let found: Vec<String> = args.iter().map(|&a| infer::text(&self.b.shape(a))).collect();
            internal(function.span, format!("arguments {} do not fit", found.join(", ")))
        })?;
        let locals = vec![None; function.locals.len()];
        let mut frame = Frame { instance, model, symbols, locals, aliases };
        for (param, &arg) in function.params.iter().zip(args) {
            set(&mut frame, param.local, arg, param.span)?;
            self.trace_type(&frame, &param.ty, arg);
        }
        for binding in &function.lets {
            let value = self.eval(&binding.value, &frame)?;
            match &binding.pattern {
                hir::Pattern::One(local) => set(&mut frame, *local, value, binding.value.span)?,
                hir::Pattern::Split(locals) => {
                    self.split(&mut frame, locals, value, binding.value.span)?
                }
            }
        }
        Ok(frame)
    }

    /// `let [q, k, v] = value`
    fn split(
        &mut self,
        frame: &mut Frame,
        locals: &[hir::LocalId],
        value: NodeId,
        span: Span,
    ) -> Result<()> {
        self.b.at(span);
        let inner = Shape(self.b.shape(value).0.split_off(1.min(self.b.shape(value).rank())));
        for (i, local) in locals.iter().enumerate() {
            let part = self.b.slice(value, 0, i as u64, 1)?;
            let part = self.b.reshape(part, inner.clone())?;
            set(frame, *local, part, span)?;
        }
        Ok(())
    }

    /// The node of an expression.
    fn eval(&mut self, expr: &'a hir::Expr, frame: &Frame<'a>) -> Result<NodeId> {
        let span = expr.span;
        let node = match &expr.kind {
            hir::ExprKind::Local(local) => {
                let found = frame.locals.get(local.0 as usize).copied().flatten();
                found.ok_or_else(|| internal(span, "this name has no value yet"))?
            }
            hir::ExprKind::Weight(weight) => self.weight(frame, *weight, span)?,
            hir::ExprKind::Static(value) => {
                let number = frame.number(value, span)?;
                self.b.at(span);
                self.b.constant(number, Shape::scalar(), expr.ty.dtype)?
            }
            hir::ExprKind::Sub { sub, args } => {
                let args = self.eval_all(args, frame)?;
                self.sublayer(frame, *sub, args, span)?
            }
            hir::ExprKind::Model { model, args } => {
                let args = self.eval_all(args, frame)?;
                self.model(*model, &args, span)?
            }
            hir::ExprKind::Op { op, args } => {
                let values = self.eval_all(args, frame)?;
                self.b.at(span);
                let node = self.op(op, &values, frame, span)?;
                self.adapted(op, args, &values, node, frame, span)?
            }
            hir::ExprKind::If { condition, yes, no } => {
                let branch = if frame.truth(condition, span)? { yes } else { no };
                return self.eval(branch, frame);
            }
        };
        self.agree(node, &expr.ty, frame, span)?;
        self.trace_type(frame, &expr.ty, node);
        self.fits_a_machine(node, span)?;
        self.count_operations(span)?;
        Ok(node)
    }

    /// Depth is the program's to choose as well, and planning is not free.
    fn count_operations(&self, span: Span) -> Result<()> {
        if self.b.len() <= MAX_OPERATIONS {
            return Ok(());
        }
        let title = format!("this model has more than {MAX_OPERATIONS} operations");
        let model = self.job.and_then(|job| self.program.model(job.model));
        let model = model.map_or(span, |m| m.span);
        Err(Diagnostic::error("M0403", title)
            .label(model, "counted over all its layers")
            .label(span, "the first one too many")
            .help("repeat fewer layers: the deepest models in use have a few hundred"))
    }

    /// Sizes are the program's to choose, so their products are watched.
    fn fits_a_machine(&self, node: NodeId, span: Span) -> Result<()> {
        let per_shard = |job: &hir::Job| job.batch.div_ceil(u64::from(job.shards.max(1))).max(1);
        let samples = self.job.map_or(1, per_shard);
        let shape = self.b.shape(node);
        let mut elements = Some(1u64);
        for dim in &shape.0 {
            let length = if dim.batch { dim.per.checked_mul(samples) } else { Some(dim.per) };
            elements = elements.zip(length).and_then(|(n, length)| n.checked_mul(length));
        }
        if elements.is_some_and(|n| n <= MAX_ELEMENTS) {
            return Ok(());
        }
        let shape = infer::text(&shape);
        Err(Diagnostic::error("M0211", "this tensor is larger than any machine's memory")
            .label(span, format!("{shape}, with B = {samples} samples in a shard"))
            .help("check the sizes: perhaps a product stands where a sum was meant"))
    }

    fn eval_all(&mut self, args: &'a [hir::Expr], frame: &Frame<'a>) -> Result<Vec<NodeId>> {
        args.iter().map(|arg| self.eval(arg, frame)).collect()
    }

    fn sublayer(
        &mut self,
        frame: &Frame<'a>,
        sub: u32,
        mut args: Vec<NodeId>,
        span: Span,
    ) -> Result<NodeId> {
        let copies = frame
            .instance
            .and_then(|instance| instance.subs.get(sub as usize))
            .ok_or_else(|| internal(span, "this sublayer does not exist here"))?;
        for copy in copies {
            let aliases = self.aliases(frame, sub);
            args = vec![self.call(frame.model, copy, &args, span, aliases)?];
        }
        // A block repeated 0 times gives back what it takes.
        let last = args.first().copied();
        last.ok_or_else(|| internal(span, "a sublayer without arguments is repeated 0 times"))
    }

    fn model(&mut self, model: hir::ModelId, args: &[NodeId], span: Span) -> Result<NodeId> {
        let found = self.program.model(model);
        let found = found.ok_or_else(|| internal(span, "this model does not exist"))?;
        if self.job.is_some_and(|job| job.model != model) {
            return Err(internal(span, format!("`{}` is not the job's model", found.name)));
        }
        self.call(model, &found.root, args, span, trace::Aliases::new())
    }

    /// The node has the type that `check` gave to its expression.
    fn agree(&self, node: NodeId, ty: &hir::TensorType, frame: &Frame, span: Span) -> Result<()> {
        let shape = self.b.shape(node);
        let lead = shape.rank().checked_sub(ty.axes.len());
        let fits = match lead {
            Some(lead) => {
                (lead == 0 || ty.rest) && {
                    let tail = shape.0.iter().skip(lead);
                    ty.axes.iter().zip(tail).all(|(axis, dim)| {
                        let size = frame.dim(&axis.size, span);
                        size.map_or(true, |size| size == *dim)
                    })
                }
            }
            None => false,
        };
        if fits {
            return Ok(());
        }
        Err(internal(span, format!("its shape {} is not as checked", infer::text(&shape))))
    }
}

fn set(frame: &mut Frame, local: hir::LocalId, value: NodeId, span: Span) -> Result<()> {
    match frame.locals.get_mut(local.0 as usize) {
        Some(slot) => {
            *slot = Some(value);
            Ok(())
        }
        None => Err(internal(span, "a local does not exist")),
    }
}

/// Several axes as one, outermost first.
pub(crate) fn join(dims: &[Dim]) -> Option<Dim> {
    let mut per: u64 = 1;
    for dim in dims {
        per = per.checked_mul(dim.per)?;
    }
    let batches = dims.iter().filter(|d| d.batch).count();
    (batches <= 1).then_some(Dim { per, batch: batches == 1 })
}

/// True for the dtype that has derivatives.
pub(crate) fn is_float(dtype: DType) -> bool {
    dtype == DType::F32
}
