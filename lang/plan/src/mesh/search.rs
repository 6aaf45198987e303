//! `monarch plan JOB --search`: the layouts that fit, the fastest first.
//!
//! Every mesh of the declared devices whose lengths divide what they must, with tensor parallel
//! inside a node, stages that share the blocks evenly, micro-batches by powers of two, ZeRO 0, 1
//! and 3, and recomputation of nothing, of what the program recomputes, or of every block. Each is
//! planned as any other plan; those that do not fit are dropped. Equally fast ones are ordered by
//! memory, then by their numbers, so the answer is the same every time.

use super::estimate::{Estimate, Source, estimate_divided};
use super::fit::offered;
use super::resolve::{Wish, resolve};
use super::setup::Setup;
use super::shard::{Division, Lengths, Sharded, index, shard};
use super::words::Words;
use crate::report::{bytes, seconds};
use monarch_check::hir::{self, Float, MeshAxis, PipelineSchedule, Precision};
use monarch_diagnostic::Diagnostic;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Layouts shown.
const SHOWN: usize = 10;

/// A layout that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Lengths of pp, dp, cp, ep, tp.
    pub mesh: [u32; 5],
    pub microbatches: u64,
    pub zero: u8,
    /// As in the program: `llm.blocks.*`; empty for nothing.
    pub recompute: String,
    pub peak_memory: u64,
    pub step_seconds: f64,
    pub bubble: f64,
    /// A `plan` block that says this.
    pub block: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    pub devices: u64,
    pub device: String,
    /// Layouts planned, and those that fit.
    pub planned: usize,
    pub fitting: usize,
    /// Bytes that a device offers.
    pub offered: u64,
    /// The best, the fastest first.
    pub best: Vec<Candidate>,
    /// The step of the program's own layout, if it has one that fits.
    pub own_seconds: Option<f64>,
}

/// Searches the layouts of `program`'s job on the devices that it declares or `wish` names.
///
/// None if there is an error among the diagnostics.
pub fn search(program: &hir::Program, wish: &Wish) -> (Option<Search>, Vec<Diagnostic>) {
    let mut out = Vec::new();
    let Some(job) = &program.job else {
        out.push(crate::plan::no_job());
        return (None, out);
    };
    let found = search_job(program, job, wish, &mut out);
    let good = out.iter().all(|d| !d.is_error());
    (found.filter(|_| good), out)
}

fn search_job(
    program: &hir::Program,
    job: &hir::Job,
    wish: &Wish,
    out: &mut Vec<Diagnostic>,
) -> Option<Search> {
    // The layout's own mesh may be what is wrong: it is replaced.
    let mut open = program.clone();
    for layout in &mut open.layouts {
        layout.mesh.axes.clear();
        layout.pipeline = None;
    }
    let wide = Wish { axes: vec![(MeshAxis::Dp, devices(program, wish))], ..wish.clone() };
    let resolved = resolve(&open, open.job.as_ref()?, &wide, out)?;
    let source = match super::source(program, job) {
        Ok(source) => source,
        Err(error) => {
            out.push(error);
            return None;
        }
    };
    let own = super::plan(program, wish).0.map(|r| r.step_seconds());
    let words = Words { program, ..resolved.words };
    let space = Space::new(program, job, &source, &resolved.setup);
    let mut found = space.all(&words);
    let planned = found.planned;
    found.fits.sort_by(order);
    let fitting = found.fits.len();
    let setup = &resolved.setup;
    if fitting == 0 {
        let title =
            format!("none of {planned} layouts fits {} x {}", setup.devices(), setup.machine.name);
        let d = Diagnostic::error("M0402", title).label(job.span, "with this batch and model");
        out.push(d.help("use more or larger devices, a smaller batch or a smaller model"));
        return None;
    }
    found.fits.truncate(SHOWN);
    Some(Search {
        devices: setup.devices(),
        device: setup.machine.name.to_owned(),
        planned,
        fitting,
        offered: offered(setup),
        best: found.fits,
        own_seconds: own,
    })
}

fn devices(program: &hir::Program, wish: &Wish) -> u32 {
    if let Some((_, count)) = &wish.device {
        return (*count).max(1);
    }
    let job = program.job.as_ref();
    let layout = job.and_then(|j| j.layout).and_then(|l| program.layouts.get(l));
    let cluster = layout.and_then(|l| l.cluster).or(job.and_then(|j| j.cluster));
    let Some(cluster) = cluster.and_then(|c| program.clusters.get(c)) else { return 1 };
    match &cluster.device {
        Some(device) => (cluster.nodes.len().max(1) as u32).saturating_mul(device.count.max(1)),
        None => cluster.workers.unwrap_or(1).max(1),
    }
}

fn order(a: &Candidate, b: &Candidate) -> Ordering {
    a.step_seconds
        .total_cmp(&b.step_seconds)
        .then(a.peak_memory.cmp(&b.peak_memory))
        .then(a.mesh.cmp(&b.mesh))
        .then(a.microbatches.cmp(&b.microbatches))
        .then(a.zero.cmp(&b.zero))
        .then(a.recompute.cmp(&b.recompute))
}

struct Found {
    planned: usize,
    fits: Vec<Candidate>,
}

/// What a search chooses from.
struct Space<'a> {
    source: &'a Source<'a>,
    base: Setup,
    model: String,
    /// The most repeated sublayer of the root: path and copies.
    split: Option<(String, u64)>,
    /// Axes for `tp`, with the sizes that it must divide.
    widths: Vec<(&'static str, Vec<u64>)>,
    /// Length of the sequence, if there is one.
    sequence: Option<u64>,
    /// Patterns and their paths.
    recompute: Vec<(String, Vec<String>)>,
}

impl<'a> Space<'a> {
    fn new(
        program: &hir::Program,
        job: &hir::Job,
        source: &'a Source<'a>,
        setup: &Setup,
    ) -> Space<'a> {
        let model = program.model(job.model);
        let layout = job.layout.and_then(|l| program.layouts.get(l));
        let own = layout.and_then(|l| l.pipeline.as_ref()).map(|p| p.split.clone());
        let split = model.and_then(|m| repeated(program, m, own.as_deref()));
        let name = model.map_or("model", |m| m.name.as_str()).to_owned();
        let sizes = |axis: &str| -> Vec<u64> {
            super::judge::sizes(program, job, source, axis).into_iter().collect()
        };
        let widths = ["H", "G", "F", "V"].into_iter().map(|a| (a, sizes(a)));
        let widths = widths.filter(|(_, sizes)| !sizes.is_empty()).collect();
        let sequence = sizes("T").into_iter().min();
        let mut recompute = vec![(String::new(), Vec::new())];
        if let Some(layout) = layout.filter(|l| !l.recompute.is_empty()) {
            let words = Words { program, job, layout: Some(layout), cluster: None };
            let patterns: Vec<&str> =
                layout.recompute.iter().map(|r| words.written(r.span)).collect();
            recompute.push((patterns.join(", "), setup.recompute.clone()));
        }
        if let Some((split, blocks)) = &split {
            let paths = (0..*blocks).map(|i| format!("{split}.{i}")).collect();
            let all = (format!("{name}.{split}.*"), paths);
            if recompute.iter().all(|r| r.0 != all.0) {
                recompute.push(all);
            }
        }
        let mut base = setup.clone();
        base.schedule = layout
            .and_then(|l| l.pipeline.as_ref())
            .map_or(PipelineSchedule::OneFOneB, |p| p.schedule);
        base.overlap.bucket_bytes = None;
        Space { source, base, model: name, split, widths, sequence, recompute }
    }

    fn all(&self, words: &Words) -> Found {
        let mut found = Found { planned: 0, fits: Vec::new() };
        let total = self.base.devices() as u32;
        let divisors = |n: u32| (1..=n).filter(move |d| n.is_multiple_of(*d));
        let mut divided: BTreeMap<Lengths, (Setup, Sharded)> = BTreeMap::new();
        for tp in divisors(self.base.per_node).filter(|t| self.allows(*t)) {
            for pp in divisors(total).filter(|p| self.stages(*p)) {
                for cp in [1, 2, 4, 8].into_iter().filter(|c| self.parts(*c)) {
                    let Some(rest) = total
                        .checked_div(tp * pp * cp)
                        .filter(|r| *r > 0 && r * tp * pp * cp == total)
                    else {
                        continue;
                    };
                    let mut lengths = [1; 5];
                    lengths[index(MeshAxis::Pp)] = pp;
                    lengths[index(MeshAxis::Dp)] = rest;
                    lengths[index(MeshAxis::Cp)] = cp;
                    lengths[index(MeshAxis::Tp)] = tp;
                    // Stages and replicas divide no tensor.
                    let mut key = lengths;
                    key[index(MeshAxis::Pp)] = 1;
                    key[index(MeshAxis::Dp)] = 1;
                    let setup = self.setup(lengths);
                    let (_, sharded) = divided.entry(key).or_insert_with(|| {
                        let sharded = self.divide(&setup);
                        (setup.clone(), sharded)
                    });
                    self.counts(&setup, sharded, words, &mut found);
                }
            }
        }
        found
    }

    fn divide(&self, setup: &Setup) -> Sharded {
        let division =
            Division { lengths: setup.lengths, shard: &setup.shard, sequence: setup.sequence };
        shard(&self.source.traced, &division)
    }

    fn allows(&self, tp: u32) -> bool {
        let tp = u64::from(tp);
        let all = self.widths.iter().flat_map(|(_, sizes)| sizes);
        let whole = all.clone().all(|n| n.is_multiple_of(tp));
        tp == 1 || (whole && all.count() > 0)
    }

    fn stages(&self, pp: u32) -> bool {
        match &self.split {
            Some((_, blocks)) => {
                let chunks = super::pipeline::chunks(self.base.schedule);
                pp == 1 || blocks.is_multiple_of(u64::from(pp * chunks))
            }
            None => pp == 1,
        }
    }

    /// Long sequences only: short ones leave the links with more to do than the devices.
    fn parts(&self, cp: u32) -> bool {
        let least = 8192;
        cp == 1 || self.sequence.is_some_and(|t| t / u64::from(cp) >= least)
    }

    fn setup(&self, lengths: Lengths) -> Setup {
        let tp = lengths[index(MeshAxis::Tp)];
        let mut shard = vec![("B".to_owned(), MeshAxis::Dp)];
        if tp > 1 {
            shard.extend(self.widths.iter().map(|(a, _)| ((*a).to_owned(), MeshAxis::Tp)));
        }
        if lengths[index(MeshAxis::Cp)] > 1 {
            shard.push(("T".to_owned(), MeshAxis::Cp));
        }
        let even = self.sequence.is_some_and(|t| t.is_multiple_of(u64::from(tp)));
        let sequence = (tp > 1 && even).then_some(MeshAxis::Tp);
        let piped = lengths[index(MeshAxis::Pp)] > 1;
        let split = self.split.clone();
        let schedule = if piped { self.base.schedule } else { PipelineSchedule::OneFOneB };
        Setup { lengths, shard, sequence, split, schedule, ..self.base.clone() }
    }

    /// Micro-batches, ZeRO and recomputation for one mesh.
    fn counts(&self, setup: &Setup, sharded: &Sharded, words: &Words, found: &mut Found) {
        let replicas = setup.replicas();
        if !setup.batch.is_multiple_of(replicas) {
            return;
        }
        let each = setup.batch / replicas;
        let zeros: &[u8] = if replicas > 1 { &[0, 1, 3] } else { &[0] };
        let mut samples = 1;
        while samples <= each {
            if each.is_multiple_of(samples) {
                let microbatches = each / samples;
                let mut any = false;
                for &zero in zeros {
                    for (pattern, paths) in &self.recompute {
                        let setup =
                            Setup { microbatches, zero, recompute: paths.clone(), ..setup.clone() };
                        any |= self.consider(setup, pattern, sharded, words, found);
                    }
                }
                // Larger micro-batches need more memory still.
                if !any {
                    return;
                }
            }
            samples *= 2;
        }
    }

    fn consider(
        &self,
        setup: Setup,
        pattern: &str,
        sharded: &Sharded,
        words: &Words,
        found: &mut Found,
    ) -> bool {
        let interleaved = matches!(setup.schedule, PipelineSchedule::Interleaved { .. });
        if interleaved && !setup.microbatches.is_multiple_of(setup.stages()) {
            return true;
        }
        let Ok(estimate) = estimate_divided(self.source, &setup, sharded) else { return true };
        found.planned += 1;
        if estimate.peak() > offered(&setup) {
            return false;
        }
        found.fits.push(self.candidate(&setup, pattern, &estimate, words));
        true
    }

    fn candidate(
        &self,
        setup: &Setup,
        pattern: &str,
        estimate: &Estimate,
        words: &Words,
    ) -> Candidate {
        Candidate {
            mesh: setup.lengths,
            microbatches: setup.microbatches,
            zero: setup.zero,
            recompute: pattern.to_owned(),
            peak_memory: estimate.peak(),
            step_seconds: estimate.time.step(),
            bubble: estimate.bubble,
            block: self.block(setup, pattern, words),
        }
    }

    /// The layout as text.
    fn block(&self, setup: &Setup, pattern: &str, words: &Words) -> String {
        let name = words.layout.map_or("found", |l| l.name.as_str());
        let mut out = String::new();
        let on = match words.cluster {
            Some(cluster) => cluster.name.clone(),
            None => {
                let device = format!("{} {{ count = {} }}", setup.machine.name, setup.per_node);
                let _ = writeln!(out, "cluster box {{ device = {device} }}");
                "box".to_owned()
            }
        };
        let _ = writeln!(out, "plan {name} on {on} {{");
        let axes: Vec<String> = MeshAxis::ALL
            .iter()
            .zip(&setup.lengths)
            .filter(|(a, n)| **n > 1 || matches!(a, MeshAxis::Pp | MeshAxis::Dp))
            .map(|(a, n)| format!("{} = {n}", a.name()))
            .collect();
        let _ = writeln!(out, "  mesh      = {{ {} }}", axes.join(", "));
        let shard: Vec<String> =
            setup.shard.iter().map(|(axis, over)| format!("{axis} -> {}", over.name())).collect();
        let _ = writeln!(out, "  shard     {{ {} }}", shard.join(", "));
        if setup.sequence.is_some() {
            let _ = writeln!(out, "  sequence  = tp");
        }
        if let Some((split, _)) = &setup.split {
            let schedule = match setup.schedule {
                PipelineSchedule::GPipe => "\"gpipe\"".to_owned(),
                PipelineSchedule::OneFOneB => "\"1f1b\"".to_owned(),
                PipelineSchedule::Interleaved { chunks } => {
                    format!("\"interleaved\", chunks = {chunks}")
                }
                PipelineSchedule::ZeroBubbleH1 => "\"zb-h1\"".to_owned(),
            };
            let micro = setup.microbatches;
            let _ = writeln!(
                out,
                "  pipeline  {{ split = {}.{split}, over = pp, schedule = {schedule}, \
                 microbatches = {micro} }}",
                self.model
            );
        }
        if setup.split.is_none() && setup.microbatches > 1 {
            let micro = setup.micro_samples().unwrap_or(1);
            let accumulate = setup.microbatches;
            let _ = writeln!(
                out,
                "  # and in `train`: batch = {{ micro = {micro}, accumulate = {accumulate} }}"
            );
        }
        if setup.zero > 0 {
            let _ = writeln!(out, "  zero      {{ stage = {}, over = dp }}", setup.zero);
        }
        if !pattern.is_empty() {
            let _ = writeln!(out, "  recompute = [{pattern}]");
        }
        self.rest(setup, &mut out);
        out.push('}');
        out
    }

    /// What a search leaves as it is.
    fn rest(&self, setup: &Setup, out: &mut String) {
        let name = |f: Float| match f {
            Float::F32 => "f32",
            Float::Bf16 => "bf16",
            Float::F16 => "f16",
        };
        let p = setup.precision;
        if p != Precision::default() {
            let (w, g, o) = (name(p.weights), name(p.grads), name(p.optimizer));
            let _ =
                writeln!(out, "  precision = {{ weights = {w}, grads = {g}, optimizer = {o} }}");
        }
        if setup.offload.optimizer {
            let _ = writeln!(out, "  offload   = {{ optimizer = always }}");
        }
        if setup.overlap.tp && setup.length(MeshAxis::Tp) > 1 {
            let _ = writeln!(out, "  overlap   {{ tp = true }}");
        }
    }
}

/// The sublayer that stages can share: the layout's own, else the root's most repeated one.
fn repeated(
    program: &hir::Program,
    model: &hir::Model,
    own: Option<&str>,
) -> Option<(String, u64)> {
    let layer = program.layer(model.root.layer)?;
    let copies = layer.subs.iter().zip(&model.root.subs);
    let copies = copies.filter(|(def, _)| def.repeat.is_some());
    let all = copies.map(|(def, found)| (def.name.clone(), found.len() as u64));
    let mut best: Option<(String, u64)> = None;
    for (name, n) in all.filter(|(_, n)| *n > 1) {
        if own.is_some_and(|o| o == name) {
            return Some((name, n));
        }
        if best.as_ref().is_none_or(|b| n > b.1) {
            best = Some((name, n));
        }
    }
    best
}

impl Search {
    /// The table, and the block of the fastest to paste.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} x {}: {} layouts planned, {} fit {} a device\n",
            self.devices,
            self.device,
            self.planned,
            self.fitting,
            bytes(self.offered)
        );
        let _ = writeln!(
            out,
            "  {:<4}{:>4}{:>6}{:>4}{:>4}{:>8}{:>6}  {:<24}{:>10}{:>8}{:>10}",
            "", "pp", "dp", "cp", "tp", "micro", "zero", "recompute", "memory", "bubble", "step"
        );
        for (i, c) in self.best.iter().enumerate() {
            let [pp, dp, cp, _, tp] = c.mesh;
            let again = if c.recompute.is_empty() { "nothing" } else { &c.recompute };
            let _ = writeln!(
                out,
                "  {:<4}{pp:>4}{dp:>6}{cp:>4}{tp:>4}{:>8}{:>6}  {again:<24}{:>10}{:>7.1}%{:>10}",
                i + 1,
                c.microbatches,
                c.zero,
                bytes(c.peak_memory),
                100.0 * c.bubble,
                seconds(c.step_seconds)
            );
        }
        if let (Some(own), Some(best)) = (self.own_seconds, self.best.first()) {
            let share = 100.0 * (own / best.step_seconds.max(1e-12) - 1.0);
            let text = match share {
                s if s < 0.05 => "as fast as the first".to_owned(),
                s => format!("the first is {s:.1} % faster"),
            };
            let _ =
                writeln!(out, "\nthe program's own layout takes {} a step: {text}", seconds(own));
        }
        if let Some(best) = self.best.first() {
            let _ = writeln!(out, "\nthe first one, to paste:\n\n{}", best.block);
        }
        out
    }

    pub fn json(&self) -> Value {
        let best: Vec<Value> = self.best.iter().map(Candidate::json).collect();
        json!({
            "version": 1,
            "devices": self.devices,
            "device": self.device,
            "planned": self.planned,
            "fitting": self.fitting,
            "offered_bytes": self.offered,
            "own_step_seconds": self.own_seconds,
            "best": best,
        })
    }
}

impl Candidate {
    fn json(&self) -> Value {
        let mesh: serde_json::Map<String, Value> = MeshAxis::ALL
            .iter()
            .zip(&self.mesh)
            .map(|(a, n)| (a.name().to_owned(), json!(n)))
            .collect();
        json!({
            "mesh": mesh,
            "microbatches": self.microbatches,
            "zero": self.zero,
            "recompute": self.recompute,
            "peak_memory_bytes": self.peak_memory,
            "step_seconds": self.step_seconds,
            "bubble": self.bubble,
            "plan": self.block,
        })
    }
}
