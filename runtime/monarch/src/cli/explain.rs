//! `monarch explain M0201`, `monarch explain train`, `monarch explain JOB.mon train.lr`.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, text};
use clap::{Arg, ArgAction, ArgMatches, Command};
use monarch::front::{self, Findings};
use monarch_check::hir::{Origin, Program, Setting};
use monarch_check::{ParamHelp, reference};
use monarch_diagnostic::{page, pages, suggest};
use serde_json::{Value, json};
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
        .arg(
            Arg::new("reference")
                .long("reference")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["what", "json"])
                .help("Print the whole reference as Markdown"),
        )
}

fn explain(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    if matches.get_flag("reference") {
        return out::print(&reference::markdown());
    }
    let given = args::overrides(matches, params);
    let json = matches.get_flag("json");
    if json {
        out::json_head("explain")?;
    }
    match (text(matches, "what"), text(matches, "setting")) {
        (None, _) => list(json),
        (Some(path), setting) if path.ends_with(".mon") => settings(path, &given, setting, json),
        (Some(word), None) => explain_word(word, json),
        (Some(word), Some(more)) => {
            let why = format!("`{more}` is one word too many: `{word}` is not a program (.mon)");
            Err(Failure::wrong(why))
        }
    }
}

/// Everything there is to read about.
fn list(json: bool) -> Result<(), Failure> {
    let topics = reference::topics();
    if json {
        for (group, words) in &topics {
            for word in words {
                out::json_line(&json!({ "event": "topic", "group": group, "word": word }))?;
            }
        }
        return pages().iter().try_for_each(|page| {
            let (code, title) = (page.code, page.title);
            out::json_line(&json!({ "event": "topic", "group": "diagnostics", "word": code,
                "title": title }))
        });
    }
    let mut text = String::new();
    for (group, words) in &topics {
        text.push_str(&format!("{group}\n{}\n", filled(words)));
    }
    text.push_str("Diagnostics\n");
    for page in pages() {
        text.push_str(&format!("  {}  {}\n", page.code, page.title));
    }
    text.push_str(
        "\n`monarch explain WORD` explains any of these; `monarch explain job.mon` says where the\n\
         settings of a program come from, `monarch show std.nn.Linear` prints the library.\n",
    );
    out::print(&text)
}

/// Words in lines of 100 columns.
fn filled(words: &[String]) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for word in words {
        if text.is_empty() || width + word.len() + 1 > 98 {
            text.push_str(if text.is_empty() { "  " } else { "\n  " });
            width = 0;
        } else {
            text.push(' ');
        }
        text.push_str(word);
        width += word.len() + 1;
    }
    text.push('\n');
    text
}

fn explain_word(word: &str, json: bool) -> Result<(), Failure> {
    let code = word.to_ascii_uppercase();
    let found = reference::about(word).or_else(|| {
        let page = page(&code)?;
        Some(format!("{}\n", page.text.trim_end()))
    });
    match found {
        Some(text) if json => {
            out::json_line(&json!({ "event": "page", "word": word, "text": text }))
        }
        Some(text) => out::print(&text),
        None => Err(Failure::wrong(format!("nothing is known about `{word}`; {}", near(word)))),
    }
}

/// What may have been meant: as written, in another case, or the last part of a dotted name.
fn near(word: &str) -> String {
    let words = reference::words();
    let all = || pages().iter().map(|c| c.code).chain(words.iter().map(String::as_str));
    let lower = word.to_ascii_lowercase();
    let last = word.rsplit('.').next().unwrap_or(word);
    let found = all()
        .find(|w| w.to_ascii_lowercase() == lower)
        .or_else(|| suggest(word, all()))
        .or_else(|| all().find(|w| *w == last))
        .or_else(|| suggest(last, all()));
    match found {
        Some(found) => format!("did you mean `monarch explain {found}`?"),
        None => "`monarch explain` lists what there is".to_string(),
    }
}

/// Where the settings of a program come from.
fn settings(
    path: &str,
    given: &[(String, String)],
    wanted: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let checked = front::check(Path::new(path), given, args::reserved());
    let findings = Findings { diagnostics: checked.diagnostics, sources: checked.sources };
    let Some(program) = checked.program else {
        return Err(out::wrong_program(&findings, json));
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
    if json {
        return shown.iter().try_for_each(|s| out::json_line(&setting_json(s, &program)));
    }
    let lines: String = shown.iter().map(|s| line(s, &program)).collect();
    out::print(&lines)
}

fn setting_json(setting: &Setting, program: &Program) -> Value {
    let (from, place) = match &setting.origin {
        Origin::Program(span) => ("program", Some(program.sources.place(*span))),
        Origin::CommandLine { text, .. } => ("command line", Some(text.clone())),
        Origin::Default => ("default", None),
    };
    json!({
        "event": "setting", "path": setting.path, "value": setting.value, "from": from,
        "place": place, "params": setting.params,
    })
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
