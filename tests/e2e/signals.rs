//! Ctrl-C, once and twice, and its relatives.

mod matrix;

use crate::support::{Outcome, Place, checkpoint, digits, swap};
use std::time::{Duration, Instant};

/// More epochs than anybody waits for.
pub fn endless() -> String {
    swap(&digits("100000 epochs"), "above = 98%", "above = 100%")
}

fn interrupted_by(signal: i32, at: u64) -> (Place, Outcome) {
    let place = Place::with(&endless());
    let mut running = place.begin(&["--workers", "2"]);
    running.until_step(at);
    running.signal(signal);
    let out = running.finish().expect_code(130);
    (place, out)
}

#[test]
fn once_saves_and_stops() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let (place, out) = interrupted_by(signal, 30);
        let steps = out.steps();
        assert_eq!(out.last("finished")["why"], "interrupted; all is saved");
        assert_eq!(out.of("step").count() as u64, steps);
        assert_eq!(checkpoint::steps(&place.run_dir()).pop(), Some(steps));
        let manifest = checkpoint::manifest(&out.checkpoint());
        assert_eq!(manifest["fingerprint"], out.fingerprint());
        assert_eq!(out.last("failed")["code"], 130);
        let shown = out.checkpoint().display().to_string();
        out.says(&["saving, then stopping after step", "interrupted after step", &shown]);
    }
}

#[test]
fn twice_stops_at_once() {
    let place = Place::with(&endless());
    let mut running = place.begin(&["--workers", "2"]);
    running.until_step(10);
    let begun = Instant::now();
    running.signal(libc::SIGINT);
    running.signal(libc::SIGTERM);
    let out = running.finish().expect_code(130);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    out.says(&["stopping now", "interrupted after step"]);
}

/// Ctrl-Z stops the controller alone; its workers wait for it, however long it takes.
#[test]
fn a_controller_that_sleeps_loses_nothing() {
    let place = Place::with(&endless());
    let mut running = place.begin(&["--workers", "2"]);
    running.until_step(10);
    running.signal(libc::SIGSTOP);
    // Longer than a silent controller on another machine would be waited for.
    std::thread::sleep(monarch_controller::PATIENCE_AFAR + Duration::from_secs(1));
    running.signal(libc::SIGCONT);
    // The steps of the window that was open then end before these.
    running.until_step(3_000);
    running.signal(libc::SIGINT);
    let out = running.finish().expect_code(130);
    assert_eq!(out.last("finished")["why"], "interrupted; all is saved");
}

#[test]
fn before_the_first_step() {
    let place = Place::with(&endless());
    let mut running = place.begin(&["--workers", "4"]);
    running.until_event("listening");
    running.signal(libc::SIGINT);
    let out = running.finish().expect_code(130);
    assert!(out.took < Duration::from_secs(20), "{}", out.story());
    out.says(&["interrupted"]);
}

/// Somebody reads no more: the run goes on, and its result is in its files.
#[test]
fn a_closed_pipe_is_no_reason_to_stop() {
    let place = Place::with(&digits("2 epochs"));
    let mut command = place.command("sh");
    let binary = env!("CARGO_BIN_EXE_monarch");
    command.args(["-c", &format!("{binary} run job.mon --json --workers 2 | head -n 3")]);
    let out = crate::support::Running::start(command, crate::support::LIMIT).finish().ok();
    assert_eq!(out.stdout.len(), 3, "{}", out.story());
    crate::support::process::left_after(place.mark(), Duration::from_secs(20));
    assert_eq!(checkpoint::recorded_steps(&place.run_dir()).len(), 46);
}
