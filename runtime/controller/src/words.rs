//! Failures in the words of a person who was not there.

use crate::config::RunConfig;
use crate::event::SlowEvent;
use monarch_graph::{Plan, Span};
use monarch_sched::{Cause, Failure, SlowPhase, Slowness, Warning};
use monarch_wire::Hello;
use monarch_wire::codec::short;
use std::fmt::Write;
use std::net::SocketAddr;

/// What is known of a worker when it is to be named.
pub(crate) struct Named {
    /// `worker 2 on node-b (process 4711)`.
    pub name: String,
    /// How it ended, when it was started here and has ended.
    pub exit: Option<String>,
    pub last_words: Vec<String>,
}

/// Exit code and text of a failure. `name` knows ranks, `slot` workers that were started here.
pub(crate) fn failure(
    config: &RunConfig,
    cause: &Cause,
    done: u64,
    listening: Option<SocketAddr>,
    rank: impl Fn(u32) -> Named,
    slot: impl Fn(u32) -> Named,
) -> (u8, String) {
    let at = format!("after step {done} of {}", config.plan.steps);
    let text = match cause {
        Cause::TooFew { came, world, waited_ns } => {
            return (4, too_few(*came, *world, *waited_ns, listening));
        }
        Cause::Refused { why, .. } => format!("a worker was turned away: {why}"),
        Cause::NeverJoined { slot: number, exit } => {
            let mut text = format!("worker process {number} ended before it joined: {}", exit.text);
            last_words(&mut text, &slot(*number).last_words);
            text
        }
        Cause::NoSharedMemory { hosts } => format!(
            "workers on {} cannot share memory; use `--transport quic` or leave it to be chosen",
            hosts.join(", ")
        ),
        Cause::NotReady { ranks, waited_ns } => {
            let names: Vec<String> = ranks.iter().map(|&r| rank(r).name).collect();
            let seconds = seconds(*waited_ns);
            format!("not ready within {seconds} s of the start: {}", names.join(", "))
        }
        Cause::Worker { rank: r, failure, .. } => worker_text(config, &rank(*r), failure),
        Cause::Exited { rank: r, exit, .. } => {
            let named = rank(*r);
            let mut text = format!("{} died {at}: {}", named.name, exit.text);
            last_words(&mut text, &named.last_words);
            text
        }
        Cause::Lost { rank: r, why, .. } => {
            let named = rank(*r);
            let mut text = format!("{} was lost {at}: {why}", named.name);
            if let Some(exit) = named.exit {
                let _ = write!(text, "; it ended with {exit}");
            }
            last_words(&mut text, &named.last_words);
            text
        }
        Cause::Hung { rank: r, hang, .. } => {
            let named = rank(*r);
            let mut text = format!("{} was given up {at}: {hang}", named.name);
            last_words(&mut text, &named.last_words);
            text
        }
        Cause::Mismatch { step, what, groups } => mismatch(*step, what, groups),
        Cause::Protocol { rank: r, what, .. } => {
            format!("{} broke the protocol {at}: it {what}", rank(*r).name)
        }
        Cause::Stalled { ranks, waited_ns, step } => {
            let names: Vec<String> = ranks.iter().map(|&r| rank(r).name).collect();
            let seconds = seconds(*waited_ns);
            format!("no word for {seconds} s after step {step} from {}", names.join(", "))
        }
        Cause::NotFinite { step } => format!("the numbers of step {step} are not finite"),
        Cause::Slow { rank: r, what, .. } => {
            let what = slow(*r, String::new(), what, None);
            format!("{}: {}, and the job stops then (`worker.slow`)", rank(*r).name, how(&what))
        }
        Cause::FinalSave { step, why } => {
            format!("the weights after step {step} could not be saved: {why}")
        }
        Cause::BeyondEnd { first_step, steps } => format!(
            "the checkpoint holds {first_step} steps, and the job ends after {steps}: \
             raise `until` to go on"
        ),
        Cause::NoWayBack { why } => format!("the run cannot go on from where it was: {why}"),
        Cause::Controller { what } => format!("the controller cannot go on: {what}"),
    };
    (1, text)
}

fn seconds(ns: u64) -> f64 {
    (ns as f64 * 1e-8).round() / 10.0
}

fn too_few(came: u32, world: u32, waited_ns: u64, listening: Option<SocketAddr>) -> String {
    let seconds = seconds(waited_ns);
    let mut text = format!("{came} of {world} workers came within {seconds} s");
    if let Some(address) = listening {
        let port = address.port();
        let at = if address.ip().is_unspecified() {
            format!("HOST:{port}` (HOST: a name of this machine)")
        } else {
            format!("{address}`")
        };
        let _ =
            write!(text, "; start the others with `monarch worker --join {at} and the same key");
    }
    text
}

fn worker_text(config: &RunConfig, named: &Named, failure: &Failure) -> String {
    let mut text = named.name.clone();
    if let Some(step) = failure.step {
        let _ = write!(text, ", step {step}");
    }
    if !failure.task.is_empty() {
        let _ = write!(text, ", {}", failure.task);
    }
    let _ = write!(text, ": {}", failure.message);
    if let Some(place) = failure.span.and_then(|s| locate(&config.plan, &config.sources, s)) {
        let _ = write!(text, "\n  at {place}");
    }
    if let Some(exit) = named.exit.as_ref().filter(|e| *e != "exit code 0") {
        let _ = write!(text, "\n  it ended with {exit}");
    }
    last_words(&mut text, &named.last_words);
    text
}

/// Consequences that are told of.
const FOLLOWED: usize = 8;

/// What others said after the cause, so that nobody looks for a second one.
pub(crate) fn append_followed(
    text: &mut String,
    config: &RunConfig,
    followed: &[Cause],
    rank: impl Fn(u32) -> Named,
) {
    for (place, cause) in followed.iter().enumerate() {
        let Cause::Worker { rank: r, failure, .. } = cause else { continue };
        if place == FOLLOWED {
            let more = followed.len() - FOLLOWED;
            let _ = write!(text, "\n  it was followed by {more} more of these");
            return;
        }
        let named = Named { exit: None, last_words: Vec::new(), ..rank(*r) };
        let _ = write!(text, "\n  it was followed by: {}", worker_text(config, &named, failure));
    }
}

fn last_words(text: &mut String, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    text.push_str("\n  its last words:");
    for line in lines {
        let _ = write!(text, "\n    {line}");
    }
}

fn mismatch(step: u64, what: &str, groups: &[(Vec<u32>, String)]) -> String {
    let mut text = format!(
        "workers disagree on the {what} at step {step}, where they must agree to the bit \
         (damaged memory, or a processor that computes otherwise):"
    );
    for (ranks, value) in groups {
        let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let _ = write!(text, "\n  worker {}: {value}", ranks.join(", "));
    }
    text
}

/// `digits.mon:17:3`; None for a span that is nowhere.
pub(crate) fn locate(plan: &Plan, sources: &[String], span: Span) -> Option<String> {
    let file = plan.files.get(span.file as usize)?;
    if span.end == 0 {
        return None;
    }
    let Some(before) = sources.get(span.file as usize).and_then(|s| s.get(..span.start as usize))
    else {
        return Some(file.clone());
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some(format!("{file}:{line}:{column}"))
}

/// `eval.accuracy = 0.9833 is above 0.98 (digits.mon:24:3)`.
pub(crate) fn rule(config: &RunConfig, number: usize, value: f64) -> String {
    let Some(rule) = config.plan.rules.get(number) else { return String::new() };
    let bound = match (rule.above, rule.below) {
        (Some(above), _) if value > above => format!("above {above}"),
        (_, Some(below)) => format!("below {below}"),
        _ => "where the rule says".to_string(),
    };
    // Four digits are enough to see it, unless the value is that close to the bound.
    let rounded = (value * 1e4).round() / 1e4;
    let tells = rule.above.is_none_or(|a| rounded > a) && rule.below.is_none_or(|b| rounded < b);
    let value = if tells { rounded } else { value };
    let mut text = format!("{} = {value} is {bound}", rule.metric);
    if let Some(place) = locate(&config.plan, &config.sources, rule.span) {
        let _ = write!(text, " ({place})");
    }
    text
}

/// A warning's text. `worker` names a connection.
pub(crate) fn warning(
    warning: &Warning,
    worker: impl Fn(monarch_sched::WorkerId) -> String,
) -> String {
    match warning {
        Warning::Refused { worker: w, why } => format!("turned away {}: {why}", worker(*w)),
        Warning::LeftEarly { worker: w, why } => {
            format!("{} left before the job began: {why}", worker(*w))
        }
        Warning::WorkerLost { rank, why, .. } => format!("lost worker {rank}: {why}"),
        Warning::GivenUp { slot, times } => format!(
            "worker process {slot} has ended {times} times within few steps: it is not started \
             again"
        ),
        Warning::LinkBroken { rank, peer, why } => format!(
            "worker {rank} does not reach worker {peer}, and both reach the controller: {why}; all \
             try once more"
        ),
        Warning::SaveFailed { step, why } => {
            format!("no checkpoint of step {step}: {why}; training goes on")
        }
        Warning::NotSaved { step, why } => format!("no checkpoint of step {step}: {why}"),
        Warning::BadGoodbye { rank, why } => {
            format!("all work is done and saved, but worker {rank} did not say goodbye: {why}")
        }
        Warning::LastLeaves { worker: w, left: 0 } => {
            format!("{} was told to end, and nobody else is left", worker(*w))
        }
        Warning::LastLeaves { worker: w, left } => format!(
            "{} was told to end, and the {left} others may not go on alone (`worker.lost`)",
            worker(*w)
        ),
        Warning::Recovered { rank, .. } => format!("worker {rank} is as fast as the others again"),
        Warning::NotDrained { rank, why } => format!("worker {rank} is not sent away: {why}"),
        Warning::Stopping { step } => {
            format!("saving, then stopping after step {step}; once more to stop at once")
        }
    }
}

/// What is known of a slow worker, as an event.
pub(crate) fn slow(
    rank: u32,
    host: String,
    what: &Slowness,
    shards: Option<(u32, u32)>,
) -> SlowEvent {
    let &Slowness { phase, times, own_ns, others_ns, .. } = what;
    let (seconds, others_seconds) = (own_ns as f64 * 1e-9, others_ns as f64 * 1e-9);
    SlowEvent { rank, host, phase: phase.name(), times, seconds, others_seconds, shards }
}

/// `backward 1.8x slower than the others (12.1 ms a shard against 6.7)`
fn how(slow: &SlowEvent) -> String {
    let a = if slow.phase == SlowPhase::Update.name() { "an update" } else { "a shard" };
    let (own, others) = (slow.seconds * 1e3, slow.others_seconds * 1e3);
    // Three digits of the smaller one tell them apart.
    let digits = if others < 1.0 { 3 } else { 1 };
    format!(
        "{} {:.1}x slower than the others ({own:.digits$} ms {a} against {others:.digits$})",
        slow.phase, slow.times
    )
}

impl SlowEvent {
    /// One line for a person.
    pub fn text(&self) -> String {
        let mut text = format!("worker {} on {}: {}", self.rank, self.host, how(self));
        if let Some((before, after)) = self.shards {
            let _ = write!(text, "; its shards {before} -> {after}");
        }
        text
    }
}

/// Why a worker can take no part, with both sides shown.
pub(crate) fn objection(hello: &Hello, job: &[u8; 32]) -> Option<String> {
    let ours = env!("CARGO_PKG_VERSION");
    if hello.version != ours {
        return Some(format!(
            "the worker on {} is version {}, the controller {ours}: install the same on both",
            hello.host, hello.version
        ));
    }
    let theirs = hello.job.as_ref().filter(|theirs| *theirs != job)?;
    Some(format!(
        "the worker on {} was started for job {}, the controller runs job {}: give both the same \
         program, params and data",
        hello.host,
        short(theirs),
        short(job)
    ))
}

/// Whether the smallest value of a metric is its best; None where a name does not tell.
pub(crate) fn smallest_is_best(metric: &str) -> Option<bool> {
    match metric.rsplit('.').next() {
        Some("loss") => Some(true),
        Some("accuracy") => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_one_digit() {
        assert_eq!(seconds(1_234_567_890), 1.2);
        assert_eq!(seconds(30_000_000_000), 30.0);
    }

    #[test]
    fn a_slow_worker_in_one_line() {
        let (own_ns, others_ns) = (12_100_000, 6_700_000);
        let phase = SlowPhase::Backward;
        let what = Slowness { phase, times: 1.806, own_ns, others_ns, overall: 1.5 };
        let text = slow(2, "node-b".to_string(), &what, Some((3, 2))).text();
        let right = "worker 2 on node-b: backward 1.8x slower than the others (12.1 ms a shard \
                     against 6.7); its shards 3 -> 2";
        assert_eq!(text, right);
    }

    #[test]
    fn a_mismatch_names_who_says_what() {
        let groups = [(vec![0, 2], "1.5".to_string()), (vec![1], "1.25".to_string())];
        let text = mismatch(7, "loss", &groups);
        assert!(text.contains("step 7") && text.contains("worker 0, 2: 1.5"), "{text}");
        assert!(text.contains("worker 1: 1.25"), "{text}");
    }
}
