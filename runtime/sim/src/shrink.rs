//! The least of a schedule that still fails.

use crate::{Report, Schedule, run};

/// Leaves out faults, steps, workers and duties of the job as long as something that must not
/// happen still does. The schedule that is left, and how it ends.
pub fn shrink(schedule: &Schedule) -> (Schedule, Report) {
    let mut least = schedule.clone();
    loop {
        let smaller = candidates(&least).into_iter().find(|s| run(s, false).violation.is_some());
        match smaller {
            Some(smaller) => least = smaller,
            None => break,
        }
    }
    let report = run(&least, true);
    (least, report)
}

fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let mut all = Vec::new();
    for place in 0..schedule.faults.len() {
        let mut less = schedule.clone();
        less.faults.remove(place);
        all.push(less);
    }
    let mut change = |change: &dyn Fn(&mut crate::schedule::Job)| {
        let mut less = schedule.clone();
        change(&mut less.job);
        if less.job != schedule.job {
            all.push(less);
        }
    };
    change(&|job| job.eval_every = None);
    change(&|job| job.save_every = None);
    change(&|job| job.save_ms = None);
    change(&|job| job.eval_after_save = false);
    change(&|job| job.save_after_eval = false);
    change(&|job| job.save_waits = false);
    change(&|job| job.stop_above = None);
    change(&|job| job.steps = (job.steps / 2).max(1));
    change(&|job| job.steps = (job.steps - 1).max(1));
    change(&|job| {
        job.world = (job.world - 1).max(1);
        job.own = job.own.min(job.world);
        job.recovery.least = job.recovery.least.min(job.world);
    });
    change(&|job| job.shards = (job.shards - 1).max(job.world));
    all
}
