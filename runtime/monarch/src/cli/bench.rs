//! `monarch bench`: what this machine does, each figure with its spread.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, number, out, program, text};
use clap::{ArgMatches, Command as ClapCommand};
use monarch::front::{self, Job};
use monarch::launch::Processes;
use monarch_check::ParamHelp;
use monarch_controller::{RunConfig, RunEvent, control, measure};
use monarch_plan::Facts;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const VERB: Verb = Verb {
    name: "bench",
    about: "Measures this machine: steps/s of a program, overhead, start-up",
    group: Group::Machines,
    takes: Takes::MaybeProgram,
    examples: &[
        ("monarch bench", "what a step, a start and a worker cost here"),
        ("monarch bench job.mon --steps 50", "the first 50 steps of a program"),
    ],
    options,
    run: bench,
};

fn options(command: ClapCommand) -> ClapCommand {
    command
        .arg(args::workers())
        .arg(args::threads())
        .arg(args::number("steps", "Steps to time [default: 200]"))
        .arg(args::number("repeat", "Repetitions of start-up measurements [default: 10]"))
}

/// A step of next to nothing: what is left is the price of a step itself.
const EMPTY: &str = "use std.optim.SGD
use std.data.digits
layer Nothing[I] {
  w: [I] ~ zeros
  forward(x: [B, I]) -> [B] = einsum[B I, I -> B](x, w)
}
model nothing = Nothing[I = 64]
train empty {
  model = nothing
  data  = digits
  loss(x: f32[B, 64]) = mean(nothing(x))
  optim = SGD(1e-9)
  batch = 8
  until = 100000 steps
}
";
const PINGS: u32 = 2_000;

/// Everything that was measured, in order.
struct Figures {
    rows: Vec<(String, Value)>,
    json: bool,
}

impl Figures {
    fn add(&mut self, what: &str, unit: &str, values: &mut [f64]) -> Result<(), Failure> {
        values.sort_by(f64::total_cmp);
        let [p50, p99] = [at(values, 0.5), at(values, 0.99)];
        let most = values.last().copied().unwrap_or_default();
        let n = values.len();
        self.rows.push((
            what.to_string(),
            json!({ "what": what, "unit": unit, "p50": p50, "p99": p99, "max": most, "n": n }),
        ));
        if self.json {
            return Ok(());
        }
        let line = format!("{what:<44} p50 {p50:>9.3} {unit}  p99 {p99:>9.3}  max {most:>9.3}");
        out::print(&format!("{line}  n {n}\n"))
    }
}

fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

fn bench(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("bench")?;
    }
    let scratch = Scratch::new()?;
    let mut figures = Figures { rows: Vec::new(), json };
    let workers = number(matches, "workers").unwrap_or(4);
    let repeat = number(matches, "repeat").unwrap_or(10);
    let steps = u64::from(number(matches, "steps").unwrap_or(200));
    if text(matches, "program").is_some() {
        let job = program::load_to_run(matches, params)?;
        let workers = program::local_workers(matches, &job.program);
        steps_of(&mut figures, &scratch, job, workers, steps)?;
    } else {
        language(&mut figures, &scratch)?;
        let empty = scratch.file("empty.mon", EMPTY)?;
        start_up(&mut figures, &scratch, &empty, workers, repeat)?;
        idle_memory(&mut figures, &scratch, &empty)?;
        round_trips(&mut figures, &scratch, &empty, workers)?;
        let job = plain(&empty)?;
        steps_of(&mut figures, &scratch, job, workers, steps.max(2_000))?;
    }
    match json {
        true => figures.rows.iter().try_for_each(|(_, row)| out::json_line(row)),
        false => Ok(()),
    }
}

fn plain(path: &Path) -> Result<Job, Failure> {
    front::plan(path, &[], args::reserved(), |_| Facts::default())
        .map_err(|findings| out::wrong_program(&findings, false))
}

/// Parse and check of a program of 17,000 lines.
fn language(figures: &mut Figures, scratch: &Scratch) -> Result<(), Failure> {
    let mut source = String::from("use std.nn.relu\n");
    let mut layers = 0;
    while source.lines().count() < 17_000 {
        for _ in 0..100 {
            source.push_str(&format!(
                "## Layer {layers}.\nlayer L{layers}[D, F] {{\n  up:   [D, F] ~ normal(0.02)\n  \
                 down: [F, D] ~ normal(0.02)\n  bias: [D] ~ zeros\n  \
                 forward(x: [B, T, D]) -> [B, T, D] {{\n    let h = relu(x @ up)\n    \
                 h @ down + bias + x\n  }}\n}}\n"
            ));
            layers += 1;
        }
    }
    let lines = source.lines().count();
    let path = scratch.file("long.mon", &source)?;
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        let checked = front::check(&path, &[], args::reserved());
        times.push(start.elapsed().as_secs_f64() * 1e3);
        if let Some(error) = checked.diagnostics.iter().find(|d| d.is_error()) {
            return Err(Failure::run(format!("the long program is wrong: {}", error.title)));
        }
    }
    figures.add(&format!("parse and check, {lines} lines"), "ms", &mut times)
}

fn config(scratch: &Scratch, job: Job, workers: u32) -> Result<RunConfig, Failure> {
    let key = monarch_net::ClusterKey::generate().map_err(|e| Failure::run(e.to_string()))?;
    let mut config = job.run_config("bench".to_string(), scratch.path.join("run"), workers);
    let listen = "127.0.0.1:0".to_string();
    config.network = Some(monarch_controller::Network {
        listen,
        key,
        patience: monarch_controller::PATIENCE_HERE,
    });
    config.save_at_end = false;
    Ok(config)
}

/// From the command's start to workers that are ready, and to the end of the first step.
fn start_up(
    figures: &mut Figures,
    scratch: &Scratch,
    empty: &Path,
    workers: u32,
    repeat: u32,
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::run(format!("cannot time a start: {e}"));
    let (mut ready, mut first) = (Vec::new(), Vec::new());
    for i in 0..repeat {
        let start = Instant::now();
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("run").arg(empty).args(["--json", "--workers", &workers.to_string()]);
        command.args(["--run-id", &format!("start-{i}")]).current_dir(&scratch.path);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                let line = line.map_err(failed)?;
                let now = start.elapsed().as_secs_f64() * 1e3;
                if line.contains("\"event\":\"started\"") {
                    ready.push(now);
                } else if line.contains("\"event\":\"step\"") {
                    first.push(now);
                    break;
                }
            }
        }
        child.kill().and_then(|()| child.wait()).map_err(failed)?;
    }
    if first.is_empty() {
        return Err(Failure::run("no run came to its first step"));
    }
    figures.add(&format!("command to {workers} workers ready"), "ms", &mut ready)?;
    figures.add("command to the end of the first step", "ms", &mut first)
}

/// Resident memory of a worker that waits for its job.
fn idle_memory(figures: &mut Figures, scratch: &Scratch, empty: &Path) -> Result<(), Failure> {
    // One worker more than comes: those that came wait.
    let mut config = config(scratch, plain(empty)?, 3)?;
    config.timeouts.join_ns = 500_000_000;
    let me = std::process::id();
    let mut sizes = Vec::new();
    let mut observer = |event: &RunEvent| {
        if let RunEvent::Joined { joined: 2, .. } = event {
            sizes = children_rss_mib(me);
        }
    };
    let (_handle, inbox) = control();
    // It ends with "too few workers", as it must.
    let _ = monarch_controller::run(&config, &mut Processes::hasty(2), &mut observer, inbox);
    figures.add("memory of an idle worker", "MiB", &mut sizes)
}

fn children_rss_mib(parent: u32) -> Vec<f64> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let rss = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
    };
    children.split_whitespace().filter_map(rss).collect()
}

fn round_trips(
    figures: &mut Figures,
    scratch: &Scratch,
    empty: &Path,
    workers: u32,
) -> Result<(), Failure> {
    let config = config(scratch, plain(empty)?, workers)?;
    let measured = measure(config, &mut Processes::hasty(workers), PINGS)
        .map_err(|e| Failure::run(e.message))?;
    let mut trips: Vec<f64> = measured.round_trips_ns.iter().map(|ns| *ns as f64 * 1e-3).collect();
    figures.add("round trip, controller to worker", "us", &mut trips)
}

/// Steps per second, and where their time goes.
fn steps_of(
    figures: &mut Figures,
    scratch: &Scratch,
    job: Job,
    workers: u32,
    steps: u64,
) -> Result<(), Failure> {
    let name = job.plan.name.clone();
    let mut config = config(scratch, job, workers)?;
    config.run_id = format!("steps-{name}");
    config.run_dir = scratch.path.join(&config.run_id);
    config.plan.steps = config.plan.steps.min(steps);
    config.plan.eval_every = None;
    config.plan.evals.clear();
    config.plan.checkpoint = None;
    config.plan.rules.clear();
    let (mut times, mut waits) = (Vec::new(), Vec::new());
    let mut observer = |event: &RunEvent| {
        if let RunEvent::Step(step) = event {
            times.push(step.seconds * 1e3);
            waits.push(step.wait_share * 100.0);
        }
    };
    let (_handle, inbox) = control();
    let start = Instant::now();
    let summary =
        monarch_controller::run(&config, &mut Processes::hasty(workers), &mut observer, inbox)
            .map_err(|e| Failure::run(e.message))?;
    let whole = start.elapsed();
    figures.add(&format!("step of `{name}`, {workers} workers"), "ms", &mut times)?;
    figures.add("share of a step waiting for communication", "%", &mut waits)?;
    let stepping: Duration = summary.stepping;
    let per_second = summary.steps as f64 / stepping.as_secs_f64().max(1e-9);
    figures.add("steps per second", "1/s", &mut [per_second])?;
    figures.add("samples per second", "1/s", &mut [summary.samples_per_second()])?;
    figures.add("whole run, start to end", "s", &mut [whole.as_secs_f64()])
}

/// A folder that goes when the bench ends.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("monarch-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|e| Failure::run(format!("cannot make {}: {e}", path.display())))?;
        Ok(Scratch { path })
    }

    fn file(&self, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        std::fs::write(&path, content)
            .map_err(|e| Failure::run(format!("cannot write {}: {e}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
