//! The event loop against scripted workers: threads that speak the messages of real ones.

mod fake;
mod faults;
mod interrupts;
mod network;
mod plan;
mod runs;

use fake::Fakes;
use monarch_controller::{
    ControlHandle, RunConfig, RunError, RunEvent, Summary, Timeouts, control, run,
};
use std::path::Path;
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;

/// A run in `dir` with deadlines that a test can wait for.
fn config(dir: &Path, plan: monarch_graph::Plan, workers: u32) -> RunConfig {
    let hash = monarch_wire::job_hash(&plan).unwrap();
    let mut config = RunConfig::new(plan, hash, "r1", dir.join("r1"), workers);
    config.sources = vec!["one\ntwo three\n".to_string()];
    config.timeouts = Timeouts {
        join_ns: 3_000 * MS,
        ready_ns: 3_000 * MS,
        stall_ns: 3_000 * MS,
        grace_ns: 3_000 * MS,
        settle_ns: 400 * MS,
        halt_ns: 3_000 * MS,
        return_ns: 3_000 * MS,
    };
    config.recovery.least = 0;
    config
}

/// Runs and keeps all events. `react` may answer each.
fn observe(
    config: &RunConfig,
    fakes: &mut Fakes,
    mut react: impl FnMut(&RunEvent, &ControlHandle),
) -> (Result<Summary, RunError>, Vec<RunEvent>) {
    let (handle, inbox) = control();
    let mut events = Vec::new();
    let mut observer = |event: &RunEvent| {
        react(event, &handle);
        events.push(event.clone());
    };
    let result = run(config, fakes, &mut observer, inbox);
    // No worker outlives its run.
    assert_eq!(fakes.alive.load(Ordering::SeqCst), 0);
    (result, events)
}

fn steps(events: &[RunEvent]) -> Vec<u64> {
    let step = |e: &RunEvent| match e {
        RunEvent::Step(s) => Some(s.step),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

fn warnings(events: &[RunEvent]) -> Vec<String> {
    let text = |e: &RunEvent| match e {
        RunEvent::Warning { text } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// Names in a run's directory.
fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn step_lines(dir: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(dir.join("events.jsonl")).unwrap();
    let line = |l: &str| {
        let value: serde_json::Value = serde_json::from_str(l).unwrap();
        Some((value["event"].as_str()?.to_string(), value["step"].as_u64()?))
    };
    text.lines().filter_map(line).collect()
}
