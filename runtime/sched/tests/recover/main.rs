//! Workers die, hang, come back and come anew at any moment of a simulated run, and its record is
//! that of an undisturbed one. Everything follows from the seed.

#[path = "../common/mod.rs"]
mod common;
mod elastic;
mod moments;

use elastic::{Elastic, Plan, config};
use monarch_graph::Every;
use monarch_sched::{Cause, Ended};

const SEEDS: u64 = 2_000;

/// What the record of an undisturbed run is.
fn quiet(plan: &Plan) -> (Vec<u64>, Vec<u64>, String) {
    let end = Elastic::new(Plan { faults: 0, ..plan.clone() }, 0).run();
    assert_eq!(end.outcome.ended, Ended::Completed);
    (end.steps, end.evals, end.outcome.fingerprint.expect("a fingerprint"))
}

fn plan(seed: u64, world: u32) -> Plan {
    let mut config = config(world, 40);
    config.eval_every = Some(Every::Steps(10));
    config.save_every = Some(Every::Steps(8));
    Plan { config, faults: 1 + (seed % 6) as u32, ..Plan::default() }
}

#[test]
fn kills_at_any_moment_change_nothing() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let plan = plan(seed, 2 + (seed % 4) as u32);
        let (steps, evals, fingerprint) = quiet(&plan);
        let end = Elastic::new(plan, seed).run();
        lost += end.lost;
        if end.all_died {
            continue;
        }
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert_eq!(end.steps, steps, "seed {seed}");
        assert_eq!(end.evals, evals, "seed {seed}");
        assert_eq!(end.outcome.fingerprint, Some(fingerprint), "seed {seed}");
        assert_eq!(end.outcome.checkpoint, Some(40), "seed {seed}");
        assert!(end.told >= end.killed_under_way, "seed {seed}: each loss is told of");
    }
    assert!(lost > SEEDS, "only {lost} losses");
}

#[test]
fn frozen_workers_are_left_behind() {
    for seed in 0..SEEDS / 2 {
        let mut plan = plan(seed, 2 + (seed % 3) as u32);
        plan.freezes = true;
        let (steps, evals, fingerprint) = quiet(&plan);
        let end = Elastic::new(plan, seed).run();
        if end.all_died {
            continue;
        }
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert_eq!((end.steps, end.evals), (steps, evals), "seed {seed}");
        assert_eq!(end.outcome.fingerprint, Some(fingerprint), "seed {seed}");
    }
}

#[test]
fn without_replacement_the_run_shrinks() {
    for seed in 0..SEEDS / 2 {
        let mut plan = plan(seed, 3 + (seed % 3) as u32);
        plan.config.recovery.replace = false;
        plan.faults = 2;
        let (steps, evals, fingerprint) = quiet(&plan);
        let end = Elastic::new(plan, seed).run();
        assert!(!end.all_died, "seed {seed} {:?}", end.outcome);
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert_eq!((end.steps, end.evals), (steps, evals), "seed {seed}");
        assert_eq!(end.outcome.fingerprint, Some(fingerprint), "seed {seed}");
        assert_eq!(end.started, 0, "seed {seed}");
    }
}

#[test]
fn guests_may_come_at_any_moment() {
    for seed in 0..SEEDS / 2 {
        let mut plan = plan(seed, 1 + (seed % 3) as u32);
        plan.faults = 0;
        plan.guests = 1 + (seed % 3) as u32;
        let (steps, evals, fingerprint) = quiet(&Plan { guests: 0, ..plan.clone() });
        let end = Elastic::new(plan, seed).run();
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert_eq!((end.steps, end.evals), (steps, evals), "seed {seed}");
        assert_eq!(end.outcome.fingerprint, Some(fingerprint), "seed {seed}");
    }
}

/// Workers are told to end, and others die and come, at any moment: none of it is in the record.
#[test]
fn workers_may_leave_at_any_moment() {
    let (mut released, mut saved) = (0, 0);
    for seed in 0..SEEDS {
        let mut plan = plan(seed, 1 + (seed % 5) as u32);
        plan.faults = (seed % 2) as u32;
        plan.leaves = 1 + (seed % 4) as u32;
        plan.guests = (seed % 3) as u32;
        let (steps, evals, fingerprint) = quiet(&Plan { guests: 0, leaves: 0, ..plan.clone() });
        let end = Elastic::new(plan, seed).run();
        released += end.released;
        let done = end.steps.len();
        assert_eq!(end.steps, steps[..done], "seed {seed}");
        match end.outcome.ended {
            Ended::Completed => {
                assert_eq!((end.steps, end.evals), (steps, evals), "seed {seed}");
                assert_eq!(end.outcome.fingerprint, Some(fingerprint), "seed {seed}");
            }
            // Nobody was left: all that was done is in a checkpoint.
            Ended::Interrupted { saved: all } => {
                assert!(all || done == 0, "seed {seed}");
                assert_eq!(end.outcome.checkpoint.unwrap_or(0), done as u64, "seed {seed}");
                saved += u32::from(all);
            }
            ended => assert!(end.all_died, "seed {seed}: {ended:?}"),
        }
    }
    assert!(released > SEEDS as u32 && saved > SEEDS as u32 / 20, "{released} {saved}");
}

#[test]
fn a_worker_that_never_stays_is_given_up() {
    let mut given_up = 0;
    for seed in 0..SEEDS / 10 {
        let mut plan = plan(seed, 3);
        plan.faults = 2;
        plan.cursed = Some(1);
        let end = Elastic::new(plan, seed).run();
        // One that cannot even come in is nothing that a run can begin with.
        let never = matches!(end.outcome.ended, Ended::Failed(Cause::NeverJoined { slot: 1, .. }));
        assert!(never || end.outcome.ended == Ended::Completed, "seed {seed}: {:?}", end.outcome);
        assert!(end.given_up.is_empty() || end.given_up == [1], "seed {seed}");
        given_up += end.given_up.len();
    }
    assert!(given_up > 20, "{given_up}");
}

#[test]
fn a_failure_of_the_job_itself_ends_the_run() {
    for seed in 0..SEEDS / 10 {
        let mut plan = plan(seed, 3);
        plan.faults = 0;
        plan.fails_at = Some(seed % 40);
        let end = Elastic::new(plan, seed).run();
        assert!(matches!(end.outcome.ended, Ended::Failed(_)), "seed {seed}: {:?}", end.outcome);
    }
}
