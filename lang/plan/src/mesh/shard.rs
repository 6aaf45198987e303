//! Dividing the graph over the axes of a mesh, and the collectives that this asks for.
//!
//! Each axis of a tensor that the layout names is divided wherever its length allows; the axis
//! `sequence` is divided too wherever the mesh axis is not in use. What an operation then needs
//! follows from its labels alone:
//! - parts of a summed axis give partial sums, which are added up (all-reduce, or reduce-scatter
//!   where the result is divided) before anything but an addition uses them;
//! - an operand divided along an axis that the operation needs whole is gathered, once in forward
//!   and once in backward.
//!
//! For a transformer this gives the collectives of Megatron-LM: two all-reduces per layer and
//! direction (Shoeybi et al. 2019), and with `sequence` a reduce-scatter and an all-gather for
//! each (Korthikanti et al. 2022).

use super::labels::{FREE, Sum};
use super::traced::Traced;
use monarch_check::hir::MeshAxis;
use monarch_graph::{BinaryOp, Op, UnaryOp};
use std::collections::BTreeSet;

/// Lengths of the mesh's axes, in the order of [`MeshAxis::ALL`].
pub(crate) type Lengths = [u32; 5];

/// Position of an axis in [`Lengths`].
pub(crate) fn index(axis: MeshAxis) -> usize {
    MeshAxis::ALL.iter().position(|a| *a == axis).unwrap_or(0)
}

pub(crate) fn length(lengths: &Lengths, axis: MeshAxis) -> u64 {
    u64::from(lengths.get(index(axis)).copied().unwrap_or(1))
}

/// The axes that divide tensors; `dp` divides samples and `pp` layers.
const DIVIDING: [MeshAxis; 3] = [MeshAxis::Cp, MeshAxis::Ep, MeshAxis::Tp];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
}

/// A collective within a micro-batch. A size is that of the whole tensor of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Collective {
    /// The node that waits for it.
    pub node: usize,
    pub kind: Kind,
    pub axis: MeshAxis,
    /// Elements; for one sample if it depends on samples.
    pub elements: f64,
    pub per_sample: bool,
    /// Elements are f32 whatever the precision: statistics of rows.
    pub statistics: bool,
}

/// How the graph is divided.
pub(crate) struct Sharded {
    /// Per node: into how many parts its elements are divided.
    pub parts: Vec<u64>,
    /// Per node: over how many devices its work is divided.
    pub work: Vec<u64>,
    pub collectives: Vec<Collective>,
    /// Whether any tensor is divided over the axis.
    pub divides: [bool; 5],
}

/// What divides the tensors.
pub(crate) struct Division<'a> {
    pub lengths: Lengths,
    /// Names and mesh axes.
    pub shard: &'a [(String, MeshAxis)],
    pub sequence: Option<MeshAxis>,
}

/// Divides the graph.
pub(crate) fn shard(traced: &Traced, division: &Division) -> Sharded {
    let specs = specs(traced, division);
    let nodes = traced.graph.nodes.len();
    let parts = |spec: &Spec| {
        let over = DIVIDING.iter().enumerate();
        let over = over.filter(|(m, _)| spec.iter().any(|bits| bits & (1 << m) != 0));
        over.map(|(_, a)| length(&division.lengths, *a)).product::<u64>()
    };
    let mut divides = [false; 5];
    for (m, axis) in DIVIDING.iter().enumerate() {
        divides[index(*axis)] = specs.iter().flatten().any(|bits| bits & (1 << m) != 0);
    }
    let mut walk = Walk {
        traced,
        specs: &specs,
        lengths: division.lengths,
        pending: vec![0; nodes],
        work: vec![1; nodes],
        gathered: BTreeSet::new(),
        collectives: Vec::new(),
    };
    for node in 0..nodes {
        if traced.live[node] {
            walk.visit(node);
        }
    }
    let (work, collectives) = (walk.work, walk.collectives);
    Sharded { parts: specs.iter().map(parts).collect(), work, collectives, divides }
}

/// Per axis of a tensor: bits of [`DIVIDING`].
type Spec = Vec<u8>;

fn specs(traced: &Traced, division: &Division) -> Vec<Spec> {
    // Per class: the axes that the layout divides it over.
    let mut wanted = vec![0u8; traced.names.len()];
    for (name, axis) in division.shard {
        let Some(m) = DIVIDING.iter().position(|a| a == axis) else { continue };
        if length(&division.lengths, *axis) > 1 {
            for class in traced.named(name) {
                wanted[class as usize] |= 1 << m;
            }
        }
    }
    let sequence = division.sequence.filter(|a| length(&division.lengths, *a) > 1);
    let sequence = sequence.and_then(|axis| DIVIDING.iter().position(|a| *a == axis));
    let along = traced.named("T");
    let mut out = Vec::with_capacity(traced.graph.nodes.len());
    for (i, node) in traced.graph.nodes.iter().enumerate() {
        let is_weight = matches!(node.op, Op::Weight(_));
        // Data comes whole to every part of a layer.
        let is_leaf = node.inputs.is_empty();
        let classes = traced.classes(i);
        let mut spec = vec![0u8; classes.len()];
        let mut used = 0u8;
        let mut divide = |axis: usize, m: usize, spec: &mut Spec| {
            let Some(dim) = node.shape.0.get(axis) else { return };
            let parts: u64 = (0..DIVIDING.len())
                .filter(|k| spec[axis] & (1 << k) != 0 || *k == m)
                .map(|k| length(&division.lengths, DIVIDING[k]))
                .product();
            if used & (1 << m) == 0 && !dim.batch && dim.per.is_multiple_of(parts) {
                spec[axis] |= 1 << m;
                used |= 1 << m;
            }
        };
        for (axis, class) in classes.iter().enumerate() {
            for (m, over) in DIVIDING.iter().enumerate() {
                let whole = is_weight && *over == MeshAxis::Cp;
                if wanted[*class as usize] & (1 << m) != 0 && !whole {
                    divide(axis, m, &mut spec);
                }
            }
        }
        if let Some(m) = sequence.filter(|_| !is_leaf) {
            for (axis, class) in classes.iter().enumerate() {
                if along.contains(class) {
                    divide(axis, m, &mut spec);
                }
            }
        }
        out.push(spec);
    }
    out
}

struct Walk<'a> {
    traced: &'a Traced,
    specs: &'a [Spec],
    lengths: Lengths,
    /// Per node: axes over which its value is a partial sum.
    pending: Vec<u8>,
    work: Vec<u64>,
    /// Node, mesh axis, backward: what has been gathered already.
    gathered: BTreeSet<(usize, usize, bool)>,
    collectives: Vec<Collective>,
}

impl Walk<'_> {
    fn visit(&mut self, at: usize) {
        let node = &self.traced.graph.nodes[at];
        if node.inputs.is_empty() {
            return;
        }
        let linear = self.passes_on(at);
        for m in 0..DIVIDING.len() {
            let partial = |w: &Self, i: usize| w.pending[node.inputs[i].index()] & (1 << m) != 0;
            let all = (0..node.inputs.len()).all(|i| partial(self, i));
            if linear && all {
                self.pending[at] |= 1 << m;
                continue;
            }
            for i in 0..node.inputs.len() {
                if partial(self, i) {
                    self.settle(at, node.inputs[i].index(), m);
                }
            }
            self.meet(at, m);
        }
    }

    /// Operations that may be done on partial sums: sums themselves and changes of form.
    fn passes_on(&self, at: usize) -> bool {
        match &self.traced.graph.nodes[at].op {
            Op::Binary(BinaryOp::Add | BinaryOp::Sub) | Op::Unary(UnaryOp::Neg) => true,
            Op::Affine { add, .. } => *add == 0.0,
            Op::Reshape | Op::Permute(_) => true,
            _ => false,
        }
    }

    /// The label of the axis of operand or result that is divided over `m`.
    fn divided(&self, node: usize, labels: &[u16], m: usize) -> Option<u16> {
        let spec = self.specs.get(node)?;
        let place = spec.iter().position(|bits| bits & (1 << m) != 0)?;
        labels.get(place).copied()
    }

    /// What node `at` needs over mesh axis `m`.
    fn meet(&mut self, at: usize, m: usize) {
        let (node, rule) = (&self.traced.graph.nodes[at], &self.traced.rules[at]);
        let inputs: Vec<Option<u16>> = node
            .inputs
            .iter()
            .zip(&rule.inputs)
            .map(|(id, labels)| self.divided(id.index(), labels, m))
            .collect();
        let out = self.divided(at, &rule.output, m);
        let is_weight =
            |i: usize| matches!(self.traced.graph.node(node.inputs[i]).op, Op::Weight(_));
        // The axis along which this operation is divided: the result's if an operand has it, else
        // one that is summed (a weight's first, since weights stay where they are).
        let summed = |l: u16| l != FREE && !rule.output.contains(&l);
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        order.sort_by_key(|&i| !is_weight(i));
        let of_result = out.filter(|l| *l != FREE && inputs.contains(&Some(*l)));
        let of_sum = order.iter().filter_map(|&i| inputs[i]).find(|&l| summed(l));
        let of_sum = of_sum.filter(|_| rule.sum != Sum::No);
        let winner = of_result.or(of_sum).or(out.filter(|l| *l != FREE));
        for (i, label) in inputs.iter().enumerate() {
            if label.is_some() && *label != winner {
                self.gather(at, node.inputs[i].index(), m);
            }
        }
        let Some(winner) = winner else { return };
        self.work[at] *= length(&self.lengths, DIVIDING[m]);
        match rule.sum {
            Sum::Partial if summed(winner) => self.pending[at] |= 1 << m,
            Sum::Rows { label, count } if label == winner => {
                let per: u64 = node.shape.0.iter().map(|d| d.per).product();
                let rows = if summed(label) { per } else { per / self.extent(at, label).max(1) };
                self.push(at, Kind::AllReduce, m, (rows * count) as f64, true, at);
            }
            _ => {}
        }
    }

    fn extent(&self, at: usize, label: u16) -> u64 {
        let rule = &self.traced.rules[at];
        let place = rule.output.iter().position(|l| *l == label);
        let shape = &self.traced.graph.nodes[at].shape;
        place.and_then(|p| shape.0.get(p)).map_or(1, |d| d.per)
    }

    /// Adds the partial sums of `node` up, before `at` uses it.
    fn settle(&mut self, at: usize, node: usize, m: usize) {
        self.pending[node] &= !(1 << m);
        let divided = self.specs[node].iter().any(|bits| bits & (1 << m) != 0);
        let kind = if divided { Kind::ReduceScatter } else { Kind::AllReduce };
        self.push(at, kind, m, self.per_sample(node), false, node);
    }

    fn gather(&mut self, at: usize, node: usize, m: usize) {
        let node = self.traced.base(node);
        if self.gathered.insert((node, m, at >= self.traced.forward)) {
            self.push(at, Kind::AllGather, m, self.per_sample(node), false, node);
        }
    }

    fn per_sample(&self, node: usize) -> f64 {
        self.traced.graph.nodes[node].shape.0.iter().map(|d| d.per as f64).product()
    }

    /// `elements` are those of the whole tensor; other axes divide it as they divide `of`.
    fn push(
        &mut self,
        at: usize,
        kind: Kind,
        m: usize,
        elements: f64,
        statistics: bool,
        of: usize,
    ) {
        let others = DIVIDING.iter().enumerate().filter(|(k, _)| *k != m);
        let others = others.filter(|(k, _)| self.specs[of].iter().any(|b| b & (1 << k) != 0));
        let parts: u64 = others.map(|(_, a)| length(&self.lengths, *a)).product();
        let elements = elements / parts as f64;
        let per_sample = self.traced.graph.nodes[of].shape.0.iter().any(|d| d.batch);
        self.collectives.push(Collective {
            node: at,
            kind,
            axis: DIVIDING[m],
            elements,
            per_sample,
            statistics,
        });
    }
}
