//! A stage that needs more memory than its devices offer, and the ways out that were planned to
//! the end.

use super::estimate::{Estimate, Source, estimate};
use super::resolve::Resolved;
use super::setup::Setup;
use crate::report::bytes;
use monarch_check::hir::MeshAxis;
use monarch_diagnostic::{Diagnostic, Edit};
use monarch_graph::Span;

/// What a device offers a program.
pub(crate) fn offered(setup: &Setup) -> u64 {
    setup.memory.saturating_sub(setup.machine.reserved)
}

/// `284 GiB`: whole units once they are large, never less than is needed.
fn needs(n: u64) -> String {
    let gib = n as f64 / f64::from(1u32 << 30);
    match gib {
        g if g >= 10.0 => format!("{:.0} GiB", g.ceil()),
        _ => bytes(n),
    }
}

fn short(n: u64) -> String {
    let gib = n as f64 / f64::from(1u32 << 30);
    match gib {
        g if g >= 100.0 => format!("{g:.0}"),
        g if g >= 0.05 => format!("{g:.1}"),
        g => format!("{g:.3}"),
    }
}

/// M0401, if a stage does not fit.
pub(crate) fn too_full(r: &Resolved, source: &Source, found: &Estimate) -> Option<Diagnostic> {
    let setup = &r.setup;
    let offer = offered(setup);
    if found.peak() <= offer {
        return None;
    }
    let at = found.fullest();
    let stage = found.stages.get(at)?;
    let machine = setup.machine.name;
    let article = an(machine);
    let offer_text = match offer {
        n if n >= 10 << 30 => format!("{}", n >> 30),
        n => bytes(n),
    };
    let who = if found.stages.len() > 1 { format!("stage {at}") } else { "a device".to_owned() };
    let title = format!(
        "{who} needs {}; {article} {machine} offers {offer_text}",
        needs(stage.memory.total())
    );
    let mut d = Diagnostic::error("M0401", title);
    let layout = r.layout;
    let pipeline = layout.and_then(|l| l.pipeline.as_ref());
    let work_span = pipeline.map(|p| p.microbatches_span.unwrap_or(p.span));
    let work_span = work_span.or(layout.map(|l| l.span)).unwrap_or(r.words.job.span);
    d = d.label(work_span, activations(r, found, at));
    let state = &stage.memory;
    let parts = format!(
        "weights {} + grads {} + optimizer {} GiB",
        short(state.weights),
        short(state.gradients),
        short(state.optimizer)
    );
    let zero_span = layout.and_then(|l| l.zero.map(|z| z.span));
    match zero_span {
        Some(span) => d = d.label(span, parts),
        None => d = d.label(layout.map_or(r.words.batch_span(), |l| l.mesh.span), parts),
    }
    if let Some(device) = r.cluster.and_then(|c| c.device.as_ref()) {
        let reserved = setup.machine.reserved >> 30;
        let text = format!("less {reserved} GiB for {}", setup.machine.reserved_for);
        d = d.label(device.memory_span.unwrap_or(device.span), text);
    }
    Some(ways_out(d, r, source, found))
}

fn an(name: &str) -> &'static str {
    // Said letter by letter: an MI300X, an H100.
    match name.starts_with(['A', 'E', 'F', 'H', 'I', 'L', 'M', 'N', 'O', 'R', 'S', 'X']) {
        true => "an",
        false => "a",
    }
}

fn activations(r: &Resolved, found: &Estimate, at: usize) -> String {
    let Some(stage) = found.stages.get(at) else { return String::new() };
    let setup = &r.setup;
    let kept = stage.memory.activations + stage.memory.logits;
    let samples = found.micro_samples;
    let what = match setup.tokens_per_sample {
        0 | 1 => format!("{} samples", super::report::group(samples)),
        n => format!("{} tokens", super::report::group(samples * n)),
    };
    let mut text = format!("activations {} GiB = {what}", short(kept));
    if stage.blocks > 0 {
        text.push_str(&format!(" x {} blocks", stage.blocks));
    }
    if setup.stages() > 1 {
        text.push_str(&format!(" x {} in flight", stage.in_flight.round()));
    }
    text
}

/// A change of the program that was planned and fits.
struct Way {
    text: String,
    edits: Vec<Edit>,
}

fn ways_out(d: Diagnostic, r: &Resolved, source: &Source, found: &Estimate) -> Diagnostic {
    let ways: Vec<Way> =
        [more_microbatches(r, source), recomputed(r, source, found), both(r, source)]
            .into_iter()
            .flatten()
            .take(2)
            .collect();
    let ways = if ways.is_empty() { more_zero(r, source).into_iter().collect() } else { ways };
    match ways.as_slice() {
        [] => d.help(
            "no number of micro-batches and no recomputation makes it fit: use more tp, pp or \
             zero, or larger devices",
        ),
        [one] => d.fixes(format!("this fits: {}", one.text), one.edits.clone()),
        [first, rest @ ..] => {
            let all: Vec<&str> =
                std::iter::once(first).chain(rest).map(|w| w.text.as_str()).collect();
            let text = format!("each of these fits: {}", all.join(" | "));
            d.fixes(text, first.edits.clone())
        }
    }
}

fn fits(setup: &Setup, source: &Source) -> Option<Estimate> {
    setup.micro_samples()?;
    let found = estimate(source, setup).ok()?;
    (found.peak() <= offered(setup)).then_some(found)
}

/// The next counts of micro-batches, by powers of two.
fn counts(setup: &Setup) -> impl Iterator<Item = u64> + '_ {
    let most = setup.batch / setup.replicas().max(1);
    let next = (1..=20).map(|i| setup.microbatches << i);
    next.take_while(move |n| *n <= most)
}

fn more_microbatches(r: &Resolved, source: &Source) -> Option<Way> {
    let pipeline = r.layout?.pipeline.as_ref()?;
    for microbatches in counts(&r.setup) {
        let setup = Setup { microbatches, ..r.setup.clone() };
        if let Some(found) = fits(&setup, source) {
            let bubble = 100.0 * found.bubble;
            let setting = format!("microbatches = {microbatches}");
            let size = needs(found.peak());
            let text = format!("{setting} ({size}, bubble {bubble:.1}%)");
            let edits = match pipeline.microbatches_span {
                Some(span) => vec![Edit { span, replacement: setting }],
                None => Vec::new(),
            };
            return Some(Way { text, edits });
        }
    }
    None
}

/// Every block computed again.
fn all_blocks(r: &Resolved) -> Option<(Setup, String)> {
    let (split, blocks) = r.setup.split.as_ref()?;
    let recompute: Vec<String> = (0..*blocks).map(|i| format!("{split}.{i}")).collect();
    if recompute.iter().all(|p| r.setup.recompute.contains(p)) {
        return None;
    }
    let model = r.words.program.model(r.words.job.model)?;
    let setting = format!("recompute = [{}.{split}.*]", model.name);
    Some((Setup { recompute, ..r.setup.clone() }, setting))
}

/// Replaces the layout's `recompute`, or adds one.
fn recompute_edit(r: &Resolved, setting: &str) -> Vec<Edit> {
    let Some(layout) = r.layout else { return Vec::new() };
    let inner = setting.strip_prefix("recompute = [").and_then(|s| s.strip_suffix(']'));
    if let (Some(first), Some(last), Some(inner)) =
        (layout.recompute.first(), layout.recompute.last(), inner)
    {
        let span = Span { end: last.span.end, ..first.span };
        return vec![Edit { span, replacement: inner.to_owned() }];
    }
    let end = layout.mesh.span.end;
    let span = Span { start: end, end, ..layout.mesh.span };
    let comment = r.words.rest_of_line(span);
    let span = Span { start: end + comment, end: end + comment, ..span };
    vec![Edit { span, replacement: format!("\n  {setting}") }]
}

fn recomputed(r: &Resolved, source: &Source, found: &Estimate) -> Option<Way> {
    let (setup, setting) = all_blocks(r)?;
    let fitting = fits(&setup, source)?;
    let more = 100.0 * (fitting.hardware_flops / found.hardware_flops.max(1.0) - 1.0);
    let text = format!("{setting} ({}, +{more:.0}% FLOPs)", needs(fitting.peak()));
    Some(Way { text, edits: recompute_edit(r, &setting) })
}

fn both(r: &Resolved, source: &Source) -> Option<Way> {
    let pipeline = r.layout?.pipeline.as_ref()?;
    let (setup, setting) = all_blocks(r)?;
    if fits(&setup, source).is_some() || more_microbatches(r, source).is_some() {
        return None;
    }
    for microbatches in counts(&r.setup) {
        let setup = Setup { microbatches, ..setup.clone() };
        if let Some(found) = fits(&setup, source) {
            let micro = format!("microbatches = {microbatches}");
            let text = format!("{setting} and {micro} ({})", needs(found.peak()));
            let mut edits = recompute_edit(r, &setting);
            let span = pipeline.microbatches_span;
            edits.extend(span.map(|span| Edit { span, replacement: micro }));
            return Some(Way { text, edits });
        }
    }
    None
}

fn more_zero(r: &Resolved, source: &Source) -> Option<Way> {
    let layout = r.layout?;
    if r.setup.length(MeshAxis::Dp) < 2 {
        return None;
    }
    for zero in r.setup.zero + 1..=3 {
        let setup = Setup { zero, ..r.setup.clone() };
        if let Some(found) = fits(&setup, source) {
            let text = format!("`zero {{ stage = {zero}, over = dp }}` ({})", needs(found.peak()));
            let edits = layout.zero.map(|z| {
                let replacement = format!("zero {{ stage = {zero}");
                Edit { span: z.span, replacement }
            });
            let kept = edits.filter(|e| r.words.written(e.span).ends_with(char::is_numeric));
            return Some(Way { text, edits: kept.into_iter().collect() });
        }
    }
    None
}
