//! `monarch plan JOB --search` where no cluster is declared: how this machine's cores are best
//! shared among workers and their threads.

use crate::plan::{Facts, plan};
use crate::report::{bytes, seconds};
use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use serde_json::{Value, json};
use std::fmt::Write;

/// A way to share the cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub workers: u32,
    pub threads: u32,
    pub step_seconds: f64,
    /// Bytes of a worker.
    pub memory: u64,
}

/// Ways to share some cores, the fastest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    pub cores: u32,
    pub best: Vec<Share>,
}

/// Ways shown.
const SHOWN: usize = 10;

/// Plans the job for every count of workers that shares `cores` evenly among them, with the
/// links and rates of `facts`; `machine_bytes` is the memory that all workers share.
///
/// None if there is an error among the diagnostics: then no way fits.
pub fn shares(
    program: &hir::Program,
    facts: &Facts,
    cores: u32,
    machine_bytes: Option<u64>,
) -> (Option<Shares>, Vec<Diagnostic>) {
    let mut best = Vec::new();
    let mut said = Vec::new();
    let most = program.job.as_ref().map_or(1, |j| j.shards);
    for workers in (1..=cores.max(1)).filter(|w| cores.is_multiple_of(*w) && *w <= most) {
        let threads = (cores / workers).max(1);
        let memory_bytes = machine_bytes.map(|all| all / u64::from(workers));
        let (made, diagnostics) =
            plan(program, &Facts { workers, threads, memory_bytes, ..*facts });
        match made {
            Some((_, report)) => best.push(Share {
                workers,
                threads,
                step_seconds: report.time.step(),
                memory: report.memory.total(),
            }),
            None if said.is_empty() => said = diagnostics,
            None => {}
        }
    }
    if best.is_empty() {
        return (None, said);
    }
    best.sort_by(|a, b| {
        let time = a.step_seconds.total_cmp(&b.step_seconds);
        time.then(a.memory.cmp(&b.memory)).then(a.workers.cmp(&b.workers))
    });
    best.truncate(SHOWN);
    (Some(Shares { cores, best }), Vec::new())
}

impl Shares {
    /// The table, and the block of the fastest to paste.
    pub fn text(&self) -> String {
        let mut out = format!("{} cores of this machine\n\n", self.cores);
        let _ =
            writeln!(out, "  {:>10}{:>10}{:>14}{:>12}", "workers", "threads", "a worker", "step");
        for s in &self.best {
            let _ = writeln!(
                out,
                "  {:>10}{:>10}{:>14}{:>12}",
                s.workers,
                s.threads,
                bytes(s.memory),
                seconds(s.step_seconds)
            );
        }
        if let Some(first) = self.best.first() {
            let _ = writeln!(out, "\nthe first one, to paste:\n\n{}", first.block());
        }
        out
    }

    pub fn json(&self) -> Value {
        let best: Vec<Value> = self
            .best
            .iter()
            .map(|s| {
                json!({
                    "workers": s.workers,
                    "threads": s.threads,
                    "step_seconds": s.step_seconds,
                    "peak_memory_bytes": s.memory,
                    "cluster": s.block(),
                })
            })
            .collect();
        json!({ "version": 1, "cores": self.cores, "best": best })
    }
}

impl Share {
    /// A `cluster` block that says this.
    pub fn block(&self) -> String {
        format!("cluster here {{ workers = {}, threads = {} }}", self.workers, self.threads)
    }
}
