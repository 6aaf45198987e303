use crate::sum::add;
use crate::{CollectiveError, Layout, Piece, Pool, Stop};
use monarch_graph::tree::TreeNode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    pool: Arc<Pool>,
    /// Canonical nodes of this rank, in order.
    nodes: Vec<TreeNode>,
    /// Shards to be computed before all partial sums are there; None: all that are held.
    missing: Mutex<Option<Vec<u32>>>,
    /// Place in that list.
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
    /// Per bucket: shards whose gradients are in what waited when the members changed.
    kept: Vec<BTreeSet<u32>>,
}

/// A partial sum on its way up.
enum Partial<'a> {
    /// A shard's gradient, still in its lane's memory.
    Shard(&'a [f32]),
    Piece(Piece),
}

impl Fold {
    /// `pool` must be made for as many lanes as will take shards.
    pub fn new(layout: Layout, pool: impl Into<Arc<Pool>>) -> Fold {
        let buckets = layout.buckets();
        let waiting = (0..buckets).map(|_| BTreeMap::new()).collect();
        Fold::with(layout, pool.into(), waiting, None)
    }

    fn with(
        layout: Layout,
        pool: Arc<Pool>,
        waiting: Vec<BTreeMap<TreeNode, Piece>>,
        missing: Option<Vec<u32>>,
    ) -> Fold {
        let nodes = layout.nodes(layout.rank()).to_vec();
        let present =
            |w: &BTreeMap<TreeNode, Piece>| nodes.iter().filter(|n| w.contains_key(n)).count();
        let present = waiting.iter().map(present).collect();
        let kept = waiting.iter().map(|w| covered(&layout, w)).collect();
        let state = Mutex::new(State { waiting, present, kept });
        let (missing, next) = (Mutex::new(missing), AtomicUsize::new(0));
        Fold { layout, pool, nodes, missing, next, state, complete: Condvar::new() }
    }

    /// The fold of the same job among other members, for `lanes` threads. With `known`, the step at
    /// hand goes on: partial sums of shards that are still this rank's remain, and only shards of
    /// which some bucket is missing, or that are not `known`, are computed. Without, it is dropped.
    ///
    /// `pool` is where sums are from now on; what remains moves there. `spare` pieces of each
    /// bucket are left for other use.
    pub fn renew(
        self,
        layout: Layout,
        (lanes, spare): (usize, usize),
        pool: Arc<Pool>,
        known: Option<&dyn Fn(u32) -> bool>,
    ) -> Result<Fold, CollectiveError> {
        let Fold { pool: old, state, .. } = self;
        let State { waiting, .. } = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let fits = |node: &TreeNode| {
            known.is_some() && node.covers(layout.shards()).all(|shard| layout.holds(shard))
        };
        let mut remain = Vec::new();
        for nodes in waiting {
            let (stay, go) = nodes.into_iter().partition(|(node, _)| fits(node));
            let go: BTreeMap<TreeNode, Piece> = go;
            go.into_values().for_each(|piece| old.give(piece));
            let stay: BTreeMap<TreeNode, Piece> = stay;
            remain.push(stay);
        }
        remain.resize_with(layout.buckets(), BTreeMap::new);
        let missing = known.map(|known| {
            let done: Vec<_> = remain.iter().map(|w| covered(&layout, w)).collect();
            let whole = |s: &u32| known(*s) && done.iter().all(|d| d.contains(s));
            layout.held().iter().copied().filter(|s| !whole(s)).collect::<Vec<u32>>()
        });
        let kept = remain.iter().map(BTreeMap::len).max().unwrap_or(0);
        let shards = missing.as_deref().unwrap_or(layout.held());
        let most = spare + layout.copies_for(lanes, shards, kept);
        let moved = !Arc::ptr_eq(&old, &pool);
        let there =
            |bucket: usize| if moved { 0 } else { remain.get(bucket).map_or(0, |r| r.len()) };
        pool.reserve(&layout, |bucket| most.saturating_sub(there(bucket)))?;
        if moved {
            for (bucket, piece) in
                remain.iter_mut().enumerate().flat_map(|(b, w)| w.values_mut().map(move |p| (b, p)))
            {
                let room = || CollectiveError::Layout(format!("no room for bucket {bucket}"));
                let mut new = pool.take(bucket).ok_or_else(room)?;
                new.region_mut().copy_from_slice(piece.region());
                *piece = new;
            }
        }
        Ok(Fold::with(layout, pool, remain, missing))
    }

    /// Shards whose gradients are here for all buckets.
    pub fn complete_shards(&self) -> Vec<u32> {
        let state = self.lock();
        let done: Vec<_> = state.waiting.iter().map(|w| covered(&self.layout, w)).collect();
        let whole = |s: &u32| done.iter().all(|d| d.contains(s));
        self.layout.held().iter().copied().filter(whole).collect()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Begins a step: shards are taken from the first one on. What is left of another step is
    /// dropped.
    pub fn begin(&self) {
        let mut state = self.lock();
        let State { waiting, present, kept } = &mut *state;
        for nodes in waiting {
            std::mem::take(nodes).into_values().for_each(|piece| self.pool.give(piece));
        }
        present.fill(0);
        kept.iter_mut().for_each(BTreeSet::clear);
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.next.store(0, Ordering::Relaxed);
    }

    /// The next shard to compute. A lane hands in all buckets of one before it takes another.
    pub fn next_shard(&self) -> Option<u32> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let shards = missing.as_deref().unwrap_or(self.layout.held());
        shards.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }

    /// Takes back what [`Fold::wait`] gave out: the members change before it was of use.
    pub fn put_back(&self, bucket: usize, parts: Vec<Piece>) {
        let mut state = self.lock();
        let State { waiting, present, .. } = &mut *state;
        if let (Some(waiting), Some(present)) = (waiting.get_mut(bucket), present.get_mut(bucket)) {
            waiting.extend(self.nodes.iter().copied().zip(parts));
            *present = self.nodes.iter().filter(|n| waiting.contains_key(n)).count();
        }
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
            if node.level == 0 && state.kept.get(bucket).is_some_and(|k| k.contains(&shard)) {
                return Ok(());
            }
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

/// The shards below these nodes.
fn covered(layout: &Layout, nodes: &BTreeMap<TreeNode, Piece>) -> BTreeSet<u32> {
    nodes.keys().flat_map(|node| node.covers(layout.shards())).collect()
}
