//! `monarch explain M0201`, `monarch explain train`, `monarch explain JOB.mon train.lr`.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, text};
use clap::{Arg, ArgMatches, Command};
use monarch::front::{self, Findings};
use monarch_check::hir::{Origin, Program, Setting};
use monarch_check::{ParamHelp, reference};
use monarch_diagnostic::{page, pages, suggest};
use std::path::Path;

pub const VERB: Verb = Verb {
    name: "explain",
    about: "Explains a diagnostic, a block, a part of the library or a program's settings",
    group: Group::Write,
    takes: Takes::Words,
    examples: &[
        ("monarch explain", "all there is to read about"),
        ("monarch explain M0201", "a diagnostic"),
        ("monarch explain train", "the settings of a block"),
        ("monarch explain job.mon train.lr", "where a value comes from"),
    ],
    options,
    run: explain,
};

fn options(command: Command) -> Command {
    command
        .arg(
            Arg::new("what")
                .value_name("WORD|JOB.mon")
                .help("`M0201`, `train`, `AdamW`, or a program"),
        )
        .arg(Arg::new("setting").value_name("SETTING").help("`train.lr`"))
}

fn explain(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let given = args::overrides(matches, params);
    match text(matches, "what") {
        None => out::print(&list()),
        Some(path) if path.ends_with(".mon") => settings(path, &given, text(matches, "setting")),
        Some(word) => explain_word(word),
    }
}

fn list() -> String {
    let line = |c: &monarch_diagnostic::Page| format!("{}  {}\n", c.code, c.title);
    let codes: String = pages().iter().map(line).collect();
    format!(
        "{codes}\n`monarch explain CODE` shows a page with a wrong and a right program;\n\
         `monarch explain train` the settings of a block, `monarch explain std.nn` a part of the\n\
         library, `monarch explain AdamW` a name in it, `monarch explain events` what happens.\n"
    )
}

fn explain_word(word: &str) -> Result<(), Failure> {
    if let Some(text) = reference::about(word) {
        return out::print(&text);
    }
    let code = word.to_ascii_uppercase();
    match page(&code) {
        Some(page) => out::print(&format!("{}\n", page.text.trim_end())),
        None => {
            let words = reference::words();
            let known = pages().iter().map(|c| c.code).chain(words.iter().map(String::as_str));
            let near = suggest(word, known);
            let near = near.map_or("`monarch explain` lists the codes".to_string(), |near| {
                format!("did you mean `{near}`?")
            });
            Err(Failure::wrong(format!("nothing is known about `{word}`; {near}")))
        }
    }
}

/// Where the settings of a program come from.
fn settings(path: &str, given: &[(String, String)], wanted: Option<&str>) -> Result<(), Failure> {
    let checked = front::check(Path::new(path), given, args::reserved());
    let findings = Findings { diagnostics: checked.diagnostics, sources: checked.sources };
    let Some(program) = checked.program else {
        return Err(out::wrong_program(&findings, false));
    };
    let shown: Vec<&Setting> = match wanted {
        None => program.settings.iter().collect(),
        Some(name) => {
            let below = format!("{name}.");
            let fits = |s: &&Setting| s.path == name || s.path.starts_with(&below);
            program.settings.iter().filter(fits).collect()
        }
    };
    if shown.is_empty() {
        let wanted = wanted.unwrap_or_default();
        let paths = || program.settings.iter().map(|s| s.path.as_str());
        let last = wanted.rsplit('.').next().unwrap_or(wanted);
        let same = paths().find(|p| p.rsplit('.').next() == Some(last));
        let near = same.or_else(|| suggest(wanted, paths()));
        let near = near.map_or(format!("`monarch explain {path}` lists them"), |near| {
            format!("did you mean `{near}`?")
        });
        return Err(Failure::wrong(format!("{path} has no setting `{wanted}`; {near}")));
    }
    let lines: String = shown.iter().map(|s| line(s, &program)).collect();
    out::print(&lines)
}

fn line(setting: &Setting, program: &Program) -> String {
    let origin = match &setting.origin {
        Origin::Program(span) => program.sources.place(*span),
        Origin::CommandLine { text, .. } => format!("the command line: {text}"),
        Origin::Default => "the default".to_string(),
    };
    let from = match setting.params.as_slice() {
        [] => String::new(),
        names => format!(", from param {}", names.join(", ")),
    };
    format!("{} = {}   ({origin}{from})\n", setting.path, setting.value)
}
