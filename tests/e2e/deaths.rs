//! Processes that are killed: nobody is left behind, and the cause is named.

use crate::signals::endless;
use crate::support::{Place, digits, process, swap};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Within this, workers have followed their controller.
const GONE: Duration = Duration::from_secs(2);

/// A run that saves often.
fn saving() -> String {
    swap(&endless(), "  batch = 64", "  batch = 64\n  checkpoint { every = 5 steps }")
}

#[track_caller]
fn nobody_left(place: &Place, when: &str) {
    let left = process::left_after(place.mark(), GONE);
    assert!(left.is_empty(), "killed {when}, and these live on: {left:?}");
}

/// The controller is killed when it has said a certain thing.
#[test]
fn no_orphans_after_a_word() {
    type Wanted = fn(&Value) -> bool;
    let moments: [(&str, Wanted); 5] = [
        ("at its first word", |e| e["verb"] == "run"),
        ("while workers come", |e| e["event"] == "listening"),
        ("before the first step", |e| e["event"] == "started"),
        ("amid steps", |e| e["event"] == "step" && e["step"] == 17),
        ("after a checkpoint", |e| e["event"] == "checkpoint"),
    ];
    for (when, wanted) in moments {
        let mut place = Place::with(&saving());
        place.killed = true;
        let mut running = place.begin(&["--workers", "4", "--patience", "100ms"]);
        running.until(when, wanted);
        running.signal(libc::SIGKILL);
        assert_eq!(running.finish().signal, Some(libc::SIGKILL));
        nobody_left(&place, when);
    }
}

/// The controller is killed at moments that nobody chose.
#[test]
fn no_orphans_at_any_moment() {
    let mut state = 0x5eed_u64;
    for round in 0..8 {
        let mut place = Place::with(&saving());
        place.killed = true;
        let how = if round % 2 == 0 { "shm" } else { "quic" };
        let args = ["--workers", "3", "--transport", how, "--patience", "100ms"];
        let running = place.begin(&args);
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let wait = Duration::from_millis((state >> 33) % 400);
        // No condition is waited for: this is the moment.
        std::thread::sleep(wait);
        running.signal(libc::SIGKILL);
        assert_eq!(running.finish().signal, Some(libc::SIGKILL));
        nobody_left(&place, &format!("in round {round} after {wait:?}"));
    }
}

/// When nobody is left to go on, the run ends.
#[test]
fn the_last_worker_that_dies_is_named() {
    for (signal, name) in [(libc::SIGKILL, "SIGKILL"), (libc::SIGABRT, "SIGABRT")] {
        let place = Place::with(&endless());
        let mut running = place.begin(&["--workers", "1"]);
        running.until_step(20);
        let victim = place.workers()[0];
        let begun = Instant::now();
        assert!(process::send(victim, signal));
        let out = running.finish().expect_code(1);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        let lost = out.last("lost");
        let why = lost["why"].as_str().unwrap_or_default();
        assert!(why.contains(name), "{why}");
        assert!(lost["rank"].is_u64(), "{lost}");
        assert_eq!(out.last("failed")["code"], 1);
        out.says(&["worker", &format!("process {victim}"), &format!("signal {signal}"), name]);
        nobody_left(&place, "a worker");
    }
}

/// Killed as soon as it can be seen: mostly before it has joined. Another takes its place.
#[test]
fn a_worker_that_dies_at_its_start_is_replaced() {
    for _ in 0..4 {
        let place = Place::with(&digits("2 epochs"));
        let running = place.begin(&["--workers", "4"]);
        let deadline = Instant::now() + Duration::from_secs(20);
        let victim = loop {
            if let Some(pid) = place.workers().first() {
                break *pid;
            }
            assert!(Instant::now() < deadline, "no worker was started");
        };
        assert!(process::send(victim, libc::SIGKILL));
        let out = running.finish().ok();
        assert_eq!(out.steps(), 46, "{}", out.story());
        nobody_left(&place, "a worker at its start");
    }
}
