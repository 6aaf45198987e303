//! The first program that anybody runs.

use crate::support::{Place, checkpoint, digits};
use std::fs;

/// `examples/digits.mon`, to the letter.
#[test]
fn learns_to_read() {
    let place = Place::new();
    place.copy("examples/digits.mon", "job.mon");
    let out = place.train(&["--workers", "2"]).ok();
    let end = out.last("finished");
    let accuracy = end["metrics"]["eval.accuracy"].as_f64().expect("an accuracy");
    assert!(accuracy >= 0.97, "{accuracy}");
    // `test` and what comes later are remarked upon; nothing is wrong.
    assert!(out.errors().is_empty(), "{}", out.story());
    let run = place.run_dir();
    assert_eq!(end["directory"], run.display().to_string());
    let manifest = checkpoint::manifest(&out.checkpoint());
    assert_eq!(manifest["fingerprint"], out.fingerprint());
    assert_eq!(manifest["step"], out.steps());
    assert_eq!(manifest["finite"], true);
    let steps: Vec<u64> = (0..out.steps()).collect();
    assert_eq!(checkpoint::recorded_steps(&run), steps);
}

/// What a person sees: talk on standard error, the summary on standard output.
#[test]
fn ends_with_a_summary() {
    let place = Place::with(&digits("2 epochs"));
    let out = place.run(&["run", "job.mon", "--workers", "2", "--run-id", "first"]).ok();
    let summary = out.stdout.join("\n");
    let row = |name: &str| {
        let row = out.stdout.iter().find_map(|l| l.strip_prefix(name));
        row.unwrap_or_else(|| panic!("no `{name}`: {summary}")).trim().to_string()
    };
    assert!(row("ended").contains("after step 46"), "{summary}");
    assert!(place.file(&row("checkpoint")).join("manifest.json").exists(), "{summary}");
    assert!(place.file(&row("events")).exists(), "{summary}");
    assert!(row("curves").contains("tensorboard --logdir runs/first"), "{summary}");
    let manifest = checkpoint::manifest(&place.file("runs/first/step-000000046"));
    assert_eq!(row("weights"), manifest["fingerprint"].as_str().expect("a fingerprint"));
    assert!(out.stderr.contains("2 workers"), "{}", out.stderr);
    assert!(out.stderr.contains("eval.accuracy"), "{}", out.stderr);
    assert!(!out.stderr.contains('\x1b'), "colours on a pipe: {}", out.stderr);
}

/// Reads a terminal of 80 columns until `enough` says so.
fn read_terminal(
    command: &mut std::process::Command,
    enough: impl Fn(&str) -> bool,
) -> (std::process::Child, String) {
    use std::io::Read;
    use std::os::fd::FromRawFd;
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: all pointers are to locals or null; the descriptors are owned below.
    let opened = unsafe {
        let none = std::ptr::null_mut();
        libc::openpty(&mut ours, &mut theirs, none, std::ptr::null(), &size)
    };
    assert_eq!(opened, 0, "a terminal can be opened");
    // SAFETY: both were just opened, and nobody else has them.
    let (mut ours, theirs) =
        unsafe { (fs::File::from_raw_fd(ours), fs::File::from_raw_fd(theirs)) };
    let child = command.stderr(theirs).stdout(std::process::Stdio::null()).spawn();
    let child = child.expect("it starts");
    let begun = std::time::Instant::now();
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !enough(&text) {
        assert!(begun.elapsed() < crate::support::LIMIT, "{text}");
        let n = ours.read(&mut part).unwrap_or_else(|e| panic!("{e} after {text}"));
        text.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    // Whoever writes to it still must not wait for a reader.
    std::thread::spawn(move || while ours.read(&mut part).is_ok_and(|n| n > 0) {});
    (child, text)
}

/// On a terminal one line says it all, and fits.
#[test]
fn shows_progress_on_a_terminal() {
    let place = Place::with(&crate::signals::endless());
    let mut command = place.monarch(&["run", "job.mon", "--workers", "2"]);
    let words = ["loss ", "accuracy ", "samples/s", "wait ", "/2300000"];
    let line = |text: &str| {
        let whole = |l: &&str| words.iter().all(|w| l.contains(w)) && l.trim_end().ends_with('%');
        text.split(['\r', '\n']).find(whole).map(String::from)
    };
    let (mut child, text) = read_terminal(&mut command, |text| line(text).is_some());
    assert!(line(&text).is_some(), "{text}");
    crate::support::process::send(child.id() as i32, libc::SIGINT);
    assert_eq!(child.wait().expect("a child").code(), Some(130));
}

/// Params become options, with their words, defaults and ranges.
#[test]
fn helps() {
    let place = Place::with(&digits("2 epochs"));
    let out = place.run(&["run", "job.mon", "--help"]).ok();
    let help = out.stdout.join("\n");
    for words in ["--width", "Hidden units.", "default: 128", "16..4096", "--lr", "--resume"] {
        assert!(help.contains(words), "no `{words}`: {help}");
    }
    place.check_untouched(&["job.mon"]);
}

/// `check` and `plan` look and do not touch.
#[test]
fn looking_leaves_nothing() {
    let place = Place::with(&digits("2 epochs"));
    place.run(&["check", "job.mon"]).ok();
    place.run(&["plan", "job.mon"]).ok();
    let out = place.run(&["plan", "job.mon", "--json"]).ok();
    assert_eq!(out.events[0]["json"], 1, "{}", out.story());
    let page = place.run(&["explain", "M0201"]).ok();
    assert!(page.stdout.join("\n").contains("M0201"));
    place.check_untouched(&["job.mon"]);
}

/// The program may say how many workers there are; the command line has the last word.
#[test]
fn a_cluster_of_its_own() {
    let text = digits("1 epochs");
    let cluster = "cluster local { workers = 3, threads = 1 }\nmodel net";
    let text = crate::support::swap(&text, "model net", cluster);
    let place = Place::with(&text);
    let out = place.train(&[]).ok();
    assert_eq!(out.last("started")["workers"], 3);
    let events = checkpoint::events(&place.run_dir());
    let start = events.iter().find(|e| e["event"] == "start").expect("a start");
    assert!(start["workers"].as_array().is_some_and(|w| w.iter().all(|w| w["threads"] == 1)));
    let other = place.train(&["--workers", "2"]).ok();
    assert_eq!(other.last("started")["workers"], 2);
    assert_eq!(other.fingerprint(), out.fingerprint());
    place.write("job.mon", crate::support::swap(&text, "train images", "train images on local"));
    let named = place.train(&[]).ok();
    assert_eq!(named.last("started")["workers"], 3);
}

/// Runs that begin in the same second have directories of their own; one directory has one run.
#[test]
fn several_at_once() {
    let place = Place::with(&digits("2 epochs"));
    let all = [(); 4].map(|()| place.begin(&["--workers", "1"]));
    for running in all {
        running.finish().ok();
    }
    let runs = place.run_dirs();
    assert_eq!(runs.len(), 4, "{runs:?}");
    for run in &runs {
        assert_eq!(checkpoint::recorded_steps(run), (0..46).collect::<Vec<_>>());
    }
    place.write("job.mon", crate::signals::endless());
    let mut first = place.begin(&["--workers", "2", "--run-id", "mine"]);
    first.until_step(3);
    let second = place.train(&["--workers", "2", "--run-id", "mine"]).expect_code(2);
    second.says(&["exists already"]);
    first.signal(libc::SIGINT);
    first.finish().expect_code(130);
    let mut first = place.begin(&["--workers", "2", "--resume", "mine"]);
    first.until_event("step");
    let second = place.train(&["--workers", "2", "--resume", "mine"]).expect_code(1);
    second.says(&["another process is at work", "runs/mine"]);
    first.signal(libc::SIGINT);
    first.finish().expect_code(130);
}

/// A program that names one directory for all its runs has one run, which can go on.
#[test]
fn one_directory_for_all_runs() {
    let saving = "  batch = 64\n  checkpoint { every = 10 steps, to = \"here\" }";
    let place = Place::with(&crate::support::swap(&digits("2 epochs"), "  batch = 64", saving));
    let out = place.train(&["--workers", "2"]).ok();
    assert_eq!(checkpoint::recorded_steps(&place.file("here")).len(), 46);
    place.train(&["--workers", "2"]).expect_code(2).says(&["here exists already", "{run.id}"]);
    std::fs::remove_dir_all(place.file("here/step-000000046")).expect("removed");
    let again = place.train(&["--workers", "3", "--resume"]).ok();
    assert_eq!(again.last("started")["first_step"], 40);
    assert_eq!(again.fingerprint(), out.fingerprint());
}

/// A param of the command line reaches the weights.
#[test]
fn a_param_counts() {
    let place = Place::with(&digits("3 steps"));
    let plain = place.train(&["--workers", "1"]).ok();
    let wide = place.train(&["--workers", "1", "--width", "64"]).ok();
    let fast = place.train(&["--workers", "1", "--lr", "1e-2"]).ok();
    assert_ne!(plain.fingerprint(), wide.fingerprint());
    assert_ne!(plain.fingerprint(), fast.fingerprint());
    assert_eq!(fast.last("step")["lr"], 0.01);
    let job = fs::read_to_string(place.run_dirs()[1].join("job.json")).expect("job.json");
    let job: serde_json::Value = serde_json::from_str(&job).expect("JSON");
    assert_eq!(job["params"]["width"], "64");
}
