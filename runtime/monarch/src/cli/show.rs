//! `monarch show std.models.llama`: the library as it is written.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, out, text};
use clap::{Arg, ArgMatches, Command};
use monarch_check::library_text::{self, Source};
use monarch_check::{ParamHelp, library};
use monarch_diagnostic::suggest;
use serde_json::json;

pub const VERB: Verb = Verb {
    name: "show",
    about: "Prints the source of a module of the library, or of a name in it",
    group: Group::Write,
    takes: Takes::Words,
    examples: &[
        ("monarch show", "all modules"),
        ("monarch show std.models.llama", "a whole module"),
        ("monarch show nn.Linear", "a layer"),
    ],
    options,
    run: show,
};

fn options(command: Command) -> Command {
    command.arg(Arg::new("name").value_name("NAME").help("`std.nn`, `std.nn.Linear`, `AdamW`"))
}

fn show(matches: &ArgMatches, _params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("show")?;
    }
    let Some(name) = text(matches, "name") else { return modules(json) };
    let found = library_text::sources(name);
    if found.is_empty() {
        return Err(unknown(name));
    }
    if json {
        return found.iter().try_for_each(|s| {
            out::json_line(&json!({
                "event": "source", "module": s.module, "name": s.item, "line": s.line,
                "text": s.text,
            }))
        });
    }
    let several = found.len() > 1;
    let texts: Vec<String> = found.iter().map(|s| source(s, several)).collect();
    out::print(&texts.join("\n"))
}

fn source(source: &Source, several: bool) -> String {
    let text = source.text.trim_end();
    match several {
        true => format!("# {}:{}\n{text}\n", source.module, source.line),
        false => format!("{text}\n"),
    }
}

fn modules(json: bool) -> Result<(), Failure> {
    let doc = library_text::module_doc;
    if json {
        return library::MODULES.iter().try_for_each(|(name, text)| {
            out::json_line(&json!({ "event": "module", "module": name, "doc": doc(text) }))
        });
    }
    let width = library::MODULES.iter().map(|m| m.0.len()).max().unwrap_or_default();
    let line = |(name, text): &(&str, &str)| {
        let doc = doc(text);
        let first = doc.split_once(". ").map_or(doc.trim_end_matches('.'), |d| d.0);
        format!("{name:<width$}  {first}\n")
    };
    let lines: String = library::MODULES.iter().map(line).collect();
    out::print(&format!("{lines}\n`monarch show std.nn` prints one of them.\n"))
}

fn unknown(name: &str) -> Failure {
    let all = library_text::names();
    let last = |full: &str| full.rsplit('.').next().unwrap_or_default().to_owned();
    let near = suggest(name, all.iter().map(String::as_str)).map(str::to_owned);
    // A name without its module, misspelt.
    let near = near.or_else(|| {
        let lasts: Vec<String> = all.iter().map(|n| last(n)).collect();
        let near = suggest(&last(name), lasts.iter().map(String::as_str))?.to_owned();
        all.iter().find(|n| last(n) == near).cloned()
    });
    let way_out = match near {
        Some(near) => format!("did you mean `monarch show {near}`?"),
        None => "`monarch show` lists the modules".to_string(),
    };
    Failure::wrong(format!("the library has no `{name}`; {way_out}"))
}
