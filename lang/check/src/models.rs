//! Models: layers with numbers, and what the numbers must satisfy.

use crate::apply::Place;
use crate::hir::{self, Instance, LayerId, Model, Poly, Static, StaticEnv, Value};
use crate::layers::Example;
use crate::registry::{LORA, MODEL};
use crate::scope::{Checker, In, Lazy};
use crate::settings::Settings;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Span, Weight};
use monarch_syntax::ast;
use std::collections::{HashMap, HashSet};

/// Layers in one model, copies included: more is a slip of the pen.
const MAX_LAYERS: usize = 1 << 16;
/// Layers within layers.
const MAX_DEPTH: usize = 64;
/// Elements of one weight.
const MAX_ELEMENTS: u64 = 1 << 40;

/// A layer with numbers that has been seen, for checks that come later.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub layer: usize,
    pub sizes: Vec<u64>,
    /// Params that the sizes come from, where they are one.
    pub params: Vec<Option<usize>>,
}

/// Divisibility and emptiness that was reported already: layer and name.
#[derive(Default)]
pub(crate) struct Settled {
    pub seen: Vec<Seen>,
    /// Where the program, not the library, asks for it first.
    known: HashMap<Seen, Span>,
    reported: HashSet<(usize, String, Option<Span>)>,
}

struct Builder {
    weights: Vec<Weight>,
    layers: usize,
    depth: usize,
    at: Span,
    /// The innermost part of the program around what is built.
    place: Span,
}

impl<'a> Checker<'a> {
    pub fn check_models(&mut self) {
        for id in 0..self.models.len() {
            self.model_value(id);
        }
    }

    /// The model with numbers; None if reported.
    pub fn model_value(&mut self, id: usize) -> Option<Model> {
        match &self.state.models[id] {
            Lazy::Done(found) => return found.clone(),
            Lazy::Running => {
                let block = self.models[id].ast;
                let name = block.name.as_ref().map_or("this model", |n| n.name.as_str());
                self.circular(name, block.kind.span);
                return None;
            }
            Lazy::Waiting => self.state.models[id] = Lazy::Running,
        }
        let found = self.work_out_model(id);
        self.state.models[id] = Lazy::Done(found.clone());
        found
    }

    fn work_out_model(&mut self, id: usize) -> Option<Model> {
        let In { file, ast, .. } = self.models[id];
        let value = ast.value.as_ref();
        if let Some(op) = value.and_then(|v| self.adapter_op(file, v)) {
            let settings = self.settings(&LORA, ast.body.as_ref());
            return self.adapted(file, id, op, &settings);
        }
        let settings = self.settings(&MODEL, ast.body.as_ref());
        let Some(value) = value else {
            self.report(
                Diagnostic::error("M0109", "this model is nothing yet")
                    .label(ast.kind.span, "no `=`")
                    .help("write `model net = Name[sizes](values)`"),
            );
            return None;
        };
        if self.load_call(file, value).is_some() {
            return self.pretrained(file, id, value, &settings);
        }
        self.only_pretrained(&settings);
        let app = self.application(&Place { file, layer: None }, value)?;
        let name = ast.name.as_ref()?;
        let sizes: Vec<u64> = app.dims.iter().map(|p| p.eval(&|_| None)).collect::<Option<_>>()?;
        let mut fields = Vec::new();
        for value in &app.fields {
            let Static::Value(v) = value else { return None };
            fields.push(v.clone());
        }
        self.build(name, app.layer, sizes, app.dim_params, fields, value.span)
    }

    /// Settings of weights from files, on a model that begins with random ones.
    fn only_pretrained(&mut self, settings: &Settings<'a>) {
        let mut given: Vec<(&str, Span)> =
            settings.values.iter().map(|(name, e)| (*name, e.span)).collect();
        given.sort_unstable_by_key(|g| g.1.start);
        for (name, at) in given {
            let title = format!("`{name}` is for weights from files");
            self.report(
                Diagnostic::error("M0101", title)
                    .label(at, "this model begins with random weights")
                    .help("load them: `model m = Name.load(\"dir/*.safetensors\") { .. }`"),
            );
        }
    }

    /// The model with all of its weights. `sizes` are those of the header axes.
    pub fn build(
        &mut self,
        name: &ast::Ident,
        layer: usize,
        mut sizes: Vec<u64>,
        mut params: Vec<Option<usize>>,
        fields: Vec<Value>,
        at: Span,
    ) -> Option<Model> {
        if !self.push_field_sizes(layer, &fields, &mut sizes, at) {
            return None;
        }
        params.resize(sizes.len(), None);
        let texts = vec![None; sizes.len()];
        let seen = Seen { layer, sizes, params };
        let mut builder = Builder { weights: Vec::new(), layers: 0, depth: 0, at, place: at };
        let root = self.instance(&mut builder, seen, fields, String::new(), texts)?;
        let weights = builder.weights;
        Some(Model { name: name.name.clone(), span: name.span, root, weights })
    }

    /// Whole-number fields are sizes too.
    fn push_field_sizes(
        &mut self,
        layer: usize,
        fields: &[Value],
        sizes: &mut Vec<u64>,
        at: Span,
    ) -> bool {
        let infos = self.state.layers[layer].fields.clone();
        for (info, value) in infos.iter().zip(fields) {
            if info.symbol.is_none() {
                continue;
            }
            match value {
                Value::Int(i) if *i >= 0 => sizes.push(*i as u64),
                other => {
                    let shown = crate::statics::show(other);
                    let title = format!("`{}` is a whole number from 0, not {shown}", info.name);
                    self.report(
                        Diagnostic::error("M0211", title)
                            .label(at, "given here")
                            .label(info.span, "declared here"),
                    );
                    return false;
                }
            }
        }
        true
    }

    fn instance(
        &mut self,
        builder: &mut Builder,
        seen: Seen,
        fields: Vec<Value>,
        path: String,
        texts: Vec<Option<String>>,
    ) -> Option<Instance> {
        builder.layers += 1;
        if builder.layers > MAX_LAYERS || builder.depth > MAX_DEPTH {
            let title =
                format!("a model has at most {MAX_LAYERS} layers, {MAX_DEPTH} in one another");
            self.report(Diagnostic::error("M0211", title).label(builder.at, "more than that"));
            return None;
        }
        let layer = seen.layer;
        if self.state.layers[layer].example.is_none() {
            let example = Example { sizes: seen.sizes.clone(), texts };
            self.state.layers[layer].example = Some(example);
        }
        if !self.state.settled.known.contains_key(&seen) {
            self.state.settled.known.insert(seen.clone(), builder.place);
            self.state.settled.seen.push(seen.clone());
        }
        let env = StaticEnv { sizes: &seen.sizes, fields: &fields };
        let weights = self.instance_weights(builder, &seen, &env, &path);
        builder.depth += 1;
        let subs = self.instance_subs(builder, &seen, &env, &path);
        builder.depth -= 1;
        let sizes = seen.sizes.clone();
        Some(Instance {
            layer: LayerId(layer as u32),
            path,
            sizes,
            weights: weights?,
            adapters: Vec::new(),
            subs: subs?,
            fields: fields.clone(),
        })
    }

    fn instance_weights(
        &mut self,
        builder: &mut Builder,
        seen: &Seen,
        env: &StaticEnv,
        path: &str,
    ) -> Option<Vec<Option<u32>>> {
        let infos = self.state.layers[seen.layer].weights.clone();
        let mut out = Vec::new();
        for info in &infos {
            if info.exists.as_ref().is_some_and(|e| e.truth(env) == Ok(false)) {
                out.push(None);
                continue;
            }
            let mut shape = Vec::new();
            for axis in info.axes.as_ref()? {
                let what = axis.name.as_deref();
                shape.push(self.whole_size(seen, what, &axis.size, info.shape_span)?);
            }
            let init = info.init.as_ref()?.with(env, &shape);
            let init = match init {
                Ok(Some(init)) => init,
                Ok(None) => {
                    out.push(None);
                    continue;
                }
                Err(why) => {
                    let title = format!("`{}` cannot begin like this: {why}", info.name);
                    self.report(Diagnostic::error("M0111", title).label(info.span, "this weight"));
                    return None;
                }
            };
            let elements = shape.iter().try_fold(1u64, |n, x| n.checked_mul(*x));
            if elements.is_none_or(|n| n > MAX_ELEMENTS) {
                let title = format!("`{}` would have more than 2^40 elements", info.name);
                self.report(Diagnostic::error("M0211", title).label(info.shape_span, "too large"));
                return None;
            }
            let name = |s: hir::Sym| self.state.layers[seen.layer].symbols[s.index()].name.clone();
            let axes = info.axes.iter().flatten();
            out.push(Some(builder.weights.len() as u32));
            builder.weights.push(Weight {
                name: join(path, &info.name),
                shape,
                axes: axes.map(|a| a.name.clone().unwrap_or_else(|| a.size.text(&name))).collect(),
                init,
                trainable: true,
                stored: monarch_graph::Float::F32,
                adapter: false,
                span: info.span,
            });
        }
        Some(out)
    }

    fn instance_subs(
        &mut self,
        builder: &mut Builder,
        seen: &Seen,
        env: &StaticEnv,
        path: &str,
    ) -> Option<Vec<Vec<Instance>>> {
        let infos = self.state.layers[seen.layer].subs.clone();
        let mut out = Vec::new();
        let outer = builder.place;
        for info in &infos {
            builder.place = if self.foreign(info.span) { outer } else { info.span };
            let def = info.def.as_ref()?;
            let copies = match &def.repeat {
                None => None,
                Some(times) => Some(self.copies(times, env, info.span)?),
            };
            let mut sizes = Vec::new();
            let mut params = Vec::new();
            let mut texts = Vec::new();
            for (size, span) in def.dims.iter().zip(&info.dim_spans) {
                let text = self.loaded.sources.slice(*span).to_owned();
                sizes.push(self.whole_size(seen, Some(&text), size, *span)?);
                let symbol = size.as_symbol();
                params.push(symbol.and_then(|s| seen.params.get(s.index()).copied().flatten()));
                texts.push(symbol.is_none().then_some(text));
            }
            let mut fields = Vec::new();
            for value in &def.fields {
                match value.eval(env) {
                    Ok(v) => fields.push(v),
                    Err(e) => {
                        let d = Diagnostic::error("M0111", e.to_string());
                        self.report(d.label(info.span, "in this sublayer"));
                        return None;
                    }
                }
            }
            let layer = def.layer.0 as usize;
            if !self.push_field_sizes(layer, &fields, &mut sizes, info.span) {
                return None;
            }
            params.resize(sizes.len(), None);
            texts.resize(sizes.len(), None);
            let inner = Seen { layer, sizes, params };
            let mut list = Vec::new();
            for i in 0..copies.unwrap_or(1) {
                let mut name = join(path, &info.name);
                if copies.is_some() {
                    name = join(&name, &i.to_string());
                }
                let (inner, fields, texts) = (inner.clone(), fields.clone(), texts.clone());
                list.push(self.instance(builder, inner, fields, name, texts)?);
            }
            out.push(list);
        }
        builder.place = outer;
        Some(out)
    }

    fn copies(&mut self, times: &Static, env: &StaticEnv, at: Span) -> Option<u64> {
        let value = times.eval(env);
        match value {
            Ok(Value::Int(n)) if n >= 0 => Some(n as u64),
            other => {
                let shown = other.map(|v| crate::statics::show(&v)).unwrap_or_default();
                let title = format!("a layer is repeated a whole number of times, not {shown}");
                self.report(Diagnostic::error("M0211", title).label(at, "repeated here"));
                None
            }
        }
    }

    /// A size with numbers; reports one that is not whole or not positive.
    fn whole_size(
        &mut self,
        seen: &Seen,
        what: Option<&str>,
        size: &Poly,
        at: Span,
    ) -> Option<u64> {
        let value = size.eval(&|s| seen.sizes.get(s.index()).copied());
        if let Some(n) = value.filter(|n| *n > 0) {
            return Some(n);
        }
        let mut derived = self.state.layers[seen.layer].derived.iter();
        let named = derived.find(|d| Some(d.name.as_str()) == what).cloned();
        let (name, at) = match named {
            Some(d) => (d.name, d.span),
            None => (what.unwrap_or("this size").to_owned(), at),
        };
        // A layer of the library is wrong wherever it is used wrongly.
        let place = self.state.settled.known.get(seen).copied();
        let place = place.filter(|_| self.foreign(at));
        // What is divided by a size that is wrong itself is no mistake of its own.
        let none = |s: &hir::Sym| size.divides_by(*s) && seen.sizes.get(s.index()) == Some(&0);
        let mut others = self.state.settled.reported.iter();
        if size.symbols().iter().any(none)
            && others
                .any(|(layer, other, at)| *layer == seen.layer && *other != name && *at == place)
        {
            return None;
        }
        if self.state.settled.reported.insert((seen.layer, name.clone(), place)) {
            self.not_whole(seen, &name, size, at);
        }
        None
    }

    /// Sizes that a layer's function uses must be whole: `K = D / H`.
    pub fn settle(&mut self) {
        for seen in self.state.settled.seen.clone() {
            let state = &self.state.layers[seen.layer];
            let used = state.names.sizes.borrow().clone();
            let derived: Vec<_> =
                state.derived.iter().filter(|d| used.contains(&d.name)).cloned().collect();
            for d in derived {
                let size = d.value.as_ref().and_then(|t| crate::statics::as_size(&t.value));
                if let Some(size) = size {
                    self.whole_size(&seen, Some(&d.name), &size, d.span);
                }
            }
        }
    }

    fn not_whole(&mut self, seen: &Seen, name: &str, size: &Poly, at: Span) {
        let symbols = self.state.layers[seen.layer].symbols.clone();
        let label = |s: hir::Sym| symbols[s.index()].name.clone();
        let number = |s: hir::Sym| seen.sizes.get(s.index()).copied();
        let text = size.text(&label);
        let quotient = quotient(size);
        let quotient = quotient.filter(|(_, bottom)| number(*bottom) != Some(0));
        let zero =
            size.symbols().into_iter().find(|s| size.divides_by(*s) && number(*s) == Some(0));
        let mut d = match quotient {
            None if let Some(zero) = zero => {
                let title = format!("`{name}` is {text}, and `{}` is 0", label(zero));
                Diagnostic::error("M0211", title).label(at, "divides by 0")
            }
            Some((top, bottom)) => {
                let (a, b) = (number(top).unwrap_or(0), number(bottom).unwrap_or(1).max(1));
                let (top, bottom) = (label(top), label(bottom));
                let title = format!("{bottom} does not divide {top}: {a} / {b} leaves {}", a % b);
                Diagnostic::error("M0204", title).label(at, format!("{name} must be whole"))
            }
            None => {
                let ratio = size.ratio(&number);
                let value = match ratio {
                    Some(r) if r.den != 1 => format!("{} / {}", r.num, r.den),
                    Some(r) => r.num.to_string(),
                    None => "too large".to_owned(),
                };
                let (code, title) = match ratio {
                    Some(r) if r.den != 1 => ("M0204", format!("{text} is not whole: {value}")),
                    _ => ("M0211", format!("a size is a whole number from 1: {text} is {value}")),
                };
                Diagnostic::error(code, title).label(at, format!("{name} = {value}"))
            }
        };
        for sym in size.symbols() {
            if let Some(Some(param)) = seen.params.get(sym.index()) {
                let (span, text) = self.param_label(*param);
                d = d.label(span, text);
            }
        }
        if let Some(place) = self.state.settled.known.get(seen)
            && d.labels.iter().all(|l| self.foreign(l.span))
        {
            let text = "its numbers come from here".to_owned();
            d.labels.insert(0, monarch_diagnostic::Label { span: *place, text });
        }
        if let Some((top, bottom)) = quotient {
            let (a, b) = (number(top).unwrap_or(0), number(bottom).unwrap_or(1).max(1));
            d = d.help(quotient_help(&label(top), a, &label(bottom), b));
        }
        self.report(d);
    }

    /// Whether a place is in the library, where nobody can mend anything.
    fn foreign(&self, at: Span) -> bool {
        !self.loaded.is_own(at.file)
    }

    /// Bodies of all layers, sublayers before those that use them; reports recursion.
    pub fn check_forwards(&mut self) {
        let mut marks = vec![0u8; self.layers.len()];
        for id in 0..self.layers.len() {
            self.visit_layer(id, &mut marks);
        }
    }

    fn visit_layer(&mut self, id: usize, marks: &mut [u8]) {
        // (layer, next sublayer): an explicit stack, since chains may be long.
        let mut stack = vec![(id, 0)];
        while let Some((layer, next)) = stack.pop() {
            if next == 0 {
                if marks[layer] == 2 {
                    continue;
                }
                marks[layer] = 1;
            }
            match self.state.layers[layer].subs.get(next) {
                None => {
                    self.check_forward(layer);
                    marks[layer] = 2;
                }
                Some(sub) => {
                    let inner = sub.def.as_ref().map(|d| d.layer.0 as usize);
                    stack.push((layer, next + 1));
                    match inner {
                        Some(inner) if marks[inner] == 0 => stack.push((inner, 0)),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Layers that contain themselves would never end. Cuts the circle after reporting it.
    pub fn check_recursion(&mut self) {
        let mut marks = vec![0u8; self.layers.len()];
        for id in 0..self.layers.len() {
            let mut stack = vec![(id, 0)];
            while let Some((layer, next)) = stack.pop() {
                if next == 0 && marks[layer] == 2 {
                    continue;
                }
                marks[layer] = 1;
                let Some(sub) = self.state.layers[layer].subs.get(next).cloned() else {
                    marks[layer] = 2;
                    continue;
                };
                stack.push((layer, next + 1));
                let Some(def) = &sub.def else { continue };
                let inner = def.layer.0 as usize;
                match marks[inner] {
                    0 => stack.push((inner, 0)),
                    1 => {
                        let name = self.layer_name(inner);
                        let title = format!("`{name}` contains itself");
                        self.report(
                            Diagnostic::error("M0119", title)
                                .label(sub.span, "this leads back to it")
                                .label(self.layers[inner].ast.name.span, "and on and on"),
                        );
                        self.state.layers[layer].subs[next].def = None;
                    }
                    _ => {}
                }
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}.{name}"),
    }
}

/// `D / H`, and nothing else.
fn quotient(size: &Poly) -> Option<(hir::Sym, hir::Sym)> {
    let [term] = size.terms() else { return None };
    if (term.factor.num, term.factor.den) != (1, 1) {
        return None;
    }
    match term.powers.as_slice() {
        [(a, 1), (b, -1)] => Some((*a, *b)),
        [(b, -1), (a, 1)] => Some((*a, *b)),
        _ => None,
    }
}

/// The nearest numbers that would divide.
fn quotient_help(top: &str, a: u64, bottom: &str, b: u64) -> String {
    let below = a / b * b;
    let mut tops: Vec<String> = Vec::new();
    if below > 0 {
        tops.push(below.to_string());
    }
    tops.push((below + b).to_string());
    let divides = |n: &u64| *n > 0 && a.is_multiple_of(*n);
    let fewer = (1..b).rev().take(10_000).find(divides);
    let more = (b + 1..=a.min(b.saturating_add(10_000))).find(divides);
    let bottoms: Vec<String> = fewer.into_iter().chain(more).map(|n| n.to_string()).collect();
    let first = format!("with {bottom} = {b} use {top} = {}", tops.join(" or "));
    match bottoms.is_empty() {
        true => first,
        false => format!("{first}; with {top} = {a} use {bottom} = {}", bottoms.join(" or ")),
    }
}
