//! Diagnostics that the language was designed with, from `llama3d.mon` with one mistake planted.

mod common;

use common::Memory;
use monarch_diagnostic::{Style, render};

static TWELVE: &str = include_str!("../../diagnostic/tests/golden/twelve.txt");

/// The text of a diagnostic as it was designed.
fn designed(code: &str) -> String {
    let mut lines = TWELVE.lines().skip_while(|l| !l.starts_with(code));
    let first = lines.next().expect("one of the twelve");
    let rest = lines.take_while(|l| !l.starts_with('M'));
    std::iter::once(first).chain(rest).map(|l| format!("{l}\n")).collect()
}

#[track_caller]
fn planted(code: &str, from: &str, to: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/llama3d.mon");
    let text = std::fs::read_to_string(path).expect("the example is there");
    assert_eq!(text.matches(from).count(), 1, "{from}");
    let checked = Memory::with("llama3d.mon", &text.replace(from, to)).check("llama3d.mon");
    let found: Vec<String> = checked
        .diagnostics
        .iter()
        .filter(|d| d.code == code)
        .map(|d| render(d, &checked.sources, Style::default()))
        .collect();
    assert_eq!(found, [designed(code)], "{}", common::shown(&checked));
}

#[test]
fn a_batch_of_bytes() {
    planted("M0103", "batch = 4M tokens", "batch = 4 GiB");
}

#[test]
fn a_run_shorter_than_its_warmup() {
    planted("M0503", "20B tokens", "5B tokens");
}
