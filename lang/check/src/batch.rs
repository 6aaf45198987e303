//! Batch arithmetic: samples of a step, of a replica, of a micro-batch.
//!
//! `global = micro * accumulate * dp`: what a replica computes at once, how often before weights
//! change, and on how many replicas. Any two of the first three give the other one. A pipeline's
//! micro-batches are what `accumulate` counts. Without a layout there is one replica, whatever the
//! number of workers: they share its work.

use crate::calls::bare;
use crate::data::DataFacts;
use crate::hir::{Layout, MeshAxis, Quantity, Unit, Value};
use crate::registry::BATCH;
use crate::scope::Checker;
use crate::settings::Settings;
use crate::statics::{show, type_of};
use crate::units;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{Expr, ExprKind};

/// A batch in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Batch {
    /// Samples of one step, over all replicas.
    pub samples: u64,
    /// Samples that a replica computes at once, where the program settles that.
    pub micro: Option<u64>,
    /// Micro-batches of a replica in one step.
    pub accumulate: Option<u64>,
    /// Pieces that a batch is cut into, where the program says that through micro-batches.
    pub pieces: Option<u64>,
    /// As written, if it is written in tokens.
    pub tokens: Option<f64>,
}

/// What a layout says about batches.
struct Deal {
    /// Replicas; None if that depends on devices which nothing declares.
    dp: Option<u64>,
    dp_span: Option<Span>,
    /// Of the pipeline.
    microbatches: Option<u64>,
    microbatches_span: Option<Span>,
    laid_out: bool,
}

impl Deal {
    /// Equal parts of a batch that the layout asks for.
    fn parts(&self) -> u64 {
        self.dp.unwrap_or(1).saturating_mul(self.microbatches.unwrap_or(1))
    }

    /// `2 replicas x 16 micro-batches`
    fn words(&self) -> String {
        let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let replicas = self.dp.filter(|n| *n != 1).map(|n| count(n, "replica"));
        let micro = self.microbatches.filter(|n| *n != 1).map(|n| format!("{n} micro-batches"));
        replicas.into_iter().chain(micro).collect::<Vec<_>>().join(" x ")
    }

    fn labels(&self, mut d: Diagnostic) -> Diagnostic {
        if let (Some(at), Some(n)) = (self.dp_span, self.dp) {
            d = d.label(at, format!("{n} replicas"));
        }
        if let (Some(at), Some(n)) = (self.microbatches_span, self.microbatches) {
            d = d.label(at, format!("{n} micro-batches of each replica"));
        }
        d
    }
}

/// A rounded batch in tokens may differ by this share from what is written.
const MOST_ROUNDED: f64 = 0.1;

impl<'a> Checker<'a> {
    pub fn batch(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        data: Option<&DataFacts>,
        layout: Option<&Layout>,
    ) -> Option<Batch> {
        let expr = *given.values.get("batch")?;
        let deal = self.deal(layout);
        let found = match &expr.kind {
            ExprKind::Record(_) => self.batch_record(file, expr, &deal)?,
            _ => {
                let value = self.setting_value(file, "train.batch", expr)?;
                self.batch_value(value, expr, data, &deal)?
            }
        };
        let rows = data.and_then(|d| d.splits.iter().find(|s| s.name == "train"));
        let rows = rows.map(|s| s.end - s.start);
        if let Some(rows) = rows.filter(|rows| found.samples > *rows) {
            let n = found.samples;
            let title = format!("a batch of {n} does not fit: there are {rows} samples");
            let mut d = Diagnostic::error("M0506", title).label(expr.span, "samples of one step");
            if let Some(data) = data {
                d = d.label(data.span, format!("{rows} samples to train on"));
            }
            self.report(d.help(format!("use a batch of at most {rows}")));
            return None;
        }
        Some(found)
    }

    fn deal(&mut self, layout: Option<&Layout>) -> Deal {
        let nothing = Deal {
            dp: Some(1),
            dp_span: None,
            microbatches: None,
            microbatches_span: None,
            laid_out: false,
        };
        let Some(layout) = layout else { return nothing };
        let axis = layout.mesh.axes.iter().find(|a| a.axis == MeshAxis::Dp);
        let dp = match axis {
            None => Some(1),
            Some(axis) => axis.length.map(u64::from).or_else(|| self.filled(layout)),
        };
        let pipeline = layout.pipeline.as_ref();
        Deal {
            dp,
            dp_span: axis.map(|a| a.span),
            microbatches: pipeline.and_then(|p| p.microbatches),
            microbatches_span: pipeline.and_then(|p| p.microbatches_span),
            laid_out: true,
        }
    }

    /// What `_` is in a mesh, if the cluster declares its devices and the rest divides them.
    fn filled(&mut self, layout: &Layout) -> Option<u64> {
        let devices = self.cluster_value(layout.cluster?)?.devices()?;
        let rest = layout.mesh.axes.iter().filter_map(|a| a.length).map(u64::from);
        let rest = rest.fold(1u64, |n, x| n.saturating_mul(x));
        devices.is_multiple_of(rest).then_some(devices / rest.max(1))
    }

    fn batch_value(
        &mut self,
        value: Value,
        expr: &Expr,
        data: Option<&DataFacts>,
        deal: &Deal,
    ) -> Option<Batch> {
        match &value {
            Value::Int(i) if *i >= 1 => self.dealt(*i as u64, expr.span, deal),
            Value::Quantity(q) if q.unit == Unit::Samples => {
                let whole = q.amount >= 1.0 && q.amount.fract() == 0.0 && q.amount < 1e15;
                if whole {
                    return self.dealt(q.amount as u64, expr.span, deal);
                }
                let title = format!("a batch is a whole number of samples, not {}", show(&value));
                self.report(Diagnostic::error("M0507", title).label(expr.span, "no whole number"));
                None
            }
            Value::Quantity(q) if q.unit == Unit::Tokens => {
                let data = data?;
                if !data.has_tokens() {
                    self.no_tokens(expr.span);
                    return None;
                }
                self.batch_tokens(*q, expr.span, data.tokens_per_sample, deal)
            }
            Value::Quantity(q) => {
                let noun = q.unit.noun();
                let title = format!("`batch` counts tokens or samples, not {noun}");
                let d = Diagnostic::error("M0103", title).label(expr.span, q.unit.label());
                self.report(match (&bare(expr).kind, data.is_none_or(DataFacts::has_tokens)) {
                    (ExprKind::Number(number), true) => {
                        let meant = format!("{}M tokens", number.raw);
                        d.fix(format!("did you mean `{meant}`?"), expr.span, meant)
                    }
                    _ => d.help("a plain number counts samples"),
                });
                None
            }
            other => {
                let title = format!("`batch` is a number of samples from 1, not {}", show(other));
                self.report(
                    Diagnostic::error("M0111", title).label(expr.span, type_of(other).noun()),
                );
                None
            }
        }
    }

    /// A whole number of samples, which the layout must divide.
    fn dealt(&mut self, samples: u64, at: Span, deal: &Deal) -> Option<Batch> {
        let parts = deal.parts().max(1);
        if samples.is_multiple_of(parts) {
            return Some(deal.batch(samples, None));
        }
        let left = samples % parts;
        let title = format!(
            "{samples} samples are not {} equal parts: {samples} / {parts} leaves {left}",
            deal.words()
        );
        let d = Diagnostic::error("M0507", title).label(at, "samples of one step");
        let mut d = deal.labels(d);
        for near in [samples - left, samples - left + parts] {
            if near > 0 {
                d = d.fix(format!("use {near}"), at, near.to_string());
            }
        }
        self.report(d);
        None
    }

    /// The nearest number of samples that the layout divides. Nothing is rounded without a word.
    fn batch_tokens(
        &mut self,
        q: Quantity,
        at: Span,
        per_sample: u64,
        deal: &Deal,
    ) -> Option<Batch> {
        let exact = q.amount / per_sample as f64;
        let parts = deal.parts().max(1);
        let times = (exact / parts as f64).round().max(1.0);
        let samples = times * parts as f64;
        let off = (samples - exact).abs();
        if exact.is_nan() || samples >= 1e15 || off > MOST_ROUNDED * exact {
            let whole = per_sample.saturating_mul(parts);
            let title = match parts {
                1 => format!("{} are no whole number of samples", units::show(q)),
                n => format!("{} are not {n} equal parts of whole samples", units::show(q)),
            };
            let d = Diagnostic::error("M0507", title)
                .label(at, format!("{exact:.2} samples of {per_sample} tokens"));
            let d = deal.labels(d);
            let near = (q.amount / whole as f64).round().max(1.0) as u64;
            let fixed = format!("{} tokens", near.saturating_mul(whole));
            self.report(d.fix(format!("use a multiple of {whole}: `{fixed}`"), at, fixed));
            return None;
        }
        let samples = samples as u64;
        if off > 1e-9 {
            let tokens = samples.saturating_mul(per_sample);
            let title = format!(
                "a step has {samples} samples: {} are {exact:.2}, of {per_sample} tokens each",
                units::show(q)
            );
            let d = Diagnostic::note("M0508", title).label(at, format!("{tokens} tokens"));
            let d = match deal.words() {
                words if words.is_empty() => d,
                words => deal.labels(d).help(format!("{words} divide it into equal parts")),
            };
            let fixed = format!("{tokens} tokens");
            let written = units::show(q);
            let text = format!("`{fixed}` is exact; steps are counted by {written}, as written");
            self.report(d.fix(text, at, fixed));
        }
        Some(deal.batch(samples, Some(q.amount)))
    }

    /// `{ micro = 2, accumulate = 8 }`
    fn batch_record(&mut self, file: u32, expr: &'a Expr, deal: &Deal) -> Option<Batch> {
        let own = self.record_settings(&BATCH, expr)?;
        let mut numbers = [None; 3];
        let mut fine = !own.broken && own.meant.is_empty();
        for (slot, name) in numbers.iter_mut().zip(["global", "micro", "accumulate"]) {
            let Some(value) = own.values.get(name) else { continue };
            match self.whole_setting(file, &format!("train.batch.{name}"), value, 1) {
                Some(n) => *slot = Some(n),
                None => fine = false,
            }
        }
        if !fine {
            return None;
        }
        let [global, micro, accumulate] = numbers;
        if let (Some(global), None, None) = (global, micro, accumulate) {
            let at = own.values.get("global").map_or(expr.span, |e| e.span);
            return self.dealt(global, at, deal);
        }
        let accumulate = self.same_microbatches(accumulate, &own, deal)?;
        self.multiply_out([global, micro, accumulate], &own, expr.span, deal)
    }

    /// `accumulate`, or the pipeline's micro-batches, which are the same. Outer None: reported.
    fn same_microbatches(
        &mut self,
        accumulate: Option<u64>,
        own: &Settings<'a>,
        deal: &Deal,
    ) -> Option<Option<u64>> {
        let (Some(a), Some(m)) = (accumulate, deal.microbatches) else {
            return Some(accumulate.or(deal.microbatches));
        };
        if a == m {
            return Some(Some(a));
        }
        let title = format!("`accumulate` is {a}, and the pipeline has {m} micro-batches");
        let mut d = Diagnostic::error("M0507", title);
        if let Some(value) = own.values.get("accumulate") {
            d = d.label(value.span, "micro-batches of a replica");
        }
        if let Some(at) = deal.microbatches_span {
            d = d.label(at, "micro-batches of a replica too");
        }
        if let Some(value) = own.values.get("accumulate") {
            d = d.fix(format!("use {m}, or leave it out"), value.span, m.to_string());
        }
        self.report(d);
        None
    }

    fn multiply_out(
        &mut self,
        [global, micro, accumulate]: [Option<u64>; 3],
        own: &Settings<'a>,
        at: Span,
        deal: &Deal,
    ) -> Option<Batch> {
        let Some(dp) = deal.dp else {
            return self.unknown_replicas([global, micro, accumulate], at, deal);
        };
        let times = |a: u64, b: u64| a.saturating_mul(b);
        let divide = |a: u64, b: u64| (b > 0 && a.is_multiple_of(b)).then(|| a / b);
        let settled = match (global, micro, accumulate) {
            (Some(g), Some(m), Some(a)) => (g == times(times(m, a), dp)).then_some((g, m, a)),
            (None, Some(m), Some(a)) => Some((times(times(m, a), dp), m, a)),
            (Some(g), Some(m), None) => divide(g, times(m, dp)).map(|a| (g, m, a)),
            (Some(g), None, Some(a)) => divide(g, times(a, dp)).map(|m| (g, m, a)),
            _ => {
                let one = micro.map(|_| "micro").or(accumulate.map(|_| "accumulate"));
                let title = match one {
                    Some(name) => format!("`{name}` alone does not say how large the batch is"),
                    None => "this batch says nothing".to_owned(),
                };
                self.report(
                    Diagnostic::error("M0507", title)
                        .label(at, "global = micro * accumulate * dp")
                        .help("give two of global, micro and accumulate; the third follows"),
                );
                return None;
            }
        };
        let Some((samples, micro, accumulate)) = settled else {
            self.not_multiplied([global, micro, accumulate], dp, own, at, deal);
            return None;
        };
        if samples >= 1_000_000_000_000_000 {
            let title = format!("a batch of {samples} samples is beyond any data set");
            self.report(Diagnostic::error("M0112", title).label(at, "too large"));
            return None;
        }
        let pieces = times(accumulate, dp);
        // Micro-batches of declared machines are not cut again.
        let pieces = (pieces <= 4096 || !deal.laid_out).then_some(pieces);
        let (micro, accumulate) = (Some(micro), Some(accumulate));
        Some(Batch { samples, micro, accumulate, pieces, tokens: None })
    }

    /// With a mesh that fills itself from devices which nobody declares, only a batch that is
    /// given as a whole is known.
    fn unknown_replicas(
        &mut self,
        [global, micro, accumulate]: [Option<u64>; 3],
        at: Span,
        deal: &Deal,
    ) -> Option<Batch> {
        if let Some(samples) = global {
            return Some(Batch { samples, micro, accumulate, pieces: None, tokens: None });
        }
        let title = "this batch depends on `dp`, and nothing says how long that is";
        let mut d = Diagnostic::error("M0507", title).label(at, "global = micro * accumulate * dp");
        if let Some(at) = deal.dp_span {
            d = d.label(at, "filled from the devices");
        }
        self.report(d.help("declare `device` in the cluster, or say `global = ..`"));
        None
    }

    fn not_multiplied(
        &mut self,
        [global, micro, accumulate]: [Option<u64>; 3],
        dp: u64,
        own: &Settings<'a>,
        at: Span,
        deal: &Deal,
    ) {
        let known = [micro, accumulate, (dp != 1).then_some(dp)];
        let parts: Vec<u64> = known.iter().flatten().copied().collect();
        let product = parts.iter().fold(1u64, |n, x| n.saturating_mul(*x));
        let shown: Vec<String> = parts.iter().map(u64::to_string).collect();
        let (shown, global) = (shown.join(" x "), global.unwrap_or(0));
        let all = micro.is_some() && accumulate.is_some();
        let title = match all {
            true => format!("the batch does not multiply out: {shown} is {product}, not {global}"),
            false => {
                let left = global % product.max(1);
                let by = if parts.len() > 1 { format!("({shown})") } else { shown };
                format!("the batch does not multiply out: {global} / {by} leaves {left}")
            }
        };
        let place = own.values.get("global").map_or(at, |e| e.span);
        let mut d = Diagnostic::error("M0507", title).label(place, "samples of one step");
        if let Some(value) = own.values.get("micro") {
            d = d.label(value.span, "samples at once");
        }
        if let Some(value) = own.values.get("accumulate") {
            d = d.label(value.span, "times in one step");
        }
        d = deal.labels(d);
        let step = if all { product } else { product.max(1) };
        let near = match all {
            true => vec![step],
            false => vec![global / step * step, (global / step).saturating_add(1) * step],
        };
        for near in near.into_iter().filter(|n| *n > 0) {
            d = d.fix(format!("use `global = {near}`"), place, near.to_string());
        }
        if all {
            d = d.help("or leave one of the three out: it follows");
        }
        self.report(d);
    }

    /// Pieces of a batch: `shards`, or what micro-batches make where the program says those.
    pub fn shards_of(
        &mut self,
        given: &Settings<'a>,
        implied: Option<u64>,
        shards: Option<u64>,
    ) -> Option<u32> {
        let accumulate = given.values.get("batch");
        let n = match (shards, implied) {
            (Some(s), Some(a)) if s != a => {
                let at = given.values.get("shards").map_or(Span::default(), |e| e.span);
                let title = format!("`shards` is {s}, and `accumulate` makes {a} pieces");
                self.report(
                    Diagnostic::error("M0507", title)
                        .label(at, "pieces of a batch")
                        .label(accumulate.map_or(at, |e| e.span), "pieces of a batch too")
                        .fix(format!("use {a}, or leave it out"), at, a.to_string()),
                );
                return None;
            }
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) => 8,
        };
        if n > 4096 {
            let at = given.values.get("shards").or(given.values.get("batch"));
            let title = format!("a batch is cut into at most 4096 pieces, not {n}");
            let d = Diagnostic::error("M0112", title);
            self.report(match at {
                Some(e) => d.label(e.span, "too many"),
                None => d,
            });
            return None;
        }
        Some(n as u32)
    }
}

impl Deal {
    /// A batch that the layout divides.
    fn batch(&self, samples: u64, tokens: Option<f64>) -> Batch {
        let micro = match (self.dp, self.microbatches) {
            (Some(dp), Some(m)) => Some(samples / dp.saturating_mul(m).max(1)),
            _ => None,
        };
        let accumulate = micro.and(self.microbatches);
        Batch { samples, micro, accumulate, pieces: None, tokens }
    }
}
