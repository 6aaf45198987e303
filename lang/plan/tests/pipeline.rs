//! Schedules of pipelines: every one runs to its end, within its memory, with the bubble that the
//! literature gives.

mod support;

use monarch_check::hir::PipelineSchedule as Schedule;
use monarch_plan::mesh::pipeline::{Pace, ScheduleError, Timeline, simulate, tasks, verify};
use support::Rng;

fn run(schedule: Schedule, stages: u64, micro: u64, pace: Pace) -> Timeline {
    let lists = tasks(schedule, stages, micro);
    let paces = vec![pace; stages as usize];
    match simulate(&lists, schedule, &paces, micro) {
        Ok(line) => line,
        Err(e) => panic!("{schedule:?} {stages} x {micro}: {e}"),
    }
}

const EVEN: Pace = Pace { forward: 1.0, backward: 1.0, weights: 1.0, send: 0.0 };

#[test]
fn bubbles_are_those_of_the_literature() {
    for stages in 1..9 {
        for micro in [1, 2, 7, 8, 16, 33] {
            let (p, m) = (stages as f64, micro as f64);
            for schedule in [Schedule::GPipe, Schedule::OneFOneB] {
                let line = run(schedule, stages, micro, EVEN);
                assert!((line.end - 3.0 * (m + p - 1.0)).abs() < 1e-9, "{schedule:?} {line:?}");
            }
            if micro >= stages {
                // Qi et al. 2023: (p - 1)(F + B - W) are left of the bubble.
                let line = run(Schedule::ZeroBubbleH1, stages, micro, EVEN);
                let right = 3.0 * m + (p - 1.0);
                assert!(line.end <= right + 1e-9, "{stages} x {micro}: {} > {right}", line.end);
            }
            if micro % stages == 0 {
                for chunks in [2, 4] {
                    // Narayanan et al. 2021: the bubble is divided by the chunks.
                    let schedule = Schedule::Interleaved { chunks };
                    let line = run(schedule, stages, micro, EVEN);
                    let right = 3.0 * m + 3.0 * (p - 1.0) / f64::from(chunks);
                    assert!((line.end - right).abs() < 1e-9, "{stages} x {micro} x {chunks}");
                }
            }
        }
    }
}

#[test]
fn activations_stay_within_the_cap() {
    for stages in 1..9u64 {
        for micro in [1, 3, 8, 20] {
            let line = run(Schedule::OneFOneB, stages, micro, EVEN);
            for (s, stage) in line.stages.iter().enumerate() {
                assert_eq!(stage.in_flight, (stages - s as u64).min(micro) as f64);
            }
            let line = run(Schedule::ZeroBubbleH1, stages, micro, EVEN);
            assert!(line.stages.iter().all(|s| s.in_flight <= stages as f64), "{line:?}");
            let line = run(Schedule::GPipe, stages, micro, EVEN);
            assert!(line.stages.iter().all(|s| s.in_flight == micro as f64));
        }
    }
}

#[test]
fn no_schedule_stops_whatever_the_times() {
    let mut rng = Rng::new(5);
    for _ in 0..300 {
        let (stages, chunks) = (rng.below(1, 10), rng.below(2, 5) as u32);
        let micro = rng.below(1, 7) * stages;
        let paces: Vec<Pace> = (0..stages)
            .map(|_| Pace {
                forward: rng.unit().abs(),
                backward: rng.unit().abs(),
                weights: rng.unit().abs(),
                send: rng.unit().abs(),
            })
            .collect();
        for schedule in [
            Schedule::GPipe,
            Schedule::OneFOneB,
            Schedule::Interleaved { chunks },
            Schedule::ZeroBubbleH1,
        ] {
            let lists = tasks(schedule, stages, micro);
            let line = simulate(&lists, schedule, &paces, micro).expect("it ends");
            for (stage, pace) in line.stages.iter().zip(&paces) {
                let work = (pace.forward + pace.backward + pace.weights) * micro as f64;
                assert!((stage.busy - work).abs() < 1e-9 && stage.end <= line.end);
            }
        }
    }
}

#[test]
fn a_wrong_list_is_found() {
    let schedule = Schedule::OneFOneB;
    let mut lists = tasks(schedule, 3, 4);
    // Two stages that wait for each other.
    lists[1].reverse();
    let paces = vec![EVEN; 3];
    let found = simulate(&lists, schedule, &paces, 4);
    assert!(matches!(found, Err(ScheduleError::Deadlock { .. })), "{found:?}");
    let mut lists = tasks(schedule, 3, 4);
    lists[2].pop();
    assert_eq!(verify(&lists, schedule, 4), Err(ScheduleError::Incomplete { stage: 2 }));
}
