//! Running a program for one shard: a lane is what one thread needs for it.

mod health;
mod prepare;
mod prepare_dense;
mod step;
#[cfg(test)]
mod tests;

use crate::buffers::{Columns, Weights};
use crate::kernels::reduce::sum_in_order;
use crate::kernels::rope::Tables;
use crate::memory::{Area, Memory, OutOfMemory, Words};
use crate::simd::Isa;
pub use health::Health;
use monarch_graph::{Draw, NodeId, Program, Span};
use prepare::Prepared;
use std::fmt;
use std::ops::Range;

/// Why a program cannot be run, or stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecError {
    /// The program is not one that a plan may hold.
    Program {
        node: usize,
        span: Span,
        problem: String,
    },
    /// A row or class number in the data outside its range.
    Id {
        node: usize,
        span: Span,
        id: i32,
        position: usize,
        limit: usize,
    },
    /// A buffer that does not fit the program.
    Buffer(String),
    Memory(OutOfMemory),
}

impl ExecError {
    /// The node that failed and its place in the job, where there is one.
    pub fn node(&self) -> Option<(usize, Span)> {
        match self {
            ExecError::Program { node, span, .. } | ExecError::Id { node, span, .. } => {
                Some((*node, *span))
            }
            ExecError::Buffer(_) | ExecError::Memory(_) => None,
        }
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExecError::Program { node, problem, .. } => write!(f, "node {node}: {problem}"),
            ExecError::Id { id, position, limit, .. } => {
                write!(f, "id {id} at position {position} of the shard is outside 0..{limit}")
            }
            ExecError::Buffer(what) => f.write_str(what),
            ExecError::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExecError {}

impl From<OutOfMemory> for ExecError {
    fn from(error: OutOfMemory) -> ExecError {
        ExecError::Memory(error)
    }
}

/// One thread's memory for a program: the arena of its intermediate values, scratch, and launch
/// plans for each size of shard met so far. After the first run of a size, running allocates
/// nothing.
#[derive(Debug)]
pub struct Lane {
    program: Program,
    isa: Isa,
    arena: Words,
    scratch: Words,
    prepared: Vec<Prepared>,
    tables: Tables,
    draw: Draw,
}

impl Lane {
    /// A lane for shards of up to `program.memory.max_samples` samples.
    pub fn new(program: &Program, isa: Isa) -> Result<Lane, ExecError> {
        let memory = &program.memory;
        if memory.places.len() != program.graph.nodes.len() {
            return Err(ExecError::Buffer(format!(
                "the plan has {} places for {} nodes",
                memory.places.len(),
                program.graph.nodes.len()
            )));
        }
        let length =
            usize::try_from(memory.arena).map_err(|_| OutOfMemory { bytes: usize::MAX })?;
        Ok(Lane {
            program: program.clone(),
            isa,
            arena: Words::new(length)?,
            scratch: Words::new(0)?,
            prepared: Vec::new(),
            tables: Tables::default(),
            draw: Draw::default(),
        })
    }

    /// Makes the launch plan for shards of `samples` samples now, so that the first step does
    /// not have to.
    pub fn prepare(&mut self, samples: u64) -> Result<(), ExecError> {
        if self.prepared.iter().any(|p| p.samples == samples) {
            return Ok(());
        }
        let limit = self.program.memory.max_samples;
        if samples > limit {
            return Err(ExecError::Buffer(format!(
                "a shard of {samples} samples; memory is planned for {limit}"
            )));
        }
        let prepared = Prepared::new(&self.program, samples, &mut self.tables)?;
        if prepared.scratch > self.scratch.f32().len() {
            self.scratch = Words::new(prepared.scratch)?;
        }
        self.prepared.push(prepared);
        Ok(())
    }

    /// What random numbers are drawn for from now on.
    pub fn draw(&mut self, draw: Draw) {
        self.draw = draw;
    }

    /// Runs nodes `nodes` for a shard of `samples` samples. Gradients go to `slab`, at their
    /// places in the plan; a shard of no samples makes them zero.
    pub fn run(
        &mut self,
        nodes: Range<usize>,
        samples: u64,
        weights: &Weights,
        columns: &Columns,
        slab: &mut [f32],
    ) -> Result<(), ExecError> {
        self.prepare(samples)?;
        let Some(prepared) = self.prepared.iter().find(|p| p.samples == samples) else {
            return Ok(());
        };
        let Some(steps) = prepared.steps.get(nodes.clone()) else {
            return Err(ExecError::Buffer(format!(
                "nodes {nodes:?} of a program of {}",
                prepared.steps.len()
            )));
        };
        prepared.fits(weights, columns, slab)?;
        if samples == 0 {
            for step in steps.iter().filter(|s| s.out.area == Area::Slab) {
                slab[step.out.start..step.out.end()].fill(0.0);
            }
            return Ok(());
        }
        let mut memory = Memory { arena: self.arena.f32_mut(), slab, weights, columns };
        for (step, node) in steps.iter().zip(nodes) {
            step.run(self.isa, &mut memory, self.scratch.f32_mut(), self.draw).map_err(|bad| {
                ExecError::Id {
                    node,
                    span: step.span,
                    id: bad.id,
                    position: bad.position,
                    limit: bad.limit,
                }
            })?;
            monarch_pulse::tick();
        }
        Ok(())
    }

    /// The elements of `node` as the last run left them (a node whose memory was not given to a
    /// later one). Nodes in the slab, weights and columns are the caller's to look at.
    pub fn values(&self, node: NodeId, samples: u64) -> Option<&[f32]> {
        let prepared = self.prepared.iter().find(|p| p.samples == samples)?;
        let place = prepared.steps.get(node.index())?.out;
        match place.area {
            Area::Arena => self.arena.f32().get(place.start..place.end()),
            _ => None,
        }
    }

    /// Sum of the elements of `node` in float64, in row-major order; 0 for a shard of no
    /// samples.
    pub fn sum(
        &self,
        node: NodeId,
        samples: u64,
        weights: &Weights,
        columns: &Columns,
        slab: &[f32],
    ) -> Result<f64, ExecError> {
        if samples == 0 {
            return Ok(0.0);
        }
        let prepared = self.prepared.iter().find(|p| p.samples == samples);
        let step = prepared.and_then(|p| p.steps.get(node.index()));
        let Some(step) = step.filter(|s| !s.is_none()) else {
            return Err(ExecError::Buffer(format!("node {} has no value to sum", node.0)));
        };
        let range = step.out.start..step.out.end();
        let all = match step.out.area {
            Area::Arena => self.arena.f32(),
            Area::Slab => slab,
            Area::Weight(w) if w < weights.len() => weights.get(w),
            Area::Column(c) if c < columns.len() => columns.words(c),
            _ => &[],
        };
        match all.get(range) {
            Some(values) => Ok(sum_in_order(values)),
            None => Err(ExecError::Buffer(format!("node {} lies outside its buffer", node.0))),
        }
    }
}
