//! The job's own graph, forward and backward, with the layers and the axis names that its nodes
//! come from. Everything that the model of a mesh says about a program is read off this graph.

use super::labels::{FREE, Rule, rule};
use crate::differentiate::differentiate;
use crate::lower::{Call, lower_traced};
use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Graph, NodeId, Op};
use std::collections::{BTreeMap, BTreeSet};

/// A graph for one sample of the batch at a time; sizes scale with the samples of a micro-batch.
pub(crate) struct Traced {
    pub graph: Graph,
    /// Nodes `0..forward` are the forward half.
    pub forward: usize,
    /// Per node of the backward half: what it is the derivative of.
    pub origins: Vec<NodeId>,
    pub gradients: Vec<Option<NodeId>>,
    pub calls: Vec<Call>,
    /// Nodes that the loss or a gradient needs.
    pub live: Vec<bool>,
    pub rules: Vec<Rule>,
    /// First axis of each node in `classes`.
    offsets: Vec<usize>,
    /// Per axis of a node, in order of nodes: its class, a number below `names.len()`.
    classes: Vec<u32>,
    /// Names of each class.
    pub names: Vec<BTreeSet<String>>,
}

impl Traced {
    pub fn new(program: &hir::Program, job: &hir::Job) -> Result<Traced, Diagnostic> {
        let (graph, loss, trace) = lower_traced(program, job)?;
        let weights = program.model(job.model).map_or(&[][..], |m| &m.weights);
        let trainable: Vec<bool> = weights.iter().map(|w| w.trainable).collect();
        let whole = differentiate(graph, loss, &trainable)?;
        let graph = whole.graph;
        let live = live(&graph, loss, &whole.gradients);
        let rules: Vec<Rule> = graph.nodes.iter().map(|n| rule(&graph, n)).collect();
        let mut offsets = Vec::with_capacity(graph.nodes.len() + 1);
        let mut axes = 0;
        for node in &graph.nodes {
            offsets.push(axes);
            axes += node.shape.rank();
        }
        let mut join = Union((0..axes as u32).collect());
        for (i, rule) in rules.iter().enumerate() {
            join_labels(&mut join, &graph, &offsets, i, rule);
        }
        let mut numbers = BTreeMap::new();
        let mut classes = Vec::with_capacity(axes);
        for axis in 0..axes as u32 {
            let next = numbers.len() as u32;
            classes.push(*numbers.entry(join.root(axis)).or_insert(next));
        }
        let mut names = vec![BTreeSet::new(); numbers.len()];
        for (node, axis, name) in trace.names {
            let at = offsets.get(node.index()).map_or(0, |o| o + usize::from(axis));
            let class = classes.get(at).map_or(0, |&c| c as usize);
            if let Some(names) = names.get_mut(class) {
                names.insert(name);
            }
        }
        Ok(Traced {
            forward: whole.forward,
            origins: whole.origins,
            gradients: whole.gradients,
            calls: trace.calls,
            graph,
            live,
            rules,
            offsets,
            classes,
            names,
        })
    }

    /// Classes of a node's axes.
    pub fn classes(&self, node: usize) -> &[u32] {
        let start = self.offsets.get(node).copied().unwrap_or(0);
        let rank = self.graph.nodes.get(node).map_or(0, |n| n.shape.rank());
        self.classes.get(start..start + rank).unwrap_or(&[])
    }

    /// Classes with this name.
    pub fn named(&self, name: &str) -> Vec<u32> {
        let all = self.names.iter().enumerate();
        all.filter(|(_, names)| names.contains(name)).map(|(i, _)| i as u32).collect()
    }

    /// The node of the forward half that a node belongs to: itself, or what it is the derivative
    /// of.
    pub fn origin(&self, node: usize) -> usize {
        match node.checked_sub(self.forward) {
            Some(i) => self.origins.get(i).map_or(0, |o| o.index()),
            None => node,
        }
    }

    /// Where the contents of a node lie: the node behind changes of form.
    pub fn base(&self, mut node: usize) -> usize {
        while let Some(n) = self.graph.nodes.get(node)
            && matches!(n.op, Op::Reshape | Op::Permute(_))
            && let Some(input) = n.inputs.first()
        {
            node = input.index();
        }
        node
    }

    /// True for tensors with two axes along the sequence, as the scores of attention are.
    pub fn is_scores(&self, node: usize) -> bool {
        let classes = self.classes(node);
        let twice = |c: &u32| classes.iter().filter(|d| *d == c).count() > 1;
        let sequence = |c: &u32| self.names.get(*c as usize).is_some_and(|n| n.contains("T"));
        classes.iter().any(|c| sequence(c) && twice(c))
    }
}

fn live(graph: &Graph, loss: NodeId, gradients: &[Option<NodeId>]) -> Vec<bool> {
    let mut live = vec![false; graph.nodes.len()];
    for root in gradients.iter().flatten().chain([&loss]) {
        if let Some(flag) = live.get_mut(root.index()) {
            *flag = true;
        }
    }
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        if live[i] {
            for input in &node.inputs {
                live[input.index()] = true;
            }
        }
    }
    live
}

/// Disjoint sets of axes.
struct Union(Vec<u32>);

impl Union {
    fn root(&mut self, mut i: u32) -> u32 {
        while let Some(&up) = self.0.get(i as usize)
            && up != i
        {
            let top = self.0.get(up as usize).copied().unwrap_or(up);
            if let Some(slot) = self.0.get_mut(i as usize) {
                *slot = top;
            }
            i = up;
        }
        i
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        // The older axis leads, so that numbers follow the program.
        if let Some(slot) = self.0.get_mut(a.max(b) as usize) {
            *slot = a.min(b);
        }
    }
}

fn join_labels(join: &mut Union, graph: &Graph, offsets: &[usize], at: usize, rule: &Rule) {
    let mut first: BTreeMap<u16, u32> = BTreeMap::new();
    let mut meet = |join: &mut Union, node: usize, labels: &[u16]| {
        for (i, &label) in labels.iter().enumerate().filter(|(_, l)| **l != FREE) {
            let axis = (offsets.get(node).copied().unwrap_or(0) + i) as u32;
            match first.get(&label) {
                Some(&other) => join.join(other, axis),
                None => {
                    first.insert(label, axis);
                }
            }
        }
    };
    let node = &graph.nodes[at];
    for (input, labels) in node.inputs.iter().zip(&rule.inputs) {
        meet(join, input.index(), labels);
    }
    meet(join, at, &rule.output);
}
