//! `param name: kind = default in range`, and the values that the command line gives.

use crate::hir::{Origin, Unit, Value};
use crate::load::Loaded;
use crate::scope::{Checker, In, Lazy};
use crate::state::Override;
use crate::statics::{Names, Ty, show, type_of};
use crate::units;
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::{self, BinaryOp, Doc, Expr, ExprKind, ItemKind, Kind};

/// A param as `--help` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamHelp {
    pub name: String,
    /// As written: `int`, `tokens`.
    pub kind: String,
    /// Its `##` text, one line.
    pub doc: String,
    /// As written.
    pub default: Option<String>,
    /// As written: `16..4096`.
    pub range: Option<String>,
}

/// Types of params.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamKind {
    Int,
    /// A size: a whole number from 1.
    Dim,
    Float,
    Bool,
    Text,
    Quantity(Unit),
}

pub(crate) const KINDS: &[(&str, ParamKind)] = &[
    ("int", ParamKind::Int),
    ("dim", ParamKind::Dim),
    ("float", ParamKind::Float),
    ("bool", ParamKind::Bool),
    ("string", ParamKind::Text),
    ("path", ParamKind::Text),
    ("tokens", ParamKind::Quantity(Unit::Tokens)),
    ("samples", ParamKind::Quantity(Unit::Samples)),
    ("steps", ParamKind::Quantity(Unit::Steps)),
    ("epochs", ParamKind::Quantity(Unit::Epochs)),
    ("time", ParamKind::Quantity(Unit::Seconds)),
    ("bytes", ParamKind::Quantity(Unit::Bytes)),
    ("rate", ParamKind::Quantity(Unit::BytesPerSecond)),
    ("share", ParamKind::Quantity(Unit::Share)),
];

impl ParamKind {
    pub fn of(name: &str) -> Option<ParamKind> {
        KINDS.iter().find(|k| k.0 == name).map(|k| k.1)
    }

    /// The type of its values in expressions.
    pub fn ty(self) -> Ty {
        match self {
            ParamKind::Int | ParamKind::Dim | ParamKind::Float => Ty::Number,
            ParamKind::Bool => Ty::Bool,
            ParamKind::Text => Ty::Text,
            ParamKind::Quantity(unit) => Ty::Unit(unit),
        }
    }

    fn needed(self) -> &'static str {
        match self {
            ParamKind::Int => "a whole number",
            ParamKind::Dim => "a size, a whole number from 1",
            ParamKind::Float => "a number",
            ParamKind::Bool => "`true` or `false`",
            ParamKind::Text => "a text",
            ParamKind::Quantity(unit) => unit.label(),
        }
    }

    fn example(self) -> &'static str {
        match self {
            ParamKind::Int | ParamKind::Dim => "128",
            ParamKind::Float => "1e-3",
            ParamKind::Bool => "true",
            ParamKind::Text => "\"text\"",
            ParamKind::Quantity(unit) => unit.example(),
        }
    }

    /// The value as this kind, if it is one.
    pub fn accept(self, value: Value) -> Result<Value, Value> {
        match (self, value) {
            (ParamKind::Float, Value::Int(i)) => Ok(Value::Float(i as f64)),
            (ParamKind::Dim, Value::Int(i)) if i < 1 => Err(Value::Int(i)),
            (ParamKind::Quantity(unit), Value::Quantity(q)) if q.unit == unit => {
                Ok(Value::Quantity(q))
            }
            (ParamKind::Int | ParamKind::Dim, v @ Value::Int(_))
            | (ParamKind::Float, v @ Value::Float(_))
            | (ParamKind::Bool, v @ Value::Bool(_))
            | (ParamKind::Text, v @ Value::Text(_)) => Ok(v),
            (_, v) => Err(v),
        }
    }

    /// The value of a text on the command line.
    fn read(self, text: &str) -> Option<Value> {
        let plain = || text.trim().replace('_', "");
        match self {
            ParamKind::Int | ParamKind::Dim => plain().parse().ok().map(Value::Int),
            ParamKind::Float => {
                let number: f64 = plain().parse().ok()?;
                number.is_finite().then_some(Value::Float(number))
            }
            ParamKind::Bool => text.trim().parse().ok().map(Value::Bool),
            ParamKind::Text => Some(Value::Text(text.to_owned())),
            ParamKind::Quantity(_) => {
                let text = plain();
                let digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
                let after = |i: usize| text.get(i + 1..).is_some_and(|t| t.starts_with(digit));
                let number = |i: usize, c: char| digit(c) || (matches!(c, 'e' | 'E') && after(i));
                let end = text.char_indices().find(|(i, c)| !number(*i, *c));
                let (number, unit) = text.split_at(end.map_or(text.len(), |x| x.0));
                let q = units::quantity(number.parse().ok()?, unit.trim()).ok()?;
                q.amount.is_finite().then_some(Value::Quantity(q))
            }
        }
    }
}

/// The params of a program for `--help`, in order.
pub(crate) fn help(loaded: &Loaded) -> Vec<ParamHelp> {
    let Some(file) = loaded.files.first() else { return Vec::new() };
    let text = |span: Span| loaded.sources.slice(span).to_owned();
    let params = file.ast.items.iter().filter_map(|item| match &item.kind {
        ItemKind::Param(p) => Some((item, p)),
        _ => None,
    });
    params
        .map(|(item, p)| ParamHelp {
            name: p.name.name.clone(),
            kind: text(p.kind.span()),
            doc: doc_text(&item.docs),
            default: p.default.as_ref().map(|e| text(e.span)),
            range: p.range.as_ref().map(|e| text(e.span)),
        })
        .collect()
}

/// The `##` lines before an item as one line.
pub(crate) fn doc_text(docs: &[Doc]) -> String {
    let lines: Vec<&str> = docs.iter().map(|d| d.text.trim()).filter(|t| !t.is_empty()).collect();
    lines.join(" ")
}

/// The text `command line` and, for each override, where its name and value stand in it.
pub(crate) fn command_line(
    loaded: &mut Loaded,
    overrides: &[(String, String)],
) -> Vec<(Span, Span)> {
    let mut text = String::new();
    let mut places = Vec::new();
    for (name, value) in overrides {
        if !text.is_empty() {
            text.push(' ');
        }
        let start = text.len();
        text.push_str("--");
        text.push_str(name);
        let name_end = text.len();
        text.push(' ');
        let value_start = text.len();
        text.push_str(value);
        places.push(((start, name_end), (value_start, text.len())));
    }
    if places.is_empty() {
        return Vec::new();
    }
    let file = loaded.sources.add("command line", text);
    let span = |(a, b)| Span::new(file, a, b);
    places.into_iter().map(|(n, v)| (span(n), span(v))).collect()
}

impl<'a> Checker<'a> {
    /// Ties the command line to params; reports names that are no param.
    pub fn take_overrides(&mut self, overrides: &[(String, String)], places: &[(Span, Span)]) {
        for ((name, text), (name_span, span)) in overrides.iter().zip(places) {
            let found = self.params.iter().position(|p| p.file == 0 && p.ast.name.name == *name);
            match found {
                Some(id) => {
                    let again = Override { text: text.clone(), span: *span };
                    if let Some(old) = self.state.overrides.insert(id, again) {
                        let title = format!("`--{name}` is given twice");
                        self.report(
                            Diagnostic::error("M0105", title)
                                .label(*name_span, "again here")
                                .label(old.span, "first here"),
                        );
                    }
                }
                None => self.unknown_option(name, *name_span),
            }
        }
    }

    fn unknown_option(&mut self, name: &str, at: Span) {
        let own = self.params.iter().filter(|p| p.file == 0);
        let names: Vec<&str> = own.map(|p| p.ast.name.name.as_str()).collect();
        let d = Diagnostic::error("M0113", format!("this program has no param `{name}`"))
            .label(at, "unknown option");
        let d = match suggest(name, names.iter().copied()) {
            Some(near) => d.help(format!("did you mean `--{near}`?")),
            None if names.is_empty() => d.help("it has no params at all"),
            None => d.help(format!("it has: --{}", names.join(", --"))),
        };
        self.report(d);
    }

    /// Names, kinds and values of all params.
    pub fn check_params(&mut self, reserved: &[&str]) {
        for id in 0..self.params.len() {
            let ast = self.params[id].ast;
            if self.params[id].file == 0 && reserved.contains(&ast.name.name.as_str()) {
                let name = &ast.name.name;
                let title = format!("`--{name}` is an option of `monarch run`");
                self.report(
                    Diagnostic::error("M0114", title)
                        .label(ast.name.span, "a param cannot have this name")
                        .help(format!("call it something else: `my_{name}`")),
                );
            }
            self.param_value(id);
        }
    }

    pub fn param_kind(&mut self, id: usize) -> Option<ParamKind> {
        let Kind::Name(kind) = &self.params[id].ast.kind else {
            let at = self.params[id].ast.kind.span();
            self.report(
                Diagnostic::error("M0121", "a param is a single value, not a tensor")
                    .label(at, "a tensor type")
                    .help("types: int, dim, float, bool, string, path, tokens, steps, time, .."),
            );
            return None;
        };
        let found = ParamKind::of(&kind.name);
        // No name at all was reported where it is missing.
        if found.is_none() && !kind.name.is_empty() {
            let all = KINDS.iter().map(|k| k.0);
            let d = Diagnostic::error("M0121", format!("there is no type `{}`", kind.name))
                .label(kind.span, "unknown type");
            self.report(crate::scope::with_near(d, kind, all, "types"));
        }
        found
    }

    /// The value of a param in this run.
    pub fn param_value(&mut self, id: usize) -> Option<Value> {
        self.state.read.insert(id);
        match &self.state.params[id] {
            Lazy::Done(value) => return value.clone(),
            Lazy::Running => {
                self.circular(&self.params[id].ast.name.name.clone(), self.params[id].ast.span);
                self.state.params[id] = Lazy::Done(None);
                return None;
            }
            Lazy::Waiting => self.state.params[id] = Lazy::Running,
        }
        let value = self.work_out_param(id);
        if !matches!(self.state.params[id], Lazy::Done(_)) {
            self.state.params[id] = Lazy::Done(value.clone());
        }
        value
    }

    pub fn circular(&mut self, name: &str, at: Span) {
        let title = format!("`{name}` is defined by itself");
        self.report(Diagnostic::error("M0119", title).label(at, "goes round in a circle"));
    }

    fn work_out_param(&mut self, id: usize) -> Option<Value> {
        let In { file, ast, .. } = self.params[id];
        let kind = self.param_kind(id)?;
        let mut default = None;
        if let Some(expr) = &ast.default {
            let found = self.plain_value(file, expr);
            default = Some(found.and_then(|v| self.accept_param(ast, kind, v, expr.span)));
        }
        let given = self.state.overrides.get(&id).cloned();
        let (value, at) = match (given, default) {
            (Some(given), _) => match kind.read(&given.text) {
                Some(v) => (self.accept_param(ast, kind, v, given.span)?, given.span),
                None => return self.unreadable(ast, kind, given),
            },
            (None, Some(found)) => (found?, ast.default.as_ref().map_or(ast.span, |e| e.span)),
            (None, None) => {
                let name = &ast.name.name;
                let title = format!("`{name}` has no value");
                let example = kind.example();
                self.report(
                    Diagnostic::error("M0109", title)
                        .label(ast.name.span, "no default")
                        .help(format!("give one: `--{name} {example}`, or a default in the file")),
                );
                return None;
            }
        };
        self.check_range(file, ast, &value, at)?;
        Some(value)
    }

    fn unreadable(&mut self, ast: &ast::Param, kind: ParamKind, given: Override) -> Option<Value> {
        let name = &ast.name.name;
        let title = format!("`{}` is not {}", given.text, kind.needed());
        let d = Diagnostic::error("M0115", title)
            .label(given.span, format!("given for `{name}`"))
            .label(ast.kind.span(), "declared here");
        self.report(d.help(format!("for example `--{name} {}`", kind.example())));
        None
    }

    fn accept_param(
        &mut self,
        ast: &ast::Param,
        kind: ParamKind,
        value: Value,
        at: Span,
    ) -> Option<Value> {
        match kind.accept(value) {
            Ok(v) => Some(v),
            Err(v) => {
                let title = format!("`{}` is {}, not {}", ast.name.name, kind.needed(), show(&v));
                let code = match (kind, type_of(&v)) {
                    (ParamKind::Quantity(_), Ty::Unit(_) | Ty::Number) => "M0103",
                    _ => "M0111",
                };
                self.report(
                    Diagnostic::error(code, title)
                        .label(at, type_of(&v).noun())
                        .label(ast.kind.span(), "declared here")
                        .help(format!("for example `{}`", kind.example())),
                );
                None
            }
        }
    }

    pub fn check_range(
        &mut self,
        file: u32,
        ast: &ast::Param,
        value: &Value,
        at: Span,
    ) -> Option<()> {
        let Some(range) = &ast.range else { return Some(()) };
        let names = Names::top(file);
        if let ExprKind::Binary(BinaryOp::Range, _, low, high) = &range.kind {
            let low = self.range_end(&names, ast, low);
            let high = self.range_end(&names, ast, high);
            let Some(x) = amount(value) else {
                self.wrong_type(range.span, "a list of values", Ty::Number);
                return None;
            };
            let (low, high) = (low?, high?);
            if low > high {
                let text = self.loaded.sources.slice(range.span);
                let title = format!("nothing lies in {text}: it ends before it begins");
                self.report(
                    Diagnostic::error("M0112", title)
                        .label(range.span, "the lower bound comes first"),
                );
                return None;
            }
            if (low..=high).contains(&x) {
                return Some(());
            }
        } else {
            let found = self.fixed_of(&names, range, Ty::List)?;
            if let crate::hir::Static::Value(Value::List(all)) = &found.value
                && all.iter().any(|v| same(v, value))
            {
                return Some(());
            }
        }
        let text = self.loaded.sources.slice(range.span).to_owned();
        let title = format!("`{}` must be in {text}, and is {}", ast.name.name, show(value));
        self.report(
            Diagnostic::error("M0112", title)
                .label(at, "out of range")
                .label(range.span, "allowed"),
        );
        None
    }

    /// One end of a range: of the kind of its param. None: reported.
    fn range_end(&mut self, names: &Names, ast: &ast::Param, end: &Expr) -> Option<f64> {
        let crate::hir::Static::Value(value) = self.fixed(names, end)?.value else { return None };
        let kind = match &ast.kind {
            Kind::Name(kind) => ParamKind::of(&kind.name)?,
            _ => return None,
        };
        let fits = match (kind, &value) {
            (ParamKind::Dim, Value::Int(_)) => true,
            _ => kind.accept(value.clone()).is_ok(),
        };
        if fits || matches!(kind, ParamKind::Bool | ParamKind::Text) {
            return amount(&value);
        }
        let (name, needed, shown) = (&ast.name.name, kind.needed(), show(&value));
        let code = if matches!(value, Value::Quantity(_)) { "M0103" } else { "M0111" };
        self.report(
            Diagnostic::error(code, format!("`{name}` is {needed}, and this end is {shown}"))
                .label(end.span, type_of(&value).noun())
                .label(ast.kind.span(), "declared here"),
        );
        None
    }

    /// A static expression at the top level, as a value.
    pub fn plain_value(&mut self, file: u32, expr: &Expr) -> Option<Value> {
        match self.fixed(&Names::top(file), expr)?.value {
            crate::hir::Static::Value(v) => Some(v),
            _ => None,
        }
    }

    pub fn let_value(&mut self, id: usize) -> Option<crate::statics::Typed> {
        match &self.state.lets[id] {
            Lazy::Done(value) => return value.clone(),
            Lazy::Running => {
                let name = match &self.lets[id].ast.pattern {
                    ast::Pattern::One(name) => name.name.clone(),
                    ast::Pattern::Many(..) => "this constant".to_owned(),
                };
                self.circular(&name, self.lets[id].ast.span);
                self.state.lets[id] = Lazy::Done(None);
                return None;
            }
            Lazy::Waiting => self.state.lets[id] = Lazy::Running,
        }
        let In { file, ast, .. } = self.lets[id];
        let value = self.fixed(&Names::top(file), &ast.value);
        if !matches!(self.state.lets[id], Lazy::Done(_)) {
            self.state.lets[id] = Lazy::Done(value.clone());
        }
        value
    }

    /// The params of the program with their values, for the checked program.
    pub fn finished_params(&self) -> Vec<crate::hir::Param> {
        let own = self.params.iter().enumerate().filter(|p| self.loaded.is_own(p.1.file));
        own.filter_map(|(id, item)| {
            let Lazy::Done(Some(value)) = &self.state.params[id] else { return None };
            Some(crate::hir::Param {
                name: item.ast.name.name.clone(),
                kind: self.loaded.sources.slice(item.ast.kind.span()).to_owned(),
                doc: doc_text(item.docs),
                value: value.clone(),
                origin: self.param_origin(id),
                span: item.ast.name.span,
            })
        })
        .collect()
    }

    pub fn param_origin(&self, id: usize) -> Origin {
        match self.state.overrides.get(&id) {
            Some(o) => Origin::CommandLine { text: o.text.clone(), span: o.span },
            None => Origin::Program(self.param_value_span(id)),
        }
    }

    fn param_value_span(&self, id: usize) -> Span {
        let ast = self.params[id].ast;
        ast.default.as_ref().map_or(ast.name.span, |e| e.span)
    }

    /// Where a param's value stands, and what to say of it there: `H = 6`, or
    /// ``replaced by `--D 400` on the command line``.
    pub fn param_label(&self, id: usize) -> (Span, String) {
        let name = &self.params[id].ast.name.name;
        let text = match (self.state.overrides.get(&id), &self.state.params[id]) {
            (Some(o), _) => format!("replaced by `--{name} {}` on the command line", o.text),
            (None, Lazy::Done(Some(v))) => format!("{name} = {}", show(v)),
            _ => String::new(),
        };
        (self.param_value_span(id), text)
    }
}

fn amount(value: &Value) -> Option<f64> {
    match value {
        Value::Quantity(q) => Some(q.amount),
        other => other.number(),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a.number(), b.number()) {
        (Some(x), Some(y)) => x == y,
        _ => a == b,
    }
}
