//! `monarch test JOB.mon`: what a program claims of itself.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, progress, text};
use clap::{ArgMatches, Command};
use monarch::front::{self, Findings};
use monarch::prove::{self, Verdict};
use monarch_check::ParamHelp;
use monarch_check::hir::{Program, Test, TestStep};
use monarch_diagnostic::suggest;
use monarch_plan::Facts;
use serde_json::{Value, json};
use std::path::Path;

pub const VERB: Verb = Verb {
    name: "test",
    about: "Carries out the tests in a program, on this machine's CPU",
    group: Group::Ready,
    takes: Takes::Program,
    examples: &[
        ("monarch test job.mon", ""),
        ("monarch test job.mon --filter causal", "tests with this in their name"),
        ("monarch test job.mon --width 16", "with another value of a param"),
    ],
    options,
    run: test,
};

fn options(command: Command) -> Command {
    command.arg(args::text("filter", "TEXT", "Only tests whose name contains this"))
}

fn test(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("test")?;
    }
    let path = text(matches, "program").unwrap_or_default();
    let given = args::overrides(matches, params);
    let checked = front::check(Path::new(path), &given, args::reserved());
    let filter = text(matches, "filter");
    let trains = |p: &Program| {
        let chosen = p.tests.iter().filter(|t| filter.is_none_or(|f| t.name.contains(f)));
        chosen.flat_map(|t| &t.steps).any(|step| matches!(step, TestStep::Fit { .. }))
    };
    let (program, findings) =
        front::for_tests(checked, trains).map_err(|f| out::wrong_program(&f, json))?;
    out::findings(&findings, json)?;
    let chosen = chosen(&program, path, filter)?;
    let facts = facts(&program);
    let (mut passed, mut failed) = (0, 0);
    for test in chosen {
        let verdict = prove::prove(&program, test, &facts);
        match verdict {
            Verdict::Passed => passed += 1,
            Verdict::Failed(_) => failed += 1,
        }
        show(&program, test, verdict, json)?;
    }
    summary(passed, failed, json)?;
    match failed {
        0 => Ok(()),
        _ => Err(Failure { code: 1, message: String::new() }),
    }
}

/// The cluster that `plan(..)` plans for: the program's, whatever this machine is like.
fn facts(program: &Program) -> Facts {
    let cluster = program.job.as_ref().and_then(|job| program.clusters.get(job.cluster?));
    let workers = cluster.and_then(|c| c.workers).unwrap_or(4);
    let threads = cluster.and_then(|c| c.threads).unwrap_or(1);
    Facts { workers, threads, ..Facts::default() }
}

/// The tests to carry out; a filter that leaves none is a mistake.
fn chosen<'p>(
    program: &'p Program,
    path: &str,
    filter: Option<&str>,
) -> Result<Vec<&'p Test>, Failure> {
    let Some(filter) = filter else {
        if program.tests.is_empty() {
            let line = format!("{path} has no tests; one is `test \"name\" {{ assert .. }}`");
            progress::eprint_line(&line);
        }
        return Ok(program.tests.iter().collect());
    };
    let found: Vec<&Test> = program.tests.iter().filter(|t| t.name.contains(filter)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = || program.tests.iter().map(|t| t.name.as_str());
    let way_out = match suggest(filter, names()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if program.tests.is_empty() => "it has no tests at all".to_string(),
        None => format!("they are \"{}\"", names().collect::<Vec<_>>().join("\", \"")),
    };
    Err(Failure::wrong(format!("no test of {path} has `{filter}` in its name; {way_out}")))
}

fn show(program: &Program, test: &Test, verdict: Verdict, json: bool) -> Result<(), Failure> {
    let (word, diagnostics) = match verdict {
        Verdict::Passed => ("passed", Vec::new()),
        Verdict::Failed(diagnostics) => ("FAILED", diagnostics),
    };
    let findings = prove::findings(program, diagnostics);
    if json {
        out::json_line(&json_of(program, test, &findings))?;
        return Ok(());
    }
    out::print(&format!("{word}  {}\n", test.name))?;
    out::findings(&findings, false)
}

fn json_of(program: &Program, test: &Test, findings: &Findings) -> Value {
    // What the diagnostics' own writer makes is JSON.
    let line = |d| serde_json::from_str(&monarch_diagnostic::json(d, &findings.sources)).ok();
    let failures: Vec<Value> = findings.diagnostics.iter().filter_map(line).collect();
    json!({
        "event": "test", "name": test.name, "place": program.sources.place(test.span),
        "passed": findings.diagnostics.is_empty(), "failures": failures,
    })
}

fn summary(passed: u32, failed: u32, json: bool) -> Result<(), Failure> {
    match json {
        true => out::json_line(&json!({ "event": "tests", "passed": passed, "failed": failed })),
        false => out::print(&format!("{passed} passed, {failed} failed\n")),
    }
}
