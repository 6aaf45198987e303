//! `test "name" { .. }`: statements and what they claim. Values that are no tensors are in
//! `test_values.rs`, calls that only tests have in `test_calls.rs`.

use crate::calls::bare;
use crate::function::{FnCx, match_scalar};
use crate::hir::{
    Cluster, Condition, ConditionKind, Expr, Let, LocalId, Number, NumberKind, Pattern, Rejects,
    Static, StaticEnv, StaticOp, Test, TestStep, Value,
};
use crate::layers::LayerNames;
use crate::scope::{Checker, In};
use crate::statics::{Ty, Typed, static_op};
use crate::test_values::{Thing, Val};
use crate::types::is_scalar;
use monarch_diagnostic::{Diagnostic, pages, suggest};
use monarch_graph::{CompareOp, Span};
use monarch_syntax::ast::{self, BinaryOp, ExprKind, Ident, Stmt};
use std::collections::HashMap;
use std::rc::Rc;

/// What a test adds to the context of a function.
#[derive(Default)]
pub(crate) struct Hoist {
    /// Steps so far; those that an expression needs come before the one that uses them.
    pub steps: Vec<TestStep>,
    /// Names of what is no tensor.
    pub things: HashMap<String, Thing>,
    /// Results of `fit` and `plan` so far.
    pub results: u32,
    /// The machines there are, for `lab.device.memory`.
    pub clusters: Vec<Cluster>,
}

impl<'a> Checker<'a> {
    /// All tests of the program's own files; those with a mistake are left out.
    pub fn check_tests(&mut self, clusters: &[Cluster]) -> Vec<Test> {
        let mut out = Vec::new();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for id in 0..self.tests.len() {
            let In { file, ast, .. } = self.tests[id];
            if !self.loaded.is_own(file) {
                continue;
            }
            if let Some(first) = seen.insert(&ast.name.value, ast.name.span) {
                let title = format!("two tests are called \"{}\"", ast.name.value);
                self.report(
                    Diagnostic::error("M0105", title)
                        .label(ast.name.span, "again here")
                        .label(first, "first here")
                        .help("say what this one shows that the other does not"),
                );
            }
            out.extend(self.check_test(file, ast, clusters));
        }
        out
    }

    fn check_test(&mut self, file: u32, ast: &'a ast::Test, clusters: &[Cluster]) -> Option<Test> {
        let names = Rc::new(LayerNames::default());
        let mut cx = self.function_cx(file, names, Vec::new(), 0, &[]);
        cx.test = Some(Hoist { clusters: clusters.to_vec(), ..Hoist::default() });
        let code_known = ast.rejects.as_ref().map(|code| self.known_code(code));
        let before = self.diagnostics.len();
        let mut fine = self.test_body(&mut cx, ast);
        let said = self.diagnostics.get(before..).unwrap_or(&[]);
        fine &= !said.iter().any(Diagnostic::is_error);
        let hoist = cx.test.take().unwrap_or_default();
        let asserts = hoist.steps.iter().any(|s| matches!(s, TestStep::Assert { .. }));
        let rejects = ast.rejects.as_ref().map(|code| {
            // What the block is refused with is what the test is about.
            let found = self.diagnostics.drain(before..).filter(Diagnostic::is_error).collect();
            Rejects { code: code.name.clone(), span: code.span, found }
        });
        if rejects.is_none() && fine && !asserts {
            self.report(
                Diagnostic::warning("M1003", "this test asserts nothing")
                    .label(ast.name.span, "passes whatever happens")
                    .help("say what must hold: `assert r.loss.last < 0.05`"),
            );
        }
        if rejects.as_ref().is_none_or(|r| r.found.is_empty()) && !fine {
            return None;
        }
        code_known.unwrap_or(true).then(|| Test {
            name: ast.name.value.clone(),
            span: ast.name.span,
            rejects,
            locals: cx.locals,
            steps: hoist.steps,
            results: hoist.results,
        })
    }

    /// The statements and the last expression of a test.
    fn test_body(&mut self, cx: &mut FnCx, ast: &'a ast::Test) -> bool {
        let mut fine = true;
        for stmt in &ast.script.stmts {
            fine &= match stmt {
                Stmt::Let(bind) => self.test_let(cx, bind),
                Stmt::Assert(assert) => {
                    let holds = self.condition(cx, &assert.condition);
                    holds.map(|holds| cx.step(TestStep::Assert { holds, span: assert.span }))
                }
                Stmt::Broken(broken) => {
                    if let Some(name) = &broken.name {
                        cx.by_name.insert(name.name.clone(), None);
                    }
                    None
                }
            }
            .is_some();
        }
        if let Some(value) = &ast.script.value {
            fine &= match self.test_value(cx, value) {
                Some(Val::Tensor(e)) => {
                    let local = cx.hidden(e.ty.clone(), e.span);
                    cx.step(TestStep::Let(Let { pattern: Pattern::One(local), value: e }));
                    true
                }
                found => found.is_some(),
            };
        }
        self.unused_locals(cx, 0);
        fine
    }

    /// `rejects M0312`: whether there is such a diagnostic.
    fn known_code(&mut self, code: &Ident) -> bool {
        if pages().iter().any(|page| page.code == code.name) {
            return true;
        }
        let title = format!("there is no diagnostic `{}`", code.name);
        let d = Diagnostic::error("M1004", title).label(code.span, "unknown code");
        self.report(match suggest(&code.name, pages().iter().map(|page| page.code)) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), code.span, near),
            None => d.help("`monarch explain` lists them; the code stands before each message"),
        });
        false
    }

    fn test_let(&mut self, cx: &mut FnCx, bind: &'a ast::Bind) -> Option<()> {
        let ast::Pattern::One(name) = &bind.pattern else {
            let found = self.bind(cx, bind)?;
            cx.step(TestStep::Let(found));
            return Some(());
        };
        let value = self.test_value(cx, &bind.value);
        let taken = |cx: &FnCx| {
            let thing = cx.test.as_ref().is_some_and(|t| t.things.contains_key(&name.name));
            thing || cx.names.statics.contains_key(&name.name)
        };
        if taken(cx) {
            let title = format!("`{}` has a value already", name.name);
            let d = Diagnostic::error("M0105", title).label(name.span, "again here");
            self.report(d.help("give the new value another name"));
            return None;
        }
        match value {
            Some(Val::Tensor(value)) => {
                let local = self.new_local(cx, name, Some(value.ty.clone()))?;
                cx.step(TestStep::Let(Let { pattern: Pattern::One(local), value }));
            }
            Some(Val::Static(typed, _)) => {
                let mut statics = cx.names.statics.clone();
                statics.insert(name.name.clone(), Some(typed));
                cx.names = Rc::new(LayerNames { statics, ..LayerNames::default() });
            }
            Some(Val::Number(number, ty)) => cx.name_thing(name, Thing::Number(number, ty)),
            Some(Val::Thing(thing, _)) => cx.name_thing(name, thing),
            None => {
                cx.by_name.insert(name.name.clone(), None);
                return None;
            }
        }
        Some(())
    }

    /// What an `assert` claims.
    fn condition(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Condition> {
        let span = expr.span;
        let kind = match &bare(expr).kind {
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), _, a, b) => {
                let a = self.condition(cx, a);
                let b = self.condition(cx, b);
                let (a, b) = (Box::new(a?), Box::new(b?));
                match op {
                    BinaryOp::And => ConditionKind::And(a, b),
                    _ => ConditionKind::Or(a, b),
                }
            }
            ExprKind::Unary(ast::UnaryOp::Not, _, inner) => {
                ConditionKind::Not(Box::new(self.condition(cx, inner)?))
            }
            ExprKind::Binary(op, at, a, b) if compare_op(*op).is_some() => {
                let left = self.test_value(cx, a);
                let right = self.test_value(cx, b);
                self.compare(cx, (*op, *at), left?, right?)?
            }
            ExprKind::Call(callee, args) if self.test_op(cx, callee) == Some("near") => {
                self.near(cx, callee, args, span)?
            }
            _ => self.truth(cx, expr)?,
        };
        Some(Condition { kind, span })
    }

    /// A condition that is known now.
    fn truth(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<ConditionKind> {
        let found = self.test_value(cx, expr)?;
        if let Val::Static(typed, _) = &found
            && typed.ty == Ty::Bool
            && let Ok(Value::Bool(b)) = typed.value.eval(&StaticEnv { sizes: &[], fields: &[] })
        {
            return Some(ConditionKind::Known(b));
        }
        let title = format!("`assert` needs a condition, and this is {}", found.noun());
        self.report(
            Diagnostic::error("M0111", title)
                .label(expr.span, found.noun())
                .help("compare it with something: `==`, `<`, .., `near(a, b, within = 1e-5)`"),
        );
        None
    }

    fn compare(
        &mut self,
        cx: &mut FnCx,
        (op, at): (BinaryOp, Span),
        left: Val,
        right: Val,
    ) -> Option<ConditionKind> {
        let (compare, plain) = (compare_op(op)?, static_op(op)?);
        if let Some(thing) = [&left, &right].into_iter().find(|v| matches!(v, Val::Thing(..))) {
            self.not_a_number(thing);
            return None;
        }
        match (left, right) {
            (Val::Static(a, a_at), Val::Static(b, b_at)) => {
                self.compare_known((plain, compare, at), (a, a_at), (b, b_at))
            }
            (a @ (Val::Tensor(_) | Val::Static(..)), b @ (Val::Tensor(_) | Val::Static(..))) => {
                let (mut left, mut right) = (self.element(a)?, self.element(b)?);
                match_scalar(&mut left, &right);
                match_scalar(&mut right, &left);
                self.broadcast(cx, plain.symbol(), at, &left, &right)?;
                Some(ConditionKind::Tensors { op: compare, left, right })
            }
            (a, b) => {
                let ((a, a_ty), (b, b_ty)) = (self.number(cx, a)?, self.number(cx, b)?);
                if a_ty != b_ty {
                    let (a, b) = ((a_ty, a.span), (b_ty, b.span));
                    self.cannot_combine(plain, at, a, b);
                    return None;
                }
                Some(ConditionKind::Numbers { op: compare, left: a, right: b })
            }
        }
    }

    /// Both sides are known: whether they fit together is said now, whether it holds by the test.
    fn compare_known(
        &mut self,
        (op, compare, at): (StaticOp, CompareOp, Span),
        (a, a_at): (Typed, Span),
        (b, b_at): (Typed, Span),
    ) -> Option<ConditionKind> {
        let ty = a.ty;
        let whole = self.combine(op, at, (a.clone(), a_at), (b.clone(), b_at))?;
        if matches!(ty, Ty::Number | Ty::Unit(_))
            && let Some((left, right)) =
                Number::known(&a.value, a_at).zip(Number::known(&b.value, b_at))
        {
            return Some(ConditionKind::Numbers { op: compare, left, right });
        }
        match whole.value {
            Static::Value(Value::Bool(b)) => Some(ConditionKind::Known(b)),
            _ => None,
        }
    }

    /// A tensor, or a plain number as one.
    fn element(&mut self, value: Val) -> Option<Expr> {
        match value {
            Val::Tensor(e) => Some(e),
            Val::Static(typed, span) => self.as_tensor(crate::function::Val::Static(typed, span)),
            other => {
                self.not_a_number(&other);
                None
            }
        }
    }

    /// A number for what is measured; a tensor must be one number.
    pub fn number(&mut self, cx: &FnCx, value: Val) -> Option<(Number, Ty)> {
        match value {
            Val::Number(number, ty) => Some((number, ty)),
            Val::Static(typed, span) if matches!(typed.ty, Ty::Number | Ty::Unit(_)) => {
                Some((Number::known(&typed.value, span)?, typed.ty))
            }
            Val::Static(typed, span) => {
                self.wrong_type(span, "a number", typed.ty);
                None
            }
            Val::Tensor(e) if is_scalar(&e.ty) => {
                let span = e.span;
                Some((Number { kind: NumberKind::Element(Box::new(e)), span }, Ty::Number))
            }
            Val::Tensor(e) => {
                let title = "a number is needed here, and this is a tensor";
                self.report(
                    Diagnostic::error("M0111", title)
                        .label(e.span, cx.type_text(&e.ty))
                        .help("`mean(..)` or `.at(B = 0)` make one number of many"),
                );
                None
            }
            thing => {
                self.not_a_number(&thing);
                None
            }
        }
    }

    fn not_a_number(&mut self, value: &Val) {
        let title = format!("{} cannot be compared as a whole", value.noun());
        let d = Diagnostic::error("M0111", title).label(value.span(), value.noun());
        let members = value.members();
        self.report(d.help(format!("it has: {}", members.join(", "))));
    }

    /// `near(a, b, within = 1e-5)`
    fn near(
        &mut self,
        cx: &mut FnCx,
        callee: &ast::Expr,
        args: &[ast::Arg],
        span: Span,
    ) -> Option<ConditionKind> {
        let op = self.test_op_id(callee)?;
        let matched = self.match_op(op, span, args, 0)?;
        let [Some(a), Some(b), within] = matched.as_slice() else { return None };
        let (left, right) = (self.tensor(cx, &a.value), self.tensor(cx, &b.value));
        let within = match within {
            Some(arg) => self.plain_number_of(cx, &arg.value),
            None => Some(NEAR),
        };
        let (left, right, within) = (left?, right?, within?);
        self.float_only("near", &left)?;
        self.float_only("near", &right)?;
        if !within.is_finite() || within < 0.0 {
            let at = matched.get(2).copied().flatten().map_or(span, |a| a.value.span);
            let d = Diagnostic::error("M0112", "a distance is 0 or more");
            self.report(d.label(at, "less than nothing"));
            return None;
        }
        self.broadcast(cx, "near", span, &left, &right)?;
        Some(ConditionKind::Near { left, right, within })
    }
}

/// As `std.test` says.
const NEAR: f64 = 1e-5;

impl FnCx {
    pub fn step(&mut self, step: TestStep) {
        if let Some(test) = &mut self.test {
            test.steps.push(step);
        }
    }

    /// A local without a name that a person could use.
    pub fn hidden(&mut self, ty: crate::hir::TensorType, span: Span) -> LocalId {
        let id = LocalId(self.locals.len() as u32);
        self.locals.push(crate::hir::Local { name: String::new(), ty, span });
        self.used.insert(id);
        id
    }

    fn name_thing(&mut self, name: &Ident, thing: Thing) {
        if let Some(test) = &mut self.test {
            test.things.insert(name.name.clone(), thing);
        }
    }
}

fn compare_op(op: BinaryOp) -> Option<CompareOp> {
    Some(match op {
        BinaryOp::Eq => CompareOp::Eq,
        BinaryOp::Ne => CompareOp::Ne,
        BinaryOp::Lt => CompareOp::Lt,
        BinaryOp::Le => CompareOp::Le,
        BinaryOp::Gt => CompareOp::Gt,
        BinaryOp::Ge => CompareOp::Ge,
        _ => return None,
    })
}
