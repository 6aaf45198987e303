use crate::{Config, Joined, LinkPlan, Placement, Transport};
use monarch_graph::{even_deal, rank_range};
use std::collections::BTreeMap;

/// Places the workers: in order of the numbers the controller gave them, then by host, then as
/// they came. The order has no say in the numbers of a run, only in who computes what.
pub(crate) fn place(config: &Config, workers: &mut [Joined]) -> Vec<Placement> {
    let world = workers.len() as u32;
    workers.sort_by(|a, b| {
        let key = |w: &Joined| (w.slot.unwrap_or(u32::MAX), w.host.clone(), w.worker);
        key(a).cmp(&key(b))
    });
    let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
    workers.iter().for_each(|w| *hosts.entry(&w.host).or_default() += 1);
    let threads = |rank: u32, worker: &Joined| {
        let here = hosts.get(worker.host.as_str()).copied().unwrap_or(1).max(1);
        let held = rank_range(config.shards, world, rank).len() as u32;
        // A lane takes whole shards: more lanes than shards would be idle.
        config.threads.unwrap_or(worker.cores / here).clamp(1, held.max(1))
    };
    let place = |(rank, worker): (usize, &Joined)| {
        let rank = rank as u32;
        Placement { worker: worker.worker, rank, threads: threads(rank, worker) }
    };
    workers.iter().enumerate().map(place).collect()
}

/// Who computes which shard: each as many as the others.
pub(crate) fn deal(config: &Config, workers: &[Joined]) -> Vec<u32> {
    even_deal(config.shards, workers.len() as u32)
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
