//! `monarch plan JOB.mon`: what a run would need and take.

use super::progress::eprint_line;
use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, program, text};
use clap::{ArgMatches, Command};
use monarch::front::{self, Planned};
use monarch_check::{ParamHelp, hir};
use monarch_plan::mesh::Wish;
use serde_json::{Value, json};
use std::path::Path;

pub const VERB: Verb = Verb {
    name: "plan",
    about: "Says what a run would need and take: devices, memory, time, traffic",
    group: Group::Ready,
    takes: Takes::Program,
    examples: &[
        ("monarch plan job.mon", ""),
        ("monarch plan job.mon --workers 8", "for more workers"),
        ("monarch plan job.mon --device MI300X:8", "for devices that are not here"),
        (
            "monarch plan job.mon --save job.plan",
            "what `monarch run --plan job.plan` will insist on",
        ),
        ("monarch plan job.mon --search", "the layouts that fit, the fastest first"),
    ],
    options,
    run: plan,
};

/// Options that say something of CPU workers, and nothing of declared devices.
const OF_WORKERS: [&str; 3] = ["workers", "threads", "transport"];

fn options(command: Command) -> Command {
    command
        .arg(args::workers())
        .arg(args::threads())
        .arg(args::transport("How gradients travel [default: shm]"))
        .arg(
            args::text("device", "KIND[:N]", "For N devices of this kind instead of the cluster")
                .value_parser(device)
                .conflicts_with_all(OF_WORKERS),
        )
        .arg(
            args::flag("search", "The layouts that fit, the fastest first")
                .conflicts_with_all(["workers", "threads"]),
        )
        .arg(
            args::text("save", "FILE", "Write the plan down, for `monarch run --plan FILE`")
                .conflicts_with_all(["search", "device"]),
        )
}

/// `H100` or `MI300X:8`.
fn device(text: &str) -> Result<(String, u32), String> {
    let (kind, count) = text.split_once(':').unwrap_or((text, "1"));
    let count = count.parse().ok().filter(|n| (1..=1 << 20).contains(n));
    let count = count.ok_or_else(|| format!("`{text}` is not like `MI300X:8`"))?;
    match kind.is_empty() {
        true => Err("the kind of a device is missing: `MI300X:8`".to_owned()),
        false => Ok((kind.to_owned(), count)),
    }
}

fn plan(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("plan")?;
    }
    let path = Path::new(text(matches, "program").unwrap_or_default());
    let given = args::overrides(matches, params);
    let device = matches.get_one::<(String, u32)>("device").cloned();
    let wish = Wish { device, ..Wish::default() };
    let (given, reserved) = (given.as_slice(), args::reserved());
    let facts = |program: &hir::Program| program::facts(matches, program);
    let wrong = |findings| out::wrong_program(&findings, json);
    if !matches.get_flag("search") {
        let planned = front::plan_any(path, given, reserved, &wish, facts).map_err(wrong)?;
        match &planned {
            Planned::Workers(job) => {
                say(&job.warnings, json, "plan", || job.report.text(), || job.report.json())?;
            }
            Planned::Devices(d) => {
                no_workers(matches)?;
                say(&d.warnings, json, "plan", || d.report.text(), || d.report.json())?;
            }
        }
        return match text(matches, "save") {
            Some(file) => save(&planned, Path::new(file), json),
            None => Ok(()),
        };
    }
    if wish.device.is_some() || front::is_declared(path, given, reserved) {
        no_workers(matches)?;
        let (found, said) = front::search(path, given, reserved, &wish).map_err(wrong)?;
        return say(&said, json, "layouts", || found.text(), || found.json());
    }
    let machine = (program::cores(), program::memory_bytes(1));
    let (found, said) = front::shares(path, given, reserved, machine, facts).map_err(wrong)?;
    say(&said, json, "layouts", || found.text(), || found.json())
}

/// The devices of a program are declared: an option that speaks of workers would do nothing.
fn no_workers(matches: &ArgMatches) -> Result<(), Failure> {
    let given =
        |name: &&&str| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
    match OF_WORKERS.iter().find(given) {
        Some(option) => Err(Failure::wrong(format!(
            "`--{option}` is of CPU workers, and the program's cluster declares devices: leave it \
             out, or change `device` and `link` of the cluster"
        ))),
        None => Ok(()),
    }
}

/// Writes a plan down.
fn save(planned: &Planned, path: &Path, json: bool) -> Result<(), Failure> {
    let saved = match planned {
        Planned::Workers(job) => job.saved(),
        Planned::Devices(declared) => declared.saved(),
    };
    saved.write(path).map_err(|e| Failure::run(e.to_string()))?;
    let (hash, shown) = (saved.hash(), path.display());
    match json {
        true => out::json_line(&json!({
            "event": "saved", "path": shown.to_string(), "plan_hash": hash,
            "job_hash": saved.job_hash,
        })),
        false => {
            eprint_line(&format!("saved as {shown}, plan {}", hash.get(..12).unwrap_or(&hash)));
            Ok(())
        }
    }
}

/// What was found on the way, then the answer.
fn say(
    said: &front::Findings,
    json: bool,
    event: &str,
    answer: impl FnOnce() -> String,
    object: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    out::findings(said, json)?;
    match json {
        true => {
            let mut line = object();
            line["event"] = event.into();
            out::json_line(&line)
        }
        false => out::print(&answer()),
    }
}
