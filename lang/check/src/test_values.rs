//! What tests speak of besides tensors: results of `fit` and `plan`, and numbers taken from them.

use crate::calls::{as_name, bare};
use crate::function::FnCx;
use crate::hir::{
    Expr, Fold, Measure, MemoryPart, Number, NumberKind, Op, Reduction, ResultId, Series, StaticOp,
    Unit,
};
use crate::operators::op_expr;
use crate::scope::{Checker, Entity, with_near};
use crate::statics::{Ty, Typed, static_op};
use crate::types::scalar;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{BinaryOp as TensorOp, DType, Span};
use monarch_syntax::ast::{self, BinaryOp, ExprKind, Ident, UnaryOp};

/// What is no tensor and no number known before the test runs.
#[derive(Clone, Debug)]
pub(crate) enum Thing {
    /// The result of `fit`.
    Fitted(ResultId),
    /// A metric over its steps: `r.loss`.
    Series(ResultId, Series),
    /// The result of `plan`.
    Planned(ResultId),
    /// `p.memory`
    Memory(ResultId),
    Cluster(usize),
    /// `lab.device`
    Device(usize),
    Number(Number, Ty),
}

/// The value of an expression in a test.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Static(Typed, Span),
    Tensor(Expr),
    Number(Number, Ty),
    Thing(Thing, Span),
}

impl Thing {
    fn noun(&self) -> &'static str {
        match self {
            Thing::Fitted(_) => "a run",
            Thing::Series(..) => "a series of numbers",
            Thing::Planned(_) => "a plan",
            Thing::Memory(_) => "memory in all its parts",
            Thing::Cluster(_) => "a cluster",
            Thing::Device(_) => "a device",
            Thing::Number(_, ty) => ty.noun(),
        }
    }

    fn members(&self) -> &'static [&'static str] {
        match self {
            Thing::Fitted(_) => &["loss", "lr", "grad_norm", "steps"],
            Thing::Series(..) => &["last", "first", "min", "max", "mean"],
            Thing::Planned(_) => &["memory", "bubble", "devices", "steps", "step_time"],
            Thing::Memory(_) => &["peak", "weights", "gradients", "optimizer", "activations"],
            Thing::Cluster(_) => &["device"],
            Thing::Device(_) => &["memory", "count"],
            Thing::Number(..) => &[],
        }
    }
}

impl Val {
    pub fn span(&self) -> Span {
        match self {
            Val::Static(_, span) | Val::Thing(_, span) => *span,
            Val::Tensor(e) => e.span,
            Val::Number(n, _) => n.span,
        }
    }

    pub fn noun(&self) -> &'static str {
        match self {
            Val::Static(typed, _) => typed.ty.noun(),
            Val::Tensor(_) => "a tensor",
            Val::Number(_, ty) => ty.noun(),
            Val::Thing(thing, _) => thing.noun(),
        }
    }

    pub fn members(&self) -> &'static [&'static str] {
        match self {
            Val::Thing(thing, _) => thing.members(),
            _ => &[],
        }
    }
}

impl Checker<'_> {
    /// The value of an expression of a test.
    pub fn test_value(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Val> {
        let span = expr.span;
        match &bare(expr).kind {
            ExprKind::Name(name) if cx.thing(&name.name).is_some() => {
                let thing = cx.thing(&name.name)?.clone();
                Some(match thing {
                    Thing::Number(n, ty) => Val::Number(Number { span, ..n }, ty),
                    thing => Val::Thing(thing, span),
                })
            }
            ExprKind::Member(base, member) if self.speaks_of_things(cx, base) => {
                let base = self.thing(cx, base)?;
                self.member(cx, base, member, span)
            }
            ExprKind::Member(base, _) if self.stranger(cx, base).is_some() => {
                let name = self.stranger(cx, base)?;
                // A name whose value was reported is known, and has none.
                if !cx.by_name.contains_key(&name.name) {
                    self.unknown_in_function(cx, &name);
                }
                None
            }
            ExprKind::Call(callee, args) if self.is_result(cx, callee) => {
                self.fit_or_plan(cx, callee, args, span)
            }
            ExprKind::Unary(UnaryOp::Neg, _, inner) if self.speaks_of_things(cx, inner) => {
                let inner = self.test_value(cx, inner)?;
                let (number, ty) = self.number(cx, inner)?;
                let kind = NumberKind::Neg(Box::new(number));
                Some(Val::Number(Number { kind, span }, ty))
            }
            ExprKind::Binary(op, at, a, b)
                if self.speaks_of_things(cx, a) || self.speaks_of_things(cx, b) =>
            {
                self.number_binary(cx, (*op, *at), (a, b), span)
            }
            _ => match self.value(cx, expr)? {
                crate::function::Val::Static(typed, span) => Some(Val::Static(typed, span)),
                crate::function::Val::Tensor(e) => Some(Val::Tensor(e)),
                crate::function::Val::Mean { elements, weight, span } => {
                    Some(Val::Tensor(mean(elements, weight, span)))
                }
            },
        }
    }

    /// Whether an expression is about results or machines, and so no matter of tensors.
    fn speaks_of_things(&self, cx: &FnCx, expr: &ast::Expr) -> bool {
        match &bare(expr).kind {
            ExprKind::Name(name) => cx.thing(&name.name).is_some() || self.is_cluster(cx, name),
            ExprKind::Member(base, _) => self.speaks_of_things(cx, base),
            ExprKind::Call(callee, _) => self.is_result(cx, callee),
            ExprKind::Unary(_, _, inner) => self.speaks_of_things(cx, inner),
            ExprKind::Binary(_, _, a, b) => {
                self.speaks_of_things(cx, a) || self.speaks_of_things(cx, b)
            }
            _ => false,
        }
    }

    /// The name at the head of `a.b.c`, if it means nothing here.
    fn stranger(&self, cx: &FnCx, expr: &ast::Expr) -> Option<Ident> {
        match &bare(expr).kind {
            ExprKind::Name(name) => {
                let local = matches!(cx.by_name.get(&name.name), Some(Some(_)))
                    || cx.names.statics.contains_key(&name.name);
                let known = local || self.lookup(cx.file, &name.name).is_some();
                (!known).then(|| name.clone())
            }
            ExprKind::Member(base, _) => self.stranger(cx, base),
            _ => None,
        }
    }

    fn is_cluster(&self, cx: &FnCx, name: &Ident) -> bool {
        !cx.by_name.contains_key(&name.name)
            && matches!(self.lookup(cx.file, &name.name), Some(Entity::Cluster(_)))
    }

    /// Whether this is `fit` or `plan`.
    fn is_result(&self, cx: &FnCx, callee: &ast::Expr) -> bool {
        matches!(self.test_op(cx, callee), Some("fit" | "plan"))
    }

    /// Something with members.
    fn thing(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Thing> {
        if let Some(name) = as_name(expr)
            && let Some(Entity::Cluster(id)) = self.lookup(cx.file, &name.name)
        {
            return Some(Thing::Cluster(id));
        }
        match self.test_value(cx, expr)? {
            Val::Thing(thing, _) => Some(thing),
            Val::Number(n, ty) => Some(Thing::Number(n, ty)),
            other => {
                let title = format!("{} has no members", other.noun());
                self.report(Diagnostic::error("M0120", title).label(expr.span, other.noun()));
                None
            }
        }
    }

    fn member(&mut self, cx: &FnCx, base: Thing, member: &Ident, span: Span) -> Option<Val> {
        let number = |kind, ty| Some(Val::Number(Number { kind, span }, ty));
        let measured = |result, what, ty| number(NumberKind::Measured(result, what), ty);
        let thing = |thing| Some(Val::Thing(thing, span));
        let bytes = Ty::Unit(Unit::Bytes);
        match (&base, member.name.as_str()) {
            (Thing::Fitted(r), "loss") => thing(Thing::Series(*r, Series::Loss)),
            (Thing::Fitted(r), "lr") => thing(Thing::Series(*r, Series::Lr)),
            (Thing::Fitted(r), "grad_norm") => thing(Thing::Series(*r, Series::GradNorm)),
            (Thing::Fitted(r) | Thing::Planned(r), "steps") => {
                measured(*r, Measure::Steps, Ty::Number)
            }
            (Thing::Series(r, of), fold) if fold_of(fold).is_some() => {
                measured(*r, Measure::Series(*of, fold_of(fold)?), Ty::Number)
            }
            (Thing::Planned(r), "memory") => thing(Thing::Memory(*r)),
            (Thing::Planned(r), "bubble") => measured(*r, Measure::Bubble, Ty::Unit(Unit::Share)),
            (Thing::Planned(r), "devices") => measured(*r, Measure::Devices, Ty::Number),
            (Thing::Planned(r), "step_time") => {
                measured(*r, Measure::StepTime, Ty::Unit(Unit::Seconds))
            }
            (Thing::Memory(r), part) if part_of(part).is_some() => {
                measured(*r, Measure::Memory(part_of(part)?), bytes)
            }
            (Thing::Cluster(id), "device") => self.declared_device(cx, *id, member).and_then(thing),
            (Thing::Device(id), "memory") => number(NumberKind::DeviceMemory(*id), bytes),
            (Thing::Device(id), "count") => {
                let device = cx.test.as_ref()?.clusters.get(*id)?.device.as_ref()?;
                let count = crate::hir::Value::Int(i64::from(device.count));
                number(NumberKind::Known(count), Ty::Number)
            }
            _ => {
                self.no_member(&base, member);
                None
            }
        }
    }

    fn no_member(&mut self, base: &Thing, member: &Ident) {
        let title = format!("{} has no `{}`", base.noun(), member.name);
        let d = Diagnostic::error("M0120", title).label(member.span, "unknown");
        self.report(with_near(d, member, base.members().iter().copied(), "it has"));
    }

    fn declared_device(&mut self, cx: &FnCx, id: usize, member: &Ident) -> Option<Thing> {
        let cluster = cx.test.as_ref()?.clusters.get(id)?;
        if cluster.device.is_some() {
            return Some(Thing::Device(id));
        }
        let title = format!("`{}` declares no device", cluster.name);
        self.report(
            Diagnostic::error("M0120", title)
                .label(member.span, "of which kind?")
                .label(cluster.span, "declared here")
                .help("`device = MI300X { count = 8 }` says what each node has"),
        );
        None
    }

    /// Arithmetic with what is measured, by the rules of units.
    fn number_binary(
        &mut self,
        cx: &mut FnCx,
        (op, at): (BinaryOp, Span),
        (a, b): (&ast::Expr, &ast::Expr),
        span: Span,
    ) -> Option<Val> {
        let left = self.test_value(cx, a);
        let right = self.test_value(cx, b);
        let ((left, a_ty), (right, b_ty)) = (self.number(cx, left?)?, self.number(cx, right?)?);
        let arithmetic = static_op(op).filter(|op| {
            use StaticOp as O;
            matches!(op, O::Add | O::Sub | O::Mul | O::Div | O::Pow)
        });
        let Some(op) = arithmetic else {
            let title = format!("`{}` does not make a number", op.symbol());
            self.report(
                Diagnostic::error("M0111", title)
                    .label(at, "a number is needed here")
                    .help("each `assert` compares once; write `a < b and b < c`"),
            );
            return None;
        };
        let Some(ty) = combined(op, a_ty, b_ty) else {
            self.cannot_combine(op, at, (a_ty, left.span), (b_ty, right.span));
            return None;
        };
        let kind = NumberKind::Binary(op, Box::new(left), Box::new(right));
        Some(Val::Number(Number { kind, span }, ty))
    }
}

impl FnCx {
    fn thing(&self, name: &str) -> Option<&Thing> {
        self.test.as_ref()?.things.get(name)
    }
}

/// The type of a result, by the rules of `statics::quantities`.
fn combined(op: StaticOp, a: Ty, b: Ty) -> Option<Ty> {
    use StaticOp as O;
    match (op, a, b) {
        (_, Ty::Number, Ty::Number) => Some(Ty::Number),
        (O::Add | O::Sub, Ty::Unit(x), Ty::Unit(y)) if x == y => Some(a),
        (O::Mul, Ty::Unit(_), Ty::Number) | (O::Div, Ty::Unit(_), Ty::Number) => Some(a),
        (O::Mul, Ty::Number, Ty::Unit(_)) => Some(b),
        (O::Div, Ty::Unit(x), Ty::Unit(y)) if x == y => Some(Ty::Number),
        (O::Mul, Ty::Unit(Unit::Share), Ty::Unit(y)) if y != Unit::Share => Some(b),
        _ => None,
    }
}

/// `mean(x)` of a test: there is no batch but what the test has made.
fn mean(elements: Expr, weight: Option<Expr>, span: Span) -> Expr {
    let all = |kind, x: Expr| {
        let from_end = (0..x.ty.axes.len()).collect();
        match x.ty.axes.is_empty() {
            true => x,
            false => op_expr(Op::Reduce { kind, from_end }, vec![x], scalar(DType::F32), span),
        }
    };
    match weight {
        None => all(Reduction::Mean, elements),
        Some(weight) => {
            // Each element of the weight counts as often as it is repeated.
            let n = elements.ty.axes.len() - weight.ty.axes.len().min(elements.ty.axes.len());
            let mut repeats = elements.ty.axes.iter().take(n);
            let times = repeats.try_fold(1i64, |t, a| t.checked_mul(a.size.as_number()?));
            let total = all(Reduction::Sum, weight);
            let value = crate::hir::Static::Value(crate::hir::Value::Int(times.unwrap_or(1)));
            let kind = crate::hir::ExprKind::Static(value);
            let times = Expr { kind, ty: scalar(DType::F32), span };
            let args = vec![total, times];
            let total = op_expr(Op::Binary(TensorOp::Mul), args, scalar(DType::F32), span);
            let args = vec![all(Reduction::Sum, elements), total];
            op_expr(Op::Binary(TensorOp::Div), args, scalar(DType::F32), span)
        }
    }
}

fn fold_of(name: &str) -> Option<Fold> {
    Some(match name {
        "first" => Fold::First,
        "last" => Fold::Last,
        "min" => Fold::Min,
        "max" => Fold::Max,
        "mean" => Fold::Mean,
        _ => return None,
    })
}

fn part_of(name: &str) -> Option<MemoryPart> {
    Some(match name {
        "peak" => MemoryPart::Peak,
        "weights" => MemoryPart::Weights,
        "gradients" => MemoryPart::Gradients,
        "optimizer" => MemoryPart::Optimizer,
        "activations" => MemoryPart::Activations,
        _ => return None,
    })
}
