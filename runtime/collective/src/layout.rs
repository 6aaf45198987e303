use crate::CollectiveError;
use monarch_graph::tree::{self, TreeNode};
use monarch_graph::{rank_range, shard_range};
use std::ops::Range;

/// Cut of everything into chunks, in elements: one cache line of f32.
const GRAIN: u64 = 16;

/// Who holds what: shards over ranks, elements over buckets, chunks over owners. Equal on all
/// ranks, apart from `rank`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    shards: u32,
    world: u32,
    rank: u32,
    /// First element of each bucket in the slab, and the slab's length as last entry.
    starts: Vec<u64>,
    hash: u64,
}

impl Layout {
    /// `buckets` are (first element, elements), one after another from 0, each a multiple of 16.
    /// `job` tells apart layouts of different jobs.
    pub fn new(
        shards: u32,
        world: u32,
        rank: u32,
        buckets: &[(u64, u64)],
        job: u64,
    ) -> Result<Layout, CollectiveError> {
        let wrong = |what: String| Err(CollectiveError::Layout(what));
        if shards == 0 || world == 0 || rank >= world {
            return wrong(format!("rank {rank} of {world} workers with {shards} shards"));
        }
        if world > shards {
            return wrong(format!(
                "{world} workers would share {shards} shards and {} of them do nothing: start at \
                 most {shards} workers or raise `shards`",
                world - shards
            ));
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
        let hash = words
            .iter()
            .chain(&starts)
            .flat_map(|w| w.to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
                (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        Ok(Layout { shards, world, rank, starts, hash: hash.max(1) })
    }

    pub fn shards(&self) -> u32 {
        self.shards
    }

    pub fn world(&self) -> u32 {
        self.world
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Shards that this rank computes.
    pub fn held(&self) -> Range<u32> {
        rank_range(self.shards, self.world, self.rank)
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

    /// Never 0; equal for equal shards, world, buckets and job.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The partial sums that rank `rank` hands in, in the order of their shards.
    pub fn nodes(&self, rank: u32) -> Vec<TreeNode> {
        tree::canonical(self.shards, rank_range(self.shards, self.world, rank))
    }

    /// Elements of a bucket of `elements` that rank `owner` adds up.
    pub fn chunk(&self, elements: usize, owner: u32) -> Range<usize> {
        let units = (elements as u64).div_ceil(GRAIN);
        let part = shard_range(units, self.world, owner);
        let cut = |unit: u64| ((unit * GRAIN) as usize).min(elements);
        cut(part.start)..cut(part.end)
    }

    /// Copies of the gradients that partial sums take up at most, while `lanes` threads take
    /// shards in order: with one lane about log2 of the rank's shards, never more than its shards.
    /// Lanes' own slabs come on top.
    pub fn copies(&self, lanes: usize) -> usize {
        let most = self.held().len();
        let holes = lanes.clamp(1, most.max(1)) - 1;
        // By number of holes (shards that other lanes are just handing in, unseen by their
        // siblings): the most sums that exist once all nodes so far are begun, and before that.
        let mut whole = vec![0; holes + 1];
        let mut part = vec![0; holes + 1];
        for node in self.nodes(self.rank) {
            let (inner_whole, inner_part) = waiting(node, self.shards, holes);
            let cut = join(&whole, &inner_part);
            part = part.iter().zip(cut).map(|(a, b)| *a.max(&b)).collect();
            whole = join(&whole, &inner_whole);
        }
        let all = whole.iter().chain(&part).copied().max();
        all.unwrap_or(1).clamp(1, most.max(1))
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

    fn layout(shards: u32, world: u32, rank: u32) -> Layout {
        Layout::new(shards, world, rank, &[(0, 32), (32, 160)], 7).unwrap()
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
        assert_eq!(layout(8, 8, 1).copies(3), 1);
        assert_eq!(layout(1024, 1, 0).copies(1), 11);
    }

    #[test]
    fn buckets_must_follow_each_other() {
        assert!(Layout::new(8, 1, 0, &[(0, 32), (48, 16)], 0).is_err());
        assert!(Layout::new(8, 1, 0, &[(0, 30)], 0).is_err());
        assert!(Layout::new(8, 1, 1, &[(0, 32)], 0).is_err());
        assert!(Layout::new(2, 3, 0, &[(0, 32)], 0).is_err());
        assert!(Layout::new(8, 1, 0, &[], 0).is_err());
        assert!(Layout::new(8, 1, 0, &[(0, 16), (16, u64::MAX - 15)], 0).is_err());
    }
}
