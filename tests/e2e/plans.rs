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
