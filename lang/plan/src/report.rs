//! What a person reads before a job runs.

use crate::cost::{Link, Memory, Rates, Time, Traffic};
use serde_json::{Value, json};
use std::fmt::Write;

/// The figures of a plan on a given cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Name of the `train` block.
    pub name: String,
    pub workers: u32,
    /// Lanes of each worker.
    pub threads: u32,
    pub link: Link,
    pub shards: u32,
    pub steps: u64,
    /// Samples of a step.
    pub batch: u64,
    pub tokens_per_sample: u64,
    pub rows: u64,
    pub weights: u64,
    /// f32 elements of all weights, and of those that are trained.
    pub parameters: u64,
    pub trainable: u64,
    pub memory: Memory,
    pub time: Time,
    /// Contractions of a whole step, all workers.
    pub flops_per_step: f64,
    /// Share of a step in which a worker of a pipeline would be idle; 0 without a pipeline.
    pub bubble: f64,
    pub traffic: Traffic,
    pub overlap: bool,
    pub buckets: Vec<BucketRow>,
    pub nodes: u64,
    pub tasks: u64,
    pub rates: Rates,
}

/// A bucket in the report.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketRow {
    pub bytes: u64,
    /// Share of backward's time after which it is complete.
    pub ready: f64,
    /// Name of its task.
    pub what: String,
}

impl Report {
    pub fn samples_per_day(&self) -> f64 {
        86_400.0 / self.time.step().max(1e-12) * self.batch as f64
    }

    /// What a day gives, in the unit of the data: tokens of text, else samples.
    pub fn per_day(&self) -> (&'static str, f64) {
        match self.tokens_per_sample {
            0 | 1 => ("samples", self.samples_per_day()),
            n => ("tokens", self.samples_per_day() * n as f64),
        }
    }

    /// `monarch plan job.mon`: five lines to judge by, then the tables.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.job_table(&mut out);
        self.memory_table(&mut out);
        self.traffic_table(&mut out);
        self.bucket_table(&mut out);
        self.assumptions(&mut out);
        out
    }

    fn head(&self, out: &mut String) {
        let (unit, per_day) = self.per_day();
        let devices = format!(
            "{} x {}, over {}",
            plural(u64::from(self.workers), "CPU worker"),
            plural(u64::from(self.threads), "thread"),
            self.link.name()
        );
        let waits = 100.0 * self.time.exposed / self.time.step().max(1e-12);
        line(out, "devices", &devices);
        line(out, "peak memory", &format!("{} a worker", bytes(self.memory.total())));
        line(
            out,
            "step time",
            &format!("{}, {waits:.0} % of it waiting for gradients", seconds(self.time.step())),
        );
        line(out, "bubble", &format!("{:.0} %", 100.0 * self.bubble));
        line(out, &format!("{unit} a day"), &count(per_day));
    }

    fn job_table(&self, out: &mut String) {
        let _ = writeln!(out, "\njob {}", self.name);
        let parameters = match self.parameters == self.trainable {
            true => format!("{} in {}", count(self.parameters as f64), tensors(self.weights)),
            false => format!(
                "{} in {}, {} of them trained",
                count(self.parameters as f64),
                tensors(self.weights),
                count(self.trainable as f64)
            ),
        };
        line(out, "  parameters", &parameters);
        line(out, "  samples", &format!("{} in the data set", group(self.rows)));
        let batch = plural(self.batch, "sample");
        let per_shard = self.batch.div_ceil(u64::from(self.shards.max(1)));
        let at_most = plural(per_shard, "sample");
        line(out, "  batch", &format!("{batch} in {} shards of at most {at_most}", self.shards));
        let hours = self.time.step() * self.steps as f64;
        line(out, "  run", &format!("{}, about {}", plural(self.steps, "step"), seconds(hours)));
        line(out, "  work", &format!("{} a step", flops(self.flops_per_step)));
        line(
            out,
            "  graph",
            &format!("{} nodes, {} tasks a worker", group(self.nodes), group(self.tasks)),
        );
    }

    fn memory_table(&self, out: &mut String) {
        let _ = writeln!(out, "\nmemory of a worker");
        let total = self.memory.total();
        for (name, size) in self.memory.rows() {
            let share = 100.0 * size as f64 / total.max(1) as f64;
            row(out, name, &bytes(size), &format!("{share:>3.0} %"));
        }
        row(out, "total", &bytes(total), "");
    }

    fn traffic_table(&self, out: &mut String) {
        let t = &self.traffic;
        let _ = writeln!(out, "\ntraffic of a step ({})", self.link.name());
        if self.workers < 2 {
            let _ = writeln!(out, "  none: a single worker");
            return;
        }
        let nodes = match t.nodes {
            (a, b) if a == b => plural(a, "partial sum"),
            (a, b) => format!("{a} to {b} partial sums"),
        };
        let sent = |a: u64, b: u64| format!("sent {}, received {}", bytes(a), bytes(b));
        line(out, "  to the owners", &sent(t.scatter_sent, t.scatter_received));
        line(out, "  from the owners", &sent(t.gather_sent, t.gather_received));
        line(out, "  each worker", &format!("publishes {nodes} of its shards"));
        line(out, "  all workers", &bytes(t.total));
        let hidden = f64::max(self.time.communication - self.time.exposed, 0.0);
        line(
            out,
            "  time",
            &format!(
                "{}, {} of it under backward",
                seconds(self.time.communication),
                seconds(hidden)
            ),
        );
    }

    fn bucket_table(&self, out: &mut String) {
        let how = if self.overlap { "while backward goes on" } else { "after backward" };
        let _ = writeln!(out, "\nbuckets, reduced {how}");
        for (i, b) in self.buckets.iter().enumerate() {
            let ready = format!("{:>3.0} % of backward", 100.0 * b.ready);
            let _ = writeln!(out, "  {i:<4} {:>10}   {ready}   {}", bytes(b.bytes), b.what);
        }
    }

    fn assumptions(&self, out: &mut String) {
        let r = &self.rates;
        let rate = |x: f64| format!("{} GB/s", x / 1e9);
        let _ = writeln!(out, "\nassumed, not measured");
        line(out, "  a core", &format!("{} GFLOP/s sustained", r.flops_per_second / 1e9));
        line(out, "  memory", &format!("{} a core", rate(r.memory_bytes_per_second)));
        line(out, "  shared memory", &rate(r.shared_memory_bytes_per_second));
        line(out, "  QUIC", &rate(r.quic_bytes_per_second));
        line(
            out,
            "  a collective",
            &format!("{} before its first byte", seconds(r.collective_seconds)),
        );
        line(out, "  every thread", "has a core of its own");
    }

    /// The same figures for programs; sizes in bytes, times in seconds.
    pub fn json(&self) -> Value {
        let (unit, per_day) = self.per_day();
        let memory: serde_json::Map<String, Value> =
            self.memory.rows().iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
        let t = &self.traffic;
        let buckets: Vec<Value> = self
            .buckets
            .iter()
            .map(|b| json!({ "bytes": b.bytes, "ready": b.ready, "task": b.what }))
            .collect();
        json!({
            "version": 1,
            "name": self.name,
            "devices": {
                "workers": self.workers,
                "threads": self.threads,
                "link": self.link.name(),
            },
            "peak_memory_bytes": self.memory.total(),
            "step_seconds": self.time.step(),
            "bubble": self.bubble,
            "per_day": { "unit": unit, "count": per_day },
            "job": {
                "parameters": self.parameters,
                "trainable": self.trainable,
                "tensors": self.weights,
                "rows": self.rows,
                "batch": self.batch,
                "shards": self.shards,
                "steps": self.steps,
                "flops_per_step": self.flops_per_step,
                "nodes": self.nodes,
                "tasks": self.tasks,
            },
            "memory_bytes": memory,
            "traffic_bytes": {
                "scatter_sent": t.scatter_sent,
                "scatter_received": t.scatter_received,
                "gather_sent": t.gather_sent,
                "gather_received": t.gather_received,
                "total": t.total,
            },
            "seconds": {
                "forward": self.time.forward,
                "backward": self.time.backward,
                "communication": self.time.communication,
                "exposed": self.time.exposed,
                "update": self.time.update,
            },
            "overlap": self.overlap,
            "buckets": buckets,
            "assumed": {
                "flops_per_second": self.rates.flops_per_second,
                "memory_bytes_per_second": self.rates.memory_bytes_per_second,
                "shared_memory_bytes_per_second": self.rates.shared_memory_bytes_per_second,
                "quic_bytes_per_second": self.rates.quic_bytes_per_second,
                "collective_seconds": self.rates.collective_seconds,
            },
        })
    }
}

pub(crate) fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "{name:<18} {value}");
}

fn row(out: &mut String, name: &str, size: &str, share: &str) {
    let text = format!("  {name:<16} {size:>10}   {share}");
    let _ = writeln!(out, "{}", text.trim_end());
}

/// `1 worker`, `8 workers`.
pub(crate) fn plural(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {what}{s}", group(n))
}

fn tensors(n: u64) -> String {
    plural(n, "tensor")
}

/// `1 797`: digits in groups of three.
pub(crate) fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Three significant digits before a unit.
fn short(x: f64) -> String {
    match x {
        x if x >= 99.95 => format!("{x:.0}"),
        x if x >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// `4.62M`.
pub(crate) fn count(x: f64) -> String {
    let units = ["", "k", "M", "B", "T"];
    scaled(x, 1000.0, &units, if x < 1000.0 { 0 } else { 2 })
}

fn scaled(mut x: f64, step: f64, units: &[&str], decimals_below: usize) -> String {
    let mut unit = 0;
    while x >= step * 0.9995 && unit + 1 < units.len() {
        x /= step;
        unit += 1;
    }
    let unit_name = units.get(unit).copied().unwrap_or("");
    match unit {
        0 if decimals_below == 0 => format!("{x:.0}{unit_name}"),
        _ => format!("{}{unit_name}", short(x)),
    }
}

/// `1.50 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"], 0)
}

pub(crate) fn flops(x: f64) -> String {
    scaled(x, 1000.0, &[" FLOP", " kFLOP", " MFLOP", " GFLOP", " TFLOP", " PFLOP"], 0)
}

pub(crate) fn seconds(x: f64) -> String {
    match x {
        x if x < 1e-9 => "0 s".to_owned(),
        x if x < 1e-3 => format!("{} us", short(x * 1e6)),
        x if x < 1.0 => format!("{} ms", short(x * 1e3)),
        x if x < 120.0 => format!("{} s", short(x)),
        x if x < 7200.0 => format!("{} min", short(x / 60.0)),
        x if x < 172_800.0 => format!("{} h", short(x / 3600.0)),
        x => format!("{} days", short(x / 86_400.0)),
    }
}
