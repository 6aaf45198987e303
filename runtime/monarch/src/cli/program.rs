//! From a command line to a job: the program, the cluster that it shall run on, this machine.

use super::{Failure, args, number, out, text};
use clap::ArgMatches;
use monarch::front::{self, Job};
use monarch_check::{ParamHelp, hir};
use monarch_device::Isa;
use monarch_plan::{Facts, Link, Rates};
use std::path::Path;

/// Reads, checks and plans the program that the command line names.
pub fn load(matches: &ArgMatches, params: &[ParamHelp]) -> Result<Job, Failure> {
    let path = text(matches, "program").unwrap_or_default();
    let given = args::overrides(matches, params);
    let json = matches.get_flag("json");
    front::plan(Path::new(path), &given, args::reserved(), |program| facts(matches, program))
        .map_err(|findings| out::wrong_program(&findings, json))
}

/// The cluster that a command line and a program make of this machine and others.
pub fn facts(matches: &ArgMatches, program: &hir::Program) -> Facts {
    let cluster = cluster(program);
    let workers = workers(matches, cluster);
    Facts {
        workers,
        threads: threads(matches, cluster).unwrap_or_else(|| share(workers)),
        link: match text(matches, "transport") {
            Some("quic") => Link::Quic,
            _ => Link::SharedMemory,
        },
        memory_bytes: memory_bytes(local_workers(matches, cluster)),
        rates: rates(),
    }
}

/// As [`load`], for those who carry the program out: what they would have to ignore is an error.
pub fn load_to_run(matches: &ArgMatches, params: &[ParamHelp]) -> Result<Job, Failure> {
    let job = load(matches, params)?;
    let json = matches.get_flag("json");
    job.runnable().map_err(|findings| out::wrong_program(&findings, json))?;
    Ok(job)
}

fn cluster(program: &hir::Program) -> Option<&hir::Cluster> {
    program.clusters.get(program.job.as_ref()?.cluster?)
}

/// Workers on this machine and others: the command line's, else the program's, else one per core
/// up to the number of shards.
pub fn workers(matches: &ArgMatches, cluster: Option<&hir::Cluster>) -> u32 {
    let here = local_workers(matches, cluster);
    here.saturating_add(joining(matches))
}

/// Workers that other machines bring.
pub fn joining(matches: &ArgMatches) -> u32 {
    matches.try_get_one::<u32>("join").ok().flatten().copied().unwrap_or(0)
}

/// Workers to be started here.
pub fn local_workers(matches: &ArgMatches, cluster: Option<&hir::Cluster>) -> u32 {
    let asked = number(matches, "workers").or(cluster.and_then(|c| c.workers));
    match (asked, joining(matches)) {
        (Some(workers), _) => workers,
        // Whoever waits for other machines starts none here unless told to.
        (None, 1..) => 0,
        (None, 0) => cores().min(4),
    }
}

/// Threads of each worker, where somebody has said.
pub fn threads(matches: &ArgMatches, cluster: Option<&hir::Cluster>) -> Option<u32> {
    number(matches, "threads").or(cluster.and_then(|c| c.threads))
}

/// A worker's share of the machine.
fn share(workers: u32) -> u32 {
    (cores() / workers.max(1)).max(1)
}

/// Rates of a core with this machine's vector instructions: what `cargo bench -p monarch-device`
/// and whole steps of `chargpt` reach on a recent server; the report prints what was assumed.
fn rates() -> Rates {
    let assumed = Rates::default();
    let flops_per_second = match Isa::detect().map(Isa::name) {
        Ok("avx512") => 150e9,
        Ok("scalar") => 1e9,
        _ => assumed.flops_per_second,
    };
    Rates { flops_per_second, ..assumed }
}

/// What each of this machine's workers may use: its share of the machine, all of it, since a plan
/// must not depend on what else runs just now. Unknown for workers of other machines.
pub fn memory_bytes(here: u32) -> Option<u64> {
    if here == 0 {
        return None;
    }
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024 / u64::from(here))
}

/// Processors that this process may use.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}
