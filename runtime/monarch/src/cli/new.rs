//! `monarch new NAME`: a folder with a program that checks, plans and runs as it stands.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, out, text};
use clap::{Arg, ArgMatches, Command};
use monarch_check::{ParamHelp, library};
use serde_json::json;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

pub const VERB: Verb = Verb {
    name: "new",
    about: "Makes a folder with a program that runs as it stands",
    group: Group::Write,
    takes: Takes::Words,
    examples: &[
        ("monarch new digits", "a perceptron on 1,797 bundled images"),
        ("monarch new writer --example gpt", "a small GPT on text, every weight on the page"),
        ("monarch new .", "here"),
    ],
    options,
    run: new,
};

/// A program to begin with.
struct Example {
    name: &'static str,
    program: &'static str,
    /// Files beside it.
    more: fn() -> Vec<(&'static str, String)>,
}

const EXAMPLES: &[Example] = &[
    Example {
        name: "digits",
        program: include_str!("../../../../examples/digits.mon"),
        more: Vec::new,
    },
    Example {
        name: "gpt",
        program: include_str!("new/gpt.mon"),
        more: || vec![("corpus/library.txt", corpus())],
    },
];

/// Runs are not for version control.
const IGNORE: &str = "/runs/\n";

/// A text that is always at hand: the standard library's own source.
fn corpus() -> String {
    library::MODULES.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n")
}

fn options(command: Command) -> Command {
    let names: Vec<&str> = EXAMPLES.iter().map(|e| e.name).collect();
    command.arg(Arg::new("folder").value_name("FOLDER").required(true).help("Folder to make")).arg(
        Arg::new("example")
            .long("example")
            .value_name("NAME")
            .default_value("digits")
            .value_parser(names)
            .help("What to begin with"),
    )
}

fn new(matches: &ArgMatches, _params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("new")?;
    }
    let folder = Path::new(text(matches, "folder").unwrap_or_default());
    if folder.as_os_str().is_empty() {
        return Err(Failure::wrong("a folder needs a name; `.` is this one"));
    }
    let wanted = text(matches, "example").unwrap_or_default();
    let Some(example) = EXAMPLES.iter().find(|e| e.name == wanted) else {
        return Err(Failure::wrong(format!("there is no example `{wanted}`")));
    };
    let mut files = vec![("job.mon", example.program.to_string())];
    files.extend((example.more)());
    let ignore = !folder.join(".gitignore").exists();
    if ignore {
        files.push((".gitignore", IGNORE.to_string()));
    }
    refuse_to_overwrite(folder, &files)?;
    for (name, content) in &files {
        write(&folder.join(name), content)?;
    }
    let made: Vec<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    let made: Vec<String> = made.iter().map(|p| p.display().to_string()).collect();
    match json {
        true => out::json_line(&json!({ "event": "made", "example": wanted, "files": made })),
        false => out::print(&closing(folder, &made, ignore)),
    }
}

/// Nothing is written unless all of it can be.
fn refuse_to_overwrite(folder: &Path, files: &[(&str, String)]) -> Result<(), Failure> {
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::wrong(format!("{} is a file, not a folder", folder.display())));
    }
    let there = files.iter().map(|(name, _)| folder.join(name));
    let there: Vec<String> = there
        .filter(|p| fs::symlink_metadata(p).is_ok())
        .map(|p| p.display().to_string())
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    let (what, verb) = (there.join(", "), if there.len() == 1 { "is" } else { "are" });
    let way_out = "nothing was written; take another folder, or move it away";
    Err(Failure::wrong(format!("{what} {verb} there already; {way_out}")))
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Failure::wrong(format!("{} came up just now", path.display())),
        _ => Failure::run(format!("cannot write {}: {e}", path.display())),
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut file = fs::File::create_new(path).map_err(failed)?;
    file.write_all(content.as_bytes()).map_err(failed)
}

fn closing(folder: &Path, made: &[String], ignore: bool) -> String {
    let job = folder.join("job.mon");
    let job = job.strip_prefix(".").unwrap_or(&job).display().to_string();
    let mut text = format!("made {}\n", made.join(", "));
    if !ignore {
        text.push_str("runs go to runs/, which .gitignore does not name\n");
    }
    text.push_str(&format!(
        "\n  monarch check {job}   its mistakes, if it had any\n  monarch plan {job}    what a \
         run needs and takes\n  monarch test {job}    what it promises\n  monarch run {job}     \
         train; --help lists its params\n",
    ));
    text
}
