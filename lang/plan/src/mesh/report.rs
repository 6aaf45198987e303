//! What a person reads of a plan for declared machines: five lines to judge by, then the tables.

use super::estimate::{Estimate, HOST_LINK, HOST_MEMORY, Stage};
use super::machines::{LATENCY, efficiency};
use super::setup::Setup;
use crate::report::{bytes, count, flops, line, plural, seconds};
use monarch_check::hir::{Float, MeshAxis, PipelineSchedule};
use serde_json::{Value, json};
use std::fmt::Write;

pub(crate) use crate::report::group;

/// The figures of a job on declared machines.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshReport {
    /// Name of the `train` block.
    pub name: String,
    /// Name of the `plan` block, if there is one.
    pub layout: Option<String>,
    /// Kind of the devices.
    pub device: String,
    pub nodes: u32,
    /// Devices of a node.
    pub per_node: u32,
    /// Lengths of pp, dp, cp, ep, tp.
    pub mesh: [u32; 5],
    pub microbatches: u64,
    /// Samples of a step.
    pub batch: u64,
    pub tokens_per_sample: u64,
    /// Samples in the data set.
    pub rows: u64,
    pub steps: u64,
    /// Elements of all weights, and of those that are trained.
    pub parameters: u64,
    pub trainable: u64,
    /// Bytes of a device that a program may use, and all of them.
    pub offered: u64,
    pub memory: u64,
    /// FLOP a second that all devices could do at their peak.
    pub peak_flops_per_second: f64,
    pub estimate: Estimate,
    pub(crate) setup: Setup,
}

impl MeshReport {
    pub fn devices(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.per_node)
    }

    /// Bytes of the fullest device.
    pub fn peak_memory(&self) -> u64 {
        self.estimate.peak()
    }

    /// Seconds of an optimizer step.
    pub fn step_seconds(&self) -> f64 {
        self.estimate.time.step()
    }

    pub fn tokens_per_step(&self) -> u64 {
        self.batch * self.tokens_per_sample.max(1)
    }

    /// What a day gives, in the unit of the data: tokens of text, else samples.
    pub fn per_day(&self) -> (&'static str, f64) {
        let steps = 86_400.0 / self.step_seconds().max(1e-12);
        let unit = if self.tokens_per_sample > 1 { "tokens" } else { "samples" };
        (unit, steps * self.tokens_per_step() as f64)
    }

    /// Model FLOPs utilization: what the model asks for, of the peak of all devices.
    pub fn mfu(&self) -> f64 {
        self.estimate.model_flops / (self.step_seconds() * self.peak_flops_per_second).max(1e-30)
    }

    /// Hardware FLOPs utilization: recomputation counts as well.
    pub fn hfu(&self) -> f64 {
        self.estimate.hardware_flops / (self.step_seconds() * self.peak_flops_per_second).max(1e-30)
    }

    /// Seconds of the whole run.
    pub fn run_seconds(&self) -> f64 {
        self.step_seconds() * self.steps as f64
    }

    /// `monarch plan job.mon`
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.job_table(&mut out);
        self.stage_table(&mut out);
        self.time_table(&mut out);
        self.traffic_table(&mut out);
        self.assumptions(&mut out);
        out
    }

    fn head(&self, out: &mut String) {
        let mesh: Vec<String> = MeshAxis::ALL
            .iter()
            .zip(&self.mesh)
            .filter(|(_, n)| **n > 1)
            .map(|(a, n)| format!("{} {n}", a.name()))
            .collect();
        let mesh = if mesh.is_empty() { String::new() } else { format!(": {}", mesh.join(" x ")) };
        let where_ = match self.nodes {
            1 => format!("{} x {}", self.per_node, self.device),
            n => format!("{} x {}, {n} nodes of {}", self.devices(), self.device, self.per_node),
        };
        line(out, "devices", &format!("{where_}{mesh}"));
        let (peak, share) = (self.peak_memory(), 100.0 / self.offered.max(1) as f64);
        let fullest = match self.estimate.stages.len() {
            1 => String::new(),
            _ => format!(" (stage {})", self.estimate.fullest()),
        };
        let of = format!("{:.0} % of the {} it offers", share * peak as f64, bytes(self.offered));
        line(out, "peak memory", &format!("{} a device{fullest}, {of}", bytes(peak)));
        let mfu = format!("{:.1} % of the peak (MFU)", 100.0 * self.mfu());
        line(out, "step time", &format!("{}, {mfu}", seconds(self.step_seconds())));
        line(out, "bubble", &format!("{:.1} %", 100.0 * self.estimate.bubble));
        let (unit, per_day) = self.per_day();
        let run = format!("{} for the run", seconds(self.run_seconds()));
        line(out, &format!("{unit} a day"), &format!("{}, {run}", count(per_day)));
    }

    fn job_table(&self, out: &mut String) {
        let on = self.layout.as_ref().map_or(String::new(), |l| format!(" on {l}"));
        let _ = writeln!(out, "\njob {}{on}", self.name);
        let trained = match self.parameters == self.trainable {
            true => String::new(),
            false => format!(", {} of them trained", count(self.trainable as f64)),
        };
        line(out, "  parameters", &format!("{}{trained}", count(self.parameters as f64)));
        let batch = match self.tokens_per_sample {
            0 | 1 => plural(self.batch, "sample"),
            n => format!("{} = {} tokens", plural(self.batch, "sample"), group(self.batch * n)),
        };
        line(out, "  batch", &batch);
        let dp = self.mesh.get(1).copied().unwrap_or(1);
        let micro = plural(self.estimate.micro_samples, "sample");
        let shape = format!("{dp} x {} x {micro}", plural(self.microbatches, "micro-batch"));
        line(out, "  split", &shape.replace("batchs", "batches"));
        let steps = format!("{}, {}", plural(self.steps, "step"), seconds(self.run_seconds()));
        line(out, "  run", &steps);
        let e = &self.estimate;
        let per = match self.tokens_per_sample {
            0 | 1 => format!("{} a sample", flops(e.model_flops / self.batch.max(1) as f64)),
            _ => format!("{} a token", flops(e.model_flops / self.tokens_per_step().max(1) as f64)),
        };
        let attention = 100.0 * e.attention_flops / e.model_flops.max(1.0);
        line(
            out,
            "  work",
            &format!("{} a step, {per}; {attention:.0} % attention", flops(e.model_flops)),
        );
        let again = 100.0 * (e.hardware_flops / e.model_flops.max(1.0) - 1.0);
        line(out, "  done again", &format!("{again:.0} % more (HFU {:.1} %)", 100.0 * self.hfu()));
    }

    fn stage_table(&self, out: &mut String) {
        let _ = writeln!(out, "\nmemory of a device, by stage");
        let stages = self.grouped();
        let head: Vec<String> = stages.iter().map(|(name, _)| format!("{name:>12}")).collect();
        let _ = writeln!(out, "  {:<16}{}", "", head.join(""));
        let mut row = |name: &str, cell: &dyn Fn(&Stage) -> String| {
            let cells: Vec<String> =
                stages.iter().map(|(_, s)| format!("{:>12}", cell(s))).collect();
            let _ = writeln!(out, "  {name:<16}{}", cells.join(""));
        };
        if self.setup.split.is_some() {
            row("blocks", &|s| s.blocks.to_string());
        }
        for i in 0..7 {
            let name = |s: &Stage| s.memory.rows().get(i).copied().unwrap_or(("", 0));
            let label = stages.first().map_or("", |(_, s)| name(s).0);
            if stages.iter().any(|(_, s)| name(s).1 > 0) {
                row(label, &|s| bytes(name(s).1));
            }
        }
        row("total", &|s| bytes(s.memory.total()));
        if stages.iter().any(|(_, s)| s.memory.offloaded > 0) {
            row("on the host", &|s| bytes(s.memory.offloaded));
        }
        row("in flight", &|s| trimmed(s.in_flight));
        row("forward", &|s| seconds(s.forward));
        row("backward", &|s| seconds(s.backward));
        row("idle", &|s| format!("{:.1} %", 100.0 * s.idle));
    }

    /// Neighbouring stages with equal rows as one column, so that 64 stages fit a screen.
    fn grouped(&self) -> Vec<(String, &Stage)> {
        let stages = &self.estimate.stages;
        let mut out: Vec<(usize, usize, &Stage)> = Vec::new();
        for (i, stage) in stages.iter().enumerate() {
            match out.last_mut() {
                Some((_, end, first)) if *first == stage => *end = i,
                _ => out.push((i, i, stage)),
            }
        }
        // At most seven columns: the first, the last and the fullest say most.
        if out.len() > 7 {
            let fullest = self.estimate.fullest();
            let wanted = [0, 1, 2, stages.len() - 2, stages.len() - 1, fullest];
            out.retain(|(a, b, _)| wanted.iter().any(|w| (*a..=*b).contains(w)));
        }
        let name = |(a, b, s): (usize, usize, _)| match a == b {
            true => (format!("stage {a}"), s),
            false => (format!("{a} to {b}"), s),
        };
        out.into_iter().map(name).collect()
    }

    fn time_table(&self, out: &mut String) {
        let t = &self.estimate.time;
        let _ = writeln!(out, "\ntime of a step (busiest stage)");
        let total = t.step().max(1e-12);
        let mut row = |name: &str, value: f64| {
            if value > 1e-9 {
                let share = format!("{:>5.1} %", 100.0 * value / total);
                let _ = writeln!(out, "  {name:<30}{:>10}   {share}", seconds(value));
            }
        };
        row("kernels", t.compute);
        row("collectives within layers", t.layers);
        row("waiting for other stages", t.waiting);
        row("gradients, exposed", t.gradients_exposed);
        row("weights to replicas", t.weights_exposed);
        row("optimizer", t.update);
        row("total", t.step());
    }

    fn traffic_table(&self, out: &mut String) {
        let _ = writeln!(out, "\nsent by a device in a step");
        if self.estimate.traffic.is_empty() {
            let _ = writeln!(out, "  nothing");
        }
        for row in &self.estimate.traffic {
            let link = if row.crosses { "between nodes" } else { "in a node" };
            let size = bytes(row.bytes as u64);
            let name = row.axis.name();
            let _ = writeln!(out, "  {name:<4}{size:>10}   {link:<14} {}", row.what);
        }
        if self.estimate.time.gradients > 0.0 {
            let size = bytes(self.estimate.bucket);
            let all = seconds(self.estimate.time.gradients);
            let chosen = match self.setup.overlap.bucket_bytes {
                Some(_) => "as asked",
                None => "chosen",
            };
            line(out, "  buckets", &format!("{size}, {chosen}; {all} for all gradients"));
        }
    }

    fn assumptions(&self, out: &mut String) {
        let (s, m) = (&self.setup, &self.setup.machine);
        let _ = writeln!(out, "\nassumed, not measured");
        let precision = s.precision.weights;
        let name = match precision {
            Float::F32 => "f32",
            Float::Bf16 => "bf16",
            Float::F16 => "f16",
        };
        let rate = |x: f64| format!("{:.0} TFLOP/s", x / 1e12);
        let achieved =
            format!("{} of {} ({name})", rate(m.achieved(precision)), rate(m.peak(precision)));
        line(out, "  matrix products", &achieved);
        let share = 100.0 * m.bandwidth_share;
        line(out, "  memory", &format!("{share:.0} % of {:.2} TB/s", m.bandwidth / 1e12));
        line(out, "  kept free", &format!("{} for {}", bytes(m.reserved), m.reserved_for));
        line(out, "  in a node", &format!("{:.0} GB/s a device and direction", s.intra / 1e9));
        if s.nodes > 1 {
            line(out, "  between nodes", &format!("{:.0} GB/s a device", s.inter / 1e9));
        }
        let of = |b: f64| format!("{:.0} %", 100.0 * efficiency(b));
        line(
            out,
            "  collectives",
            &format!(
                "{} of a link at 1 MB, {} at 64, {} at 256; {} before the first byte",
                of(1e6),
                of(64e6),
                of(256e6),
                seconds(LATENCY)
            ),
        );
        if m.flash {
            let share = 100.0 * m.attention_share;
            let text = "fused: scores are computed twice and never kept";
            line(out, "  attention", &format!("{text}; {share:.0} % of that rate"));
        }
        line(out, "  elementwise", "chains of operations are one kernel and keep their inputs");
        line(out, "  work", "a causal mask halves attention; a multiply-add is 2 operations");
        line(out, "  schedule", &self.schedule());
        if s.overlap.tp && s.length(MeshAxis::Tp) > 1 {
            line(out, "  overlap tp", "collectives in 8 parts under the kernels of their layer");
        }
        if s.offload.optimizer {
            let rates = (HOST_LINK / 1e9, HOST_MEMORY / 1e9);
            line(
                out,
                "  host",
                &format!("{} GB/s link, {} GB/s memory a device", rates.0, rates.1),
            );
        }
        line(out, "  source", m.source);
    }

    fn schedule(&self) -> String {
        match self.setup.schedule {
            _ if self.setup.stages() < 2 => "one stage: micro-batches one after another".into(),
            PipelineSchedule::GPipe => "GPipe, simulated".into(),
            PipelineSchedule::OneFOneB => "1F1B, simulated".into(),
            PipelineSchedule::Interleaved { chunks } => {
                format!("interleaved 1F1B, {chunks} chunks a stage, simulated")
            }
            PipelineSchedule::ZeroBubbleH1 => "ZB-H1, simulated".into(),
        }
    }

    /// The same figures for programs; sizes in bytes, times in seconds.
    pub fn json(&self) -> Value {
        let e = &self.estimate;
        let (unit, per_day) = self.per_day();
        let mesh: serde_json::Map<String, Value> = MeshAxis::ALL
            .iter()
            .zip(&self.mesh)
            .map(|(a, n)| (a.name().to_owned(), json!(n)))
            .collect();
        json!({
            "version": 1,
            "name": self.name,
            "layout": self.layout,
            "devices": {
                "kind": self.device,
                "nodes": self.nodes,
                "per_node": self.per_node,
                "mesh": mesh,
                "memory_bytes": self.memory,
                "offered_bytes": self.offered,
            },
            "peak_memory_bytes": self.peak_memory(),
            "step_seconds": self.step_seconds(),
            "bubble": e.bubble,
            "per_day": { "unit": unit, "count": per_day },
            "run_seconds": self.run_seconds(),
            "mfu": self.mfu(),
            "hfu": self.hfu(),
            "job": {
                "parameters": self.parameters,
                "trainable": self.trainable,
                "rows": self.rows,
                "batch": self.batch,
                "tokens_per_sample": self.tokens_per_sample,
                "microbatches": self.microbatches,
                "micro_samples": e.micro_samples,
                "steps": self.steps,
                "flops_per_step": e.model_flops,
                "attention_flops_per_step": e.attention_flops,
                "hardware_flops_per_step": e.hardware_flops,
            },
            "stages": e.stages.iter().map(stage_json).collect::<Vec<_>>(),
            "seconds": {
                "pipeline": e.time.pipeline,
                "kernels": e.time.compute,
                "layers": e.time.layers,
                "waiting": e.time.waiting,
                "gradients": e.time.gradients,
                "gradients_exposed": e.time.gradients_exposed,
                "weights_exposed": e.time.weights_exposed,
                "update": e.time.update,
            },
            "traffic": e.traffic.iter().map(|t| json!({
                "axis": t.axis.name(),
                "what": t.what,
                "bytes": t.bytes,
                "between_nodes": t.crosses,
            })).collect::<Vec<_>>(),
            "bucket_bytes": e.bucket,
            "assumed": self.assumed_json(),
        })
    }

    fn assumed_json(&self) -> Value {
        let (s, m) = (&self.setup, &self.setup.machine);
        json!({
            "matrix_flops_per_second": m.achieved(s.precision.weights),
            "peak_flops_per_second": m.peak(s.precision.weights),
            "memory_bytes_per_second": m.bandwidth * m.bandwidth_share,
            "reserved_bytes": m.reserved,
            "intra_bytes_per_second": s.intra,
            "inter_bytes_per_second": s.inter,
            "collective_seconds": LATENCY,
            "collective_share": { "1e6": efficiency(1e6), "64e6": efficiency(64e6),
                "256e6": efficiency(256e6) },
            "fused_attention": m.flash,
            "attention_share": m.attention_share,
            "source": m.source,
        })
    }
}

fn stage_json(s: &Stage) -> Value {
    let memory: serde_json::Map<String, Value> =
        s.memory.rows().iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
    json!({
        "blocks": s.blocks,
        "weights": s.weights,
        "memory_bytes": memory,
        "total_bytes": s.memory.total(),
        "offloaded_bytes": s.memory.offloaded,
        "in_flight": s.in_flight,
        "forward_seconds": s.forward,
        "backward_seconds": s.backward,
        "idle": s.idle,
    })
}

/// `2`, `2.5`
fn trimmed(x: f64) -> String {
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
