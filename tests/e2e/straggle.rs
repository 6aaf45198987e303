//! A worker that holds the others up is named, and its shards go to faster ones.

use crate::support::{CHARGPT_SMALL, Corpus, Place, chargpt, process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Stops a process half of the time, while it is asked to; the process runs at the end.
struct Brake(std::sync::Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Brake {
    fn on(pid: i32) -> Brake {
        let on = std::sync::Arc::new(AtomicBool::new(true));
        let shared = on.clone();
        let half = Duration::from_millis(10);
        let thread = std::thread::spawn(move || {
            while shared.load(Ordering::Acquire) && process::send(pid, libc::SIGSTOP) {
                std::thread::sleep(half);
                process::send(pid, libc::SIGCONT);
                std::thread::sleep(half);
            }
        });
        Brake(on, Some(thread))
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_worker_that_is_held_up_is_named_and_spared() {
    let place = Place::with(&chargpt(100_000, 10, "10 h"));
    let corpus = Corpus::write(&place, 20_000);
    let mut args = vec!["--workers", "2", "--threads", "1"];
    args.extend(CHARGPT_SMALL);
    args.extend(corpus.iter().map(String::as_str));
    let mut running = place.begin(&args);
    running.until_step(5);
    let brake = Brake::on(place.workers()[1]);
    let slow = running.until("slow worker", |e| e["event"] == "slow");
    // What it is busy with nearly all the time; the pauses fall where they will.
    let busy = ["forward", "backward"].contains(&slow["phase"].as_str().unwrap_or_default());
    assert!(busy, "{slow}");
    assert!(slow["times"].as_f64().is_some_and(|t| t > 1.2), "{slow}");
    let [before, after] = [0, 1].map(|i| slow["shards"][i].as_u64().expect("a new deal"));
    assert!(before == 4 && (1..4).contains(&after), "{slow}");
    running.until("other deal", |e| e["event"] == "regrouped" && e["workers"] == 2);
    drop(brake);
    running.signal(libc::SIGINT);
    let out = running.finish().expect_code(130);
    assert_eq!(out.last("finished")["why"], "interrupted; all is saved");

    // As if nothing had been.
    let steps = out.steps();
    let mut quiet = place.begin(&args);
    quiet.until_step(steps - 1);
    quiet.signal(libc::SIGINT);
    let quiet = quiet.finish().expect_code(130);
    let losses = |out: &crate::support::Outcome| {
        let all = out.of("step").map(|e| e["loss"].to_string());
        all.take(steps as usize).collect::<Vec<_>>()
    };
    assert_eq!(losses(&out), losses(&quiet));
}
