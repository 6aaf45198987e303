//! Arguments that verbs share. Params of a job become options of the verbs that take a job, so
//! the command is built after the program has been read.

use super::verbs::{self, Takes, VERBS};
use clap::{Arg, ArgAction, ArgMatches};
use monarch_check::ParamHelp;
use std::sync::OnceLock;

const PARAMS: &str = "Params of the program";

/// Names that a param may not take, since they are options of verbs that take a job.
pub fn reserved() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names = vec!["help".to_string(), "version".to_string()];
        for verb in VERBS.iter().filter(|v| v.takes.a_program()) {
            names.extend(
                verb.command(&[]).get_arguments().filter_map(Arg::get_long).map(String::from),
            );
        }
        // A param's name has no dashes; one that differs in nothing else would only confuse.
        names.extend(names.clone().iter().map(|n| n.replace('-', "_")));
        names.sort();
        names.dedup();
        names.into_iter().map(|n| &*n.leak()).collect()
    })
}

/// The program's path, as far as it can be told before the options are known.
pub fn program_of(args: &[String]) -> Option<&str> {
    let verb = verbs::find(args.first()?)?;
    if verb.takes == Takes::Files {
        return None;
    }
    let rest = &args[1..];
    let named = rest.iter().find(|a| a.ends_with(".mon") && !a.starts_with('-'));
    let first = rest.first().filter(|a| !a.starts_with('-') && verb.takes.a_program());
    named.or(first).map(String::as_str)
}

/// `JOB.mon`
pub fn program(required: bool) -> Arg {
    Arg::new("program").value_name("JOB.mon").required(required).help("The program")
}

/// `--json`
pub fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON, one object a line, a version line first")
}

/// What a param is known by here: no argument of a verb is called so, whatever the param's name.
fn id(param: &str) -> String {
    format!("param {param}")
}

/// The param that an argument is, if it is one.
pub fn param_of(id: &str) -> Option<&str> {
    id.strip_prefix("param ")
}

/// `--lr 1e-3`
pub fn param(param: &ParamHelp) -> Arg {
    let mut help = param.doc.clone();
    for part in [
        param.default.as_ref().map(|d| format!("[default: {d}]")),
        param.range.as_ref().map(|r| format!("[in {r}]")),
    ]
    .into_iter()
    .flatten()
    {
        if !help.is_empty() {
            help.push(' ');
        }
        help.push_str(&part);
    }
    Arg::new(id(&param.name))
        .long(param.name.clone())
        .value_name(param.kind.clone())
        .help(help)
        .help_heading(PARAMS)
        .allow_hyphen_values(true)
}

/// An option with a text.
pub fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// An option with a whole number from 1.
pub fn number(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").help(help).value_parser(count)
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "it is a whole number from 1".to_string())
}

/// The run after `--resume`, which may be missing: then the program is taken for it.
pub fn run_to_resume(text: &str) -> Result<String, String> {
    match text.ends_with(".mon") {
        true => Err("it is a program: write it before `--resume`".to_string()),
        false => Ok(text.to_string()),
    }
}

/// An option that is there or not.
pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// `--workers N`
pub fn workers() -> Arg {
    number("workers", "Worker processes on this machine (instead of the program's `cluster`)")
}

/// `--threads N`
pub fn threads() -> Arg {
    number("threads", "Threads of each worker [default: cores / workers]")
}

/// `--transport HOW`
pub fn transport(help: &'static str) -> Arg {
    text("transport", "HOW", help).value_parser(["auto", "shm", "quic"])
}

/// Values of params that the command line gave.
pub fn overrides(matches: &ArgMatches, params: &[ParamHelp]) -> Vec<(String, String)> {
    let given = |p: &ParamHelp| {
        let value = matches.try_get_one::<String>(&id(&p.name)).ok().flatten()?;
        Some((p.name.clone(), value.clone()))
    };
    params.iter().filter_map(given).collect()
}

/// `10..12` (the end is left out), or `10`.
pub fn steps_of_trace(text: &str) -> Result<Vec<u64>, String> {
    const MOST: u64 = 1_000;
    let wrong = || format!("`--trace {text}` is no range of steps; write `--trace 10..12`");
    let number = |t: &str| t.trim().parse::<u64>().map_err(|_| wrong());
    let (start, end) = match text.split_once("..") {
        Some((a, b)) => (number(a)?, number(b)?),
        None => (number(text)?, number(text)?.saturating_add(1)),
    };
    if end <= start {
        return Err(wrong());
    }
    if end - start > MOST {
        return Err(format!("`--trace {text}` asks for more than {MOST} steps"));
    }
    Ok((start..end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn the_program_is_found() {
        let of = |line: &str| program_of(&strings(line)).map(String::from);
        assert_eq!(of("run a.mon --lr 1"), Some("a.mon".into()));
        assert_eq!(of("run --lr 1e-3 a.mon"), Some("a.mon".into()));
        assert_eq!(of("run job"), Some("job".into()));
        assert_eq!(of("run --help"), None);
        assert_eq!(of("explain a.mon train.lr"), Some("a.mon".into()));
        assert_eq!(of("explain M0201"), None);
        assert_eq!(of("fmt a.mon"), None);
        assert_eq!(of("nothing a.mon"), None);
    }

    #[test]
    fn traces() {
        assert_eq!(steps_of_trace("10..12"), Ok(vec![10, 11]));
        assert_eq!(steps_of_trace("7"), Ok(vec![7]));
        assert!(steps_of_trace("7..7").is_err());
        assert!(steps_of_trace("0..99999").is_err());
        assert!(steps_of_trace("x").is_err());
    }
}
