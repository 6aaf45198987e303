//! Checkpoints under every kind of trouble: killed at any byte of a save, damaged afterwards, or
//! denied by the disk. `CHAOS=200` does as many rounds; each prints its number when it fails.

use crate::support::{LIMIT, Place, Running, checkpoint, digits, process, swap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn rounds(usual: u64) -> u64 {
    std::env::var("CHAOS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Checkpoints of 1.8 MB every 10 steps.
fn program(until: &str) -> String {
    let text = swap(&digits(until), "width: int   = 128", "width: int   = 2048");
    let text = swap(&text, "above = 98%", "above = 100%");
    swap(&text, "  batch = 64", "  batch = 64\n  checkpoint { every = 10 steps, keep = 9 }")
}

/// Bytes in the directory of a checkpoint that is being written.
fn staged(run: &Path) -> u64 {
    let entries = fs::read_dir(run).into_iter().flatten().flatten();
    let staging = entries.filter(|e| e.file_name().to_string_lossy().contains(".tmp-"));
    let files = staging.flat_map(|e| fs::read_dir(e.path()).into_iter().flatten().flatten());
    files.filter_map(|f| Some(f.metadata().ok()?.len())).sum()
}

/// Whether it runs still; one that has ended and was not waited for does not.
fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

#[test]
fn killed_at_any_byte_of_a_save() {
    let text = program("4 epochs");
    let quiet = Place::with(&text).train(&["--workers", "3"]).ok();
    let mut state = 0x000b_17e5_u64;
    for round in 0..rounds(6) {
        let mut place = Place::with(&text);
        place.killed = true;
        let run = place.file("runs/a");
        let mut running = place.begin(&["--workers", "3", "--run-id", "a", "--patience", "0"]);
        running.until_event("started");
        let (at, wait) = (random(&mut state) % 1_850_000, random(&mut state) % 60);
        running.until_step(wait);
        let begun = Instant::now();
        while staged(&run) < at && lives(running.pid()) && begun.elapsed() < LIMIT {}
        let whose = random(&mut state) % 3;
        let workers = place.workers();
        if whose == 0 && !workers.is_empty() {
            // A worker alone: the run goes on without a word from a person.
            process::send(workers[random(&mut state) as usize % workers.len()], libc::SIGKILL);
            let out = running.finish().ok();
            assert_eq!(out.fingerprint(), quiet.fingerprint(), "round {round}, byte {at}");
            continue;
        }
        running.signal(libc::SIGKILL);
        if whose == 1 {
            for worker in workers {
                process::send(worker, libc::SIGKILL);
            }
        }
        running.finish();
        process::left_after(place.mark(), Duration::from_secs(2));
        let again = ["1", "2", "4"][random(&mut state) as usize % 3];
        let out = match checkpoint::steps(&run).is_empty() {
            true => place.train(&["--workers", again, "--run-id", "b"]),
            false => place.train(&["--workers", again, "--resume", "a"]),
        };
        let out = out.ok();
        assert_eq!(out.fingerprint(), quiet.fingerprint(), "round {round}, byte {at}");
    }
}

/// One way to spoil a file.
fn spoil(file: &Path, how: u64, at: u64) -> &'static str {
    let mut bytes = fs::read(file).expect("a file");
    let at = at as usize % bytes.len();
    match how {
        0 => {
            bytes[at] ^= 1 << (at % 8);
            fs::write(file, bytes).expect("written");
            "a bit is flipped"
        }
        1 => {
            fs::write(file, &bytes[..at]).expect("written");
            "cut short"
        }
        2 => {
            bytes.push(0);
            fs::write(file, bytes).expect("written");
            "a byte too many"
        }
        _ => {
            fs::remove_file(file).expect("removed");
            "removed"
        }
    }
}

#[test]
fn any_damage_is_noticed_and_passed_over() {
    let place = Place::with(&program("2 epochs"));
    let right = place.train(&["--workers", "3", "--run-id", "a"]).ok();
    let run = place.file("runs/a");
    let newest = checkpoint::directory(&run, 46);
    let mut state = 0xda_3a6e_u64;
    for round in 0..rounds(8) {
        let mut files: Vec<PathBuf> =
            fs::read_dir(&newest).expect("a checkpoint").flatten().map(|e| e.path()).collect();
        files.sort();
        let file = &files[random(&mut state) as usize % files.len()];
        let (how, at) = (random(&mut state) % 4, random(&mut state));
        let what = format!("round {round}: {} of {}", spoil(file, how, at), file.display());
        let out = place.train(&["--workers", "2", "--resume", "a"]).ok();
        assert_eq!(out.last("started")["first_step"], 40, "{what}");
        assert_eq!(out.fingerprint(), right.fingerprint(), "{what}");
        // It has been replaced by a whole one.
        out.says(&["skipped", "step-000000046"]);
    }
    // A copy under a higher number is not what it says it is.
    let stale = checkpoint::directory(&run, 999);
    fs::create_dir(&stale).expect("a folder");
    for entry in fs::read_dir(&newest).expect("a checkpoint").flatten() {
        fs::copy(entry.path(), stale.join(entry.file_name())).expect("copied");
    }
    let out = place.train(&["--workers", "4", "--resume", "a"]).ok();
    assert_eq!(out.last("started")["first_step"], 46);
    out.says(&["skipped", "step-000000999", "its manifest is of step 46"]);
}

/// Training goes on, and the run says at its end that it could not be saved.
#[test]
fn a_directory_that_becomes_read_only() {
    let place = Place::with(&program("40 epochs"));
    let binary = env!("CARGO_BIN_EXE_monarch");
    let can = "mkdir -p runs && mount -t tmpfs tmpfs runs && mount --bind runs runs && \
               mount -o remount,ro,bind runs";
    let tried = place.command("unshare").args(["-rm", "sh", "-c", can]).output();
    if !tried.is_ok_and(|o| o.status.success()) {
        return eprintln!("not tried: no file system can be mounted here");
    }
    let script = format!(
        "mkdir -p runs && mount -t tmpfs tmpfs runs && \
         {{ \"{binary}\" run job.mon --json --workers 2 --run-id full & run=$!; \
         until ls -d runs/full/step-0????????; do sleep 0.01; done >/dev/null 2>&1; \
         mount --bind runs runs && mount -o remount,ro,bind runs; \
         wait $run; code=$?; ls runs/full > kept; exit $code; }}"
    );
    let mut command = place.command("unshare");
    command.args(["-rm", "sh", "-c", &script]);
    let out = Running::start(command, LIMIT).finish().expect_code(1);
    assert_eq!(out.of("step").count(), 920, "{}", out.story());
    let warnings = out.warnings();
    assert!(warnings.contains("the disk is read-only"), "{warnings}");
    assert!(warnings.contains("training goes on"), "{warnings}");
    let kept = fs::read_to_string(place.file("kept")).expect("a list");
    assert!(kept.contains("step-0"), "{kept}");
    out.says(&["could not be saved", "the disk is read-only", "step-0"]);
}
