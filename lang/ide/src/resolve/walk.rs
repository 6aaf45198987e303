//! Third pass: what each name in an expression means.

use super::{Resolver, Scope};
use crate::index::{DefId, Kind};
use monarch_syntax::ast::{
    self, Arg, Axis, AxisKind, BinaryOp, EinopsAxis, EinopsKind, EntryKind, Expr, ExprKind, Field,
    Ident, Index, IndexKind, ItemKind, Pattern, Record, RecordEntry, Script, Stmt, TensorType,
};

impl<'a> Resolver<'a> {
    pub(super) fn walk_file(&mut self, file: u32) {
        let files = self.files;
        let Some(tree) = files.get(file as usize) else { return };
        for item in &tree.tree.items {
            let mut scope = Scope::of(file);
            match &item.kind {
                ItemKind::Param(p) => {
                    p.default.iter().chain(&p.range).for_each(|e| {
                        self.expr(&mut scope, e);
                    });
                }
                ItemKind::Let(b) => {
                    self.expr(&mut scope, &b.value);
                }
                ItemKind::Layer(l) => self.walk_layer(scope, l),
                ItemKind::Test(t) => {
                    scope.test = true;
                    self.script(&mut scope, &t.script);
                }
                ItemKind::Block(b) => self.walk_block(scope, b),
                ItemKind::Import(_) | ItemKind::Op(_) | ItemKind::Broken(_) => {}
            }
        }
    }

    fn walk_layer(&mut self, mut scope: Scope, layer: &ast::Layer) {
        let top = self.index.scopes.get(scope.file as usize);
        let Some(id) = top.and_then(|t| t.get(&layer.name.name)).copied() else { return };
        // Of two layers of one name the second is not known by it.
        if self.index.def(id).is_none_or(|d| d.span != layer.name.span) {
            return;
        }
        scope.layer = Some(id);
        for field in layer.dims.iter().chain(&layer.fields).flatten() {
            if let Some(default) = &field.default {
                self.sized(&mut scope, default);
            }
        }
        for entry in &layer.body.entries {
            match &entry.kind {
                EntryKind::Weight(w) => {
                    self.shape(&mut scope, &w.shape);
                    self.expr(&mut scope, &w.init);
                }
                EntryKind::Assign(a) => {
                    self.expr(&mut scope, &a.value);
                }
                EntryKind::Func(f) => self.function(&scope, f),
                _ => {}
            }
        }
    }

    /// A function of a layer, or a loss or metric.
    pub(super) fn function(&mut self, outer: &Scope, func: &ast::Func) {
        let mut scope = outer.clone();
        for field in &func.fields {
            let known = outer.layer.and_then(|layer| self.members(layer)).and_then(|m| {
                m.inputs.iter().find(|i| self.index.defs[**i].span == field.name.span).copied()
            });
            let owner = outer.layer;
            let id = known
                .unwrap_or_else(|| self.define(Kind::Argument, &field.name, field.span, owner));
            scope.locals.insert(field.name.name.clone(), id);
            self.field_shape(&mut scope, field);
        }
        if let Some(result) = &func.result {
            self.shape(&mut scope, result);
        }
        self.script(&mut scope, &func.script);
    }

    fn field_shape(&mut self, scope: &mut Scope, field: &Field) {
        if let Some(ast::Kind::Tensor(shape)) = &field.kind {
            self.shape(scope, shape);
        }
    }

    fn shape(&mut self, scope: &mut Scope, shape: &TensorType) {
        shape.axes.iter().for_each(|axis| self.axis(scope, axis, true));
    }

    fn axis(&mut self, scope: &mut Scope, axis: &Axis, declare: bool) {
        let AxisKind::Size(expr) = &axis.kind else { return };
        if let ExprKind::Name(name) = &expr.kind
            && declare
        {
            self.label(scope, &name.name, name.span);
            return;
        }
        self.sized(scope, expr);
    }

    /// An axis in a shape or a pattern: one that nobody knows begins here.
    fn label(&mut self, scope: &mut Scope, name: &str, span: monarch_graph::Span) {
        if let Some(found) = self.axis_named(scope, name) {
            self.note(span, found);
            return;
        }
        let name = Ident { name: name.to_owned(), span };
        match scope.layer {
            Some(layer) => self.free_axis(layer, &name),
            None => {
                let axis = self.define(Kind::FreeAxis, &name, span, None);
                scope.free.insert(name.name, axis);
            }
        }
    }

    /// A size: names are axes first.
    fn sized(&mut self, scope: &mut Scope, expr: &Expr) {
        let before = std::mem::replace(&mut scope.sizes, true);
        self.expr(scope, expr);
        scope.sizes = before;
    }

    pub(super) fn script(&mut self, scope: &mut Scope, script: &Script) {
        for stmt in &script.stmts {
            match stmt {
                Stmt::Let(bind) => {
                    self.expr(scope, &bind.value);
                    let names = match &bind.pattern {
                        Pattern::One(name) => std::slice::from_ref(name),
                        Pattern::Many(names, _) => names.as_slice(),
                    };
                    for name in names {
                        let id = self.define(Kind::Local, name, bind.span, scope.layer);
                        scope.locals.insert(name.name.clone(), id);
                    }
                }
                Stmt::Assert(assert) => {
                    self.expr(scope, &assert.condition);
                }
                Stmt::Broken(_) => {}
            }
        }
        if let Some(value) = &script.value {
            self.expr(scope, value);
        }
    }

    /// Notes all names of an expression; gives what it is, if it is a name or an application.
    pub(super) fn expr(&mut self, scope: &mut Scope, expr: &Expr) -> Option<DefId> {
        match &expr.kind {
            ExprKind::Name(name) => self.name(scope, name),
            ExprKind::Paren(inner) => self.expr(scope, inner),
            ExprKind::Unary(_, _, inner) => {
                self.expr(scope, inner);
                None
            }
            ExprKind::List(all) | ExprKind::Tuple(all) => {
                all.iter().for_each(|e| {
                    self.expr(scope, e);
                });
                None
            }
            ExprKind::Binary(BinaryOp::Pipe, _, left, right) => {
                self.expr(scope, left);
                match &right.kind {
                    ExprKind::Call(callee, args) => {
                        self.call(scope, callee, args, 1);
                    }
                    _ => {
                        self.expr(scope, right);
                    }
                }
                None
            }
            ExprKind::Binary(_, _, a, b) => {
                self.expr(scope, a);
                self.expr(scope, b);
                None
            }
            ExprKind::Record(record) => {
                self.record(scope, record);
                None
            }
            ExprKind::Member(base, member) => {
                let base = self.expr(scope, base)?;
                self.member(base, member)
            }
            ExprKind::Call(callee, args) => self.call(scope, callee, args, 0),
            ExprKind::Index(base, index) => {
                let base = self.expr(scope, base);
                self.indexed(scope, base, index);
                base
            }
            ExprKind::If(c) => {
                self.expr(scope, &c.condition);
                self.expr(scope, &c.yes);
                self.expr(scope, &c.no);
                None
            }
            ExprKind::Number(_) | ExprKind::Str(_) | ExprKind::Rhai(_) | ExprKind::Broken => None,
        }
    }

    fn name(&mut self, scope: &Scope, name: &Ident) -> Option<DefId> {
        if scope.words {
            return None;
        }
        let axis = || self.axis_named(scope, &name.name);
        let value = || self.value_named(scope, &name.name);
        let found = match scope.sizes {
            true => axis().or_else(value),
            false => value().or_else(axis),
        }?;
        self.note(name.span, found);
        Some(found)
    }

    fn member(&mut self, base: DefId, member: &Ident) -> Option<DefId> {
        let base = self.index.follow(base);
        if let Some(found) = self.member_named(base, &member.name) {
            self.note(member.span, found);
            return Some(found);
        }
        // `blocks.*` and `blocks.3` are blocks; `Llama.load` makes a Llama.
        let through = matches!(member.name.as_str(), "*" | "load");
        through.then_some(base)
    }

    fn indexed(&mut self, scope: &mut Scope, base: Option<DefId>, index: &Index) {
        match &index.kind {
            IndexKind::Einops(pattern) => {
                for axes in pattern.inputs.iter().chain([&pattern.output]) {
                    axes.axes.iter().for_each(|axis| self.einops_axis(scope, axis));
                }
            }
            IndexKind::Axes(args) => {
                let layer = base.map(|b| self.index.follow(b));
                let layer = layer.filter(|l| self.index.defs[*l].kind == Kind::Layer);
                for arg in args {
                    if let (Some(name), Some(layer)) = (&arg.name, layer) {
                        let dims = self.members(layer).map(|m| m.dims.clone()).unwrap_or_default();
                        self.among(&dims, name);
                    }
                    match layer {
                        Some(_) => self.axis(scope, &arg.axis, false),
                        None => {
                            if let AxisKind::Size(expr) = &arg.axis.kind {
                                self.expr(scope, expr);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Notes the one of these definitions that has this name.
    fn among(&mut self, defs: &[DefId], name: &Ident) -> Option<DefId> {
        let found = defs.iter().find(|d| self.index.defs[**d].name == name.name).copied()?;
        self.note(name.span, found);
        Some(found)
    }

    fn einops_axis(&mut self, scope: &mut Scope, axis: &EinopsAxis) {
        match &axis.kind {
            EinopsKind::Name(name) => self.label(scope, name, axis.span),
            EinopsKind::Group(inner) => inner.iter().for_each(|a| self.einops_axis(scope, a)),
            EinopsKind::Int(_) | EinopsKind::Rest => {}
        }
    }

    /// A call; `piped` arguments came before `|>`.
    fn call(
        &mut self,
        scope: &mut Scope,
        callee: &Expr,
        args: &[Arg],
        piped: usize,
    ) -> Option<DefId> {
        let head = self.callee(scope, callee).map(|d| self.index.follow(d));
        let hint = scope.hint;
        let values = args.iter().map(|a| &a.value);
        if let Some(model) = values.chain([callee]).find_map(|e| self.model_in(scope, e)) {
            scope.hint = Some(model);
        }
        let kind = head.and_then(|h| self.index.def(h)).map(|d| d.kind);
        let declared: Vec<DefId> = match (head, kind) {
            (Some(head), Some(Kind::Op | Kind::Layer)) => {
                self.members(head).map(|m| m.fields.clone()).unwrap_or_default()
            }
            (Some(head), Some(Kind::Model | Kind::Sublayer)) => {
                let layer = self.index.defs[head].target;
                layer.and_then(|l| self.members(l)).map(|m| m.inputs.clone()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let axes = head.and_then(|h| self.members(h)).map(|m| m.axis_args.clone());
        let axes = axes.unwrap_or_default();
        // Named arguments take their places first.
        let named = |d: &DefId| {
            let name = &self.index.defs[*d].name;
            args.iter().any(|a| a.name.as_ref().is_some_and(|n| n.name == *name))
        };
        let rest: Vec<DefId> = declared.iter().skip(piped).filter(|d| !named(d)).copied().collect();
        let mut rest = rest.into_iter();
        for arg in args {
            let of = match &arg.name {
                Some(name) => match self.among(&declared, name) {
                    None if matches!(callee.kind, ExprKind::Member(..)) => {
                        if let Some(axis) = self.hinted_axis(scope, &name.name) {
                            self.note(name.span, axis);
                        }
                        None
                    }
                    found => found,
                },
                None => rest.next(),
            };
            match of.is_some_and(|d| axes.contains(&d)) {
                true => self.axis_value(scope, &arg.value),
                false => {
                    self.expr(scope, &arg.value);
                }
            }
        }
        scope.hint = hint;
        head.filter(|_| matches!(kind, Some(Kind::Layer)))
    }

    /// What is called. A value cannot be: `tokens(..)` is a source of data beside any param.
    fn callee(&mut self, scope: &mut Scope, callee: &Expr) -> Option<DefId> {
        if let ExprKind::Name(name) = &callee.kind
            && let Some(found) = self.top_named(scope, &name.name)
            && matches!(self.index.defs[found].kind, Kind::Param | Kind::Constant)
        {
            let meant = self.index.prelude.get(&name.name).copied();
            meant.into_iter().for_each(|op| self.note(name.span, op));
            return meant;
        }
        self.expr(scope, callee)
    }

    /// `over = S`
    fn axis_value(&mut self, scope: &mut Scope, expr: &Expr) {
        let ExprKind::Name(name) = &expr.kind else {
            self.expr(scope, expr);
            return;
        };
        let found = self.axis_named(scope, &name.name);
        let found = found.or_else(|| match scope.test {
            // An axis of a test's own tensor has the name that its size was given by.
            true => self.value_named(scope, &name.name),
            false => None,
        });
        let found = found.or_else(|| self.hinted_axis(scope, &name.name));
        if let Some(found) = found.or_else(|| self.value_named(scope, &name.name)) {
            self.note(name.span, found);
        }
    }

    /// The layer of a model that is called in an expression.
    fn model_in(&self, scope: &Scope, expr: &Expr) -> Option<DefId> {
        match &expr.kind {
            ExprKind::Call(callee, args) => {
                if let ExprKind::Name(name) = &callee.kind
                    && let Some(found) = self.top_named(scope, &name.name)
                    && self.index.defs[self.index.follow(found)].kind == Kind::Model
                {
                    return self.index.layer_of(found);
                }
                self.model_in(scope, callee)
                    .or_else(|| args.iter().find_map(|a| self.model_in(scope, &a.value)))
            }
            ExprKind::Paren(e) | ExprKind::Member(e, _) | ExprKind::Index(e, _) => {
                self.model_in(scope, e)
            }
            ExprKind::Binary(_, _, a, b) => {
                self.model_in(scope, a).or_else(|| self.model_in(scope, b))
            }
            _ => None,
        }
    }

    pub(super) fn record(&mut self, scope: &mut Scope, record: &Record) {
        if let Some(spread) = record.spread.as_ref().and_then(|p| p.parts.first()) {
            self.name(scope, spread);
        }
        for entry in &record.entries {
            match entry {
                RecordEntry::Assign(a) => self.assign(scope, a),
                RecordEntry::Rule(r) => self.rule(scope, r),
                RecordEntry::Broken(_) => {}
            }
        }
    }
}
