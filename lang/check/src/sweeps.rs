//! `sweep name on job { .. }`: params with lists of values, how the best is picked, and limits.

use crate::hir::{Limit, Pick, Quantity, Sweep, Swept, SweptValue, Unit, Value};
use crate::params::ParamKind;
use crate::registry::{LIMIT, SWEEP};
use crate::scope::{Checker, Entity, In, with_near};
use crate::statics::{show, type_of};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_syntax::ast::{self, EntryKind, Expr, ExprKind, Ident};
use std::collections::HashMap;

/// Combinations of one sweep: more is a slip of the pen.
const MAX_COMBINATIONS: u64 = 100_000;

impl<'a> Checker<'a> {
    /// All sweeps that are right.
    pub fn check_sweeps(&mut self) -> Vec<Sweep> {
        (0..self.sweeps.len()).filter_map(|id| self.check_sweep(id)).collect()
    }

    fn check_sweep(&mut self, id: usize) -> Option<Sweep> {
        let In { file, ast, .. } = self.sweeps[id];
        let metrics = self.swept_job(file, ast);
        let mut seen = HashMap::new();
        let (mut params, mut pick, mut limit) = (Vec::new(), None, Limit::default());
        let mut fine = metrics.is_some();
        let known = metrics.unwrap_or_default();
        for entry in ast.body.iter().flat_map(|b| &b.entries) {
            let EntryKind::Assign(a) = &entry.kind else {
                fine = false;
                if !matches!(entry.kind, EntryKind::Broken(_)) {
                    let at = entry_span(&entry.kind).unwrap_or(entry.span);
                    let d = Diagnostic::error("M0101", "a sweep has params and settings only");
                    self.report(d.label(at, "not here"));
                }
                continue;
            };
            let Some(name) = a.path.single() else {
                self.sweep_stranger(&a.path.parts[0]);
                fine = false;
                continue;
            };
            fine &= self.first_time(name, &mut seen);
            fine &= match name.name.as_str() {
                "pick" => {
                    pick = self.sweep_pick(&a.value, &known);
                    pick.is_some()
                }
                "limit" => self.sweep_limit(file, &a.value, &mut limit).is_some(),
                _ => {
                    let found = self.sweep_param(file, name, &a.value);
                    params.extend(found.clone());
                    found.is_some()
                }
            };
        }
        if params.is_empty() && fine {
            self.report(
                Diagnostic::error("M0109", "this sweep varies nothing")
                    .label(ast.kind.span, "no param with a list of values")
                    .help("list values of a param: `lr = [3e-4, 1e-3, 3e-3]`"),
            );
            return None;
        }
        let name = ast.name.as_ref()?;
        let evaluates = known.iter().any(|m| m == "eval.loss");
        let metric = if evaluates { "eval.loss" } else { "loss" }.to_owned();
        let pick = pick.unwrap_or(Pick { largest: false, metric, span: None });
        let span = ast.kind.span.to(name.span);
        let sweep = Sweep { name: name.name.clone(), span, params, pick, limit };
        if sweep.combinations().is_none_or(|n| n > MAX_COMBINATIONS) {
            let d = Diagnostic::error("M0112", "a sweep has at most 100,000 combinations");
            self.report(d.label(span, "more than that"));
            return None;
        }
        fine.then_some(sweep)
    }

    /// The metrics of the job that is swept.
    fn swept_job(&mut self, file: u32, ast: &'a ast::Block) -> Option<Vec<String>> {
        let Some(name) = ast.on.as_ref().and_then(|p| p.single()) else {
            self.report(
                Diagnostic::error("M0109", "what does this sweep run?")
                    .label(ast.kind.span, "no `on`")
                    .help("write `sweep name on job { .. }`"),
            );
            return None;
        };
        let found =
            self.needs_entity(file, name, "a train block", |e| matches!(e, Entity::Train(_)))?;
        match found {
            Entity::Train(train) => Some(metric_names(self.trains[train].ast)),
            _ => None,
        }
    }

    fn sweep_stranger(&mut self, name: &Ident) {
        let title = format!("`{}` is neither a param nor a setting of `sweep`", name.name);
        let d = Diagnostic::error("M0101", title).label(name.span, "unknown");
        let own = self.params.iter().filter(|p| p.file == 0);
        let params: Vec<&str> = own.map(|p| p.ast.name.name.as_str()).collect();
        let all = params.iter().copied().chain(SWEEP.settings.iter().map(|s| s.name));
        let all: Vec<&str> = all.collect();
        self.report(with_near(d, name, all.into_iter(), "there are"));
    }

    /// `lr = [3e-4, 1e-3]`
    fn sweep_param(&mut self, file: u32, name: &Ident, value: &'a Expr) -> Option<Swept> {
        let param = self.params.iter().position(|p| p.file == 0 && p.ast.name.name == name.name);
        let Some(param) = param else {
            self.sweep_stranger(name);
            return None;
        };
        self.lookup(file, &name.name);
        let ExprKind::List(items) = &value.kind else {
            self.report(
                Diagnostic::error("M0111", "a sweep lists the values of a param")
                    .label(value.span, "not a list"),
            );
            return None;
        };
        let ast = self.params[param].ast;
        let kind = match &ast.kind {
            ast::Kind::Name(kind) => ParamKind::of(&kind.name),
            ast::Kind::Tensor(_) => None,
        }?;
        if items.is_empty() {
            let d = Diagnostic::error("M0111", "a sweep needs values to try");
            self.report(d.label(value.span, "an empty list"));
            return None;
        }
        let mut values: Vec<SweptValue> = Vec::new();
        let mut fine = true;
        for item in items {
            match self.swept_value(file, ast, kind, item) {
                Some(found) => match values.iter().find(|v| v.value == found.value) {
                    Some(first) => {
                        let title = format!("`{}` is tried twice", show(&found.value));
                        self.report(
                            Diagnostic::error("M0105", title)
                                .label(item.span, "again here")
                                .label(first.span, "first here"),
                        );
                        fine = false;
                    }
                    None => values.push(found),
                },
                None => fine = false,
            }
        }
        fine.then(|| Swept { name: name.name.clone(), values, span: name.span })
    }

    fn swept_value(
        &mut self,
        file: u32,
        param: &'a ast::Param,
        kind: ParamKind,
        item: &'a Expr,
    ) -> Option<SweptValue> {
        let found = self.plain_value(file, item)?;
        let value = match kind.accept(found) {
            Ok(value) => value,
            Err(v) => {
                let title = format!("`{}` cannot be {}", param.name.name, show(&v));
                self.report(
                    Diagnostic::error("M0111", title)
                        .label(item.span, type_of(&v).noun())
                        .label(param.kind.span(), "declared here"),
                );
                return None;
            }
        };
        self.check_range(file, param, &value, item.span)?;
        let text = match (&value, &item.kind) {
            (Value::Text(text), _) => text.clone(),
            (_, ExprKind::Number(_)) => self.loaded.sources.slice(item.span).to_owned(),
            (value, _) => show(value),
        };
        Some(SweptValue { value, text, span: item.span })
    }

    /// `pick = min(eval.loss)`
    fn sweep_pick(&mut self, value: &'a Expr, metrics: &[String]) -> Option<Pick> {
        let ExprKind::Call(callee, args) = &value.kind else {
            self.report(
                Diagnostic::error("M0111", "`pick` says which trial is best")
                    .label(value.span, "neither min(..) nor max(..)"),
            );
            return None;
        };
        let how = crate::calls::as_name(callee);
        let known = how.filter(|n| ["min", "max"].contains(&n.name.as_str()));
        if let (Some(name), None) = (how, known) {
            let d = Diagnostic::error("M0106", format!("nothing is picked by `{}`", name.name))
                .label(name.span, "unknown");
            self.report(with_near(d, name, ["min", "max"].into_iter(), "there are"));
        }
        let [arg] = args.as_slice() else {
            let d = Diagnostic::error("M0117", "`pick` ranks by one metric");
            self.report(d.label(value.span, format!("{} given", args.len())));
            return None;
        };
        let metric = self.sweep_metric(arg, metrics);
        let largest = known?.name == "max";
        Some(Pick { largest, metric: metric?, span: Some(value.span) })
    }

    fn sweep_metric(&mut self, arg: &'a ast::Arg, metrics: &[String]) -> Option<String> {
        let mut parts = Vec::new();
        if !path_of(&arg.value, &mut parts) {
            let d = Diagnostic::error("M0111", "the name of a metric is needed here");
            self.report(d.label(arg.value.span, "not a metric"));
            return None;
        }
        let text: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
        let text = text.join(".");
        if metrics.is_empty() || metrics.contains(&text) {
            return Some(text);
        }
        let head = parts.first().map(|p| format!("{}.", p.name)).unwrap_or_default();
        let known = metrics.iter().any(|m| m.starts_with(&head));
        let at = parts.get(usize::from(known)).map_or(arg.value.span, |p| p.span);
        let d = Diagnostic::error("M0110", format!("there is no metric `{text}`"))
            .label(at, "unknown metric");
        let all = metrics.iter().map(String::as_str);
        self.report(match suggest(&text, all.clone()) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), arg.value.span, near),
            None => d.help(format!("there are: {}", all.collect::<Vec<_>>().join(", "))),
        });
        None
    }

    fn sweep_limit(&mut self, file: u32, value: &'a Expr, limit: &mut Limit) -> Option<()> {
        let ExprKind::Record(record) = &value.kind else {
            let d = Diagnostic::error("M0111", "`limit` is a list of bounds");
            self.report(d.label(value.span, "write `{ trials = 6, time = 2 h }`"));
            return None;
        };
        let mut fine = true;
        for (name, value) in self.record(record)? {
            let found = self.plain_value(file, value);
            fine &= match (name.name.as_str(), found) {
                ("trials", Some(Value::Int(n))) if n >= 1 => {
                    limit.trials = u64::try_from(n).ok();
                    true
                }
                ("time", Some(Value::Quantity(Quantity { amount, unit: Unit::Seconds })))
                    if amount > 0.0 =>
                {
                    limit.seconds = Some(amount);
                    true
                }
                ("each", Some(Value::Quantity(q))) if q.amount > 0.0 && is_length(q.unit) => {
                    limit.each = Some(q);
                    true
                }
                (_, None) => false,
                (known, Some(found)) if LIMIT.contains(&known) => {
                    self.wrong_limit(name, value, &found);
                    false
                }
                _ => {
                    let d = Diagnostic::error("M0101", format!("`limit` has no `{}`", name.name))
                        .label(name.span, "unknown setting");
                    self.report(with_near(d, name, LIMIT.iter().copied(), "it has"));
                    false
                }
            };
        }
        fine.then_some(())
    }

    fn wrong_limit(&mut self, name: &Ident, value: &Expr, found: &Value) {
        let (needed, example) = match name.name.as_str() {
            "trials" => ("a whole number from 1", "6"),
            "time" => ("a time", "2 h"),
            _ => ("steps, epochs, samples or tokens", "2000 steps"),
        };
        let title = format!("`{}` takes {needed}, not {}", name.name, show(found));
        let d = Diagnostic::error("M0111", title).label(value.span, type_of(found).noun());
        self.report(d.help(format!("for example `{} = {example}`", name.name)));
    }
}

fn is_length(unit: Unit) -> bool {
    matches!(unit, Unit::Steps | Unit::Epochs | Unit::Samples | Unit::Tokens)
}

/// `loss`, `eval.loss` and the metrics that a train block defines.
fn metric_names(train: &ast::Block) -> Vec<String> {
    let mut out = vec!["loss".to_owned()];
    let eval = train.body.iter().flat_map(|b| &b.entries).find_map(|e| match &e.kind {
        EntryKind::Block(b) if b.kind.name == "eval" => Some(b),
        _ => None,
    });
    if let Some(eval) = eval {
        out.push("eval.loss".to_owned());
        for entry in eval.body.iter().flat_map(|b| &b.entries) {
            if let EntryKind::Func(f) = &entry.kind {
                out.push(format!("eval.{}", f.name.name));
            }
        }
    }
    out
}

/// The parts of `a.b.c`; false if the expression is something else.
pub(crate) fn path_of<'x>(expr: &'x Expr, out: &mut Vec<&'x Ident>) -> bool {
    match &expr.kind {
        ExprKind::Name(name) => {
            out.push(name);
            true
        }
        ExprKind::Member(base, member) => {
            let fine = path_of(base, out);
            out.push(member);
            fine
        }
        _ => false,
    }
}

fn entry_span(kind: &EntryKind) -> Option<monarch_graph::Span> {
    match kind {
        EntryKind::Hook(h) => Some(h.span),
        EntryKind::Block(b) => Some(b.kind.span),
        EntryKind::Func(f) => Some(f.name.span),
        EntryKind::Rule(r) => Some(r.span),
        EntryKind::Weight(w) => Some(w.name.span),
        EntryKind::Assign(_) | EntryKind::Broken(_) => None,
    }
}
