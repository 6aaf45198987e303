//! Event files as TensorBoard's own reader sees them, where Python has it; and the same by bytes.

use monarch_record::{Events, Stamp};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn at(step: u64) -> Stamp {
    Stamp { step, wall_time: 1_700_000_000.25 + step as f64 }
}

/// What the real reader finds; None when Python or TensorBoard is not there. `PYTHON` names
/// another interpreter; with `MONARCH_NEED_TENSORBOARD` set, its absence is a failure.
fn read(dir: &Path) -> Option<Value> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tools/check_events.py");
    let output = Command::new(python).arg(script).arg(dir).output();
    let needed = std::env::var_os("MONARCH_NEED_TENSORBOARD").is_some();
    match output {
        Ok(output) if output.status.code() == Some(77) => {
            assert!(!needed, "TensorBoard is not installed");
            None
        }
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            Some(serde_json::from_slice(&output.stdout).unwrap())
        }
        Err(error) => {
            assert!(!needed, "{error}");
            None
        }
    }
}

fn point(step: u64, value: Value) -> Value {
    json!([step, value, at(step).wall_time])
}

#[test]
fn scalars_and_texts() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Events::create(dir.path(), 1_700_000_000.0, 42).unwrap();
    assert!(events.path().ends_with("events.out.tfevents.1700000000.monarch.42"));
    events.text(at(0), "job", "# digits\n`lr = 1e-3`, é").unwrap();
    events.scalars(at(0), &[("loss", 2.5), ("lr", 0.125)]).unwrap();
    events.scalars(at(1), &[("loss", f64::NAN)]).unwrap();
    events.scalars(at(1 << 40), &[("loss", 0.5)]).unwrap();
    events.sync().unwrap();
    assert_eq!(events.lost(), 0);
    let Some(found) = read(dir.path()) else { return };
    let loss = [point(0, json!(2.5)), point(1, json!("nan")), point(1 << 40, json!(0.5))];
    assert_eq!(found["scalars"]["loss"], json!(loss));
    assert_eq!(found["scalars"]["lr"], json!([point(0, json!(0.125))]));
    assert_eq!(found["texts"]["job"], json!([point(0, json!("# digits\n`lr = 1e-3`, é"))]));
}

/// Killed in the middle of a record, resumed from an earlier step, twice.
#[test]
fn no_curve_overlaps_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Events::create(dir.path(), 1_700_000_000.0, 1).unwrap();
    for step in 0..10 {
        events.scalars(at(step), &[("loss", step as f64)]).unwrap();
    }
    let first = events.path().to_path_buf();
    drop(events);
    let torn = fs::metadata(&first).unwrap().len() - 5;
    fs::File::options().write(true).open(&first).unwrap().set_len(torn).unwrap();
    // The clock was set back, and the new file must still be read after the old one.
    let mut events = Events::resume(dir.path(), 6, 1_600_000_000.0, 2, |_| false).unwrap();
    for step in 6..12 {
        events.scalars(at(step), &[("loss", 100.0 + step as f64)]).unwrap();
    }
    drop(events);
    let untouched = fs::read(&first).unwrap();
    let mut events = Events::resume(dir.path(), 8, 1_700_000_500.0, 3, |_| false).unwrap();
    events.scalars(at(8), &[("loss", 200.0)]).unwrap();
    drop(events);
    assert_eq!(fs::read(&first).unwrap(), untouched);
    // 16 bytes of frame each; 24 of version, 26 a scalar, less 2 where the step is 0.
    assert_eq!(untouched.len(), (24 + 16) + 6 * (26 + 16) - 2);
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 3);
    let Some(found) = read(dir.path()) else { return };
    let mut want: Vec<Value> = (0..6).map(|s| point(s, json!(s as f64))).collect();
    want.extend((6..8).map(|s| point(s, json!(100.0 + s as f64))));
    want.push(point(8, json!(200.0)));
    assert_eq!(found["scalars"]["loss"], json!(want));
}

/// What lies exactly at the step of the resume, and does not come again.
#[test]
fn what_is_not_recorded_again_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Events::create(dir.path(), 1_700_000_000.0, 1).unwrap();
    for step in 0..4 {
        events.scalars(at(step), &[("train/loss", step as f64)]).unwrap();
        events.scalars(at(step), &[("eval/loss", 10.0 + step as f64)]).unwrap();
    }
    drop(events);
    let stays = |tag: &str| tag == "eval/loss";
    drop(Events::resume(dir.path(), 2, 1_700_000_001.0, 2, stays).unwrap());
    let Some(found) = read(dir.path()) else { return };
    let points =
        |from: f64, n| (0..n).map(|s| point(s, json!(from + s as f64))).collect::<Vec<_>>();
    assert_eq!(found["scalars"]["train/loss"], json!(points(0.0, 2)));
    assert_eq!(found["scalars"]["eval/loss"], json!(points(10.0, 3)));
}

#[test]
fn foreign_and_damaged_files_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("events.out.tfevents.9.x.1");
    fs::write(&foreign, b"garbage").unwrap();
    fs::write(dir.path().join("events.out.tfevents.9.monarch.1"), b"garbage").unwrap();
    fs::write(dir.path().join("events.out.tfevents.zzz"), b"").unwrap();
    fs::write(dir.path().join("notes.txt"), b"mine").unwrap();
    fs::create_dir(dir.path().join("events.out.tfevents.7.dir")).unwrap();
    let mut events = Events::resume(dir.path(), 1, 1.0, 1, |_| true).unwrap();
    events.scalars(at(1), &[("loss", 1.0)]).unwrap();
    assert_eq!(fs::read(dir.path().join("notes.txt")).unwrap(), b"mine");
    assert_eq!(fs::read(foreign).unwrap(), b"garbage");
    let file = dir.path().join("notes.txt");
    assert!(Events::create(&file, 1.0, 1).is_err());
}
