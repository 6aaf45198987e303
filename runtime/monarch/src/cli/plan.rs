//! `monarch plan JOB.mon`: what a run would need and take.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, program};
use clap::{ArgMatches, Command};
use monarch_check::ParamHelp;

pub const VERB: Verb = Verb {
    name: "plan",
    about: "Says what a run would need and take: devices, memory, time, traffic",
    group: Group::Ready,
    takes: Takes::Program,
    examples: &[
        ("monarch plan job.mon", ""),
        ("monarch plan job.mon --workers 8", "for more workers"),
    ],
    options,
    run: plan,
};

fn options(command: Command) -> Command {
    command
        .arg(args::workers())
        .arg(args::threads())
        .arg(args::transport("How gradients travel [default: shm]"))
}

fn plan(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("plan")?;
    }
    let job = program::load(matches, params)?;
    out::findings(&job.warnings, json)?;
    match json {
        true => out::json_line(&job.report.json()),
        false => out::print(&job.report.text()),
    }
}
