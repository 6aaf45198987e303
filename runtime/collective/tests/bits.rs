//! Whoever holds which shard, over either transport, the sums have the same bits.

mod common;

use common::*;
use monarch_collective::*;
use monarch_graph::even_deal;
use monarch_graph::tree::{self, TreeNode};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Case {
    /// Per shard: its rank.
    deal: Vec<u32>,
    world: u32,
    lanes: usize,
    /// In units of 16 elements.
    buckets: Vec<u64>,
    seed: u64,
    kind: Kind,
}

impl Case {
    fn layout(&self, rank: u32) -> Layout {
        let mut at = 0;
        let mut buckets = Vec::new();
        for units in &self.buckets {
            buckets.push((at, units * 16));
            at += units * 16;
        }
        Layout::new(&self.deal, self.world, rank, &buckets, self.seed).unwrap()
    }

    fn run(&self, steps: u64) {
        let settings = Settings::default();
        let (_file, path) = shm::create_file().unwrap();
        let results: Vec<Vec<Vec<f32>>> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..)
                .zip(memory_mesh(self.world))
                .map(|(rank, bulk)| {
                    let (path, settings) = (&path, &settings);
                    scope.spawn(move || {
                        let layout = self.layout(rank);
                        let (mut transport, pool) =
                            open(self.kind, path, bulk, &layout, self.lanes, settings).unwrap();
                        let fold = Fold::new(layout, pool);
                        let go = |k| {
                            let (lanes, seed) = (self.lanes, self.seed);
                            step(&mut *transport, &fold, lanes, seed, k, &settings.stop)
                        };
                        (0..steps).map(go).collect::<Result<Vec<_>, _>>().unwrap()
                    })
                })
                .collect();
            ranks.into_iter().map(|r| r.join().unwrap()).collect()
        });
        let elements = self.layout(0).slab();
        for k in 0..steps {
            let want = expected(self.seed, k, self.deal.len() as u32, elements);
            let want: Vec<u32> = want.iter().map(|v| v.to_bits()).collect();
            for result in &results {
                let got: Vec<u32> = result[k as usize].iter().map(|v| v.to_bits()).collect();
                assert!(got == want, "{self:?}, step {k}");
            }
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let kind = prop_oneof![Just(Kind::Shared), Just(Kind::Messages)];
    let sizes = prop::collection::vec(0u64..1000, 1..6);
    (1u32..10, 1u32..9, 1usize..4, sizes, any::<u64>(), kind).prop_map(
        |(shards, world, lanes, buckets, seed, kind)| {
            // Also deals that leave ranks without a shard.
            let rank = |shard: u32| (mix(seed ^ u64::from(shard)) % u64::from(world)) as u32;
            let deal = (0..shards).map(rank).collect();
            Case { deal, world, lanes, buckets, seed, kind }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn sums_do_not_depend_on_who_holds_what(case in cases()) {
        case.run(3);
    }
}

#[test]
fn every_world_over_both_transports() {
    for kind in [Kind::Shared, Kind::Messages] {
        for world in 1..=8 {
            let buckets = vec![1, 100, 3];
            let (lanes, deal) = (1 + world as usize % 3, even_deal(8, world));
            Case { deal, world, lanes, buckets, seed: 5, kind }.run(4);
        }
        let (deal, buckets) = (even_deal(5, 3), vec![40, 0, 7]);
        Case { deal, world: 3, lanes: 2, buckets, seed: 6, kind }.run(4);
    }
}

#[test]
fn ranks_without_a_shard_take_part() {
    for kind in [Kind::Shared, Kind::Messages] {
        for deal in [vec![0, 0, 2, 0, 2], vec![1; 8], vec![3, 3, 0, 0]] {
            // Small and large ones, and one that has a chunk for one rank alone.
            let buckets = vec![1, 6000, 2];
            Case { deal, world: 4, lanes: 2, buckets, seed: 7, kind }.run(3);
        }
    }
}

#[test]
fn a_bucket_of_several_messages() {
    let kind = Kind::Messages;
    let buckets = vec![(5 << 20) / 32 + 3];
    Case { deal: even_deal(3, 2), world: 2, lanes: 1, buckets, seed: 1, kind }.run(1);
}

fn numbers(shard: u32) -> Vec<f64> {
    let r = mix(u64::from(shard));
    (0..700).map(|i| (mix(r ^ i) as f64) * 2f64.powi((i % 60) as i32 - 90)).collect()
}

#[test]
fn scalars_are_added_in_the_same_tree() {
    let even = [(8, 1), (8, 3), (8, 8), (5, 3), (7, 2)].map(|(s, w)| (even_deal(s, w), w));
    // The last of these leave ranks without a shard.
    let odd = [(vec![2, 0, 2, 2, 0, 1, 2, 0], 3), (vec![1, 1, 1], 3), (vec![2; 5], 4)];
    for (deal, world) in even.into_iter().chain(odd) {
        let shards = deal.len() as u32;
        let mut leaf = |n: TreeNode| (n.level == 0).then(|| numbers(n.index));
        let mut add =
            |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(x, y)| x + y).collect::<Vec<_>>();
        let want = tree::fold(tree::root(shards), shards, &mut leaf, &mut add).unwrap();
        for kind in [Kind::Shared, Kind::Messages] {
            let settings = Settings::default();
            let (_file, path) = shm::create_file().unwrap();
            std::thread::scope(|scope| {
                for (rank, bulk) in (0..).zip(memory_mesh(world)) {
                    let (path, settings, want, deal) = (&path, &settings, &want, &deal);
                    scope.spawn(move || {
                        let layout = Layout::new(deal, world, rank, &[(0, 16)], 1).unwrap();
                        let (mut transport, _pool) =
                            open(kind, path, bulk, &layout, 1, settings).unwrap();
                        for round in 0..3 {
                            let mine = Scalars {
                                values: layout.held().iter().map(|s| numbers(*s)).collect(),
                                counters: vec![u64::from(rank), 1],
                                flags: 1 << rank,
                            };
                            let sums =
                                all_reduce_scalars(&mut *transport, &layout, round, &mine).unwrap();
                            assert_eq!(&sums.values[0], want, "{shards} {world} {kind:?}");
                            let world = u64::from(world);
                            assert_eq!(sums.counters, [world * (world - 1) / 2, world]);
                            assert_eq!(sums.flags, (1 << world) - 1);
                        }
                    });
                }
            });
        }
    }
}
