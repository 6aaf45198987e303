//! Seeded numbers and small graphs for tests.
#![allow(dead_code)] // Each test file uses its part.

pub mod jobs;
pub mod llama;
pub mod mesh;
pub mod world;

use monarch_device::reference::{Tensor, eval};
use monarch_graph::philox::{Purpose, random4};
use monarch_graph::{DType, Graph, NodeId, Shape};
use monarch_plan::build::Builder;

/// Counter-based numbers: a failing seed is the whole story.
pub struct Rng {
    seed: u64,
    at: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { seed, at: 0 }
    }

    fn word(&mut self) -> u32 {
        self.at += 1;
        random4(self.seed, Purpose::Test, 0, self.at)[0]
    }

    /// A whole number of `low..high`.
    pub fn below(&mut self, low: u64, high: u64) -> u64 {
        low + u64::from(self.word()) % (high - low).max(1)
    }

    /// A number in -1..1.
    pub fn unit(&mut self) -> f64 {
        f64::from(self.word()) / f64::from(u32::MAX) * 2.0 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.unit()).collect()
    }
}

/// A graph under construction with the values of its leaves.
pub struct Bench {
    pub b: Builder,
    pub rng: Rng,
    pub samples: u64,
    pub weights: Vec<Tensor>,
    pub trainable: Vec<bool>,
    pub columns: Vec<Tensor>,
}

impl Bench {
    pub fn new(seed: u64) -> Bench {
        let mut rng = Rng::new(seed);
        let samples = rng.below(1, 4);
        let b = Builder::new();
        Bench { b, rng, samples, weights: vec![], trainable: vec![], columns: vec![] }
    }

    fn add_weight(&mut self, lengths: &[u64], trainable: bool) -> NodeId {
        let shape: Vec<usize> = lengths.iter().map(|&n| n as usize).collect();
        let data = self.rng.floats(shape.iter().product());
        self.weights.push(Tensor::floats(&shape, data));
        self.trainable.push(trainable);
        self.b.weight(self.weights.len() as u32 - 1, lengths).unwrap()
    }

    /// A tensor whose gradient is tested.
    pub fn weight(&mut self, lengths: &[u64]) -> NodeId {
        self.add_weight(lengths, true)
    }

    /// A random tensor of any shape, without a gradient.
    pub fn frozen(&mut self, shape: &Shape) -> NodeId {
        if shape.0.iter().all(|d| !d.batch) {
            let lengths: Vec<u64> = shape.0.iter().map(|d| d.per).collect();
            return self.add_weight(&lengths, false);
        }
        let lengths = shape.at(self.samples);
        let data = self.rng.floats(lengths.iter().product());
        self.columns.push(Tensor::floats(&lengths, data));
        self.b.column(self.columns.len() as u32 - 1, shape.clone(), DType::F32).unwrap()
    }

    pub fn ids(&mut self, shape: &Shape, below: u64) -> NodeId {
        let lengths = shape.at(self.samples);
        let n: usize = lengths.iter().product();
        let data = (0..n).map(|_| self.rng.below(0, below) as i64).collect();
        self.columns.push(Tensor::ints(&lengths, data));
        self.b.column(self.columns.len() as u32 - 1, shape.clone(), DType::I32).unwrap()
    }

    pub fn run(&self, graph: &Graph, weights: &[Tensor]) -> Vec<Tensor> {
        match eval(graph, self.samples, weights, &self.columns) {
            Ok(values) => values,
            Err(e) => panic!("{e}: {:?}", graph.nodes[e.node]),
        }
    }
}

pub fn sum(tensor: &Tensor) -> f64 {
    tensor.as_f64().unwrap().iter().sum()
}
