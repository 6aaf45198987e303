//! Runs by the thousand: workers, network, disk and clock are simulated from a seed, and reports
//! arrive in any order that a network allows. What must hold, holds for every seed.

mod cluster;
mod common;

use cluster::{Cluster, Faults};
use common::config;
use monarch_graph::{Action, Best, Every, Rule, Span};
use monarch_sched::{Cause, Ended, Transport};

const SEEDS: u64 = 400;

fn rule(metric: &str, above: Option<f64>, below: Option<f64>, action: Action) -> Rule {
    Rule { metric: metric.to_string(), above, below, action, span: Span::default() }
}

#[test]
fn every_interleaving_gives_the_same_record() {
    for seed in 0..SEEDS {
        let world = 1 + (seed % 4) as u32;
        let mut c = config(world, 37);
        c.eval_every = Some(Every::Steps(10));
        c.save_every = Some(Every::Steps(8));
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert_eq!(end.steps, (0..37).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(end.evals, [10, 20, 30, 37], "seed {seed}");
        assert_eq!(end.commits, [8, 16, 24, 32, 37], "seed {seed}");
        assert_eq!(end.outcome.checkpoint, Some(37), "seed {seed}");
        assert!(end.outcome.fingerprint.is_some(), "seed {seed}");
    }
}

#[test]
fn a_rule_on_an_evaluation_acts_at_its_step() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 4) as u32, 100);
        c.eval_every = Some(Every::Steps(7));
        // Accuracy after s steps is s / 100 in the simulated workers.
        c.rules = vec![
            rule("eval.accuracy", Some(0.2), None, Action::Checkpoint),
            rule("eval.accuracy", Some(0.3), None, Action::Stop),
        ];
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!(end.outcome.ended, Ended::Rule { rule: 1, value: 0.35 }, "seed {seed}");
        assert_eq!(end.outcome.steps, 35, "seed {seed}");
        assert_eq!(end.evals, [7, 14, 21, 28, 35], "seed {seed}");
        assert_eq!(end.commits, [21, 28, 35], "seed {seed}");
    }
}

/// `also` saves beside the clock; with `async = false` no step passes a save.
#[test]
fn saves_beside_the_clock() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 4) as u32, 30);
        c.save_every = Some(Every::Steps(8));
        c.saves.also = Some(5);
        c.saves.waits = seed % 2 == 0;
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!(end.commits, [5, 8, 10, 15, 16, 20, 24, 25, 30], "seed {seed}");
        assert_eq!(end.steps, (0..30).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn one_waits_for_the_other() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 4) as u32, 30);
        c.save_every = Some(Every::Steps(8));
        c.eval_after_save = true;
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!((end.evals, end.commits), (vec![8, 16, 24, 30], vec![8, 16, 24, 30]));
        let mut c = config(1 + (seed % 4) as u32, 30);
        c.eval_every = Some(Every::Steps(9));
        c.saves.after_eval = true;
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!((end.evals, end.commits), (vec![9, 18, 27, 30], vec![9, 18, 27, 30]));
    }
}

/// Accuracy grows all the time in the simulated workers: each evaluation is the best by `max`,
/// and by `min` the first one, unless one before the resume was better.
#[test]
fn the_best_is_saved_at_its_step() {
    for seed in 0..SEEDS {
        let run = |smallest, best_so_far| {
            let mut c = config(1 + (seed % 4) as u32, 40);
            c.eval_every = Some(Every::Steps(9));
            c.saves.best = Some(Best { metric: "eval.accuracy".into(), smallest });
            c.saves.best_so_far = best_so_far;
            Cluster::new(c, seed, Faults::default()).run().commits
        };
        assert_eq!(run(false, None), [9, 18, 27, 36, 40], "seed {seed}");
        assert_eq!(run(true, None), [9, 40], "seed {seed}");
        assert_eq!(run(true, Some(0.0)), [40], "seed {seed}");
    }
}

#[test]
fn a_rule_on_the_loss_acts_at_its_step() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 3) as u32, 100);
        // Loss of step k is 1 / (k + 1).
        c.rules = vec![rule("loss", None, Some(0.06), Action::Stop)];
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!(end.outcome.ended, Ended::Rule { rule: 0, value: 1.0 / 17.0 }, "seed {seed}");
        assert_eq!(end.outcome.steps, 17, "seed {seed}");
        assert_eq!((end.evals, end.commits), (vec![17], vec![17]), "seed {seed}");
    }
}

#[test]
fn an_interrupt_at_any_moment_saves_what_is_done() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 4) as u32, 60);
        c.eval_every = Some(Every::Steps(9));
        let faults = Faults { interrupt_after: Some(seed * 2), ..Faults::default() };
        let end = Cluster::new(c, seed, faults).run();
        match end.outcome.ended {
            Ended::Completed => assert_eq!(end.outcome.steps, 60, "seed {seed}"),
            Ended::Interrupted { saved } if end.outcome.steps > 0 => {
                assert!(saved, "seed {seed}");
                assert_eq!(end.outcome.checkpoint, Some(end.outcome.steps), "seed {seed}");
            }
            Ended::Interrupted { .. } => assert!(end.steps.is_empty(), "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn resumed_where_it_stopped_nothing_is_missing_or_doubled() {
    for seed in 0..SEEDS {
        let make = || {
            let mut c = config(1 + (seed % 4) as u32, 60);
            c.eval_every = Some(Every::Steps(9));
            c
        };
        let faults = Faults { interrupt_after: Some(20 + seed), ..Faults::default() };
        let first = Cluster::new(make(), seed, faults).run();
        let Some(at) = first.outcome.checkpoint else { continue };
        let mut c = make();
        c.first_step = at;
        c.world = 1 + (seed / 7 % 4) as u32;
        let second = Cluster::new(c, seed + 1, Faults::default()).run();
        assert_eq!(second.outcome.ended, Ended::Completed, "seed {seed}");
        let steps: Vec<u64> = first.steps.into_iter().chain(second.steps).collect();
        assert_eq!(steps, (0..60).collect::<Vec<_>>(), "seed {seed}");
        // An evaluation at the edge of the two is run again; the record drops the first.
        let mut evals: Vec<u64> = first.evals.into_iter().filter(|&s| s < at).collect();
        evals.extend(second.evals);
        assert_eq!(evals, [9, 18, 27, 36, 45, 54, 60], "seed {seed}");
    }
}

#[test]
fn a_killed_worker_is_the_cause_whoever_complains_first() {
    for seed in 0..SEEDS {
        let world = 2 + (seed % 3) as u32;
        let mut c = config(world, 5_000);
        c.save_every = Some(Every::Steps(50));
        let victim = (seed % u64::from(world)) as u32;
        let faults = Faults { kill: Some((victim, 40 + seed)), ..Faults::default() };
        let end = Cluster::new(c, seed, faults).run();
        match &end.outcome.ended {
            Ended::Failed(Cause::Exited { rank, exit, .. }) => {
                assert_eq!((*rank, exit.by_signal), (victim, true), "seed {seed}");
            }
            Ended::Failed(Cause::NeverJoined { slot, .. }) => {
                assert_eq!(*slot, victim, "seed {seed}");
            }
            other => panic!("seed {seed}: {other:?}"),
        }
        assert_eq!(end.outcome.checkpoint, end.commits.last().copied(), "seed {seed}");
    }
}

#[test]
fn a_worker_that_reports_its_own_failure_is_named() {
    for seed in 0..SEEDS {
        let world = 2 + (seed % 3) as u32;
        let victim = (seed % u64::from(world)) as u32;
        let faults = Faults { fail: Some((victim, seed % 30)), ..Faults::default() };
        let end = Cluster::new(config(world, 50), seed, faults).run();
        match &end.outcome.ended {
            Ended::Failed(Cause::Worker { rank, failure, .. }) => {
                assert_eq!(*rank, victim, "seed {seed}");
                assert_eq!(failure.message, "token id 99 is not below 65", "seed {seed}");
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn a_full_disk_is_loud_and_training_goes_on() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 4) as u32, 40);
        c.save_every = Some(Every::Steps(10));
        let faults = Faults { bad_saves: vec![10], bad_commits: vec![20], ..Faults::default() };
        let end = Cluster::new(c, seed, faults).run();
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert_eq!(end.save_failures, [10, 20], "seed {seed}");
        assert_eq!(end.outcome.checkpoint, Some(40), "seed {seed}");
    }
}

#[test]
fn a_failed_final_save_fails_the_run() {
    for seed in 0..SEEDS {
        let mut c = config(1 + (seed % 4) as u32, 20);
        c.save_every = Some(Every::Steps(10));
        let mut faults = Faults::default();
        if seed % 2 == 0 {
            faults.bad_saves.push(20)
        } else {
            faults.bad_commits.push(20)
        }
        let end = Cluster::new(c, seed, faults).run();
        let failed = matches!(end.outcome.ended, Ended::Failed(Cause::FinalSave { step: 20, .. }));
        assert!(failed, "seed {seed}: {:?}", end.outcome);
        assert_eq!(end.outcome.checkpoint, Some(10), "seed {seed}");
        assert!(end.save_failures.is_empty(), "seed {seed}: training does not go on");
    }
}

#[test]
fn ranks_that_differ_in_a_bit_are_named() {
    for seed in 0..SEEDS {
        let world = 3;
        let odd = (seed % 3) as u32;
        let faults = Faults { wrong_loss: Some((odd, seed % 20)), ..Faults::default() };
        let end = Cluster::new(config(world, 30), seed, faults).run();
        let Ended::Failed(Cause::Mismatch { step, what: "loss", groups }) = &end.outcome.ended
        else {
            panic!("seed {seed}: {:?}", end.outcome);
        };
        assert_eq!(*step, seed % 20, "seed {seed}");
        assert!(groups.iter().any(|(ranks, _)| ranks == &[odd]), "seed {seed}: {groups:?}");
    }
}

#[test]
fn a_worker_that_falls_silent_ends_the_run_at_its_deadline() {
    for seed in 0..SEEDS {
        let world = 1 + (seed % 4) as u32;
        let silent = (seed % u64::from(world)) as u32;
        let mut c = config(world, 40);
        c.eval_every = Some(Every::Steps(10));
        c.rules = vec![rule("eval.accuracy", Some(2.0), None, Action::Stop)];
        let faults = Faults { hang: Some((silent, seed % 47)), ..Faults::default() };
        let end = Cluster::new(c, seed, faults).run();
        match &end.outcome.ended {
            Ended::Failed(Cause::Stalled { ranks, .. } | Cause::NotReady { ranks, .. }) => {
                assert!(ranks.contains(&silent), "seed {seed}");
            }
            // It was silent only when nothing but its goodbye was missing.
            Ended::Completed => assert_eq!(end.goodbyes_missing, [silent], "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn a_hung_run_can_be_interrupted_twice() {
    for seed in 0..SEEDS {
        let mut c = config(2, 1_000);
        c.timeouts.stall_ns = u64::MAX;
        let faults = Faults {
            hang: Some((1, 10 + seed % 60)),
            interrupt_after: Some(3_000),
            second_interrupt: seed % 2 == 0,
            ..Faults::default()
        };
        // With one interrupt alone, the grace time ends it.
        let end = Cluster::new(c, seed, faults).run();
        assert!(matches!(end.outcome.ended, Ended::Interrupted { saved: false }), "seed {seed}");
    }
}

#[test]
fn too_few_workers_is_an_end_with_numbers() {
    let faults = Faults { absent: 2, ..Faults::default() };
    let end = Cluster::new(config(4, 10), 7, faults).run();
    let Ended::Failed(Cause::TooFew { came: 2, world: 4, .. }) = end.outcome.ended else {
        panic!("{:?}", end.outcome);
    };
}

#[test]
fn shared_memory_only_where_it_can_be() {
    let mut c = config(3, 5);
    c.transport = Transport::SharedMemory;
    let faults = Faults { two_hosts: true, ..Faults::default() };
    let end = Cluster::new(c, 1, faults).run();
    let Ended::Failed(Cause::NoSharedMemory { hosts }) = end.outcome.ended else {
        panic!("{:?}", end.outcome);
    };
    assert_eq!(hosts, ["a", "b"]);
}

#[test]
fn a_checkpoint_by_the_clock_lands_on_named_steps() {
    for seed in 0..SEEDS {
        let mut c = config(2, 300);
        c.save_every = Some(Every::Time(5));
        let end = Cluster::new(c, seed, Faults::default()).run();
        assert_eq!(end.outcome.ended, Ended::Completed, "seed {seed}");
        assert!(end.commits.len() > 1, "seed {seed}");
        assert_eq!(end.commits.last(), Some(&300), "seed {seed}");
    }
}
