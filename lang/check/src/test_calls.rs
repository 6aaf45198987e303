//! Calls that only tests have: `random`, `replace`, `x.at(T = 0)`, `fit`, `plan`. What gives a
//! tensor becomes a step before the expression it stands in.

use crate::calls::as_name;
use crate::function::{FnCx, Val, whole};
use crate::hir::{
    Axis, Expr, ExprKind, MeshAxis, Poly, ResultId, Static, StaticEnv, TensorType, TestStep,
};
use crate::scope::{Checker, Entity, with_near};
use crate::statics::Ty;
use crate::test_values::{self, Thing};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};
use monarch_syntax::ast::{self, Arg, AxisKind, Ident, Index, IndexKind};

/// Elements of a random tensor: as many as make a model's forward slow.
const MAX_RANDOM: u64 = 1 << 28;

impl Checker<'_> {
    /// The function of `std.test` that a callee names, if nothing nearer has that name.
    pub fn test_op(&self, cx: &FnCx, callee: &ast::Expr) -> Option<&str> {
        let name = as_name(callee)?;
        let own = cx.by_name.contains_key(&name.name) || cx.names.statics.contains_key(&name.name);
        if own || cx.test.is_none() || self.lookup(cx.file, &name.name).is_some() {
            return None;
        }
        self.test_op_id(callee).map(|op| self.op_name(op))
    }

    pub fn test_op_id(&self, callee: &ast::Expr) -> Option<usize> {
        match self.test_prelude.get(&as_name(callee)?.name)?.entity {
            Entity::Op(op) => Some(op),
            _ => None,
        }
    }

    /// A call that only tests have, in the place of a tensor. Outer None: it is another call.
    pub fn test_call(
        &mut self,
        cx: &mut FnCx,
        callee: &ast::Expr,
        first: &Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Option<Val>> {
        cx.test.as_ref()?;
        if let ast::ExprKind::Member(base, method) = &callee.kind
            && method.name == "at"
            && !self.is_module(cx.file, base)
        {
            return Some(self.at(cx, base, args, span).map(Val::Tensor));
        }
        let name = self.test_op(cx, callee)?.to_owned();
        let op = self.test_op_id(callee)?;
        let skip = usize::from(first.is_some());
        let found = match name.as_str() {
            "random" if skip == 0 => self.random(cx, op, args, span),
            "replace" => self.replace(cx, op, first.clone(), args, span),
            _ => {
                let title = format!("`{name}` gives no tensor");
                let d = Diagnostic::error("M0111", title).label(span, "a tensor is needed here");
                self.report(d.help(format!("give it a name: `let r = {name}(..)`")));
                None
            }
        };
        Some(found.map(Val::Tensor))
    }

    /// `x.at(T = 0)`
    fn at(&mut self, cx: &mut FnCx, base: &ast::Expr, args: &[Arg], span: Span) -> Option<Expr> {
        let mut x = self.tensor(cx, base)?;
        if args.is_empty() {
            self.report(
                Diagnostic::error("M0118", "`at` needs an axis and a position")
                    .label(span, "which?")
                    .help("write `.at(T = 0)`"),
            );
            return None;
        }
        for arg in args {
            let Some(axis) = &arg.name else {
                let d =
                    Diagnostic::error("M0117", "`at` takes positions by the name of their axis");
                self.report(d.label(arg.span, "of which axis?").help("write `.at(T = 0)`"));
                return None;
            };
            let named = ast::Expr { span: axis.span, kind: ast::ExprKind::Name(axis.clone()) };
            let from_end = self.axis_of(cx, &x, &named)?;
            let at = self.position(cx, &x, from_end, &arg.value)?;
            let mut ty = x.ty.clone();
            ty.axes.remove(ty.axes.len() - 1 - from_end);
            let local = cx.hidden(ty.clone(), span);
            cx.step(TestStep::At { local, x, from_end, at, span });
            x = Expr { kind: ExprKind::Local(local), ty, span };
        }
        Some(x)
    }

    /// A position along an axis.
    fn position(
        &mut self,
        cx: &mut FnCx,
        x: &Expr,
        from_end: usize,
        expr: &ast::Expr,
    ) -> Option<u64> {
        let at = self.whole_from(cx, expr, 0)?;
        let axis = x.ty.axes.iter().rev().nth(from_end)?;
        match axis.size.as_number().and_then(|n| u64::try_from(n).ok()) {
            Some(n) if at >= n => {
                let name = cx.axis_text(axis);
                let title = format!("position {at} lies beyond `{name}`, which has {n}");
                let d = Diagnostic::error("M0112", title).label(expr.span, "out of range");
                self.report(d.help(format!("positions are 0 to {}", n - 1)));
                None
            }
            _ => Some(at),
        }
    }

    /// `random(i32[1, T], below = V)`
    fn random(&mut self, cx: &mut FnCx, op: usize, args: &[Arg], span: Span) -> Option<Expr> {
        let matched = self.match_op(op, span, args, 0)?;
        let [Some(shape_arg), below] = matched.as_slice() else { return None };
        let ty = self.shape(cx, &shape_arg.value)?;
        let below = match below {
            Some(arg) => Some(self.whole_from(cx, &arg.value, 1)?),
            None if ty.dtype == DType::I32 => {
                self.report(
                    Diagnostic::error("M0118", "`random` of whole numbers needs `below`")
                        .label(span, "from 0 to what?")
                        .help("for example `random(i32[1, 16], below = 10)`"),
                );
                return None;
            }
            None => None,
        };
        if below.is_some_and(|n| n > 1 << 31) {
            let d = Diagnostic::error("M0112", "whole numbers of a tensor are below 2^31");
            self.report(d.label(span, "more than that"));
            return None;
        }
        let mut shape = Vec::new();
        for axis in &ty.axes {
            shape.push(u64::try_from(axis.size.as_number()?).ok()?);
        }
        let elements = shape.iter().try_fold(1u64, |n, x| n.checked_mul(*x));
        if elements.is_none_or(|n| n > MAX_RANDOM) {
            let d = Diagnostic::error("M0211", "a random tensor has at most 2^28 elements");
            self.report(d.label(shape_arg.value.span, "more than that"));
            return None;
        }
        let local = cx.hidden(ty.clone(), span);
        cx.step(TestStep::Random { local, dtype: ty.dtype, shape, below, span });
        Some(Expr { kind: ExprKind::Local(local), ty, span })
    }

    /// `i32[1, T]`: all lengths are numbers here.
    fn shape(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<TensorType> {
        let ast::ExprKind::Index(base, Index { kind: IndexKind::Axes(axes), .. }) = &expr.kind
        else {
            let d = Diagnostic::error("M0111", "a shape is needed here, such as `i32[1, T]`");
            self.report(d.label(expr.span, "not a shape"));
            return None;
        };
        let Some(dtype) = as_name(base) else {
            let d = Diagnostic::error("M0111", "a shape begins with its type: `i32[1, T]`");
            self.report(d.label(base.span, "neither f32 nor i32"));
            return None;
        };
        let dtype = self.dtype(Some(dtype));
        let mut out = Some(Vec::new());
        for axis in axes {
            let found = match &axis.axis.kind {
                AxisKind::Size(size) => self.whole_from(cx, size, 1).and_then(|n| {
                    let name = as_name(size).map(|n| n.name.clone());
                    Some(Axis { name, size: Poly::number(i64::try_from(n).ok()?) })
                }),
                _ => {
                    let d = Diagnostic::error("M0205", "a random tensor says all of its lengths");
                    self.report(d.label(axis.axis.span, "how long?"));
                    None
                }
            };
            match (found, &mut out) {
                (Some(found), Some(list)) => list.push(found),
                _ => out = None,
            }
        }
        Some(TensorType { dtype: dtype?, rest: false, axes: out? })
    }

    /// `replace(x, over = T, at = 3, with = 0)`
    fn replace(
        &mut self,
        cx: &mut FnCx,
        op: usize,
        first: Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Expr> {
        let matched = self.match_op(op, span, args, usize::from(first.is_some()))?;
        let [given, Some(over), Some(at), Some(with)] = matched.as_slice() else { return None };
        let x = match (first, given) {
            (Some(value), _) => self.as_tensor(value?)?,
            (None, Some(arg)) => self.tensor(cx, &arg.value)?,
            (None, None) => return None,
        };
        let from_end = self.axis_of(cx, &x, &over.value)?;
        let at = self.position(cx, &x, from_end, &at.value)?;
        let value = self.plain_number_of(cx, &with.value)?;
        if x.ty.dtype == DType::I32 && (value.fract() != 0.0 || value.abs() >= 2_147_483_648.0) {
            let d = Diagnostic::error("M0111", "these are whole numbers below 2^31");
            self.report(d.label(with.value.span, "not one").label(x.span, cx.type_text(&x.ty)));
            return None;
        }
        let ty = x.ty.clone();
        let local = cx.hidden(ty.clone(), span);
        cx.step(TestStep::Replace { local, x, from_end, at, with: value, span });
        Some(Expr { kind: ExprKind::Local(local), ty, span })
    }

    /// A number that is known now.
    pub fn plain_number_of(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<f64> {
        match self.value(cx, expr)? {
            Val::Static(typed, _) if typed.ty == Ty::Number => {
                typed.value.number(&StaticEnv { sizes: &[], fields: &[] }).ok()
            }
            Val::Static(typed, at) => {
                self.wrong_type(at, "a number", typed.ty);
                None
            }
            other => {
                let d = Diagnostic::error("M0111", "a number that is known now is needed here");
                self.report(d.label(other.span(), "a tensor"));
                None
            }
        }
    }

    /// A whole number from `least` that is known now.
    fn whole_from(&mut self, cx: &mut FnCx, expr: &ast::Expr, least: i64) -> Option<u64> {
        let value = self.value(cx, expr)?;
        let found = match &value {
            Val::Static(typed, _) if typed.ty == Ty::Number => {
                let known = typed.value.eval(&StaticEnv { sizes: &[], fields: &[] }).ok();
                known.and_then(|v| whole(&Static::Value(v)))
            }
            _ => None,
        };
        if let Some(n) = found.filter(|n| *n >= least) {
            return u64::try_from(n).ok();
        }
        let title = format!("a whole number from {least} is needed here");
        let d = Diagnostic::error("M0111", title);
        self.report(match (&value, found) {
            (_, Some(n)) => d.label(expr.span, format!("{n}")),
            (Val::Static(typed, _), _) => d.label(expr.span, typed.ty.noun()),
            _ => d.label(expr.span, "a tensor"),
        });
        None
    }

    /// `fit(job, steps = 200, batches = 1)`, `plan(job, pp = 64)`
    pub fn fit_or_plan(
        &mut self,
        cx: &mut FnCx,
        callee: &ast::Expr,
        args: &[Arg],
        span: Span,
    ) -> Option<test_values::Val> {
        let op = self.test_op_id(callee)?;
        let fit = self.op_result(op) == Some("fitted");
        let thing = |result| match fit {
            true => test_values::Val::Thing(Thing::Fitted(result), span),
            false => test_values::Val::Thing(Thing::Planned(result), span),
        };
        // What is wrong here is no reason to be silent about what is asked of the result.
        let broken = || Some(thing(ResultId(u32::MAX)));
        let Some(matched) = self.match_op(op, span, args, 0) else { return broken() };
        let fields: Vec<Ident> = self.ops[op].ast.fields.iter().map(|f| f.name.clone()).collect();
        let (mut steps, mut batches, mut fine) = (0, None, true);
        let mut lengths = Vec::new();
        for (field, arg) in fields.iter().zip(matched) {
            let Some(arg) = arg else { continue };
            let mesh = MeshAxis::ALL.into_iter().find(|a| a.name() == field.name);
            let found = match (field.name.as_str(), mesh) {
                ("job", _) => self.train_arg(cx.file, &arg.value),
                ("device", _) => self.device_arg(cx, &arg.value),
                (_, Some(axis)) => self.whole_from(cx, &arg.value, 1).map(|n| {
                    lengths.push((axis, u32::try_from(n).unwrap_or(u32::MAX)));
                }),
                ("steps", _) => self.whole_from(cx, &arg.value, 1).map(|n| steps = n),
                _ => self.whole_from(cx, &arg.value, 1).map(|n| batches = Some(n)),
            };
            fine &= found.is_some();
        }
        if !fine {
            return broken();
        }
        let test = cx.test.as_mut()?;
        let result = ResultId(test.results);
        test.results += 1;
        cx.step(match fit {
            true => TestStep::Fit { result, steps, batches, span },
            false => TestStep::Plan { result, lengths, span },
        });
        Some(thing(result))
    }

    fn train_arg(&mut self, file: u32, expr: &ast::Expr) -> Option<()> {
        let Some(name) = as_name(expr) else {
            let d = Diagnostic::error("M0124", "the name of a train block is needed here");
            self.report(d.label(expr.span, "something else"));
            return None;
        };
        match self.lookup(file, &name.name) {
            Some(Entity::Train(_)) => return Some(()),
            Some(other) => self.wrong_entity(name, other, "a train block"),
            None => self.unknown_name(file, name, &[]),
        }
        None
    }

    fn device_arg(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<()> {
        match self.value(cx, expr)? {
            Val::Static(typed, _) if typed.ty == Ty::Text => match typed.value {
                Static::Value(crate::hir::Value::Text(text)) if text == "cpu" => Some(()),
                _ => {
                    let word = Ident { name: "device".into(), span: expr.span };
                    let d = Diagnostic::error("M0111", "tests are run on the CPU")
                        .label(expr.span, "another device");
                    self.report(with_near(d, &word, ["\"cpu\""].into_iter(), "there is"));
                    None
                }
            },
            other => {
                let d = Diagnostic::error("M0111", "the name of a device is needed here");
                self.report(d.label(other.span(), "something else").help("write `\"cpu\"`"));
                None
            }
        }
    }
}
