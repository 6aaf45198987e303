//! `monarch explain M0201` and `monarch explain JOB.mon train.lr`.

use super::{Failure, args, out, text};
use clap::ArgMatches;
use monarch::front::{self, Findings};
use monarch_check::hir::{Origin, Program, Setting};
use monarch_diagnostic::{page, pages, suggest};
use std::path::Path;

pub fn explain(matches: &ArgMatches) -> Result<(), Failure> {
    match text(matches, "what") {
        None => out::print(&list()),
        Some(path) if path.ends_with(".mon") => settings(path, text(matches, "setting")),
        Some(code) => explain_code(code),
    }
}

fn list() -> String {
    let line = |c: &monarch_diagnostic::Page| format!("{}  {}\n", c.code, c.title);
    let codes: String = pages().iter().map(line).collect();
    format!("{codes}\n`monarch explain CODE` shows a page with a wrong and a right program.\n")
}

fn explain_code(code: &str) -> Result<(), Failure> {
    let code = code.to_ascii_uppercase();
    match page(&code) {
        Some(page) => out::print(&format!("{}\n", page.text.trim_end())),
        None => {
            let near = suggest(&code, pages().iter().map(|c| c.code));
            let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
            Err(Failure::wrong(format!("there is no diagnostic {code}{near}")))
        }
    }
}

/// Where the settings of a program come from.
fn settings(path: &str, wanted: Option<&str>) -> Result<(), Failure> {
    let checked = front::check(Path::new(path), &[], args::RESERVED);
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
        let near = suggest(wanted, program.settings.iter().map(|s| s.path.as_str()));
        let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        return Err(Failure::wrong(format!("{path} has no setting `{wanted}`{near}")));
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
