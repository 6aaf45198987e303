//! The command line. Params of a job become options of the verbs that take a job, so the
//! command is built after the program has been read.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use monarch_check::ParamHelp;

/// Names that a param may not take, since they are options of verbs that take a job.
pub const RESERVED: &[&str] = &[
    "help",
    "json",
    "workers",
    "threads",
    "resume",
    "listen",
    "key",
    "join",
    "transport",
    "trace",
    "no-overlap",
    "no_overlap",
    "quiet",
    "run-id",
    "run_id",
    "plan",
    "version",
    "advertise",
    "steps",
    "repeat",
];

const PARAMS: &str = "Params of the program";

/// Verbs whose first argument is a program.
const OF_A_PROGRAM: &[&str] = &["run", "check", "plan", "worker", "bench"];

/// The verb and the program's path, as far as they can be told before the options are known.
pub fn program_of(args: &[String]) -> Option<&str> {
    let verb = args.first()?;
    if !OF_A_PROGRAM.contains(&verb.as_str()) {
        return None;
    }
    let rest = &args[1..];
    let named = rest.iter().find(|a| a.ends_with(".mon") && !a.starts_with('-'));
    named.or_else(|| rest.first().filter(|a| !a.starts_with('-'))).map(String::as_str)
}

/// The whole command, with options for `params`.
pub fn command(params: &[ParamHelp]) -> Command {
    Command::new("monarch")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Checks, plans and runs training programs")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "Exit codes: 0 ok, 1 the run failed, 2 the program is wrong, 3 the plan differs from \
             the saved one,\n4 the cluster cannot be reached, 130 interrupted. Standard output is \
             data, standard error is talk.",
        )
        .subcommand(run(params))
        .subcommand(check(params))
        .subcommand(plan(params))
        .subcommand(worker(params))
        .subcommand(explain())
        .subcommand(key())
        .subcommand(bench(params))
}

fn job(name: &'static str, about: &'static str, params: &[ParamHelp]) -> Command {
    let file = Arg::new("program").value_name("JOB.mon").required(true).help("The program");
    let json = Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON, one object a line, a version line first");
    let command = Command::new(name).about(about).arg(file).arg(json);
    params.iter().fold(command, |command, param| command.arg(option(param)))
}

fn option(param: &ParamHelp) -> Arg {
    let mut help = param.doc.clone();
    for part in [
        param.default.as_ref().map(|d| format!("[default: {d}]")),
        param.range.as_ref().map(|r| format!("[in {r}]")),
    ]
    .into_iter()
    .flatten()
    {
        if !help.is_empty() {
            help.push(' ');
        }
        help.push_str(&part);
    }
    Arg::new(param.name.clone())
        .long(param.name.clone())
        .value_name(param.kind.clone())
        .help(help)
        .help_heading(PARAMS)
        .allow_hyphen_values(true)
}

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn number(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").help(help).value_parser(count)
}

/// A whole number from 1.
fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "it is a whole number from 1".to_string())
}

/// The run after `--resume`, which may be missing: then the program is taken for it.
fn run_to_resume(text: &str) -> Result<String, String> {
    match text.ends_with(".mon") {
        true => Err("it is a program: write it before `--resume`".to_string()),
        false => Ok(text.to_string()),
    }
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn workers() -> Arg {
    number("workers", "Worker processes on this machine (instead of the program's `cluster`)")
}

fn threads() -> Arg {
    number("threads", "Threads of each worker [default: cores / workers]")
}

fn run(params: &[ParamHelp]) -> Command {
    job("run", "Trains a model", params)
        .arg(workers())
        .arg(threads())
        .arg(
            text("resume", "RUN", "Go on from the last whole checkpoint (of this run, or newest)")
                .num_args(0..=1)
                .value_parser(run_to_resume)
                .default_missing_value(""),
        )
        .arg(number("join", "Wait for this many workers from other machines as well"))
        .arg(text("listen", "ADDR", "Where workers reach the controller [default: 127.0.0.1:0]"))
        .arg(text("key", "FILE", "The cluster's key, for workers from other machines"))
        .arg(
            text("transport", "HOW", "How gradients travel [default: auto]")
                .value_parser(["auto", "shm", "quic"]),
        )
        .arg(flag("no-overlap", "Reduce gradients after backward instead of under it"))
        .arg(text("trace", "A..B", "Write a Chrome trace of these steps"))
        .arg(
            text("run-id", "ID", "Name of the run's folder [default: from the clock]")
                .conflicts_with("resume"),
        )
        .arg(flag("quiet", "No progress, only the summary"))
}

fn check(params: &[ParamHelp]) -> Command {
    job("check", "Finds the mistakes of a program, all at once", params)
}

fn plan(params: &[ParamHelp]) -> Command {
    job("plan", "Says what a run would need and take, before anything runs", params)
        .arg(workers())
        .arg(threads())
        .arg(
            text("transport", "HOW", "How gradients travel [default: shm]")
                .value_parser(["auto", "shm", "quic"]),
        )
}

fn worker(params: &[ParamHelp]) -> Command {
    job("worker", "Works for a controller on this or another machine", params)
        .mut_arg("program", |a| a.required(false).help("Insist on this program being the job"))
        .arg(text("join", "HOST:PORT", "The controller's address").required(true))
        .arg(text("key", "FILE", "The cluster's key"))
        .arg(text("listen", "ADDR", "Where other workers reach this one [default: like --join]"))
        .arg(
            Arg::new("slot")
                .long("slot")
                .hide(true)
                .requires("parent")
                .value_parser(value_parser!(u32)),
        )
        .arg(Arg::new("parent").long("parent").hide(true).value_parser(value_parser!(u32)))
}

fn explain() -> Command {
    let about = "Explains a diagnostic, a block, a part of the library or a program's settings";
    Command::new("explain")
        .about(about)
        .arg(
            Arg::new("what")
                .value_name("WORD|JOB.mon")
                .help("`M0201`, `train`, `AdamW`, or a program"),
        )
        .arg(Arg::new("setting").value_name("SETTING").help("`train.lr`"))
}

fn key() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true).help("File to make");
    Command::new("key").about("Makes a new cluster key").arg(file)
}

fn bench(params: &[ParamHelp]) -> Command {
    job("bench", "Measures this machine: steps/s of a program, overhead, start-up", params)
        .mut_arg("program", |a| a.required(false))
        .arg(workers())
        .arg(threads())
        .arg(number("steps", "Steps to time [default: 200]"))
        .arg(number("repeat", "Repetitions of start-up measurements [default: 10]"))
}

/// Values of params that the command line gave.
pub fn overrides(matches: &ArgMatches, params: &[ParamHelp]) -> Vec<(String, String)> {
    let given = |p: &ParamHelp| {
        let value = matches.try_get_one::<String>(&p.name).ok().flatten()?;
        Some((p.name.clone(), value.clone()))
    };
    params.iter().filter_map(given).collect()
}

/// `10..12` (the end is left out), or `10`.
pub fn steps_of_trace(text: &str) -> Result<Vec<u64>, String> {
    const MOST: u64 = 1_000;
    let wrong = || format!("`--trace {text}` is no range of steps; write `--trace 10..12`");
    let number = |t: &str| t.trim().parse::<u64>().map_err(|_| wrong());
    let (start, end) = match text.split_once("..") {
        Some((a, b)) => (number(a)?, number(b)?),
        None => (number(text)?, number(text)?.saturating_add(1)),
    };
    if end <= start {
        return Err(wrong());
    }
    if end - start > MOST {
        return Err(format!("`--trace {text}` asks for more than {MOST} steps"));
    }
    Ok((start..end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn the_program_is_found() {
        let of = |line: &str| program_of(&strings(line)).map(String::from);
        assert_eq!(of("run a.mon --lr 1"), Some("a.mon".into()));
        assert_eq!(of("run --lr 1e-3 a.mon"), Some("a.mon".into()));
        assert_eq!(of("run job"), Some("job".into()));
        assert_eq!(of("run --help"), None);
        assert_eq!(of("explain a.mon"), None);
    }

    #[test]
    fn the_command_is_consistent_and_reserves_its_names() {
        let command = command(&[]);
        command.clone().debug_assert();
        for verb in OF_A_PROGRAM {
            let verb = command.find_subcommand(verb).expect("a verb");
            for arg in verb.get_arguments().filter_map(Arg::get_long) {
                let hidden = ["slot", "parent"].contains(&arg);
                assert!(hidden || RESERVED.contains(&arg), "`{arg}` is not reserved");
            }
        }
    }

    #[test]
    fn traces() {
        assert_eq!(steps_of_trace("10..12"), Ok(vec![10, 11]));
        assert_eq!(steps_of_trace("7"), Ok(vec![7]));
        assert!(steps_of_trace("7..7").is_err());
        assert!(steps_of_trace("0..99999").is_err());
        assert!(steps_of_trace("x").is_err());
    }
}
