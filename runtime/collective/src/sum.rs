use crate::Layout;
use monarch_graph::tree::{self, TreeNode};
use std::collections::BTreeMap;

/// Elements added at a time: a few blocks fit the first-level cache.
pub(crate) const BLOCK: usize = 1024;

/// One step of adding partial sums in the tree's order, on a stack of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Push source i.
    Push(usize),
    /// Push source i + source j.
    PushSum(usize, usize),
    /// top = top + source i.
    AddSource(usize),
    /// Pop b, then a; push a + b.
    AddTop,
}

/// The order in which the canonical partial sums of all ranks are added: the tree, flattened.
///
/// Sources are numbered rank by rank, and within a rank in the order of its nodes.
pub(crate) struct Sum {
    moves: Vec<Move>,
    /// First source of each rank; the number of sources as last entry.
    first: Vec<usize>,
    stack: Vec<Vec<f32>>,
}

impl Sum {
    pub(crate) fn new(layout: &Layout) -> Sum {
        let mut numbers = BTreeMap::new();
        let mut first = vec![0];
        for rank in 0..layout.world() {
            for node in layout.nodes(rank) {
                let number = numbers.len();
                numbers.insert(*node, number);
            }
            first.push(numbers.len());
        }
        let moves = flatten(layout.shards(), &numbers);
        let depth = moves.iter().scan(0usize, |height, step| {
            match step {
                Move::Push(_) | Move::PushSum(..) => *height += 1,
                Move::AddTop => *height -= 1,
                Move::AddSource(_) => {}
            }
            Some(*height)
        });
        let depth = depth.max().unwrap_or(1).max(1);
        Sum { moves, first, stack: vec![vec![0.0; BLOCK]; depth] }
    }

    /// Number of source 0 of `rank`.
    pub(crate) fn first(&self, rank: u32) -> usize {
        self.first.get(rank as usize).copied().unwrap_or(0)
    }

    /// Adds one block of `length` <= [`BLOCK`] elements; `source(i)` is that block of source i.
    pub(crate) fn block<'a>(
        &mut self,
        length: usize,
        source: impl Fn(usize) -> &'a [f32],
    ) -> &[f32] {
        let length = length.min(BLOCK);
        let mut height = 0;
        for step in &self.moves {
            match *step {
                Move::Push(i) => {
                    self.stack[height][..length].copy_from_slice(&source(i)[..length]);
                    height += 1;
                }
                Move::PushSum(i, j) => {
                    let (a, b) = (source(i)[..length].iter(), source(j)[..length].iter());
                    let out = self.stack[height][..length].iter_mut();
                    out.zip(a.zip(b)).for_each(|(out, (a, b))| *out = a + b);
                    height += 1;
                }
                Move::AddSource(i) => {
                    add(&mut self.stack[height - 1][..length], &source(i)[..length]);
                }
                Move::AddTop => {
                    height -= 1;
                    let (below, top) = self.stack.split_at_mut(height);
                    add(&mut below[height - 1][..length], &top[0][..length]);
                }
            }
        }
        &self.stack[0][..length]
    }
}

/// left = left + right, element by element.
pub(crate) fn add(left: &mut [f32], right: &[f32]) {
    left.iter_mut().zip(right).for_each(|(a, b)| *a += b);
}

fn flatten(shards: u32, numbers: &BTreeMap<TreeNode, usize>) -> Vec<Move> {
    let mut leaf = |node: TreeNode| numbers.get(&node).map(|&i| vec![Move::Push(i)]);
    let mut join = |mut left: Vec<Move>, right: Vec<Move>| {
        match (left.as_slice(), right.as_slice()) {
            ([Move::Push(i)], [Move::Push(j)]) => return vec![Move::PushSum(*i, *j)],
            (_, [Move::Push(j)]) => left.push(Move::AddSource(*j)),
            _ => {
                left.extend(right);
                left.push(Move::AddTop);
            }
        }
        left
    };
    tree::fold(tree::root(shards), shards, &mut leaf, &mut join).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_in_the_order_of_the_tree() {
        for (shards, world) in [(8, 1), (8, 2), (8, 3), (8, 8), (5, 3), (7, 4), (1, 1)] {
            let deal = monarch_graph::even_deal(shards, world);
            let layout = Layout::new(&deal, world, 0, &[(0, 16)], 0).unwrap();
            let value =
                |s: u32| 1.0f32 / (s as f32 + 3.0) * if s.is_multiple_of(3) { 1e4 } else { -1e-3 };
            let whole = |node| {
                let mut leaf = |n: TreeNode| (n.level == 0).then(|| value(n.index));
                tree::fold(node, shards, &mut leaf, &mut |a, b| a + b).unwrap()
            };
            let nodes = (0..world).flat_map(|r| layout.nodes(r));
            let sources: Vec<Vec<f32>> = nodes.map(|n| vec![whole(*n); 16]).collect();
            let mut sum = Sum::new(&layout);
            let want = whole(tree::root(shards));
            assert_eq!(sum.block(16, |i| &sources[i]), [want; 16], "{shards} {world}");
        }
    }
}
