//! Expressions whose value is known before a device is touched: `4 * D`, `0.02 / sqrt(2 * depth)`,
//! `if bias { zeros } else { none }`, `lr / 10`. At the top level all names have values, so the
//! result is one; in a layer it may speak of the layer's sizes and fields.

use crate::hir::{MathFn, Poly, Quantity, Static, StaticOp, Unit, Value};
use crate::scope::{Checker, Entity};
use crate::units;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{Arg, BinaryOp, Expr, ExprKind, Ident, UnaryOp};

/// A static expression with its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub value: Static,
    pub ty: Ty,
}

/// Types of static values. Whole numbers are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Number,
    Bool,
    Text,
    Unit(Unit),
    List,
}

impl Ty {
    pub fn noun(self) -> &'static str {
        match self {
            Ty::Number => "a number",
            Ty::Bool => "a condition",
            Ty::Text => "a text",
            Ty::Unit(unit) => unit.label(),
            Ty::List => "a list",
        }
    }
}

pub(crate) fn type_of(value: &Value) -> Ty {
    match value {
        Value::Int(_) | Value::Float(_) => Ty::Number,
        Value::Bool(_) => Ty::Bool,
        Value::Text(_) => Ty::Text,
        Value::Quantity(q) => Ty::Unit(q.unit),
        Value::List(_) => Ty::List,
    }
}

/// A value as a person writes it.
pub fn show(value: &Value) -> String {
    match value {
        Value::Int(i) => i.to_string(),
        Value::Float(f) if *f != 0.0 && (f.abs() < 1e-2 || f.abs() >= 1e7) => format!("{f:e}"),
        Value::Float(f) => f.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Text(t) => format!("\"{t}\""),
        Value::Quantity(q) => units::show(*q),
        Value::List(l) => {
            let parts: Vec<String> = l.iter().map(show).collect();
            format!("[{}]", parts.join(", "))
        }
    }
}

/// Names that a static expression may use besides those of its file.
pub(crate) struct Names<'n> {
    pub file: u32,
    /// The layer's sizes, fields and static lets.
    pub local: &'n dyn Fn(&str) -> Option<Option<Typed>>,
    /// For suggestions, when something is wrong.
    pub all: &'n dyn Fn() -> Vec<String>,
}

impl Names<'_> {
    /// The top level of a file.
    pub fn top(file: u32) -> Names<'static> {
        Names { file, local: &|_| None, all: &Vec::new }
    }
}

fn value(value: Value) -> Option<Typed> {
    let ty = type_of(&value);
    Some(Typed { value: Static::Value(value), ty })
}

impl Checker<'_> {
    /// A static expression; None if it was reported.
    pub fn fixed(&mut self, names: &Names, expr: &Expr) -> Option<Typed> {
        match &expr.kind {
            ExprKind::Number(number) => match units::of_number(number) {
                Err(d) => {
                    self.report(*d);
                    None
                }
                Ok(Some(q)) => value(Value::Quantity(q)),
                Ok(None) => value(match number.integer {
                    Some(i) => Value::Int(i),
                    None => Value::Float(number.value),
                }),
            },
            ExprKind::Str(text) => value(Value::Text(text.value.clone())),
            ExprKind::Name(name) => self.fixed_name(names, name),
            ExprKind::Paren(inner) => self.fixed(names, inner),
            ExprKind::Unary(op, _, inner) => self.fixed_unary(names, *op, inner),
            ExprKind::Binary(op, at, a, b) => self.fixed_binary(names, *op, *at, a, b),
            ExprKind::If(cond) => {
                let condition = self.fixed_of(names, &cond.condition, Ty::Bool);
                let yes = self.fixed(names, &cond.yes);
                let no = self.fixed(names, &cond.no);
                self.choose(condition?, (yes?, cond.yes.span), (no?, cond.no.span))
            }
            ExprKind::Call(callee, args) => self.fixed_call(names, expr.span, callee, args),
            ExprKind::Member(base, member) => self.fixed_member(names, base, member),
            ExprKind::List(items) => {
                let all: Vec<Option<Typed>> =
                    items.iter().map(|item| self.fixed(names, item)).collect();
                let mut values = Vec::new();
                for typed in all {
                    match typed?.value {
                        Static::Value(v) => values.push(v),
                        _ => return self.not_fixed(expr.span, "a list of plain values"),
                    }
                }
                value(Value::List(values))
            }
            ExprKind::Broken => None,
            ExprKind::Rhai(_) | ExprKind::Record(_) | ExprKind::Tuple(_) | ExprKind::Index(..) => {
                self.not_fixed(expr.span, "a value")
            }
        }
    }

    fn not_fixed(&mut self, at: Span, needed: &str) -> Option<Typed> {
        let title = format!("{needed} is needed here");
        self.report(Diagnostic::error("M0111", title).label(at, "something else"));
        None
    }

    fn fixed_name(&mut self, names: &Names, name: &Ident) -> Option<Typed> {
        if let Some(found) = (names.local)(&name.name) {
            return found;
        }
        match self.lookup(names.file, &name.name) {
            Some(Entity::Param(id)) => {
                let found = self.param_value(id)?;
                value(found)
            }
            Some(Entity::Let(id)) => self.let_value(id),
            Some(other) => {
                self.wrong_entity(name, other, "a value");
                None
            }
            None => match name.name.as_str() {
                "true" => value(Value::Bool(true)),
                "false" => value(Value::Bool(false)),
                _ => {
                    let all = (names.all)();
                    let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
                    all.extend(["true", "false"]);
                    self.unknown_name(names.file, name, &all);
                    None
                }
            },
        }
    }

    fn fixed_unary(&mut self, names: &Names, op: UnaryOp, inner: &Expr) -> Option<Typed> {
        match op {
            UnaryOp::Not => {
                let a = self.fixed_of(names, inner, Ty::Bool)?;
                Some(fold(Typed { value: Static::Not(Box::new(a.value)), ty: Ty::Bool }))
            }
            UnaryOp::Neg => {
                let a = self.fixed(names, inner)?;
                match (a.value, a.ty) {
                    (Static::Value(Value::Quantity(q)), _) => {
                        value(Value::Quantity(Quantity { amount: -q.amount, ..q }))
                    }
                    (Static::Size(p), _) => {
                        let p = Poly::number(0).sub(&p)?;
                        Some(Typed { value: Static::Size(p), ty: Ty::Number })
                    }
                    (v, Ty::Number) => {
                        Some(fold(Typed { value: Static::Neg(Box::new(v)), ty: Ty::Number }))
                    }
                    (_, ty) => {
                        self.wrong_type(inner.span, "a number", ty);
                        None
                    }
                }
            }
        }
    }

    /// A static expression of this type.
    pub fn fixed_of(&mut self, names: &Names, expr: &Expr, ty: Ty) -> Option<Typed> {
        let typed = self.fixed(names, expr)?;
        if typed.ty != ty {
            self.wrong_type(expr.span, ty.noun(), typed.ty);
            return None;
        }
        Some(typed)
    }

    pub fn wrong_type(&mut self, at: Span, needed: &str, is: Ty) {
        let title = format!("{needed} is needed here, and this is {}", is.noun());
        self.report(Diagnostic::error("M0111", title).label(at, is.noun()));
    }

    fn choose(&mut self, condition: Typed, yes: (Typed, Span), no: (Typed, Span)) -> Option<Typed> {
        if yes.0.ty != no.0.ty {
            let title = "both branches of an `if` must be of one type";
            self.report(
                Diagnostic::error("M0111", title)
                    .label(no.1, no.0.ty.noun())
                    .label(yes.1, yes.0.ty.noun()),
            );
            return None;
        }
        let ty = yes.0.ty;
        Some(match condition.value {
            Static::Value(Value::Bool(true)) => yes.0,
            Static::Value(Value::Bool(false)) => no.0,
            c => {
                let (yes, no) = (Box::new(yes.0.value), Box::new(no.0.value));
                Typed { value: Static::If(Box::new(c), yes, no), ty }
            }
        })
    }

    fn fixed_binary(
        &mut self,
        names: &Names,
        op: BinaryOp,
        at: Span,
        left: &Expr,
        right: &Expr,
    ) -> Option<Typed> {
        let Some(op) = static_op(op) else {
            let title = format!("`{}` does not combine values that are known now", op.symbol());
            self.report(Diagnostic::error("M0111", title).label(at, "not here"));
            return None;
        };
        let a = self.fixed(names, left);
        let b = self.fixed(names, right);
        let (a, b) = (a?, b?);
        self.combine(op, at, (a, left.span), (b, right.span))
    }

    /// Applies an operator to two static values.
    pub fn combine(
        &mut self,
        op: StaticOp,
        at: Span,
        (a, a_at): (Typed, Span),
        (b, b_at): (Typed, Span),
    ) -> Option<Typed> {
        if let (Static::Value(x), Static::Value(y)) = (&a.value, &b.value)
            && (matches!(a.ty, Ty::Unit(_)) || matches!(b.ty, Ty::Unit(_)))
        {
            return match quantities(op, x, y) {
                Some(v) => value(v),
                None => self.cannot_combine(op, at, (a.ty, a_at), (b.ty, b_at)),
            };
        }
        let ty = match (op, a.ty, b.ty) {
            (StaticOp::And | StaticOp::Or, Ty::Bool, Ty::Bool) => Ty::Bool,
            (StaticOp::Eq | StaticOp::Ne, x, y) if x == y && x != Ty::List => Ty::Bool,
            (StaticOp::And | StaticOp::Or | StaticOp::Eq | StaticOp::Ne, ..) => {
                return self.cannot_combine(op, at, (a.ty, a_at), (b.ty, b_at));
            }
            (StaticOp::Lt | StaticOp::Le | StaticOp::Gt | StaticOp::Ge, Ty::Number, Ty::Number) => {
                Ty::Bool
            }
            (_, Ty::Number, Ty::Number) => Ty::Number,
            _ => return self.cannot_combine(op, at, (a.ty, a_at), (b.ty, b_at)),
        };
        if ty == Ty::Number
            && let Some(size) = sizes(op, &a.value, &b.value)
        {
            return Some(Typed { value: Static::Size(size), ty });
        }
        match (&a.value, &b.value) {
            (Static::Value(x), Static::Value(y)) => match op.apply(x, y) {
                Ok(v) => value(v),
                Err(e) => {
                    let d = Diagnostic::error("M0111", e.to_string());
                    self.report(d.label(at, "here").label(b_at, show(y)));
                    None
                }
            },
            _ => {
                let (a, b) = (Box::new(a.value), Box::new(b.value));
                Some(Typed { value: Static::Binary(op, a, b), ty })
            }
        }
    }

    pub fn cannot_combine(
        &mut self,
        op: StaticOp,
        at: Span,
        a: (Ty, Span),
        b: (Ty, Span),
    ) -> Option<Typed> {
        let symbol = op.symbol();
        let title = format!("`{symbol}` does not combine {} with {}", a.0.noun(), b.0.noun());
        self.report(
            Diagnostic::error("M0111", title)
                .label(at, "")
                .label(a.1, a.0.noun())
                .label(b.1, b.0.noun()),
        );
        None
    }

    fn fixed_call(
        &mut self,
        names: &Names,
        span: Span,
        callee: &Expr,
        args: &[Arg],
    ) -> Option<Typed> {
        let ExprKind::Name(name) = &callee.kind else {
            return self.not_fixed(span, "a value that is known now");
        };
        let Some(function) = math_fn(&name.name) else {
            match self.lookup(names.file, &name.name) {
                Some(_) => return self.not_fixed(span, "a value that is known now"),
                None if name.name == "env" => {
                    let title = "the environment is not read here";
                    let d = Diagnostic::error("M0127", title).label(span, "not a value");
                    self.report(d.help(
                        "`key` of a `cluster` is: make this a param, which the command line sets",
                    ));
                    return None;
                }
                None => {
                    let all = ["sqrt", "exp", "log", "min", "max"];
                    self.unknown_name(names.file, name, &all);
                    return None;
                }
            }
        };
        let mut values = Vec::new();
        for arg in args {
            if let Some(extra) = &arg.name {
                let title = format!("`{}` takes plain values", name.name);
                self.report(Diagnostic::error("M0117", title).label(extra.span, "no name needed"));
                return None;
            }
            values.push(self.fixed_of(names, &arg.value, Ty::Number));
        }
        let values: Option<Vec<Static>> = values.into_iter().map(|v| v.map(|t| t.value)).collect();
        let typed = Typed { value: Static::Call(function, values?), ty: Ty::Number };
        self.fold_or_report(typed, span)
    }

    pub fn fold_or_report(&mut self, typed: Typed, span: Span) -> Option<Typed> {
        if let Static::Call(function, args) = &typed.value {
            let plain: Option<Vec<Value>> = args
                .iter()
                .map(|a| match a {
                    Static::Value(v) => Some(v.clone()),
                    _ => None,
                })
                .collect();
            if let Some(plain) = plain {
                return match function.apply(&plain) {
                    Ok(v) => value(v),
                    Err(e) => {
                        let d = Diagnostic::error("M0111", e.to_string());
                        self.report(d.label(span, "here"));
                        None
                    }
                };
            }
        }
        Some(typed)
    }

    fn fixed_member(&mut self, names: &Names, base: &Expr, member: &Ident) -> Option<Typed> {
        let ExprKind::Name(name) = &base.kind else {
            if let ExprKind::Member(root, part) = &base.kind
                && let ExprKind::Name(name) = &root.kind
            {
                match self.lookup(names.file, &name.name) {
                    Some(Entity::Cluster(id)) => {
                        let found = self.cluster_member(id, &[part, member])?;
                        return value(found);
                    }
                    None => {
                        self.unknown_name(names.file, name, &[]);
                        return None;
                    }
                    _ => {}
                }
            }
            return self.not_fixed(base.span.to(member.span), "a value that is known now");
        };
        match self.lookup(names.file, &name.name) {
            Some(Entity::Cluster(id)) => {
                let found = self.cluster_member(id, &[member])?;
                value(found)
            }
            Some(Entity::Data(id)) => {
                let found = self.data_member(id, member)?;
                value(found)
            }
            Some(Entity::Module(module)) => match self.member_of(module, member) {
                Entity::Let(id) => self.let_value(id),
                Entity::Param(id) => {
                    let found = self.param_value(id)?;
                    value(found)
                }
                other => {
                    self.wrong_entity(member, other, "a value");
                    None
                }
            },
            Some(other) => {
                self.wrong_entity(name, other, "something with members");
                None
            }
            None => {
                let all = (names.all)();
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                self.unknown_name(names.file, name, &all);
                None
            }
        }
    }
}

/// An operator on two values that are known, units included: like units add, numbers scale.
///
/// # Errors
/// A text that says why there is no value.
pub fn arithmetic(op: StaticOp, a: &Value, b: &Value) -> Result<Value, crate::hir::EvalError> {
    match (a, b) {
        (Value::Quantity(_), _) | (_, Value::Quantity(_)) => quantities(op, a, b)
            .ok_or_else(|| crate::hir::EvalError("these do not go together".into())),
        _ => op.apply(a, b),
    }
}

/// Constants inside are worked out.
fn fold(typed: Typed) -> Typed {
    let done = match &typed.value {
        Static::Neg(a) | Static::Not(a) => matches!(**a, Static::Value(_)),
        _ => false,
    };
    let env = crate::hir::StaticEnv { sizes: &[], fields: &[] };
    match typed.value.eval(&env) {
        Ok(v) if done => Typed { value: Static::Value(v), ty: typed.ty },
        _ => typed,
    }
}

pub(crate) fn as_size(value: &Static) -> Option<Poly> {
    match value {
        Static::Size(p) => Some(p.clone()),
        Static::Value(Value::Int(i)) => Some(Poly::number(*i)),
        _ => None,
    }
}

fn sizes(op: StaticOp, a: &Static, b: &Static) -> Option<Poly> {
    if !matches!(a, Static::Size(_)) && !matches!(b, Static::Size(_)) {
        return None;
    }
    let (a, b) = (as_size(a)?, as_size(b)?);
    match op {
        StaticOp::Add => a.add(&b),
        StaticOp::Sub => a.sub(&b),
        StaticOp::Mul => a.mul(&b),
        StaticOp::Div => a.div(&b),
        StaticOp::Pow => {
            let n = b.as_number().filter(|n| (0..=8).contains(n))?;
            (0..n).try_fold(Poly::number(1), |p, _| p.mul(&a))
        }
        _ => None,
    }
}

/// Arithmetic of quantities: like units add, numbers scale, quotients of like units are numbers.
fn quantities(op: StaticOp, a: &Value, b: &Value) -> Option<Value> {
    let q = |amount: f64, unit| {
        amount.is_finite().then_some(Value::Quantity(Quantity { amount, unit }))
    };
    match (op, a, b) {
        (StaticOp::Mul, Value::Quantity(x), y) if y.number().is_some() => {
            q(x.amount * y.number()?, x.unit)
        }
        (StaticOp::Mul, x, Value::Quantity(y)) if x.number().is_some() => {
            q(x.number()? * y.amount, y.unit)
        }
        (StaticOp::Div, Value::Quantity(x), y) if y.number().is_some() => {
            q(x.amount / y.number()?, x.unit)
        }
        (_, Value::Quantity(x), Value::Quantity(y)) if x.unit == y.unit => match op {
            StaticOp::Add => q(x.amount + y.amount, x.unit),
            StaticOp::Sub => q(x.amount - y.amount, x.unit),
            StaticOp::Div if y.amount != 0.0 => Some(Value::Float(x.amount / y.amount)),
            StaticOp::Mul | StaticOp::Pow | StaticOp::And | StaticOp::Or | StaticOp::Div => None,
            _ => op.apply(&Value::Float(x.amount), &Value::Float(y.amount)).ok(),
        },
        // A share of something: 90% * 400 steps.
        (StaticOp::Mul, Value::Quantity(x), Value::Quantity(y)) if x.unit == Unit::Share => {
            q(x.amount * y.amount, y.unit)
        }
        _ => None,
    }
}

pub(crate) fn static_op(op: BinaryOp) -> Option<StaticOp> {
    Some(match op {
        BinaryOp::Add => StaticOp::Add,
        BinaryOp::Sub => StaticOp::Sub,
        BinaryOp::Mul => StaticOp::Mul,
        BinaryOp::Div => StaticOp::Div,
        BinaryOp::Pow => StaticOp::Pow,
        BinaryOp::Eq => StaticOp::Eq,
        BinaryOp::Ne => StaticOp::Ne,
        BinaryOp::Lt => StaticOp::Lt,
        BinaryOp::Le => StaticOp::Le,
        BinaryOp::Gt => StaticOp::Gt,
        BinaryOp::Ge => StaticOp::Ge,
        BinaryOp::And => StaticOp::And,
        BinaryOp::Or => StaticOp::Or,
        BinaryOp::Then | BinaryOp::Pipe | BinaryOp::In | BinaryOp::Range | BinaryOp::MatMul => {
            return None;
        }
    })
}

impl StaticOp {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            StaticOp::Add => "+",
            StaticOp::Sub => "-",
            StaticOp::Mul => "*",
            StaticOp::Div => "/",
            StaticOp::Pow => "^",
            StaticOp::Eq => "==",
            StaticOp::Ne => "!=",
            StaticOp::Lt => "<",
            StaticOp::Le => "<=",
            StaticOp::Gt => ">",
            StaticOp::Ge => ">=",
            StaticOp::And => "and",
            StaticOp::Or => "or",
        }
    }
}

pub(crate) fn math_fn(name: &str) -> Option<MathFn> {
    [MathFn::Sqrt, MathFn::Exp, MathFn::Log, MathFn::Min, MathFn::Max]
        .into_iter()
        .find(|f| f.name() == name)
}
