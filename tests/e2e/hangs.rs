//! Workers that hang: processes that are frozen, and threads that get nowhere while their process
//! answers. The run goes on without them, and whoever wakes up is turned away.

use crate::machines::{controller, join};
use crate::recover::{busy, quiet, same, strike};
use crate::support::{Place, Running, process, stuck::Stuck};

/// A run of three on which `signal` falls at step 100; its record is that of the quiet one.
fn frozen(transport: &str, victims: &[usize]) {
    let quiet = quiet();
    let mut place = Place::with(&busy());
    place.killed = true;
    let mut running = place.begin(&["--workers", "4", "--transport", transport]);
    strike(&mut running, &place, 100, libc::SIGSTOP, victims);
    let out = running.finish().ok();
    same(&place, &out, &quiet, victims.len());
    for lost in out.of("lost") {
        let why = lost["why"].as_str().unwrap_or_default();
        assert!(why.contains("no sign of life") && why.contains("stopped by a signal"), "{why}");
    }
}

#[test]
fn a_frozen_worker_is_replaced() {
    frozen("shm", &[1]);
    frozen("quic", &[1]);
}

#[test]
fn two_frozen_workers_are_replaced() {
    frozen("shm", &[0, 2]);
}

/// It cannot be killed from here: it wakes up when the others are far, and is turned away.
#[test]
fn a_guest_that_wakes_up_is_turned_away() {
    let quiet = quiet();
    for transport in ["shm", "quic"] {
        let mut place = Place::with(&busy());
        place.killed = true;
        let args = ["--workers", "2", "--transport", transport];
        let (mut running, address) = controller(&place, "1", &args);
        let guest = join(&place, &address, "cluster.key");
        running.until_step(60);
        guest.signal(libc::SIGSTOP);
        running.until_event("lost");
        running.until("group of two", |e| e["event"] == "regrouped" && e["workers"] == 2);
        guest.signal(libc::SIGCONT);
        guest.finish().expect_code(1).says(&["the link to the controller is gone"]);
        let out = running.finish().ok();
        same(&place, &out, &quiet, 1);
        let why = out.last("lost")["why"].as_str().unwrap_or_default();
        assert!(why.contains("no sign of life"), "{why}");
    }
}

#[test]
fn when_the_last_one_is_frozen_the_run_says_so() {
    let mut place = Place::with(&crate::support::digits("160 epochs"));
    place.killed = true;
    let mut running = place.begin(&["--workers", "1"]);
    running.until_step(100);
    let worker = place.workers()[0];
    assert!(process::send(worker, libc::SIGSTOP));
    let out = running.finish().expect_code(1);
    out.says(&["worker 0 on", &format!("process {worker}"), "it hangs", "no sign of life"]);
}

/// The process beats on, and one of its threads computes no more.
#[test]
fn a_lane_that_gets_nowhere_is_found() {
    let quiet = quiet();
    let mut place = Place::with(&busy());
    place.killed = true;
    let mut running: Running = place.begin(&["--workers", "3"]);
    running.until_step(100);
    let victim = place.workers()[1];
    let Some(stuck) = Stuck::begin(victim) else {
        eprintln!("not tried: this machine lets nobody stop a thread of a process");
        return drop(running.finish().ok());
    };
    let out = running.finish().ok();
    stuck.end();
    same(&place, &out, &quiet, 1);
    let why = out.last("lost")["why"].as_str().unwrap_or_default().to_string();
    assert!(why.contains("while its process answers"), "{why}");
    assert!(why.contains("main thread") && why.contains("in step"), "{why}");
}
