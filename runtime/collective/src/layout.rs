use crate::CollectiveError;
use monarch_graph::shard_range;
use monarch_graph::tree::{self, TreeNode};
use std::ops::Range;

/// Cut of everything into chunks, in elements: one cache line of f32.
const GRAIN: u64 = 16;

/// Who holds what: shards over ranks, elements over buckets, chunks over owners. Equal on all
/// ranks, apart from `rank`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    world: u32,
    rank: u32,
    /// Shards that this rank computes, in order.
    held: Vec<u32>,
    /// Per shard: the rank that computes it.
    deal: Vec<u32>,
    /// Per rank: its partial sums, in the order of their shards.
    nodes: Vec<Vec<TreeNode>>,
    /// First element of each bucket in the slab, and the slab's length as last entry.
    starts: Vec<u64>,
    hash: u64,
}

impl Layout {
    /// `deal` says for each shard which rank computes it; a rank may have none. `buckets` are
    /// (first element, elements), one after another from 0, each a multiple of 16.
    /// `job` tells apart layouts of different jobs.
    pub fn new(
        deal: &[u32],
        world: u32,
        rank: u32,
        buckets: &[(u64, u64)],
        job: u64,
    ) -> Result<Layout, CollectiveError> {
        let wrong = |what: String| Err(CollectiveError::Layout(what));
        let shards = u32::try_from(deal.len()).unwrap_or(u32::MAX);
        if shards == 0 || rank >= world {
            return wrong(format!("rank {rank} of {world} workers with {} shards", deal.len()));
        }
        if let Some(other) = deal.iter().find(|r| **r >= world) {
            return wrong(format!("shards are dealt to rank {other} of {world} workers"));
        }
        if buckets.is_empty() {
            return wrong("the plan has no gradients to reduce: no weight is trainable".into());
        }
        let mut starts = vec![0];
        let mut at = 0u64;
        for (i, &(start, elements)) in buckets.iter().enumerate() {
            if start != at || elements % GRAIN != 0 {
                return wrong(format!("bucket {i} starts at {start} with {elements} elements"));
            }
            at = match at.checked_add(elements).filter(|&end| end <= 1 << 40) {
                Some(end) => end,
                None => return wrong(format!("bucket {i} of {elements} elements is too long")),
            };
            starts.push(at);
        }
        let words = [u64::from(shards), u64::from(world), job];
        let dealt: Vec<u64> = deal.iter().map(|r| u64::from(*r)).collect();
        let hash = words
            .iter()
            .chain(&dealt)
            .chain(&starts)
            .flat_map(|w| w.to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
                (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let nodes = tree::dealt(deal, world);
        let held = (0..shards).filter(|s| deal.get(*s as usize) == Some(&rank)).collect();
        let (deal, hash) = (deal.to_vec(), hash.max(1));
        Ok(Layout { world, rank, held, deal, nodes, starts, hash })
    }

    pub fn shards(&self) -> u32 {
        self.deal.len() as u32
    }

    pub fn world(&self) -> u32 {
        self.world
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Shards that this rank computes, in order.
    pub fn held(&self) -> &[u32] {
        &self.held
    }

    /// Whether this rank computes the shard.
    pub fn holds(&self, shard: u32) -> bool {
        self.deal.get(shard as usize) == Some(&self.rank)
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        self.starts.len() - 1
    }

    /// First element of bucket `bucket` in the slab (the slab's length beyond the last bucket).
    pub fn start(&self, bucket: usize) -> usize {
        self.starts.get(bucket).or(self.starts.last()).map_or(0, |&s| s as usize)
    }

    /// Elements of bucket `bucket`.
    pub fn elements(&self, bucket: usize) -> usize {
        self.start(bucket + 1) - self.start(bucket)
    }

    /// Elements of a gradient slab.
    pub fn slab(&self) -> usize {
        self.start(self.buckets())
    }

    /// Never 0; equal for equal deals, world, buckets and job.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The partial sums that rank `rank` hands in, in the order of their shards.
    pub fn nodes(&self, rank: u32) -> &[TreeNode] {
        self.nodes.get(rank as usize).map_or(&[], Vec::as_slice)
    }

    /// Elements of a bucket of `elements` that rank `owner` adds up.
    pub fn chunk(&self, elements: usize, owner: u32) -> Range<usize> {
        let units = (elements as u64).div_ceil(GRAIN);
        let part = shard_range(units, self.world, owner);
        let cut = |unit: u64| ((unit * GRAIN) as usize).min(elements);
        cut(part.start)..cut(part.end)
    }

    /// Copies of the gradients that partial sums take up at most, while `lanes` threads take
    /// shards in order: with one lane about log2 of the rank's shards. The sum over all ranks needs
    /// one beside the partial sums that it is made of. Lanes' own slabs come on top.
    pub fn copies(&self, lanes: usize) -> usize {
        self.copies_for(lanes, &self.held, 0)
    }

    /// The same when `kept` partial sums are there, and only these shards are to be computed.
    pub(crate) fn copies_for(&self, lanes: usize, missing: &[u32], kept: usize) -> usize {
        let holes = lanes.clamp(1, missing.len().max(1)) - 1;
        let other = |shard| u32::from(missing.binary_search(&shard).is_err());
        let deal: Vec<u32> = (0..self.shards()).map(other).collect();
        let nodes = tree::dealt(&deal, 1).into_iter().next().unwrap_or_default();
        // By number of holes (shards that other lanes are just handing in, unseen by their
        // siblings): the most sums that exist once all nodes so far are begun, and before that.
        let mut whole = vec![0; holes + 1];
        let mut part = vec![0; holes + 1];
        for node in nodes {
            let (inner_whole, inner_part) = waiting(node, self.shards(), holes);
            let cut = join(&whole, &inner_part);
            part = part.iter().zip(cut).map(|(a, b)| *a.max(&b)).collect();
            whole = join(&whole, &inner_whole);
        }
        let all = whole.iter().chain(&part).copied().max();
        let folding = kept + all.unwrap_or(0).min(missing.len());
        folding.max(self.nodes(self.rank).len() + 1)
    }
}

/// By number of holes 0..=holes: the most sums that exist below `node` when all its shards have
/// been begun, and when any first part of them has.
fn waiting(node: TreeNode, shards: u32, holes: usize) -> (Vec<usize>, Vec<usize>) {
    if node.is_empty(shards) {
        return (vec![0; holes + 1], vec![0; holes + 1]);
    }
    if node.level == 0 {
        return (vec![1; holes + 1], vec![1; holes + 1]);
    }
    let (left, right) = node.children();
    let (left_whole, left_part) = waiting(left, shards, holes);
    let (right_whole, right_part) = waiting(right, shards, holes);
    let mut whole = join(&left_whole, &right_whole);
    // Without a hole all have merged into this one node.
    whole[0] = 1;
    let mut part = join(&left_whole, &right_part);
    for (i, most) in part.iter_mut().enumerate() {
        *most = (*most).max(left_part[i]).max(whole[i]);
    }
    (whole, part)
}

/// Most nodes on both sides when they share the holes.
fn join(left: &[usize], right: &[usize]) -> Vec<usize> {
    let best = |holes: usize| (0..=holes).map(|i| left[i] + right[holes - i]).max();
    (0..left.len()).map(|holes| best(holes).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use monarch_graph::even_deal;

    fn layout(shards: u32, world: u32, rank: u32) -> Layout {
        let deal = even_deal(shards, world);
        Layout::new(&deal, world, rank, &[(0, 32), (32, 160)], 7).unwrap()
    }

    #[test]
    fn chunks_tile_a_bucket_on_cache_lines() {
        for world in 1..9 {
            for elements in [0, 16, 48, 160, 1024] {
                let mut at = 0;
                for owner in 0..world {
                    let chunk = layout(8, world, 0).chunk(elements, owner);
                    assert_eq!(chunk.start, at);
                    assert_eq!(chunk.start % 16, 0);
                    at = chunk.end;
                }
                assert_eq!(at, elements);
            }
        }
    }

    #[test]
    fn copies_stay_near_the_logarithm() {
        assert_eq!(layout(8, 1, 0).copies(1), 4);
        assert_eq!(layout(8, 1, 0).copies(2), 6);
        assert_eq!(layout(8, 1, 0).copies(8), 8);
        assert_eq!(layout(8, 4, 1).copies(1), 2);
        assert_eq!(layout(8, 8, 1).copies(3), 2);
        assert_eq!(layout(1024, 1, 0).copies(1), 11);
    }

    #[test]
    fn buckets_must_follow_each_other() {
        let new = |rank, buckets: &[(u64, u64)]| Layout::new(&[0; 8], 1, rank, buckets, 0);
        assert!(new(0, &[(0, 32), (32, 16)]).is_ok());
        assert!(new(0, &[(0, 32), (48, 16)]).is_err());
        assert!(new(0, &[(0, 30)]).is_err());
        assert!(new(1, &[(0, 32)]).is_err());
        assert!(new(0, &[]).is_err());
        assert!(new(0, &[(0, 16), (16, u64::MAX - 15)]).is_err());
    }

    #[test]
    fn a_deal_names_ranks_that_exist() {
        let new = |deal: &[u32], world| Layout::new(deal, world, 0, &[(0, 32)], 0);
        assert!(new(&[0, 2], 2).is_err());
        assert!(new(&[], 1).is_err());
        assert!(new(&[0], 0).is_err());
        let idle = new(&[1, 1, 2], 3).unwrap();
        assert_eq!((idle.held(), idle.nodes(0).len(), idle.copies(2)), (&[][..], 0, 1));
    }
}
