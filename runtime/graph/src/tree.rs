//! The one binary tree in which everything is summed over shards:
//! ((0+1)+(2+3))+((4+5)+(6+7)) for eight of them.
//!
//! Node (level, index) covers shards `index << level .. (index + 1) << level`, cut at the number
//! of shards; a node whose right child is empty is its left child. The tree depends on the number
//! of shards alone, so whoever holds which shard, the sum has the same bits.

use std::ops::Range;
use wincode::{SchemaRead, SchemaWrite};

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, SchemaWrite, SchemaRead)]
pub struct TreeNode {
    pub level: u8,
    pub index: u32,
}

impl TreeNode {
    pub fn leaf(shard: u32) -> TreeNode {
        TreeNode { level: 0, index: shard }
    }

    /// The shards that the node covers.
    pub fn covers(self, shards: u32) -> Range<u32> {
        let start = u64::from(self.index) << self.level;
        let end = start + (1u64 << self.level);
        let cut = |x: u64| x.min(u64::from(shards)) as u32;
        cut(start)..cut(end)
    }

    pub fn parent(self) -> TreeNode {
        TreeNode { level: self.level + 1, index: self.index / 2 }
    }

    /// Left and right child of a node above the leaves.
    pub fn children(self) -> (TreeNode, TreeNode) {
        let level = self.level.saturating_sub(1);
        let left = TreeNode { level, index: self.index * 2 };
        (left, TreeNode { level, index: self.index * 2 + 1 })
    }

    /// True when the node has no shard at all.
    pub fn is_empty(self, shards: u32) -> bool {
        self.covers(shards).is_empty()
    }
}

/// The root of the tree over `shards` shards.
pub fn root(shards: u32) -> TreeNode {
    let level = shards.max(1).next_power_of_two().trailing_zeros() as u8;
    TreeNode { level, index: 0 }
}

/// The fewest nodes that cover exactly `held`, in the order of their shards.
pub fn canonical(shards: u32, held: Range<u32>) -> Vec<TreeNode> {
    let mut out = Vec::new();
    descend(root(shards), shards, &held, &mut out);
    out
}

fn descend(node: TreeNode, shards: u32, held: &Range<u32>, out: &mut Vec<TreeNode>) {
    let covers = node.covers(shards);
    if covers.is_empty() || covers.end <= held.start || held.end <= covers.start {
        return;
    }
    if held.start <= covers.start && covers.end <= held.end {
        out.push(node);
        return;
    }
    let (left, right) = node.children();
    descend(left, shards, held, out);
    descend(right, shards, held, out);
}

/// Per rank of `world`: the fewest nodes that cover exactly its shards, in their order. `deal` says
/// for each shard which rank has it.
pub fn dealt(deal: &[u32], world: u32) -> Vec<Vec<TreeNode>> {
    let shards = deal.len() as u32;
    let mut out = vec![Vec::new(); world as usize];
    let mut put = |owner: u32, node| {
        if let Some(nodes) = out.get_mut(owner as usize) {
            nodes.push(node);
        }
    };
    if let Owner::One(owner) = gather(root(shards), deal, &mut put) {
        put(owner, root(shards));
    }
    let first = |node: &TreeNode| u64::from(node.index) << node.level;
    out.iter_mut().for_each(|nodes| nodes.sort_by_key(first));
    out
}

/// Who has the shards below a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// There are none.
    Nobody,
    One(u32),
    /// Their nodes have been put out.
    Several,
}

fn gather(node: TreeNode, deal: &[u32], put: &mut impl FnMut(u32, TreeNode)) -> Owner {
    if node.is_empty(deal.len() as u32) {
        return Owner::Nobody;
    }
    if node.level == 0 {
        return deal.get(node.index as usize).map_or(Owner::Nobody, |rank| Owner::One(*rank));
    }
    let (left, right) = node.children();
    let owners = (gather(left, deal, put), gather(right, deal, put));
    match owners {
        (one, Owner::Nobody) | (Owner::Nobody, one) => return one,
        (Owner::One(a), Owner::One(b)) if a == b => return Owner::One(a),
        _ => {}
    }
    for (child, owner) in [(left, owners.0), (right, owners.1)] {
        if let Owner::One(rank) = owner {
            put(rank, child);
        }
    }
    Owner::Several
}

/// Folds `leaf(shard)` over the tree below `node`. None only for a node without shards.
pub fn fold<T>(
    node: TreeNode,
    shards: u32,
    leaf: &mut impl FnMut(TreeNode) -> Option<T>,
    add: &mut impl FnMut(T, T) -> T,
) -> Option<T> {
    if node.is_empty(shards) {
        return None;
    }
    if let Some(value) = leaf(node) {
        return Some(value);
    }
    if node.level == 0 {
        return None;
    }
    let (left, right) = node.children();
    let left = fold(left, shards, leaf, add);
    let right = fold(right, shards, leaf, add);
    match (left, right) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shards: u32, held: &[Range<u32>]) -> String {
        let mut parts = std::collections::BTreeMap::new();
        for range in held {
            for node in canonical(shards, range.clone()) {
                let mut leaf = |n: TreeNode| (n.level == 0).then(|| n.index.to_string());
                let mut add = |a, b| format!("({a}+{b})");
                parts.insert(node, fold(node, shards, &mut leaf, &mut add).unwrap());
            }
        }
        let mut leaf = |n: TreeNode| parts.get(&n).cloned();
        fold(root(shards), shards, &mut leaf, &mut |a, b| format!("({a}+{b})")).unwrap()
    }

    #[test]
    fn eight_shards_as_drawn() {
        assert_eq!(text(8, std::slice::from_ref(&(0..8))), "(((0+1)+(2+3))+((4+5)+(6+7)))");
    }

    #[test]
    fn any_deal_has_the_nodes_of_its_ranges() {
        for shards in 1..=9u32 {
            for set in 0u32..1 << shards {
                let deal: Vec<u32> = (0..shards).map(|s| set >> s & 1).collect();
                for (rank, nodes) in (0..).zip(dealt(&deal, 3)) {
                    let covered: Vec<u32> = nodes.iter().flat_map(|n| n.covers(shards)).collect();
                    let held = (0..shards).filter(|s| deal[*s as usize] == rank);
                    let held: Vec<u32> = held.collect();
                    assert_eq!(covered, held, "{shards} shards, set {set:b}");
                    if let (Some(first), Some(last)) = (held.first(), held.last())
                        && last - first + 1 == held.len() as u32
                    {
                        assert_eq!(nodes, canonical(shards, *first..last + 1), "{deal:?}");
                    }
                    // No two of them could be one.
                    for node in &nodes {
                        let sibling = TreeNode { level: node.level, index: node.index ^ 1 };
                        assert!(!nodes.contains(&sibling), "{deal:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn who_holds_what_never_changes_the_tree() {
        for shards in 1..=17 {
            let whole = text(shards, std::slice::from_ref(&(0..shards)));
            for world in 1..=shards {
                let held: Vec<_> =
                    (0..world).map(|r| crate::rank_range(shards, world, r)).collect();
                assert_eq!(text(shards, &held), whole, "{shards} shards, {world} workers");
            }
        }
    }
}
