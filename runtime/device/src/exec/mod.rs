//! Running a program for one shard: a lane is what one thread needs for it.

mod prepare;
mod prepare_dense;
mod step;
#[cfg(test)]
mod tests;

use crate::kernels::index::BadId;
use crate::kernels::reduce::sum_in_order;
pub use crate::memory::Values;
use crate::memory::{Area, Memory, OutOfMemory, Place, Words};
use crate::simd::Isa;
use monarch_graph::{NodeId, Program, Span};
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

/// What a program reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Elements of each weight of the plan.
    pub weights: &'a [&'a [f32]],
    /// The shard's samples of each column of the program; longer ones are cut.
    pub columns: &'a [Values<'a>],
}

/// The gradient slab of the shard, from element `start` on: buckets that are complete may have
/// been taken away.
#[derive(Debug)]
pub struct Gradients<'a> {
    pub start: usize,
    pub slab: &'a mut [f32],
}

impl Gradients<'_> {
    /// For programs without gradients.
    pub fn none() -> Gradients<'static> {
        Gradients { start: 0, slab: &mut [] }
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
        let prepared = Prepared::new(&self.program, samples)?;
        if prepared.scratch > self.scratch.f32().len() {
            self.scratch = Words::new(prepared.scratch)?;
        }
        self.prepared.push(prepared);
        Ok(())
    }

    /// Runs nodes `nodes` for a shard of `samples` samples. Gradients go to their places in the
    /// slab; a shard of no samples makes them zero.
    pub fn run(
        &mut self,
        nodes: Range<usize>,
        samples: u64,
        inputs: Inputs,
        gradients: Gradients,
    ) -> Result<(), ExecError> {
        self.prepare(samples)?;
        let Some(prepared) = self.prepared.iter().find(|p| p.samples == samples) else {
            return Ok(());
        };
        let Some(steps) = prepared.steps.get(nodes.clone()) else {
            let all = prepared.steps.len();
            return Err(ExecError::Buffer(format!("nodes {nodes:?} of a program of {all}")));
        };
        let Gradients { start, slab } = gradients;
        prepared.fits(steps, &inputs, start..start + slab.len())?;
        if samples == 0 {
            for out in steps.iter().map(|s| s.out).filter(|out| out.area == Area::Slab) {
                slab[out.start - start..out.end() - start].fill(0.0);
            }
            return Ok(());
        }
        let Inputs { weights, columns } = inputs;
        let arena = self.arena.f32_mut();
        let mut memory = Memory { arena, slab, slab_start: start, weights, columns };
        for (step, node) in steps.iter().zip(nodes) {
            let done = step.run(self.isa, &mut memory, self.scratch.f32_mut());
            done.map_err(|BadId { id, position, limit }| ExecError::Id {
                node,
                span: step.span,
                id,
                position,
                limit,
            })?;
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
    /// samples. The node must have its value still, from the last run.
    pub fn sum(&self, node: NodeId, samples: u64, inputs: Inputs) -> Result<f64, ExecError> {
        if samples == 0 {
            return Ok(0.0);
        }
        let prepared = self.prepared.iter().find(|p| p.samples == samples);
        let step = prepared.and_then(|p| p.steps.get(node.index()));
        let value = step.filter(|s| !s.is_none()).and_then(|s| self.look(s.out, &inputs));
        match value {
            Some(values) => Ok(sum_in_order(values)),
            None => Err(ExecError::Buffer(format!("node {} has no value to sum", node.0))),
        }
    }

    fn look<'a>(&'a self, place: Place, inputs: &Inputs<'a>) -> Option<&'a [f32]> {
        let all = match place.area {
            Area::Arena => self.arena.f32(),
            Area::Weight(w) => inputs.weights.get(w)?,
            Area::Column(c) => match inputs.columns.get(c)? {
                Values::F32(values) => values,
                Values::I32(_) => return None,
            },
            Area::Slab => return None,
        };
        all.get(place.start..place.end())
    }
}
