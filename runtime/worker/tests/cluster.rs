//! The same bits for every number of workers and threads, over either transport.

mod common;

use common::plan::{plan, wide_plan, write_data};
use common::*;
use monarch_wire::DueKind;

fn dues() -> Vec<(u64, DueKind)> {
    vec![(0, DueKind::Evaluate(0)), (5, DueKind::Evaluate(0)), (16, DueKind::Evaluate(0))]
}

#[test]
fn every_cluster_computes_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let alone = Setup::new(plan(&data, true), 1, 1, Way::Shared).run(&[window(16, &dues())]);
    let want = alone[0].numbers();
    assert_eq!(want.0.len(), 16);
    assert_eq!(want.1.len(), 3);
    let losses: Vec<f64> = alone[0].steps.iter().map(|s| s.loss).collect();
    assert!(losses[15] < 0.7 * losses[0], "nothing is learnt: {losses:?}");
    let evals: Vec<f64> = alone[0].evals.iter().map(|e| e.values[0]).collect();
    assert!(evals[2] < evals[0], "{evals:?}");
    for world in [1, 2, 3, 4, 8] {
        for threads in [1, 2, 3] {
            for way in [Way::Shared, Way::Quic] {
                for overlap in [true, false] {
                    let setup = Setup::new(plan(&data, overlap), world, threads, way);
                    for transcript in setup.run(&[window(16, &dues())]) {
                        let case = format!("{world} x {threads} {way:?} overlap {overlap}");
                        assert_eq!(transcript.ready, alone[0].ready, "{case}");
                        assert_eq!(transcript.numbers(), want, "{case}");
                    }
                }
            }
        }
    }
}

/// Wide enough that ranks add a chunk each and threads share the update.
#[test]
fn large_gradients_too() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let plan = wide_plan(&data, true, (1 << 16) + 16);
    let alone = Setup::new(plan.clone(), 1, 1, Way::Shared).run(&[window(5, &[])]);
    for (world, threads) in [(1, 3), (3, 1), (2, 3), (5, 2)] {
        for way in [Way::Shared, Way::Quic] {
            for transcript in Setup::new(plan.clone(), world, threads, way).run(&[window(5, &[])]) {
                assert_eq!(transcript.numbers(), alone[0].numbers(), "{world} x {threads} {way:?}");
            }
        }
    }
}
