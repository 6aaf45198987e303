//! The command line: one file per verb, each with its `VERB`, all of them in [`verbs::VERBS`].
//!
//! Invariants: standard output is data, standard error is talk; with `--json` every line on
//! standard output is a JSON object and the first names its version. Exit codes are those that
//! `monarch --help` lists, and [`Failure`] is the only way to one that is not 0.

mod args;
mod bench;
mod chaos;
mod check;
mod explain;
mod fmt;
mod key;
mod lifeline;
mod lsp;
mod new;
mod out;
mod plan;
mod program;
mod progress;
mod run;
mod show;
mod signals;
mod supervise;
mod sweep;
mod test;
mod verbs;
mod worker;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use monarch_diagnostic::suggest;
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
    if let Some(bad) = std::env::args_os().find(|a| a.to_str().is_none()) {
        report(&Failure::wrong(not_utf8(&bad.to_string_lossy())), args.contains(&"--json".into()));
        return ExitCode::from(2);
    }
    let rest = args.get(1..).unwrap_or_default();
    let params = match args::program_of(rest) {
        Some(path) => monarch::front::params(Path::new(path)),
        None => Vec::new(),
    };
    // Names that a param may not take are found by the check; here they would only collide.
    let reserved = args::reserved();
    let mut seen = std::collections::HashSet::new();
    let free = |p: &monarch_check::ParamHelp| {
        !reserved.contains(&p.name.as_str()) && seen.insert(p.name.clone())
    };
    let params: Vec<_> = params.into_iter().filter(free).collect();
    let matches = match verbs::command(&params).try_get_matches_from(&args) {
        Ok(matches) => matches,
        Err(error) => return refuse(error),
    };
    let Some((verb, matches)) = matches.subcommand().and_then(|(n, m)| Some((verbs::find(n)?, m)))
    else {
        // The command knows the verbs of the table alone, and insists on one.
        return ExitCode::from(2);
    };
    match (verb.run)(matches, &params) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure, asks_for_json(matches));
            ExitCode::from(failure.code)
        }
    }
}

/// Paths stand in plans, events and messages, all of which are text.
pub(crate) fn not_utf8(name: &str) -> String {
    format!("`{name}` is not UTF-8 text, as the names of files and values have to be: rename it")
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
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        progress::eprint_line(&unknown_verb(word));
        return ExitCode::from(2);
    }
    // No verb takes words that begin with a dash after `--`.
    error.remove(ContextKind::Suggested);
    // Printing fails only when nobody listens any more.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    }
}

fn unknown_verb(word: &str) -> String {
    if word.ends_with(".mon") {
        return format!(
            "monarch: `{word}` is a program, and what shall be done with it is missing; \
             to train: `monarch run {word}`"
        );
    }
    let near = suggest(word, verbs::VERBS.iter().map(|v| v.name));
    let near = near.map_or("`monarch --help` lists the verbs".to_string(), |near| {
        format!("did you mean `monarch {near}`?")
    });
    format!("monarch: there is no verb `{word}`; {near}")
}

/// The value of an option that is a text; None too where the verb has no such option.
fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.try_get_one::<String>(name).ok().flatten().map(String::as_str)
}

/// The value of an option that is a number, likewise.
fn number(matches: &ArgMatches, name: &str) -> Option<u32> {
    matches.try_get_one::<u32>(name).ok().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_that_is_none_leads_to_one() {
        assert!(unknown_verb("chekc").ends_with("did you mean `monarch check`?"));
        assert!(unknown_verb("xyzzy").ends_with("`monarch --help` lists the verbs"));
        assert!(unknown_verb("job.mon").ends_with("to train: `monarch run job.mon`"));
    }
}
