//! What can be seen of a run: JSON lines, TensorBoard files, a Chrome trace.

use crate::support::{Corpus, Outcome, Place, chargpt, checkpoint, digits, root};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[track_caller]
fn number(event: &Value, key: &str) -> f64 {
    event[key].as_f64().unwrap_or_else(|| panic!("no number `{key}` in {event}"))
}

/// Every line is an event; a step says what a person wants to plot.
#[test]
fn lines() {
    let place = Place::with(&digits("2 epochs"));
    let out = place.train(&["--workers", "3"]).ok();
    let events = checkpoint::events(&place.run_dir());
    let of = |kind: &str| events.iter().filter(|e| e["event"] == kind).collect::<Vec<_>>();
    assert_eq!(of("start").len(), 1);
    assert_eq!(of("start")[0]["version"], 1);
    assert_eq!(of("start")[0]["workers"].as_array().map(Vec::len), Some(3));
    assert_eq!(of("joined").len(), 3);
    assert_eq!(of("step").len(), 46);
    assert_eq!(of("eval").len(), 2);
    assert_eq!(of("end").len(), 1);
    assert_eq!(of("end")[0]["fingerprint"], out.fingerprint());
    assert_eq!(events.last().map(|e| &e["event"]), Some(&Value::from("end")));
    let mut before = 0.0;
    for (line, said) in of("step").into_iter().zip(out.of("step")) {
        for key in ["loss", "lr", "grad_norm"] {
            assert_eq!(line[key].to_string(), said[key].to_string());
        }
        assert!(number(line, "loss") > 0.0 && number(line, "grad_norm") > 0.0);
        assert!(number(line, "samples_per_second") > 0.0);
        assert!(number(line, "seconds") > 0.0);
        assert!(number(line, "time") >= before, "time runs backwards");
        before = number(line, "time");
        let workers = line["workers"].as_array().expect("workers");
        assert_eq!(workers.len(), 3);
        for worker in workers {
            let part = |key| number(worker, key);
            let sum = part("compute_ns") + part("wait_ns") + part("update_ns");
            assert!(part("compute_ns") > 0.0 && part("update_ns") > 0.0, "{worker}");
            assert!(part("data_ns") >= 0.0 && part("communication_ns") > 0.0, "{worker}");
            assert!(part("sent_bytes") > 0.0, "{worker}");
            assert!((sum - part("total_ns")).abs() <= 1.0, "{worker}");
        }
        let share = number(line, "wait_share");
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
    let counted: f64 = of("step").iter().map(|e| number(e, "samples")).sum();
    // Four fifths of 1,797 images, twice, each once an epoch.
    assert_eq!(counted, 2.0 * 1437.0);
    assert!(of("eval").iter().all(|e| number(e, "samples") == 360.0));
    assert!(of("eval").iter().all(|e| number(e, "eval.accuracy") > 0.5));
}

/// `--json` prints a version line first, then events.
#[test]
fn events_of_a_program_that_has_tokens() {
    let (place, out) = gpt(&["--workers", "2"], &[]);
    assert_eq!(out.events[0]["json"], 1);
    assert_eq!(out.events[0]["verb"], "run");
    assert_eq!(out.stdout.len(), out.events.len(), "{}", out.story());
    for line in checkpoint::events(&place.run_dir()).iter().filter(|e| e["event"] == "step") {
        let tokens = number(line, "tokens_per_second") / number(line, "samples_per_second");
        assert!((tokens - 64.0).abs() < 1e-6, "{tokens} tokens in a sample");
    }
}

/// A chargpt with several buckets.
fn gpt(args: &[&str], before: &[&str]) -> (Place, Outcome) {
    let place = Place::with(&chargpt(6, 4, "10 min"));
    let corpus = Corpus::write(&place, 20_000);
    let sizes = ["--depth", "3", "--D", "192", "--H", "3", "--T", "64"];
    let corpus: Vec<&str> = corpus.iter().map(String::as_str).collect();
    let out = place.train(&[before, &sizes, &corpus[..], args].concat()).ok();
    (place, out)
}

/// A span of the trace.
struct Span {
    worker: u64,
    category: String,
    name: String,
    step: u64,
    start: f64,
    end: f64,
}

fn spans(run: &Path) -> Vec<Span> {
    let text = fs::read_to_string(run.join("trace.json")).expect("a trace");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let all = trace["traceEvents"].as_array().expect("events");
    let span = |e: &Value| Span {
        worker: e["pid"].as_u64().expect("a process"),
        category: e["cat"].as_str().expect("a category").to_string(),
        name: e["name"].as_str().expect("a name").to_string(),
        step: e["args"]["step"].as_u64().expect("a step"),
        start: number(e, "ts"),
        end: number(e, "ts") + number(e, "dur"),
    };
    all.iter().filter(|e| e["ph"] == "X").map(span).collect()
}

/// Reductions that lie under the backward pass of the same worker and step, and all reductions.
fn under_backward(spans: &[Span]) -> (usize, usize) {
    let is_reduction = |s: &&Span| s.name.starts_with("reduce bucket");
    let is_backward = |s: &&Span| s.category == "compute" && s.name.contains("backward");
    assert!(spans.iter().any(|s| is_backward(&s)), "no backward pass in the trace");
    let odd = spans.iter().find(|s| is_reduction(s) && s.category != "communication");
    assert!(odd.is_none(), "a reduction outside the communication stream");
    let reductions: Vec<&Span> = spans.iter().filter(is_reduction).collect();
    let hidden = reductions.iter().filter(|r| {
        spans
            .iter()
            .filter(is_backward)
            .any(|b| (b.worker, b.step) == (r.worker, r.step) && r.start < b.end && b.start < r.end)
    });
    (hidden.count(), reductions.len())
}

#[test]
fn a_trace_shows_reductions_under_backward() {
    let (place, out) = gpt(&["--workers", "2", "--threads", "1"], &["--trace", "3..5"]);
    let found = spans(&place.run_dir());
    // What is done between steps, such as an evaluation, is shown with the step after it.
    let within = found.iter().filter(|s| s.category != "host");
    let mut steps: Vec<u64> = within.map(|s| s.step).collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps, [3, 4], "{}", out.story());
    let mut workers: Vec<u64> = found.iter().map(|s| s.worker).collect();
    workers.sort_unstable();
    workers.dedup();
    assert_eq!(workers.len(), 2);
    let (hidden, all) = under_backward(&found);
    eprintln!("{hidden} of {all} reductions lie under backward");
    assert!(hidden > 0 && hidden < all, "{hidden} of {all}");

    let args = ["--workers", "2", "--threads", "1", "--no-overlap"];
    let (place, apart) = gpt(&args, &["--trace", "3..5"]);
    let (hidden, same) = under_backward(&spans(&place.run_dir()));
    assert_eq!((hidden, same), (0, all), "without overlap");
    assert_eq!(apart.fingerprint(), out.fingerprint());
    assert!(!place.file("runs").join("trace.json").exists());
}

/// A Python that has TensorBoard: the one in `PYTHON`, else `python3`.
fn python() -> std::ffi::OsString {
    std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into())
}

/// What TensorBoard's own reader finds in a run; None where it is not installed.
fn tensorboard(place: &Place, run: &Path) -> Option<Value> {
    let script = root().join("tests/tools/check_events.py");
    let mut command = place.command(python());
    command.arg(script).arg(run).env("PYTHONDONTWRITEBYTECODE", "1");
    let out = command.output().ok();
    let missing = out.as_ref().is_none_or(|o| o.status.code() == Some(77));
    if missing {
        let needed = std::env::var_os("MONARCH_NEED_TENSORBOARD").is_some_and(|v| v == "1");
        assert!(!needed, "TensorBoard is not installed for {:?}", python());
        eprintln!("not tried: {:?} has no TensorBoard", python());
        return None;
    }
    let out = out.expect("it ran");
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{words}");
    Some(serde_json::from_slice(&out.stdout).expect("JSON"))
}

/// Points of a curve: steps and values.
fn curve(found: &Value, tag: &str) -> Vec<(u64, f64)> {
    let list = found["scalars"][tag].as_array().unwrap_or_else(|| panic!("no curve `{tag}`"));
    list.iter().map(|p| (p[0].as_u64().expect("step"), p[1].as_f64().expect("value"))).collect()
}

/// Curves as recorded, also across an interruption.
#[test]
fn tensorboard_reads_the_curves() {
    let program = crate::support::swap(
        &digits("2 epochs"),
        "= 64\n",
        "= 64\n  checkpoint { every = 9 steps }\n",
    );
    let place = Place::with(&program);
    let out = place.train(&["--workers", "2", "--run-id", "a"]).ok();
    let run = place.file("runs/a");
    let Some(found) = tensorboard(&place, &run) else { return };
    let check = |found: &Value| {
        let losses = curve(found, "train/loss");
        assert_eq!(losses.len(), 46);
        for ((step, value), said) in losses.iter().zip(out.of("step")) {
            assert_eq!(said["step"], *step);
            assert_eq!(*value as f32, number(said, "loss") as f32);
        }
        let accuracy: Vec<u64> = curve(found, "eval/accuracy").iter().map(|p| p.0).collect();
        assert_eq!(accuracy, [23, 46]);
        assert_eq!(curve(found, "train/lr").len(), 46);
        assert_eq!(curve(found, "train/grad_norm").len(), 46);
        assert_eq!(curve(found, "speed/samples_per_second").len(), 46);
    };
    check(&found);
    // Back to step 45, and on: no curve overlaps itself.
    fs::remove_dir_all(checkpoint::directory(&run, 46)).expect("removed");
    let again = place.train(&["--workers", "3", "--resume"]).ok();
    assert_eq!(again.last("started")["first_step"], 45);
    check(&tensorboard(&place, &run).expect("as before"));
}
