//! `monarch chaos JOB.mon`: trains, again under random faults, and compares.

use super::progress::eprint_line;
use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, number, out, program, text};
use clap::{ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use monarch::chaos::figures::Spread;
use monarch::chaos::quiet::Recording;
use monarch::chaos::{Drive, Figures, Kind, Launch, Measured, Quiet, Schedule, Trouble, process};
use monarch_check::ParamHelp;
use monarch_net::ClusterKey;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

pub const VERB: Verb = Verb {
    name: "chaos",
    about: "Trains under random faults, and compares the weights with those of a quiet run",
    group: Group::Run,
    takes: Takes::Program,
    examples: &[
        ("monarch chaos job.mon", "a quiet run, then runs under 1000 faults in all"),
        ("monarch chaos job.mon --faults 50 --kinds kill,two", "fewer, and workers only die"),
        ("monarch chaos job.mon --fault-seed 7", "other faults at other moments"),
    ],
    options,
    run: chaos,
};

/// Workers, unless the command line says otherwise: enough for two to die at once.
const WORKERS: u32 = 3;
const FAULTS: u32 = 1_000;
/// Runs in a row that end before any fault has struck them.
const TOO_SHORT: u32 = 20;
const KINDS: &str = "Only these: kill, two, again, freeze, hang, slow, join, drain, controller, \
                     all [default: those but all]";
/// Name of the file with the key of all runs.
const KEY: &str = "cluster.key";
/// Between two lines of progress on a pipe.
const LINE_EVERY: Duration = Duration::from_secs(10);

fn options(command: Command) -> Command {
    let seed = "Which faults, in which order, after which pauses [default: 1]";
    command
        .arg(args::number("faults", "Faults in all [default: 1000]"))
        .arg(args::text("kinds", "KIND,..", KINDS))
        .arg(args::text("fault-seed", "N", seed).value_parser(value_parser!(u64)))
        .arg(args::flag("reckless", "Also kill all at once: only checkpoints are left"))
        .arg(args::number("workers", "Worker processes [default: 3]"))
        .arg(args::threads())
        .arg(args::transport("How gradients travel [default: auto]"))
        .arg(args::flag("keep-runs", "Leave the directories of the runs, and say where"))
}

/// What the command line asks for.
struct Options {
    json: bool,
    faults: u64,
    workers: u32,
    schedule: Schedule,
    keep: bool,
    /// Of `run`, for the job and its params.
    args: Vec<String>,
}

fn chaos(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("chaos")?;
    }
    let options = read(matches, params)?;
    let job = program::load_to_run(matches, params)?;
    out::findings(&job.warnings, json)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| Failure::run(format!("cannot listen to signals: {e}")))?;
    }
    let mut scratch = Scratch::new(options.keep)?;
    let result = whole(&options, &mut scratch, &stop);
    if let Some(folder) = scratch.left() {
        eprint_line(&format!("runs are left in {}", folder.display()));
    }
    result
}

fn read(matches: &ArgMatches, params: &[ParamHelp]) -> Result<Options, Failure> {
    let workers = number(matches, "workers").unwrap_or(WORKERS);
    let mut args = vec!["run".into(), text(matches, "program").unwrap_or_default().to_string()];
    args.push(format!("--workers={workers}"));
    args.extend(number(matches, "threads").map(|n| format!("--threads={n}")));
    args.extend(text(matches, "transport").map(|how| format!("--transport={how}")));
    let given = args::overrides(matches, params);
    args.extend(given.into_iter().map(|(name, value)| format!("--{name}={value}")));
    let seed = matches.get_one::<u64>("fault-seed").copied().unwrap_or(1);
    let kinds = kinds(text(matches, "kinds"), matches.get_flag("reckless"))?;
    Ok(Options {
        json: matches.get_flag("json"),
        faults: u64::from(number(matches, "faults").unwrap_or(FAULTS)),
        workers,
        schedule: Schedule::new(seed, kinds),
        keep: matches.get_flag("keep-runs"),
        args,
    })
}

fn kinds(asked: Option<&str>, reckless: bool) -> Result<Vec<Kind>, Failure> {
    let names: Vec<&str> = Kind::EACH.iter().map(|k| k.name()).collect();
    let find = |name: &str| {
        Kind::find(name.trim()).ok_or_else(|| {
            let name = name.trim();
            let all = names.join(", ");
            Failure::wrong(format!("`--kinds {name}`: there is no such fault; there are {all}"))
        })
    };
    let mut kinds: Vec<Kind> = match asked {
        Some(list) => list.split(',').map(find).collect::<Result<_, _>>()?,
        None => Kind::EACH.into_iter().filter(|k| k.is_usual()).collect(),
    };
    if reckless {
        kinds.push(Kind::All);
    } else if kinds.contains(&Kind::All) {
        let why = "`--kinds all` leaves nothing but checkpoints: say `--reckless` as well";
        return Err(Failure::wrong(why));
    }
    Ok(kinds)
}

/// The quiet run, those under fire, and the figures.
fn whole(options: &Options, scratch: &mut Scratch, stop: &AtomicBool) -> Result<(), Failure> {
    let mut screen = Screen::new(options);
    let quiet = quiet(options, scratch, stop, &mut screen)?;
    screen.quiet(&quiet)?;
    let mut figures = Figures::default();
    let started = Instant::now();
    let mut different = None;
    let mut idle = 0;
    while (figures.faults.len() as u64) < options.faults {
        let launch = scratch.launch(options, &format!("fire-{}", figures.runs + 1))?;
        let mut tell = |m: &Measured| screen.fault(m);
        let drive =
            Drive::start(&launch, &quiet, &options.schedule, options.faults, stop, &mut figures);
        let ended = drive.and_then(|drive| drive.to_its_end(&mut tell));
        let ended = ended.map_err(|trouble| failed(&trouble, options, &figures, scratch))?;
        if ended.fingerprint != quiet.fingerprint {
            different = Some(ended.fingerprint);
            scratch.keep = true;
            break;
        }
        scratch.done(&launch);
        idle = if ended.faults == 0 { idle + 1 } else { 0 };
        if idle == TOO_SHORT {
            let why = "the job ends before a fault can strike it: make it longer by its params";
            return Err(Failure::wrong(why));
        }
    }
    screen.clear();
    let report = Report { options, quiet: &quiet, figures: &figures, different: &different };
    report.print(started.elapsed())?;
    match different {
        None => Ok(()),
        Some(_) => Err(Failure::run("a run under fire ended with other weights")),
    }
}

fn failed(
    trouble: &Trouble,
    options: &Options,
    figures: &Figures,
    scratch: &mut Scratch,
) -> Failure {
    if matches!(trouble, Trouble::Interrupted) {
        return Failure { code: 130, message: "interrupted".to_string() };
    }
    scratch.keep = true;
    let run = figures.runs + 1;
    let seed = options.schedule.seed();
    Failure::run(format!("run {run} of `--fault-seed {seed}`: {trouble}"))
}

/// The run that is left alone.
fn quiet(
    options: &Options,
    scratch: &mut Scratch,
    stop: &AtomicBool,
    screen: &mut Screen,
) -> Result<Quiet, Failure> {
    let launch = scratch.launch(options, "quiet")?;
    let mut run = launch
        .start(false)
        .map_err(|e| Failure::run(format!("the quiet run cannot be started: {e}")))?;
    let mut recording = Recording::default();
    loop {
        if stop.load(Ordering::Acquire) {
            run.kill();
            // Its workers end with it; nothing is left to be done about one that does not.
            let _ = process::sweep(&launch.mark);
            run.end();
            return Err(Failure { code: 130, message: "interrupted".to_string() });
        }
        match run.said.recv_timeout(Duration::from_millis(50)) {
            Ok((at, event)) => recording.hear(at, &event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        screen.quietly(recording.steps());
    }
    let code = run.end();
    let why = || match code {
        Some(0) => "it has no fingerprint".to_string(),
        _ => run.tail().join("\n  "),
    };
    let quiet = recording.end().filter(|_| code == Some(0));
    let quiet = quiet.ok_or_else(|| Failure::run(format!("the quiet run failed\n  {}", why())))?;
    scratch.done(&launch);
    Ok(quiet)
}

/// The folder of all runs of one command.
struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    fn new(keep: bool) -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("monarch-chaos-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|e| Failure::run(format!("cannot make {}: {e}", path.display())))?;
        let scratch = Scratch { path, keep };
        let key = ClusterKey::generate().map_err(|e| Failure::run(e.to_string()))?;
        key.to_file(scratch.path.join(KEY)).map_err(|e| Failure::run(e.to_string()))?;
        Ok(scratch)
    }

    fn launch(&self, options: &Options, name: &str) -> Result<Launch, Failure> {
        let binary = std::env::current_exe()
            .map_err(|e| Failure::run(format!("this program does not find itself: {e}")))?;
        Ok(Launch {
            binary,
            args: options.args.clone(),
            directory: self.path.join(name),
            run_id: name.to_string(),
            mark: format!("{}-{name}", std::process::id()),
            key: self.path.join(KEY),
        })
    }

    /// A run has ended as it should.
    fn done(&self, launch: &Launch) {
        if !self.keep {
            // What stays behind goes with the folder.
            let _ = std::fs::remove_dir_all(&launch.directory);
        }
    }

    /// The folder, where somebody is to look into it.
    fn left(&self) -> Option<&PathBuf> {
        self.keep.then_some(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // What stays behind lies in the folder for temporary files.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// What is seen while it goes on.
struct Screen {
    bar: Option<ProgressBar>,
    json: bool,
    faults: u64,
    line: Instant,
}

impl Screen {
    fn new(options: &Options) -> Screen {
        let bar = (!options.json && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template("{bar:12.cyan} {wide_msg}") {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar
        });
        Screen { bar, json: options.json, faults: options.faults, line: Instant::now() }
    }

    fn say(&mut self, at: u64, of: Option<u64>, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            if let Some(of) = of {
                bar.set_length(of);
            }
            bar.set_position(at);
            bar.set_message(message());
        } else if !self.json && self.line.elapsed() >= LINE_EVERY {
            self.line = Instant::now();
            eprint_line(&message());
        }
    }

    fn quietly(&mut self, steps: usize) {
        self.say(steps as u64, None, || format!("quiet run: {steps} steps"));
    }

    fn quiet(&mut self, quiet: &Quiet) -> Result<(), Failure> {
        let (steps, print) = (quiet.steps(), &quiet.fingerprint);
        if self.json {
            return out::json_line(&json!({
                "event": "quiet", "fingerprint": print, "steps": steps,
                "step_ms": quiet.usual * 1e3, "seconds": quiet.seconds(),
            }));
        }
        let line = format!(
            "quiet run: {steps} steps of {} in {:.1} s, fingerprint {print}",
            time(quiet.usual),
            quiet.seconds()
        );
        match &self.bar {
            Some(bar) => bar.suspend(|| eprint_line(&line)),
            None => eprint_line(&line),
        }
        Ok(())
    }

    fn fault(&mut self, fault: &Measured) {
        if self.json {
            let ms = |s: Option<f64>| s.map(|s| s * 1e3);
            // A reader that has gone does not stop the runs.
            let _ = out::json_line(&json!({
                "event": "fault", "number": fault.number, "kind": fault.kind.name(),
                "run": fault.run, "step": fault.step, "lost_ms": ms(fault.lost),
                "whole_ms": ms(fault.whole),
            }));
        }
        let (count, of) = (fault.number + 1, self.faults);
        self.say(count, Some(of), || {
            let run = fault.run + 1;
            let lost = fault.lost.map_or("the end of the run".to_string(), time);
            format!("{count} of {of} faults, run {run}: {}, {lost}", fault.kind.title())
        });
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `1.25 ms`, `3.2 s`.
fn time(seconds: f64) -> String {
    match seconds.abs() {
        s if s >= 1.0 => format!("{seconds:.1} s"),
        s if s >= 0.01 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{:.2} ms", seconds * 1e3),
    }
}

/// What is said at the end.
struct Report<'a> {
    options: &'a Options,
    quiet: &'a Quiet,
    figures: &'a Figures,
    /// Another fingerprint than the quiet run's.
    different: &'a Option<String>,
}

impl Report<'_> {
    fn print(&self, took: Duration) -> Result<(), Failure> {
        match self.options.json {
            true => out::json_line(&self.json(took)),
            false => out::print(&self.text(took)),
        }
    }

    fn json(&self, took: Duration) -> Value {
        let spread = |s: Option<Spread>| {
            s.map(|s| {
                let [p50, p99, most] = [s.p50, s.p99, s.most].map(|v| v * 1e3);
                json!({ "p50": p50, "p99": p99, "max": most, "n": s.count })
            })
        };
        let row = |kind: Option<Kind>| {
            let (count, lost, whole) = self.figures.of(kind);
            json!({ "faults": count, "lost_ms": spread(lost), "whole_ms": spread(whole) })
        };
        let kinds = self.options.schedule.kinds().iter();
        let kinds: serde_json::Map<String, Value> =
            kinds.map(|k| (k.name().to_string(), row(Some(*k)))).collect();
        let Figures { runs, steps, repeated, replaced, unexplained, restarts, .. } = self.figures;
        json!({
            "event": "chaos", "equal": self.different.is_none(), "quiet": self.quiet.fingerprint,
            "under_fire": self.different.as_ref().unwrap_or(&self.quiet.fingerprint),
            "seed": self.options.schedule.seed(), "workers": self.options.workers,
            "all": row(None), "kinds": kinds, "runs": runs, "steps": steps,
            "steps_repeated": repeated, "replaced": replaced,
            "lost_without_a_fault": unexplained, "restarts": restarts,
            "seconds": took.as_secs_f64(),
        })
    }

    fn text(&self, took: Duration) -> String {
        let head = ["", "faults", "lost p50", "p99", "max", "whole p50", "p99", "max"];
        let mut table = vec![head.map(String::from)];
        let each = self.options.schedule.kinds().iter().map(|k| (k.title(), Some(*k)));
        for (title, kind) in each.chain([("all", None)]) {
            let (count, lost, whole) = self.figures.of(kind);
            let cells = |s: Option<Spread>| match s {
                Some(s) => [s.p50, s.p99, s.most].map(time),
                None => ["-"; 3].map(String::from),
            };
            let [[a, b, c], [d, e, f]] = [cells(lost), cells(whole)];
            table.push([title.to_string(), count.to_string(), a, b, c, d, e, f]);
        }
        let mut text = aligned(&table);
        let Options { workers, schedule, .. } = self.options;
        let Figures { runs, steps, repeated, replaced, unexplained, restarts, .. } = self.figures;
        text.push_str(
            "lost: how much later the next completed step came; whole: the first step with all \
             workers\n\n",
        );
        let (seed, seconds) = (schedule.seed(), took.as_secs_f64());
        let quiet = &self.quiet.fingerprint;
        let fire = match self.different {
            Some(other) => format!("{other}, which is another one"),
            None => format!("{quiet}, the same in all {runs}"),
        };
        for (name, value) in [
            (
                "under fire",
                format!("{runs} runs on {workers} workers, {seconds:.1} s, seed {seed}"),
            ),
            ("steps", format!("{steps}, of which {repeated} had been completed before")),
            ("workers lost", format!("{replaced}, of which {unexplained} without a fault")),
            ("controllers", format!("{restarts} started again")),
            ("quiet run", quiet.clone()),
            ("under fire", fire),
        ] {
            text.push_str(&format!("{name:<13} {value}\n"));
        }
        text
    }
}

/// The first column to the left, the others to the right.
fn aligned(table: &[[String; 8]]) -> String {
    let width = |i: usize| table.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..8).map(|i| width(i).unwrap_or_default()).collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, w))| match i {
            0 => format!("{cell:<w$}"),
            _ => format!("  {cell:>w$}"),
        });
        format!("{}\n", cells.collect::<String>().trim_end())
    };
    table.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_asked_for() {
        let of = |list, reckless| kinds(list, reckless).map_err(|f| f.message);
        assert_eq!(of(Some("kill, slow"), false), Ok(vec![Kind::Kill, Kind::Slow]));
        assert!(!of(None, false).is_ok_and(|k| k.contains(&Kind::All)));
        assert!(of(None, true).is_ok_and(|k| k.contains(&Kind::All)));
        assert!(of(Some("all"), false).is_err_and(|e| e.contains("--reckless")));
        assert_eq!(of(Some("hang,controller"), false), Ok(vec![Kind::Hang, Kind::Controller]));
        assert!(of(Some("kil"), false).is_err_and(|e| e.contains("there are kill, two")));
    }

    #[test]
    fn times_are_short() {
        assert_eq!([0.00123, 0.0123, 1.23].map(time), ["1.23 ms", "12 ms", "1.2 s"]);
    }
}
