//! From a graph with lengths per sample to launches with numbers: every shape, place and dtype
//! is checked here, once per size of shard, so that launching needs to check nothing.

use super::ExecError;
use super::step::{Launch, Step};
use crate::buffers::{Columns, Weights};
use crate::gemm::Gemm;
use crate::kernels::copy::{MAX_AXES, Strided};
use crate::kernels::rope::Tables;
use crate::kernels::rows::RowOp;
use crate::memory::{Area, Place};
use monarch_graph::{self as graph, BinaryOp, DType, Node, Op, Program};

/// A program for shards of one size.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) samples: u64,
    pub(super) steps: Vec<Step>,
    /// Floats of scratch that its products need.
    pub(super) scratch: usize,
    /// Elements that each weight must have, where the program reads it.
    weights: Vec<(usize, usize)>,
    /// dtype and elements that each column must have.
    columns: Vec<(usize, DType, usize)>,
    slab: usize,
}

impl Prepared {
    pub(super) fn new(
        program: &Program,
        samples: u64,
        tables: &mut Tables,
    ) -> Result<Prepared, ExecError> {
        let mut out = Prepared {
            samples,
            steps: Vec::with_capacity(program.graph.nodes.len()),
            scratch: 0,
            weights: Vec::new(),
            columns: Vec::new(),
            slab: 0,
        };
        for (index, node) in program.graph.nodes.iter().enumerate() {
            let step = out
                .step(program, index, node, tables)
                .map_err(|problem| ExecError::Program { node: index, span: node.span, problem })?;
            out.steps.push(step);
        }
        Ok(out)
    }

    fn step(
        &mut self,
        program: &Program,
        index: usize,
        node: &Node,
        tables: &mut Tables,
    ) -> Result<Step, String> {
        let elements = size(&node.shape.at(self.samples))?;
        let out = self.place(program, index, node, elements)?;
        let Some(out) = out else {
            let out = Place { area: Area::Arena, start: 0, length: 0 };
            return Ok(Step { launch: Launch::None, out, inputs: Vec::new(), span: node.span });
        };
        let given = matches!(program.memory.places[index], graph::Place::Alias(_));
        if given || matches!(node.op, Op::Weight(_) | Op::Column(_)) {
            return Ok(Step { launch: Launch::Given, out, inputs: Vec::new(), span: node.span });
        }
        let mut shapes = Vec::new();
        let mut dtypes = Vec::new();
        let mut inputs = Vec::new();
        for id in &node.inputs {
            let (Some(step), Some(input)) =
                (self.steps.get(id.index()), program.graph.nodes.get(id.index()))
            else {
                return Err(format!("input {} does not come before it", id.0));
            };
            if step.is_none() {
                return Err(format!("input {} is never computed", id.0));
            }
            if step.out.overlaps(out) && out.length > 0 {
                return Err(format!("its memory overlaps that of its input {}", id.0));
            }
            inputs.push(step.out);
            shapes.push(input.shape.at(self.samples));
            dtypes.push(input.dtype);
        }
        let shape = node.shape.at(self.samples);
        let job = Job { node, shape: &shape, shapes: &shapes, dtypes: &dtypes };
        let launch = job.launch(tables)?;
        if let Launch::Gemm(gemm) = &launch {
            self.scratch = self.scratch.max(gemm.scratch());
        }
        Ok(Step { launch, out, inputs, span: node.span })
    }

    /// Where the node's result lies; None for one that is never computed.
    fn place(
        &mut self,
        program: &Program,
        index: usize,
        node: &Node,
        length: usize,
    ) -> Result<Option<Place>, String> {
        let at = |area, start: u64| Place { area, start: start as usize, length };
        let place = match (program.memory.places[index], &node.op) {
            (graph::Place::None, _) => return Ok(None),
            (graph::Place::Weight(w), Op::Weight(number)) if w == *number => {
                self.weights.push((w as usize, length));
                at(Area::Weight(w as usize), 0)
            }
            (graph::Place::Column(c), Op::Column(number)) if c == *number => {
                self.columns.push((c as usize, node.dtype, length));
                at(Area::Column(c as usize), 0)
            }
            (_, Op::Weight(_) | Op::Column(_)) => {
                return Err("a weight or a column must lie in its own buffer".into());
            }
            (graph::Place::Arena(start), _) => {
                let end = start.checked_add(length as u64);
                if end.is_none_or(|end| end > program.memory.arena) {
                    return Err(format!("{length} elements at {start} do not fit the arena"));
                }
                at(Area::Arena, start)
            }
            (graph::Place::Gradient(start), _) => {
                let place = at(Area::Slab, start);
                self.slab = self.slab.max(place.end());
                place
            }
            (graph::Place::Alias(of), op) => {
                let other = self.steps.get(of.index()).filter(|s| !s.is_none());
                let same = other.is_some_and(|s| s.out.length == length);
                if !matches!(op, Op::Reshape) || !same {
                    return Err(format!("it cannot stand for node {}", of.0));
                }
                return Ok(other.map(|s| s.out));
            }
            (graph::Place::Weight(_) | graph::Place::Column(_), _) => {
                return Err("a result cannot lie in a weight or a column".into());
            }
        };
        Ok(Some(place))
    }

    /// Checks the buffers of a run.
    pub(super) fn fits(
        &self,
        weights: &Weights,
        columns: &Columns,
        slab: &[f32],
    ) -> Result<(), ExecError> {
        for &(w, length) in &self.weights {
            if weights.elements(w) != length {
                let found = weights.elements(w);
                return Err(ExecError::Buffer(format!(
                    "weight {w} has {found} elements; the program wants {length}"
                )));
            }
        }
        for &(c, dtype, length) in &self.columns {
            if columns.dtype(c) != Some(dtype) || columns.words(c).len() < length {
                let dtype = dtype.name();
                return Err(ExecError::Buffer(format!(
                    "column {c} must be {dtype} with room for {length} elements"
                )));
            }
        }
        if slab.len() < self.slab {
            let found = slab.len();
            return Err(ExecError::Buffer(format!(
                "a gradient slab of {found} elements; the program wants {}",
                self.slab
            )));
        }
        Ok(())
    }
}

pub(super) fn size(shape: &[usize]) -> Result<usize, String> {
    if shape.len() > MAX_AXES {
        return Err(format!("{} axes; at most {MAX_AXES}", shape.len()));
    }
    let product = shape.iter().try_fold(1usize, |n, &x| n.checked_mul(x));
    product.ok_or_else(|| format!("{shape:?} has too many elements"))
}

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

/// One node with the shapes of its inputs.
pub(super) struct Job<'a> {
    pub(super) node: &'a Node,
    pub(super) shape: &'a [usize],
    pub(super) shapes: &'a [Vec<usize>],
    dtypes: &'a [DType],
}

pub(super) type Planned = Result<Launch, String>;

impl Job<'_> {
    fn launch(&self, tables: &mut Tables) -> Planned {
        self.signature()?;
        match &self.node.op {
            Op::Weight(_) | Op::Column(_) => Ok(Launch::Given),
            Op::Const(v) if self.node.dtype == DType::I32 => Ok(Launch::FillInt(*v as i32)),
            Op::Const(v) => Ok(Launch::Fill(*v as f32)),
            Op::Unary(op) => self.alike(Launch::Unary(*op)),
            Op::UnaryGrad(op) => self.alike(Launch::UnaryGrad(*op)),
            Op::Affine { mul, add } => self.alike(Launch::Affine { mul: *mul, add: *add }),
            Op::Binary(op) => self.binary(*op),
            Op::Compare(op) => self.pair().map(|()| match self.dtypes[0] {
                DType::F32 => Launch::Compare(*op),
                DType::I32 => Launch::CompareInt(*op),
            }),
            Op::ToFloat => self.alike(Launch::ToFloat),
            Op::Broadcast { axes } => self.broadcast(axes),
            Op::Reshape => self.reshape(),
            Op::Permute(order) => self.permute(order),
            Op::Slice { axis, start } => self.slice(*axis, *start),
            Op::Unslice { axis, start } => self.unslice(*axis, *start),
            Op::Concat { axis } => self.concat(*axis),
            Op::Reduce { op, axes } => self.reduce(*op, axes),
            Op::ArgMax { axis } => self.argmax(*axis),
            Op::Einsum(einsum) => {
                let gemm = Gemm::new(einsum, &self.shapes[0], &self.shapes[1], self.shape)?;
                Ok(Launch::Gemm(Box::new(gemm)))
            }
            Op::Softmax { axis } => self.softmax(*axis, RowOp::Softmax),
            Op::SoftmaxGrad { axis } => self.softmax(*axis, RowOp::SoftmaxGrad),
            Op::Causal { fill } => self.causal(*fill),
            Op::CrossEntropy => self.cross_entropy(false),
            Op::CrossEntropyGrad => self.cross_entropy(true),
            Op::RmsNorm { eps } => self.norm(RowOp::RmsNorm { eps: *eps as f32 }),
            Op::RmsNormGrad { eps } => self.norm(RowOp::RmsNormGrad { eps: *eps as f32 }),
            Op::LayerNorm { eps } => self.norm(RowOp::LayerNorm { eps: *eps as f32 }),
            Op::LayerNormGrad { eps } => self.norm(RowOp::LayerNormGrad { eps: *eps as f32 }),
            Op::Gather => self.gather(),
            Op::ScatterAdd => self.scatter_add(),
            Op::LogSumExp { axis } => self.log_sum_exp(*axis),
            Op::Unfold { windows, fill } => self.unfold(windows, *fill as f32),
            Op::Fold(windows) => self.fold(windows),
            Op::Dropout { p, number } => self.dropout(*p, *number),
            Op::Rope { axis, angles, inverse } => self.rope(tables, *axis, *angles, *inverse),
        }
    }

    /// Number and dtypes of the inputs, and the dtype of the result.
    fn signature(&self) -> Result<(), String> {
        use DType::{F32, I32};
        let first = self.dtypes.first().copied().unwrap_or(F32);
        let (inputs, out): (Vec<DType>, DType) = match &self.node.op {
            Op::Weight(_) | Op::Column(_) | Op::Const(_) => (vec![], self.node.dtype),
            Op::Binary(_) => (vec![first; 2], first),
            Op::Compare(_) => (vec![first; 2], F32),
            Op::ToFloat => (vec![I32], F32),
            Op::Broadcast { .. } | Op::Reshape | Op::Permute(_) => (vec![first], first),
            Op::Slice { .. } | Op::Unslice { .. } => (vec![first], first),
            Op::Concat { .. } => (vec![first; self.dtypes.len().max(1)], first),
            Op::ArgMax { .. } => (vec![F32], I32),
            Op::UnaryGrad(_) | Op::Einsum(_) | Op::SoftmaxGrad { .. } => (vec![F32; 2], F32),
            Op::RmsNormGrad { .. } | Op::LayerNormGrad { .. } => (vec![F32; 2], F32),
            Op::CrossEntropy | Op::Gather => (vec![F32, I32], F32),
            Op::CrossEntropyGrad => (vec![F32, I32, F32], F32),
            Op::ScatterAdd => (vec![I32, F32], F32),
            _ => (vec![F32], F32),
        };
        if inputs != self.dtypes {
            return Err(format!("wants inputs {inputs:?}, has {:?}", self.dtypes));
        }
        if out != self.node.dtype {
            return Err(format!("makes {out:?}, is declared {:?}", self.node.dtype));
        }
        Ok(())
    }

    /// All shapes are the result's.
    pub(super) fn alike(&self, launch: Launch) -> Planned {
        match self.shapes.iter().find(|s| *s != self.shape) {
            None => Ok(launch),
            Some(other) => Err(format!("the shapes {other:?} and {:?} differ", self.shape)),
        }
    }

    /// One shape is a trailing part of the other, which is the result's.
    fn pair(&self) -> Result<(), String> {
        let (a, b) = (&self.shapes[0], &self.shapes[1]);
        let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        if long == self.shape && long.ends_with(short) {
            return Ok(());
        }
        Err(format!("{a:?} and {b:?} do not make {:?} by repeating along new axes", self.shape))
    }

    fn binary(&self, op: BinaryOp) -> Planned {
        self.pair()?;
        match (self.dtypes[0], op) {
            (DType::F32, op) => Ok(Launch::Binary(op)),
            (DType::I32, BinaryOp::Div) => Err("integers are not divided".into()),
            (DType::I32, op) => Ok(Launch::BinaryInt(op)),
        }
    }

    fn one_copy(&self, copy: Strided, zero: bool) -> Planned {
        Ok(Launch::Copies { copies: vec![copy], zero })
    }

    fn broadcast(&self, axes: &[u8]) -> Planned {
        let mut steps = strides(&self.shapes[0]).into_iter().zip(&self.shapes[0]);
        let mut from = Vec::new();
        for (i, &n) in self.shape.iter().enumerate() {
            if axes.iter().any(|&a| usize::from(a) == i) {
                from.push(0);
                continue;
            }
            match steps.next() {
                Some((stride, &length)) if length == n => from.push(stride),
                _ => {
                    return Err(format!(
                        "{:?} does not spread to {:?}",
                        self.shapes[0], self.shape
                    ));
                }
            }
        }
        if steps.next().is_some() || axes.iter().any(|&a| usize::from(a) >= self.shape.len()) {
            return Err(format!("{:?} does not spread to {:?}", self.shapes[0], self.shape));
        }
        self.one_copy(Strided::new(self.shape, &from, &strides(self.shape), 0, 0), false)
    }

    fn reshape(&self) -> Planned {
        let n = size(&self.shapes[0])?;
        if n != size(self.shape)? {
            return Err(format!("{:?} cannot be seen as {:?}", self.shapes[0], self.shape));
        }
        self.one_copy(Strided::new(&[n], &[1], &[1], 0, 0), false)
    }

    fn permute(&self, order: &[u8]) -> Planned {
        let x = &self.shapes[0];
        let mut seen = vec![false; x.len()];
        let mut from = Vec::new();
        let steps = strides(x);
        for (i, &axis) in order.iter().enumerate() {
            let axis = usize::from(axis);
            let fits = x.get(axis).is_some_and(|n| self.shape.get(i) == Some(n));
            if !fits || std::mem::replace(&mut seen[axis], true) {
                return Err(format!("{order:?} does not turn {x:?} into {:?}", self.shape));
            }
            from.push(steps[axis]);
        }
        if order.len() != x.len() || self.shape.len() != x.len() {
            return Err(format!("{order:?} does not name each axis of {x:?} once"));
        }
        self.one_copy(Strided::new(self.shape, &from, &strides(self.shape), 0, 0), false)
    }

    /// The part must agree with the whole but for `axis`, where it has room from `start` on.
    fn part(&self, part: &[usize], whole: &[usize], axis: u8, start: u64) -> Result<usize, String> {
        let axis = usize::from(axis);
        let start = start as usize;
        let alike = part.len() == whole.len()
            && part.iter().zip(whole).enumerate().all(|(i, (p, w))| i == axis || p == w);
        let fits = axis < part.len()
            && start.checked_add(part[axis]).is_some_and(|end| end <= whole[axis]);
        if !alike || !fits {
            return Err(format!("{part:?} is no part of {whole:?} from {start} on, axis {axis}"));
        }
        Ok(start * strides(whole)[axis])
    }

    fn slice(&self, axis: u8, start: u64) -> Planned {
        let x = &self.shapes[0];
        let source = self.part(self.shape, x, axis, start)?;
        let copy = Strided::new(self.shape, &strides(x), &strides(self.shape), source, 0);
        self.one_copy(copy, false)
    }

    fn unslice(&self, axis: u8, start: u64) -> Planned {
        let x = &self.shapes[0];
        let target = self.part(x, self.shape, axis, start)?;
        self.one_copy(Strided::new(x, &strides(x), &strides(self.shape), 0, target), true)
    }

    fn concat(&self, axis: u8) -> Planned {
        let mut start = 0;
        let mut copies = Vec::new();
        for x in self.shapes {
            let target = self.part(x, self.shape, axis, start)?;
            copies.push(Strided::new(x, &strides(x), &strides(self.shape), 0, target));
            start += x[usize::from(axis)] as u64;
        }
        if self.shape.get(usize::from(axis)).is_none_or(|&n| n as u64 != start) {
            return Err(format!("the parts have {start} elements along axis {axis}"));
        }
        Ok(Launch::Copies { copies, zero: false })
    }
}
