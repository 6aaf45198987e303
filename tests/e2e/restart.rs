//! The controller is killed and started again: its workers wait, and the run goes on with the same
//! bits. Nobody comes: they leave by themselves.

use crate::signals::endless;
use crate::support::{Outcome, Place, Running, checkpoint, digits, process, swap};
use serde_json::Value;
use std::time::Duration;

/// Some thousand steps with evaluations and checkpoints between them.
fn busy() -> String {
    let text = swap(&digits("120 epochs"), "above = 98%", "above = 100%");
    swap(&text, "  batch = 64", "  batch = 64\n  checkpoint { every = 90 steps }")
}

/// What is on record of steps and evaluations, every digit of it.
fn record(place: &Place) -> Vec<String> {
    let line = |e: &Value| match e["event"].as_str() {
        Some("step") => Some(format!("{} {} {} {}", e["step"], e["loss"], e["lr"], e["grad_norm"])),
        Some("eval") => Some(format!("{} {} {}", e["step"], e["eval.loss"], e["eval.accuracy"])),
        _ => None,
    };
    checkpoint::events(&place.run_dir()).iter().filter_map(line).collect()
}

struct Quiet {
    fingerprint: String,
    record: Vec<String>,
}

fn quiet() -> Quiet {
    let place = Place::with(&busy());
    let out = place.train(&["--workers", "2"]).ok();
    Quiet { fingerprint: out.fingerprint(), record: record(&place) }
}

/// A controller that was started again may begin beyond this step.
fn beyond(running: &mut Running, step: u64) {
    let reached = |e: &Value| e["event"] == "step" && e["step"].as_u64() >= Some(step);
    running.until("a later step", reached);
}

fn kill(running: Running) {
    running.signal(libc::SIGKILL);
    assert_eq!(running.finish().signal, Some(libc::SIGKILL));
}

#[track_caller]
fn same(place: &Place, out: &Outcome, quiet: &Quiet, seed: &str) {
    assert_eq!(out.fingerprint(), quiet.fingerprint, "{seed}: {}", out.story());
    let found = record(place);
    let differ = found.iter().zip(&quiet.record).position(|(a, b)| a != b);
    if let Some(at) = differ {
        let (a, b) = (&found[at], &quiet.record[at]);
        panic!("{seed}: line {at} is `{a}`, not `{b}`: {}", out.story());
    }
    assert_eq!(found.len(), quiet.record.len(), "{seed}: {}", out.story());
    let left = process::left_after(place.mark(), Duration::from_secs(2));
    assert!(left.is_empty(), "{seed}: {left:?}");
    assert!(!place.run_dir().join("journal").exists(), "{seed}: the journal of a run that is over");
}

#[test]
fn a_killed_controller_goes_on_with_its_workers() {
    let quiet = quiet();
    for how in ["shm", "quic"] {
        let mut place = Place::with(&busy());
        place.killed = true;
        let args = ["--workers", "3", "--transport", how];
        let mut running = place.begin(&args);
        running.until_step(150);
        let before = place.workers();
        kill(running);
        let mut running = place.begin(&[&args[..], &["--resume"]].concat());
        running.until_event("restarted");
        assert_eq!(place.workers(), before, "{how}: other processes");
        // Twice.
        beyond(&mut running, 700);
        kill(running);
        let out = place.train(&[&args[..], &["--resume"]].concat()).ok();
        same(&place, &out, &quiet, how);
        assert!(out.stderr.contains("3 workers wait"), "{}", out.stderr);
        assert_eq!(out.last("restarted")["incarnation"], 3);
    }
}

/// A sequence of numbers that a seed makes.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % most
    }
}

/// Moments that nobody chose, in steps, evaluations, saves and while others come back; sometimes
/// with a worker, sometimes with all of them. `CHAOS=N` for more rounds.
#[test]
fn again_and_again() {
    let rounds = std::env::var("CHAOS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let quiet = quiet();
    for round in 0..rounds {
        let mut random = Seeded(0x5eed + round);
        let seed = format!("round {round}");
        let mut place = Place::with(&busy());
        place.killed = true;
        let how = if round % 2 == 0 { "shm" } else { "quic" };
        let args = ["--workers", "3", "--transport", how, "--run-id", "r"];
        let again = ["--workers", "3", "--transport", how, "--resume", "r"];
        let mut running = place.begin(&args);
        running.until_event("started");
        let mut killed = 0;
        let out = loop {
            std::thread::sleep(Duration::from_millis(random.below(120)));
            let mut workers = place.workers();
            match random.below(6) {
                0 => workers.truncate(1),
                1 if random.below(3) == 0 => {}
                _ => workers.clear(),
            }
            for worker in workers {
                // One may have ended by itself, with the run.
                let _ = process::send(worker, libc::SIGKILL);
            }
            running.signal(libc::SIGKILL);
            let out = running.finish();
            killed += usize::from(out.signal.is_some());
            if out.signal.is_none() {
                break out;
            }
            running = place.begin(&again);
            if killed == 8 {
                break running.finish();
            }
        };
        same(&place, &out.ok(), &quiet, &seed);
    }
}

/// Nobody comes: they leave within their patience, whatever somebody does to them meanwhile.
#[test]
fn workers_leave_when_no_controller_comes() {
    for (when, stop_before, stop_after) in
        [("free", false, false), ("stopped before", true, false), ("stopped after", false, true)]
    {
        let mut place = Place::with(&endless());
        place.killed = true;
        let mut running = place.begin(&["--workers", "2", "--patience", "700ms"]);
        running.until_step(20);
        let workers = place.workers();
        let stop = |go: bool| {
            if go {
                assert!(process::send(workers[0], libc::SIGSTOP), "{when}");
            }
        };
        stop(stop_before);
        kill(running);
        if stop_after {
            // By now it has seen that its controller is gone.
            std::thread::sleep(Duration::from_millis(200));
        }
        stop(stop_after);
        let left = process::left_after(place.mark(), Duration::from_secs(10));
        assert!(left.is_empty(), "{when}: {left:?}");
    }
}

/// The workers are gone, too: the run goes on from what lies on disk, or begins once more.
#[test]
fn without_its_workers_a_run_goes_on_from_its_checkpoint() {
    let quiet = quiet();
    for (at, word) in [(40, "begins once more"), (300, "its workers are not waited for")] {
        let mut place = Place::with(&busy());
        place.killed = true;
        let mut running = place.begin(&["--workers", "2", "--patience", "0"]);
        if at > 90 {
            running.until_event("checkpoint");
        }
        running.until_step(at);
        kill(running);
        assert!(process::left_after(place.mark(), Duration::from_secs(5)).is_empty());
        let out = place.train(&["--workers", "2", "--resume"]).ok().says(&[word]);
        same(&place, &out, &quiet, word);
    }
}

#[test]
fn a_journal_that_cannot_be_used_says_why() {
    let mut place = Place::with(&busy());
    place.killed = true;
    let mut running = place.begin(&["--workers", "2", "--patience", "0"]);
    running.until_event("checkpoint");
    running.until_step(300);
    kill(running);
    let other = place.train(&["--workers", "2", "--resume", "--lr", "1e-4"]).expect_code(2);
    other.says(&["of another program", "plan then", "plan now", "--from-checkpoint"]);
    let path = place.run_dir().join("journal");
    let mut bytes = std::fs::read(&path).expect("a journal");
    bytes[100] ^= 4;
    std::fs::write(&path, bytes).expect("a journal");
    let out = place.train(&["--workers", "2", "--resume"]).expect_code(1);
    out.says(&["journal", "is damaged in its line 1, which begins at byte 0", "--from-checkpoint"]);
    let out = place.train(&["--workers", "2", "--resume", "--from-checkpoint"]).ok();
    assert_eq!(out.fingerprint(), quiet().fingerprint);
}

/// A parent that does nothing else starts the controller again.
#[test]
fn a_supervised_run_needs_nobody() {
    let quiet = quiet();
    let mut place = Place::with(&busy());
    place.killed = true;
    let mut running = place.begin(&["--workers", "2", "--supervise"]);
    for at in [100, 500] {
        beyond(&mut running, at);
        let all = process::marked(place.mark());
        let is_controller =
            |p: &&process::Process| !p.is_worker() && !p.args.iter().any(|a| a == "--supervise");
        let controller = all.iter().find(is_controller).expect("a controller");
        assert!(process::send(controller.pid, libc::SIGKILL));
        running.until_event("restarted");
    }
    let out = running.finish().ok();
    same(&place, &out, &quiet, "supervised");
}
