//! Some thousands of the schedules that `examples/schedules.rs` carries out by the million
//! (`SCHEDULES=100000` for more). A seed that fails is shrunk to a schedule that can be read.

use monarch_sim::{Schedule, run, shrink};

fn count() -> u64 {
    std::env::var("SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000)
}

#[test]
fn nothing_that_must_never_happen_does() {
    let mut ended = 0;
    for seed in 0..count() {
        let schedule = Schedule::random(seed);
        let report = run(&schedule, false);
        if let Some(what) = report.violation {
            let (least, report) = shrink(&schedule);
            panic!("seed {seed}: {what}\nshrunk:\n{least}{}", report.trace.join("\n"));
        }
        let outcome = report.outcome.map(|o| o.ended);
        ended += u64::from(!matches!(outcome, None | Some(monarch_sched::Ended::Failed(_))));
    }
    assert!(ended > count() / 2, "only {ended} runs came to their end");
}

/// Each was found among a million, for a reason of its own: evaluations that moved with a save that
/// failed, a worker told to end that alone held the weights and could not reach who was to get
/// them.
#[test]
fn what_once_failed_does_not_again() {
    for seed in [24_536, 26_466, 64_486, 93_637, 527_278] {
        let report = run(&Schedule::random(seed), false);
        assert_eq!(report.violation, None, "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_events_again() {
    for seed in 0..200 {
        let schedule = Schedule::random(seed);
        let (one, two) = (run(&schedule, true), run(&schedule, true));
        assert_eq!(one.trace, two.trace, "seed {seed}");
        assert_eq!(one.events, two.events, "seed {seed}");
    }
}
