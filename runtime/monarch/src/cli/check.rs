//! `monarch check JOB.mon`: the mistakes of a program, before anything runs.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, text};
use clap::ArgMatches;
use monarch::front::{self, Findings};
use monarch_check::ParamHelp;
use std::path::Path;

pub const VERB: Verb = Verb {
    name: "check",
    about: "Finds the mistakes of a program, all at once",
    group: Group::Write,
    takes: Takes::Program,
    examples: &[
        ("monarch check job.mon", ""),
        ("monarch check job.mon --lr 1e-2", "with another value of a param"),
        ("monarch check job.mon --json", "a line of JSON per diagnostic"),
    ],
    options: |command| command,
    run: check,
};

fn check(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    let path = text(matches, "program").unwrap_or_default();
    let given = args::overrides(matches, params);
    if json {
        out::json_head("check")?;
    }
    let checked = front::check(Path::new(path), &given, args::reserved());
    let findings = Findings { diagnostics: checked.diagnostics, sources: checked.sources };
    if findings.errors() > 0 {
        return Err(out::wrong_program(&findings, json));
    }
    out::findings(&findings, json)?;
    match json {
        true => Ok(()),
        false => out::print(&format!("{path}: {}\n", out::tally(&findings))),
    }
}
