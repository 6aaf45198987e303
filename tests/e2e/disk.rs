//! A full disk: training goes on, and a run whose end cannot be saved says so.

use crate::support::process::{self, Process};
use crate::support::{LIMIT, Outcome, Place, Running, checkpoint, digits, swap};
use std::process::Command;

/// Checkpoints of 1.8 MB every 10 steps.
fn program(until: &str) -> String {
    let text = swap(&digits(until), "width: int   = 128", "width: int   = 2048");
    let text = swap(&text, "above = 98%", "above = 100%");
    swap(&text, "  batch = 64", "  batch = 64\n  checkpoint { every = 10 steps }")
}

/// Whether this user may mount a file system in a name space of their own.
fn can_mount(place: &Place) -> bool {
    let script = "mkdir -p runs && mount -t tmpfs -o size=64k tmpfs runs";
    let tried = place.command("unshare").args(["-rm", "sh", "-c", script]).output();
    let can = tried.is_ok_and(|o| o.status.success());
    if !can {
        eprintln!("not tried: no file system can be mounted here");
    }
    can
}

/// `monarch run` with `runs/` on a disk of `size`; what is there at the end is copied to `kept/`.
fn on_a_disk_of(place: &Place, size: &str, before: &str) -> Command {
    let mut command = place.command("unshare");
    let binary = env!("CARGO_BIN_EXE_monarch");
    let script = format!(
        "mkdir -p runs && mount -t tmpfs -o size={size} tmpfs runs && {before} \
         \"{binary}\" run job.mon --json --workers 2 --run-id full; code=$?; \
         cp -r runs kept; exit $code"
    );
    command.args(["-rm", "sh", "-c", &script]);
    command
}

fn no_debris(place: &Place) {
    for entry in std::fs::read_dir(place.file("kept/full")).expect("a run").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.contains(".tmp-"), "half a checkpoint is left: {name}");
    }
}

#[test]
fn the_run_goes_on_and_fails_when_its_end_cannot_be_saved() {
    let place = Place::with(&program("2 epochs"));
    if !can_mount(&place) {
        return;
    }
    // Room for one checkpoint, not for two.
    let out = Running::start(on_a_disk_of(&place, "3m", ""), LIMIT).finish().expect_code(1);
    assert_eq!(out.of("step").count(), 46, "{}", out.story());
    let warnings = out.warnings();
    assert!(warnings.contains("no checkpoint of step 20"), "{}", out.story());
    assert!(warnings.contains("training goes on"), "{warnings}");
    assert!(warnings.contains("the disk is full"), "{warnings}");
    assert_eq!(checkpoint::steps(&place.file("kept/full")), [10]);
    no_debris(&place);
    out.says(&["could not be saved", "the disk is full", "step-000000010"]);
    place.check_clean();
}

#[test]
fn room_that_is_made_is_used() {
    let place = Place::with(&program("100000 epochs"));
    if !can_mount(&place) {
        return;
    }
    let ballast = "head -c 8500000 /dev/zero > runs/ballast;";
    let mut running = Running::start(on_a_disk_of(&place, "9m", ballast), LIMIT);
    let refused =
        |e: &serde_json::Value| e["text"].as_str().is_some_and(|t| t.contains("no checkpoint"));
    running.until("warning", refused);
    let controllers = process::marked(place.mark());
    let is_run = |p: &&Process| p.args.get(1).is_some_and(|a| a == "run");
    let controller = controllers.iter().find(is_run).expect("a controller").pid;
    // The disk is seen by way of a process on it.
    let inside = format!("/proc/{controller}/root{}", place.file("runs/ballast").display());
    std::fs::remove_file(inside).expect("room can be made");
    let saved = running.until_event("checkpoint");
    process::send(controller, libc::SIGINT);
    let out = running.finish().expect_code(130);
    assert!(saved["step"].as_u64() > Some(10), "{saved}");
    assert_eq!(checkpoint::steps(&place.file("kept/full")).pop(), Some(out.steps()));
    no_debris(&place);
}

/// Wherever no file system can be mounted: a limit on the size of files.
fn with_small_files(place: &Place) -> Outcome {
    let binary = env!("CARGO_BIN_EXE_monarch");
    let script = format!(
        "trap '' XFSZ; ulimit -f 512; exec \"{binary}\" run job.mon --json --workers 1 --run-id a"
    );
    let mut command = place.command("sh");
    command.args(["-c", &script]);
    Running::start(command, LIMIT).finish()
}

#[test]
fn files_that_may_not_grow() {
    let place = Place::with(&program("1 epochs"));
    let out = with_small_files(&place).expect_code(1);
    assert_eq!(out.of("step").count(), 23, "{}", out.story());
    assert!(out.warnings().contains("no checkpoint of step 10"), "{}", out.story());
    assert_eq!(checkpoint::steps(&place.file("runs/a")), [0u64; 0]);
    assert_eq!(checkpoint::recorded_steps(&place.file("runs/a")).len(), 23);
    out.says(&["could not be saved"]);
}

/// The run's directory cannot be made.
#[test]
fn a_file_where_the_runs_should_be() {
    let place = Place::with(&digits("1 epochs"));
    place.write("runs", "in the way");
    let out = place.train(&["--workers", "2", "--run-id", "a"]).expect_code(1);
    out.says(&["runs/a", "cannot make the run's directory"]);
    place.check_untouched(&["job.mon", "runs"]);
}
