use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A cluster of one lane each; times for a shard of 8 samples by rank, in microseconds.
struct Cluster {
    watch: Watch,
    deal: Vec<u32>,
    load: Vec<u64>,
    forward: Vec<u64>,
    backward: Vec<u64>,
    update: Vec<u64>,
    now_ns: u64,
    step: u64,
}

impl Cluster {
    fn new(world: u32) -> Cluster {
        let n = world as usize;
        let deal = monarch_graph::even_deal(8, world);
        let (load, forward) = (vec![500; n], vec![3_000; n]);
        let (backward, update) = (vec![6_500; n], vec![1_000; n]);
        let watch = Watch::new(0.2);
        let mut cluster =
            Cluster { watch, deal, load, forward, backward, update, now_ns: 0, step: 0 };
        cluster.form();
        cluster
    }

    fn form(&mut self) {
        let members: Vec<_> = (0..self.load.len() as u64).map(|w| (WorkerId(w), 1)).collect();
        self.watch.form(&members, &self.deal);
    }

    /// Runs for so many seconds; noise of so many parts in a hundred.
    fn run(&mut self, seconds: u64, noise: u64) -> Vec<Verdict> {
        let (mut all, until) = (Vec::new(), self.now_ns + seconds * SECOND);
        let mut state = self.step + 1;
        while self.now_ns < until {
            let mut random = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                100 + (state >> 33) % (2 * noise + 1) - noise
            };
            let numbers = |rank: usize, random: u64| {
                let held = self.deal.iter().filter(|r| **r as usize == rank).count() as u64;
                let times = Times {
                    load_ns: self.load[rank] * 10 * held * random,
                    forward_ns: self.forward[rank] * 10 * held * random,
                    backward_ns: self.backward[rank] * 10 * held * random,
                    update_ns: self.update[rank] * 10 * random,
                };
                let Times { load_ns, forward_ns, backward_ns, update_ns } = times;
                let total_ns = load_ns + forward_ns + backward_ns + update_ns;
                let (step, samples) = (self.step, 64);
                let (epoch, loss, grad_norm, lr) = (0, 1.0, 1.0, 1.0);
                StepNumbers {
                    step,
                    epoch,
                    samples,
                    loss,
                    grad_norm,
                    lr,
                    finite: true,
                    total_ns,
                    times,
                }
            };
            let step: Vec<_> = (0..self.load.len()).map(|rank| numbers(rank, random())).collect();
            self.now_ns += step.iter().map(|n| n.total_ns).max().unwrap_or(1);
            self.step += 1;
            all.extend(self.watch.observe(&step));
        }
        all
    }

    /// Deals anew if that is worth it; shards per rank.
    fn rebalance(&mut self) -> Option<Vec<u32>> {
        let better = self.watch.better_deal(self.now_ns)?;
        let counts: Vec<u32> = better.iter().map(|c| c.1).collect();
        let ranks = (0..).zip(&counts);
        self.deal = ranks.flat_map(|(rank, n)| (0..*n).map(move |_| rank)).collect();
        self.watch.dealt(self.now_ns);
        self.form();
        Some(counts)
    }
}

#[test]
fn a_slow_worker_is_named_with_its_phase() {
    for (phase, rank) in (0..).zip(PHASES).map(|(i, phase)| (phase, i % 3)) {
        let mut cluster = Cluster::new(3);
        let (times, by) = match phase {
            SlowPhase::Load => (&mut cluster.load, 10),
            SlowPhase::Forward => (&mut cluster.forward, 3),
            SlowPhase::Backward => (&mut cluster.backward, 2),
            SlowPhase::Update => (&mut cluster.update, 20),
        };
        times[rank as usize] *= by;
        let worker = WorkerId(u64::from(rank));
        assert_eq!(cluster.run(20, 5), [Verdict::Slow { rank, worker }], "{phase:?}");
        let what = cluster.watch.what(worker).unwrap();
        assert_eq!(what.phase, phase);
        assert!((what.times / by as f64 - 1.0).abs() < 0.1, "{what:?}");
    }
}

#[test]
fn nobody_is_slow_when_all_are_or_when_deals_differ() {
    for world in 2..=8 {
        let mut cluster = Cluster::new(world);
        assert_eq!(cluster.run(60, 15), [], "{world}");
        cluster.backward.iter_mut().for_each(|ns| *ns *= 3);
        assert_eq!(cluster.run(60, 15), [], "{world}");
        assert_eq!(cluster.rebalance(), None);
    }
    let mut cluster = Cluster::new(2);
    cluster.deal = vec![0, 0, 0, 0, 0, 0, 0, 1];
    cluster.form();
    assert_eq!(cluster.run(60, 15), []);
}

#[test]
fn a_pause_and_the_first_steps_are_no_reason() {
    let mut cluster = Cluster::new(3);
    for _ in 0..10 {
        cluster.backward[1] *= 100;
        assert_eq!(cluster.run(1, 0), []);
        cluster.backward[1] /= 100;
        assert_eq!(cluster.run(5, 0), []);
    }
}

#[test]
fn shards_go_to_the_faster_and_return() {
    let mut cluster = Cluster::new(3);
    cluster.backward[2] *= 3;
    assert_eq!(cluster.run(10, 5).len(), 1);
    // Only named so far.
    assert_eq!(cluster.rebalance(), None);
    cluster.watch.deal_by_pace(WorkerId(2));
    assert_eq!(cluster.rebalance(), Some(vec![4, 3, 1]));
    assert_eq!(cluster.run(60, 5), []);
    assert_eq!(cluster.rebalance(), None);
    cluster.backward[2] /= 3;
    assert_eq!(cluster.run(20, 5), [Verdict::Recovered { rank: 2, worker: WorkerId(2) }]);
    assert_eq!(cluster.rebalance(), Some(vec![3, 3, 2]));
    assert_eq!(cluster.run(60, 5), []);
    assert_eq!(cluster.rebalance(), None);
}

/// A worker that is slow now and then: deals are bounded.
#[test]
fn there_is_no_flapping() {
    let mut cluster = Cluster::new(3);
    let mut deals = 0;
    for half_minute in 0..120 {
        cluster.backward[2] = if half_minute % 2 == 0 { 30_000 } else { 6_500 };
        for _ in 0..30 {
            for verdict in cluster.run(1, 5) {
                if let Verdict::Slow { worker, .. } = verdict {
                    cluster.watch.deal_by_pace(worker);
                }
            }
            deals += u32::from(cluster.rebalance().is_some());
        }
    }
    assert!((3..=12).contains(&deals), "{deals}");
}

#[test]
fn counts_end_as_soon_as_they_can() {
    assert_eq!(spread(8, &[1, 1, 1], &[1.0, 1.0, 1.8]), [3, 3, 2]);
    assert_eq!(spread(8, &[1, 1], &[1.0, 3.0]), [6, 2]);
    assert_eq!(spread(8, &[2, 1], &[1.0, 1.0]), [5, 3]);
    assert_eq!(spread(4, &[1, 1, 1, 1], &[1.0, 9.0, 1.0, 1.0]), [1, 1, 1, 1]);
    // Against all other counts.
    for paces in [[1.0, 1.3, 2.5], [1.0, 1.0, 4.0], [3.0, 1.0, 1.7]] {
        let lanes = [1, 2, 1];
        let ours = makespan(&spread(8, &lanes, &paces), &lanes, &paces);
        for a in 1..7 {
            for b in 1..8 - a {
                let other = makespan(&[a, b, 8 - a - b], &lanes, &paces);
                assert!(ours <= other, "{paces:?}: {a} {b}");
            }
        }
    }
    assert_eq!(counts(8, &[1, 1], &[1.0, 1.0]), None);
}
