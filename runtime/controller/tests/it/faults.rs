//! Runs that fail: each names its first cause, and nobody is left behind.

use crate::fake::{Fakes, Trick};
use crate::plan::{plan, saving};
use crate::{config, entries, observe, steps, warnings};
use monarch_controller::{RunError, RunEvent, Transport, Why};
use std::time::Duration;

fn fails(workers: u32, slot: u32, trick: Trick) -> (RunError, Vec<RunEvent>) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(40), workers);
    let (result, events) = observe(&config, &mut Fakes::with(workers, slot, trick), |_, _| {});
    let error = result.unwrap_err();
    if let Some(summary) = &error.summary {
        assert_eq!(summary.why, Why::Failed);
    }
    let run_dir = dir.path().join("r1");
    let begun = events.iter().any(|e| matches!(e, RunEvent::Started(_)));
    // A run that never began leaves nothing behind.
    assert_eq!(begun, run_dir.exists());
    if begun {
        let left = entries(&run_dir);
        assert!(left.iter().all(|n| !n.contains("tmp")), "{left:?}");
    }
    (error, events)
}

#[test]
fn a_killed_worker_is_named_with_its_signal_and_last_words() {
    let (error, events) = fails(3, 1, Trick::KilledAt(12));
    assert_eq!(error.code, 1);
    let text = error.message;
    assert!(text.starts_with("worker 1 on here (process "), "{text}");
    assert!(text.contains("signal 11 (SIGSEGV)"), "{text}");
    assert!(text.contains("famous last words"), "{text}");
    assert!(text.contains("there is no checkpoint"), "{text}");
    assert!(events.iter().any(|e| matches!(e, RunEvent::WorkerLost { rank: 1, .. })));
}

#[test]
fn a_survivor_that_complains_first_is_not_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), plan(40), 2);
    let trick = Trick::ComplainsAt { step: 9, peer: 1 };
    let mut fakes = Fakes::with(2, 0, trick);
    // The other one is said to be dead, and lives: then the complaint is all there is.
    let error = observe(&config, &mut fakes, |_, _| {}).0.unwrap_err();
    assert!(error.message.contains("a peer is gone"), "{error}");
}

#[test]
fn a_failure_names_step_task_and_line() {
    let (error, _) = fails(2, 0, Trick::FailsAt(7));
    let text = error.message;
    assert!(text.contains("worker 0 on here"), "{text}");
    assert!(text.contains(", step 7, load data: token id 99 is not below 65"), "{text}");
    assert!(text.contains("at job.mon:2:3"), "{text}");
}

#[test]
fn a_panic_is_named() {
    let (error, _) = fails(2, 1, Trick::PanicsAt(3));
    assert!(error.message.contains("panicked: on demand"), "{error}");
}

#[test]
fn one_that_never_comes_to_life() {
    let (error, _) = fails(2, 1, Trick::DiesAtOnce);
    assert_eq!(error.code, 1);
    let text = error.message;
    assert!(text.contains("worker process 1 ended before it joined: exit code 101"), "{text}");
    assert!(text.contains("famous last words"), "{text}");
}

#[test]
fn one_that_never_gets_ready() {
    let (error, events) = fails(2, 1, Trick::NeverReady);
    assert!(error.message.contains("not ready within 3 s"), "{error}");
    assert!(error.message.contains("worker 1 on here"), "{error}");
    assert!(steps(&events).is_empty());
}

#[test]
fn one_that_hangs() {
    let (error, _) = fails(2, 1, Trick::HangsAt(5));
    assert!(error.message.contains("no word for 3"), "{error}");
    assert!(error.message.contains("worker 1 on here"), "{error}");
}

#[test]
fn another_version_is_shown_beside_ours() {
    let (error, _) = fails(2, 1, Trick::OtherVersion);
    let ours = env!("CARGO_PKG_VERSION");
    assert!(error.message.contains(&format!("is version 9.9.9, the controller {ours}")), "{error}");
}

#[test]
fn another_job_is_shown_beside_ours() {
    let (error, _) = fails(2, 0, Trick::OtherJob);
    let ours = monarch_wire::codec::short(&monarch_wire::job_hash(&plan(40)).unwrap());
    let text = format!("was started for job 090909090909, the controller runs job {ours}");
    assert!(error.message.contains(&text), "{error}");
}

#[test]
fn ranks_that_disagree_are_named() {
    let (error, _) = fails(3, 2, Trick::WrongLossAt(11));
    let text = error.message;
    assert!(text.contains("disagree on the loss at step 11"), "{text}");
    assert!(text.contains("\n  worker 0, 1: ") && text.contains("\n  worker 2: "), "{text}");
}

#[test]
fn too_few_workers_is_a_cluster_that_cannot_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    let mut fakes = Fakes::new(2);
    let error = observe(&config(dir.path(), plan(9), 3), &mut fakes, |_, _| {}).0.unwrap_err();
    assert_eq!(error.code, 4);
    assert!(error.message.contains("2 of 3 workers came within 3 s"), "{error}");
}

#[test]
fn more_workers_than_shards_would_be_idle() {
    let dir = tempfile::tempdir().unwrap();
    let mut fakes = Fakes::new(5);
    let error = observe(&config(dir.path(), plan(9), 5), &mut fakes, |_, _| {}).0.unwrap_err();
    assert_eq!(error.code, 2);
    assert!(error.message.contains("5 workers cannot share 4 shards"), "{error}");
    assert!(entries(dir.path()).is_empty());
}

#[test]
fn parts_that_are_not_there_make_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), saving(plan(25), 10, 3), 2);
    let mut fakes = Fakes::with(2, 1, Trick::LosesFiles);
    let (result, events) = observe(&config, &mut fakes, |_, _| {});
    // Training went on to the end, where the weights are lost: that is a failure.
    let error = result.unwrap_err();
    assert_eq!((error.code, steps(&events).len()), (1, 25));
    assert!(error.message.contains("the weights after step 25 could not be saved"), "{error}");
    assert!(error.message.contains("is missing"), "{error}");
    let warned = warnings(&events);
    assert!(warned.iter().any(|w| w.contains("no checkpoint of step 10")), "{warned:?}");
    assert!(warned.iter().any(|w| w.contains("training goes on")), "{warned:?}");
    let left = entries(&dir.path().join("r1"));
    assert!(left.iter().all(|n| !n.starts_with("step-")), "{left:?}");
}

/// Room for two checkpoints and no third.
#[test]
fn a_full_disk_is_loud_and_the_last_whole_checkpoint_remains() {
    on_a_disk_of("640k", "faults::on_a_tiny_disk");
}

#[test]
fn records_that_a_full_disk_does_not_take_are_counted() {
    on_a_disk_of("64k", "faults::on_a_disk_for_few_records");
}

/// Runs a test in a child, on a disk of its own.
fn on_a_disk_of(size: &str, test: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={size} none \"$MONARCH_TEST_ROOT\"");
    let test = format!("{test} --exact --nocapture");
    let output = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", &format!("{mount} || exit 77; exec \"$0\" {test}")])
        .arg(std::env::current_exe().unwrap())
        .env("MONARCH_TEST_ROOT", dir.path())
        .output();
    match output {
        Ok(output) if output.stdout.starts_with(b"\nrunning 1 test") => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        _ => eprintln!("not tested: this machine gives no mount namespaces"),
    }
}

/// Runs in a child of the test above, which names the disk.
#[test]
fn on_a_tiny_disk() {
    let Some(root) = std::env::var_os("MONARCH_TEST_ROOT") else { return };
    let root = std::path::PathBuf::from(root);
    let mut plan = saving(plan(35), 10, 3);
    plan.weights.iter_mut().for_each(|w| w.shape = vec![128, 128]);
    let mut fakes = Fakes::new(2);
    let (result, events) = observe(&config(&root, plan, 2), &mut fakes, |_, _| {});
    let error = result.unwrap_err();
    assert_eq!((error.code, steps(&events).len()), (1, 35));
    let text = &error.message;
    assert!(text.contains("the weights after step 35 could not be saved"), "{text}");
    assert!(text.contains("the disk is full"), "{text}");
    assert!(text.contains("step-000000020 (step 20)"), "{text}");
    let warned = warnings(&events);
    assert!(warned.iter().any(|w| w.contains("no checkpoint of step 30")), "{warned:?}");
    let whole = monarch_checkpoint::latest_whole(&root.join("r1")).unwrap();
    assert_eq!(whole.checkpoint.unwrap().manifest.step, 20);
    assert!(whole.skipped.is_empty());
}

/// Runs in a child, as the one above.
#[test]
fn on_a_disk_for_few_records() {
    let Some(root) = std::env::var_os("MONARCH_TEST_ROOT") else { return };
    let root = std::path::PathBuf::from(root);
    let mut config = config(&root, plan(400), 1);
    config.save_at_end = false;
    let (result, events) = observe(&config, &mut Fakes::new(1), |_, _| {});
    let dropped = result.unwrap().records_dropped as usize;
    let written = crate::step_lines(&root.join("r1")).iter().filter(|l| l.0 == "step").count();
    assert!(written < 400, "{written}");
    // Of the lines alone; points of the curves come on top.
    assert!(dropped >= 400 - written, "{dropped} of {written}");
    let warned = warnings(&events).join("\n");
    // Of the lines and of the curves, however often they fail.
    let full = warned.matches("the disk is full; the run goes on without").count();
    assert!((1..=2).contains(&full), "{warned}");
    assert!(warned.contains(&format!("{dropped} records are missing")), "{warned}");
}

#[test]
fn records_that_somebody_removes_are_missed() {
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("r1/events.jsonl");
    let mut fakes = Fakes { step_time: Duration::from_millis(1), ..Fakes::new(1) };
    let (result, events) = observe(&config(dir.path(), plan(60), 1), &mut fakes, |event, _| {
        if matches!(event, RunEvent::Step(s) if s.step == 30) {
            std::fs::remove_file(&lines).unwrap();
        }
    });
    let logs = result.unwrap().logs;
    assert_eq!(logs.events, None);
    assert!(logs.tensorboard.is_some());
    let warned = warnings(&events).join("\n");
    assert!(warned.contains("events.jsonl` was removed during the run"), "{warned}");
}

#[test]
fn a_directory_that_cannot_be_made_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), saving(plan(25), 10, 3), 2);
    let trick = Trick::BlocksDirectory { step: 5, run_dir: dir.path().join("r1") };
    let mut fakes = Fakes { step_time: Duration::from_millis(1), ..Fakes::with(2, 0, trick) };
    let (result, events) = observe(&config, &mut fakes, |_, _| {});
    let error = result.unwrap_err();
    assert_eq!((error.code, steps(&events).len()), (1, 25));
    assert!(error.message.contains("could not be saved"), "{error}");
    assert!(!warnings(&events).is_empty());
}

#[test]
fn a_run_directory_that_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("r1"), "x").unwrap();
    let mut fakes = Fakes::new(1);
    let error = observe(&config(dir.path(), plan(5), 1), &mut fakes, |_, _| {}).0.unwrap_err();
    assert_eq!(error.code, 1);
    assert!(error.message.contains("cannot make the run's directory"), "{error}");
}

#[test]
fn a_checkpoint_beyond_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), plan(5), 1);
    let metrics = Default::default();
    config.resume = Some(monarch_controller::Resume { directory: "x".into(), step: 9, metrics });
    let error = observe(&config, &mut Fakes::new(1), |_, _| {}).0.unwrap_err();
    assert!(error.message.contains("holds 9 steps, and the job ends after 5"), "{error}");
}

#[test]
fn one_worker_needs_no_transport_whatever_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), plan(3), 1);
    config.transport = Transport::SharedMemory;
    assert_eq!(observe(&config, &mut Fakes::new(1), |_, _| {}).0.unwrap().steps, 3);
}
