//! What a plan says of a model's layers: `pipeline.split`, `recompute`, axes of `shard`.

use crate::calls::{as_name, bare};
use crate::globs::{self, Near};
use crate::hir::{Instance, Mesh, MeshAxis, Pipeline, PipelineSchedule, Recompute};
use crate::registry::{PIPELINE, SCHEDULES};
use crate::scope::{Checker, Entity};
use crate::settings::Settings;
use crate::sweeps::path_of;
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::{self, EntryKind, Expr, ExprKind, Ident};
use std::collections::HashSet;

/// Names of axes that the library uses for one thing each.
const GLOSSARY: &[&str] = &["B", "T", "S", "V", "D", "F", "H", "G", "K", "E"];
/// Chunks of an interleaved pipeline on one device.
const MOST_CHUNKS: u64 = 64;

/// The model that a plan is for, if a job has this layout.
pub(crate) struct LaidOut {
    model: Option<usize>,
    /// Of `model = llm` in the job.
    span: Span,
}

impl LaidOut {
    /// Whether a job has this layout.
    pub fn is_used(&self) -> bool {
        self.model.is_some()
    }
}

impl<'a> Checker<'a> {
    /// The model of the job that is trained on this plan.
    pub fn laid_out(&mut self, plan: &ast::Block) -> LaidOut {
        let nothing = LaidOut { model: None, span: Span::default() };
        let Some(name) = &plan.name else { return nothing };
        let on = |t: &ast::Block| {
            let on = t.on.as_ref().and_then(|p| p.single());
            on.is_some_and(|n| n.name == name.name)
        };
        let Some(job) = self.trains.iter().find(|t| on(t.ast)) else { return nothing };
        let model = job.ast.body.iter().flat_map(|b| &b.entries).find_map(|e| match &e.kind {
            EntryKind::Assign(a) if a.path.text() == "model" => as_name(&a.value),
            _ => None,
        });
        let Some(model) = model else { return nothing };
        match self.lookup(job.file, &model.name) {
            Some(Entity::Model(id)) => LaidOut { model: Some(id), span: model.span },
            _ => nothing,
        }
    }

    /// Whether an axis of `shard` occurs in the model's layers; reports one that does not.
    pub fn axis_of_model(&mut self, axis: &Ident, of: &LaidOut) -> bool {
        let models: Vec<usize> = match of.model {
            Some(id) => vec![id],
            None => (0..self.models.len()).collect(),
        };
        let mut names: Vec<String> = Vec::new();
        for id in &models {
            let Some(model) = self.model_value(*id) else { return true };
            let mut layers = HashSet::new();
            for_each(&model.root, &mut |i| {
                layers.insert(i.layer.0 as usize);
            });
            let mut layers: Vec<usize> = layers.into_iter().collect();
            layers.sort_unstable();
            layers.iter().for_each(|layer| self.axes_of_layer(*layer, &mut names));
        }
        if models.is_empty() {
            names = GLOSSARY.iter().map(|n| (*n).to_owned()).collect();
        }
        if names.contains(&axis.name) {
            return true;
        }
        let of = match (of.model, models.as_slice()) {
            (Some(id), _) => self.models[id].ast.name.as_ref(),
            (None, [id]) => self.models[*id].ast.name.as_ref(),
            _ => None,
        };
        let of = of.map_or("any model".to_owned(), |n| format!("`{}`", n.name));
        let title = format!("no layer of {of} has an axis {}", axis.name);
        let mut d = Diagnostic::error("M0803", title).label(axis.span, "divides nothing");
        // Names of one letter are near to none.
        names.sort_by_key(|n| (!GLOSSARY.contains(&n.as_str()), n.clone()));
        names.dedup();
        let upper = axis.name.to_ascii_uppercase();
        let all = || names.iter().map(String::as_str);
        let near = all().find(|n| *n == upper).or_else(|| suggest(&axis.name, all()));
        let first = axis.name.chars().next().map(|c| c.to_string()).unwrap_or_default();
        d = match near.or_else(|| all().find(|n| *n == first)) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), axis.span, near),
            None => d.help(format!("there are: {}", all().collect::<Vec<_>>().join(", "))),
        };
        self.report(d);
        false
    }

    /// Header axes, free axes and sizes of a layer, by name.
    fn axes_of_layer(&self, layer: usize, out: &mut Vec<String>) {
        let state = &self.state.layers[layer];
        let header = state.symbols.iter().take(state.dims);
        let free = state.symbols.iter().skip(state.fixed);
        let sizes = state.derived.iter().map(|d| &d.name);
        for name in header.chain(free).map(|s| &s.name).chain(sizes) {
            if !out.contains(name) {
                out.push(name.clone());
            }
        }
    }

    /// `llm.blocks.*.attn`: the model, and the rest as parts. None if reported.
    fn path_in_model(&mut self, file: u32, expr: &Expr, of: &LaidOut) -> Option<ModelPath> {
        let mut parts = Vec::new();
        let expr = bare(expr);
        if !path_of(expr, &mut parts) {
            if !matches!(expr.kind, ExprKind::Broken) {
                let d = Diagnostic::error("M0111", "a path of layers is needed here");
                self.report(d.label(expr.span, "not a path").help("write `model.blocks.*.attn`"));
            }
            return None;
        }
        let first: &Ident = parts.first()?;
        let id = match self.lookup(file, &first.name) {
            Some(Entity::Model(id)) => id,
            Some(other) => {
                self.wrong_entity(first, other, "a model");
                return None;
            }
            None => {
                self.path_without_model(file, first, of);
                return None;
            }
        };
        if let Some(own) = of.model.filter(|own| *own != id) {
            let name = self.models[own].ast.name.as_ref().map_or("", |n| &n.name).to_owned();
            let title = format!("this plan lays out `{name}`, not `{}`", first.name);
            self.report(
                Diagnostic::error("M0806", title)
                    .label(first.span, "another model")
                    .label(of.span, "trained on this plan")
                    .fix(format!("did you mean `{name}`?"), first.span, name),
            );
            return None;
        }
        let model = self.model_value(id)?;
        let mut layers = Vec::new();
        for_each(&model.root, &mut |i| layers.push(i.path.clone()));
        // The first is the model itself.
        layers.remove(0);
        let parts: Vec<String> = parts.iter().skip(1).map(|p| p.name.clone()).collect();
        if parts.is_empty() {
            let title = format!("`{}` is the whole model", first.name);
            let d = Diagnostic::error("M0111", title).label(expr.span, "no layers of it");
            self.report(d.help(format!("name layers: {}", list(&layers))));
            return None;
        }
        Some(ModelPath {
            name: first.name.clone(),
            root: model.root,
            layers,
            parts,
            span: expr.span,
        })
    }

    /// `blocks.*.attn`, where the model's name is missing.
    fn path_without_model(&mut self, file: u32, first: &Ident, of: &LaidOut) {
        let model = of.model.or((self.models.len() == 1).then_some(0));
        let found = model.and_then(|id| self.model_value(id)).filter(|model| {
            let subs = &self.state.layers[model.root.layer.0 as usize].subs;
            subs.iter().any(|s| s.name == first.name)
        });
        match found {
            None => self.unknown_name(file, first, &[]),
            Some(model) => {
                let fixed = format!("{}.{}", model.name, first.name);
                let title = format!("`{}` is a layer of which model?", first.name);
                self.report(
                    Diagnostic::error("M0106", title)
                        .label(first.span, "a layer, not a model")
                        .fix(format!("did you mean `{fixed}`?"), first.span, fixed),
                );
            }
        }
    }

    fn matches_nothing(&mut self, path: &ModelPath) {
        let (name, n) = (&path.name, path.layers.len());
        let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        let title = format!("`{name}.{}` matches none of {n} layers", parts.join("."));
        let d = Diagnostic::error("M0107", title).label(path.span, "no match");
        self.report(match globs::nearest(&parts, path.layers.iter().map(String::as_str)) {
            Near::Pattern(near, n) => {
                let near = format!("{name}.{near}");
                let s = crate::calls::plural(n);
                d.fix(format!("did you mean `{near}` ({n} layer{s})?"), path.span, near)
            }
            Near::Parts(head, parts) if head.is_empty() => {
                d.help(format!("`{name}` has: {}", parts.join(", ")))
            }
            Near::Parts(head, parts) if parts.is_empty() => {
                d.help(format!("`{name}.{head}` has no layers"))
            }
            Near::Parts(head, parts) => {
                d.help(format!("`{name}.{head}` has: {}", parts.join(", ")))
            }
        });
    }

    /// `[llm.blocks.*.attn]`
    pub fn recompute(&mut self, file: u32, expr: &'a Expr, of: &LaidOut) -> Option<Vec<Recompute>> {
        let ExprKind::List(items) = &bare(expr).kind else {
            if !matches!(bare(expr).kind, ExprKind::Broken) {
                let d = Diagnostic::error("M0111", "`recompute` is a list of layers");
                let text = self.loaded.sources.slice(expr.span).to_owned();
                let fixed = format!("[{text}]");
                let d = d.label(expr.span, "not a list");
                self.report(d.fix(format!("did you mean `{fixed}`?"), expr.span, fixed));
            }
            return None;
        };
        self.state.read.clear();
        self.remember("plan.recompute", expr);
        let mut out = Some(Vec::<Recompute>::new());
        for item in items {
            let found = self.recomputed(file, item, of);
            if let (Some(new), Some(list)) = (&found, &out)
                && let Some(old) = list.iter().find(|r| r.pattern == new.pattern)
            {
                let title = format!("`{}` is listed twice", new.pattern);
                self.report(
                    Diagnostic::error("M0105", title)
                        .label(new.span, "again here")
                        .label(old.span, "first here"),
                );
                return None;
            }
            match (found, &mut out) {
                (Some(r), Some(list)) => list.push(r),
                _ => out = None,
            }
        }
        out
    }

    fn recomputed(&mut self, file: u32, item: &'a Expr, of: &LaidOut) -> Option<Recompute> {
        let path = self.path_in_model(file, item, of)?;
        let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        let paths: Vec<String> =
            path.layers.iter().filter(|l| globs::fits(&parts, l)).cloned().collect();
        if paths.is_empty() {
            self.matches_nothing(&path);
            return None;
        }
        let pattern = format!("{}.{}", path.name, parts.join("."));
        Some(Recompute { pattern, paths, span: path.span })
    }

    /// `pipeline { split = llm.blocks, over = pp, schedule = "1f1b", microbatches = 16 }`
    pub fn pipeline(
        &mut self,
        file: u32,
        block: &'a ast::Block,
        mesh: Option<&Mesh>,
        of: &LaidOut,
    ) -> Option<Pipeline> {
        let given = self.settings(&PIPELINE, block.body.as_ref());
        self.remember_defaults(&PIPELINE, "plan.pipeline", &given);
        let split = match given.values.get("split") {
            Some(e) => self.split_of_model(file, e, of),
            None => {
                self.missing(block, &PIPELINE, "split", &given);
                None
            }
        };
        let over = match given.values.get("over") {
            None => self.default_axis(block, mesh, MeshAxis::Pp),
            Some(e) => self.only_axis(e, mesh, MeshAxis::Pp, "stages lie along `pp`"),
        };
        let schedule = self.pipeline_schedule(file, &given);
        let microbatches = match given.values.get("microbatches") {
            None => Some(None),
            Some(e) => self.whole_setting(file, "plan.pipeline.microbatches", e, 1).map(Some),
        };
        let span = block.kind.span.to(block.body.as_ref().map_or(block.kind.span, |b| b.span));
        Some(Pipeline {
            split: split?,
            over: over?,
            schedule: schedule?,
            microbatches: microbatches?,
            span,
            microbatches_span: given.spans.get("microbatches").copied(),
        })
    }

    fn pipeline_schedule(&mut self, file: u32, given: &Settings<'a>) -> Option<PipelineSchedule> {
        let name = match given.values.get("schedule") {
            None => Some("1f1b".to_owned()),
            Some(e) => self.text_setting(file, "plan.pipeline.schedule", e).and_then(|text| {
                if SCHEDULES.contains(&text.as_str()) {
                    return Some(text);
                }
                let d = Diagnostic::error("M0106", format!("there is no schedule `{text}`"))
                    .label(e.span, "unknown schedule");
                self.report(match suggest(&text, SCHEDULES.iter().copied()) {
                    Some(near) => {
                        let fixed = format!("\"{near}\"");
                        d.fix(format!("did you mean `{fixed}`?"), e.span, fixed)
                    }
                    None => d.help(format!("there are: {}", SCHEDULES.join(", "))),
                });
                None
            }),
        };
        let chunks = match given.values.get("chunks") {
            None => Some(None),
            Some(e) => {
                let n = self.whole_setting(file, "plan.pipeline.chunks", e, 2);
                if let Some(n) = n.filter(|n| *n > MOST_CHUNKS) {
                    let title = format!("`chunks` is at most {MOST_CHUNKS}, not {n}");
                    self.report(Diagnostic::error("M0112", title).label(e.span, "too many"));
                }
                n.filter(|n| *n <= MOST_CHUNKS).map(Some)
            }
        };
        let (name, chunks) = (name?, chunks?);
        if let (Some(at), true) = (given.spans.get("chunks"), name != "interleaved") {
            let title = format!("`chunks` changes nothing in a `{name}` pipeline");
            let mut d = Diagnostic::error("M0805", title).label(*at, "each device has one piece");
            if let Some(at) = given.values.get("schedule") {
                d = d.label(at.span, "not interleaved");
            }
            self.report(d.help("take it out, or use `schedule = \"interleaved\"`"));
            return None;
        }
        Some(match name.as_str() {
            "gpipe" => PipelineSchedule::GPipe,
            "interleaved" => PipelineSchedule::Interleaved { chunks: chunks.unwrap_or(2) as u32 },
            "zb-h1" => PipelineSchedule::ZeroBubbleH1,
            _ => PipelineSchedule::OneFOneB,
        })
    }

    /// The path of a repeated layer.
    fn split_of_model(&mut self, file: u32, expr: &Expr, of: &LaidOut) -> Option<String> {
        let path = self.path_in_model(file, expr, of)?;
        self.state.read.clear();
        self.remember("plan.pipeline.split", expr);
        let mut repeated = Vec::new();
        self.repeated_layers(&path.root, &mut repeated);
        let wanted = path.parts.join(".");
        if repeated.contains(&wanted) {
            return Some(wanted);
        }
        let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        let exists = path.layers.iter().any(|l| globs::fits(&parts, l));
        // `llm.blocks.*` is every block on its own; the blocks together are what is cut.
        let whole = wanted.strip_suffix(".*").filter(|w| repeated.iter().any(|r| r == w));
        let named = |r: &str| format!("{}.{r}", path.name);
        let near = whole.or_else(|| suggest(&wanted, repeated.iter().map(String::as_str)));
        let near = near.or(match repeated.as_slice() {
            [only] => Some(only.as_str()),
            _ => None,
        });
        let all = repeated.len();
        let (code, title, label) = match exists {
            true => {
                let title = format!("`{}` is not a repeated layer", named(&wanted));
                ("M0804", title, "cannot be dealt out to stages")
            }
            false => {
                let title = format!("`{}` matches none of {all} repeated layers", named(&wanted));
                ("M0107", title, "no match")
            }
        };
        let d = Diagnostic::error(code, title).label(path.span, label);
        self.report(match near.map(named) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), path.span, near),
            None if repeated.is_empty() => {
                d.help("no layer of this model is repeated: `repeat(Block[..], depth)`")
            }
            None => d.help(format!("repeated layers: {}", repeated.join(", "))),
        });
        None
    }

    /// Paths of repeated layers that stand in no other repeated one.
    fn repeated_layers(&self, root: &Instance, out: &mut Vec<String>) {
        let infos = &self.state.layers[root.layer.0 as usize].subs;
        for (info, copies) in infos.iter().zip(&root.subs) {
            let path = match root.path.is_empty() {
                true => info.name.clone(),
                false => format!("{}.{}", root.path, info.name),
            };
            match (info.def.as_ref().is_some_and(|d| d.repeat.is_some()), copies.as_slice()) {
                (true, _) => out.push(path),
                (false, [one]) => self.repeated_layers(one, out),
                (false, _) => {}
            }
        }
    }
}

/// A path whose model is known.
struct ModelPath {
    name: String,
    root: Instance,
    /// Paths of all layers below the model.
    layers: Vec<String>,
    /// Of the path, after the model.
    parts: Vec<String>,
    span: Span,
}

/// Calls `f` for a layer and all below it, outer ones first.
fn for_each(root: &Instance, f: &mut impl FnMut(&Instance)) {
    let mut stack = vec![root];
    while let Some(layer) = stack.pop() {
        f(layer);
        stack.extend(layer.subs.iter().flatten().rev());
    }
}

/// The first few layers, for messages.
fn list(layers: &[String]) -> String {
    let mut out: Vec<&str> = Vec::new();
    for layer in layers {
        let first = layer.split('.').next().unwrap_or(layer);
        if !out.contains(&first) {
            out.push(first);
        }
    }
    out.join(", ")
}
