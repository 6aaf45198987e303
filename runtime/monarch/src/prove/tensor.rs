//! Tensors of a test: each expression is compiled to a program of its own and run by the CPU's
//! kernels, the same that train.

use super::Result;
use monarch_check::hir::{Expr, LocalId, ModelId, Pattern, Program, Test, TestStep};
use monarch_device::{Columns, ExecError, Isa, Lane, Weights, init};
use monarch_diagnostic::Diagnostic;
use monarch_graph::philox::{Purpose, name_hash, random4};
use monarch_graph::{DType, Init, NodeId, Op, Place, Span, Weight};
use monarch_plan::lower::{Single, single};
use std::collections::BTreeMap;

/// A dense tensor in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub shape: Vec<u64>,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Tensor {
    pub fn len(&self) -> usize {
        match &self.data {
            Data::F32(v) => v.len(),
            Data::I32(v) => v.len(),
        }
    }

    /// An element by its place in row-major order.
    pub fn get(&self, i: usize) -> Option<f64> {
        match &self.data {
            Data::F32(v) => v.get(i).map(|x| f64::from(*x)),
            Data::I32(v) => v.get(i).map(|x| f64::from(*x)),
        }
    }

    /// An element as a person reads it: with as many digits as tell it apart.
    pub fn text(&self, i: usize) -> String {
        match &self.data {
            Data::F32(v) => v.get(i).map_or_else(String::new, |x| {
                let tiny = *x != 0.0 && (x.abs() < 1e-3 || x.abs() >= 1e7);
                if tiny { format!("{x:e}") } else { x.to_string() }
            }),
            Data::I32(v) => v.get(i).map_or_else(String::new, i32::to_string),
        }
    }

    /// Elements before, along and after an axis, counted from the last.
    fn around(&self, from_end: usize) -> Option<(usize, usize, usize)> {
        let axis = self.shape.len().checked_sub(from_end + 1)?;
        let count = |dims: &[u64]| dims.iter().product::<u64>() as usize;
        Some((
            count(self.shape.get(..axis)?),
            *self.shape.get(axis)? as usize,
            count(self.shape.get(axis + 1..)?),
        ))
    }

    /// The slice at `at`; the axis disappears.
    fn at(&self, from_end: usize, at: u64) -> Option<Tensor> {
        let (outer, length, inner) = self.around(from_end)?;
        let mut shape = self.shape.clone();
        shape.remove(shape.len().checked_sub(from_end + 1)?);
        fn pick<T: Copy>(
            v: &[T],
            (outer, length, inner): (usize, usize, usize),
            at: usize,
        ) -> Vec<T> {
            let row = |o: usize| v.get((o * length + at) * inner..(o * length + at + 1) * inner);
            (0..outer).filter_map(row).flatten().copied().collect()
        }
        let (sizes, at) = ((outer, length, inner), at as usize);
        let data = match &self.data {
            Data::F32(v) => Data::F32(pick(v, sizes, at)),
            Data::I32(v) => Data::I32(pick(v, sizes, at)),
        };
        Some(Tensor { shape, data })
    }

    /// Overwrites the slice at `at`.
    fn replace(&mut self, from_end: usize, at: u64, with: f64) -> Option<()> {
        let (outer, length, inner) = self.around(from_end)?;
        for o in 0..outer {
            let start = (o * length + at as usize) * inner;
            match &mut self.data {
                Data::F32(v) => v.get_mut(start..start + inner)?.fill(with as f32),
                Data::I32(v) => v.get_mut(start..start + inner)?.fill(with as i32),
            }
        }
        Some(())
    }
}

/// The tensors of one test.
pub(crate) struct Tensors<'a> {
    program: &'a Program,
    test: &'a Test,
    values: Vec<Option<Tensor>>,
    /// Initial weights, by the places that were asked for.
    weights: BTreeMap<Vec<(ModelId, u32)>, Weights>,
}

impl<'a> Tensors<'a> {
    pub fn new(program: &'a Program, test: &'a Test) -> Tensors<'a> {
        let values = test.locals.iter().map(|_| None).collect();
        Tensors { program, test, values, weights: BTreeMap::new() }
    }

    fn seed(&self) -> u64 {
        self.program.job.as_ref().map_or(0, |job| job.seed)
    }

    /// A step that gives a tensor.
    pub fn step(&mut self, step: &TestStep) -> Result<()> {
        match step {
            TestStep::Let(binding) => {
                let value = self.value(&binding.value)?;
                match &binding.pattern {
                    Pattern::One(local) => self.set(*local, value),
                    Pattern::Split(locals) => {
                        let axis = value.shape.len().saturating_sub(1);
                        for (i, local) in locals.iter().enumerate() {
                            let part = value.at(axis, i as u64);
                            self.set(*local, part.ok_or_else(|| lost(binding.value.span))?);
                        }
                    }
                }
            }
            TestStep::Random { local, dtype, shape, below, span } => {
                let n = shape.iter().product::<u64>() as usize;
                let data = self.random(local.0, *dtype, n, *below);
                let data = data.ok_or_else(|| lost(*span))?;
                self.set(*local, Tensor { shape: shape.clone(), data });
            }
            TestStep::Replace { local, x, from_end, at, with, span } => {
                let mut value = self.value(x)?;
                value.replace(*from_end, *at, *with).ok_or_else(|| lost(*span))?;
                self.set(*local, value);
            }
            TestStep::At { local, x, from_end, at, span } => {
                let value = self.value(x)?.at(*from_end, *at);
                self.set(*local, value.ok_or_else(|| lost(*span))?);
            }
            TestStep::Fit { .. } | TestStep::Plan { .. } | TestStep::Assert { .. } => {}
        }
        Ok(())
    }

    fn set(&mut self, local: LocalId, value: Tensor) {
        if let Some(slot) = self.values.get_mut(local.0 as usize) {
            *slot = Some(value);
        }
    }

    /// A function of the seed, the test's name and the number of the tensor in the test.
    fn random(&self, number: u32, dtype: DType, n: usize, below: Option<u64>) -> Option<Data> {
        let name = format!("test {}/{number}", self.test.name);
        let Some(below) = below else {
            let mut out = vec![0.0; n];
            init::fill(&Init::Normal(1.0), self.seed(), &name, &[n as u64], &mut out).ok()?;
            return Some(Data::F32(out));
        };
        let stream = name_hash(&name);
        let word = |i: usize| {
            let block = random4(self.seed(), Purpose::Test, stream, i as u64 / 4);
            (u64::from(block[i % 4]) * below) >> 32
        };
        Some(match dtype {
            DType::I32 => Data::I32((0..n).map(|i| word(i) as i32).collect()),
            DType::F32 => Data::F32((0..n).map(|i| word(i) as f32).collect()),
        })
    }

    /// The value of an expression.
    pub fn value(&mut self, expr: &Expr) -> Result<Tensor> {
        let single = single(self.program, &self.test.locals, expr)?;
        let failed = |e: ExecError| failure(expr.span, &e);
        let isa = Isa::detect().map_err(|e| failure(expr.span, &e))?;
        let columns = self.columns(&single, expr.span)?;
        let mut lane = Lane::new(&single.program, isa).map_err(failed)?;
        let weights = self.initial(&single, expr.span)?;
        let nodes = 0..single.program.graph.nodes.len();
        lane.run(nodes, 1, weights, &columns, &mut []).map_err(failed)?;
        let shape = single.program.graph.node(single.result).shape.at(1);
        let shape = shape.iter().map(|n| *n as u64).collect();
        let data = self.read(&single, &lane).ok_or_else(|| lost(expr.span))?;
        Ok(Tensor { shape, data })
    }

    fn columns(&self, single: &Single, span: Span) -> Result<Columns> {
        let columns = &single.program.columns;
        let mut out = Columns::new(columns, 1).map_err(|e| failure(span, &e))?;
        for (i, local) in single.locals.iter().enumerate() {
            let value = self.values.get(local.0 as usize).and_then(Option::as_ref);
            match value.map(|v| &v.data) {
                Some(Data::F32(v)) => {
                    let room = out.f32_mut(i).filter(|r| r.len() == v.len());
                    room.ok_or_else(|| lost(span))?.copy_from_slice(v);
                }
                Some(Data::I32(v)) => {
                    let room = out.i32_mut(i).filter(|r| r.len() == v.len());
                    room.ok_or_else(|| lost(span))?.copy_from_slice(v);
                }
                None => return Err(lost(span).into()),
            }
        }
        Ok(out)
    }

    /// The weights that a program reads, as a run begins with them.
    fn initial(&mut self, single: &Single, span: Span) -> Result<&Weights> {
        let seed = self.seed();
        if !self.weights.contains_key(&single.weights) {
            let find = |(model, i): &(ModelId, u32)| {
                self.program.model(*model)?.weights.get(*i as usize).cloned()
            };
            let wanted: Option<Vec<Weight>> = single.weights.iter().map(find).collect();
            let wanted = wanted.ok_or_else(|| lost(span))?;
            let values = monarch_worker::initial_weights(&wanted, seed);
            let values = values.map_err(|e| failure(span, &e))?;
            self.weights.insert(single.weights.clone(), values);
        }
        Ok(self.weights.get(&single.weights).ok_or_else(|| lost(span))?)
    }

    /// The elements of the result.
    fn read(&self, single: &Single, lane: &Lane) -> Option<Data> {
        let node = single.program.graph.node(single.result);
        if let Some(words) = lane.values(single.result, 1) {
            return Some(match node.dtype {
                DType::F32 => Data::F32(words.to_vec()),
                // The words of an arena hold either kind, bit by bit.
                DType::I32 => Data::I32(words.iter().map(|w| w.to_bits() as i32).collect()),
            });
        }
        // The expression is a local, perhaps in another shape.
        let mut id: NodeId = single.result;
        while let Some(Place::Alias(of)) = single.program.memory.places.get(id.index()) {
            id = *of;
        }
        let Op::Column(c) = single.program.graph.node(id).op else { return None };
        let local = single.locals.get(c as usize)?;
        self.values.get(local.0 as usize)?.as_ref().map(|t| t.data.clone())
    }
}

fn failure(span: Span, why: &dyn std::fmt::Display) -> Diagnostic {
    Diagnostic::error("M1005", format!("this could not be computed: {why}"))
        .label(span, "computed here")
}

/// A fault of ours.
fn lost(span: Span) -> Diagnostic {
    failure(span, &"its value was lost; this is a fault of monarch: please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered() -> Tensor {
        Tensor { shape: vec![2, 3, 2], data: Data::F32((0..12).map(|i| i as f32).collect()) }
    }

    #[test]
    fn slices() {
        let x = numbered();
        let slice = |from_end, at| x.at(from_end, at).map(|t| (t.shape, t.data));
        assert_eq!(slice(0, 1), Some((vec![2, 3], Data::F32(vec![1., 3., 5., 7., 9., 11.]))));
        assert_eq!(slice(1, 2), Some((vec![2, 2], Data::F32(vec![4., 5., 10., 11.]))));
        assert_eq!(slice(2, 0).map(|s| s.0), Some(vec![3, 2]));
        assert_eq!(slice(3, 0), None);
        let mut y = numbered();
        y.replace(1, 1, -1.0);
        let want = [0., 1., -1., -1., 4., 5., 6., 7., -1., -1., 10., 11.];
        assert_eq!(y.data, Data::F32(want.to_vec()));
    }
}
