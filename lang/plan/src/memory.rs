//! Memory, planned once: every result gets a place in one arena, so that a step allocates nothing.
//!
//! - A node's memory is taken when it runs and free after its last user, reshapes included.
//! - With [`Overwrite::Elementwise`] an elementwise operation writes over an operand of its own
//!   shape that dies there; devices whose kernels cannot work in place want [`Overwrite::Never`].
//! - Offsets are found greedily, largest block first, each at the lowest place that is free for
//!   its whole life (Pisarchyk & Lee, "Efficient memory management for deep neural net
//!   inference", 2020: greedy by size).
//! - Lengths only grow with the number of samples, so a layout for the largest shard serves all.

use monarch_graph::{Graph, MemoryPlan, NodeId, Op, Place};

/// Alignment of every block in the arena and in the gradient slab, in f32 elements (64 bytes).
pub const ALIGN: u64 = 16;

/// `elements` rounded up to whole alignments.
pub fn align(elements: u64) -> u64 {
    elements.div_ceil(ALIGN).saturating_mul(ALIGN)
}

/// Whether a result may take the place of an input that dies there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    #[default]
    Never,
    Elementwise,
}

impl Overwrite {
    /// Whether a node may write over an input of its own shape: only where element i of the
    /// result depends on element i of that input alone.
    pub fn allows(self, op: &Op) -> bool {
        let elementwise = matches!(
            op,
            Op::Unary(_) | Op::UnaryGrad(_) | Op::Affine { .. } | Op::Binary(_) | Op::Causal { .. }
        );
        self == Overwrite::Elementwise && elementwise
    }
}

/// Lays out `graph` for shards of up to `max_samples`. Nodes of `keep` outlive the program (its
/// results); `gradients` are nodes that write into the gradient slab, with their offsets there.
pub fn plan_memory(
    graph: &Graph,
    max_samples: u64,
    keep: &[NodeId],
    gradients: &[(NodeId, u64)],
    overwrite: Overwrite,
) -> MemoryPlan {
    let roots = storage_roots(graph);
    let deaths = deaths(graph, &roots, keep);
    let mut places = vec![Place::None; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        places[i] = match node.op {
            Op::Weight(w) => Place::Weight(w),
            Op::Column(c) => Place::Column(c),
            _ if roots[i] != i => Place::Alias(NodeId(roots[i] as u32)),
            _ => Place::None,
        };
    }
    for &(id, offset) in gradients {
        if let Some(&root) = roots.get(id.index()) {
            places[root] = Place::Gradient(offset);
        }
    }
    let blocks = blocks(graph, max_samples, &places, &roots, &deaths, overwrite);
    let offsets = arrange(&blocks);
    let mut arena = 0;
    for (block, offset) in blocks.iter().zip(offsets) {
        arena = arena.max(offset.saturating_add(block.size));
        for &node in &block.nodes {
            places[node] = Place::Arena(offset);
        }
    }
    MemoryPlan { arena, max_samples, places }
}

/// Per node: the node whose memory it has; itself unless it is a reshape.
pub fn storage_roots(graph: &Graph) -> Vec<usize> {
    let mut roots: Vec<usize> = Vec::with_capacity(graph.nodes.len());
    for (i, node) in graph.nodes.iter().enumerate() {
        let input = node.inputs.first().and_then(|n| roots.get(n.index()).copied());
        roots.push(match (&node.op, input) {
            (Op::Reshape, Some(root)) => root,
            _ => i,
        });
    }
    roots
}

/// Per storage root: the last node that needs its memory.
fn deaths(graph: &Graph, roots: &[usize], keep: &[NodeId]) -> Vec<usize> {
    let mut deaths: Vec<usize> = (0..graph.nodes.len()).collect();
    for (i, node) in graph.nodes.iter().enumerate() {
        for input in &node.inputs {
            let root = roots[input.index()];
            deaths[root] = deaths[root].max(i);
        }
    }
    for id in keep {
        if let Some(&root) = roots.get(id.index()) {
            deaths[root] = graph.nodes.len();
        }
    }
    deaths
}

/// Memory that one node after another uses without a gap.
#[derive(Clone, Debug)]
struct Block {
    nodes: Vec<usize>,
    start: usize,
    end: usize,
    /// Aligned f32 elements.
    size: u64,
}

fn blocks(
    graph: &Graph,
    max_samples: u64,
    places: &[Place],
    roots: &[usize],
    deaths: &[usize],
    overwrite: Overwrite,
) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_of: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        if places[i] != Place::None {
            continue;
        }
        let dying = node.inputs.iter().find_map(|input| {
            let root = roots[input.index()];
            let same = graph.node(*input).shape == node.shape;
            let fits = overwrite.allows(&node.op) && same && deaths[root] == i;
            if fits { block_of[root] } else { None }
        });
        match dying {
            Some(b) => {
                blocks[b].nodes.push(i);
                blocks[b].end = deaths[i];
                block_of[i] = Some(b);
            }
            None => {
                block_of[i] = Some(blocks.len());
                let size = align(node.shape.elements(max_samples));
                blocks.push(Block { nodes: vec![i], start: i, end: deaths[i], size });
            }
        }
    }
    blocks
}

/// An offset per block such that blocks alive at the same time never overlap.
fn arrange(blocks: &[Block]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(blocks[i].size), blocks[i].start));
    let mut offsets = vec![0; blocks.len()];
    // Placed blocks by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(blocks.len());
    for i in order {
        let block = &blocks[i];
        let mut at = 0;
        for &other in &placed {
            let (o, start) = (&blocks[other], offsets[other]);
            if o.end < block.start || block.end < o.start {
                continue;
            }
            if start >= at + block.size {
                break;
            }
            at = at.max(start + o.size);
        }
        offsets[i] = at;
        let position = placed.partition_point(|&p| offsets[p] <= at);
        placed.insert(position, i);
    }
    offsets
}

/// Proves a layout: when a node runs, nothing that is still needed lies where it writes, and
/// every block is aligned and inside the arena. The proof knows nothing of how the layout was
/// found.
pub fn verify_memory(
    graph: &Graph,
    plan: &MemoryPlan,
    keep: &[NodeId],
    overwrite: Overwrite,
) -> Result<(), String> {
    if plan.places.len() != graph.nodes.len() {
        return Err("there are not as many places as nodes".into());
    }
    let mut needed = vec![0; graph.nodes.len()];
    let resolve = |mut i: usize| {
        for _ in 0..graph.nodes.len() {
            match plan.places[i] {
                Place::Alias(to) => i = to.index(),
                _ => break,
            }
        }
        i
    };
    for (i, node) in graph.nodes.iter().enumerate() {
        for input in &node.inputs {
            needed[resolve(input.index())] = i;
        }
    }
    for id in keep {
        needed[resolve(id.index())] = graph.nodes.len();
    }
    let mut live: Vec<(usize, u64, u64)> = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        live.retain(|&(j, ..)| needed[j] >= i);
        let (Place::Arena(start), elements) =
            (plan.places[i], node.shape.elements(plan.max_samples))
        else {
            continue;
        };
        let end = start + elements;
        if start % ALIGN != 0 || end > plan.arena {
            return Err(format!("node {i} lies at {start}..{end} of {}", plan.arena));
        }
        for &(j, other, other_end) in &live {
            let overwrites = overwrite.allows(&node.op)
                && needed[j] == i
                && start == other
                && node.inputs.iter().any(|n| resolve(n.index()) == j)
                && graph.nodes[j].shape.elements(plan.max_samples) == elements;
            if start < other_end && other < end && !overwrites {
                return Err(format!("node {i} writes over node {j}, which is still needed"));
            }
        }
        live.retain(|&(_, other, other_end)| end <= other || other_end <= start);
        live.push((i, start, end));
    }
    Ok(())
}
