//! An expression of a test as a program of its own: no job, no batch, every length a number.

use super::{Frame, Lowerer, MAX_ELEMENTS, Mode, Result, internal};
use crate::infer::verify_graph;
use crate::memory::{Overwrite, plan_memory, verify_memory};
use crate::simplify::simplify;
use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Column, Dim, NodeId, Program, Shape, Span};

/// An expression, ready to be run for a shard of one sample.
#[derive(Clone, Debug)]
pub struct Single {
    pub program: Program,
    pub result: NodeId,
    /// The weights that the program reads, in the order of its weight numbers: model and place in
    /// [`hir::Model::weights`].
    pub weights: Vec<(hir::ModelId, u32)>,
    /// The locals that it reads, in the order of its column numbers. A column holds the whole
    /// tensor, in row-major order.
    pub locals: Vec<hir::LocalId>,
}

/// Compiles `expr`, which speaks of `locals`. Models have no dropout, as in an evaluation.
///
/// # Errors
/// What only numbers can show: a tensor larger than any machine, an odd length of `rope`, ...
pub fn single(program: &hir::Program, locals: &[hir::Local], expr: &hir::Expr) -> Result<Single> {
    let mut lowerer = Lowerer::alone(program);
    let mut read = Vec::new();
    locals_of(expr, &mut read);
    let mut frame = Frame {
        instance: None,
        model: hir::ModelId(0),
        symbols: Vec::new(),
        locals: vec![None; locals.len()],
        aliases: super::trace::Aliases::new(),
    };
    for id in &read {
        let local = locals.get(id.0 as usize);
        let local = local.ok_or_else(|| internal(expr.span, "a local does not exist"))?;
        let node = lowerer.given(local)?;
        super::set(&mut frame, *id, node, local.span)?;
    }
    let result = lowerer.eval(expr, &frame)?;
    let Lowerer { b, columns, used, .. } = lowerer;
    let simple = simplify(&b.finish(), &[result])?;
    let result = simple.now(result)?;
    let graph = simple.graph;
    verify_graph(&graph).map_err(|e| internal(expr.span, e))?;
    let memory = plan_memory(&graph, 1, &[result], &[], Overwrite::Never);
    verify_memory(&graph, &memory, &[result], Overwrite::Never)
        .map_err(|e| internal(expr.span, e))?;
    let program = Program { graph, columns, memory };
    Ok(Single { program, result, weights: used, locals: read })
}

/// The length of each axis of a tensor without free axes.
///
/// # Errors
/// A fault of ours, at `span`: an axis that has no number.
pub fn lengths(ty: &hir::TensorType, span: Span) -> Result<Vec<u64>> {
    let mut out = Vec::with_capacity(ty.axes.len());
    for axis in &ty.axes {
        let length = axis.size.as_number().and_then(|n| u64::try_from(n).ok());
        out.push(length.ok_or_else(|| internal(span, "a length has no number"))?);
    }
    match ty.rest {
        false => Ok(out),
        true => Err(internal(span, "a tensor with any leading axes")),
    }
}

impl Lowerer<'_> {
    /// The node of a tensor that is there already.
    fn given(&mut self, local: &hir::Local) -> Result<NodeId> {
        let shape = lengths(&local.ty, local.span)?;
        let elements = shape.iter().try_fold(1u64, |n, x| n.checked_mul(*x));
        if elements.is_none_or(|n| n > MAX_ELEMENTS) {
            let d = Diagnostic::error("M0211", "this tensor is larger than any machine's memory");
            return Err(d.label(local.span, format!("{shape:?}")));
        }
        let (number, dtype) = (self.columns.len() as u32, local.ty.dtype);
        self.b.at(local.span);
        let dims = shape.iter().map(|n| Dim::fixed(*n)).collect();
        let node = self.b.column(number, Shape(dims), dtype)?;
        let (name, span) = (local.name.clone(), local.span);
        self.columns.push(Column { name, dtype, shape, below: None, span });
        Ok(node)
    }

    fn alone(program: &hir::Program) -> Lowerer<'_> {
        Lowerer::over(program, None, Mode::Evaluate)
    }
}

/// The locals that an expression reads, each once, in the order in which they occur.
fn locals_of(expr: &hir::Expr, out: &mut Vec<hir::LocalId>) {
    match &expr.kind {
        hir::ExprKind::Local(id) => {
            if !out.contains(id) {
                out.push(*id);
            }
        }
        hir::ExprKind::Sub { args, .. }
        | hir::ExprKind::Model { args, .. }
        | hir::ExprKind::Op { args, .. } => args.iter().for_each(|a| locals_of(a, out)),
        hir::ExprKind::If { yes, no, .. } => {
            locals_of(yes, out);
            locals_of(no, out);
        }
        hir::ExprKind::Weight(_) | hir::ExprKind::Static(_) => {}
    }
}
