//! What a backend must offer, and the CPU's way of offering it.
//!
//! A device keeps tensors and columns in its own memory, compiles a program once, and carries out
//! ranges of its nodes in the order in which they are launched on a stream. Whatever the device,
//! the numbers of one device kind never depend on what else runs on it.

use crate::{Columns, ExecError, Isa, IsaError, Lane, OutOfMemory, Weights};
use monarch_graph::{Column, Draw, NodeId, Program};
use std::ops::Range;

/// A backend. The CPU carries out a launch before it returns; others may only queue it, and
/// report what went wrong when an event is waited for.
pub trait Device {
    /// f32 tensors by number: weights, or optimizer slots laid out like them.
    type Tensors;
    /// The columns of one shard.
    type Columns;
    /// The gradients of one shard, laid out as the plan's buckets.
    type Slab: ?Sized;
    /// A compiled program with the memory of one run at a time.
    type Executable;
    /// Work in order.
    type Stream;
    /// A point in a stream.
    type Event;
    type Error: std::error::Error;

    /// For people: `cpu avx512`.
    fn name(&self) -> String;

    /// Zeroed tensors of these numbers of elements.
    fn tensors(&self, elements: &[u64]) -> Result<Self::Tensors, Self::Error>;
    /// Copies a tensor to the device; the lengths must agree.
    fn write(&self, to: &mut Self::Tensors, index: usize, from: &[f32]) -> Result<(), Self::Error>;
    /// Copies a tensor from the device; the lengths must agree.
    fn read(&self, from: &Self::Tensors, index: usize, to: &mut [f32]) -> Result<(), Self::Error>;

    /// Room for the columns of a shard of up to `max_samples` samples.
    fn columns(&self, columns: &[Column], max_samples: u64) -> Result<Self::Columns, Self::Error>;

    fn compile(&self, program: &Program) -> Result<Self::Executable, Self::Error>;
    fn stream(&self) -> Result<Self::Stream, Self::Error>;

    /// What random numbers are drawn for in launches from now on.
    fn draw(&self, executable: &mut Self::Executable, draw: Draw);

    /// Runs nodes `nodes` of a program for a shard of `samples` samples, after what was launched
    /// on the stream before. Gradients go to the slab.
    fn launch(
        &self,
        stream: &mut Self::Stream,
        executable: &mut Self::Executable,
        nodes: Range<usize>,
        samples: u64,
        weights: &Self::Tensors,
        columns: &Self::Columns,
        slab: &mut Self::Slab,
    ) -> Result<(), Self::Error>;

    /// Sum of a node's elements in float64, in row-major order, when all launches are done.
    fn sum(
        &self,
        stream: &mut Self::Stream,
        executable: &Self::Executable,
        node: NodeId,
        samples: u64,
        weights: &Self::Tensors,
        columns: &Self::Columns,
        slab: &Self::Slab,
    ) -> Result<f64, Self::Error>;

    /// Marks this point of the stream.
    fn record(&self, stream: &mut Self::Stream) -> Result<Self::Event, Self::Error>;
    /// Lets what is launched on `stream` from now on wait for the event.
    fn wait(&self, stream: &mut Self::Stream, event: &Self::Event) -> Result<(), Self::Error>;
    /// Blocks until the event has come about.
    fn synchronize(&self, event: &Self::Event) -> Result<(), Self::Error>;
}

/// The processor, with the instruction set that its kernels use.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    isa: Isa,
}

impl Cpu {
    /// With the best instruction set, or the one that `MONARCH_ISA` names.
    pub fn new() -> Result<Cpu, IsaError> {
        Ok(Cpu { isa: Isa::detect()? })
    }

    pub fn with(isa: Isa) -> Cpu {
        Cpu { isa }
    }

    pub fn isa(self) -> Isa {
        self.isa
    }
}

/// The calling thread: its launches are done when they return.
#[derive(Debug)]
pub struct CallingThread;

/// A launch on the CPU is over when it returns, so there is nothing left to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Done;

impl Device for Cpu {
    type Tensors = Weights;
    type Columns = Columns;
    type Slab = [f32];
    type Executable = Lane;
    type Stream = CallingThread;
    type Event = Done;
    type Error = ExecError;

    fn name(&self) -> String {
        format!("cpu {}", self.isa.name())
    }

    fn tensors(&self, elements: &[u64]) -> Result<Weights, ExecError> {
        Ok(Weights::new(elements.iter().copied())?)
    }

    fn write(&self, to: &mut Weights, index: usize, from: &[f32]) -> Result<(), ExecError> {
        match to.iter_mut().nth(index).filter(|t| t.len() == from.len()) {
            Some(tensor) => {
                tensor.copy_from_slice(from);
                Ok(())
            }
            None => Err(no_tensor(index, from.len())),
        }
    }

    fn read(&self, from: &Weights, index: usize, to: &mut [f32]) -> Result<(), ExecError> {
        if index >= from.len() || from.get(index).len() != to.len() {
            return Err(no_tensor(index, to.len()));
        }
        to.copy_from_slice(from.get(index));
        Ok(())
    }

    fn columns(&self, columns: &[Column], max_samples: u64) -> Result<Columns, ExecError> {
        let columns: Result<Columns, OutOfMemory> = Columns::new(columns, max_samples);
        Ok(columns?)
    }

    fn compile(&self, program: &Program) -> Result<Lane, ExecError> {
        Lane::new(program, self.isa)
    }

    fn stream(&self) -> Result<CallingThread, ExecError> {
        Ok(CallingThread)
    }

    fn draw(&self, executable: &mut Lane, draw: Draw) {
        executable.draw(draw);
    }

    fn launch(
        &self,
        _: &mut CallingThread,
        executable: &mut Lane,
        nodes: Range<usize>,
        samples: u64,
        weights: &Weights,
        columns: &Columns,
        slab: &mut [f32],
    ) -> Result<(), ExecError> {
        executable.run(nodes, samples, weights, columns, slab)
    }

    fn sum(
        &self,
        _: &mut CallingThread,
        executable: &Lane,
        node: NodeId,
        samples: u64,
        weights: &Weights,
        columns: &Columns,
        slab: &[f32],
    ) -> Result<f64, ExecError> {
        executable.sum(node, samples, weights, columns, slab)
    }

    fn record(&self, _: &mut CallingThread) -> Result<Done, ExecError> {
        Ok(Done)
    }

    fn wait(&self, _: &mut CallingThread, _: &Done) -> Result<(), ExecError> {
        Ok(())
    }

    fn synchronize(&self, _: &Done) -> Result<(), ExecError> {
        Ok(())
    }
}

fn no_tensor(index: usize, elements: usize) -> ExecError {
    ExecError::Buffer(format!("there is no tensor {index} of {elements} elements"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use monarch_graph::{DType, Graph, MemoryPlan, Node, Op, Place, Shape, Span, UnaryOp};

    /// Written against the trait alone, as the worker of another device would be.
    fn squares<D: Device<Slab = [f32]>>(device: &D) -> Result<(Vec<f32>, f64), D::Error> {
        let node = |op, inputs| Node {
            op,
            inputs,
            shape: Shape::fixed(&[3]),
            dtype: DType::F32,
            span: Span::default(),
        };
        let mut graph = Graph::default();
        let w = graph.push(node(Op::Weight(0), vec![]));
        let y = graph.push(node(Op::Unary(UnaryOp::Square), vec![w]));
        let z = graph.push(node(Op::Unary(UnaryOp::Square), vec![y]));
        let places = vec![Place::Weight(0), Place::Arena(0), Place::Gradient(0)];
        let memory = MemoryPlan { arena: 16, max_samples: 1, places };
        let program = Program { graph, columns: vec![], memory };
        let mut weights = device.tensors(&[3])?;
        device.write(&mut weights, 0, &[1.0, -2.0, 3.0])?;
        let columns = device.columns(&[], 1)?;
        let mut executable = device.compile(&program)?;
        let (mut first, mut second) = (device.stream()?, device.stream()?);
        let mut slab = [0.0; 16];
        device.launch(&mut first, &mut executable, 0..2, 1, &weights, &columns, &mut slab)?;
        let half = device.record(&mut first)?;
        device.wait(&mut second, &half)?;
        device.launch(&mut second, &mut executable, 2..3, 1, &weights, &columns, &mut slab)?;
        let whole = device.record(&mut second)?;
        device.synchronize(&whole)?;
        let sum = device.sum(&mut second, &executable, z, 1, &weights, &columns, &slab)?;
        let mut back = [0.0; 3];
        device.read(&weights, 0, &mut back)?;
        assert_eq!(back, [1.0, -2.0, 3.0]);
        Ok((slab[..3].to_vec(), sum))
    }

    #[test]
    fn the_cpu_is_a_device() {
        for isa in crate::testing::isas() {
            let cpu = Cpu::with(isa);
            assert_eq!(squares(&cpu), Ok((vec![1.0, 16.0, 81.0], 98.0)), "{}", cpu.name());
            let mut weights = cpu.tensors(&[2]).unwrap();
            assert!(cpu.write(&mut weights, 0, &[1.0]).is_err());
            assert!(cpu.read(&weights, 1, &mut [1.0]).is_err());
        }
    }
}
