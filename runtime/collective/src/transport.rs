use crate::{CollectiveError, Layout, Piece, Stop};
use monarch_graph::tree::{self, TreeNode};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the transports need to know besides the layout.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of this formation of workers; frames of another are refused.
    pub generation: u32,
    /// Longest wait for a peer that neither left nor died.
    pub patience: Duration,
    /// Longest wait for all peers to attach.
    pub attach: Duration,
    pub stop: Stop,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            generation: 0,
            patience: Duration::from_secs(600),
            attach: Duration::from_secs(60),
            stop: Stop::new(),
        }
    }
}

/// Sums of all ranks' partial sums. All ranks call the same operations in the same order.
pub trait Transport {
    /// Adds the canonical nodes of all ranks in the tree's order, on every rank into `sum`.
    /// `parts` are this rank's, in order, and stay as they are; peers read them until the next
    /// operation has begun everywhere.
    fn all_reduce(
        &mut self,
        step: u64,
        bucket: usize,
        parts: &[Piece],
        sum: &mut Piece,
    ) -> Result<(), CollectiveError>;

    /// Gives `values` of rank `from` to every rank that `to` says. All ranks call it, with equal
    /// `from` and `to`; `values` belongs to nobody else meanwhile.
    fn copy(
        &mut self,
        step: u64,
        bucket: usize,
        from_to: (u32, &[bool]),
        values: &mut Piece,
    ) -> Result<(), CollectiveError>;

    /// Every rank's words, in order of rank; lists may differ in length. Meant for few words.
    fn all_gather(&mut self, step: u64, words: &[u64]) -> Result<Vec<Vec<u64>>, CollectiveError>;

    /// Bytes of partial sums and sums that this rank has sent to others so far.
    fn sent_bytes(&self) -> u64;
}

/// The transport of a worker without peers.
#[derive(Debug)]
pub struct Alone {
    layout: Layout,
}

impl Alone {
    pub fn new(layout: Layout) -> Alone {
        Alone { layout }
    }
}

impl Transport for Alone {
    fn all_reduce(
        &mut self,
        _step: u64,
        bucket: usize,
        parts: &[Piece],
        sum: &mut Piece,
    ) -> Result<(), CollectiveError> {
        check_parts(&self.layout, bucket, parts, sum)?;
        // The only rank has one node: the root.
        if let [whole] = parts {
            sum.region_mut().copy_from_slice(whole.region());
        }
        Ok(())
    }

    fn copy(
        &mut self,
        _step: u64,
        _bucket: usize,
        _from_to: (u32, &[bool]),
        _values: &mut Piece,
    ) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn all_gather(&mut self, _step: u64, words: &[u64]) -> Result<Vec<Vec<u64>>, CollectiveError> {
        Ok(vec![words.to_vec()])
    }

    fn sent_bytes(&self) -> u64 {
        0
    }
}

/// Refuses parts that are not this rank's canonical nodes of the bucket.
pub(crate) fn check_parts(
    layout: &Layout,
    bucket: usize,
    parts: &[Piece],
    sum: &Piece,
) -> Result<(), CollectiveError> {
    let expected = layout.nodes(layout.rank()).len();
    let fits = |p: &Piece| p.bucket() == bucket && p.region().len() == layout.elements(bucket);
    if bucket < layout.buckets() && parts.len() == expected && parts.iter().all(fits) && fits(sum) {
        return Ok(());
    }
    let found = parts.len();
    let what = format!("bucket {bucket}: {found} parts do not fit the {expected} expected");
    Err(CollectiveError::Layout(what))
}

/// Numbers of a step. On the way in: of this rank; on the way out: of the whole batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scalars {
    /// Per held shard in order: values to be added in the tree's order, equally many everywhere
    /// but on ranks without shards, which have none.
    /// The result has one entry: the sums.
    pub values: Vec<Vec<f64>>,
    /// Whole numbers to be added.
    pub counters: Vec<u64>,
    /// Bits to be joined by "or".
    pub flags: u64,
}

/// Sums numbers over all shards, in the same tree as the gradients.
pub fn all_reduce_scalars(
    transport: &mut dyn Transport,
    layout: &Layout,
    step: u64,
    mine: &Scalars,
) -> Result<Scalars, CollectiveError> {
    let width = mine.values.first().map_or(0, Vec::len);
    let held = layout.held();
    if mine.values.len() != held.len() || mine.values.iter().any(|v| v.len() != width) {
        return Err(CollectiveError::Layout("numbers of another count of shards".into()));
    }
    let mut words = vec![width as u64, mine.counters.len() as u64, mine.flags];
    words.extend(&mine.counters);
    for node in layout.nodes(layout.rank()) {
        let leaf = |n: TreeNode| mine.values.get(held.binary_search(&n.index).ok()?).cloned();
        let sums = fold_values(*node, layout.shards(), |n| (n.level == 0).then(|| leaf(n))?);
        words.extend(sums.iter().map(|v| v.to_bits()));
    }
    let all = transport.all_gather(step, &words)?;
    join_scalars(layout, mine, &all)
}

fn join_scalars(
    layout: &Layout,
    mine: &Scalars,
    all: &[Vec<u64>],
) -> Result<Scalars, CollectiveError> {
    let counters = mine.counters.len();
    let mut out = Scalars { values: Vec::new(), counters: vec![0; counters], flags: 0 };
    let mut nodes = BTreeMap::new();
    // Ranks without shards have no say in how many values there are.
    let widths = (0..).zip(all).filter(|(rank, _)| !layout.nodes(*rank).is_empty());
    let width = widths.map(|(_, words)| words.first().copied()).next().flatten().unwrap_or(0);
    let room = all.iter().map(Vec::len).max().unwrap_or(0);
    let width = usize::try_from(width).unwrap_or(room).min(room);
    for (rank, words) in (0u32..).zip(all) {
        let own = layout.nodes(rank);
        let expected = 3 + counters + own.len() * width;
        let said = if own.is_empty() { 0 } else { width as u64 };
        if words.len() != expected || words[..2] != [said, counters as u64] {
            let ours = format!("{width} values and {counters} counters");
            let theirs = format!("other numbers ({} words)", words.len());
            return Err(CollectiveError::Mismatch { rank, ours, theirs });
        }
        out.flags |= words[2];
        for (sum, word) in out.counters.iter_mut().zip(&words[3..]) {
            *sum = sum.wrapping_add(*word);
        }
        for (i, node) in own.iter().enumerate() {
            let at = 3 + counters + i * width;
            let values: Vec<f64> =
                words[at..at + width].iter().map(|w| f64::from_bits(*w)).collect();
            nodes.insert(*node, values);
        }
    }
    let root = tree::root(layout.shards());
    out.values = vec![fold_values(root, layout.shards(), |n| nodes.get(&n).cloned())];
    Ok(out)
}

fn fold_values(
    node: TreeNode,
    shards: u32,
    leaf: impl Fn(TreeNode) -> Option<Vec<f64>>,
) -> Vec<f64> {
    let add = &mut |mut left: Vec<f64>, right: Vec<f64>| {
        left.iter_mut().zip(&right).for_each(|(a, b)| *a += b);
        left
    };
    tree::fold(node, shards, &mut |n| leaf(n), add).unwrap_or_default()
}
