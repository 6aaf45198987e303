//! From a command line to a job: the program, the cluster that it shall run on, this machine.

use super::{Failure, args, number, out, text};
use clap::ArgMatches;
use monarch::front::{self, Job};
use monarch_check::{ParamHelp, hir};
use monarch_device::Isa;
use monarch_plan::{Facts, Link, Rates};
use std::path::Path;

/// The cluster that a command line and a program make of this machine and others.
pub fn facts(matches: &ArgMatches, program: &hir::Program) -> Facts {
    let cluster = cluster(program);
    let workers = all_workers(matches, program);
    Facts {
        workers,
        threads: threads(matches, cluster).unwrap_or_else(|| share(workers)),
        link: match text(matches, "transport") {
            Some("quic") => Link::Quic,
            _ => Link::SharedMemory,
        },
        memory_bytes: memory_bytes(local_workers(matches, program)),
        rates: rates(),
    }
}

/// Reads, checks and plans the program that the command line names, to carry it out: what a run
/// would have to ignore is an error.
pub fn load_to_run(matches: &ArgMatches, params: &[ParamHelp]) -> Result<Job, Failure> {
    let path = Path::new(text(matches, "program").unwrap_or_default());
    let given = args::overrides(matches, params);
    let json = matches.get_flag("json");
    let facts = |program: &hir::Program| facts(matches, program);
    let job = front::plan_to_run(path, &given, args::reserved(), facts)
        .map_err(|findings| out::wrong_program(&findings, json))?;
    replicas_as_laid_out(matches, &job)?;
    Ok(job)
}

/// Replicas that the job's layout asks for: `mesh = { dp = 4 }`.
fn replicas(program: &hir::Program) -> Option<u32> {
    let layout = program.layouts.get(program.job.as_ref()?.layout?)?;
    layout.mesh.axes.iter().find(|a| a.axis == hir::MeshAxis::Dp)?.length
}

/// A layout is not bent to a command line.
fn replicas_as_laid_out(matches: &ArgMatches, job: &Job) -> Result<(), Failure> {
    let Some(replicas) = replicas(&job.program) else { return Ok(()) };
    let workers = all_workers(matches, &job.program);
    if workers == replicas {
        return Ok(());
    }
    let layout = job.program.job.as_ref().and_then(|j| job.program.layouts.get(j.layout?));
    let name = layout.map_or("", |l| l.name.as_str());
    Err(Failure::wrong(format!(
        "{workers} workers cannot be the {replicas} replicas of plan `{name}` (`dp = {replicas}`): \
         leave `--workers` out, or say `dp = _` and leave `device` out"
    )))
}

fn cluster(program: &hir::Program) -> Option<&hir::Cluster> {
    program.clusters.get(program.job.as_ref()?.cluster?)
}

/// Workers on this machine and others.
fn all_workers(matches: &ArgMatches, program: &hir::Program) -> u32 {
    local_workers(matches, program).saturating_add(joining(matches))
}

/// Workers that other machines bring.
pub fn joining(matches: &ArgMatches) -> u32 {
    matches.try_get_one::<u32>("join").ok().flatten().copied().unwrap_or(0)
}

/// Workers to be started here: the command line's, else those of the job's layout, else the
/// cluster's, else one per core up to four.
pub fn local_workers(matches: &ArgMatches, program: &hir::Program) -> u32 {
    let declared = cluster(program).and_then(|c| match &c.device {
        Some(device) => (device.kind == "CPU").then(|| c.devices()).flatten(),
        None => c.workers.map(u64::from),
    });
    let declared = declared.and_then(|n| u32::try_from(n).ok());
    match (number(matches, "workers"), joining(matches)) {
        (Some(workers), _) => workers,
        // Whoever waits for other machines starts none here unless told to.
        (None, 1..) => cluster(program).and_then(|c| c.workers).unwrap_or(0),
        (None, 0) => replicas(program).or(declared).unwrap_or_else(|| cores().min(4)),
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
