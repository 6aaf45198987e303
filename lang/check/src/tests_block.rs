//! `test "name" { .. }`: names, arguments and members are checked; running comes later.

use crate::later::top_value;
use crate::scope::{Checker, Entity, In, with_near};
use monarch_diagnostic::Diagnostic;
use monarch_syntax::ast::{
    self, Arg, AxisKind, BinaryOp, Expr, ExprKind, Ident, Index, IndexKind, Kind, Pattern, Stmt,
};
use std::collections::HashMap;

/// What a value in a test is, as far as its members and axes go.
#[derive(Clone, Debug)]
enum Thing {
    /// The result of `fit`.
    Fitted,
    /// A metric over steps: `r.loss`.
    Series,
    /// The result of `plan`.
    Planned,
    Memory,
    /// A tensor with the names of its axes, where they have one.
    Tensor(Vec<Option<String>>),
    /// A number, or nothing that is known.
    Other,
}

type Locals = HashMap<String, Thing>;

/// Members of things in tests.
const MEMBERS: &[(&str, &[&str])] = &[
    ("fitted", &["loss", "lr", "grad_norm", "steps"]),
    ("series", &["last", "first", "min", "max", "mean"]),
    ("planned", &["memory", "bubble", "devices", "steps"]),
    ("memory", &["peak", "weights", "gradients", "optimizer", "activations"]),
];

impl<'a> Checker<'a> {
    pub fn check_tests(&mut self) {
        for id in 0..self.tests.len() {
            let In { file, ast, .. } = self.tests[id];
            if !self.loaded.is_own(file) {
                continue;
            }
            self.report(
                Diagnostic::note("M0901", "tests are not run yet")
                    .label(ast.name.span, "its names are checked"),
            );
            let mut locals = Locals::new();
            for stmt in &ast.script.stmts {
                match stmt {
                    Stmt::Let(bind) => {
                        let thing = self.thing(file, &locals, &bind.value);
                        match &bind.pattern {
                            Pattern::One(name) => {
                                locals.insert(name.name.clone(), thing);
                            }
                            Pattern::Many(names, _) => {
                                for name in names {
                                    locals.insert(name.name.clone(), Thing::Other);
                                }
                            }
                        }
                    }
                    Stmt::Assert(assert) => {
                        self.thing(file, &locals, &assert.condition);
                    }
                    Stmt::Broken(broken) => {
                        if let Some(name) = &broken.name {
                            locals.insert(name.name.clone(), Thing::Other);
                        }
                    }
                }
            }
            if let Some(value) = &ast.script.value {
                self.thing(file, &locals, value);
            }
        }
    }

    fn thing(&mut self, file: u32, locals: &Locals, expr: &Expr) -> Thing {
        match &expr.kind {
            ExprKind::Name(name) => self.test_name(file, locals, name),
            ExprKind::Paren(inner) | ExprKind::Unary(_, _, inner) => {
                self.thing(file, locals, inner)
            }
            ExprKind::Binary(BinaryOp::Range, ..) => Thing::Other,
            ExprKind::Binary(_, _, a, b) => {
                self.thing(file, locals, a);
                self.thing(file, locals, b);
                Thing::Other
            }
            ExprKind::Member(base, member) => self.test_member(file, locals, base, member),
            ExprKind::Call(callee, args) => self.test_call(file, locals, expr, callee, args),
            ExprKind::Number(_) => {
                top_value(self, file, expr);
                Thing::Other
            }
            ExprKind::If(c) => {
                self.thing(file, locals, &c.condition);
                self.thing(file, locals, &c.yes);
                self.thing(file, locals, &c.no)
            }
            ExprKind::List(items) | ExprKind::Tuple(items) => {
                items.iter().for_each(|i| {
                    self.thing(file, locals, i);
                });
                Thing::Other
            }
            _ => Thing::Other,
        }
    }

    fn test_name(&mut self, file: u32, locals: &Locals, name: &Ident) -> Thing {
        if let Some(thing) = locals.get(&name.name) {
            return thing.clone();
        }
        if self.lookup(file, &name.name).is_none()
            && !matches!(name.name.as_str(), "true" | "false")
        {
            self.unknown_in_test(file, locals, name);
        }
        Thing::Other
    }

    fn unknown_in_test(&mut self, file: u32, locals: &Locals, name: &Ident) {
        let mut all: Vec<String> = locals.keys().cloned().collect();
        all.extend(self.test_prelude.names.iter().map(|n| n.0.clone()));
        all.sort_unstable();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.unknown_name(file, name, &all);
    }

    fn test_member(&mut self, file: u32, locals: &Locals, base: &Expr, member: &Ident) -> Thing {
        if let Some(name) = crate::calls::as_name(base)
            && !locals.contains_key(&name.name)
        {
            match self.lookup(file, &name.name) {
                Some(Entity::Data(id)) => {
                    self.data_member(id, member);
                    return Thing::Other;
                }
                Some(_) => return Thing::Other,
                None => {}
            }
        }
        let kind = match self.thing(file, locals, base) {
            Thing::Fitted => "fitted",
            Thing::Series => "series",
            Thing::Planned => "planned",
            Thing::Memory => "memory",
            Thing::Tensor(_) | Thing::Other => return Thing::Other,
        };
        let members = MEMBERS.iter().find(|m| m.0 == kind).map_or(&[][..], |m| m.1);
        if !members.contains(&member.name.as_str()) {
            let title = format!("there is no `{}` here", member.name);
            let d = Diagnostic::error("M0120", title).label(member.span, "unknown");
            self.report(with_near(d, member, members.iter().copied(), "there are"));
            return Thing::Other;
        }
        match (kind, member.name.as_str()) {
            ("fitted", "steps") => Thing::Other,
            ("fitted", _) => Thing::Series,
            ("planned", "memory") => Thing::Memory,
            _ => Thing::Other,
        }
    }

    fn test_call(
        &mut self,
        file: u32,
        locals: &Locals,
        expr: &Expr,
        callee: &Expr,
        args: &[Arg],
    ) -> Thing {
        if let ExprKind::Member(base, method) = &callee.kind {
            return self.test_method(file, locals, base, method, args);
        }
        let Some(name) = crate::calls::as_name(callee) else {
            args.iter().for_each(|a| {
                self.thing(file, locals, &a.value);
            });
            return Thing::Other;
        };
        let found = self.lookup(file, &name.name);
        let found = found.or_else(|| self.test_prelude.get(&name.name).map(|n| n.entity));
        match found {
            Some(Entity::Op(op)) => self.test_op(file, locals, op, expr, args),
            Some(Entity::Model(id)) => {
                args.iter().for_each(|a| {
                    self.thing(file, locals, &a.value);
                });
                self.model_axes(id)
            }
            Some(other) => {
                self.wrong_entity(name, other, "a model or a function");
                Thing::Other
            }
            None => {
                if crate::statics::math_fn(&name.name).is_none() {
                    self.unknown_in_test(file, locals, name);
                }
                args.iter().for_each(|a| {
                    self.thing(file, locals, &a.value);
                });
                Thing::Other
            }
        }
    }

    fn model_axes(&mut self, id: usize) -> Thing {
        let Some(model) = self.model_value(id) else { return Thing::Other };
        let layer = model.root.layer.0 as usize;
        match &self.state.layers[layer].signature {
            Some(s) => Thing::Tensor(s.result.axes.iter().map(|a| a.name.clone()).collect()),
            None => Thing::Other,
        }
    }

    fn test_method(
        &mut self,
        file: u32,
        locals: &Locals,
        base: &Expr,
        method: &Ident,
        args: &[Arg],
    ) -> Thing {
        let thing = self.thing(file, locals, base);
        let Thing::Tensor(axes) = &thing else {
            args.iter().for_each(|a| {
                self.thing(file, locals, &a.value);
            });
            return Thing::Other;
        };
        if method.name != "at" {
            let d = Diagnostic::error("M0120", format!("a tensor has no `{}`", method.name))
                .label(method.span, "unknown");
            self.report(with_near(d, method, ["at"].into_iter(), "it has"));
        }
        for arg in args {
            if let Some(name) = &arg.name {
                self.known_axis(axes, name);
            }
            top_value(self, file, &arg.value);
        }
        thing
    }

    fn known_axis(&mut self, axes: &[Option<String>], name: &Ident) {
        let all: Vec<&str> = axes.iter().flatten().map(String::as_str).collect();
        if !all.is_empty() && !all.contains(&name.name.as_str()) {
            let d = Diagnostic::error("M0206", format!("there is no axis `{}` here", name.name))
                .label(name.span, "unknown axis");
            self.report(with_near(d, name, all.into_iter(), "it has"));
        }
    }

    fn test_op(
        &mut self,
        file: u32,
        locals: &Locals,
        op: usize,
        expr: &Expr,
        args: &[Arg],
    ) -> Thing {
        let Some(matched) = self.match_op(op, expr.span, args, 0) else { return Thing::Other };
        let ast: &'a ast::Op = self.ops[op].ast;
        let result = self.op_result(op).unwrap_or("tensor").to_owned();
        let mut first = Thing::Other;
        for (field, arg) in ast.fields.iter().zip(matched) {
            let Some(arg) = arg else { continue };
            let kind = match &field.kind {
                Some(Kind::Name(kind)) => kind.name.as_str(),
                _ => "tensor",
            };
            match kind {
                "train" => self.train_arg(file, &arg.value),
                "axis" => {
                    if let (Some(name), Thing::Tensor(axes)) =
                        (crate::calls::as_name(&arg.value), &first)
                    {
                        self.known_axis(&axes.clone(), name);
                    }
                }
                "shape" => first = self.shape_arg(file, &arg.value),
                "tensor" => {
                    let thing = self.thing(file, locals, &arg.value);
                    if matches!(first, Thing::Other) {
                        first = thing;
                    }
                }
                _ => {
                    top_value(self, file, &arg.value);
                }
            }
        }
        match result.as_str() {
            "fitted" => Thing::Fitted,
            "planned" => Thing::Planned,
            _ => first,
        }
    }

    fn train_arg(&mut self, file: u32, expr: &Expr) {
        let Some(name) = crate::calls::as_name(expr) else {
            let d = Diagnostic::error("M0124", "the name of a train block is needed here");
            self.report(d.label(expr.span, "something else"));
            return;
        };
        match self.lookup(file, &name.name) {
            Some(Entity::Train(_)) => {}
            Some(other) => self.wrong_entity(name, other, "a train block"),
            None => self.unknown_name(file, name, &[]),
        }
    }

    /// `i32[1, T]`
    fn shape_arg(&mut self, file: u32, expr: &Expr) -> Thing {
        let ExprKind::Index(base, Index { kind: IndexKind::Axes(axes), .. }) = &expr.kind else {
            let d = Diagnostic::error("M0111", "a shape is needed here, such as `i32[1, T]`");
            self.report(d.label(expr.span, "not a shape"));
            return Thing::Other;
        };
        if let Some(dtype) = crate::calls::as_name(base) {
            self.dtype(Some(dtype));
        }
        let mut names = Vec::new();
        for axis in axes {
            if let AxisKind::Size(size) = &axis.axis.kind {
                top_value(self, file, size);
                names.push(crate::calls::as_name(size).map(|n| n.name.clone()));
            }
        }
        Thing::Tensor(names)
    }
}
