//! Shards by pace: each worker as many as it can do while the others do theirs.

/// Time until the last one is done, in shards of an ordinary worker. A lane takes whole shards.
pub(crate) fn makespan(counts: &[u32], lanes: &[u32], paces: &[f64]) -> f64 {
    let times = counts.iter().zip(lanes).zip(paces);
    times.map(|((n, lanes), pace)| time(*n, *lanes, *pace)).fold(0.0, f64::max)
}

fn time(count: u32, lanes: u32, pace: f64) -> f64 {
    f64::from(count.div_ceil(lanes.max(1))) * pace
}

/// How many shards each gets: one at least, so that its pace is still seen; the others one by one
/// to whoever is done with it first. No other counts end sooner.
pub(crate) fn spread(shards: u32, lanes: &[u32], paces: &[f64]) -> Vec<u32> {
    let mut counts = vec![1u32; lanes.len()];
    for _ in lanes.len() as u32..shards {
        let next = counts.iter().zip(lanes).zip(paces).enumerate();
        let key = |((n, lanes), pace): ((&u32, &u32), &f64)| (time(n + 1, *lanes, *pace), *n);
        let sooner = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let first = next.map(|(rank, row)| (rank, key(row))).min_by(|a, b| sooner(&a.1, &b.1));
        if let Some(count) = first.and_then(|(rank, _)| counts.get_mut(rank)) {
            *count += 1;
        }
    }
    counts
}

/// The same for workers of which some may be slow; None when none is, and all get the same.
pub(crate) fn counts(shards: u32, lanes: &[u32], paces: &[f64]) -> Option<Vec<u32>> {
    let uneven = paces.iter().any(|pace| *pace > 1.0) && shards as usize >= lanes.len();
    uneven.then(|| spread(shards, lanes, paces))
}
