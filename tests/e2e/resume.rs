//! Stopped and gone on with: the same bits, and each step recorded once.

use crate::support::{Corpus, Outcome, Place, chargpt, checkpoint, digits, process, swap};
use std::path::Path;

/// Params at which a step takes long enough to be interrupted.
const SLOW: &[&str] = &["--depth", "2", "--D", "96", "--H", "3", "--T", "64"];

/// A place with a chargpt of slow steps.
struct Slow {
    place: Place,
    corpus: [String; 2],
}

impl Slow {
    fn new(program: &str) -> Slow {
        let place = Place::with(program);
        let corpus = Corpus::write(&place, 50_000);
        Slow { place, corpus }
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let corpus = self.corpus.iter().map(String::as_str);
        SLOW.iter().copied().chain(corpus).chain(more.iter().copied()).collect()
    }

    fn train(&self, more: &[&str]) -> Outcome {
        self.place.train(&self.args(more))
    }

    /// Interrupts the run `stopped` when step `step` is reported.
    fn stop_at(&self, step: u64) -> Outcome {
        let args = ["--workers", "2", "--threads", "1", "--run-id", "stopped"];
        let mut running = self.place.begin(&self.args(&args));
        running.until_step(step);
        running.signal(libc::SIGINT);
        running.finish().expect_code(130)
    }

    fn run_dir(&self, id: &str) -> std::path::PathBuf {
        self.place.file("runs").join(id)
    }

    /// Goes on with `stopped` on three workers; all must be as if nothing had happened.
    fn ends_as_undisturbed(&self) {
        let right = self.train(&["--workers", "1", "--run-id", "whole"]).ok();
        let first = checkpoint::steps(&self.run_dir("stopped")).pop().expect("a checkpoint");
        let out = self.train(&["--workers", "3", "--resume", "stopped"]).ok();
        assert_eq!(out.last("started")["first_step"], first);
        assert_eq!(out.fingerprint(), right.fingerprint());
        let (ours, theirs) = (records(&self.run_dir("stopped")), records(&self.run_dir("whole")));
        assert_eq!(ours, theirs);
    }
}

/// Steps and evaluations in `events.jsonl`, with every digit.
fn records(run: &Path) -> Vec<String> {
    let line = |e: &serde_json::Value| match e["event"].as_str()? {
        "step" => Some(format!(
            "step {} of epoch {}: {} {} {} {}",
            e["step"], e["epoch"], e["samples"], e["loss"], e["lr"], e["grad_norm"]
        )),
        "eval" => Some(format!("after {}: {} {}", e["step"], e["eval.loss"], e["samples"])),
        _ => None,
    };
    checkpoint::events(run).iter().filter_map(line).collect()
}

/// 43 steps an epoch, and windows that end every 5 steps.
#[test]
fn in_the_middle_of_an_epoch() {
    let program = chargpt(60, 4, "10 min");
    let program = swap(&program, "  batch = 16", "  on eval.loss(below = 0) => stop\n  batch = 16");
    let slow = Slow::new(&program);
    let out = slow.stop_at(2);
    let steps = out.steps();
    assert!((3..43).contains(&steps), "{}", out.story());
    let manifest = checkpoint::manifest(&out.checkpoint());
    assert_eq!(manifest["data"]["epoch"], 0);
    assert_eq!(manifest["data"]["sample"], steps * 16);
    slow.ends_as_undisturbed();
}

/// With a rule on each step's loss windows are one step long, so that it stops at once.
#[test]
fn inside_the_warm_up() {
    let program = chargpt(24, 16, "7 steps");
    let program = swap(&program, "  batch = 16", "  on loss(below = 0) => stop\n  batch = 16");
    let slow = Slow::new(&program);
    let out = slow.stop_at(3);
    assert!((4..14).contains(&out.steps()), "{}", out.story());
    let last = out.last("step")["lr"].as_f64().expect("a rate");
    assert!(last < 0.9e-3, "no longer warming up: {last}");
    slow.ends_as_undisturbed();
}

/// An evaluation on which a rule hangs ends a window: the interrupt comes while it is under way.
#[test]
fn during_an_evaluation() {
    let program = chargpt(14, 4, "4 steps");
    let program = swap(&program, "train = 90%, eval = 10%", "train = 40%, eval = 60%");
    let program = swap(&program, "batches = 2", "batches = 100");
    let program = swap(&program, "  batch = 16", "  on eval.loss(below = 0) => stop\n  batch = 16");
    let slow = Slow::new(&program);
    let out = slow.stop_at(4);
    assert!(out.steps().is_multiple_of(5), "{}", out.story());
    assert_eq!(out.last("eval")["step"], out.steps());
    slow.ends_as_undisturbed();
}

/// As before, but stopped at once: the evaluation and at least a step are lost and made again.
#[test]
fn during_an_evaluation_and_at_once() {
    let program = chargpt(14, 4, "2 steps");
    let program = swap(&program, "train = 90%, eval = 10%", "train = 40%, eval = 60%");
    let program = swap(&program, "batches = 2", "batches = 100");
    let program = swap(&program, "  batch = 16", "  on eval.loss(below = 0) => stop\n  batch = 16");
    let slow = Slow::new(&program);
    let args = ["--workers", "2", "--threads", "1", "--run-id", "stopped"];
    let mut running = slow.place.begin(&slow.args(&args));
    running.until_event("checkpoint");
    running.until_step(4);
    running.signal(libc::SIGINT);
    running.until("warning", |e| e["event"] == "warning");
    running.signal(libc::SIGINT);
    let out = running.finish().expect_code(130);
    let saved = checkpoint::steps(&slow.run_dir("stopped")).pop().expect("a checkpoint");
    // On a busy machine the second word may come when the first has been obeyed.
    match out.of("eval").count() {
        0 => assert!(saved == 2 || saved == 4, "{}", out.story()),
        _ => assert_eq!(saved, 5, "{}", out.story()),
    }
    out.says(&["interrupted", &format!("step-00000000{saved}")]);
    slow.ends_as_undisturbed();
}

/// Stopped twice, gone on with twice, on other numbers of workers each time.
#[test]
fn more_than_once() {
    let program = chargpt(40, 4, "6 steps");
    let program = swap(&program, "  batch = 16", "  on loss(below = 0) => stop\n  batch = 16");
    let slow = Slow::new(&program);
    slow.stop_at(2);
    let mut running = slow.place.begin(&slow.args(&["--workers", "4", "--resume"]));
    running.until_step(11);
    running.signal(libc::SIGTERM);
    let out = running.finish().expect_code(130);
    assert!((12..40).contains(&out.steps()), "{}", out.story());
    slow.ends_as_undisturbed();
}

/// A killed controller has saved nothing at its end; what lies there is enough.
#[test]
fn after_a_kill() {
    let mut slow = Slow::new(&chargpt(40, 4, "3 steps"));
    slow.place.killed = true;
    // Its workers do not wait for another one.
    let args = ["--workers", "2", "--run-id", "stopped", "--patience", "0"];
    let mut running = slow.place.begin(&slow.args(&args));
    running.until("checkpoint", |e| e["event"] == "checkpoint");
    running.signal(libc::SIGKILL);
    assert_eq!(running.finish().signal, Some(libc::SIGKILL));
    let left = process::left_after(slow.place.mark(), std::time::Duration::from_secs(2));
    assert!(left.is_empty(), "{left:?}");
    slow.ends_as_undisturbed();
}

/// Checkpoints every 10 steps of 46, all kept.
fn with_checkpoints(until: &str) -> String {
    let saving = "  batch = 64\n  checkpoint { every = 10 steps, keep = 9 }";
    swap(&digits(until), "  batch = 64", saving)
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let place = Place::with(&with_checkpoints("2 epochs"));
    let right = place.train(&["--workers", "2", "--run-id", "a"]).ok();
    let run = place.file("runs/a");
    assert_eq!(checkpoint::steps(&run), [10, 20, 30, 40, 46]);
    checkpoint::damage(&checkpoint::directory(&run, 46));
    std::fs::write(checkpoint::directory(&run, 40).join("manifest.json"), "{}").expect("written");
    let out = place.train(&["--workers", "3", "--resume"]).ok();
    assert_eq!(out.last("started")["first_step"], 30);
    assert_eq!(out.fingerprint(), right.fingerprint());
    assert_eq!(checkpoint::recorded_steps(&run), (0..46).collect::<Vec<_>>());
    let out = out.says(&["skipped", "step-000000046", "step-000000040"]);
    // What was damaged has been replaced.
    let again = place.train(&["--workers", "1", "--resume", "a"]).ok();
    assert_eq!(again.last("started")["first_step"], 46, "{}", out.story());
    assert_eq!(again.fingerprint(), right.fingerprint());
    for step in checkpoint::steps(&run) {
        checkpoint::damage(&checkpoint::directory(&run, step));
    }
    place.train(&["--resume"]).expect_code(1).says(&["no whole checkpoint", "step-000000046"]);
}

#[test]
fn another_shape_is_refused() {
    let place = Place::with(&with_checkpoints("1 epochs"));
    place.train(&["--workers", "1"]).ok();
    let run = place.run_dir();
    let before = checkpoint::recorded_steps(&run);
    let out = place.train(&["--workers", "1", "--resume", "--width", "64"]).expect_code(2);
    out.says(&["up.w", "64", "128"]);
    assert_eq!(checkpoint::recorded_steps(&run), before, "the refused run left its traces");
}

/// A run that is over can be made longer.
#[test]
fn a_finished_run_goes_on_when_there_is_more_to_do() {
    let place = Place::with(&with_checkpoints("1 epochs"));
    place.train(&["--workers", "2", "--run-id", "short"]).ok();
    place.write("job.mon", with_checkpoints("2 epochs"));
    let out = place.train(&["--workers", "2", "--resume"]).ok();
    assert_eq!(out.last("started")["first_step"], 23);
    let right = place.train(&["--workers", "1", "--run-id", "long"]).ok();
    assert_eq!(out.fingerprint(), right.fingerprint());
    place.write("job.mon", with_checkpoints("1 epochs"));
    place.train(&["--resume", "long"]).expect_code(1).says(&["raise `until`"]);
}

#[test]
fn there_must_be_something_to_resume() {
    let place = Place::with(&digits("1 epochs"));
    let out = place.train(&["--resume"]).expect_code(1);
    // A program that reads the events is told, too.
    assert_eq!(out.last("failed")["code"], 1);
    out.says(&["images", "--resume"]);
    place.train(&["--resume", "nowhere"]).expect_code(1).says(&["nowhere"]);
    place.check_untouched(&["job.mon"]);
    place.train(&["--workers", "1", "--run-id", "a"]).ok();
    let out = place.train(&["--workers", "1", "--run-id", "a"]).expect_code(2);
    out.says(&["--resume", "--run-id"]);
    place.train(&["--run-id", "../a"]).expect_code(2).says(&["../a"]);
}
