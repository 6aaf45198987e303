//! `model tuned = lora(base) { rank = 16, layers = [blocks.*.attn.q] }`.

use crate::calls::{as_name, bare};
use crate::hir::{Adapter, Instance, Model, Quantity, Unit, Value};
use crate::names::fits;
use crate::pretrained::Outline;
use crate::scope::{Checker, Entity};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{Float, Init, Span, Weight};
use monarch_syntax::ast::{
    self, Arg, BinaryOp, EntryKind, Expr, ExprKind, Func, RecordEntry, Stmt,
};

/// What `lora` is told.
struct Lora {
    rank: u64,
    scale: f64,
    dropout: f64,
    globs: Vec<(String, Span)>,
}

/// A call of something that makes a model of a model.
pub(crate) struct AdapterCall<'e> {
    op: usize,
    args: &'e [Arg],
    span: Span,
}

impl<'a> Checker<'a> {
    pub fn adapter_op<'e>(&self, file: u32, value: &'e Expr) -> Option<AdapterCall<'e>> {
        let ExprKind::Call(callee, args) = &bare(value).kind else { return None };
        let op = match self.lookup(file, &as_name(callee)?.name) {
            Some(Entity::Op(op)) => op,
            _ => return None,
        };
        let makes_model = self.op_result(op) == Some("model");
        makes_model.then_some(AdapterCall { op, args, span: value.span })
    }

    /// A model with adapters. None if reported, or if the model's files are not here.
    pub fn adapted(
        &mut self,
        file: u32,
        id: usize,
        call: AdapterCall,
        settings: &Settings<'a>,
    ) -> Option<Model> {
        let block = self.models[id].ast;
        for name in ["rank", "layers"] {
            if !settings.values.contains_key(name) {
                self.missing(block, &crate::registry::LORA, name, settings);
            }
        }
        let lora = self.lora_settings(file, settings);
        let base = self.adapted_model(file, &call)?;
        let model = self.model_value(base);
        let lora = lora?;
        let Some(mut model) = model else {
            if let Some(outline) = self.state.outlines.get(&base).cloned() {
                self.globs_fit_outline(&outline, &lora.globs);
            }
            return None;
        };
        self.not_frozen(base, &model, call.span);
        let places = self.adaptable(&model);
        let names: Vec<&str> = places
            .iter()
            .filter_map(|i| model.weights.get(*i as usize))
            .map(|w| &*w.name)
            .collect();
        let mut chosen = vec![false; names.len()];
        for (glob, span) in &lora.globs {
            let mut matched = false;
            for (name, chosen) in names.iter().zip(&mut chosen) {
                let hit = covers(glob, name);
                *chosen |= hit;
                matched |= hit;
            }
            if !matched {
                let title = format!("`{glob}` matches none of {} layers", names.len());
                let map = self.state.outlines.get(&base).map(|o| o.names.clone());
                self.no_layer_matches(title, glob, *span, map.as_ref(), &names);
                return None;
            }
        }
        let picked: Vec<u32> = places.iter().zip(&chosen).filter(|c| *c.1).map(|c| *c.0).collect();
        let name = block.name.as_ref()?;
        (model.name, model.span) = (name.name.clone(), name.span);
        add_adapters(&mut model, &picked, &lora);
        Some(model)
    }

    fn adapted_model(&mut self, file: u32, call: &AdapterCall) -> Option<usize> {
        let matched = self.match_op(call.op, call.span, call.args, 0)?;
        let arg = matched.first().copied().flatten()?;
        let Some(name) = as_name(&arg.value) else {
            let d = Diagnostic::error("M0124", "the name of a model is needed here");
            self.report(d.label(arg.value.span, "something else"));
            return None;
        };
        match self.lookup(file, &name.name) {
            Some(Entity::Model(model)) => Some(model),
            Some(other) => {
                self.wrong_entity(name, other, "a model");
                None
            }
            None => {
                self.unknown_name(file, name, &[]);
                None
            }
        }
    }

    fn lora_settings(&mut self, file: u32, settings: &Settings<'a>) -> Option<Lora> {
        let rank =
            settings.values.get("rank").map(|e| self.whole_setting(file, "model.rank", e, 1));
        let alpha = settings.values.get("alpha").map(|e| {
            let value = self.setting_value(file, "model.alpha", e)?;
            let number = value.number().filter(|n| *n > 0.0);
            if number.is_none() {
                let title = format!("`alpha` is a number above 0, not {}", show(&value));
                let d = Diagnostic::error("M0111", title);
                self.report(d.label(e.span, type_of(&value).noun()));
            }
            number
        });
        let dropout = settings.values.get("dropout").map(|e| self.dropout(file, e));
        let globs = settings.values.get("layers").map(|e| self.globs(e));
        let (rank, globs) = (rank??, globs??);
        let alpha = match alpha {
            Some(alpha) => alpha?,
            None => rank as f64,
        };
        let dropout = match dropout {
            Some(dropout) => dropout?,
            None => 0.0,
        };
        Some(Lora { rank, scale: alpha / rank as f64, dropout, globs })
    }

    fn dropout(&mut self, file: u32, expr: &Expr) -> Option<f64> {
        match self.setting_value(file, "model.dropout", expr)? {
            Value::Int(0) => Some(0.0),
            Value::Quantity(Quantity { amount, unit: Unit::Share })
                if (0.0..1.0).contains(&amount) =>
            {
                Some(amount)
            }
            other => {
                let title = format!("`dropout` is a share below 100%, not {}", show(&other));
                let d = Diagnostic::error("M0103", title).label(expr.span, type_of(&other).noun());
                self.report(match other.number().filter(|n| (0.0..1.0).contains(n)) {
                    Some(n) => {
                        let share = format!("{}%", (n * 1e8).round() / 1e6);
                        d.fix(format!("write `{share}`"), expr.span, share)
                    }
                    None => d.help("write `5%`"),
                });
                None
            }
        }
    }

    fn not_frozen(&mut self, base: usize, model: &Model, at: Span) {
        if !model.weights.iter().any(|w| w.trainable) {
            return;
        }
        let block = self.models[base].ast;
        let title = format!("all of `{}` is trained beside its adapters", model.name);
        let d = Diagnostic::warning("M0613", title).label(at, "adapters are added here");
        let d = d.label(block.kind.span, "no `freeze = true`");
        self.report(d.help(format!("add `freeze = true` to `{}`", model.name)));
    }

    /// Weights of the model that are used as `x @ w` and in no other way, by number.
    fn adaptable(&self, model: &Model) -> Vec<u32> {
        let mut out = Vec::new();
        let mut stack = vec![&model.root];
        while let Some(instance) = stack.pop() {
            let layer = instance.layer.0 as usize;
            let taken = |w: usize| instance.adapters.iter().any(|a| a.weight as usize == w);
            for (w, number) in instance.weights.iter().enumerate() {
                if let Some(number) = number
                    && self.is_factor(layer, w)
                    && !taken(w)
                {
                    out.push(*number);
                }
            }
            stack.extend(instance.subs.iter().flatten());
        }
        out.sort_unstable();
        out
    }

    /// Whether a layer's weight is a matrix that stands only on the right of `@`.
    fn is_factor(&self, layer: usize, weight: usize) -> bool {
        let Some(info) = self.state.layers[layer].weights.get(weight) else { return false };
        if info.axes.as_ref().is_none_or(|a| a.len() != 2) {
            return false;
        }
        let forward = self.layers[layer].ast.body.entries.iter().find_map(|e| match &e.kind {
            EntryKind::Func(f) if f.name.name == "forward" => Some(f),
            _ => None,
        });
        let Some(forward) = forward else { return false };
        let mut uses = Uses { name: &info.name, all: 0, factors: 0 };
        uses.function(forward);
        uses.factors > 0 && uses.all == uses.factors
    }

    /// The patterns against the layers of a model whose files are not here.
    fn globs_fit_outline(&mut self, outline: &Outline, globs: &[(String, Span)]) {
        let mut names = Vec::new();
        self.outline_of(outline.layer, "", &mut names, 0);
        let layer = self.layer_name(outline.layer);
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        for (glob, span) in globs {
            if !all.iter().any(|name| covers(glob, name)) {
                let title = format!("`{glob}` matches no layer of `{layer}`");
                self.no_layer_matches(title, glob, *span, Some(&outline.names), &all);
            }
        }
    }

    /// Names of all adaptable weights below a layer, `*` for the copies of what is repeated.
    fn outline_of(&self, layer: usize, path: &str, out: &mut Vec<String>, depth: usize) {
        if depth > 64 || out.len() > 4096 {
            return;
        }
        let state = &self.state.layers[layer];
        for (i, weight) in state.weights.iter().enumerate() {
            if self.is_factor(layer, i) {
                out.push(joined(path, &weight.name));
            }
        }
        for sub in &state.subs {
            let Some(def) = &sub.def else { continue };
            let mut name = joined(path, &sub.name);
            if def.repeat.is_some() {
                name.push_str(".*");
            }
            self.outline_of(def.layer.0 as usize, &name, out, depth + 1);
        }
    }

    fn no_layer_matches(
        &mut self,
        title: String,
        glob: &str,
        span: Span,
        map: Option<&crate::names::NameMap>,
        names: &[&str],
    ) {
        let d = Diagnostic::error("M0107", title).label(span, "no match");
        let count = |pattern: &str| names.iter().filter(|n| covers(pattern, n)).count();
        let layers = |n: usize| match n {
            1 => "1 layer".to_owned(),
            n => format!("{n} layers"),
        };
        let last = glob.rsplit('.').next().unwrap_or(glob);
        let theirs = map.and_then(|map| map.by_part(last)).filter(|ours| count(ours) > 0);
        if let Some(ours) = theirs {
            let n = layers(count(ours));
            let text =
                format!("did you mean `{ours}` ({n})? `{last}` is its name in the checkpoint");
            return self.report(d.fix(text, span, ours));
        }
        let all = generalised(names.iter().copied());
        self.report(match suggest(glob, &all) {
            Some(near) => {
                let text = format!("did you mean `{near}` ({})?", layers(count(near)));
                d.fix(text, span, near)
            }
            None => d.help(format!("layers: {}", all.join(", "))),
        });
    }
}

/// Whether a pattern names a weight, or the layer that holds it.
fn covers(pattern: &str, weight: &str) -> bool {
    fits(pattern, weight) || weight.rsplit_once('.').is_some_and(|(home, _)| fits(pattern, home))
}

/// Names with `*` for numbers, each once.
pub(crate) fn generalised<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let part = |p: &'n str| if p.bytes().all(|b| b.is_ascii_digit()) { "*" } else { p };
        let text = name.split('.').map(part).collect::<Vec<_>>().join(".");
        if !out.contains(&text) {
            out.push(text);
        }
    }
    out
}

fn joined(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}.{name}"),
    }
}

/// Adds A and B for each of these weights, in order.
fn add_adapters(model: &mut Model, picked: &[u32], lora: &Lora) {
    for number in picked {
        let Some(weight) = model.weights.get(*number as usize).cloned() else { continue };
        let &[i, o] = weight.shape.as_slice() else { continue };
        let axis = |n: usize| weight.axes.get(n).cloned().unwrap_or_default();
        let part = |end: &str, shape: [u64; 2], axes: [String; 2], init| Weight {
            name: format!("{}.{end}", weight.name),
            shape: shape.to_vec(),
            axes: axes.to_vec(),
            init,
            trainable: true,
            stored: Float::F32,
            adapter: true,
            span: weight.span,
        };
        let down = model.weights.len() as u32;
        let spread = Init::Normal(1.0 / (i as f64).sqrt());
        let r = || "rank".to_owned();
        let a = part("lora_a", [i, lora.rank], [axis(0), r()], spread);
        let b = part("lora_b", [lora.rank, o], [r(), axis(1)], Init::Zeros);
        model.weights.extend([a, b]);
        attach(&mut model.root, *number, down, lora);
    }
}

/// Tells the instance that holds the weight of its adapter.
fn attach(root: &mut Instance, number: u32, down: u32, lora: &Lora) {
    let mut stack = vec![root];
    while let Some(instance) = stack.pop() {
        if let Some(weight) = instance.weights.iter().position(|w| *w == Some(number)) {
            let weight = weight as u32;
            let (scale, dropout) = (lora.scale, lora.dropout);
            instance.adapters.push(Adapter { weight, down, up: down + 1, scale, dropout });
            return;
        }
        stack.extend(instance.subs.iter_mut().flatten());
    }
}

/// How often a name occurs in a function, and how often right of `@`.
struct Uses<'n> {
    name: &'n str,
    all: usize,
    factors: usize,
}

impl Uses<'_> {
    fn function(&mut self, func: &Func) {
        for stmt in &func.script.stmts {
            if let Stmt::Let(bind) = stmt {
                self.expr(&bind.value);
            }
        }
        func.script.value.iter().for_each(|e| self.expr(e));
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Name(name) => self.all += usize::from(name.name == self.name),
            ExprKind::Paren(e) | ExprKind::Unary(_, _, e) | ExprKind::Member(e, _) => self.expr(e),
            ExprKind::Binary(op, _, a, b) => {
                let factor = as_name(b).is_some_and(|n| n.name == self.name);
                self.factors += usize::from(*op == BinaryOp::MatMul && factor);
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Call(callee, args) => {
                self.expr(callee);
                args.iter().for_each(|a| self.expr(&a.value));
            }
            ExprKind::Index(base, index) => {
                self.expr(base);
                if let ast::IndexKind::Axes(args) = &index.kind {
                    for arg in args {
                        if let ast::AxisKind::Size(e) = &arg.axis.kind {
                            self.expr(e);
                        }
                    }
                }
            }
            ExprKind::List(items) | ExprKind::Tuple(items) => {
                items.iter().for_each(|e| self.expr(e));
            }
            ExprKind::If(c) => [&c.condition, &c.yes, &c.no].into_iter().for_each(|e| self.expr(e)),
            ExprKind::Record(record) => {
                for entry in &record.entries {
                    if let RecordEntry::Assign(a) = entry {
                        self.expr(&a.value);
                    }
                }
            }
            ExprKind::Number(_) | ExprKind::Str(_) | ExprKind::Rhai(_) | ExprKind::Broken => {}
        }
    }
}
