//! Checkpoints and records on disk, as they lie there.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// `step-000000012`
pub fn directory(run: &Path, step: u64) -> PathBuf {
    run.join(format!("step-{step:09}"))
}

/// Steps of the whole checkpoints in a run's directory.
pub fn steps(run: &Path) -> Vec<u64> {
    let list = fs::read_dir(run).expect("a run").flatten();
    let step = |name: String| name.strip_prefix("step-")?.parse().ok();
    let named = list.filter(|e| e.path().join("manifest.json").exists());
    let mut found: Vec<u64> =
        named.filter_map(|e| step(e.file_name().to_string_lossy().into_owned())).collect();
    found.sort_unstable();
    found
}

pub fn manifest(directory: &Path) -> Value {
    let path = directory.join("manifest.json");
    let text = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("a manifest in JSON")
}

/// Lines of `events.jsonl`, each of which must be JSON.
pub fn events(run: &Path) -> Vec<Value> {
    let path = run.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let parse = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"));
    text.lines().map(parse).collect()
}

/// Numbers of the steps that `events.jsonl` records, in its order.
pub fn recorded_steps(run: &Path) -> Vec<u64> {
    let all = events(run);
    let steps = all.iter().filter(|e| e["event"] == "step");
    steps.map(|e| e["step"].as_u64().expect("a step")).collect()
}

/// Flips one bit in the largest file of a checkpoint.
pub fn damage(directory: &Path) {
    let files = fs::read_dir(directory).expect("a checkpoint").flatten().map(|e| e.path());
    let largest = files.max_by_key(|p| fs::metadata(p).map_or(0, |m| m.len())).expect("a file");
    let mut bytes = fs::read(&largest).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&largest, bytes).expect("a file can be written");
}
