//! The one place that calls the device: a program in the memory of one lane.

use monarch_collective::Region;
use monarch_data::{ColumnMut, Dataset, FillError, Order, Reader};
use monarch_device::{Columns, ExecError, Health, Isa, Lane, Weights};
use monarch_graph::{Column, Count, DType, Draw, Program, Ratio, Span};
use std::ops::Range;
use std::sync::Arc;

/// Why a shard could not be computed.
#[derive(Debug)]
pub(crate) struct EngineError {
    pub(crate) message: String,
    pub(crate) span: Option<Span>,
}

impl From<ExecError> for EngineError {
    fn from(error: ExecError) -> EngineError {
        EngineError { span: error.node().map(|(_, span)| span), message: error.to_string() }
    }
}

impl From<FillError> for EngineError {
    fn from(error: FillError) -> EngineError {
        EngineError { message: error.to_string(), span: None }
    }
}

fn trouble(error: impl std::fmt::Display) -> EngineError {
    EngineError { message: error.to_string(), span: None }
}

/// What a shard adds to a ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) numerator: f64,
    pub(crate) denominator: f64,
}

/// A program with the memory that one thread needs to run it, its columns and its gradients.
pub(crate) struct Engine {
    lane: Lane,
    columns: Columns,
    /// One for each column: columns are lent one at a time.
    readers: Vec<Reader>,
    slab: Region,
    arena_bytes: u64,
}

impl Engine {
    /// `slab` is the number of elements of the gradients (0 for an evaluation).
    pub(crate) fn new(
        program: &Program,
        data: &Arc<Dataset>,
        slab: usize,
        isa: Isa,
    ) -> Result<Engine, EngineError> {
        let columns = &program.columns;
        let reader = |column: &Column| {
            let reader = Reader::new(data.clone(), std::slice::from_ref(column));
            reader.map_err(|e| EngineError { message: e.to_string(), span: Some(column.span) })
        };
        Ok(Engine {
            lane: Lane::new(program, isa)?,
            columns: Columns::new(columns, program.memory.max_samples).map_err(trouble)?,
            readers: columns.iter().map(reader).collect::<Result<Vec<_>, _>>()?,
            slab: Region::private(slab).map_err(trouble)?,
            arena_bytes: program.memory.arena * 4,
        })
    }

    /// Bytes held for intermediate values and gradients.
    pub(crate) fn bytes(&self) -> u64 {
        self.arena_bytes + 4 * self.slab.len() as u64
    }

    /// Makes ready for shards of this size.
    pub(crate) fn prepare(&mut self, samples: u64) -> Result<(), EngineError> {
        Ok(self.lane.prepare(samples)?)
    }

    /// Puts the samples at `positions` of the split into the columns.
    pub(crate) fn load(
        &mut self,
        split: &str,
        order: Order,
        positions: Range<u64>,
    ) -> Result<(), EngineError> {
        for (i, reader) in self.readers.iter().enumerate() {
            let view = match self.columns.dtype(i) {
                Some(DType::F32) => self.columns.f32_mut(i).map(ColumnMut::F32),
                _ => self.columns.i32_mut(i).map(ColumnMut::I32),
            };
            let view = view.ok_or_else(|| trouble("a column without a buffer"))?;
            reader.fill(split, order, positions.clone(), &mut [view])?;
        }
        Ok(())
    }

    /// What random numbers are drawn for from now on.
    pub(crate) fn draw(&mut self, draw: Draw) {
        self.lane.draw(draw);
    }

    pub(crate) fn run(
        &mut self,
        nodes: Range<usize>,
        samples: u64,
        weights: &Weights,
    ) -> Result<(), EngineError> {
        Ok(self.lane.run(nodes, samples, weights, &self.columns, &mut self.slab)?)
    }

    /// Runs the whole program, and says of each node whether its result is finite.
    pub(crate) fn inspect(
        &mut self,
        samples: u64,
        weights: &Weights,
    ) -> Result<Vec<Health>, EngineError> {
        Ok(self.lane.inspect(samples, weights, &self.columns, &mut self.slab)?)
    }

    /// Elements that a column has of each sample.
    pub(crate) fn per_sample(&self, column: usize) -> Option<usize> {
        self.columns.per_sample(column).filter(|n| *n > 0)
    }

    /// The sample of the data set at a position of the split.
    pub(crate) fn row(&self, split: &str, order: Order, position: u64) -> Option<u64> {
        let data = self.readers.first()?.dataset();
        Some(data.sample(data.split(split)?, order, position))
    }

    /// Gradients of a shard without samples: zeros, like everybody's.
    pub(crate) fn clear(&mut self) {
        self.slab.fill(0.0);
    }

    /// Gradients as they are now; padding is zero.
    pub(crate) fn gradients(&self) -> &[f32] {
        &self.slab
    }

    /// What the shard that has just been run adds to a ratio.
    pub(crate) fn share(
        &self,
        ratio: &Ratio,
        samples: u64,
        weights: &Weights,
    ) -> Result<Share, EngineError> {
        if samples == 0 {
            return Ok(Share::default());
        }
        let sum = |node| self.lane.sum(node, samples, weights, &self.columns, &self.slab);
        let denominator = match ratio.denominator {
            Count::PerSample(count) => (count * samples) as f64,
            Count::Sum(node) => sum(node)?,
        };
        Ok(Share { numerator: sum(ratio.numerator)?, denominator })
    }
}
