//! What a step costs: operations, bytes held, bytes moved, and a time from a stated model.
//!
//! The model is meant to rank choices and to be within a factor of two, not to be a measurement;
//! its constants are in [`Rates`] and are printed with every report.

use monarch_graph::{Bucket, Graph, Node, Op, Optimizer, OptimizerKind, Shape, rank_range, tree};

/// Between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    SharedMemory,
    Quic,
}

impl Link {
    pub fn name(self) -> &'static str {
        match self {
            Link::SharedMemory => "shared memory",
            Link::Quic => "QUIC",
        }
    }
}

/// Sustained rates of one core and of the links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Of contractions, per core.
    pub flops_per_second: f64,
    /// Of elementwise work, per core.
    pub memory_bytes_per_second: f64,
    pub shared_memory_bytes_per_second: f64,
    pub quic_bytes_per_second: f64,
    /// Fixed cost of a collective.
    pub collective_seconds: f64,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates {
            flops_per_second: 50e9,
            memory_bytes_per_second: 10e9,
            shared_memory_bytes_per_second: 5e9,
            quic_bytes_per_second: 1e9,
            collective_seconds: 50e-6,
        }
    }
}

impl Rates {
    pub fn link(&self, link: Link) -> f64 {
        match link {
            Link::SharedMemory => self.shared_memory_bytes_per_second,
            Link::Quic => self.quic_bytes_per_second,
        }
    }
}

/// Work of a range of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations of contractions; a multiplication and an addition count two.
    pub flops: f64,
    /// Bytes that all other operations read and write.
    pub bytes: f64,
}

impl Work {
    pub fn seconds(&self, rates: &Rates) -> f64 {
        self.flops / rates.flops_per_second + self.bytes / rates.memory_bytes_per_second
    }

    fn plus(self, other: Work) -> Work {
        Work { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

/// Work of nodes `range` for a shard of `samples`.
pub fn work(graph: &Graph, range: std::ops::Range<usize>, samples: u64) -> Work {
    let nodes = graph.nodes.get(range).unwrap_or(&[]);
    nodes.iter().fold(Work::default(), |sum, node| sum.plus(node_work(graph, node, samples)))
}

/// Work of one node.
pub fn node_work(graph: &Graph, node: &Node, samples: u64) -> Work {
    let elements = |shape: &Shape| shape.elements(samples) as f64;
    match &node.op {
        Op::Weight(_) | Op::Column(_) | Op::Reshape => Work::default(),
        Op::Einsum(e) => {
            // Every label once: those of the result, and the contracted ones of a.
            let a = node.inputs.first().map(|&id| graph.node(id).shape.at(samples));
            let contracted: f64 =
                e.a.iter()
                    .zip(a.unwrap_or_default())
                    .filter(|(l, _)| !e.out.contains(l))
                    .map(|(_, n)| n as f64)
                    .product();
            Work { flops: 2.0 * elements(&node.shape) * contracted, bytes: 0.0 }
        }
        _ => {
            let read: f64 = node.inputs.iter().map(|&id| elements(&graph.node(id).shape)).sum();
            Work { flops: 0.0, bytes: 4.0 * (read + elements(&node.shape)) }
        }
    }
}

/// Bytes that one worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub weights: u64,
    /// A slab per lane, and a partial sum per level of the tree over the worker's own shards.
    pub gradients: u64,
    pub optimizer: u64,
    /// An arena per lane, of the training or of the evaluation program, whichever is larger.
    pub activations: u64,
    /// Column buffers of a shard per lane.
    pub batch: u64,
    /// Published partial sums of the largest share of shards.
    pub communication: u64,
}

impl Memory {
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Names and bytes, as in the report.
    pub fn rows(&self) -> [(&'static str, u64); 6] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("batch", self.batch),
            ("communication", self.communication),
        ]
    }
}

/// What [`memory`] counts. All in f32 elements.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub weights: u64,
    /// Of the optimizer's state.
    pub state: u64,
    /// Of what each thread needs beside it in an update.
    pub scratch: u64,
    pub slab: u64,
    pub arena: u64,
    pub columns: u64,
    pub shards: u32,
    pub workers: u32,
    pub threads: u32,
}

/// Bytes of the worker that holds most.
pub fn memory(held: Held) -> Memory {
    let own = rank_range(held.shards, held.workers, 0).len() as u32;
    let lanes = u64::from(held.threads.min(own).max(1));
    let levels = u64::from(own.max(1).ilog2()) + 1;
    let nodes = most_nodes(held.shards, held.workers);
    let published = if held.workers > 1 { nodes } else { 0 };
    let bytes = |elements: u64| elements.saturating_mul(4);
    Memory {
        weights: bytes(held.weights),
        gradients: bytes(held.slab).saturating_mul(lanes + levels),
        optimizer: bytes(held.state.saturating_add(held.scratch.saturating_mul(lanes))),
        activations: bytes(held.arena).saturating_mul(lanes),
        batch: bytes(held.columns).saturating_mul(lanes),
        communication: bytes(held.slab).saturating_mul(published),
    }
}

fn nodes_of(shards: u32, workers: u32, rank: u32) -> u64 {
    tree::canonical(shards, rank_range(shards, workers, rank)).len() as u64
}

/// Nodes of the reduction tree that the worker with most of them publishes.
fn most_nodes(shards: u32, workers: u32) -> u64 {
    (0..workers).map(|r| nodes_of(shards, workers, r)).max().unwrap_or(0)
}

/// Bytes per step that the busiest worker sends and receives, per leg of the reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Partial sums to the owners of the chunks: one per canonical node.
    pub scatter_sent: u64,
    pub scatter_received: u64,
    /// Finished chunks to everyone.
    pub gather_sent: u64,
    pub gather_received: u64,
    /// All workers together.
    pub total: u64,
    /// Canonical nodes per worker.
    pub nodes: (u64, u64),
}

/// Traffic of reducing `bytes` of gradient.
pub fn traffic(bytes: u64, shards: u32, workers: u32) -> Traffic {
    let world = u64::from(workers.max(1));
    let chunk = bytes.div_ceil(world);
    let nodes: Vec<u64> = (0..workers).map(|r| nodes_of(shards, workers, r)).collect();
    let all: u64 = nodes.iter().sum();
    let (most, least) = (nodes.iter().max(), nodes.iter().min());
    let (most, least) = (most.copied().unwrap_or(0), least.copied().unwrap_or(0));
    let others = world - 1;
    Traffic {
        scatter_sent: most.saturating_mul(chunk.saturating_mul(others)),
        scatter_received: (all - least).saturating_mul(chunk),
        gather_sent: chunk.saturating_mul(others),
        gather_received: chunk.saturating_mul(others),
        total: chunk.saturating_mul(others).saturating_mul(all + world),
        nodes: (least, most),
    }
}

impl Traffic {
    /// Bytes through the busiest worker's link, the larger direction of each leg.
    pub fn busiest(&self) -> u64 {
        self.scatter_sent.max(self.scatter_received) + self.gather_sent.max(self.gather_received)
    }
}

/// Seconds of a step and where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    pub forward: f64,
    pub backward: f64,
    /// All of it, hidden or not.
    pub communication: f64,
    /// What backward does not hide.
    pub exposed: f64,
    pub update: f64,
}

impl Time {
    pub fn step(&self) -> f64 {
        self.forward + self.backward + self.exposed + self.update
    }
}

/// What [`time`] needs besides the graph.
#[derive(Clone, Copy, Debug)]
pub struct Pace<'a> {
    pub graph: &'a Graph,
    pub forward: usize,
    /// Per bucket: the end of the nodes that complete it.
    pub cuts: &'a [usize],
    pub buckets: &'a [Bucket],
    pub samples: u64,
    pub shards: u32,
    pub workers: u32,
    pub threads: u32,
    pub link: Link,
    pub overlap: bool,
    pub trainable: u64,
    /// Of products in an update.
    pub update_flops: f64,
}

/// Simulates one step of the worker with most shards: shards one after another on its lanes;
/// each bucket's reduction when the last shard has completed it, one reduction at a time.
pub fn time(pace: Pace, optimizer: &Optimizer, rates: &Rates) -> Time {
    let own = rank_range(pace.shards, pace.workers, 0).len() as u64;
    let waves = own.div_ceil(u64::from(pace.threads.max(1))).max(1) as f64;
    let seconds = |range| work(pace.graph, range, pace.samples).seconds(rates);
    let nodes = pace.graph.nodes.len();
    let forward = seconds(0..pace.forward);
    let backward = seconds(pace.forward..nodes);
    let start = (waves - 1.0) * (forward + backward) + forward;
    let end = waves * (forward + backward);
    let mut wire = start;
    let mut communication = 0.0;
    if pace.workers > 1 {
        for (bucket, &cut) in pace.buckets.iter().zip(pace.cuts) {
            let ready = start + seconds(pace.forward..cut.min(nodes));
            let ready = if pace.overlap { ready } else { end };
            let bytes = traffic(bucket.elements * 4, pace.shards, pace.workers).busiest();
            let takes = rates.collective_seconds + bytes as f64 / rates.link(pace.link);
            wire = f64::max(wire, ready) + takes;
            communication += takes;
        }
        wire = f64::max(wire, end) + rates.collective_seconds;
        communication += rates.collective_seconds;
    }
    let moved = match optimizer.kind {
        OptimizerKind::Sgd { .. } | OptimizerKind::Lion { .. } => 20.0,
        _ => 28.0,
    };
    let moved = pace.trainable as f64 * moved / rates.memory_bytes_per_second;
    Time {
        forward: waves * forward,
        backward: waves * backward,
        communication,
        exposed: f64::max(wire - end, 0.0),
        update: moved + pace.update_flops / rates.flops_per_second,
    }
}
