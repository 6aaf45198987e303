//! The command line: one file per verb.

mod args;
mod bench;
mod explain;
mod out;
mod program;
mod progress;
mod run;
mod signals;
mod worker;

use clap::ArgMatches;
use clap::error::{ContextKind, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

/// What a verb ends with: nothing to say, or a code and what it means.
pub struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    /// The run failed.
    pub fn run(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into() }
    }

    /// The program or the command line is wrong.
    pub fn wrong(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: message.into() }
    }
}

/// Runs the verb that the arguments name.
pub fn main() -> ExitCode {
    signals::survive_limits();
    let args: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let rest = args.get(1..).unwrap_or_default();
    let params = match args::program_of(rest) {
        Some(path) => monarch::front::params(Path::new(path)),
        None => Vec::new(),
    };
    // Names that a param may not take are found by the check; here they would only collide.
    let params: Vec<_> =
        params.into_iter().filter(|p| !args::RESERVED.contains(&p.name.as_str())).collect();
    let matches = match args::command(&params).try_get_matches_from(&args) {
        Ok(matches) => matches,
        Err(error) => return refuse(error),
    };
    let result = match matches.subcommand() {
        Some(("run", m)) => run::run(m, &params),
        Some(("check", m)) => program::check(m, &params),
        Some(("plan", m)) => program::plan(m, &params),
        Some(("worker", m)) => worker::worker(m, &params),
        Some(("explain", m)) => explain::explain(m),
        Some(("key", m)) => worker::key(m),
        Some(("bench", m)) => bench::bench(m, &params),
        _ => Err(Failure::wrong("no verb")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let json = matches.subcommand().is_some_and(|(_, m)| asks_for_json(m));
            report(&failure, json);
            ExitCode::from(failure.code)
        }
    }
}

fn asks_for_json(matches: &ArgMatches) -> bool {
    matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|json| *json)
}

/// Says why a verb failed: to people, and as the last line of what a program reads.
fn report(failure: &Failure, json: bool) {
    if failure.message.is_empty() {
        return;
    }
    if json {
        let line = serde_json::json!({
            "event": "failed", "code": failure.code, "message": failure.message,
        });
        // A reader that has gone is told on standard error.
        let _ = out::json_line(&line);
    }
    progress::eprint_line(&format!("monarch: {}", failure.message));
}

/// Help goes to standard output, mistakes to standard error with code 2.
fn refuse(mut error: clap::Error) -> ExitCode {
    // No verb takes words that begin with a dash after `--`.
    error.remove(ContextKind::Suggested);
    // Printing fails only when nobody listens any more.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    }
}

/// The value of an option that is a text.
fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// The value of an option that is a number.
fn number(matches: &ArgMatches, name: &str) -> Option<u32> {
    matches.get_one::<u32>(name).copied()
}
