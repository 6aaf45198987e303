//! The slow, obviously right version of every operation, in float64.
//!
//! Nothing here is fast and nothing is shared with the fast kernels: it is what they are tested
//! against, and what derivatives are tested with by finite differences. It uses the machine's
//! libm, so its last bits differ between machines; it never takes part in a run.

mod dense;
mod elementwise;
mod moves;
pub mod special;

use monarch_graph::{DType, Draw, Graph, Node, Op, Span};
use std::fmt;

/// A dense row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: TensorData,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    F64(Vec<f64>),
    I64(Vec<i64>),
}

impl Tensor {
    pub fn floats(shape: &[usize], data: Vec<f64>) -> Tensor {
        Tensor { shape: shape.to_vec(), data: TensorData::F64(data) }
    }

    pub fn ints(shape: &[usize], data: Vec<i64>) -> Tensor {
        Tensor { shape: shape.to_vec(), data: TensorData::I64(data) }
    }

    /// Number of elements held.
    pub fn len(&self) -> usize {
        match &self.data {
            TensorData::F64(v) => v.len(),
            TensorData::I64(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are floating-point numbers.
    pub fn as_f64(&self) -> Option<&[f64]> {
        match &self.data {
            TensorData::F64(v) => Some(v),
            TensorData::I64(_) => None,
        }
    }

    /// The elements, if they are integers.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match &self.data {
            TensorData::I64(v) => Some(v),
            TensorData::F64(_) => None,
        }
    }
}

/// Why a graph could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefError {
    /// Index of the node that failed.
    pub node: usize,
    pub span: Span,
    pub problem: Problem,
}

/// What is wrong with one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The operation takes another number of inputs.
    Inputs { expected: usize, found: usize },
    /// An input that is not an earlier node.
    Order { input: usize },
    /// No weight or column of that number was given.
    Missing { what: &'static str, number: usize },
    /// An input of the wrong dtype.
    DType { input: usize },
    /// Lengths that do not go together.
    Shape(String),
    /// A row or class number outside its range.
    Id { id: i64, position: usize, limit: usize },
}

impl fmt::Display for RefError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: ", self.node)?;
        match &self.problem {
            Problem::Inputs { expected, found } => {
                write!(f, "takes {expected} inputs, has {found}")
            }
            Problem::Order { input } => write!(f, "input {input} does not come before it"),
            Problem::Missing { what, number } => write!(f, "{what} {number} was not given"),
            Problem::DType { input } => write!(f, "input {input} has the wrong dtype"),
            Problem::Shape(what) => f.write_str(what),
            Problem::Id { id, position, limit } => {
                write!(f, "id {id} at position {position} is outside 0..{limit}")
            }
        }
    }
}

impl std::error::Error for RefError {}

/// Evaluates `graph` for a shard of `samples` samples and returns the value of every node.
///
/// `weights` are numbered like `Op::Weight`, `columns` like `Op::Column` (first axis: samples).
pub fn eval(
    graph: &Graph,
    samples: u64,
    weights: &[Tensor],
    columns: &[Tensor],
) -> Result<Vec<Tensor>, RefError> {
    eval_drawn(graph, samples, weights, columns, Draw::default())
}

/// [`eval`] with the random numbers of `draw`.
pub fn eval_drawn(
    graph: &Graph,
    samples: u64,
    weights: &[Tensor],
    columns: &[Tensor],
    draw: Draw,
) -> Result<Vec<Tensor>, RefError> {
    let mut values: Vec<Tensor> = Vec::with_capacity(graph.nodes.len());
    for (index, node) in graph.nodes.iter().enumerate() {
        let fail = |problem| RefError { node: index, span: node.span, problem };
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for id in &node.inputs {
            let input = id.index();
            inputs.push(values.get(input).ok_or_else(|| fail(Problem::Order { input }))?);
        }
        let shape = node.shape.at(samples);
        let job = Job { node, shape: &shape, inputs: &inputs, draw };
        let value = job.run(weights, columns).map_err(fail)?;
        values.push(value);
    }
    Ok(values)
}

/// One node with its inputs' values.
struct Job<'a> {
    node: &'a Node,
    /// Concrete lengths of the result.
    shape: &'a [usize],
    inputs: &'a [&'a Tensor],
    draw: Draw,
}

type Value = Result<Tensor, Problem>;

impl<'a> Job<'a> {
    fn run(&self, weights: &[Tensor], columns: &[Tensor]) -> Value {
        self.arity()?;
        let value = match &self.node.op {
            Op::Weight(w) => self.given("weight", weights, *w),
            Op::Column(c) => self.given("column", columns, *c),
            Op::Const(v) => Ok(self.constant(*v)),
            Op::Unary(_)
            | Op::UnaryGrad(_)
            | Op::Affine { .. }
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::ToFloat => elementwise::run(self),
            Op::Broadcast { .. }
            | Op::Reshape
            | Op::Permute(_)
            | Op::Slice { .. }
            | Op::Unslice { .. }
            | Op::Concat { .. }
            | Op::Causal { .. }
            | Op::Gather
            | Op::ScatterAdd => moves::run(self),
            _ => dense::run(self),
        }?;
        let elements: usize = self.shape.iter().product();
        if value.len() != elements {
            let found = value.len();
            return self.wrong(format!("has {found} elements, its shape {:?}", self.shape));
        }
        Ok(Tensor { shape: self.shape.to_vec(), data: value.data })
    }

    fn arity(&self) -> Result<(), Problem> {
        let found = self.inputs.len();
        let expected = match &self.node.op {
            Op::Weight(_) | Op::Column(_) | Op::Const(_) => 0,
            Op::Concat { .. } => found.max(1),
            Op::UnaryGrad(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Einsum(_)
            | Op::SoftmaxGrad { .. }
            | Op::CrossEntropy
            | Op::RmsNormGrad { .. }
            | Op::LayerNormGrad { .. }
            | Op::Gather
            | Op::ScatterAdd => 2,
            Op::CrossEntropyGrad => 3,
            _ => 1,
        };
        if found == expected { Ok(()) } else { Err(Problem::Inputs { expected, found }) }
    }

    fn given(&self, what: &'static str, all: &[Tensor], number: u32) -> Value {
        let number = number as usize;
        all.get(number).cloned().ok_or(Problem::Missing { what, number })
    }

    fn constant(&self, value: f64) -> Tensor {
        let n = self.shape.iter().product();
        match self.node.dtype {
            DType::F32 => Tensor::floats(self.shape, vec![value; n]),
            DType::I32 => Tensor::ints(self.shape, vec![value as i64; n]),
        }
    }

    fn floats(&self, input: usize) -> Result<&'a [f64], Problem> {
        let tensor = self.inputs.get(input).copied();
        tensor.and_then(Tensor::as_f64).ok_or(Problem::DType { input })
    }

    fn ints(&self, input: usize) -> Result<&'a [i64], Problem> {
        let tensor = self.inputs.get(input).copied();
        tensor.and_then(Tensor::as_i64).ok_or(Problem::DType { input })
    }

    fn result(&self, data: Vec<f64>) -> Value {
        Ok(Tensor::floats(self.shape, data))
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Result<T, Problem> {
        Err(Problem::Shape(what.into()))
    }

    /// (outer, length, inner) of `axis` of input `input`.
    fn axis(&self, input: usize, axis: u8) -> Result<(usize, usize, usize), Problem> {
        let shape = &self.inputs[input].shape;
        let axis = usize::from(axis);
        match shape.get(axis) {
            Some(&n) => Ok((shape[..axis].iter().product(), n, shape[axis + 1..].iter().product())),
            None => self.wrong(format!("axis {axis} of a tensor of rank {}", shape.len())),
        }
    }

    /// Class or row numbers, each checked against `limit`.
    fn ids(&self, input: usize, limit: usize) -> Result<Vec<usize>, Problem> {
        let ids = self.ints(input)?.iter().enumerate();
        ids.map(|(position, &id)| match usize::try_from(id) {
            Ok(row) if row < limit => Ok(row),
            _ => Err(Problem::Id { id, position, limit }),
        })
        .collect()
    }
}

/// Row-major strides, in elements.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

/// All index vectors of `shape`, in row-major order.
fn each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut at = vec![0; shape.len()];
    loop {
        f(&at);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}
