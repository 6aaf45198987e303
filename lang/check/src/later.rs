//! Blocks that are checked now and carried out later: sweeps.

use crate::params::ParamKind;
use crate::registry::{LIMIT, SWEEP};
use crate::scope::{Checker, Entity, In, with_near};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_syntax::ast::{self, EntryKind, Expr, ExprKind, Ident};

impl<'a> Checker<'a> {
    pub fn needs_entity(
        &mut self,
        file: u32,
        name: &Ident,
        needed: &str,
        fits: fn(Entity) -> bool,
    ) -> Option<Entity> {
        match self.lookup(file, &name.name) {
            Some(entity) if fits(entity) => Some(entity),
            Some(other) => {
                self.wrong_entity(name, other, needed);
                None
            }
            None => {
                self.unknown_name(file, name, &[]);
                None
            }
        }
    }

    pub fn check_sweeps(&mut self) {
        for id in 0..self.sweeps.len() {
            let In { file, ast, .. } = self.sweeps[id];
            self.report(
                Diagnostic::note("M0902", "`sweep` is not carried out yet")
                    .label(ast.kind.span, "checked only; a run is a single run"),
            );
            let mut metrics = Vec::new();
            match ast.on.as_ref().and_then(|p| p.single()) {
                Some(name) => {
                    let found = self.needs_entity(file, name, "a train block", |e| {
                        matches!(e, Entity::Train(_))
                    });
                    if let Some(Entity::Train(train)) = found {
                        metrics = metric_names(self.trains[train].ast);
                    }
                }
                None => self.report(
                    Diagnostic::error("M0109", "what does this sweep run?")
                        .label(ast.kind.span, "no `on`")
                        .help("write `sweep name on job { .. }`"),
                ),
            }
            for entry in ast.body.iter().flat_map(|b| &b.entries) {
                match &entry.kind {
                    EntryKind::Assign(a) => match a.path.single() {
                        Some(name) => self.sweep_setting(file, name, &a.value, &metrics),
                        None => self.sweep_stranger(&a.path.parts[0]),
                    },
                    EntryKind::Broken(_) => {}
                    other => {
                        let at = entry_span(other).unwrap_or(entry.span);
                        let d = Diagnostic::error("M0101", "a sweep has params and settings only");
                        self.report(d.label(at, "not here"));
                    }
                }
            }
        }
    }

    fn sweep_setting(&mut self, file: u32, name: &Ident, value: &'a Expr, metrics: &[String]) {
        match name.name.as_str() {
            "pick" => self.sweep_pick(value, metrics),
            "limit" => self.sweep_limit(file, value),
            other => {
                let param = self.params.iter().position(|p| p.ast.name.name == *other);
                match param {
                    Some(id) => {
                        self.lookup(file, other);
                        self.sweep_values(file, id, value);
                    }
                    None => self.sweep_stranger(name),
                }
            }
        }
    }

    fn sweep_stranger(&mut self, name: &Ident) {
        let title = format!("`{}` is neither a param nor a setting of `sweep`", name.name);
        let d = Diagnostic::error("M0101", title).label(name.span, "unknown");
        let params: Vec<&str> = self.params.iter().map(|p| p.ast.name.name.as_str()).collect();
        let all = params.iter().copied().chain(SWEEP.settings.iter().map(|s| s.name));
        let all: Vec<&str> = all.collect();
        self.report(with_near(d, name, all.into_iter(), "there are"));
    }

    fn sweep_values(&mut self, file: u32, param: usize, value: &'a Expr) {
        let ExprKind::List(items) = &value.kind else {
            self.report(
                Diagnostic::error("M0111", "a sweep lists the values of a param")
                    .label(value.span, "not a list"),
            );
            return;
        };
        let name = &self.params[param].ast.name.name;
        let kind = match &self.params[param].ast.kind {
            ast::Kind::Name(kind) => ParamKind::of(&kind.name),
            ast::Kind::Tensor(_) => None,
        };
        for item in items {
            let Some(v) = self.plain_value(file, item) else { continue };
            if let Some(Err(v)) = kind.map(|k| k.accept(v)) {
                let title = format!("`{name}` cannot be {}", crate::statics::show(&v));
                self.report(
                    Diagnostic::error("M0111", title)
                        .label(item.span, crate::statics::type_of(&v).noun())
                        .label(self.params[param].ast.kind.span(), "declared here"),
                );
            }
        }
    }

    fn sweep_pick(&mut self, value: &'a Expr, metrics: &[String]) {
        let ExprKind::Call(callee, args) = &value.kind else {
            self.report(
                Diagnostic::error("M0111", "`pick` says which trial is best")
                    .label(value.span, "neither min(..) nor max(..)"),
            );
            return;
        };
        let how = crate::calls::as_name(callee);
        if let Some(name) = how.filter(|n| !["min", "max"].contains(&n.name.as_str())) {
            let d = Diagnostic::error("M0106", format!("nothing is picked by `{}`", name.name))
                .label(name.span, "unknown");
            self.report(with_near(d, name, ["min", "max"].into_iter(), "there are"));
        }
        for arg in args {
            let mut parts = Vec::new();
            if !path_of(&arg.value, &mut parts) {
                let d = Diagnostic::error("M0111", "the name of a metric is needed here");
                self.report(d.label(arg.value.span, "not a metric"));
                continue;
            }
            let text: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
            let text = text.join(".");
            if metrics.is_empty() || metrics.contains(&text) {
                continue;
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
        }
    }

    fn sweep_limit(&mut self, file: u32, value: &'a Expr) {
        let ExprKind::Record(record) = &value.kind else {
            let d = Diagnostic::error("M0111", "`limit` is a list of bounds");
            self.report(d.label(value.span, "write `{ trials = 6, time = 2 h }`"));
            return;
        };
        for (name, value) in self.record(record).into_iter().flatten() {
            if !LIMIT.contains(&name.name.as_str()) {
                let d = Diagnostic::error("M0101", format!("`limit` has no `{}`", name.name))
                    .label(name.span, "unknown setting");
                self.report(with_near(d, name, LIMIT.iter().copied(), "it has"));
            }
            self.plain_value(file, value);
        }
    }

    /// Things that nobody uses.
    pub fn unused(&mut self) {
        if self.has_errors() {
            // What is wrong may hide a use.
            return;
        }
        let has_train = !self.trains.is_empty();
        let mut found = Vec::new();
        for (file, scope) in self.scopes.iter().enumerate() {
            if !self.loaded.is_own(file as u32) {
                continue;
            }
            for (name, named) in &scope.names {
                let counts = match named.entity {
                    Entity::Broken | Entity::Train(_) | Entity::Cluster(_) => false,
                    Entity::Sweep(_) => false,
                    Entity::Plan(_) => has_train,
                    Entity::Param(_) => true,
                    _ if named.imported => true,
                    // A file of layers is used by whoever imports it.
                    _ => has_train && file == 0,
                };
                if counts && !named.used.get() {
                    let what = if named.imported { "imported" } else { named.entity.noun() };
                    let title = format!("`{name}` is not used");
                    found.push(Diagnostic::warning("M0116", title).label(named.span, what));
                }
            }
        }
        for (id, item) in self.layers.iter().enumerate() {
            let state = &self.state.layers[id];
            if !self.loaded.is_own(item.file) || state.done.is_none() {
                continue;
            }
            let used = state.names.used.borrow();
            let header = state.symbols[..state.dims].iter().map(|s| (&s.name, s.span, "an axis"));
            let fields = state.fields.iter().map(|f| (&f.name, f.span, "a field"));
            let derived = state.derived.iter().map(|d| (&d.name, d.name_span, "a size"));
            let weights = state.weights.iter().map(|w| (&w.name, w.span, "a weight"));
            let subs = state.subs.iter().map(|s| (&s.name, s.span, "a sublayer"));
            for (name, span, what) in header.chain(fields).chain(derived).chain(weights).chain(subs)
            {
                if !used.contains(name) {
                    let title = format!("`{name}` is not used");
                    found.push(Diagnostic::warning("M0116", title).label(span, what));
                }
            }
        }
        self.diagnostics.extend(found);
    }
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
