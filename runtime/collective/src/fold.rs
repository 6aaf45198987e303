use crate::sum::add;
use crate::{CollectiveError, Layout, Piece, Pool, Stop};
use monarch_graph::tree::TreeNode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a sleeper waits before it looks at [`Stop`] again.
const SLICE: Duration = Duration::from_millis(5);

/// Folds the gradients of this rank's shards, bucket by bucket, in the fixed tree.
///
/// Lanes take shards in order and hand in a bucket as soon as it is complete, while they go on
/// with the next one; whoever hands in the second of two siblings adds them (left + right). What
/// remains are the canonical nodes of the rank's shards.
#[derive(Debug)]
pub struct Fold {
    layout: Layout,
    pool: Pool,
    /// Canonical nodes of this rank, in order.
    nodes: Vec<TreeNode>,
    /// Place in the list of shards held.
    next: AtomicUsize,
    state: Mutex<State>,
    complete: Condvar,
}

#[derive(Debug)]
struct State {
    /// Per bucket: nodes that wait for their sibling, or for the end.
    waiting: Vec<BTreeMap<TreeNode, Piece>>,
    /// Per bucket: canonical nodes present.
    present: Vec<usize>,
}

/// A partial sum on its way up.
enum Partial<'a> {
    /// A shard's gradient, still in its lane's memory.
    Shard(&'a [f32]),
    Piece(Piece),
}

impl Fold {
    /// `pool` must be made for as many lanes as will take shards.
    pub fn new(layout: Layout, pool: Pool) -> Fold {
        let nodes = layout.nodes(layout.rank()).to_vec();
        let buckets = layout.buckets();
        let waiting = (0..buckets).map(|_| BTreeMap::new()).collect();
        let state = Mutex::new(State { waiting, present: vec![0; buckets] });
        Fold { layout, pool, nodes, next: AtomicUsize::new(0), state, complete: Condvar::new() }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Begins a step: shards are taken from the first one on.
    pub fn begin(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    /// The next shard to compute. A lane hands in all buckets of one before it takes another.
    pub fn next_shard(&self) -> Option<u32> {
        self.layout.held().get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }

    /// Takes in the finished bucket of a shard: `values` are its gradients, copied or added.
    pub fn hand_in(
        &self,
        shard: u32,
        bucket: usize,
        values: &[f32],
    ) -> Result<(), CollectiveError> {
        let wrong = |what: String| Err(CollectiveError::Layout(what));
        if !self.layout.holds(shard) || bucket >= self.layout.buckets() {
            return wrong(format!("rank {}: shard {shard}, bucket {bucket}", self.layout.rank()));
        }
        if values.len() != self.layout.elements(bucket) {
            return wrong(format!("bucket {bucket} with {} elements", values.len()));
        }
        let mut node = TreeNode::leaf(shard);
        let mut partial = Partial::Shard(values);
        loop {
            let mut state = self.lock();
            let last = self.nodes.contains(&node);
            let sibling = TreeNode { level: node.level, index: node.index ^ 1 };
            if !last && sibling.is_empty(self.layout.shards()) {
                node = node.parent();
                continue;
            }
            let other = if last { None } else { state.waiting[bucket].remove(&sibling) };
            let Some(other) = other else {
                match partial {
                    Partial::Piece(piece) => return self.keep(state, node, piece, last),
                    Partial::Shard(values) => {
                        drop(state);
                        // The sibling may come meanwhile: look again.
                        partial = Partial::Piece(self.copy(bucket, values)?);
                        continue;
                    }
                }
            };
            drop(state);
            let left = node.index.is_multiple_of(2);
            partial = Partial::Piece(self.merge(partial, other, left));
            node = node.parent();
        }
    }

    fn copy(&self, bucket: usize, values: &[f32]) -> Result<Piece, CollectiveError> {
        let lent = || CollectiveError::Layout(format!("no room for a sum of bucket {bucket}"));
        let mut piece = self.pool.take(bucket).ok_or_else(lent)?;
        piece.region_mut().copy_from_slice(values);
        Ok(piece)
    }

    /// The sum of two siblings; `left` says whether `partial` is the left one.
    fn merge(&self, partial: Partial<'_>, mut other: Piece, left: bool) -> Piece {
        match partial {
            // Adding two numbers gives the same bits either way round.
            Partial::Shard(values) => add(other.region_mut(), values),
            Partial::Piece(mut piece) if left => {
                add(piece.region_mut(), other.region());
                std::mem::swap(&mut piece, &mut other);
                self.pool.give(piece);
            }
            Partial::Piece(piece) => {
                add(other.region_mut(), piece.region());
                self.pool.give(piece);
            }
        }
        other
    }

    fn keep(
        &self,
        mut state: MutexGuard<'_, State>,
        node: TreeNode,
        piece: Piece,
        last: bool,
    ) -> Result<(), CollectiveError> {
        let bucket = piece.bucket();
        if state.waiting[bucket].insert(node, piece).is_some() {
            let what = format!("bucket {bucket} of {node:?} was handed in twice");
            return Err(CollectiveError::Layout(what));
        }
        if last {
            state.present[bucket] += 1;
            if state.present[bucket] == self.nodes.len() {
                self.complete.notify_all();
            }
        }
        Ok(())
    }

    /// The bucket's canonical nodes, in order of their shards, once all are there. The caller
    /// gives them back to the pool before the next step.
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
