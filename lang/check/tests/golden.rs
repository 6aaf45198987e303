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

/// What is said with this code about a program after one edit.
fn only(code: &str, name: &str, from: &str, to: &str) -> String {
    let text = file(&format!("examples/{name}"));
    assert!(text.contains(from), "{name} has no `{from}`");
    let checked = Memory::with(name, &text.replacen(from, to, 1)).check(name);
    let shown = checked.diagnostics.iter().filter(|d| d.code == code);
    shown.map(|d| render(d, &checked.sources, Style::default())).collect()
}

/// Events, hooks and what waits for what, letter by letter.
#[test]
fn events_and_hooks() {
    let said = only("M0110", "llama3d.mon", "on step(every", "on stepp(every");
    let expected = "\
M0110 × nothing called `stepp` ever happens   ╭ llama3d.mon:46:6
46 │   on stepp(every = 50 steps) => ```rhai
   ·      ───── unknown event
   ╰ help: did you mean `step`? also: eval.done, checkpoint.done, worker.lost, loss.nan, \
loss.spike, stop
";
    assert_eq!(said, expected);
    let said = only("M0702", "llama3d.mon", "{ note(", "{ noet(");
    let expected = "\
M0702 × this hook calls `noet`, which hooks do not have   ╭ llama3d.mon:47:50
47 │     if metric(\"loss\") > 1.5 * ema(\"loss\", 200) { noet(\"spike\"); checkpoint(); }
   ·                                                  ──── unknown function (Rhai 2:50)
   ╰ help: did you mean `note`? a hook may: note, checkpoint, set, rollback, stop
";
    assert_eq!(said, expected);
    let text = "{ every = 250 steps, batches = 50 }\n  checkpoint { every = 10 min, keep";
    let waits = "{ after = checkpoint }\n  checkpoint { after = eval, keep";
    let said = only("M0501", "chargpt.mon", text, waits);
    let expected = "\
M0501 × `eval` and `checkpoint` wait for each other   ╭ chargpt.mon:59:16
59 │   eval       { after = checkpoint }
   ·                ────────────────── eval waits for checkpoint
60 │   checkpoint { after = eval, keep = 3, to = \"runs/{run.id}\" }
   ·                ──────────── checkpoint waits for eval
   ╰ help: give one of them a clock: `eval { every = 250 steps }`
";
    assert_eq!(said, expected);
}
