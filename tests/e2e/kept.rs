//! What a job says about its checkpoints, evaluations and records is what lies there afterwards.

use crate::support::{Place, digits, swap};
use serde_json::Value;
use std::fs;

/// Digits for three epochs of 23 steps, with more settings.
fn run(more: &str, eval: &str) -> (Place, Vec<Value>, Vec<u64>) {
    let text = swap(&digits("3 epochs"), "batch = 64", format!("batch = 64\n  {more}"));
    let text = swap(&text, "every = 1 epoch", eval);
    let place = Place::with(&text);
    place.run(&["run", "job.mon", "--workers", "2"]).expect_code(0);
    let lines = fs::read_to_string(place.run_dir().join("events.jsonl")).expect("events");
    let events = lines.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let names = fs::read_dir(place.run_dir()).expect("a folder").flatten();
    let step = |name: String| name.strip_prefix("step-").and_then(|n| n.parse().ok());
    let mut saved: Vec<u64> =
        names.filter_map(|e| step(e.file_name().to_string_lossy().into_owned())).collect();
    saved.sort_unstable();
    (place, events, saved)
}

fn steps_of(events: &[Value], kind: &str) -> Vec<u64> {
    let all = events.iter().filter(|e| e["event"] == kind);
    all.filter_map(|e| e["step"].as_u64()).collect()
}

#[test]
fn milestones_and_the_best_are_kept_and_some_steps_recorded() {
    let more = "checkpoint { every = 10 steps, keep = 1, also = 25 steps, \
                best = max(eval.accuracy) }\n  \
                metrics { every = 10 steps, log = [loss, lr, memory.peak] }";
    let (_place, events, saved) = run(more, "every = 9 steps");
    let mut best = (f64::MIN, 0);
    for e in events.iter().filter(|e| e["event"] == "eval") {
        let found = (e["eval.accuracy"].as_f64().expect("a share"), e["step"].as_u64());
        if found.0 > best.0 {
            best = (found.0, found.1.expect("a step"));
        }
    }
    let mut expected = vec![25, 50, 69, best.1];
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(saved, expected, "the best is of step {}", best.1);
    assert_eq!(steps_of(&events, "step"), [9, 19, 29, 39, 49, 59, 68]);
    let step = events.iter().find(|e| e["event"] == "step").expect("a step");
    assert!(step["loss"].is_f64() && step["lr"].is_f64() && step["memory_peak"].is_f64(), "{step}");
    assert!(step["grad_norm"].is_null() && step["samples_per_second"].is_null(), "{step}");
}

#[test]
fn evaluations_follow_checkpoints_and_the_other_way_round() {
    let (_place, events, _) = run("checkpoint { every = 20 steps }", "after = checkpoint");
    assert_eq!(steps_of(&events, "eval"), [20, 40, 60, 69]);
    let more = "checkpoint { after = eval, keep = 9, async = false }";
    let (_place, _, saved) = run(more, "every = 30 steps");
    assert_eq!(saved, [30, 60, 69]);
}

#[test]
fn weights_alone_are_weights_alone() {
    let (place, _, saved) = run("checkpoint { what = weights }", "every = 1 epoch");
    assert_eq!(saved, [69]);
    let manifest = place.run_dir().join("step-000000069/manifest.json");
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(manifest).expect("a manifest")).expect("JSON");
    let tensors = manifest["tensors"].as_array().expect("a list");
    let names: Vec<&str> = tensors.iter().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(!names.iter().any(|n| n.starts_with("optim.")), "{names:?}");
}
