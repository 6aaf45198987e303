//! Ctrl-C in every phase of a run.

use crate::fake::{Fakes, Trick};
use crate::plan::plan;
use crate::{config, observe};
use monarch_checkpoint::latest_whole;
use monarch_controller::{ControlRequest, RunEvent, Why, control, run};
use std::time::{Duration, Instant};

#[test]
fn before_anyone_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(40), 3);
    let (handle, inbox) = control();
    handle.send(ControlRequest::Interrupt);
    let mut fakes = Fakes::new(2);
    let since = Instant::now();
    let error = run(&config, &mut fakes, &mut |_: &RunEvent| {}, inbox).unwrap_err();
    assert_eq!(error.code, 130);
    assert!(since.elapsed() < Duration::from_secs(2));
    assert!(!handle.send(ControlRequest::Stop), "the run is over");
}

#[test]
fn while_workers_get_ready() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(40), 2);
    let mut fakes = Fakes { ready_time: Duration::from_millis(300), ..Fakes::new(2) };
    let (result, _) = observe(&config, &mut fakes, |event, handle| {
        if matches!(event, RunEvent::Joined { joined: 2, .. }) {
            handle.send(ControlRequest::Interrupt);
        }
    });
    let error = result.unwrap_err();
    assert_eq!(error.code, 130);
    assert_eq!(error.summary.unwrap().steps, 0);
}

#[test]
fn in_the_middle_it_saves_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(100_000), 2);
    let mut fakes = Fakes { step_time: Duration::from_micros(200), ..Fakes::new(2) };
    let (result, events) = observe(&config, &mut fakes, |event, handle| {
        if matches!(event, RunEvent::Step(s) if s.step == 25) {
            handle.send(ControlRequest::Interrupt);
        }
    });
    let error = result.unwrap_err();
    assert_eq!(error.code, 130);
    let summary = error.summary.unwrap();
    assert_eq!(summary.why, Why::Interrupted { saved: true });
    let whole = latest_whole(&dir.path().join("r1")).unwrap().checkpoint.unwrap();
    assert_eq!(whole.manifest.step, summary.steps);
    assert!(error.message.contains("all is saved in"), "{}", error.message);
    assert!(crate::warnings(&events).iter().any(|w| w.contains("once more to stop at once")));
}

#[test]
fn twice_it_stops_now() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(100_000), 2);
    let slow = Duration::from_secs(20);
    let fakes = Fakes { step_time: Duration::from_micros(200), save_time: slow, ..Fakes::new(2) };
    let since = Instant::now();
    let (handle, inbox) = control();
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Step(s) if s.step == 25 => {
            handle.send(ControlRequest::Interrupt);
        }
        RunEvent::Warning { text } if text.contains("once more") => {
            handle.send(ControlRequest::Interrupt);
        }
        _ => {}
    };
    let error = run(&config, &mut fakes.clone(), &mut observer, inbox).unwrap_err();
    assert_eq!(error.code, 130);
    assert_eq!(error.summary.unwrap().why, Why::Interrupted { saved: false });
    // Threads cannot be killed; processes are, after three seconds.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
}

#[test]
fn a_worker_that_hangs_costs_the_grace_time_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), plan(100), 2);
    config.timeouts.grace_ns = 300 * crate::MS;
    let mut fakes = Fakes::with(2, 1, Trick::HangsAt(30));
    let (result, _) = observe(&config, &mut fakes, |event, handle| {
        if matches!(event, RunEvent::Step(s) if s.step == 29) {
            handle.send(ControlRequest::Interrupt);
        }
    });
    let error = result.unwrap_err();
    assert_eq!(error.code, 130);
    assert_eq!(error.summary.unwrap().why, Why::Interrupted { saved: false });
}

#[test]
fn during_the_last_save_the_run_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(20), 2);
    let mut fakes = Fakes { save_time: Duration::from_millis(200), ..Fakes::new(2) };
    let (result, _) = observe(&config, &mut fakes, |event, handle| {
        if matches!(event, RunEvent::Evaluated(e) if e.step == 20) {
            handle.send(ControlRequest::Interrupt);
        }
    });
    let summary = result.unwrap();
    assert_eq!(summary.why, Why::Completed);
    assert_eq!(summary.checkpoint.unwrap().1, 20);
}
