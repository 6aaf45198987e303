//! `monarch fmt FILE..`: the one way to write a program down.
//!
//! Invariants
//! - A file is replaced as a whole or not at all, and only if it changes; it keeps its permissions,
//!   and a link to it stays a link.
//! - A wrong program is formatted as far as it can be read, and is still a failure.

mod files;

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out};
use clap::{Arg, ArgMatches, Command};
use monarch::front::Findings;
use monarch_check::ParamHelp;
use monarch_diagnostic::Diagnostic;
use monarch_syntax::{Formatted, decode, format, too_large};
use serde_json::json;

pub const VERB: Verb = Verb {
    name: "fmt",
    about: "Lays programs out in the one way; there are no options to choose from",
    group: Group::Write,
    takes: Takes::Files,
    examples: &[
        ("monarch fmt job.mon", "in place"),
        ("monarch fmt .", "every program below this folder"),
        ("monarch fmt --check .", "change nothing; code 1 if something would change"),
        ("monarch fmt - < job.mon", "from standard input to standard output"),
    ],
    options,
    run: fmt,
};

fn options(command: Command) -> Command {
    command
        .arg(
            Arg::new("files").value_name("FILE").num_args(1..).required(true).help(
                "Programs; folders stand for all programs below them, `-` for standard input",
            ),
        )
        .arg(args::flag("check", "Write nothing; say what would change"))
        .arg(args::flag("stdout", "Print the result instead of writing it").conflicts_with("check"))
}

/// What to do with the result.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Write,
    Check,
    Print,
}

/// One program, as it is and as it should be.
struct Done {
    name: String,
    before: String,
    after: Formatted,
}

fn fmt(matches: &ArgMatches, _: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("fmt")?;
    }
    let mode = match (matches.get_flag("check"), matches.get_flag("stdout")) {
        (true, _) => Mode::Check,
        (_, true) => Mode::Print,
        _ => Mode::Write,
    };
    let given = matches.get_many::<String>("files").into_iter().flatten();
    let mut found = Findings::default();
    let (mut changed, mut seen) = (0, 0);
    // One file that cannot be read or written keeps no other from being formatted.
    let mut missed: Vec<Failure> = Vec::new();
    for name in files::programs(given)? {
        let read = read(&name, &mut found);
        let done = match read.and_then(|done| done.map(|d| store(d, mode)).transpose()) {
            Ok(Some(done)) => done,
            Ok(None) => continue,
            Err(failure) => {
                missed.push(failure);
                continue;
            }
        };
        seen += 1;
        changed += usize::from(done.before != done.after.text);
        tell(&done, mode, json)?;
    }
    let last = missed.pop();
    missed.iter().for_each(|failure| super::report(failure, json));
    if let (Some(failure), true) = (&last, found.errors() > 0) {
        super::report(failure, json);
    }
    if found.errors() > 0 {
        return Err(out::wrong_program(&found, json));
    }
    if let Some(failure) = last {
        return Err(failure);
    }
    match mode {
        Mode::Check if changed > 0 => {
            let all = if seen == 1 { "program" } else { "programs" };
            let what = format!("{changed} of {seen} {all} would change; `monarch fmt` does it");
            Err(Failure::run(what))
        }
        _ => Ok(()),
    }
}

/// Reads and formats one program; what is wrong with it goes to `found`.
fn read(name: &str, found: &mut Findings) -> Result<Option<Done>, Failure> {
    let bytes = files::read(name)?;
    let sources = &mut found.sources;
    if bytes.len() > monarch_syntax::MAX_BYTES {
        let file = sources.add(name, "");
        found.diagnostics.push(too_large(file, bytes.len() as u64));
        return Ok(None);
    }
    let file = sources.add(name, String::from_utf8_lossy(&bytes).into_owned());
    let text = match decode(file, &bytes) {
        Ok(text) => text,
        Err(diagnostic) => {
            found.diagnostics.push(diagnostic);
            return Ok(None);
        }
    };
    let after = format(file, text);
    // A text of nothing but comments is laid out like any other.
    let mistakes = after.diagnostics.iter().filter(|d: &&Diagnostic| d.code != "M0006");
    found.diagnostics.extend(mistakes.cloned());
    Ok(Some(Done { name: name.to_owned(), before: text.to_owned(), after }))
}

/// Writes a program that changes back to its file, if that is asked for.
fn store(done: Done, mode: Mode) -> Result<Done, Failure> {
    if mode == Mode::Write && done.name != files::INPUT && done.before != done.after.text {
        files::replace(&done.name, &done.after.text)?;
    }
    Ok(done)
}

/// Says what became of a program.
fn tell(done: &Done, mode: Mode, json: bool) -> Result<(), Failure> {
    let changed = done.before != done.after.text;
    let print = mode == Mode::Print || (done.name == files::INPUT && mode == Mode::Write);
    if json {
        let mut line = json!({
            "event": "formatted", "file": done.name, "changed": changed, "kept": done.after.kept,
        });
        if print {
            line["text"] = done.after.text.as_str().into();
        }
        return out::json_line(&line);
    }
    match (print, changed) {
        (true, _) => out::print(&done.after.text),
        (false, true) if mode == Mode::Check => out::print(&difference(done)),
        (false, true) => out::print(&format!("{}\n", done.name)),
        (false, false) => Ok(()),
    }
}

/// The first lines that differ, and how many more do.
fn difference(done: &Done) -> String {
    let before: Vec<&str> = done.before.lines().collect();
    let after: Vec<&str> = done.after.text.lines().collect();
    let first = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = |all: &[&str]| all.len() - first;
    let most = rest(&before).min(rest(&after));
    let (old, new) = (before.iter().rev(), after.iter().rev());
    let last = old.zip(new).take(most).take_while(|(a, b)| a == b).count();
    let middle = |all: &[&str], sign: char| -> String {
        let lines = all.get(first..all.len() - last).unwrap_or_default();
        let shown: String = lines.iter().take(3).map(|line| format!("  {sign} {line}\n")).collect();
        match lines.len() > 3 {
            true => format!("{shown}  {sign} .. {} more\n", lines.len() - 3),
            false => shown,
        }
    };
    let place = format!("{}:{}\n", done.name, first + 1);
    match first == before.len() && first == after.len() {
        true => format!("{place}  the line breaks\n"),
        false => format!("{place}{}{}", middle(&before, '-'), middle(&after, '+')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str) -> String {
        let after = format(0, before);
        difference(&Done { name: "a.mon".into(), before: before.into(), after })
    }

    #[test]
    fn differences() {
        assert_eq!(
            shown("let a = 1\nlet b=2\nlet c = 3\n"),
            "a.mon:2\n  - let b=2\n  + let b = 2\n"
        );
        assert_eq!(shown("let a = 1\n\n\n\nlet b = 2\n"), "a.mon:3\n  - \n  - \n");
        assert_eq!(shown("let a = 1"), "a.mon:2\n  the line breaks\n");
    }
}
