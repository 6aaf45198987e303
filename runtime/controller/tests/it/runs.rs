//! Runs that go well.

use crate::fake::{Fakes, print_at};
use crate::plan::{plan, saving};
use crate::{config, entries, observe, step_lines, steps};
use monarch_checkpoint::{latest_whole, list};
use monarch_controller::{ControlRequest, Resume, RunEvent, Why, measure};
use monarch_graph::{Action, Rule, Span};
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn from_the_first_worker_to_the_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), saving(plan(37), 10, 2), 3);
    config.trace_steps = vec![5, 6];
    let mut fakes = Fakes::new(3);
    let (result, events) = observe(&config, &mut fakes, |_, _| {});
    let summary = result.unwrap();
    assert_eq!(summary.why, Why::Completed);
    assert_eq!(steps(&events), (0..37).collect::<Vec<_>>());
    assert_eq!(summary.fingerprint, Some(print_at(&config.plan, 37)));
    assert_eq!(summary.metrics["eval.accuracy"], 0.37);
    assert_eq!(summary.best["eval.accuracy"], (0.37, 37));
    assert_eq!((summary.loss, summary.samples), (Some(1.0 / 37.0), 37 * 8));
    assert_eq!((summary.wait_share, summary.records_dropped), (0.25, 0));
    assert_eq!(summary.stepping, Duration::from_millis(37 * 100));
    let Some(RunEvent::Started(started)) =
        events.iter().find(|e| matches!(e, RunEvent::Started(_)))
    else {
        panic!("never started");
    };
    assert_eq!((started.transport, started.workers.len()), ("shared memory", 3));

    // Of 10, 20, 30 and 37 the newest two are kept.
    let root = dir.path().join("r1");
    let kept: Vec<u64> = list(&root).unwrap().into_iter().map(|(step, _)| step).collect();
    assert_eq!(kept, [30, 37]);
    let whole = latest_whole(&root).unwrap().checkpoint.unwrap();
    assert_eq!((whole.manifest.step, whole.manifest.world), (37, 3));
    assert_eq!((whole.manifest.data.epoch, whole.manifest.data.sample), (2, 11 * 8));
    assert_eq!(whole.manifest.loss, Some(1.0 / 37.0));
    assert!(entries(&root).iter().all(|n| !n.contains("tmp")), "{:?}", entries(&root));

    let lines = step_lines(&root);
    let of = |kind: &str| lines.iter().filter(|l| l.0 == kind).map(|l| l.1).collect::<Vec<_>>();
    assert_eq!(of("step"), (0..37).collect::<Vec<_>>());
    assert_eq!(of("eval"), [10, 20, 30, 37]);
    assert_eq!(of("checkpoint"), [10, 20, 30, 37]);
    assert!(entries(&root).iter().any(|n| n.starts_with("events.out.tfevents.")));
    let trace = std::fs::read_to_string(summary.logs.trace.unwrap()).unwrap();
    assert_eq!(trace.matches("reduce bucket 0").count(), 2 * 3);
    let job = std::fs::read_to_string(root.join("job.json")).unwrap();
    assert!(job.contains("\"plan_sha256\""), "{job}");
}

#[test]
fn a_rule_ends_the_run_at_its_step_and_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(1000);
    plan.rules = vec![Rule {
        metric: "eval.accuracy".into(),
        above: Some(0.15),
        below: None,
        action: Action::Stop,
        span: Span { file: 0, start: 8, end: 13 },
    }];
    let (result, _) = observe(&config(dir.path(), plan, 2), &mut Fakes::new(2), |_, _| {});
    let summary = result.unwrap();
    let text = "eval.accuracy = 0.2 is above 0.15 (job.mon:2:5)";
    assert_eq!((summary.why, summary.steps), (Why::Rule(text.into()), 20));
    assert_eq!(summary.checkpoint.unwrap().1, 20);
}

#[test]
fn resumed_elsewhere_no_curve_overlaps_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), plan(45), 3);
    let mut fakes = Fakes { step_time: Duration::from_millis(1), ..Fakes::new(3) };
    let (result, events) = observe(&config, &mut fakes, |event, handle| {
        if matches!(event, RunEvent::Step(s) if s.step == 17) {
            handle.send(ControlRequest::Stop);
        }
    });
    let first = result.unwrap();
    assert_eq!(first.why, Why::Stopped);
    let (directory, step) = first.checkpoint.unwrap();
    assert_eq!(step, first.steps);
    assert!((18..45).contains(&step), "{step}");
    assert_eq!(steps(&events), (0..step).collect::<Vec<_>>());

    config.workers = 2;
    config.resume = Some(Resume { directory: directory.clone(), step, metrics: BTreeMap::new() });
    let mut fakes = Fakes::new(2);
    let (result, events) = observe(&config, &mut fakes, |_, _| {});
    let second = result.unwrap();
    assert_eq!((second.why, second.steps), (Why::Completed, 45));
    assert_eq!(steps(&events), (step..45).collect::<Vec<_>>());
    let starts = fakes.starts.lock().unwrap();
    assert_eq!(starts[0].resume.as_deref(), directory.to_str());
    assert_eq!(starts[0].first_step, step);

    let lines = step_lines(&dir.path().join("r1"));
    let of = |kind: &str| lines.iter().filter(|l| l.0 == kind).map(|l| l.1).collect::<Vec<_>>();
    assert_eq!(of("step"), (0..45).collect::<Vec<_>>());
    assert_eq!(of("eval"), [10, 20, 30, 40, 45]);
}

#[test]
fn a_finished_run_resumed_does_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), plan(20), 1);
    let first = observe(&config, &mut Fakes::new(1), |_, _| {}).0.unwrap();
    let (directory, step) = first.checkpoint.unwrap();
    config.resume = Some(Resume { directory, step, metrics: BTreeMap::new() });
    let (second, events) = observe(&config, &mut Fakes::new(1), |_, _| {});
    let second = second.unwrap();
    assert_eq!((second.why, second.steps, second.samples), (Why::Completed, 20, 0));
    assert_eq!(second.fingerprint, first.fingerprint);
    assert!(steps(&events).is_empty());
    let evals = step_lines(&dir.path().join("r1")).into_iter().filter(|l| l.0 == "eval").count();
    assert_eq!(evals, 2);
}

/// The evaluation at the end of the shorter run is not made again, so it must stay.
#[test]
fn a_finished_run_that_goes_on_keeps_its_last_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), saving(plan(25), 10, 9), 1);
    let first = observe(&config, &mut Fakes::new(1), |_, _| {}).0.unwrap();
    let (directory, step) = first.checkpoint.unwrap();
    let saved = latest_whole(&dir.path().join("r1")).unwrap().checkpoint.unwrap();
    let number = |(name, value): (String, Option<f64>)| (name, value.unwrap());
    let metrics: BTreeMap<_, _> = saved.manifest.metrics.into_iter().map(number).collect();
    assert_eq!(metrics, first.metrics);
    config.plan = saving(plan(45), 10, 9);
    config.resume = Some(Resume { directory, step, metrics });
    // Stopped before its first own evaluation, it still knows the last one.
    let (stopped, _) = observe(&config, &mut Fakes::new(1), |event, handle| {
        if matches!(event, RunEvent::Started(_)) {
            handle.send(ControlRequest::Stop);
        }
    });
    let stopped = stopped.unwrap();
    assert!(stopped.steps < 30, "{stopped:?}");
    assert_eq!(stopped.metrics, first.metrics);
    observe(&config, &mut Fakes::new(1), |_, _| {}).0.unwrap();
    let lines = step_lines(&dir.path().join("r1"));
    let of = |kind: &str| lines.iter().filter(|l| l.0 == kind).map(|l| l.1).collect::<Vec<_>>();
    assert_eq!(of("step"), (0..45).collect::<Vec<_>>());
    assert_eq!(of("eval"), [10, 20, 25, 30, 40, 45]);
    assert_eq!(of("checkpoint"), [10, 20, 25, 30, 40, 45]);
}

#[test]
fn a_checkpoint_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(60), 2);
    let mut fakes = Fakes { step_time: Duration::from_millis(2), ..Fakes::new(2) };
    let (result, events) = observe(&config, &mut fakes, |event, handle| {
        if matches!(event, RunEvent::Step(s) if s.step == 5) {
            handle.send(ControlRequest::Checkpoint);
        }
    });
    assert_eq!(result.unwrap().steps, 60);
    let saved = events.iter().filter(|e| matches!(e, RunEvent::CheckpointSaved(_))).count();
    // The request may fall on the last step, which is saved anyway.
    assert!((1..=2).contains(&saved), "{saved}");
}

#[test]
fn a_measurement_trains_nothing_and_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(60), 2);
    let measured = measure(config, &mut Fakes::new(2), 50).unwrap();
    assert_eq!(measured.round_trips_ns.len(), 50);
    assert!(measured.joined_ns > 0 && measured.joined_ns <= measured.ready_ns);
    assert!(entries(dir.path()).is_empty());
}

#[test]
fn lanes_are_shared_out_and_never_idle() {
    let dir = tempfile::tempdir().unwrap();
    let mut fakes = Fakes::new(3);
    observe(&config(dir.path(), plan(2), 3), &mut fakes, |_, _| {}).0.unwrap();
    // Four cores among three workers of one host, four shards.
    let mut got: Vec<(u32, u32)> =
        fakes.starts.lock().unwrap().iter().map(|s| (s.form.rank, s.form.threads)).collect();
    got.sort();
    assert_eq!(got, [(0, 1), (1, 1), (2, 1)]);
}
