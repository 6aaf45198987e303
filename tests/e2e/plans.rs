//! `monarch plan` of the examples, word for word. `UPDATE_GOLDEN=1` writes them anew.

use crate::support::{LIMIT, Place, Running, root};
use std::fs;

/// Each of the five lines that a person judges by.
const FIRST: &[&str] = &["devices", "peak memory", "step time", "bubble"];

/// The step's time is told for one set of vector instructions, whatever this machine has.
fn golden(name: &str, args: &[&str]) {
    let place = Place::new();
    let program = root().join("examples").join(format!("{name}.mon"));
    let program = program.display().to_string();
    let mut command = place.monarch(&[&["plan", &program], args].concat());
    command.env("MONARCH_ISA", "avx2");
    let out = Running::start(command, LIMIT).finish().ok();
    let text = out.stdout.join("\n") + "\n";
    for (line, start) in text.lines().zip(FIRST) {
        assert!(line.starts_with(start), "`{line}` does not begin with `{start}`");
    }
    let fifth = text.lines().nth(4).unwrap_or_default();
    assert!(fifth.contains("a day"), "{fifth}");
    let path = root().join("tests/golden").join(format!("{name}.plan.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).expect("a golden plan can be written");
    }
    let right = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, right, "{} (UPDATE_GOLDEN=1 writes it anew)", path.display());
    place.check_untouched(&[]);
}

#[test]
fn digits() {
    golden("digits", &["--workers", "4", "--threads", "1"]);
}

/// The corpus is a fixed text, a million characters of 96 kinds, so that the plan does not change
/// with this project's own source.
#[test]
fn chargpt() {
    let text: String = (0..1_000_000u32).map(|i| char::from(32 + (i % 96) as u8)).collect();
    let folder = Place::new();
    let corpus = folder.write("corpus.txt", text).display().to_string();
    let args = ["--corpus", &corpus, "--workers", "3", "--threads", "2", "--transport", "quic"];
    golden("chargpt", &args);
}

#[test]
fn images() {
    golden("images", &["--workers", "2", "--threads", "1"]);
}

/// Sixteen GPUs that are not here.
#[test]
fn llama3d() {
    golden("llama3d", &[]);
}

/// Devices from the command line, and a search, both as one JSON object after the version line.
#[test]
fn other_devices_and_a_search() {
    let place = Place::new();
    let program = root().join("examples/llama3d.mon").display().to_string();
    let out = place.monarch(&["plan", &program, "--device", "H200:8", "--json"]);
    let out = Running::start(out, LIMIT).finish();
    // Two stages of two replicas of four parts are no eight devices.
    assert!(out.errors().iter().any(|e| e["code"] == "M0306"), "{}", out.story());
    let out = place.run(&["plan", &program, "--device", "MI300"]).expect_code(2);
    out.says(&["M0319", "did you mean `MI300X`?"]);
    let out = place.monarch(&["plan", &program, "--search", "--json"]);
    let out = Running::start(out, LIMIT).finish().ok();
    let found: serde_json::Value = out
        .stdout
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("{}", out.story()));
    assert_eq!(found["devices"], 16);
    assert_eq!(found["best"].as_array().map(Vec::len), Some(10));
    let digits = root().join("examples/digits.mon").display().to_string();
    let out = place.monarch(&["plan", &digits, "--search"]);
    let out = Running::start(out, LIMIT).finish().ok();
    assert!(out.stdout.iter().any(|l| l.starts_with("cluster here { workers = ")));
    place.check_untouched(&[]);
}
