//! Operators on tensors: `+ - * / ^ @`, comparisons, `table[ids]`.

use crate::function::{FnCx, Val, match_scalar};
use crate::hir::{Expr, ExprKind, Op, Poly, Static, StaticOp, TensorType};
use crate::scope::Checker;
use crate::statics::static_op;
use crate::types::{same_axis, scalar};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{BinaryOp, CompareOp, DType, Span, UnaryOp};
use monarch_syntax::ast::{self, AxisKind, Index, IndexKind};

pub(crate) fn op_expr(op: Op, args: Vec<Expr>, ty: TensorType, span: Span) -> Expr {
    Expr { kind: ExprKind::Op { op, args }, ty, span }
}

impl Checker<'_> {
    pub fn unary_value(
        &mut self,
        cx: &mut FnCx,
        op: ast::UnaryOp,
        at: Span,
        inner: &ast::Expr,
        span: Span,
    ) -> Option<Val> {
        match (op, self.value(cx, inner)?) {
            (ast::UnaryOp::Neg, Val::Tensor(x)) => {
                self.float_only("-", &x)?;
                let ty = x.ty.clone();
                Some(Val::Tensor(op_expr(Op::Unary(UnaryOp::Neg), vec![x], ty, span)))
            }
            (ast::UnaryOp::Neg, Val::Static(typed, a)) => {
                let minus = crate::statics::Typed {
                    value: Static::Value(crate::hir::Value::Int(-1)),
                    ty: crate::statics::Ty::Number,
                };
                let value = self.combine(StaticOp::Mul, at, (minus, at), (typed, a))?;
                Some(Val::Static(value, span))
            }
            (ast::UnaryOp::Not, Val::Static(typed, a)) => {
                if typed.ty != crate::statics::Ty::Bool {
                    self.wrong_type(a, "a condition", typed.ty);
                    return None;
                }
                let value = Static::Not(Box::new(typed.value));
                Some(Val::Static(crate::statics::Typed { value, ty: typed.ty }, span))
            }
            (ast::UnaryOp::Not, other) => {
                self.report(
                    Diagnostic::error("M0111", "`not` is for conditions known before the run")
                        .label(other.span(), "a tensor"),
                );
                None
            }
            (_, mean) => self.as_tensor(mean).map(Val::Tensor),
        }
    }

    pub fn float_only(&mut self, what: &str, x: &Expr) -> Option<()> {
        if x.ty.dtype == DType::F32 {
            return Some(());
        }
        self.report(
            Diagnostic::error("M0210", format!("`{what}` works on f32, and this is i32"))
                .label(x.span, "i32")
                .help("`float(..)` makes f32 of i32"),
        );
        None
    }

    pub fn binary_value(
        &mut self,
        cx: &mut FnCx,
        (op, at): (ast::BinaryOp, Span),
        left: &ast::Expr,
        right: &ast::Expr,
        span: Span,
    ) -> Option<Val> {
        let a = self.value(cx, left);
        let b = self.value(cx, right);
        let (a, b) = (a?, b?);
        if op == ast::BinaryOp::MatMul {
            let (a, b) = (self.as_tensor(a)?, self.as_tensor(b)?);
            return self.matmul(cx, a, b, span).map(Val::Tensor);
        }
        let Some(static_op) = static_op(op) else {
            let title = format!("`{}` does not combine tensors", op.symbol());
            self.report(Diagnostic::error("M0111", title).label(at, "not here"));
            return None;
        };
        if let (Val::Static(x, xs), Val::Static(y, ys)) = (&a, &b) {
            let value = self.combine(static_op, at, (x.clone(), *xs), (y.clone(), *ys))?;
            return Some(Val::Static(value, span));
        }
        let (mut a, mut b) = (self.as_tensor(a)?, self.as_tensor(b)?);
        match_scalar(&mut a, &b);
        match_scalar(&mut b, &a);
        self.elementwise(cx, static_op, at, a, b, span).map(Val::Tensor)
    }

    fn elementwise(
        &mut self,
        cx: &FnCx,
        op: StaticOp,
        at: Span,
        a: Expr,
        b: Expr,
        span: Span,
    ) -> Option<Expr> {
        let compare = match op {
            StaticOp::Eq => Some(CompareOp::Eq),
            StaticOp::Ne => Some(CompareOp::Ne),
            StaticOp::Lt => Some(CompareOp::Lt),
            StaticOp::Le => Some(CompareOp::Le),
            StaticOp::Gt => Some(CompareOp::Gt),
            StaticOp::Ge => Some(CompareOp::Ge),
            _ => None,
        };
        if let Some(compare) = compare {
            let mut ty = self.broadcast(cx, op.symbol(), at, &a, &b)?;
            ty.dtype = DType::F32;
            return Some(op_expr(Op::Compare(compare), vec![a, b], ty, span));
        }
        let binary = match op {
            StaticOp::Add => BinaryOp::Add,
            StaticOp::Sub => BinaryOp::Sub,
            StaticOp::Mul => BinaryOp::Mul,
            StaticOp::Div => BinaryOp::Div,
            StaticOp::Pow => return self.power(a, b, span),
            _ => {
                let title = format!("`{}` is for conditions known before the run", op.symbol());
                self.report(
                    Diagnostic::error("M0111", title)
                        .label(at, "tensors here")
                        .help("compare with `==`, `<`, ..; multiply for `and`"),
                );
                return None;
            }
        };
        self.float_only(op.symbol(), &a)?;
        self.float_only(op.symbol(), &b)?;
        let ty = self.broadcast(cx, op.symbol(), at, &a, &b)?;
        Some(op_expr(Op::Binary(binary), vec![a, b], ty, span))
    }

    /// `x ^ 2`
    fn power(&mut self, a: Expr, b: Expr, span: Span) -> Option<Expr> {
        self.float_only("^", &a)?;
        let unary = match &b.kind {
            ExprKind::Static(Static::Value(v)) => match v.number() {
                Some(2.0) => Some(UnaryOp::Square),
                Some(0.5) => Some(UnaryOp::Sqrt),
                Some(-1.0) => Some(UnaryOp::Recip),
                Some(-0.5) => Some(UnaryOp::Rsqrt),
                _ => None,
            },
            _ => None,
        };
        let Some(unary) = unary else {
            self.report(
                Diagnostic::error("M0906", "this power of a tensor is not built yet")
                    .label(b.span, "2, 0.5, -0.5 and -1 are"),
            );
            return None;
        };
        let ty = a.ty.clone();
        Some(op_expr(Op::Unary(unary), vec![a], ty, span))
    }

    /// `a @ b`: the last axis of a with the first axis of b.
    fn matmul(&mut self, cx: &mut FnCx, a: Expr, b: Expr, span: Span) -> Option<Expr> {
        self.float_only("@", &a)?;
        self.float_only("@", &b)?;
        let (Some(last), Some(first)) = (a.ty.axes.last(), b.ty.axes.first()) else {
            let bad = if a.ty.axes.is_empty() { &a } else { &b };
            self.report(
                Diagnostic::error("M0201", "`@` needs an axis on both sides")
                    .label(bad.span, cx.type_text(&bad.ty)),
            );
            return None;
        };
        if b.ty.rest {
            self.report(
                Diagnostic::error("M0201", "the right side of `@` says all of its axes")
                    .label(b.span, cx.type_text(&b.ty)),
            );
            return None;
        }
        if !same_axis(last, first) {
            self.not_joined(cx, &a, &b);
            return None;
        }
        let size = last.size.clone();
        cx.mixes(&size, span);
        let n = a.ty.axes.len() - 1;
        let mut axes = a.ty.axes[..n].to_vec();
        axes.extend(b.ty.axes[1..].iter().cloned());
        let ty = TensorType { dtype: DType::F32, rest: a.ty.rest, axes };
        Some(op_expr(Op::MatMul, vec![a, b], ty, span))
    }

    fn not_joined(&mut self, cx: &FnCx, a: &Expr, b: &Expr) {
        let (last, first) = (a.ty.axes.last(), b.ty.axes.first());
        let text =
            |axis: Option<&crate::hir::Axis>| axis.map(|x| cx.axis_text(x)).unwrap_or_default();
        let title =
            format!("`@` joins {} with {}, and they are different axes", text(last), text(first));
        let mut d = Diagnostic::error("M0201", title)
            .label(b.span, cx.type_note(&b.ty, first))
            .label(a.span, cx.type_note(&a.ty, last));
        if let (ExprKind::Weight(i), Some(layer)) = (&b.kind, cx.layer) {
            let at = self.state.layers[layer].weights[*i as usize].shape_span;
            d = d.label(at, "declared here");
        }
        let fits = cx.layer.and_then(|layer| {
            self.state.layers[layer].weights.iter().find(|w| {
                let axis = w.axes.as_ref().and_then(|a| a.first());
                matches!((axis, last), (Some(x), Some(y)) if same_axis(x, y))
            })
        });
        if let Some(w) = fits {
            let ty = TensorType { axes: w.axes.clone().unwrap_or_default(), ..scalar(DType::F32) };
            let help =
                format!("`{}` is {}: did you mean `@ {}`?", w.name, cx.type_text(&ty), w.name);
            d = d.fix(help, b.span, w.name.clone());
        } else {
            d = d.help("`@` joins the last axis of its left side with the first of its right side");
        }
        self.report(d);
    }

    /// `table[ids]`
    pub fn gather(
        &mut self,
        cx: &mut FnCx,
        base: &ast::Expr,
        index: &Index,
        span: Span,
    ) -> Option<Val> {
        if let Some(name) = crate::calls::as_name(base)
            && matches!(name.name.as_str(), "einsum" | "rearrange")
        {
            let title = format!("`{}` needs its tensors", name.name);
            self.report(
                Diagnostic::error("M0118", title)
                    .label(span, "not called")
                    .help(format!("write `{}[.. -> ..](x)`", name.name)),
            );
            return None;
        }
        let IndexKind::Axes(args) = &index.kind else {
            self.pattern_on(cx, base);
            return None;
        };
        if let Some(name) = crate::calls::as_name(base)
            && matches!(self.lookup(cx.file, &name.name), Some(crate::scope::Entity::Layer(_)))
            && !cx.by_name.contains_key(&name.name)
        {
            self.layer_in_function(name);
            return None;
        }
        let table = self.tensor(cx, base);
        let [arg] = args.as_slice() else {
            self.report(
                Diagnostic::error("M0117", "a table is looked up with one tensor of ids")
                    .label(index.span, "not one index"),
            );
            return None;
        };
        let (AxisKind::Size(ids), None) = (&arg.axis.kind, &arg.name) else {
            self.report(
                Diagnostic::error("M0117", "a table is looked up with a tensor of ids")
                    .label(arg.span, "not a tensor"),
            );
            return None;
        };
        let ids = self.tensor(cx, ids);
        let (table, ids) = (table?, ids?);
        self.gathered(cx, table, ids, span).map(Val::Tensor)
    }

    pub fn layer_in_function(&mut self, name: &ast::Ident) {
        let title = format!("the layer `{}` has no name and so no weights here", name.name);
        self.report(
            Diagnostic::error("M0124", title)
                .label(name.span, "a layer in the middle of a function")
                .help(format!("name it in the body: `part = {}[..]`, then `part(x)`", name.name)),
        );
    }

    fn pattern_on(&mut self, cx: &FnCx, base: &ast::Expr) {
        let Some(name) = crate::calls::as_name(base) else {
            let d = Diagnostic::error("M0207", "a pattern belongs to `einsum` or `rearrange`");
            self.report(d.label(base.span, "neither"));
            return;
        };
        let known = ["einsum", "rearrange"];
        let d = Diagnostic::error("M0106", format!("nothing here is called `{}`", name.name))
            .label(name.span, "unknown name");
        let _ = cx;
        self.report(match suggest(&name.name, known) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
            None => d.help("patterns belong to `einsum[..]` and `rearrange[..]`"),
        });
    }

    fn gathered(&mut self, cx: &mut FnCx, table: Expr, ids: Expr, span: Span) -> Option<Expr> {
        if ids.ty.dtype != DType::I32 {
            self.report(
                Diagnostic::error("M0210", "a table is looked up with whole numbers")
                    .label(ids.span, cx.type_text(&ids.ty))
                    .help("ids are i32: `ids: i32[B, T]`"),
            );
            return None;
        }
        self.float_only("table[ids]", &table)?;
        if table.ty.rest || table.ty.axes.is_empty() {
            self.report(
                Diagnostic::error("M0209", "only a table has rows to look up")
                    .label(table.span, cx.type_text(&table.ty)),
            );
            return None;
        }
        let rows: Poly = table.ty.axes[0].size.clone();
        cx.mixes(&rows, span);
        let mut axes = ids.ty.axes.clone();
        axes.extend(table.ty.axes[1..].iter().cloned());
        let ty = TensorType { dtype: DType::F32, rest: ids.ty.rest, axes };
        Some(op_expr(Op::Gather, vec![table, ids], ty, span))
    }
}
