//! The cost model against counting.

mod support;

use monarch_graph::{Dim, Einsum, Optimizer, OptimizerKind, Shape, rank_range, tree};
use monarch_plan::cost::{Held, Link, Pace, Rates, memory, time, traffic, work};
use monarch_plan::tasks::cuts;
use support::Bench;

fn adam() -> Optimizer {
    let kind = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.0 };
    Optimizer { kind, clip: None, decay_on: Default::default() }
}

#[test]
fn a_product_counts_two_a_step_of_its_innermost_loop() {
    let mut t = Bench::new(1);
    let x = t.frozen(&Shape(vec![Dim::samples(), Dim::fixed(4), Dim::fixed(8)]));
    let w = t.weight(&[8, 16]);
    let e = Einsum { a: vec![0, 1, 2], b: vec![2, 3], out: vec![0, 1, 3] };
    t.b.einsum(e, x, w).unwrap();
    let graph = t.b.finish();
    let whole = work(&graph, 0..graph.nodes.len(), 3);
    assert_eq!(whole.flops, 2.0 * 3.0 * 4.0 * 8.0 * 16.0);
    assert_eq!(whole.bytes, 0.0);
}

/// Messages of one reduction, one by one.
fn counted(bytes: u64, shards: u32, workers: u32) -> (Vec<u64>, Vec<u64>) {
    let chunk = bytes.div_ceil(u64::from(workers));
    let mut sent = vec![0; workers as usize];
    let mut received = vec![0; workers as usize];
    for owner in 0..workers as usize {
        for other in (0..workers as usize).filter(|&o| o != owner) {
            let held = rank_range(shards, workers, other as u32);
            for _ in tree::canonical(shards, held) {
                sent[other] += chunk;
                received[owner] += chunk;
            }
            sent[owner] += chunk;
            received[other] += chunk;
        }
    }
    (sent, received)
}

#[test]
fn traffic_is_what_the_messages_say() {
    for shards in [1, 4, 8, 12] {
        for workers in 1..=shards {
            let t = traffic(9_600, shards, workers);
            let (sent, received) = counted(9_600, shards, workers);
            let name = format!("{shards} shards, {workers} workers");
            assert_eq!(t.total, sent.iter().sum::<u64>(), "{name}");
            assert_eq!(t.scatter_sent + t.gather_sent, *sent.iter().max().unwrap(), "{name}");
            let most = *received.iter().max().unwrap();
            assert_eq!(t.scatter_received + t.gather_received, most, "{name}");
        }
    }
    // Aligned powers of two cost what a ring costs.
    let t = traffic(8_000, 8, 4);
    assert_eq!(t.scatter_sent + t.gather_sent, 2 * 8_000 * 3 / 4);
    assert_eq!(traffic(8_000, 8, 1).total, 0);
}

#[test]
fn overlap_hides_and_workers_help() {
    let mut t = Bench::new(1);
    let mut x = t.frozen(&Shape(vec![Dim::samples(), Dim::fixed(256)]));
    for _ in 0..6 {
        let w = t.weight(&[256, 256]);
        let e = Einsum { a: vec![0, 1], b: vec![1, 2], out: vec![0, 2] };
        x = t.b.einsum(e, x, w).unwrap();
    }
    let d = monarch_plan::differentiate::differentiate(t.b.finish(), x, &t.trainable).unwrap();
    let sizes = vec![256 * 256; 6];
    let policy = monarch_plan::bucket::BucketPolicy { first_bytes: 1, cap_bytes: 1 };
    let buckets = monarch_plan::bucket::fill(&sizes, &d.gradients, policy);
    assert_eq!(buckets.len(), 6);
    let at = cuts(&buckets, &d.gradients, d.forward);
    let pace = |workers, overlap| Pace {
        graph: &d.graph,
        forward: d.forward,
        cuts: &at,
        buckets: &buckets,
        samples: 512,
        shards: 8,
        workers,
        threads: 1,
        link: Link::Quic,
        overlap,
        trainable: 6 * 256 * 256,
        update_flops: 0.0,
    };
    let rates = Rates::default();
    let with = time(pace(4, true), &adam(), &rates);
    let without = time(pace(4, false), &adam(), &rates);
    assert!(with.exposed < 0.5 * without.exposed, "{with:?} {without:?}");
    assert!((without.exposed - without.communication).abs() < 1e-12);
    assert_eq!((with.forward, with.backward), (without.forward, without.backward));
    let alone = time(pace(1, true), &adam(), &rates);
    assert_eq!(alone.communication, 0.0);
    assert!((alone.forward / with.forward - 4.0).abs() < 1e-9);
    // Backward costs twice forward, but the first layer needs no input gradient.
    assert!((alone.backward / alone.forward - 11.0 / 6.0).abs() < 0.1);
}

#[test]
fn memory_adds_up() {
    let held = Held {
        weights: 100,
        state: 160,
        scratch: 0,
        slab: 96,
        arena: 1_000,
        columns: 10,
        shards: 8,
        workers: 3,
        threads: 2,
    };
    // Rank 0 holds shards 0..3: two lanes; the tree over three shards is two levels deep.
    let m = memory(held);
    assert_eq!(m.weights, 400);
    assert_eq!(m.optimizer, 2 * 320);
    assert_eq!(m.activations, 2 * 4_000);
    assert_eq!(m.batch, 2 * 40);
    assert_eq!(m.gradients, 4 * 96 * (2 + 2));
    assert_eq!(m.communication, 4 * 96 * 2);
    assert_eq!(m.total(), m.rows().iter().map(|r| r.1).sum::<u64>());
    let alone = memory(Held { workers: 1, threads: 64, ..held });
    assert_eq!((alone.communication, alone.activations), (0, 8 * 4_000));
}
