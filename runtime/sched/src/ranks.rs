use crate::{Config, Joined, LinkPlan, Placement, Transport, WorkerId, straggle};
use monarch_graph::even_deal;
use std::collections::BTreeMap;

/// In order of the numbers the controller gave them, then by host, then as they came. The order has
/// no say in the numbers of a run, only in who computes what.
pub(crate) fn sort(workers: &mut [Joined]) {
    workers.sort_by(|a, b| {
        let key = |w: &Joined| (w.slot.unwrap_or(u32::MAX), w.host.clone(), w.worker);
        key(a).cmp(&key(b))
    });
}

/// Per rank: threads for shards, were there enough of them.
pub(crate) fn lanes(config: &Config, workers: &[Joined]) -> Vec<u32> {
    let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
    workers.iter().for_each(|w| *hosts.entry(&w.host).or_default() += 1);
    let lanes = |worker: &Joined| {
        let here = hosts.get(worker.host.as_str()).copied().unwrap_or(1).max(1);
        config.threads.unwrap_or(worker.cores / here).max(1)
    };
    workers.iter().map(lanes).collect()
}

/// Places for workers in order of rank.
pub(crate) fn place(workers: &[Joined], lanes: &[u32], deal: &[u32]) -> Vec<Placement> {
    let ranks = (0..).zip(workers).zip(lanes).zip(held(deal, workers.len()));
    let place = |(((rank, worker), lanes), held): (((u32, &Joined), &u32), u32)| {
        // A lane takes whole shards: more lanes than shards would be idle.
        Placement { worker: worker.worker, rank, threads: (*lanes).min(held.max(1)) }
    };
    ranks.map(place).collect()
}

/// Who computes which shard: each as many as the others, unless some are slow; `paces` by rank.
pub(crate) fn deal(shards: u32, lanes: &[u32], paces: &[f64]) -> Vec<u32> {
    match straggle::counts(shards, lanes, paces) {
        None => even_deal(shards, lanes.len() as u32),
        Some(counts) => {
            let ranks = (0..).zip(counts);
            ranks.flat_map(|(rank, n)| std::iter::repeat_n(rank, n as usize)).collect()
        }
    }
}

/// Who computes which shard when members change in the middle of a step: those who had shards
/// (`owners`, per shard) keep them, for they have computed some; each of the others goes to whoever
/// of those that are not `idle` has fewest, and of these to the owner of its sibling.
pub(crate) fn kept_deal(
    shards: u32,
    workers: &[Joined],
    owners: &[WorkerId],
    idle: impl Fn(WorkerId) -> bool,
) -> Vec<u32> {
    let ranks: BTreeMap<WorkerId, u32> =
        workers.iter().map(|w| w.worker).zip(0..).filter(|(w, _)| !idle(*w)).collect();
    if ranks.is_empty() || owners.len() != shards as usize {
        return even_deal(shards, workers.len() as u32);
    }
    let mut deal: Vec<Option<u32>> = owners.iter().map(|w| ranks.get(w).copied()).collect();
    let mut loads: BTreeMap<u32, u32> = ranks.values().map(|rank| (*rank, 0)).collect();
    for rank in deal.iter().flatten() {
        *loads.entry(*rank).or_default() += 1;
    }
    for shard in 0..deal.len() {
        if deal.get(shard).copied().flatten().is_some() {
            continue;
        }
        let sibling = deal.get(shard ^ 1).copied().flatten();
        let next = loads.iter_mut().min_by_key(|(rank, load)| (**load, Some(**rank) != sibling));
        if let (Some((rank, load)), Some(place)) = (next, deal.get_mut(shard)) {
            *load += 1;
            *place = Some(*rank);
        }
    }
    deal.into_iter().map(|rank| rank.unwrap_or(0)).collect()
}

/// Whether another deal would be better by a shard or more: who is slow takes longer for one.
pub(crate) fn is_uneven(deal: &[u32], lanes: &[u32], paces: &[f64]) -> bool {
    let held = held(deal, lanes.len());
    match straggle::counts(deal.len() as u32, lanes, paces) {
        Some(wanted) => {
            let span = |counts: &[u32]| straggle::makespan(counts, lanes, paces);
            held.contains(&0) || span(&held) > span(&wanted)
        }
        None => {
            let (most, least) = (held.iter().max(), held.iter().min());
            most.zip(least).is_some_and(|(most, least)| most - least > 1)
        }
    }
}

/// Shards by rank.
fn held(deal: &[u32], world: usize) -> Vec<u32> {
    let mut held = vec![0u32; world];
    for owner in deal {
        if let Some(count) = held.get_mut(*owner as usize) {
            *count += 1;
        }
    }
    held
}

/// The transport for workers in order of rank; Err names hosts that cannot share memory.
pub(crate) fn links(config: &Config, workers: &[Joined]) -> Result<LinkPlan, Vec<String>> {
    if workers.len() < 2 {
        return Ok(LinkPlan::None);
    }
    let shared = workers.windows(2).all(|pair| match pair {
        [a, b] => a.shm_domain == b.shm_domain,
        _ => true,
    });
    match (config.transport, shared) {
        (Transport::Auto | Transport::SharedMemory, true) => Ok(LinkPlan::SharedMemory),
        (Transport::SharedMemory, false) => {
            let mut hosts: Vec<String> = workers.iter().map(|w| w.host.clone()).collect();
            hosts.sort();
            hosts.dedup();
            Err(hosts)
        }
        _ => Ok(LinkPlan::Quic { peers: workers.iter().map(|w| w.peer_address.clone()).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u64) -> Joined {
        Joined {
            worker: WorkerId(number),
            slot: None,
            host: "here".into(),
            shm_domain: "here".into(),
            cores: 1,
            peer_address: String::new(),
            objection: None,
        }
    }

    #[test]
    fn who_stays_keeps_its_shards() {
        let owners = [0, 0, 0, 1, 1, 1, 2, 2].map(WorkerId);
        // The second of three is lost, and one comes that has no weights yet.
        let workers = [worker(0), worker(2), worker(3)];
        let deal = kept_deal(8, &workers, &owners, |w| w == WorkerId(3));
        assert_eq!(deal, [0, 0, 0, 1, 0, 1, 1, 1]);
        let paces = [1.0; 3];
        assert!(is_uneven(&deal, &[1; 3], &paces) && !is_uneven(&deal, &[1; 2], &paces[..2]));
        // The first takes twice as long for a shard.
        let slow = [2.0, 1.0];
        assert!(is_uneven(&deal, &[1; 2], &slow));
        assert!(!is_uneven(&[0, 0, 1, 1, 1, 1, 1, 0], &[1; 2], &slow));
        // Where nobody has had shards, all have as many.
        assert_eq!(kept_deal(8, &workers, &[], |_| false), even_deal(8, 3));
    }
}
