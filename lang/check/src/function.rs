//! Bodies of functions: `forward`, `loss`, metrics.

use crate::hir::{
    self, Expr, ExprKind, Function, Let, Local, LocalId, ParamDef, Pattern, Poly, Static, Sym,
    Symbol, TensorType, Value,
};
use crate::layers::LayerNames;
use crate::scope::{Checker, with_near};
use crate::statics::{Names, Ty, Typed};
use crate::tests_block::Hoist;
use crate::types::{is_scalar, same_axis, scalar};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};
use monarch_syntax::ast::{self, Ident, Stmt};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A function while it is checked.
pub(crate) struct FnCx {
    pub file: u32,
    /// The layer whose `forward` it is.
    pub layer: Option<usize>,
    pub names: Rc<LayerNames>,
    pub symbols: Vec<Symbol>,
    /// Symbols from here on are free axes.
    pub fixed: usize,
    /// Example numbers of the first symbols and how they came about, for messages.
    pub numbers: Vec<u64>,
    pub texts: Vec<Option<String>>,
    pub locals: Vec<Local>,
    /// None: reported.
    pub by_name: HashMap<String, Option<LocalId>>,
    pub used: HashSet<LocalId>,
    /// What is known to hold here, from the branches of `if`.
    pub conditions: Vec<Static>,
    pub mixed: Vec<(Sym, Span)>,
    /// For the body of a test.
    pub test: Option<Hoist>,
}

/// The value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Static(Typed, Span),
    Tensor(Expr),
    /// A mean over the whole batch: elements and, if not their number, what to divide by.
    Mean {
        elements: Expr,
        weight: Option<Expr>,
        span: Span,
    },
}

impl Val {
    pub fn span(&self) -> Span {
        match self {
            Val::Static(_, span) | Val::Mean { span, .. } => *span,
            Val::Tensor(e) => e.span,
        }
    }
}

impl<'a> Checker<'a> {
    /// A context for a function with these parameters.
    pub fn function_cx(
        &self,
        file: u32,
        names: Rc<LayerNames>,
        symbols: Vec<Symbol>,
        fixed: usize,
        params: &[ParamDef],
    ) -> FnCx {
        let local = |p: &ParamDef| Local { name: p.name.clone(), ty: p.ty.clone(), span: p.span };
        FnCx {
            file,
            layer: None,
            names,
            symbols,
            fixed,
            numbers: Vec::new(),
            texts: Vec::new(),
            locals: params.iter().map(local).collect(),
            by_name: params.iter().map(|p| (p.name.clone(), Some(p.local))).collect(),
            used: HashSet::new(),
            conditions: Vec::new(),
            mixed: Vec::new(),
            test: None,
        }
    }

    /// Statements and value of a function. The lets are None if one of them was reported.
    pub fn script(
        &mut self,
        cx: &mut FnCx,
        script: &'a ast::Script,
    ) -> (Option<Vec<Let>>, Option<Val>) {
        let mut lets = Some(Vec::new());
        for stmt in &script.stmts {
            let found = match stmt {
                Stmt::Let(bind) => self.bind(cx, bind),
                Stmt::Assert(assert) => {
                    self.report(
                        Diagnostic::error("M0101", "`assert` belongs in a `test`")
                            .label(assert.span, "not in a function"),
                    );
                    None
                }
                Stmt::Broken(broken) => {
                    if let Some(name) = &broken.name {
                        cx.by_name.insert(name.name.clone(), None);
                    }
                    None
                }
            };
            match (found, &mut lets) {
                (Some(found), Some(list)) => list.push(found),
                _ => lets = None,
            }
        }
        let value = match &script.value {
            Some(value) => self.value(cx, value),
            None => {
                if !script.stmts.iter().any(|s| matches!(s, Stmt::Broken(_))) {
                    let end = Span { start: script.span.end.saturating_sub(1), ..script.span };
                    self.report(
                        Diagnostic::error("M0217", "this function has no result")
                            .label(end, "an expression must stand last"),
                    );
                }
                None
            }
        };
        (lets, value)
    }

    pub fn bind(&mut self, cx: &mut FnCx, bind: &'a ast::Bind) -> Option<Let> {
        let value = self.value(cx, &bind.value);
        let value = value.and_then(|v| self.as_tensor(v));
        match &bind.pattern {
            ast::Pattern::One(name) => {
                let ty = value.as_ref().map(|v| v.ty.clone());
                let id = self.new_local(cx, name, ty);
                Some(Let { pattern: Pattern::One(id?), value: value? })
            }
            ast::Pattern::Many(names, span) => {
                let part = value.as_ref().and_then(|v| self.split_type(cx, v, names, *span));
                let ids: Vec<Option<LocalId>> =
                    names.iter().map(|n| self.new_local(cx, n, part.clone())).collect();
                let ids: Option<Vec<LocalId>> = ids.into_iter().collect();
                Some(Let { pattern: Pattern::Split(ids?), value: value? })
            }
        }
    }

    fn split_type(
        &mut self,
        cx: &FnCx,
        value: &Expr,
        names: &[Ident],
        at: Span,
    ) -> Option<TensorType> {
        let n = names.len();
        let leading = if value.ty.rest { None } else { value.ty.axes.first() };
        let length = leading.and_then(|a| a.size.as_number());
        if length == Some(n as i64) {
            let mut ty = value.ty.clone();
            ty.axes.remove(0);
            return Some(ty);
        }
        let title = match (leading, length) {
            (_, Some(length)) => {
                format!("{n} names for a leading axis of {length}")
            }
            (Some(axis), None) => {
                format!("the leading axis is {}, not {n}", cx.axis_text(axis))
            }
            (None, None) => "only a leading axis of known size can be split".to_owned(),
        };
        self.report(
            Diagnostic::error("M0218", title)
                .label(at, format!("{n} names"))
                .label(value.span, cx.type_text(&value.ty)),
        );
        None
    }

    pub fn new_local(
        &mut self,
        cx: &mut FnCx,
        name: &Ident,
        ty: Option<TensorType>,
    ) -> Option<LocalId> {
        if let Some(Some(old)) = cx.by_name.get(&name.name) {
            let title = format!("`{}` has a value already", name.name);
            self.report(
                Diagnostic::error("M0105", title)
                    .label(name.span, "again here")
                    .label(cx.locals[old.0 as usize].span, "first here")
                    .help("give the new value another name"),
            );
            return None;
        }
        let Some(ty) = ty else {
            cx.by_name.insert(name.name.clone(), None);
            return None;
        };
        let id = LocalId(cx.locals.len() as u32);
        cx.locals.push(Local { name: name.name.clone(), ty, span: name.span });
        cx.by_name.insert(name.name.clone(), Some(id));
        Some(id)
    }

    /// The value as a tensor; plain numbers become scalars.
    pub fn as_tensor(&mut self, value: Val) -> Option<Expr> {
        match value {
            Val::Tensor(e) => Some(e),
            Val::Static(typed, span) if typed.ty == Ty::Number => {
                Some(Expr { kind: ExprKind::Static(typed.value), ty: scalar(DType::F32), span })
            }
            Val::Static(typed, span) => {
                self.wrong_type(span, "a tensor", typed.ty);
                None
            }
            Val::Mean { span, .. } => {
                self.report(
                    Diagnostic::error("M0213", "a mean over the whole batch comes last")
                        .label(span, "its value is known only after all samples are")
                        .help("take a mean over an axis: `mean(x, over = T)`"),
                );
                None
            }
        }
    }

    /// The value of an expression as a tensor.
    pub fn tensor(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Expr> {
        let value = self.value(cx, expr)?;
        self.as_tensor(value)
    }

    /// The value of an expression.
    pub fn value(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Val> {
        let value = self.value_of(cx, expr);
        self.observe(cx, expr.span, value.as_ref());
        value
    }

    fn value_of(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Val> {
        use ast::ExprKind as K;
        match &expr.kind {
            K::Name(name) => self.name_value(cx, name, expr.span),
            K::Paren(inner) => self.value(cx, inner),
            K::Unary(op, at, inner) => self.unary_value(cx, *op, *at, inner, expr.span),
            K::Binary(ast::BinaryOp::Pipe, _, left, right) => {
                let left = self.value(cx, left);
                self.pipe(cx, left, right, expr.span)
            }
            K::Binary(op, at, a, b) => self.binary_value(cx, (*op, *at), a, b, expr.span),
            K::Call(callee, args) => self.call_value(cx, callee, None, args, expr.span),
            K::Index(base, index) => self.gather(cx, base, index, expr.span),
            K::If(cond) => self.if_value(cx, cond, expr.span),
            K::Broken => None,
            K::Member(base, member) if self.is_tensor_name(cx, base) => {
                let d = Diagnostic::error("M0120", format!("a tensor has no `{}`", member.name));
                self.report(d.label(member.span, "unknown"));
                None
            }
            _ => self.static_value(cx, expr),
        }
    }

    fn is_tensor_name(&self, cx: &FnCx, expr: &ast::Expr) -> bool {
        crate::calls::as_name(expr).is_some_and(|n| cx.by_name.contains_key(&n.name))
    }

    pub fn static_value(&mut self, cx: &FnCx, expr: &ast::Expr) -> Option<Val> {
        if self.flows(cx, expr) {
            return None;
        }
        let names = cx.names.clone();
        let all = || {
            let mut all = names.words();
            all.extend(cx.by_name.keys().cloned());
            all.sort_unstable();
            all
        };
        let local = |n: &str| names.get(n);
        let typed = self.fixed(&Names { file: cx.file, local: &local, all: &all }, expr)?;
        Some(Val::Static(typed, expr.span))
    }

    fn name_value(&mut self, cx: &mut FnCx, name: &Ident, span: Span) -> Option<Val> {
        if let Some(found) = cx.by_name.get(&name.name) {
            let id = (*found)?;
            cx.used.insert(id);
            let ty = cx.locals[id.0 as usize].ty.clone();
            return Some(Val::Tensor(Expr { kind: ExprKind::Local(id), ty, span }));
        }
        if let Some(layer) = cx.layer {
            if let Some(i) = self.weight_index(layer, &name.name) {
                return self.weight_value(cx, layer, i, span);
            }
            if self.sub_index(layer, &name.name).is_some() {
                let title = format!("`{}` is a layer: it takes an input", name.name);
                self.report(
                    Diagnostic::error("M0124", title)
                        .label(name.span, "not called")
                        .help(format!("write `{}(x)` or `x |> {}`", name.name, name.name)),
                );
                return None;
            }
        }
        if cx.names.statics.contains_key(&name.name) {
            let typed = cx.names.get(&name.name)??;
            return Some(Val::Static(typed, span));
        }
        if let Some(free) = cx.symbols.iter().find(|s| s.name == name.name) {
            let title = format!("`{}` has no number before samples flow", name.name);
            self.report(
                Diagnostic::error("M0205", title)
                    .label(name.span, "a free axis")
                    .label(free.span, "it is whatever comes in")
                    .help("pass it in the header of the layer"),
            );
            return None;
        }
        let expr = ast::Expr { span, kind: ast::ExprKind::Name(name.clone()) };
        if self.lookup(cx.file, &name.name).is_none()
            && !matches!(name.name.as_str(), "true" | "false")
        {
            self.unknown_in_function(cx, name);
            return None;
        }
        self.static_value(cx, &expr)
    }

    /// An unknown name, with all that this function knows to choose from.
    pub fn unknown_in_function(&mut self, cx: &FnCx, name: &Ident) {
        let mut all: Vec<String> = cx.by_name.keys().cloned().collect();
        all.extend(cx.names.statics.keys().cloned());
        if let Some(layer) = cx.layer {
            let state = &self.state.layers[layer];
            all.extend(state.weights.iter().map(|w| w.name.clone()));
            all.extend(state.subs.iter().map(|s| s.name.clone()));
        }
        if let Some(test) = &cx.test {
            all.extend(test.things.keys().cloned());
            all.extend(self.test_prelude.names.iter().map(|n| n.0.clone()));
        }
        all.sort_unstable();
        let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
        all.extend(["einsum", "rearrange"]);
        self.unknown_name(cx.file, name, &all);
    }

    pub fn weight_index(&self, layer: usize, name: &str) -> Option<usize> {
        self.state.layers[layer].weight_index.get(name).copied()
    }

    pub fn sub_index(&self, layer: usize, name: &str) -> Option<usize> {
        self.state.layers[layer].sub_index.get(name).copied()
    }

    fn weight_value(&mut self, cx: &mut FnCx, layer: usize, i: usize, span: Span) -> Option<Val> {
        let weight = &self.state.layers[layer].weights[i];
        cx.names.note(&weight.name);
        if let Some(exists) = &weight.exists
            && !cx.conditions.contains(exists)
        {
            let title = format!("`{}` may not exist here", weight.name);
            let d = Diagnostic::error("M0216", title)
                .label(span, "used whether it exists or not")
                .label(weight.span, "exists under a condition")
                .help("use it in the branch of an `if` with the same condition");
            self.report(d);
            return None;
        }
        let ty = TensorType { dtype: DType::F32, rest: false, axes: weight.axes.clone()? };
        Some(Val::Tensor(Expr { kind: ExprKind::Weight(i as u32), ty, span }))
    }

    fn if_value(&mut self, cx: &mut FnCx, cond: &ast::If, span: Span) -> Option<Val> {
        let condition = self.static_value(cx, &cond.condition);
        let condition = match condition {
            Some(Val::Static(typed, _)) if typed.ty == Ty::Bool => Some(typed.value),
            Some(Val::Static(typed, at)) => {
                self.wrong_type(at, "a condition", typed.ty);
                None
            }
            _ => None,
        };
        let no = condition.clone().map(|c| Static::Not(Box::new(c)));
        let yes = self.branch(cx, condition.clone(), &cond.yes);
        let no = self.branch(cx, no, &cond.no);
        let (condition, yes, no) = (condition?, yes?, no?);
        if let (Val::Static(a, _), Val::Static(b, _)) = (&yes, &no)
            && a.ty == b.ty
        {
            let (ty, a, b) = (a.ty, Box::new(a.value.clone()), Box::new(b.value.clone()));
            let value = Static::If(Box::new(condition), a, b);
            return Some(Val::Static(Typed { value, ty }, span));
        }
        let (yes, no) = (self.as_tensor(yes)?, self.as_tensor(no)?);
        if !same_type(&yes.ty, &no.ty) {
            self.report(
                Diagnostic::error("M0203", "both branches of an `if` must have one shape")
                    .label(no.span, cx.type_text(&no.ty))
                    .label(yes.span, cx.type_text(&yes.ty)),
            );
            return None;
        }
        let ty = yes.ty.clone();
        let kind = ExprKind::If { condition, yes: Box::new(yes), no: Box::new(no) };
        Some(Val::Tensor(Expr { kind, ty, span }))
    }

    fn branch(
        &mut self,
        cx: &mut FnCx,
        condition: Option<Static>,
        expr: &ast::Expr,
    ) -> Option<Val> {
        let before = cx.conditions.len();
        cx.conditions.extend(condition);
        let value = self.value(cx, expr);
        cx.conditions.truncate(before);
        value
    }

    /// `forward` of a layer against its signature.
    pub fn check_forward(&mut self, id: usize) {
        let file = self.layers[id].file;
        let ast: &'a ast::Layer = self.layers[id].ast;
        let forward = ast.body.entries.iter().find_map(|e| match &e.kind {
            ast::EntryKind::Func(f) if f.name.name == "forward" => Some(f),
            _ => None,
        });
        let (Some(forward), Some(signature)) = (forward, self.state.layers[id].signature.clone())
        else {
            return;
        };
        let state = &self.state.layers[id];
        let (names, symbols) = (state.names.clone(), state.symbols.clone());
        let (fixed, example) = (state.fixed, state.example.clone());
        let mut cx = self.function_cx(file, names, symbols, fixed, &signature.params);
        cx.layer = Some(id);
        if let Some(example) = example {
            cx.numbers = example.sizes;
            cx.texts = example.texts;
        }
        let (lets, value) = self.script(&mut cx, &forward.script);
        self.observe_locals(&cx);
        let result = value.and_then(|v| self.as_tensor(v));
        let complete = result.is_some();
        let function = result.and_then(|result| {
            self.check_result(&cx, &result, &signature.result, signature.result_span)?;
            Some(Function {
                symbols: Vec::new(),
                params: signature.params.clone(),
                locals: cx.locals.clone(),
                lets: lets?,
                result,
                span: forward.name.span,
            })
        });
        if complete && self.loaded.is_own(file) {
            self.unused_locals(&cx, forward.fields.len());
        }
        self.state.layers[id].mixed = cx.mixed;
        self.state.layers[id].done = function;
    }

    fn check_result(
        &mut self,
        cx: &FnCx,
        result: &Expr,
        declared: &TensorType,
        at: Span,
    ) -> Option<()> {
        if same_type(&result.ty, declared) {
            return Some(());
        }
        let pair = result.ty.axes.iter().rev().zip(declared.axes.iter().rev());
        let differ = pair.clone().find(|(a, b)| !same_axis(a, b));
        let title = match differ {
            Some((a, b)) => {
                format!("`forward` gives {} where it promises {}", cx.axis_text(a), cx.axis_text(b))
            }
            None => format!(
                "`forward` gives {} and promises {}",
                cx.type_text(&result.ty),
                cx.type_text(declared)
            ),
        };
        self.report(
            Diagnostic::error("M0203", title)
                .label(bare_span(result), cx.type_note(&result.ty, differ.map(|d| d.0)))
                .label(at, cx.type_note(declared, differ.map(|d| d.1))),
        );
        None
    }

    pub fn unused_locals(&mut self, cx: &FnCx, params: usize) {
        for (i, local) in cx.locals.iter().enumerate() {
            if cx.used.contains(&LocalId(i as u32)) {
                continue;
            }
            let title = format!("`{}` is not used", local.name);
            let d = Diagnostic::warning("M0116", title).label(
                local.span,
                if i < params { "an input that changes nothing" } else { "never read" },
            );
            self.report(d);
        }
    }

    /// An argument that must be an axis of a tensor, by name: its place from the end.
    pub fn axis_of(&mut self, cx: &FnCx, x: &Expr, arg: &ast::Expr) -> Option<usize> {
        let Some(name) = crate::calls::as_name(arg) else {
            self.report(
                Diagnostic::error("M0206", "the name of an axis is needed here")
                    .label(arg.span, "not a name"),
            );
            return None;
        };
        let axes = &x.ty.axes;
        let named: Vec<String> = axes.iter().map(|a| cx.axis_text(a)).collect();
        if let Some(i) = named.iter().rposition(|n| *n == name.name) {
            return Some(axes.len() - 1 - i);
        }
        let type_text = cx.type_text(&x.ty);
        let d = Diagnostic::error("M0206", format!("{type_text} has no axis `{}`", name.name))
            .label(name.span, "unknown axis")
            .label(x.span, type_text);
        let all = named.iter().map(String::as_str);
        self.report(with_near(d, name, all, "it has"));
        None
    }
}

fn bare_span(e: &Expr) -> Span {
    e.span
}

/// Types that may be taken for one another.
pub(crate) fn same_type(a: &TensorType, b: &TensorType) -> bool {
    a.dtype == b.dtype
        && a.rest == b.rest
        && a.axes.len() == b.axes.len()
        && a.axes.iter().zip(&b.axes).all(|(x, y)| same_axis(x, y))
}

/// A plain whole number, if that is what the value is.
pub(crate) fn whole(value: &Static) -> Option<i64> {
    match value {
        Static::Value(Value::Int(i)) => Some(*i),
        Static::Size(p) => p.as_number(),
        _ => None,
    }
}

/// A scalar as the other side's element type: `y == 3` for i32.
pub(crate) fn match_scalar(scalar_side: &mut Expr, other: &Expr) {
    if is_scalar(&scalar_side.ty)
        && let ExprKind::Static(value) = &scalar_side.kind
        && whole(value).is_some()
    {
        scalar_side.ty.dtype = other.ty.dtype;
    }
}

/// One axis of a named size.
pub(crate) fn named_axis(name: &str, size: Poly) -> hir::Axis {
    hir::Axis { name: Some(name.to_owned()), size }
}
