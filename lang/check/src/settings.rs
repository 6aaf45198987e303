//! Settings of a block: only known ones, each once, each in its form.

use crate::hir::{Origin, Setting, Unit, Value};
use crate::registry::{BlockDoc, Form, SettingDoc, WITH_BODY, from_elsewhere};
use crate::scope::Checker;
use crate::statics::{show, type_of};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::{self, EntryKind, Expr, ExprKind, Ident};
use std::collections::HashMap;

/// The entries of a block's body.
#[derive(Default)]
pub(crate) struct Settings<'a> {
    pub values: HashMap<&'static str, &'a Expr>,
    pub blocks: HashMap<&'static str, &'a ast::Block>,
    /// Of values with settings of their own: `MI300X { count = 8 }`.
    pub bodies: HashMap<&'static str, &'a ast::Body>,
    /// Of whole settings: `memory = 192 GiB`.
    pub spans: HashMap<&'static str, Span>,
    pub functions: Vec<&'a ast::Func>,
    pub hooks: Vec<&'a ast::Hook>,
    /// Something did not parse: what is missing may be in there.
    pub broken: bool,
    /// Settings that a misspelt one was probably meant to be.
    pub meant: Vec<&'static str>,
}

impl<'a> Checker<'a> {
    pub fn settings(&mut self, doc: &BlockDoc, body: Option<&'a ast::Body>) -> Settings<'a> {
        let mut out = Settings::default();
        let mut seen: HashMap<String, Span> = HashMap::new();
        for entry in body.iter().flat_map(|b| &b.entries) {
            match &entry.kind {
                EntryKind::Assign(a) => {
                    let name = &Ident { name: a.path.text(), span: a.path.span };
                    self.value_entry(doc, name, a, &mut seen, &mut out);
                }
                EntryKind::Block(b) => {
                    let found = self.known_setting(doc, &b.kind, Form::Block, &mut seen);
                    match found {
                        Some(s) => {
                            self.plain_block(b);
                            out.blocks.insert(s.name, b);
                            out.spans.insert(s.name, entry.span);
                        }
                        None => out.meant.extend(meant(doc, &b.kind)),
                    }
                }
                EntryKind::Func(f) => self.function_entry(doc, f, &mut seen, &mut out),
                EntryKind::Hook(h) if doc.hooks => out.hooks.push(h),
                EntryKind::Hook(h) => self.misplaced(doc, "a hook", h.span),
                EntryKind::Weight(w) => self.misplaced(doc, "a weight", w.span),
                EntryKind::Rule(r) => self.misplaced(doc, "a mesh rule", r.span),
                EntryKind::Broken(broken) => {
                    out.broken = true;
                    if let Some(name) = &broken.name {
                        seen.insert(name.name.clone(), name.span);
                    }
                }
            }
        }
        out
    }

    /// `name = value`, with settings of the value where it may have some.
    fn value_entry(
        &mut self,
        doc: &BlockDoc,
        name: &Ident,
        assign: &'a ast::Assign,
        seen: &mut HashMap<String, Span>,
        out: &mut Settings<'a>,
    ) {
        let setting = doc.setting(&name.name);
        let own = setting.is_none_or(|s| s.later || WITH_BODY.contains(&(doc.name, s.name)));
        if let Some(body) = assign.body.as_ref().filter(|_| !own) {
            self.report(
                Diagnostic::error("M0101", "this value has no settings of its own")
                    .label(body.span, "not here"),
            );
        }
        match self.known_setting(doc, name, Form::Value, seen) {
            Some(s) => {
                out.values.insert(s.name, &assign.value);
                out.spans.insert(s.name, assign.span);
                if let Some(body) = &assign.body {
                    out.bodies.insert(s.name, body);
                }
            }
            None => out.meant.extend(meant(doc, name)),
        }
    }

    /// Settings in a record: `{ intra = 448 GB/s, inter = 50 GB/s }`. None if it is none.
    pub fn record_settings(&mut self, doc: &BlockDoc, expr: &'a Expr) -> Option<Settings<'a>> {
        let record = match &crate::calls::bare(expr).kind {
            ExprKind::Record(record) => record,
            ExprKind::Broken => return None,
            _ => {
                let names: Vec<String> =
                    doc.settings.iter().map(|s| format!("{} = ..", s.name)).collect();
                let title = format!("`{}` is written in another way", doc.name);
                self.report(
                    Diagnostic::error("M0111", title)
                        .label(expr.span, "names with values are needed here")
                        .help(format!("write `{} = {{ {} }}`", doc.name, names.join(", "))),
                );
                return None;
            }
        };
        let mut out = Settings::default();
        let mut seen = HashMap::new();
        if let Some(spread) = &record.spread {
            self.misplaced(doc, "`..`", spread.span);
        }
        for entry in &record.entries {
            match entry {
                ast::RecordEntry::Assign(a) => match a.path.single() {
                    Some(name) => self.value_entry(doc, name, a, &mut seen, &mut out),
                    None => self.unknown_setting(doc, &a.path.parts[0], a.path.span),
                },
                ast::RecordEntry::Rule(r) => self.misplaced(doc, "a mesh rule", r.span),
                ast::RecordEntry::Broken(broken) => {
                    out.broken = true;
                    if let Some(name) = &broken.name {
                        seen.insert(name.name.clone(), name.span);
                    }
                }
            }
        }
        Some(out)
    }

    pub fn plain_block(&mut self, block: &ast::Block) {
        let extra = block.name.as_ref().map(|n| n.span);
        let extra = extra.or(block.on.as_ref().map(|p| p.span));
        let extra = extra.or(block.value.as_ref().map(|v| v.span));
        if let Some(at) = extra {
            let title = format!("`{}` is followed by its settings", block.kind.name);
            self.report(Diagnostic::error("M0101", title).label(at, "not needed"));
        }
    }

    /// Names and values of a record in which nothing else may stand. None if reported.
    pub fn record<'r>(&mut self, record: &'r ast::Record) -> Option<Vec<(&'r Ident, &'r Expr)>> {
        let mut out = Vec::new();
        let mut seen = HashMap::new();
        let mut stray = record.spread.as_ref().map(|s| s.span);
        let mut fine = true;
        for entry in &record.entries {
            match entry {
                ast::RecordEntry::Assign(a) => match (a.path.single(), &a.body) {
                    (Some(name), None) => {
                        fine &= self.first_time(name, &mut seen);
                        out.push((name, &a.value));
                    }
                    (_, body) => stray = Some(body.as_ref().map_or(a.path.span, |b| b.span)),
                },
                ast::RecordEntry::Rule(r) => stray = Some(r.span),
                ast::RecordEntry::Broken(_) => fine = false,
            }
        }
        if let Some(at) = stray {
            let d = Diagnostic::error("M0101", "here stand names with values only");
            self.report(d.label(at, "not here").help("write `{ name = value, .. }`"));
            return None;
        }
        fine.then_some(out)
    }

    fn function_entry(
        &mut self,
        doc: &BlockDoc,
        func: &'a ast::Func,
        seen: &mut HashMap<String, Span>,
        out: &mut Settings<'a>,
    ) {
        if doc.functions && doc.setting(&func.name.name).is_none() {
            if self.first_time(&func.name, seen) {
                out.functions.push(func);
            }
        } else if self.known_setting(doc, &func.name, Form::Function, seen).is_some() {
            out.functions.push(func);
        } else {
            out.meant.extend(meant(doc, &func.name));
        }
    }

    pub fn misplaced(&mut self, doc: &BlockDoc, what: &str, at: Span) {
        let title = format!("{what} does not belong in `{}`", doc.name);
        self.report(Diagnostic::error("M0101", title).label(at, "not here"));
    }

    pub fn first_time(&mut self, name: &Ident, seen: &mut HashMap<String, Span>) -> bool {
        if let Some(old) = seen.insert(name.name.clone(), name.span) {
            let title = format!("`{}` is set twice", name.name);
            self.report(
                Diagnostic::error("M0105", title)
                    .label(name.span, "again here")
                    .label(old, "first here")
                    .help("the last one would win in other languages; here there is only one"),
            );
            return false;
        }
        true
    }

    fn known_setting(
        &mut self,
        doc: &BlockDoc,
        name: &Ident,
        form: Form,
        seen: &mut HashMap<String, Span>,
    ) -> Option<&'static SettingDoc> {
        let Some(setting) = doc.setting(&name.name) else {
            self.unknown_setting(doc, name, name.span);
            return None;
        };
        if !self.first_time(name, seen) {
            return None;
        }
        if setting.later {
            self.not_yet(doc, setting, name);
            return None;
        }
        if setting.form != form {
            let how = match setting.form {
                Form::Value => format!("{} = ..", setting.name),
                Form::Block => format!("{} {{ .. }}", setting.name),
                Form::Function => format!("{}(x: f32[B, D]) = ..", setting.name),
            };
            let title = format!("`{}` is written in another way", setting.name);
            self.report(
                Diagnostic::error("M0111", title)
                    .label(name.span, setting.takes)
                    .help(format!("write `{how}`")),
            );
            return None;
        }
        Some(setting)
    }

    fn not_yet(&mut self, doc: &BlockDoc, setting: &SettingDoc, name: &Ident) {
        let (block, what) = (doc.name, setting.name);
        let d = Diagnostic::error("M0906", format!("`{what}` of `{block}` is not built yet"));
        self.report(d.label(name.span, setting.doc).help("take it out for now"));
    }

    fn unknown_setting(&mut self, doc: &BlockDoc, name: &Ident, at: Span) {
        let d =
            Diagnostic::error("M0101", format!("`{}` has no setting `{}`", doc.name, name.name))
                .label(at, "unknown setting");
        let names = doc.settings.iter().map(|s| s.name);
        let n = doc.settings.len();
        let all = format!("`monarch explain {}` lists all {n}", doc.name);
        let near = from_elsewhere(&name.name, names.clone())
            .or_else(|| suggest(&name.name, names.clone()));
        self.report(match near {
            Some(near) => d.fix(format!("did you mean `{near}`? {all}"), name.span, near),
            None => d.help(format!("settings: {}", names.collect::<Vec<_>>().join(", "))),
        });
    }

    /// Evaluates a setting and remembers where its value came from.
    pub fn setting_value(&mut self, file: u32, path: &str, expr: &Expr) -> Option<Value> {
        self.state.read.clear();
        let value = self.plain_value(file, expr);
        self.remember(path, expr);
        value
    }

    /// Notes the origin of a setting, with the params that were read since `read` was emptied.
    pub fn remember(&mut self, path: &str, expr: &Expr) {
        let params = std::mem::take(&mut self.state.read);
        let params = params.iter().map(|p| self.params[*p].ast.name.name.clone()).collect();
        self.state.settings.push(Setting {
            path: path.to_owned(),
            value: self.loaded.sources.slice(expr.span).to_owned(),
            params,
            origin: Origin::Program(expr.span),
        });
    }

    /// Notes settings of a block that have their defaults.
    pub fn remember_defaults(&mut self, doc: &BlockDoc, prefix: &str, given: &Settings) {
        for s in doc.settings {
            if let (Some(default), false) = (s.default, given.values.contains_key(s.name)) {
                self.state.settings.push(Setting {
                    path: format!("{prefix}.{}", s.name),
                    value: default.to_owned(),
                    params: Vec::new(),
                    origin: Origin::Default,
                });
            }
        }
    }

    /// A missing setting, unless what is missing may be in a part that did not parse.
    pub fn missing(&mut self, block: &ast::Block, doc: &BlockDoc, name: &str, given: &Settings) {
        if given.broken || given.meant.contains(&name) {
            return;
        }
        let title = format!("this `{}` has no `{name}`", doc.name);
        let takes = doc.setting(name).map_or("", |s| s.takes);
        let at = block.name.as_ref().map_or(block.kind.span, |n| block.kind.span.to(n.span));
        self.report(
            Diagnostic::error("M0109", title).label(at, format!("`{name}` is needed")).help(
                match doc.setting(name).map(|s| s.form) {
                    Some(Form::Function) => {
                        format!("write `{name}(x: f32[B, ..], ..) = ..`, with columns of the data")
                    }
                    _ => format!("it takes {takes}"),
                },
            ),
        );
    }

    /// Several missing settings of one block, as one mistake.
    pub fn all_missing(
        &mut self,
        block: &ast::Block,
        doc: &BlockDoc,
        names: &[&str],
        given: &Settings,
    ) {
        if given.broken {
            return;
        }
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let Some((last, first)) = quoted.split_last() else { return };
        let title = format!("this `{}` has no {} and no {last}", doc.name, first.join(", no "));
        let at = block.name.as_ref().map_or(block.kind.span, |n| block.kind.span.to(n.span));
        let help = format!("`monarch explain {}` says what each of them takes", doc.name);
        self.report(
            Diagnostic::error("M0109", title)
                .label(at, if names.len() == 2 { "both are needed" } else { "all are needed" })
                .help(help),
        );
    }

    /// A whole number from `least`.
    pub fn whole_setting(&mut self, file: u32, path: &str, expr: &Expr, least: i64) -> Option<u64> {
        match self.setting_value(file, path, expr)? {
            Value::Int(i) if i >= least => Some(i as u64),
            Value::Quantity(q)
                if q.unit == Unit::Batches && path.ends_with("batches") && q.amount >= 1.0 =>
            {
                Some(q.amount as u64)
            }
            other => {
                let name = last(path);
                let title =
                    format!("`{name}` is a whole number from {least}, not {}", show(&other));
                self.report(
                    Diagnostic::error("M0111", title).label(expr.span, type_of(&other).noun()),
                );
                None
            }
        }
    }

    /// An amount of this unit, above zero.
    pub fn amount_setting(
        &mut self,
        file: u32,
        path: &str,
        expr: &Expr,
        unit: Unit,
    ) -> Option<f64> {
        let name = last(path);
        let value = self.setting_value(file, path, expr)?;
        let text = self.loaded.sources.slice(expr.span).to_owned();
        let d = match &value {
            Value::Quantity(q) if q.unit == unit && q.amount > 0.0 => return Some(q.amount),
            Value::Quantity(q) if q.unit == unit => {
                let title = format!("`{name}` is more than nothing");
                Diagnostic::error("M0112", title).label(expr.span, q.unit.label())
            }
            Value::Quantity(q) => {
                let (is, needs) = (q.unit.noun(), unit.label());
                let d = Diagnostic::error("M0103", format!("`{name}` is {needs}, not {is}"))
                    .label(expr.span, q.unit.label());
                match (q.unit, unit) {
                    (Unit::Bytes, Unit::BytesPerSecond) => {
                        let rate = format!("{text}/s");
                        d.fix(format!("did you mean `{rate}`?"), expr.span, rate)
                    }
                    (Unit::BytesPerSecond, Unit::Bytes) if text.ends_with("/s") => {
                        let size = text.trim_end_matches("/s").to_owned();
                        d.fix(format!("did you mean `{size}`?"), expr.span, size)
                    }
                    _ => d.help(format!("write it as `{}`", unit.example())),
                }
            }
            Value::Int(_) | Value::Float(_) => {
                let title = format!("`{name}` needs a unit: {} of what?", show(&value));
                let word = unit.example().split_once(' ').map_or("GiB", |e| e.1);
                let fixed = format!("{text} {word}");
                Diagnostic::error("M0103", title).label(expr.span, "a plain number").fix(
                    format!("did you mean `{fixed}`?"),
                    expr.span,
                    fixed,
                )
            }
            other => {
                let title = format!("`{name}` is {}, not {}", unit.label(), show(other));
                Diagnostic::error("M0111", title)
                    .label(expr.span, type_of(other).noun())
                    .help(format!("write it as `{}`", unit.example()))
            }
        };
        self.report(d);
        None
    }

    pub fn bool_setting(&mut self, file: u32, path: &str, expr: &Expr) -> Option<bool> {
        match self.setting_value(file, path, expr)? {
            Value::Bool(b) => Some(b),
            other => {
                let title = format!("`{}` is true or false, not {}", last(path), show(&other));
                self.report(
                    Diagnostic::error("M0111", title).label(expr.span, type_of(&other).noun()),
                );
                None
            }
        }
    }

    pub fn text_setting(&mut self, file: u32, path: &str, expr: &Expr) -> Option<String> {
        match self.setting_value(file, path, expr)? {
            Value::Text(t) => Some(t),
            other => {
                let title = format!("`{}` is a text, not {}", last(path), show(&other));
                self.report(
                    Diagnostic::error("M0111", title)
                        .label(expr.span, type_of(&other).noun())
                        .help("texts stand in quotes: `\"..\"`"),
                );
                None
            }
        }
    }
}

/// The setting that a name was meant to be: itself in another form, or the nearest one.
fn meant(doc: &BlockDoc, name: &Ident) -> Option<&'static str> {
    let own = doc.setting(&name.name).map(|s| s.name);
    let names = || doc.settings.iter().map(|s| s.name);
    own.or_else(|| from_elsewhere(&name.name, names())).or_else(|| suggest(&name.name, names()))
}

pub(crate) fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
