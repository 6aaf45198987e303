//! How the main mistakes look to a person. `UPDATE=1 cargo test` writes the golden file.

mod common;

use common::Memory;
use monarch_check::check;
use monarch_diagnostic::{Style, render};

fn file(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the file is there")
}

/// What is said about chargpt or digits after edits to its text, and with values from the
/// command line.
fn said(name: &str, edits: &[(&str, &str)], overrides: &[(&str, &str)]) -> String {
    let mut text = file(&format!("examples/{name}"));
    for (from, to) in edits {
        assert!(text.contains(from), "{name} has no `{from}`");
        text = text.replacen(from, to, 1);
    }
    let world = Memory::with(name, &text);
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    let overrides: Vec<(String, String)> = overrides.iter().map(own).collect();
    let checked = check(&world, name, &overrides, &["workers"]);
    let shown = checked.diagnostics.iter().filter(|d| d.severity.name() != "note");
    shown.map(|d| render(d, &checked.sources, Style::default())).collect()
}

#[test]
fn the_main_ones() {
    let gpt = "chargpt.mon";
    let cases = [
        said(gpt, &[("gelu(x @ up) @ down", "gelu(x @ up) @ up")], &[]),
        said(gpt, &[("  lr    = warmup", "  lrr   = warmup")], &[]),
        said(gpt, &[("batch = 64", "batch = 4 GiB")], &[]),
        said(
            gpt,
            &[
                (
                    "eval       { every = 250 steps, batches = 50 }",
                    "eval       { after = checkpoint }",
                ),
                ("{ every = 10 min, keep = 3", "{ after = eval, keep = 3"),
            ],
            &[],
        ),
        said("digits.mon", &[("on eval.accuracy(", "on stepp(")], &[]),
        said(gpt, &[], &[("D", "400")]),
        said(gpt, &[("100 steps", "9000 steps")], &[]),
        said(gpt, &[("{lang,runtime,stdlib}/**/*.{rs,mon}", "nothing.md")], &[]),
        said("digits.mon", &[("param lr:    float = 1e-3", "param lr:    float = 2B")], &[]),
        said("digits.mon", &[], &[("wdith", "32")]),
        said("digits.mon", &[], &[("width", "5000"), ("lr", "fast")]),
        said("digits.mon", &[("loss(x: f32[B, 64], y", "loss(x: f32[B, 8, 8], z")], &[]),
        said(gpt, &[("h + mlp(norm2(h))", "h + mlp(norm2(hh))")], &[]),
        said(
            gpt,
            &[
                ("[D, F = 4 * D]", "[D, G = 4 * D]"),
                ("RmsNorm[D]\n  forward", "RmsNorm[V]\n  forward"),
            ],
            &[],
        ),
    ];
    let out = cases.join("\n");
    let path = format!("{}/tests/golden/main.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &out).expect("a writable golden file");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file");
    assert!(out == expected, "differs; UPDATE=1 shows how\n{out}");
}
