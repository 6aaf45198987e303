//! `monarch run JOB.mon`

use super::progress::{Progress, count, eprint_line, metric};
use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, program, signals, text};
use clap::{ArgMatches, Command};
use monarch::front::{Findings, Job};
use monarch::launch::{Processes, end_left};
use monarch::resume::{self, Killed};
use monarch::run_id::{self, Claim};
use monarch::saved::{self, SavedPlan};
use monarch_check::ParamHelp;
use monarch_check::hir::Key;
use monarch_controller::{
    Journaled, Network, Observer, PATIENCE_AFAR, PATIENCE_HERE, Resume, RunConfig, RunEvent,
    Summary, Transport, Why, control,
};
use monarch_graph::Plan;
use monarch_net::ClusterKey;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const VERB: Verb = Verb {
    name: "run",
    about: "Trains a model",
    group: Group::Run,
    takes: Takes::Program,
    examples: &[
        ("monarch run job.mon", ""),
        ("monarch run job.mon --lr 1e-3 --workers 4", "another value of a param, four workers"),
        ("monarch run job.mon --resume", "go on where the last run stopped"),
        ("monarch run job.mon --plan job.plan", "only what `monarch plan job.mon --save` saved"),
        ("monarch run job.mon --help", "the params of this program"),
    ],
    options,
    run,
};

fn options(command: Command) -> Command {
    let resume = "Go on from the last whole checkpoint (of this run, or newest)";
    command
        .arg(args::workers())
        .arg(args::threads())
        .arg(
            args::text("resume", "RUN", resume)
                .num_args(0..=1)
                .value_parser(args::run_to_resume)
                .default_missing_value(""),
        )
        .arg(args::number("join", "Wait for this many workers from other machines as well"))
        .arg(args::text(
            "listen",
            "ADDR",
            "Where workers reach the controller [default: 127.0.0.1:0]",
        ))
        .arg(args::text("key", "FILE", "The cluster's key, for workers from other machines"))
        .arg(args::transport("How gradients travel [default: auto]"))
        .arg(args::flag("no-overlap", "Reduce gradients after backward instead of under it"))
        .arg(args::text("trace", "A..B", "Write a Chrome trace of these steps"))
        .arg(
            args::text("run-id", "ID", "Name of the run's folder [default: from the clock]")
                .conflicts_with("resume"),
        )
        .arg(
            args::text("run-dir", "DIR", "Directory of this run, instead of the program's")
                .hide(true),
        )
        .arg(args::text("plan", "FILE", "Only if this is still the plan that was saved there"))
        .arg(
            args::text(
                "patience",
                "TIME",
                "How long workers wait for a killed controller to be started again [default: 10s]",
            )
            .value_parser(super::worker::patience),
        )
        .arg(
            args::flag("from-checkpoint", "Never wait for the workers of a killed controller")
                .requires("resume"),
        )
        .arg(args::flag("supervise", "Start the controller again when it is killed"))
        .arg(args::flag("quiet", "No progress, only the summary"))
}

fn run(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    if matches.get_flag("supervise") {
        return super::supervise::supervise(matches, params);
    }
    let json = matches.get_flag("json");
    if json {
        out::json_head("run")?;
    }
    let mut job = program::load_to_run(matches, params)?;
    out::findings(&job.warnings, json)?;
    if let Some(file) = text(matches, "plan") {
        same_plan(&job, Path::new(file), json)?;
    }
    if matches.get_flag("no-overlap") {
        job.plan.overlap = false;
    }
    let here = program::local_workers(matches, &job.program);
    let (mut config, _claim) = config(matches, job, here)?;
    if let Some(text) = idle_threads(config.threads, config.plan.shards, config.workers) {
        eprint_line(&format!("warning: {text}"));
    }
    let (handle, inbox) = control();
    let unheard = |e| Failure::run(format!("cannot listen to signals: {e}"));
    let ears = signals::Ears::open().map_err(unheard)?;
    ears.turn_to(Some(handle));
    let mut screen = Screen { progress: Progress::new(matches.get_flag("quiet") || json), json };
    let mut launcher = Processes { count: here, patience: patience(matches) };
    let mut result = monarch_controller::run(&config, &mut launcher, &mut screen, inbox);
    if let Err(error) = result.as_ref()
        && error.only_checkpoint
    {
        let what = &error.message;
        screen.progress.clear();
        let text = format!("warning: {what}\n  going on from the last checkpoint");
        eprint_line(&text);
        goes_back(&mut config)?;
        let (handle, inbox) = control();
        ears.turn_to(Some(handle));
        result = monarch_controller::run(&config, &mut launcher, &mut screen, inbox);
    }
    screen.progress.clear();
    match result {
        Ok(_) if json => Ok(()),
        Ok(summary) => out::print(&summary_text(&summary)),
        Err(error) => {
            let saved = error.summary.as_ref().is_some_and(|s| s.checkpoint.is_some());
            let hint =
                if saved { "\n  the same command with --resume goes on from there" } else { "" };
            Err(Failure { code: error.code, message: error.message + hint })
        }
    }
}

/// How long workers of this machine wait for a controller that was killed.
fn patience(matches: &ArgMatches) -> Duration {
    matches.get_one::<Duration>("patience").copied().unwrap_or(super::worker::PATIENCE)
}

/// Holds the job against a saved plan.
fn same_plan(job: &Job, path: &Path, json: bool) -> Result<(), Failure> {
    let saved = SavedPlan::read(path).map_err(|e| Failure::wrong(e.to_string()))?;
    let differences = saved.differences(&job.saved());
    if differences.is_empty() {
        return Ok(());
    }
    if json {
        let rows: Vec<Value> = differences.iter().map(saved::Difference::json).collect();
        out::json_line(&json!({ "event": "differs", "differences": rows }))?;
    }
    let said = Findings {
        diagnostics: vec![saved::differs(path, &differences)],
        sources: Default::default(),
    };
    out::findings(&said, json)?;
    let n = differences.len();
    let message = if json { format!("{n} differences from the saved plan") } else { String::new() };
    Err(Failure { code: 3, message })
}

/// Name and directory of a run.
#[derive(Default)]
struct Target {
    id: String,
    run_dir: PathBuf,
    resume: Option<Resume>,
    /// Of the controller that was killed.
    restore: Option<Journaled>,
    /// It left no checkpoint: the run begins once more, in the same directory.
    anew: bool,
    claim: Claim,
}

/// A run whose controller was killed: with its workers, or from what they leave on disk.
fn after_a_kill(job: &Job, killed: Killed) -> Result<Target, Failure> {
    let Killed { run_dir, journaled, mut waiting } = killed;
    if journaled.facts.answered {
        // What followed from a step that was not finite is in the checkpoints.
        waiting = 0;
    }
    let Journaled { head, facts, .. } = &journaled;
    let id = head.run_id.clone();
    let step = facts.recorded;
    let mut target = Target { id, run_dir, ..Target::default() };
    if facts.begun && waiting > 0 {
        let (s, them) = if waiting == 1 { ("s", "it") } else { ("", "them") };
        let workers = if waiting == 1 { "worker" } else { "workers" };
        eprint_line(&format!(
            "the controller of this run was killed at step {step}; {waiting} {workers} wait{s}: \
             going on with {them}"
        ));
    }
    if !facts.begun || waiting > 0 {
        target.resume = head.resume.clone().map(|(directory, step)| {
            let metrics = Default::default();
            Resume { directory, step, metrics }
        });
        target.restore = Some(journaled);
        return Ok(target);
    }
    eprint_line(&format!(
        "the controller of this run was killed at step {step}, and its workers are not waited for"
    ));
    if !monarch_controller::is_at_work(&target.run_dir) {
        end_left(&journaled.children);
    }
    (target.resume, target.anew) = from_disk(&job.plan, &target.run_dir)?;
    Ok(target)
}

/// The last whole checkpoint, or that the run begins once more.
fn from_disk(plan: &Plan, run_dir: &Path) -> Result<(Option<Resume>, bool), Failure> {
    let found = resume::last_checkpoint(plan, run_dir).map_err(resume_failure)?;
    match found {
        Some(found) => {
            warn_of(&found.remarks);
            Ok((Some(found.resume), false))
        }
        None => {
            eprint_line("it had saved no checkpoint: it begins once more");
            Ok((None, true))
        }
    }
}

/// The workers that were waited for could not go on.
fn goes_back(config: &mut RunConfig) -> Result<(), Failure> {
    config.restore = None;
    (config.resume, config.anew) = from_disk(&config.plan, &config.run_dir)?;
    Ok(())
}

fn resume_failure(error: resume::ResumeError) -> Failure {
    Failure { code: resume_code(&error), message: error.to_string() }
}

fn warn_of(remarks: &[String]) {
    remarks.iter().for_each(|remark| eprint_line(&format!("warning: {remark}")));
}

/// A new run, or one to go on with.
fn target(matches: &ArgMatches, job: &Job) -> Result<Target, Failure> {
    if let Some(wanted) = text(matches, "resume") {
        if !matches.get_flag("from-checkpoint")
            && let Some(killed) =
                resume::killed(&job.plan, &job.hash, &job.runs(), wanted).map_err(resume_failure)?
        {
            return after_a_kill(job, killed);
        }
        let found = resume::find(&job.plan, &job.runs(), wanted).map_err(resume_failure)?;
        warn_of(&found.remarks);
        let (id, run_dir, resume) = (found.run_id, found.run_dir, Some(found.resume));
        return Ok(Target { id, run_dir, resume, ..Target::default() });
    }
    let (id, claim) = match text(matches, "run-id") {
        Some(id) if !run_id::is_valid(id) => {
            let why = "a run's id has letters, digits, `-`, `_` and `.`, 100 at most";
            return Err(Failure::wrong(format!("`--run-id {id}`: {why}")));
        }
        Some(id) => (id.to_string(), Claim::default()),
        None => run_id::fresh(&job.plan.name, |id| job.run_dir(id)),
    };
    let run_dir = text(matches, "run-dir").map_or_else(|| job.run_dir(&id), PathBuf::from);
    if run_dir.join("job.json").exists() {
        let other = match job.has_a_directory_per_run() {
            true => "take another `--run-id`",
            false => "put `{run.id}` into `checkpoint { to = .. }`",
        };
        let shown = run_dir.display();
        let why =
            format!("the run {shown} exists already; go on with it by `--resume`, or {other}");
        return Err(Failure::wrong(why));
    }
    Ok(Target { id, run_dir, claim, ..Target::default() })
}

fn config(matches: &ArgMatches, job: Job, here: u32) -> Result<(RunConfig, Claim), Failure> {
    let workers = here.saturating_add(program::joining(matches));
    let trace_steps = match text(matches, "trace") {
        Some(range) => traced(range, job.plan.steps)?,
        None => Vec::new(),
    };
    let threads = program::threads(matches, job.cluster());
    let network = network(matches, &job)?;
    let Target { id, run_dir, resume, restore, anew, claim } = target(matches, &job)?;
    let mut config = job.run_config(id, run_dir, workers);
    config.network = Some(match &restore {
        Some(journaled) => as_before(network, journaled),
        None => network,
    });
    (config.journal, config.restore, config.anew) = (true, restore, anew);
    config.threads = threads;
    config.transport = transport(matches);
    config.trace_steps = trace_steps;
    config.resume = resume;
    Ok((config, claim))
}

/// Where the workers of a controller that was killed look for the next one.
fn as_before(network: Network, journaled: &Journaled) -> Network {
    let head = &journaled.head;
    Network {
        listen: head.address.map_or(network.listen, |a| a.to_string()),
        key: head.key.clone().unwrap_or(network.key),
        patience: network.patience,
    }
}

/// `--transport`
pub(super) fn transport(matches: &ArgMatches) -> Transport {
    match text(matches, "transport") {
        Some("shm") => Transport::SharedMemory,
        Some("quic") => Transport::Quic,
        _ => Transport::Auto,
    }
}

/// Steps to trace, of which the run must have at least one.
fn traced(range: &str, steps: u64) -> Result<Vec<u64>, Failure> {
    let list = args::steps_of_trace(range).map_err(Failure::wrong)?;
    match list.first() {
        Some(first) if *first >= steps => {
            let last = steps.saturating_sub(1);
            let why = format!("`--trace {range}` lies beyond the run, whose last step is {last}");
            Err(Failure::wrong(why))
        }
        _ => Ok(list),
    }
}

/// A job that has changed is a wrong program; a run that is not there is a failed one.
fn resume_code(error: &resume::ResumeError) -> u8 {
    match error {
        resume::ResumeError::Differs { .. } | resume::ResumeError::OtherProgram { .. } => 2,
        _ => 1,
    }
}

/// Threads compute whole shards: more of them than a worker has shards are not started.
fn idle_threads(threads: Option<u32>, shards: u32, workers: u32) -> Option<String> {
    let most = shards.div_ceil(workers.max(1)).max(1);
    let asked = threads.filter(|t| *t > most)?;
    Some(format!(
        "{asked} threads a worker, but each has at most {most} of the {shards} shards: {most} are \
         used; set more `shards` in the job to use more"
    ))
}

pub(super) fn network(matches: &ArgMatches, job: &Job) -> Result<Network, Failure> {
    let cluster = job.cluster();
    let listen = text(matches, "listen").or(cluster.and_then(|c| c.listen.as_deref()));
    let declared = cluster.and_then(|c| c.key.clone());
    let key = match text(matches, "key").map(|file| Key::File(file.to_owned())).or(declared) {
        Some(key) => read_key(&key)?,
        None if program::joining(matches) > 0 => {
            let why = "workers from other machines need a key that they share; make one with \
                       `monarch key cluster.key` and give it by `--key cluster.key`";
            return Err(Failure::wrong(why));
        }
        None => ClusterKey::generate().map_err(|e| Failure::run(e.to_string()))?,
    };
    let afar = program::joining(matches) > 0 || listen.is_some();
    let patience = if afar { PATIENCE_AFAR } else { PATIENCE_HERE };
    Ok(Network { listen: listen.unwrap_or("127.0.0.1:0").to_string(), key, patience })
}

/// The cluster's key, from a file or from the environment of this run.
fn read_key(key: &Key) -> Result<ClusterKey, Failure> {
    let name = match key {
        Key::File(file) => {
            return ClusterKey::from_file(file).map_err(|e| Failure::wrong(e.to_string()));
        }
        Key::Env { name, .. } => name,
    };
    let Some(text) = std::env::var_os(name) else {
        let why = format!(
            "the cluster's key is not here: the program reads it from `{name}`, and that is not \
             set\n  set it to a key file's text (`monarch key cluster.key` makes one), or give \
             `--key FILE`"
        );
        return Err(Failure { code: 4, message: why });
    };
    let wrong = |e: &dyn std::fmt::Display| Failure {
        code: 4,
        message: format!("`{name}` in the environment is not a key: {e}"),
    };
    let text = text.to_str().ok_or_else(|| wrong(&"it is not UTF-8 text"))?;
    ClusterKey::parse(text).map_err(|e| wrong(&e))
}

/// Progress for people, or a line of JSON per event.
struct Screen {
    progress: Progress,
    json: bool,
}

impl Observer for Screen {
    fn event(&mut self, event: &RunEvent) {
        self.progress.event(event);
        if self.json {
            // A reader that has gone does not stop the run.
            let _ = out::json_line(&event_json(event));
        }
        if let RunEvent::Listening { address } = event
            && !address.ip().is_loopback()
        {
            eprint_line(&format!("listening on {address}"));
        }
    }
}

fn event_json(event: &RunEvent) -> Value {
    match event {
        RunEvent::Started(s) => json!({
            "event": "started", "run": s.run_id, "directory": s.run_dir.display().to_string(),
            "workers": s.workers.len(), "transport": s.transport, "first_step": s.first_step,
            "steps": s.steps, "fingerprint": s.fingerprint,
            "joined_ms": s.joined_ns as f64 * 1e-6, "ready_ms": s.ready_ns as f64 * 1e-6,
        }),
        RunEvent::Listening { address } => {
            json!({ "event": "listening", "address": address.to_string() })
        }
        RunEvent::Step(s) => json!({
            "event": "step", "step": s.step, "epoch": s.epoch, "loss": s.loss, "lr": s.lr,
            "grad_norm": s.grad_norm, "samples_per_s": s.samples_per_second,
            "tokens_per_s": s.tokens_per_second, "wait_share": s.wait_share,
        }),
        RunEvent::NotFinite(e) => json!({
            "event": "not_finite", "step": e.step, "what": e.what, "shard": e.shard,
            "answer": e.answer, "follows": e.follows,
        }),
        RunEvent::Evaluated(e) => {
            let values: serde_json::Map<String, Value> =
                e.values.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
            json!({ "event": "eval", "step": e.step, "samples": e.samples, "values": values })
        }
        RunEvent::CheckpointSaved(c) => json!({
            "event": "checkpoint", "step": c.step, "path": c.path.display().to_string(),
            "fingerprint": c.fingerprint,
        }),
        RunEvent::Warning { text } => json!({ "event": "warning", "text": text }),
        RunEvent::WorkerLost { rank, host, why, step } => {
            json!({ "event": "lost", "rank": rank, "host": host, "why": why, "step": step })
        }
        RunEvent::WorkerSlow(slow) => json!({
            "event": "slow", "rank": slow.rank, "host": slow.host, "phase": slow.phase,
            "times": slow.times, "seconds": slow.seconds, "others_seconds": slow.others_seconds,
            "shards": slow.shards.map(|(before, after)| [before, after]), "text": slow.text(),
        }),
        RunEvent::WorkerRecovered { rank, host } => {
            json!({ "event": "recovered", "rank": rank, "host": host })
        }
        RunEvent::WorkerLeft { rank, host, pid, step } => {
            json!({ "event": "left", "rank": rank, "host": host, "pid": pid, "step": step })
        }
        RunEvent::Regrouped { generation, step, workers, seconds } => json!({
            "event": "regrouped", "generation": generation, "step": step, "workers": workers,
            "seconds": seconds,
        }),
        RunEvent::Restarted { run_id, run_dir, incarnation, step, steps, workers, seconds } => {
            json!({
                "event": "restarted", "run": run_id, "directory": run_dir.display().to_string(),
                "incarnation": incarnation, "step": step, "steps": steps, "workers": workers,
                "seconds": seconds,
            })
        }
        RunEvent::Finished(s) => summary_json(s),
        RunEvent::Joined { host, joined, world } => {
            json!({ "event": "joined", "host": host, "joined": joined, "world": world })
        }
    }
}

fn summary_json(s: &Summary) -> Value {
    let metrics: serde_json::Map<String, Value> =
        s.metrics.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
    json!({
        "event": "finished", "run": s.run_id, "why": why(&s.why), "steps": s.steps,
        "loss": s.loss, "metrics": metrics, "fingerprint": s.fingerprint,
        "checkpoint": s.checkpoint.as_ref().map(|(p, _)| p.display().to_string()),
        "directory": s.run_dir.display().to_string(), "seconds": s.wall.as_secs_f64(),
        "stepping_seconds": s.stepping.as_secs_f64(),
        "samples_per_s": s.samples_per_second(), "wait_share": s.wait_share,
    })
}

fn why(why: &Why) -> String {
    match why {
        Why::Completed => "all steps are done".to_string(),
        Why::Rule(text) => text.clone(),
        Why::Stopped => "stopped as asked".to_string(),
        Why::Interrupted { saved: true } => "interrupted; all is saved".to_string(),
        Why::Interrupted { saved: false } => "interrupted".to_string(),
        Why::Failed => "failed".to_string(),
    }
}

/// What is left when the progress has gone: where things are, and what came out.
fn summary_text(s: &Summary) -> String {
    let steps = s.steps - s.first_step.min(s.steps);
    let mut rows = vec![
        ("ended", format!("after step {}: {}", s.steps, why(&s.why))),
        (
            "took",
            format!(
                "{:.1} s; {steps} steps, {} samples/s, waiting for communication {:.1} %",
                s.wall.as_secs_f64(),
                count(s.samples_per_second()),
                s.wait_share * 100.0
            ),
        ),
    ];
    if let Some(loss) = s.loss {
        rows.push(("loss", format!("{loss:.4}")));
    }
    for (name, value) in &s.metrics {
        let best = s.best.get(name).filter(|(best, _)| best != value);
        let best = best.map_or(String::new(), |(best, at)| {
            format!("   (best {}, step {at})", metric("", *best).trim())
        });
        rows.push(("", format!("{}{best}", metric(name, *value))));
    }
    if let Some((path, _)) = &s.checkpoint {
        rows.push(("checkpoint", shown(path)));
    }
    if let Some(path) = &s.logs.events {
        rows.push(("events", shown(path)));
    }
    if let Some(path) = &s.logs.tensorboard {
        rows.push(("curves", format!("tensorboard --logdir {}", shown(path))));
    }
    if let Some(path) = &s.logs.trace {
        rows.push(("trace", shown(path)));
    }
    if let Some(fingerprint) = &s.fingerprint {
        rows.push(("weights", fingerprint.clone()));
    }
    rows.iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect()
}

/// Relative to the current folder where that is shorter.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let inside = here.and_then(|h| path.strip_prefix(h).ok().map(Path::to_path_buf));
    inside.as_deref().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_would_be_idle_are_named() {
        assert_eq!(idle_threads(None, 8, 4), None);
        assert_eq!(idle_threads(Some(2), 8, 4), None);
        let text = idle_threads(Some(3), 8, 4).unwrap_or_default();
        assert!(text.starts_with("3 threads a worker, but each has at most 2 of the 8"), "{text}");
    }
}
