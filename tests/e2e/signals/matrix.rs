//! Each signal to each process, in the steps and in the middle of an evaluation.

use crate::support::stuck::page_of;
use crate::support::{CHARGPT_SMALL, Corpus, LIMIT, Outcome, Place, Running, checkpoint};
use crate::support::{chargpt, process, swap};
use monarch_pulse::{Phase, Role};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Steps,
    Evaluation,
}

const MOMENTS: [Moment; 2] = [Moment::Steps, Moment::Evaluation];

/// A run of two workers that nobody waits for, with evaluations that take their time.
fn begin(place: &Place, terminal: Option<File>) -> Running {
    let corpus = Corpus::write(place, 20_000);
    let mut args = vec!["run", "job.mon", "--json", "--workers", "2", "--threads", "1"];
    args.extend(CHARGPT_SMALL);
    args.extend(corpus.iter().map(String::as_str));
    let mut command = place.monarch(&args);
    if let Some(terminal) = terminal {
        command.stdin(terminal);
        let take = || {
            // SAFETY: calls that may stand between fork and exec, on descriptors 0 and 2.
            let done = unsafe {
                libc::setsid() >= 0
                    && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0
                    && libc::dup2(0, 2) == 2
            };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: `take` neither allocates nor locks.
        unsafe { command.pre_exec(take) };
    }
    Running::start(command, LIMIT)
}

fn job() -> Place {
    let text = chargpt(100_000, 10, "10 h");
    Place::with(&swap(&text, "every = 5 steps, batches = 2", "every = 5 steps, batches = 60"))
}

/// Waits for the moment.
fn until(place: &Place, running: &mut Running, moment: Moment) {
    // Just after an evaluation, so that four steps are left before the next one.
    running.until("evaluation", |e| e["event"] == "eval" && e["step"] == 5);
    if moment == Moment::Steps {
        return;
    }
    running.until_step(9);
    let begun = Instant::now();
    let page = page_of(place.workers()[0]).expect("a worker shows a page");
    let evaluates = |page: &monarch_pulse::Page| {
        let streams = page.sample().streams;
        streams.iter().any(|s| s.role == Role::Main && s.phase == Phase::Evaluate)
    };
    while !evaluates(&page) {
        assert!(begun.elapsed() < LIMIT, "no evaluation");
        std::thread::yield_now();
    }
}

/// All is saved, and the record tells each step and each evaluation once.
fn saved(place: &Place, out: &Outcome) {
    let steps = out.steps();
    assert_eq!(out.last("finished")["why"], "interrupted; all is saved", "{}", out.story());
    assert_eq!(checkpoint::steps(&place.run_dir()), [steps]);
    assert_eq!(checkpoint::manifest(&out.checkpoint())["fingerprint"], out.fingerprint());
    let all: Vec<u64> = (0..steps).collect();
    let recorded = checkpoint::recorded_steps(&place.run_dir());
    let first = recorded.first().copied().unwrap_or(0);
    assert_eq!(recorded, all.iter().map(|s| s + first).collect::<Vec<u64>>());
    let evaluated: Vec<u64> = out.of("eval").filter_map(|e| e["step"].as_u64()).collect();
    let due: Vec<u64> = (1..=steps / 5).map(|n| 5 * n).collect();
    assert_eq!(evaluated, due, "{}", out.story());
    assert_eq!(out.of("lost").count(), 0, "{}", out.story());
}

/// What one run says is the beginning of what the longest says.
fn agree(mut all: Vec<Vec<String>>) {
    all.sort_by_key(Vec::len);
    let longest = all.pop().expect("a run");
    for numbers in all {
        assert_eq!(numbers, longest[..numbers.len()]);
    }
}

#[test]
fn the_controller_once() {
    let mut numbers = Vec::new();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        for moment in MOMENTS {
            let place = job();
            let mut running = begin(&place, None);
            until(&place, &mut running, moment);
            running.signal(signal);
            let out = running.finish().expect_code(130);
            saved(&place, &out);
            numbers.push(out.numbers());
        }
    }
    agree(numbers);
}

#[test]
fn the_controller_twice() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        for moment in MOMENTS {
            let place = job();
            let mut running = begin(&place, None);
            until(&place, &mut running, moment);
            running.signal(signal);
            running.signal(libc::SIGINT);
            let out = running.finish().expect_code(130).says(&["interrupted after step"]);
            // Two that come at the same time may be seen as one.
            let whole = checkpoint::steps(&place.run_dir());
            assert!(whole.is_empty() || whole == [out.steps()], "{}", out.story());
        }
    }
}

#[test]
fn a_terminal_that_is_closed() {
    for moment in MOMENTS {
        let place = job();
        let (ours, theirs) = terminal();
        let mut running = begin(&place, Some(theirs));
        until(&place, &mut running, moment);
        drop(ours);
        let out = running.finish().expect_code(130);
        saved(&place, &out);
    }
}

/// Both ends of a new terminal; no child inherits them.
fn terminal() -> (File, File) {
    let mut name = [0; 64];
    // SAFETY: the descriptor is owned from here on; the name is as long as is said.
    let ours = unsafe {
        let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(fd >= 0 && libc::grantpt(fd) == 0 && libc::unlockpt(fd) == 0, "a terminal");
        assert_eq!(libc::ptsname_r(fd, name.as_mut_ptr(), name.len()), 0);
        File::from_raw_fd(fd)
    };
    let name: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    let name = String::from_utf8(name).expect("a path");
    let mut options = File::options();
    let theirs = options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(name);
    (ours, theirs.expect("its other end"))
}

#[test]
fn one_worker() {
    let mut numbers = Vec::new();
    for moment in MOMENTS {
        let place = job();
        let mut running = begin(&place, None);
        until(&place, &mut running, moment);
        let victim = place.workers()[0];
        assert!(process::send(victim, libc::SIGTERM));
        assert_eq!(running.until_event("left")["pid"], victim);
        running.until_event("eval");
        running.signal(libc::SIGTERM);
        let out = running.finish().expect_code(130);
        saved(&place, &out);
        assert_eq!(out.of("left").count(), 1, "{}", out.story());
        numbers.push(out.numbers());
    }
    agree(numbers);
}
