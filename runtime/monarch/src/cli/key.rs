//! `monarch key FILE`: what the machines of a cluster know each other by.

use super::verbs::{Group, Takes, Verb};
use super::{Failure, out, text};
use clap::{Arg, ArgMatches, Command};
use monarch_check::ParamHelp;
use monarch_net::ClusterKey;
use serde_json::json;

pub const VERB: Verb = Verb {
    name: "key",
    about: "Makes a new cluster key",
    group: Group::Machines,
    takes: Takes::Words,
    examples: &[("monarch key cluster.key", "then copy it to every machine")],
    options,
    run: key,
};

fn options(command: Command) -> Command {
    command.arg(Arg::new("file").value_name("FILE").required(true).help("File to make"))
}

fn key(matches: &ArgMatches, _params: &[ParamHelp]) -> Result<(), Failure> {
    let json = matches.get_flag("json");
    if json {
        out::json_head("key")?;
    }
    let file = text(matches, "file").unwrap_or_default();
    let key = ClusterKey::generate().map_err(|e| Failure::run(e.to_string()))?;
    key.to_file(file).map_err(|e| Failure::run(e.to_string()))?;
    match json {
        true => out::json_line(&json!({ "event": "made", "file": file })),
        false => out::print(&format!("made {file}; copy it to every machine of the cluster\n")),
    }
}
