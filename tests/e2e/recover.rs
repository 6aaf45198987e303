//! Workers that die at any moment: the run goes on, and nothing of its record changes.

use crate::machines::{controller, join};
use crate::support::{Outcome, Place, Running, checkpoint, digits, process, swap};
use serde_json::Value;
use std::time::Duration;

/// Some thousand steps with evaluations and checkpoints between them.
pub fn busy() -> String {
    let text = swap(&digits("160 epochs"), "above = 98%", "above = 100%");
    swap(&text, "  batch = 64", "  batch = 64\n  checkpoint { every = 90 steps }")
}

pub fn quiet() -> Outcome {
    Place::with(&busy()).train(&["--workers", "2"]).ok()
}

/// The record is that of the quiet run, and every loss is told of.
#[track_caller]
pub fn same(place: &Place, out: &Outcome, quiet: &Outcome, lost: usize) {
    assert_eq!(out.fingerprint(), quiet.fingerprint(), "{}", out.story());
    assert_eq!(out.numbers(), quiet.numbers(), "{}", out.story());
    let told: Vec<String> = out
        .events
        .iter()
        .filter(|e| e["event"] != "step" && e["event"] != "eval")
        .map(|e| e.to_string())
        .collect();
    assert_eq!(out.of("lost").count(), lost, "{}\n{}", told.join("\n"), out.stderr);
    let steps = checkpoint::recorded_steps(&place.run_dir());
    assert_eq!(steps, (0..out.steps()).collect::<Vec<_>>());
    let left = process::left_after(place.mark(), Duration::from_secs(2));
    assert!(left.is_empty(), "{left:?}");
}

/// Kills workers when `at` comes; those of the numbers given, in the order of their processes.
pub fn strike(running: &mut Running, place: &Place, at: u64, signal: i32, victims: &[usize]) {
    running.until_step(at);
    let workers = place.workers();
    for victim in victims {
        assert!(process::send(workers[*victim], signal), "worker {victim} is gone already");
    }
}

#[test]
fn a_worker_that_dies_is_replaced() {
    let quiet = quiet();
    for (how, signal, name) in [
        ("shm", libc::SIGKILL, "SIGKILL"),
        ("quic", libc::SIGKILL, "SIGKILL"),
        ("shm", libc::SIGILL, "SIGILL"),
        ("quic", libc::SIGABRT, "SIGABRT"),
    ] {
        let mut place = Place::with(&busy());
        place.killed = true;
        let mut running = place.begin(&["--workers", "3", "--transport", how]);
        strike(&mut running, &place, 100, signal, &[1]);
        let out = running.finish().ok();
        same(&place, &out, &quiet, 1);
        let why = out.last("lost")["why"].as_str().unwrap_or_default();
        assert!(why.contains(name), "{why}");
        // Once more when the one that has come gets its share of the work.
        let mut sizes: Vec<&Value> = out.of("regrouped").map(|e| &e["workers"]).collect();
        sizes.dedup();
        assert!(sizes == [2, 3] || sizes == [3], "{sizes:?}");
    }
}

#[test]
fn two_at_once_and_all_but_one() {
    let quiet = quiet();
    for victims in [&[0, 2][..], &[0, 1, 3]] {
        let mut place = Place::with(&busy());
        place.killed = true;
        let mut running = place.begin(&["--workers", "4"]);
        strike(&mut running, &place, 150, libc::SIGKILL, victims);
        let out = running.finish().ok();
        same(&place, &out, &quiet, victims.len());
    }
}

/// Moments that nobody chose: in steps, evaluations, saves, and while members change.
#[test]
fn again_and_again() {
    let quiet = quiet();
    let mut state = 0x5eed_u64;
    for round in 0..6 {
        let mut place = Place::with(&busy());
        place.killed = true;
        let how = if round % 2 == 0 { "shm" } else { "quic" };
        let mut running = place.begin(&["--workers", "3", "--transport", how]);
        running.until_event("started");
        let mut at = 0;
        let mut lost = 0;
        while at < 2_500 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            at += 100 + (state >> 33) % 600;
            running.until_step(at);
            let workers = place.workers();
            // The last one holds all there is.
            if workers.len() > 1 {
                let victim = workers[(state >> 40) as usize % workers.len()];
                lost += usize::from(process::send(victim, libc::SIGKILL));
            }
        }
        let out = running.finish().ok();
        assert_eq!(out.fingerprint(), quiet.fingerprint(), "round {round}: {}", out.story());
        assert_eq!(out.numbers(), quiet.numbers(), "round {round}");
        // One may die before it has taken its place, and is no loss then.
        assert!((2..=lost).contains(&out.of("lost").count()), "{lost}: {}", out.story());
    }
}

#[test]
fn a_worker_that_comes_later_adds_its_hands() {
    let place = Place::with(&busy());
    let (mut running, address) = controller(&place, "1", &["--workers", "1"]);
    let first = join(&place, &address, "cluster.key");
    running.until_step(50);
    let second = join(&place, &address, "cluster.key");
    running.until("group of three", |e| e["event"] == "regrouped" && e["workers"] == 3);
    let out = running.finish().ok();
    for worker in [first, second] {
        worker.finish().ok();
    }
    same(&place, &out, &quiet(), 0);
}

/// A worker from elsewhere dies: nobody can start it again, and the others do its part.
#[test]
fn a_guest_that_dies_is_missed_by_nobody() {
    let mut place = Place::with(&busy());
    place.killed = true;
    let (mut running, address) = controller(&place, "1", &["--workers", "2"]);
    let guest = join(&place, &address, "cluster.key");
    running.until_step(60);
    guest.signal(libc::SIGKILL);
    drop(guest.finish());
    let out = running.finish().ok();
    same(&place, &out, &quiet(), 1);
}
