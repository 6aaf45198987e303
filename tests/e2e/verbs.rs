//! Verbs around a run: `new`, `show`, `explain`, `test`, `sweep`, and the JSON of each.

use crate::support::{Outcome, Place};
use serde_json::Value;

/// Every line is JSON, and the first names its version and verb.
#[track_caller]
fn is_json(outcome: &Outcome, verb: &str) {
    assert_eq!(outcome.events.len(), outcome.stdout.len(), "{}", outcome.story());
    let head = &outcome.events[0];
    assert!(head["json"].as_u64() == Some(1) && head["verb"] == verb, "{head}");
}

#[test]
fn new_programs_run_as_they_stand_and_nothing_is_overwritten() {
    let place = Place::new();
    for example in ["digits", "gpt"] {
        place.run(&["new", example, "--example", example]).ok();
        let job = format!("{example}/job.mon");
        place.run(&["check", &job]).ok();
        place.run(&["plan", &job]).ok();
        let again = place.run(&["new", example, "--json"]).expect_code(2);
        again.says(&["job.mon", "nothing was written"]);
    }
    place.run(&["new", "other", "--example", "gtp"]).expect_code(2).says(&["gpt"]);
    let made = place.run(&["new", "third", "--json"]).ok();
    is_json(&made, "new");
    place.run(&["test", "gpt/job.mon"]).ok();
}

#[test]
fn the_library_is_shown_and_explained() {
    let place = Place::new();
    let llama = place.run(&["show", "std.models.llama"]).ok();
    assert!(llama.stdout.iter().any(|l| l.starts_with("layer Llama[")), "{}", llama.story());
    place.run(&["show", "nn.Lineer"]).expect_code(2).says(&["did you mean", "std.nn.Linear"]);
    for (verb, args) in [
        ("show", vec!["show", "--json"]),
        ("show", vec!["show", "AdamW", "--json"]),
        ("explain", vec!["explain", "--json"]),
        ("explain", vec!["explain", "M0201", "--json"]),
    ] {
        is_json(&place.run(&args).ok(), verb);
    }
    place.run(&["explain", "linaer"]).expect_code(2).says(&["Linear"]);
    place.run(&["chekc"]).expect_code(2).says(&["`chekc`", "monarch check"]);
}

/// The pages of codes that only a test can give do what they say.
#[test]
fn pages_of_tests() {
    for code in ["M1001", "M1002", "M1005"] {
        let page = monarch_diagnostic::page(code).expect("a page");
        let programs = page.programs();
        let place = Place::with(programs[0]);
        place.run(&["test", "job.mon"]).expect_code(1).says(&[code]);
        place.write("job.mon", programs[1]);
        let fine = place.run(&["test", "job.mon", "--json"]).ok();
        is_json(&fine, "test");
        assert_eq!(fine.last("tests")["passed"].as_u64(), Some(1), "{}", fine.story());
    }
}

fn digits(more: &str) -> String {
    let path = crate::support::root().join("examples/digits.mon");
    let text = std::fs::read_to_string(path).expect("the example");
    text.replace("until = 20 epochs", "until = 2 epochs") + more
}

#[test]
fn tests_of_an_example_pass_and_filters_choose() {
    let place = Place::with(&digits("test \"wrong\" {\n  assert width == 7\n}\n"));
    place.run(&["test", "job.mon", "--filter", "memorised"]).ok();
    let all = place.run(&["test", "job.mon"]).expect_code(1);
    assert_eq!(all.stdout.last().map(String::as_str), Some("1 passed, 1 failed"));
    all.says(&["M1001", "128 == 7"]);
    place.run(&["test", "job.mon", "--filter", "nothing"]).expect_code(2).says(&["memorised"]);
    place.run(&["test", "job.mon", "--width", "0"]).expect_code(2);
}

const SWEEP: &str = "sweep rates on images {
  lr = [1e-3, 1e-2], width = [16, 32]
  pick  = max(eval.accuracy)
  limit = { trials = 3, each = 20 steps }
}
";

#[test]
fn a_sweep_ranks_its_trials_and_goes_on() {
    let place = Place::with(&digits(SWEEP));
    let done = place.run(&["sweep", "job.mon", "--workers", "1", "--run-id", "s", "--json"]).ok();
    is_json(&done, "sweep");
    let trials: Vec<&Value> = done.of("trial.done").collect();
    assert_eq!(trials.len(), 3, "{}", done.story());
    assert!(trials.iter().all(|t| t["steps"].as_u64() == Some(20)), "{}", done.story());
    let best = done.last("ranked")["best"].as_u64().expect("a best");
    let accuracy = |n: u64| {
        let trial = trials.iter().find(|t| t["trial"].as_u64() == Some(n));
        trial.and_then(|t| t["metrics"]["eval.accuracy"].as_f64()).expect("an accuracy")
    };
    assert!((1..=3).all(|n| accuracy(n) <= accuracy(best)), "{}", done.story());
    assert!(place.file("runs/s/01/job.json").exists());
    let again = place.run(&["sweep", "job.mon", "--resume", "s", "--workers", "1", "--json"]).ok();
    assert_eq!(again.of("trial.done").count(), 0, "{}", again.story());
    place.run(&["sweep", "job.mon", "--lr", "1"]).expect_code(2).says(&["varies"]);
    // One bad trial refuses all of them.
    place.write("job.mon", digits(&SWEEP.replace("16, 32", "16, 5000")));
    place.run(&["sweep", "job.mon"]).expect_code(2).says(&["16..4096"]);
}
