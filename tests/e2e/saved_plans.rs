//! `monarch plan --save` and `monarch run --plan`; layouts that a run carries out and those that
//! it does not.

use crate::support::{Place, digits, swap};
use std::fs;

#[test]
fn the_saved_plan_runs_and_a_changed_one_does_not() {
    let text = digits("20 steps");
    let place = Place::with(&text);
    let out = place.run(&["plan", "job.mon", "--save", "job.plan"]).ok().says(&["saved as"]);
    assert!(out.stdout.iter().any(|l| l.starts_with("peak memory")), "{}", out.story());
    let saved = fs::read_to_string(place.file("job.plan")).expect("a plan");
    for part in ["\"monarch_plan\": 1", "\"param width\": \"128\"", "\"train.steps\": \"20\""] {
        assert!(saved.contains(part), "no {part} in {saved}");
    }
    // The same text laid out in another way, and another number of workers, is the same plan.
    place.write("job.mon", format!("# a remark\n\n{text}"));
    let args = ["--plan", "job.plan", "--workers", "3"];
    assert_eq!(place.train(&args).ok().steps(), 20);

    let out = place.run(&["run", "job.mon", "--plan", "job.plan", "--lr", "2e-3"]);
    let out = out.expect_code(3).says(&["M0850", "param lr: 2e-3; saved: 1e-3"]);
    assert!(out.stdout.is_empty(), "{}", out.story());
    let other = swap(&text, "x |> up |> relu |> down", "x |> up |> relu |> relu |> down");
    let other = swap(&other, "batch = 64", "batch = 32");
    place.write("job.mon", other);
    let out = place.train(&["--plan", "job.plan"]).expect_code(3);
    let rows = out.last("differs")["differences"].as_array().cloned().unwrap_or_default();
    let what: Vec<&str> = rows.iter().filter_map(|r| r["what"].as_str()).collect();
    let wanted = ["graph of eval", "graph of the loss", "train.batch", "train.eval.every"];
    assert_eq!(what, wanted, "{}", out.story());
    assert_eq!(place.run_dirs().len(), 1);
}

/// Whatever decides what a run does makes another plan: none of these is let through.
#[test]
fn every_setting_is_part_of_the_plan() {
    let text = digits("20 steps");
    let place = Place::with(&text);
    place.run(&["plan", "job.mon", "--save", "job.plan"]).ok();
    let added = |entry: &str| swap(&text, "batch = 64", format!("batch = 64\n  {entry}"));
    let spared = swap(&text, "AdamW(lr)", "AdamW(lr, decay_on = matrices)");
    let cases = [
        (spared, "train.optim.decay_on"),
        (added("fault { loss.nan = skip(3 steps) then stop }"), "train.fault.loss.nan"),
        (added("fault { worker.lost = stop }"), "train.fault.worker.lost"),
        (added("metrics { every = 10 steps }"), "train.metrics.every"),
        (added("metrics { log = [loss] }"), "train.metrics.log"),
        (added("checkpoint { async = false }"), "train.checkpoint"),
        (added("on loss.nan => stop"), "train.hooks"),
        (added("on loss(above = 100) => stop"), "train.rules"),
    ];
    let said = place.run(&["plan", "job.mon", "--json"]).ok();
    assert_eq!(said.last("plan")["name"], "images", "{}", said.story());
    place.run(&["plan", "job.mon", "--json", "--search"]).ok().last("layouts");
    let facts = |name: &str| -> serde_json::Value {
        let text = fs::read_to_string(place.file(name)).expect("a plan");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["facts"].take()
    };
    let plain = facts("job.plan");
    for (changed, what) in cases {
        place.write("job.mon", changed);
        place.run(&["plan", "job.mon", "--save", "other.plan"]).ok();
        assert_ne!(facts("other.plan")[what], plain[what], "{what}");
    }
    place.run(&["run", "job.mon", "--plan", "job.plan"]).expect_code(3).says(&["train.rules"]);
    assert!(place.run_dirs().is_empty());
}

#[test]
fn files_that_are_no_saved_plans() {
    let place = Place::with(&digits("20 steps"));
    place.run(&["plan", "job.mon", "--save", "job.plan"]).ok();
    let whole = fs::read_to_string(place.file("job.plan")).expect("a plan");
    let cases = [
        ("cut.plan", whole[..whole.len() / 2].to_owned(), "ends too early"),
        ("empty.plan", String::new(), "ends too early"),
        ("text.plan", "not json".to_owned(), "no JSON"),
        ("other.plan", "{\"a\": 1}".to_owned(), "no `monarch_plan`"),
        ("later.plan", swap(&whole, "\"monarch_plan\": 1", "\"monarch_plan\": 2"), "version 2"),
        (
            "hand.plan",
            swap(&whole, "\"train.steps\": \"20\"", "\"train.steps\": \"9\""),
            "was changed after it was saved",
        ),
    ];
    for (name, text, words) in cases {
        place.write(name, text);
        place.run(&["run", "job.mon", "--plan", name]).expect_code(2).says(&[name, words]);
    }
    place.run(&["run", "job.mon", "--plan", "nothing.plan"]).expect_code(2).says(&["nothing.plan"]);
    // A program is not overwritten by a slip of the hand.
    let program = fs::read_to_string(place.file("job.mon")).expect("the program");
    let out = place.run(&["plan", "job.mon", "--save", "job.mon"]).expect_code(1);
    out.says(&["job.mon exists and is no saved plan"]);
    assert_eq!(fs::read_to_string(place.file("job.mon")).ok(), Some(program));
    assert!(place.run_dirs().is_empty());
}

/// Replicas on CPU workers are what a run does anyway: the same bits, and as many workers.
#[test]
fn replicas_are_carried_out() {
    let text = digits("20 steps");
    let plain = Place::with(&text).train(&["--workers", "1"]).ok().fingerprint();
    let layout = "plan p on lab {\n  mesh  = { dp = 2 }\n  shard { B -> dp }\n}\n";
    let laid = swap(&text, "train images {", format!("{layout}train images on p {{"));
    for lab in ["cluster lab { workers = 2 }", "cluster lab { device = CPU { count = 2 } }"] {
        let place = Place::with(&format!("{lab}\n{laid}"));
        place.run(&["plan", "job.mon", "--save", "job.plan"]).ok();
        let out = place.train(&["--plan", "job.plan"]).ok();
        assert_eq!(out.last("started")["workers"], 2, "{}", out.story());
        assert_eq!(out.fingerprint(), plain);
        place.run(&["run", "job.mon", "--workers", "3"]).expect_code(2).says(&["dp = 2"]);
    }
}

#[test]
fn layouts_that_are_planned_only() {
    let lab = "cluster lab { device = H100 { count = 4 }, key = env(\"MONARCH_TEST_KEY\") }\n";
    let layout = "plan p on lab {\n  mesh  = { dp = 2, tp = 2 }\n  shard { B -> dp, H -> tp }\n}\n";
    let text = swap(&digits("20 steps"), "train images {", "train images on p {");
    let place = Place::with(&format!("{lab}{layout}{text}"));
    place.run(&["plan", "job.mon", "--save", "job.plan"]).ok().says(&["saved as"]);
    let saved = fs::read_to_string(place.file("job.plan")).expect("a plan");
    assert!(saved.contains("\"plan.mesh\": \"dp = 2, tp = 2\""), "{saved}");
    for option in [["--workers", "3"], ["--threads", "2"], ["--transport", "quic"]] {
        let out = place.run(&[&["plan", "job.mon"][..], &option].concat()).expect_code(2);
        out.says(&[option[0], "declares devices"]);
        place.run(&[&["plan", "job.mon", "--search"][..], &option].concat()).expect_code(2);
        let device = [&["plan", "job.mon", "--device", "H100:4"][..], &option].concat();
        place.run(&device).expect_code(2).says(&[option[0]]);
    }
    let out = place.run(&["run", "job.mon", "--plan", "job.plan"]).expect_code(2);
    out.says(&["M0906", "H100", "axis `tp`", "H over `tp`"]);
    assert!(place.run_dirs().is_empty());
}

#[test]
fn a_key_in_the_environment() {
    let lab = "cluster lab { workers = 2, key = env(\"MONARCH_TEST_KEY\") }\n";
    let place = Place::with(&format!("{lab}{}", digits("5 steps")));
    place.run(&["check", "job.mon"]).ok();
    place.run(&["plan", "job.mon"]).ok();
    place.run(&["run", "job.mon"]).expect_code(4).says(&["`MONARCH_TEST_KEY`", "not set"]);
    place.run(&["key", "cluster.key"]).ok();
    let key = fs::read_to_string(place.file("cluster.key")).expect("a key");
    for (value, code) in [(key.as_str(), 0), ("short", 4)] {
        let mut command = place.monarch(&["run", "job.mon", "--quiet"]);
        command.env("MONARCH_TEST_KEY", value);
        let out = crate::support::Running::start(command, crate::support::LIMIT).finish();
        let out = out.expect_code(code);
        assert!(!out.stderr.contains(key.trim()), "the key is shown: {}", out.story());
    }
}
