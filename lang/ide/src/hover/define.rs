//! What is said about a name.

use super::{amount, code, count, grouped, shape_lines};
use crate::analysis::Analysis;
use crate::index::{Def, DefId, Kind};
use monarch_check::hir::{Instance, Job, Program};
use monarch_graph::{DType, Span};

/// What there is to say about a definition, at the place `span` where its name stands.
pub(super) fn definition(analysis: &Analysis, id: DefId, span: Span) -> Option<String> {
    let id = analysis.index.follow(id);
    let def = analysis.index.def(id)?;
    if def.kind == Kind::Module {
        let key = analysis.file_key(def.span.file)?;
        return Some(monarch_check::reference::about(key).map_or_else(
            || format!("module `{key}`"),
            |about| format!("**{key}**\n\n```mon\n{}\n```\n", about.trim_end()),
        ));
    }
    let mut out = code(&header(analysis, def));
    if !def.docs.is_empty() {
        out.push_str(&format!("\n{}\n", def.docs));
    }
    match def.kind {
        Kind::Param => param(analysis, def, &mut out),
        Kind::Constant => value(analysis, def, &mut out),
        Kind::Axis | Kind::Size | Kind::Field => size(analysis, def, &mut out),
        Kind::FreeAxis => out.push_str("\na free axis: as long as what comes in\n"),
        Kind::Weight => weight(analysis, def, &mut out),
        Kind::Argument | Kind::Local => local(analysis, def, span, &mut out),
        Kind::Layer => layer(analysis, id, def, &mut out),
        Kind::Sublayer => sublayer(analysis, def, &mut out),
        Kind::Model => model(analysis, def, &mut out),
        Kind::Data => data(analysis, def, &mut out),
        Kind::Train => train(analysis, def, &mut out),
        Kind::MeshAxis => out.push_str("\nan axis of the mesh\n"),
        Kind::Op | Kind::Alias | Kind::OpArg | Kind::Metric => {}
        Kind::Cluster | Kind::Plan | Kind::Sweep | Kind::Module => {}
    }
    home(analysis, def, &mut out);
    Some(out)
}

/// As much of the text as says what it is, at most a few lines.
fn header(analysis: &Analysis, def: &Def) -> String {
    let text = analysis.slice(def.header);
    let lines: Vec<&str> = text.lines().take(8).collect();
    let text = lines.join("\n");
    match def.kind {
        Kind::Axis => format!("{text}   # axis of {}", owner(analysis, def)),
        Kind::Field | Kind::OpArg => format!("{text}   # argument of {}", owner(analysis, def)),
        Kind::FreeAxis => def.name.clone(),
        _ => text,
    }
}

fn owner(analysis: &Analysis, def: &Def) -> String {
    let owner = def.owner.and_then(|o| analysis.index.def(o));
    owner.map_or_else(|| "a function".to_owned(), |o| o.name.clone())
}

/// Where it comes from, if that is not this file.
fn home(analysis: &Analysis, def: &Def, out: &mut String) {
    let file = def.span.file;
    if file == 0 || !matches!(def.kind, Kind::Layer | Kind::Op | Kind::Model | Kind::Data) {
        return;
    }
    if let Some(key) = analysis.file_key(file) {
        out.push_str(&format!("\nfrom `{key}`\n"));
    }
}

fn param(analysis: &Analysis, def: &Def, out: &mut String) {
    let Some(fact) = analysis.inspected.values.get(&def.span) else { return };
    let origin = match &fact.given {
        Some(text) => format!("from the command line: `--{} {text}`", def.name),
        None => format!("its default here; `monarch run .. --{} VALUE` gives another", def.name),
    };
    out.push_str(&format!("\n**value** `{}`, {origin}\n", fact.text));
    if let Some(program) = &analysis.inspected.checked.program {
        let uses = program.settings.iter().filter(|s| s.params.contains(&def.name));
        let uses: Vec<String> = uses.map(|s| format!("`{}`", s.path)).collect();
        if !uses.is_empty() {
            out.push_str(&format!("\nused by {}\n", uses.join(", ")));
        }
    }
}

fn value(analysis: &Analysis, def: &Def, out: &mut String) {
    if let Some(fact) = analysis.inspected.values.get(&def.span) {
        out.push_str(&format!("\n**value** `{}`\n", fact.text));
    }
}

fn size(analysis: &Analysis, def: &Def, out: &mut String) {
    let Some(fact) = analysis.inspected.values.get(&def.span) else { return };
    let mut parts = vec![def.name.clone()];
    if !fact.text.is_empty() && fact.text != def.name {
        parts.push(fact.text.clone());
    }
    parts.extend(fact.number.map(|n| n.to_string()));
    parts.dedup();
    if parts.len() > 1 {
        out.push_str(&format!("\n`{}`\n", parts.join(" = ")));
    }
}

fn weight(analysis: &Analysis, def: &Def, out: &mut String) {
    if let Some(ty) = analysis.type_of(def.span) {
        out.push_str(&shape_lines(analysis, ty, def.span));
    }
    let Some(program) = &analysis.inspected.checked.program else { return };
    for model in &program.models {
        let copies: Vec<_> = model.weights.iter().filter(|w| w.span == def.span).collect();
        let elements: u64 = copies.iter().map(|w| w.shape.iter().product::<u64>()).sum();
        if let [first, _, ..] = copies.as_slice() {
            out.push_str(&format!(
                "\n{} copies in `{}` (`{}`, ..): {}\n",
                copies.len(),
                model.name,
                first.name,
                amount(elements, 4)
            ));
        }
    }
}

fn local(analysis: &Analysis, def: &Def, span: Span, out: &mut String) {
    let ty = analysis.type_of(span).or_else(|| analysis.type_of(def.span));
    let Some(ty) = ty else { return };
    let at = match analysis.costs().is_some_and(|c| c.shape(span).is_some()) {
        true => span,
        false => bound(analysis, def).unwrap_or(span),
    };
    out.push_str(&shape_lines(analysis, ty, at));
}

/// The value that `let x = value` binds.
fn bound(analysis: &Analysis, def: &Def) -> Option<Span> {
    let whole = def.whole;
    let inner = analysis.inspected.types.iter().filter(|t| {
        t.span.file == whole.file && t.span.end == whole.end && t.span.start > whole.start
    });
    inner.map(|t| t.span).min_by_key(|s| s.start)
}

fn layer(analysis: &Analysis, id: DefId, def: &Def, out: &mut String) {
    if let Some(members) = analysis.index.members.get(&id) {
        let number = |d: &DefId| {
            let dim = analysis.index.def(*d)?;
            let fact = analysis.inspected.values.get(&dim.span)?;
            Some(format!("{} = {}", dim.name, fact.number?))
        };
        let numbers: Vec<String> =
            members.dims.iter().chain(&members.fields).filter_map(number).collect();
        if !numbers.is_empty() {
            out.push_str(&format!("\nfirst used with `{}`\n", numbers.join(", ")));
        }
    }
    copies(analysis, def, out);
}

/// Copies of a layer in each model, their weights and their work.
fn copies(analysis: &Analysis, layer: &Def, out: &mut String) {
    let Some(program) = &analysis.inspected.checked.program else { return };
    for model in &program.models {
        let mut found = (0u64, 0u64);
        count_copies(program, model, &model.root, layer.span, &mut found);
        if found.0 > 0 {
            let noun = if found.0 == 1 { "copy" } else { "copies" };
            out.push_str(&format!(
                "\n{} {noun} in `{}`: {}\n",
                found.0,
                model.name,
                amount(found.1, 4)
            ));
        }
    }
    let flops = analysis.costs().map_or(0.0, |c| c.flops_within(layer.whole));
    if flops > 0.0 {
        out.push_str(&format!(
            "\n{} forward for each sample in its own lines, over all copies\n",
            count(flops, "FLOP")
        ));
    }
}

fn count_copies(
    program: &Program,
    model: &monarch_check::hir::Model,
    instance: &Instance,
    layer: Span,
    found: &mut (u64, u64),
) {
    let here = program.layer(instance.layer).is_some_and(|l| l.span == layer);
    if here {
        found.0 += 1;
        found.1 += elements(model, instance);
        return;
    }
    for copy in instance.subs.iter().flatten() {
        count_copies(program, model, copy, layer, found);
    }
}

/// Elements of all weights of an instance, those of its sublayers included.
fn elements(model: &monarch_check::hir::Model, instance: &Instance) -> u64 {
    let own = instance.weights.iter().flatten();
    let own = own.filter_map(|w| model.weights.get(*w as usize));
    let own: u64 = own.map(|w| w.shape.iter().product::<u64>()).sum();
    own + instance.subs.iter().flatten().map(|copy| elements(model, copy)).sum::<u64>()
}

fn sublayer(analysis: &Analysis, def: &Def, out: &mut String) {
    let Some(layer) = def.target.and_then(|l| analysis.index.def(l)) else { return };
    out.push('\n');
    out.push_str(&code(&header(analysis, layer)));
    if !layer.docs.is_empty() {
        out.push_str(&format!("\n{}\n", layer.docs));
    }
    copies(analysis, layer, out);
}

fn model(analysis: &Analysis, def: &Def, out: &mut String) {
    let Some(program) = &analysis.inspected.checked.program else { return };
    let found = program.models.iter().position(|m| m.span == def.span);
    let Some((at, model)) = found.and_then(|at| Some((at, program.models.get(at)?))) else {
        return;
    };
    let all = elements(model, &model.root);
    let tensors = model.weights.len();
    let noun = if tensors == 1 { "weight" } else { "weights" };
    out.push_str(&format!("\n{tensors} {noun}: {}\n", amount(all, 4)));
    let trained = program.job.as_ref().is_some_and(|job| job.model.0 as usize == at);
    if let Some(costs) = analysis.costs().filter(|_| trained) {
        let flops = count(costs.flops(), "FLOP");
        out.push_str(&format!("\n{flops} forward for each sample, the loss included\n"));
    }
}

fn job(analysis: &Analysis) -> Option<&Job> {
    analysis.inspected.checked.program.as_ref()?.job.as_ref()
}

fn data(analysis: &Analysis, def: &Def, out: &mut String) {
    let Some(job) = job(analysis) else { return };
    // The job's own data set is the only one that the resolved program keeps.
    let trained = analysis.index.defs.iter().any(|d| {
        d.kind == Kind::Train
            && analysis
                .index
                .uses(def_id(analysis, def))
                .any(|s| s.file == d.whole.file && d.whole.start <= s.start && s.end <= d.whole.end)
    });
    if !trained {
        return;
    }
    out.push_str(&format!("\n{} samples\n", grouped(job.rows)));
    for column in &job.columns {
        let lengths: Vec<String> = column.shape.iter().map(u64::to_string).collect();
        let dtype = if column.dtype == DType::I32 { "i32" } else { "f32" };
        let axes = std::iter::once("B".to_owned()).chain(lengths).collect::<Vec<_>>().join(", ");
        out.push_str(&format!("\n`{}: {dtype}[{axes}]`\n", column.name));
    }
}

fn def_id(analysis: &Analysis, def: &Def) -> DefId {
    let same = |d: &Def| d.span == def.span && d.kind == def.kind;
    analysis.index.defs.iter().position(same).unwrap_or(usize::MAX)
}

fn train(analysis: &Analysis, def: &Def, out: &mut String) {
    let Some(job) = job(analysis).filter(|j| j.name == def.name) else { return };
    out.push_str(&format!(
        "\n{} steps of {} samples, in {} shards\n",
        grouped(job.steps),
        grouped(job.batch),
        job.shards
    ));
}
