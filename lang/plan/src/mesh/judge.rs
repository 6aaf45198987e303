//! Mistakes of a layout that only numbers show: axes that divide nothing, lengths that do not
//! divide, settings without effect, a batch that does not multiply out.

use super::estimate::Source;
use super::resolve::Resolved;
use super::shard::{index, length};
use monarch_check::hir::{self, MeshAxis, PipelineSchedule};
use monarch_diagnostic::{Diagnostic, Edit};
use monarch_graph::Span;
use std::collections::BTreeSet;

/// Axes of the glossary that a mesh axis divides, as far as the model has them.
fn usual(axis: MeshAxis) -> &'static [&'static str] {
    match axis {
        MeshAxis::Tp => &["H", "G", "F", "V"],
        MeshAxis::Cp => &["T"],
        MeshAxis::Ep => &["E"],
        MeshAxis::Dp => &["B"],
        MeshAxis::Pp => &[],
    }
}

/// Sizes of the model's axes of that name.
pub(crate) fn sizes(
    program: &hir::Program,
    job: &hir::Job,
    source: &Source,
    name: &str,
) -> BTreeSet<u64> {
    let mut out = BTreeSet::new();
    if let Some(model) = program.model(job.model) {
        let mut rest = vec![&model.root];
        while let Some(instance) = rest.pop() {
            if let Some(layer) = program.layer(instance.layer) {
                let named = layer.symbols.iter().zip(&instance.sizes);
                out.extend(named.filter(|(s, _)| s.name == name).map(|(_, n)| *n));
            }
            rest.extend(instance.subs.iter().flatten());
        }
    }
    for (i, node) in source.traced.graph.nodes.iter().enumerate() {
        for (class, dim) in source.traced.classes(i).iter().zip(&node.shape.0) {
            let names = source.traced.names.get(*class as usize);
            if !dim.batch && node.inputs.is_empty() && names.is_some_and(|n| n.contains(name)) {
                out.insert(dim.per);
            }
        }
    }
    out
}

/// Judges a layout before it is estimated.
pub(crate) fn judge(r: &Resolved, source: &Source, out: &mut Vec<Diagnostic>) {
    let before = out.len();
    if let Some(layout) = r.layout {
        for item in &layout.shard {
            sharding(r, source, layout, item, out);
        }
        for axis in MeshAxis::ALL {
            idle(r, source, layout, axis, out);
        }
        without_effect(r, layout, out);
        interleaving(r, layout, out);
    }
    if out[before..].iter().any(Diagnostic::is_error) {
        return;
    }
    remarks(r, out);
}

fn sharding(
    r: &Resolved,
    source: &Source,
    layout: &hir::Layout,
    item: &hir::Sharding,
    out: &mut Vec<Diagnostic>,
) {
    let parts = length(&r.setup.lengths, item.over);
    if item.over == MeshAxis::Dp || item.over == MeshAxis::Pp {
        return;
    }
    let sizes = sizes(r.words.program, r.words.job, source, &item.axis);
    let Some(&size) = sizes.iter().find(|n| !n.is_multiple_of(parts)) else { return };
    let over = item.over.name();
    let title = format!("{over} = {parts} does not divide {} = {size}", item.axis);
    let divisors: Vec<String> = (1..=parts.min(size))
        .filter(|n| sizes.iter().all(|s| s.is_multiple_of(*n)))
        .map(|n| n.to_string())
        .collect();
    let left = size % parts;
    out.push(
        Diagnostic::error("M0307", title)
            .label(item.span, format!("{} = {size} over {parts} devices leaves {left}", item.axis))
            .label(r.words.axis_span(layout, item.over), format!("{parts} devices"))
            .help(format!("{} allows {over} = {}", item.axis, divisors.join(", "))),
    );
}

/// A mesh axis along which every device would do the same.
fn idle(
    r: &Resolved,
    source: &Source,
    layout: &hir::Layout,
    axis: MeshAxis,
    out: &mut Vec<Diagnostic>,
) {
    let n = length(&r.setup.lengths, axis);
    let used = match axis {
        MeshAxis::Pp => layout.pipeline.is_some(),
        _ => layout.shard.iter().any(|s| s.over == axis),
    };
    if n < 2 || used {
        return;
    }
    let name = axis.name();
    let title = format!("mesh axis `{name}` would do the same work {n} times over");
    let at = r.words.axis_span(layout, axis);
    let mut d = Diagnostic::error("M0305", title).label(at, format!("{n} devices"));
    let braces = r.words.shard_braces(layout);
    if axis == MeshAxis::Pp {
        let blocks = "pipeline { split = MODEL.blocks, over = pp }";
        out.push(d.help(format!("cut the model into stages: `{blocks}`")));
        return;
    }
    if let Some(braces) = braces {
        d = d.label(braces, format!("sends nothing to `{name}`"));
    }
    let job = (r.words.program, r.words.job);
    let fits = |axis: &&&str| {
        let sizes = sizes(job.0, job.1, source, axis);
        **axis == "B" || (!sizes.is_empty() && sizes.iter().all(|s| s.is_multiple_of(n)))
    };
    let add: Vec<String> =
        usual(axis).iter().filter(fits).map(|a| format!("{a} -> {name}")).collect();
    let data = r.setup.replicas() * n;
    let give = match axis {
        MeshAxis::Dp => String::new(),
        _ => format!("give the devices to data: `dp = {data}, {name} = 1`"),
    };
    d = match (add.is_empty(), give.is_empty()) {
        (true, _) => d.fixes(give.clone(), give_away(r, layout, axis, data)),
        (false, true) => with_axes(d, layout, braces, &add, format!("add `{}`", add.join(", "))),
        (false, false) => {
            let text = format!("add `{}`, or {give}", add.join(", "));
            with_axes(d, layout, braces, &add, text)
        }
    };
    out.push(d);
}

/// `dp = 8, tp = 1`
fn give_away(r: &Resolved, layout: &hir::Layout, axis: MeshAxis, data: u64) -> Vec<Edit> {
    let mut edits = Vec::new();
    let written = |a: MeshAxis| layout.mesh.axes.iter().find(|m| m.axis == a);
    if let Some(own) = written(axis) {
        let replacement = format!("{} = 1", axis.name());
        edits.push(Edit { span: own.span, replacement });
    }
    match written(MeshAxis::Dp) {
        Some(dp) if dp.length.is_some() => {
            edits.push(Edit { span: dp.span, replacement: format!("dp = {data}") });
        }
        Some(_) => {}
        None => {
            let at = r.words.axis_span(layout, axis);
            let span = Span { end: at.start, ..at };
            edits.push(Edit { span, replacement: format!("dp = {data}, ") });
        }
    }
    edits
}

fn with_axes(
    d: Diagnostic,
    layout: &hir::Layout,
    braces: Option<Span>,
    add: &[String],
    text: String,
) -> Diagnostic {
    let Some((braces, last)) = braces.zip(layout.shard.last()) else { return d.help(text) };
    let span = Span { start: last.span.end, end: last.span.end, ..braces };
    d.fix(text, span, format!(", {}", add.join(", ")))
}

/// Settings that change nothing on this mesh.
fn without_effect(r: &Resolved, layout: &hir::Layout, out: &mut Vec<Diagnostic>) {
    let n = |axis| length(&r.setup.lengths, axis);
    let mut warn = |title: &str, span: Span, label: &str, axis: MeshAxis| {
        let at = r.words.axis_span(layout, axis);
        out.push(
            Diagnostic::warning("M0311", title)
                .label(span, label)
                .label(at, format!("{} = {}", axis.name(), n(axis)))
                .help("leave it out, or make the axis longer"),
        );
    };
    if let Some((axis, span)) = layout.sequence.filter(|(a, _)| n(*a) == 1) {
        warn("`sequence` splits nothing", span, "a single part", axis);
    }
    if let Some(zero) = layout.zero.filter(|z| n(z.over) == 1) {
        warn("`zero` shares nothing", zero.span, "a single replica", zero.over);
    }
    if let Some(pipeline) = layout.pipeline.as_ref().filter(|p| n(p.over) == 1)
        // With one stage it may still say how many micro-batches there are.
        && pipeline.microbatches.is_none()
    {
        warn("`pipeline` has a single stage", pipeline.span, "cuts nothing", pipeline.over);
    }
}

fn interleaving(r: &Resolved, layout: &hir::Layout, out: &mut Vec<Diagnostic>) {
    let Some(pipeline) = &layout.pipeline else { return };
    let PipelineSchedule::Interleaved { .. } = pipeline.schedule else { return };
    let (stages, micro) = (r.setup.stages(), r.setup.microbatches);
    if micro.is_multiple_of(stages) {
        return;
    }
    let title =
        format!("an interleaved pipeline of {stages} stages cannot take {micro} micro-batches");
    let (down, up) = (micro / stages * stages, micro.div_ceil(stages) * stages);
    let near = if down == 0 { format!("{up}") } else { format!("{down} or {up}") };
    out.push(
        Diagnostic::error("M0320", title)
            .label(pipeline.microbatches_span.unwrap_or(pipeline.span), "go around in groups")
            .label(r.words.axis_span(layout, MeshAxis::Pp), format!("of {stages}"))
            .help(format!("use {near} micro-batches")),
    );
}

/// Things worth knowing that stop nothing.
fn remarks(r: &Resolved, out: &mut Vec<Diagnostic>) {
    let setup = &r.setup;
    if let Some(cluster) = r.cluster {
        for which in &r.assumed {
            let rate = if *which == "intra" { setup.intra } else { setup.inter };
            let span = cluster.device.as_ref().map_or(cluster.span, |d| d.span);
            let title = format!("no `{which}` link is declared: {} GB/s is assumed", rate / 1e9);
            out.push(
                Diagnostic::note("M0315", title)
                    .label(span, format!("the usual figure for {}", setup.machine.name))
                    .help(format!("say it: `link = {{ {which} = {} GB/s }}`", rate / 1e9)),
            );
        }
    }
    let Some(layout) = r.layout else { return };
    if setup.group(MeshAxis::Tp).crosses {
        let tp = setup.length(MeshAxis::Tp);
        let title = format!("tensor parallel of {tp} spans nodes of {} devices", setup.per_node);
        out.push(
            Diagnostic::warning("M0314", title)
                .label(r.words.axis_span(layout, MeshAxis::Tp), "every layer waits for the network")
                .help(format!("use tp <= {} and more pp or dp", setup.per_node)),
        );
    }
    let (stages, micro) = (setup.stages(), setup.microbatches);
    if stages > 1 && micro < stages {
        let bubble = 100.0 * (stages - 1) as f64 / (micro + stages - 1) as f64;
        let pipeline = layout.pipeline.as_ref();
        let at = pipeline.map_or(layout.span, |p| p.microbatches_span.unwrap_or(p.span));
        let title = format!("{micro} micro-batches leave {stages} stages waiting");
        out.push(
            Diagnostic::warning("M0310", title)
                .label(at, format!("a bubble of about {bubble:.0} %"))
                .label(r.words.axis_span(layout, MeshAxis::Pp), format!("{stages} stages"))
                .help(format!("use at least {} micro-batches", 4 * stages)),
        );
    }
}

/// Settles the batch: it must be replicas times micro-batches times whole samples. One that was
/// given in tokens is brought to the nearest that is, with a note.
pub(crate) fn settle_batch(r: &mut Resolved, out: &mut Vec<Diagnostic>) -> Option<()> {
    if r.setup.micro_samples().is_some() {
        return Some(());
    }
    let (dp, micro) = (r.setup.replicas(), r.setup.microbatches);
    let pieces = dp.saturating_mul(micro).max(1);
    let batch = r.setup.batch;
    let (down, up) = (batch / pieces * pieces, batch.div_ceil(pieces).saturating_mul(pieces));
    let at = r.words.batch_span();
    let product = format!("dp {dp} x {micro} micro-batches = {pieces}");
    let tokens = r.setup.tokens_per_sample;
    if r.words.batch_in_tokens() && tokens > 1 {
        let near = if down > 0 && batch - down < up - batch { down } else { up };
        let title = format!(
            "a step has {near} samples, {} tokens: the nearest that divide",
            super::report::group(near * tokens)
        );
        out.push(
            Diagnostic::note("M0508", title)
                .label(at, format!("about {batch} samples of {tokens} tokens; {product}"))
                .help(format!("`batch = {near} samples` says it exactly")),
        );
        // A run of so many tokens takes more or fewer of such steps.
        let steps = (r.setup.steps as f64 * batch as f64 / near as f64).round();
        r.setup.steps = (steps as u64).max(1);
        r.setup.batch = near;
        return Some(());
    }
    let title = format!("a batch of {batch} samples does not divide into {pieces}");
    let near = if down == 0 { format!("{up}") } else { format!("{down} or {up}") };
    let mut d = Diagnostic::error("M0507", title).label(at, product);
    if let Some(layout) = r.layout {
        let pipeline = layout.pipeline.as_ref();
        if let Some(span) = pipeline.and_then(|p| p.microbatches_span) {
            d = d.label(span, format!("{micro} of each replica"));
        }
        if dp > 1 {
            d = d.label(r.words.axis_span(layout, MeshAxis::Dp), format!("{dp} replicas"));
        }
    }
    out.push(d.help(format!("use a batch of {near} samples")));
    None
}

/// Axes of the layout that divide no tensor after all, though the names exist.
pub(crate) fn divided(r: &Resolved, divides: &[bool; 5], out: &mut Vec<Diagnostic>) {
    let Some(layout) = r.layout else { return };
    for axis in [MeshAxis::Cp, MeshAxis::Ep, MeshAxis::Tp] {
        let n = length(&r.setup.lengths, axis);
        let items: Vec<&hir::Sharding> = layout.shard.iter().filter(|s| s.over == axis).collect();
        if n < 2 || divides[index(axis)] || items.is_empty() {
            continue;
        }
        let name = axis.name();
        let title = format!("mesh axis `{name}` would do the same work {n} times over");
        let mut d = Diagnostic::error("M0305", title)
            .label(r.words.axis_span(layout, axis), format!("{n} devices"));
        if let Some(item) = items.first() {
            d = d.label(item.span, format!("no tensor can be cut along {}", item.axis));
        }
        out.push(d.help("name another axis of the model's tensors"));
    }
}
