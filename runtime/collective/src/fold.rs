use crate::pool::SLICE;
use crate::sum::add;
use crate::{CollectiveError, Layout, Piece, Pool, Stop};
use monarch_graph::tree::TreeNode;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Folds the gradients of this rank's shards, bucket by bucket, in the fixed tree.
///
/// Lanes hand in buckets in any order of shards; whoever hands in the second of two siblings adds
/// them (left + right). What remains are the canonical nodes of the rank's range.
pub struct Fold {
    layout: Layout,
    pool: Pool,
    /// Canonical nodes of this rank, in order.
    nodes: Vec<TreeNode>,
    state: Mutex<State>,
    complete: Condvar,
}

struct State {
    /// Per bucket: nodes that wait for their sibling, or for the end.
    waiting: Vec<BTreeMap<TreeNode, Piece>>,
    /// Per bucket: canonical nodes present.
    present: Vec<usize>,
}

impl Fold {
    pub fn new(layout: Layout, pool: Pool) -> Fold {
        let nodes = layout.nodes(layout.rank());
        let buckets = layout.buckets();
        let waiting = (0..buckets).map(|_| BTreeMap::new()).collect();
        let state = Mutex::new(State { waiting, present: vec![0; buckets] });
        Fold { layout, pool, nodes, state, complete: Condvar::new() }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Takes the finished bucket of a shard. Pieces that are merged away go back to the pool.
    pub fn hand_in(&self, shard: u32, mut piece: Piece) -> Result<(), CollectiveError> {
        let (bucket, shards) = (piece.bucket(), self.layout.shards());
        if !self.layout.held().contains(&shard) {
            let what = format!("shard {shard} is not held by rank {}", self.layout.rank());
            return Err(CollectiveError::Layout(what));
        }
        let mut node = TreeNode::leaf(shard);
        loop {
            let mut state = self.lock();
            if self.nodes.contains(&node) {
                return self.keep(state, bucket, node, piece);
            }
            let (parent, left) = (node.parent(), node.index.is_multiple_of(2));
            let sibling = TreeNode { level: node.level, index: node.index ^ 1 };
            if sibling.is_empty(shards) {
                node = parent;
                continue;
            }
            let Some(other) = state.waiting[bucket].remove(&sibling) else {
                state.waiting[bucket].insert(node, piece);
                return Ok(());
            };
            drop(state);
            let (mut into, from) = if left { (piece, other) } else { (other, piece) };
            add(into.region_mut(), from.region());
            self.pool.give(from);
            piece = into;
            node = parent;
        }
    }

    fn keep(
        &self,
        mut state: MutexGuard<'_, State>,
        bucket: usize,
        node: TreeNode,
        piece: Piece,
    ) -> Result<(), CollectiveError> {
        if state.waiting[bucket].insert(node, piece).is_some() {
            let what = format!("bucket {bucket} of {node:?} was handed in twice");
            return Err(CollectiveError::Layout(what));
        }
        state.present[bucket] += 1;
        if state.present[bucket] == self.nodes.len() {
            self.complete.notify_all();
        }
        Ok(())
    }

    /// The bucket's canonical nodes, in order of their shards, once all are there. The caller
    /// gives them back to the pool after use.
    pub fn wait(&self, bucket: usize, stop: &Stop) -> Result<Vec<Piece>, CollectiveError> {
        let mut state = self.lock();
        loop {
            stop.check()?;
            let Some(&present) = state.present.get(bucket) else {
                return Err(CollectiveError::Layout(format!("no bucket {bucket}")));
            };
            if present == self.nodes.len() {
                state.present[bucket] = 0;
                let mut waiting = std::mem::take(&mut state.waiting[bucket]);
                return Ok(self.nodes.iter().filter_map(|node| waiting.remove(node)).collect());
            }
            let waited = self.complete.wait_timeout(state, SLICE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
