//! Workers that are told to end, and machines that are about to go: nothing is lost.

use crate::machines::{controller, join};
use crate::recover::{busy, quiet, same};
use crate::signals::endless;
use crate::support::{Place, Running, checkpoint, digits, process};
use serde_json::Value;

fn leaves(running: &mut Running) -> Value {
    running.until_event("left")
}

#[test]
fn a_worker_that_is_told_to_end_is_let_go() {
    let quiet = quiet();
    for (how, signal) in [("shm", libc::SIGTERM), ("quic", libc::SIGINT)] {
        let place = Place::with(&busy());
        let mut running = place.begin(&["--workers", "3", "--transport", how]);
        running.until_step(100);
        let victim = place.workers()[1];
        assert!(process::send(victim, signal));
        assert_eq!(leaves(&mut running)["pid"], victim);
        let out = running.finish().ok();
        same(&place, &out, &quiet, 0);
        // Nobody is started in its place.
        let sizes: Vec<&Value> = out.of("regrouped").map(|e| &e["workers"]).collect();
        assert_eq!(sizes, [2]);
        assert_eq!(out.of("left").count(), 1);
    }
}

/// Guests come, several at once, and leave again.
#[test]
fn hands_are_added_and_taken_away() {
    let place = Place::with(&busy());
    let (mut running, address) = controller(&place, "1", &["--workers", "1"]);
    let first = join(&place, &address, "cluster.key");
    running.until_step(50);
    let more = [(); 3].map(|()| join(&place, &address, "cluster.key"));
    running.until("group of five", |e| e["event"] == "regrouped" && e["workers"] == 5);
    for guest in [first].into_iter().chain(more) {
        let pid = guest.pid();
        guest.signal(libc::SIGTERM);
        assert_eq!(leaves(&mut running)["pid"], pid);
        guest.finish().ok().says(&["has left the run; the others go on"]);
    }
    let out = running.finish().ok();
    same(&place, &out, &quiet(), 0);
    assert_eq!(out.of("left").count(), 4);
}

/// A second signal does not wait for anybody.
#[test]
fn a_guest_that_is_told_twice_ends_at_once() {
    let mut place = Place::with(&busy());
    place.killed = true;
    let (mut running, address) = controller(&place, "1", &["--workers", "1"]);
    let guest = join(&place, &address, "cluster.key");
    running.until_step(50);
    // It is asleep: it hears both when it wakes up.
    guest.signal(libc::SIGSTOP);
    guest.signal(libc::SIGINT);
    guest.signal(libc::SIGTERM);
    guest.signal(libc::SIGCONT);
    guest.finish().expect_code(130);
    let out = running.finish().ok();
    let gone = out.of("lost").count() + out.of("left").count();
    same(&place, &out, &quiet(), out.of("lost").count());
    assert_eq!(gone, 1, "{}", out.story());
}

/// With the last worker the run goes too; all of it is saved.
#[test]
fn the_last_one_leaves_with_the_run() {
    let place = Place::with(&digits("6 epochs"));
    let whole = place.train(&["--workers", "1", "--run-id", "whole"]).ok();
    let mut running = place.begin(&["--workers", "1", "--run-id", "cut"]);
    running.until_step(3);
    assert!(process::send(place.workers()[0], libc::SIGTERM));
    let out = running.finish().expect_code(130);
    out.warnings().contains("nobody else is left").then_some(()).expect("it is said why");
    assert_eq!(out.last("finished")["why"], "interrupted; all is saved");
    let steps = out.steps();
    assert!(steps < whole.steps(), "{}", out.story());
    let more = place.train(&["--workers", "2", "--resume", "cut"]).ok();
    assert_eq!(more.fingerprint(), whole.fingerprint());
}

/// The machine is about to go: everybody on it gets the signal, in any order.
#[test]
fn a_signal_to_all_saves_once() {
    for round in 0..6 {
        let place = Place::with(&endless());
        let mut running = place.begin(&["--workers", "3"]);
        running.until_step(20 + 7 * round);
        let mut all = place.workers();
        all.insert(round as usize % (all.len() + 1), running.pid());
        for pid in all {
            assert!(process::send(pid, libc::SIGTERM));
        }
        let out = running.finish().expect_code(130);
        assert_eq!(out.last("finished")["why"], "interrupted; all is saved", "{}", out.story());
        assert_eq!(checkpoint::steps(&place.run_dir()).pop(), Some(out.steps()));
        assert_eq!(out.of("lost").count(), 0, "{}", out.story());
        let manifest = checkpoint::manifest(&out.checkpoint());
        assert_eq!(manifest["fingerprint"], out.fingerprint());
    }
}
