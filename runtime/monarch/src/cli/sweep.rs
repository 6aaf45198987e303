//! `monarch sweep JOB.mon`: the trials of a sweep one after another, and how they rank.

use super::progress::{Progress, eprint_line, metric};
use super::run::{network, transport};
use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, program, signals, text};
use clap::{ArgMatches, Command};
use monarch::front::{self, Job};
use monarch::launch::Processes;
use monarch::sweep::{self, Outcome, State, Trial};
use monarch::{resume, run_id};
use monarch_check::ParamHelp;
use monarch_check::hir::{Program, Sweep};
use monarch_controller::{Observer, RunEvent, Summary, control};
use monarch_diagnostic::suggest;
use serde_json::json;
use std::path::{Path, PathBuf};

pub const VERB: Verb = Verb {
    name: "sweep",
    about: "Runs the trials of a sweep, ranks them, and says which is best",
    group: Group::Run,
    takes: Takes::Program,
    examples: &[
        ("monarch sweep job.mon", "the program's sweep"),
        ("monarch sweep job.mon --sweep widths", "one of several"),
        ("monarch sweep job.mon --resume", "what the last one has not done yet"),
    ],
    options,
    run: sweep,
};

fn options(command: Command) -> Command {
    command
        .arg(args::text("sweep", "NAME", "Which sweep, where the program has several"))
        .arg(
            args::text("resume", "SWEEP", "Go on with this sweep, or the newest")
                .num_args(0..=1)
                .value_parser(args::run_to_resume)
                .default_missing_value(""),
        )
        .arg(args::workers())
        .arg(args::threads())
        .arg(args::transport("How gradients travel [default: auto]"))
        .arg(
            args::text("run-id", "ID", "Name of the sweep's folder [default: from the clock]")
                .conflicts_with("resume"),
        )
        .arg(args::flag("quiet", "No progress, only the table"))
}

fn sweep(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("sweep")?;
    }
    let path = Path::new(text(matches, "program").unwrap_or_default());
    let given = args::overrides(matches, params);
    let base = front::plan(path, &given, args::reserved(), |p| program::facts(matches, p))
        .map_err(|findings| out::wrong_program(&findings, json))?;
    out::findings(&base.warnings, json)?;
    let sweep = chosen(&base.program, path, text(matches, "sweep"))?.clone();
    if let Some((name, _)) = given.iter().find(|g| sweep.params.iter().any(|p| p.name == g.0)) {
        let why = format!("`--{name}` is what the sweep `{}` varies; leave it out", sweep.name);
        return Err(Failure::wrong(why));
    }
    if !base.has_a_directory_per_run() {
        let why = "trials need a directory each: put `{run.id}` into `checkpoint { to = .. }`";
        return Err(Failure::wrong(why));
    }
    let planned = planned(matches, path, &given, &sweep, base.plan.seed)?;
    announce(&sweep, planned.len(), json)?;
    let mut trials: Vec<Trial> = planned.iter().map(|(trial, _)| trial.clone()).collect();
    let (id, _claim) = target(matches, &base, &sweep, &mut trials)?;
    let dir = base.run_dir(&id);
    let mut work = Work { matches, sweep: &sweep, id, dir, path, json, trials };
    let ended = work.run(planned);
    work.table()?;
    ended
}

/// The sweep that is meant.
fn chosen<'p>(
    program: &'p Program,
    path: &Path,
    wanted: Option<&str>,
) -> Result<&'p Sweep, Failure> {
    let names = || program.sweeps.iter().map(|s| s.name.as_str());
    let shown = path.display();
    match (wanted, program.sweeps.as_slice()) {
        (_, []) => Err(Failure::wrong(format!(
            "{shown} has no sweep; one is `sweep name on job {{ lr = [1e-3, 3e-3] }}`"
        ))),
        (None, [only]) => Ok(only),
        (None, _) => {
            let all = names().collect::<Vec<_>>().join(", ");
            Err(Failure::wrong(format!("{shown} has several sweeps ({all}): `--sweep NAME`")))
        }
        (Some(wanted), all) => all.iter().find(|s| s.name == wanted).ok_or_else(|| {
            let near = suggest(wanted, names()).map(|n| format!("did you mean `{n}`?"));
            let all = || format!("it has {}", names().collect::<Vec<_>>().join(", "));
            let near = near.unwrap_or_else(all);
            Failure::wrong(format!("{shown} has no sweep `{wanted}`; {near}"))
        }),
    }
}

/// Every trial, checked and planned. One that is wrong refuses all of them.
fn planned(
    matches: &ArgMatches,
    path: &Path,
    given: &[(String, String)],
    sweep: &Sweep,
    seed: u64,
) -> Result<Vec<(Trial, Job)>, Failure> {
    let json = matches.get_flag("json");
    let (mut out, mut wrong) = (Vec::new(), 0);
    for (i, combination) in sweep::draw(sweep, seed).into_iter().enumerate() {
        let params = sweep::params(sweep, combination);
        let all: Vec<(String, String)> = given.iter().chain(&params).cloned().collect();
        let job = front::plan(path, &all, args::reserved(), |p| program::facts(matches, p));
        let job = job.and_then(|job| job.runnable().map(|()| job));
        let number = i + 1;
        let mut trial = Trial { number, params, hash: String::new(), state: State::Waiting };
        match job {
            Ok(mut job) => {
                job.plan.steps = sweep::steps(&job.plan, sweep.limit.each);
                let hash = monarch_wire::job_hash(&job.plan);
                job.hash = hash.map_err(|e| Failure::run(e.to_string()))?;
                trial.hash = monarch_graph::hex(&job.hash);
                out.push((trial, job));
            }
            Err(findings) => {
                wrong += 1;
                eprint_line(&format!("trial {number} ({}) is wrong:", trial.text()));
                out::findings(&findings, json)?;
            }
        }
    }
    match wrong {
        0 => Ok(out),
        n => {
            let all = out.len() + n;
            Err(Failure::wrong(format!("{n} of {all} trials are wrong; none was started")))
        }
    }
}

/// What is about to happen: how many trials, and how they were chosen if not all are tried.
fn announce(sweep: &Sweep, trials: usize, json: bool) -> Result<(), Failure> {
    let all = sweep.combinations().unwrap_or(u64::MAX);
    if json {
        return out::json_line(&json!({
            "event": "sweep", "sweep": sweep.name, "trials": trials, "combinations": all,
        }));
    }
    let how = match all == trials as u64 {
        true => String::new(),
        false => format!(" of {all} combinations, drawn by the job's seed (`limit.trials`)"),
    };
    eprint_line(&format!("{}: {trials} trials{how}", sweep.name));
    Ok(())
}

/// Name of the sweep, whose directory holds its trials; takes over what a resumed one has done.
fn target(
    matches: &ArgMatches,
    job: &Job,
    sweep: &Sweep,
    trials: &mut [Trial],
) -> Result<(String, run_id::Claim), Failure> {
    if let Some(wanted) = text(matches, "resume") {
        let runs = job.runs();
        let found = match wanted {
            "" => sweep::newest(&runs, &sweep.name),
            id => [runs.join(id), PathBuf::from(id)].into_iter().find(|p| p.is_dir()),
        };
        let none = || {
            let what = if wanted.is_empty() { sweep.name.as_str() } else { wanted };
            Failure::run(format!("there is no sweep `{what}` in {}", runs.display()))
        };
        let dir = found.ok_or_else(none)?;
        sweep::take_over(&dir, trials).map_err(|e| {
            let code = if matches!(e, sweep::RecordError::Differs { .. }) { 2 } else { 1 };
            Failure { code, message: e.to_string() }
        })?;
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned());
        return Ok((name.unwrap_or_default(), run_id::Claim::default()));
    }
    let (id, claim) = match text(matches, "run-id") {
        Some(id) if !run_id::is_valid(id) => {
            let why = "a sweep's id has letters, digits, `-`, `_` and `.`, 100 at most";
            return Err(Failure::wrong(format!("`--run-id {id}`: {why}")));
        }
        Some(id) => (id.to_string(), run_id::Claim::default()),
        None => run_id::fresh(&sweep.name, |id| job.run_dir(id)),
    };
    let dir = job.run_dir(&id);
    if dir.join("sweep.json").exists() || dir.join("job.json").exists() {
        let shown = dir.display();
        return Err(Failure::wrong(format!("{shown} exists already; go on with `--resume {id}`")));
    }
    std::fs::create_dir_all(&dir)
        .map_err(|e| Failure::run(format!("cannot make {}: {e}", dir.display())))?;
    Ok((id, claim))
}

/// A sweep under way.
struct Work<'a> {
    matches: &'a ArgMatches,
    sweep: &'a Sweep,
    id: String,
    dir: PathBuf,
    path: &'a Path,
    json: bool,
    trials: Vec<Trial>,
}

impl Work<'_> {
    /// All trials that have not been run yet. Err: what the sweep ends with, once its table stands.
    fn run(&mut self, planned: Vec<(Trial, Job)>) -> Result<(), Failure> {
        let ears = signals::Ears::open()
            .map_err(|e| Failure::run(format!("cannot listen to signals: {e}")))?;
        self.record()?;
        let of = self.trials.len();
        for (i, (_, job)) in planned.into_iter().enumerate() {
            let Some(trial) = self.trials.get(i).cloned() else { continue };
            if trial.outcome().is_some() {
                continue;
            }
            if self.time_is_up() {
                self.say_time();
                break;
            }
            if ears.heard() {
                return Err(self.interrupted());
            }
            self.begin(&trial, &job)?;
            let (state, stop) = self.one(&trial.name(of), job, &ears)?;
            if let Some(stop) = stop {
                return Err(stop);
            }
            if let Some(slot) = self.trials.get_mut(i) {
                slot.state = state;
            }
            self.record()?;
            self.end(i)?;
        }
        match self.trials.iter().filter(|t| matches!(t.state, State::Failed(_))).count() {
            0 => Ok(()),
            n => Err(Failure::run(format!("{n} of {of} trials failed"))),
        }
    }

    fn record(&self) -> Result<(), Failure> {
        let written = sweep::write(&self.dir, self.sweep, &self.trials);
        written.map_err(|e| Failure::run(e.to_string()))
    }

    /// `limit = { time = .. }` counts what all trials took, also before a resume.
    fn time_is_up(&self) -> bool {
        let spent: f64 =
            self.trials.iter().filter_map(Trial::outcome).map(|outcome| outcome.seconds).sum();
        self.sweep.limit.seconds.is_some_and(|limit| spent >= limit)
    }

    fn say_time(&self) {
        let left: Vec<String> = self
            .trials
            .iter()
            .filter(|t| t.state == State::Waiting)
            .map(|t| t.number.to_string())
            .collect();
        let (s, verb) = if left.len() == 1 { ("", "was") } else { ("s", "were") };
        let which = left.join(", ");
        eprint_line(&format!("`limit.time` is over: trial{s} {which} {verb} not run"));
    }

    fn interrupted(&self) -> Failure {
        let message = format!(
            "interrupted; `monarch sweep {} --resume {}` goes on",
            self.path.display(),
            self.id
        );
        Failure { code: 130, message }
    }

    /// One trial as an ordinary run. With Some, the sweep ends here.
    fn one(
        &self,
        name: &str,
        job: Job,
        ears: &signals::Ears,
    ) -> Result<(State, Option<Failure>), Failure> {
        let here = program::local_workers(self.matches, &job.program);
        let threads = program::threads(self.matches, job.cluster());
        let network = network(self.matches, &job)?;
        let run_dir = job.run_dir(&format!("{}/{name}", self.id));
        let resume = self.unfinished(&job, &run_dir)?;
        let mut config = job.run_config(format!("{}-{name}", self.id), run_dir, here);
        config.network = Some(network);
        config.threads = threads;
        config.transport = transport(self.matches);
        config.resume = resume;
        let quiet = self.matches.get_flag("quiet") || self.json;
        let mut screen = Screen { progress: Progress::new(quiet) };
        let (handle, inbox) = control();
        ears.turn_to(Some(handle));
        let launcher = &mut Processes::hasty(here);
        let result = monarch_controller::run(&config, launcher, &mut screen, inbox);
        ears.turn_to(None);
        screen.progress.clear();
        Ok(match result {
            Ok(summary) => (State::Done(outcome(&summary)), None),
            Err(error) if error.code == 130 => (State::Waiting, Some(self.interrupted())),
            Err(error) if error.code == 1 => (State::Failed(error.message), None),
            Err(error) => {
                let failure = Failure { code: error.code, message: error.message };
                (State::Waiting, Some(failure))
            }
        })
    }

    /// A trial that was stopped goes on from its checkpoint, or begins anew without one.
    fn unfinished(
        &self,
        job: &Job,
        run_dir: &Path,
    ) -> Result<Option<monarch_controller::Resume>, Failure> {
        if !run_dir.exists() {
            return Ok(None);
        }
        match resume::find(&job.plan, &job.runs(), &run_dir.display().to_string()) {
            Ok(found) => Ok(Some(found.resume)),
            Err(resume::ResumeError::NoCheckpoint { .. }) => {
                let failed = |e| Failure::run(format!("cannot clear {}: {e}", run_dir.display()));
                std::fs::remove_dir_all(run_dir).map_err(failed)?;
                Ok(None)
            }
            Err(error) => Err(Failure::run(error.to_string())),
        }
    }

    fn begin(&self, trial: &Trial, job: &Job) -> Result<(), Failure> {
        let (n, of, steps) = (trial.number, self.trials.len(), job.plan.steps);
        if self.json {
            return out::json_line(&json!({
                "event": "trial", "trial": n, "of": of, "params": trial.json()["params"],
                "steps": steps,
            }));
        }
        if !self.matches.get_flag("quiet") {
            eprint_line(&format!("trial {n} of {of}: {}", trial.text()));
        }
        Ok(())
    }

    fn end(&self, i: usize) -> Result<(), Failure> {
        let Some(trial) = self.trials.get(i) else { return Ok(()) };
        if self.json {
            let mut line = json!({ "event": "trial.done" });
            if let (Some(line), Some(trial)) = (line.as_object_mut(), trial.json().as_object()) {
                line.extend(trial.clone());
            }
            return out::json_line(&line);
        }
        match &trial.state {
            State::Failed(why) => eprint_line(&format!("trial {} failed: {why}", trial.number)),
            State::Done(o) if !self.matches.get_flag("quiet") => {
                let pick = &self.sweep.pick.metric;
                let value = o.metric(pick).map_or(format!("no {pick}"), |v| metric(pick, v));
                eprint_line(&format!("  {value}  after {} steps", o.steps));
            }
            _ => {}
        }
        Ok(())
    }

    /// The trials from the best to the worst, and how to run the best by itself.
    fn table(&self) -> Result<(), Failure> {
        let ranked = sweep::rank(&self.trials, &self.sweep.pick);
        let pick = self.sweep.pick.metric.as_str();
        let best = ranked.first().filter(|t| value(t, pick).is_some_and(|v| !v.is_nan()));
        let command = best
            .map(|t| format!("monarch run {}{}{}", self.path.display(), self.given(), t.options()));
        if self.json {
            let order: Vec<usize> = ranked.iter().map(|t| t.number).collect();
            return out::json_line(&json!({
                "event": "ranked", "pick": pick, "order": order,
                "best": best.map(|t| t.number), "command": command,
                "directory": self.dir.display().to_string(),
            }));
        }
        let mut text = rows(&ranked, self.sweep, pick);
        if let (Some(best), Some(command)) = (best, command) {
            let shown = value(best, pick).map_or(String::new(), |v| metric(pick, v));
            text.push_str(&format!("\nbest: trial {}, {shown}\n  {command}\n", best.number));
            if let Some(checkpoint) = best.outcome().and_then(|o| o.checkpoint.as_ref()) {
                text.push_str(&format!("  its weights: {checkpoint}\n"));
            }
        }
        out::print(&text)
    }

    /// Params that the command line gave to all trials.
    fn given(&self) -> String {
        let own = self.matches.ids().filter_map(|id| {
            let name = args::param_of(id.as_str())?;
            let value = self.matches.try_get_one::<String>(id.as_str()).ok().flatten()?;
            Some(format!(" --{name} {value}"))
        });
        own.collect()
    }
}

fn value(trial: &Trial, pick: &str) -> Option<f64> {
    trial.outcome().and_then(|o| o.metric(pick))
}

fn rows(ranked: &[&Trial], sweep: &Sweep, pick: &str) -> String {
    let mut head = vec!["trial".to_string()];
    head.extend(sweep.params.iter().map(|p| p.name.clone()));
    head.push(pick.to_string());
    let more = if pick == "loss" { None } else { Some("loss") };
    head.extend(more.map(String::from));
    head.extend(["steps".to_string(), "took".to_string()]);
    let mut table = vec![head];
    for trial in ranked {
        let mut row = vec![trial.number.to_string()];
        row.extend(trial.params.iter().map(|(_, v)| v.clone()));
        let number = |name: &str| match value(trial, name) {
            Some(v) => metric(name, v).trim_start_matches(name).trim().to_string(),
            None => "-".to_string(),
        };
        row.push(number(pick));
        row.extend(more.map(number));
        match &trial.state {
            State::Done(o) => row.extend([o.steps.to_string(), format!("{:.1} s", o.seconds)]),
            State::Failed(_) => row.push("failed".into()),
            State::Waiting => row.push("not run".into()),
        }
        table.push(row);
    }
    let widths: Vec<usize> = (0..table.first().map_or(0, Vec::len))
        .map(|i| {
            table.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    table.iter().map(line).collect()
}

fn outcome(summary: &Summary) -> Outcome {
    let mut metrics: Vec<(String, f64)> =
        summary.metrics.iter().map(|(n, v)| (n.clone(), *v)).collect();
    metrics.extend(summary.loss.map(|loss| ("loss".to_string(), loss)));
    Outcome {
        steps: summary.steps,
        seconds: summary.wall.as_secs_f64(),
        metrics,
        checkpoint: summary.checkpoint.as_ref().map(|(path, _)| path.display().to_string()),
        fingerprint: summary.fingerprint.clone(),
    }
}

/// Progress of the trial at hand.
struct Screen {
    progress: Progress,
}

impl Observer for Screen {
    fn event(&mut self, event: &RunEvent) {
        match event {
            // The table says it.
            RunEvent::Finished(_) | RunEvent::CheckpointSaved(_) => {}
            RunEvent::Evaluated(_) | RunEvent::Started(_) => {}
            event => self.progress.event(event),
        }
    }
}
