//! One node, ready to launch: all shape work is done.

use crate::gemm::Gemm;
use crate::kernels::across::{self, Across};
use crate::kernels::copy::{Strided, causal};
use crate::kernels::dropout::Dropout;
use crate::kernels::index::{self, BadId};
use crate::kernels::map;
use crate::kernels::reduce::{Reduce, argmax};
use crate::kernels::rope::Rope;
use crate::kernels::rows::{self, RowOp};
use crate::kernels::window::{self, Windows};
use crate::memory::{Memory, Place};
use crate::simd::Isa;
use monarch_graph::{BinaryOp, CompareOp, Draw, Span, UnaryOp};

#[derive(Debug)]
pub(super) struct Step {
    pub(super) launch: Launch,
    pub(super) out: Place,
    pub(super) inputs: Vec<Place>,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) enum Launch {
    /// Nothing to do: an input, an alias.
    Given,
    /// Never computed.
    None,
    Fill(f32),
    FillInt(i32),
    Unary(UnaryOp),
    UnaryGrad(UnaryOp),
    Affine {
        mul: f64,
        add: f64,
    },
    Binary(BinaryOp),
    BinaryInt(BinaryOp),
    Compare(CompareOp),
    CompareInt(CompareOp),
    ToFloat,
    /// One copy per input; `zero` clears the result first.
    Copies {
        copies: Vec<Strided>,
        zero: bool,
    },
    Reduce(Reduce),
    ArgMax {
        length: usize,
        inner: usize,
    },
    Gemm(Box<Gemm>),
    Rows {
        op: RowOp,
        width: usize,
    },
    Across(Across),
    Causal {
        rows: usize,
        columns: usize,
        fill: f32,
    },
    CrossEntropy {
        width: usize,
    },
    CrossEntropyGrad {
        width: usize,
    },
    Gather {
        rows: usize,
        width: usize,
    },
    ScatterAdd {
        rows: usize,
        width: usize,
    },
    Rope(Box<Rope>),
    Dropout(Dropout),
    LogSumExp(Across),
    Unfold {
        windows: Box<Windows>,
        fill: f32,
    },
    Fold(Box<Windows>),
}

impl Step {
    pub(super) fn is_none(&self) -> bool {
        matches!(self.launch, Launch::None)
    }

    pub(super) fn run(
        &self,
        isa: Isa,
        memory: &mut Memory,
        scratch: &mut [f32],
        draw: Draw,
    ) -> Result<(), BadId> {
        if matches!(self.launch, Launch::Given | Launch::None) || self.out.length == 0 {
            return Ok(());
        }
        let (out, x) = memory.open(self.out, &self.inputs);
        match &self.launch {
            Launch::Given | Launch::None => {}
            Launch::Fill(value) => out.f32().fill(*value),
            Launch::FillInt(value) => out.i32().fill(*value),
            Launch::Unary(op) => map::unary(isa, *op, x.f32(0), out.f32()),
            Launch::UnaryGrad(op) => map::unary_grad(isa, *op, x.f32(0), x.f32(1), out.f32()),
            Launch::Affine { mul, add } => map::affine(isa, *mul, *add, x.f32(0), out.f32()),
            Launch::Binary(op) => map::binary(isa, *op, x.f32(0), x.f32(1), out.f32()),
            Launch::BinaryInt(op) => map::binary_int(*op, x.i32(0), x.i32(1), out.i32()),
            Launch::Compare(op) => map::compare(isa, *op, x.f32(0), x.f32(1), out.f32()),
            Launch::CompareInt(op) => map::compare_int(*op, x.i32(0), x.i32(1), out.f32()),
            Launch::ToFloat => map::to_float(x.i32(0), out.f32()),
            Launch::Copies { copies, zero } => {
                let out = out.f32();
                if *zero {
                    out.fill(0.0);
                }
                for (input, copy) in copies.iter().enumerate() {
                    copy.run(isa, x.f32(input), out);
                }
            }
            Launch::Reduce(reduce) => reduce.run(isa, x.f32(0), out.f32()),
            Launch::ArgMax { length, inner } => argmax(x.f32(0), *length, *inner, out.i32()),
            Launch::Gemm(gemm) => gemm.run(isa, x.f32(0), x.f32(1), out.f32(), scratch),
            Launch::Rows { op, width } => {
                let y = x.f32(x.len().min(2) - 1);
                rows::rows(isa, *op, *width, x.f32(0), y, out.f32());
            }
            Launch::Across(axis) => {
                let dy = (x.len() > 1).then(|| x.f32(1));
                across::softmax(isa, *axis, x.f32(0), dy, out.f32());
            }
            Launch::Causal { rows, columns, fill } => {
                causal(x.f32(0), *rows, *columns, *fill, out.f32());
            }
            Launch::CrossEntropy { width } => {
                rows::cross_entropy(isa, *width, x.f32(0), x.i32(1), out.f32())?;
            }
            Launch::CrossEntropyGrad { width } => {
                let (logits, targets, dy) = (x.f32(0), x.i32(1), x.f32(2));
                rows::cross_entropy_grad(isa, *width, logits, targets, dy, out.f32())?;
            }
            Launch::Gather { rows, width } => {
                index::gather(x.f32(0), *rows, *width, x.i32(1), out.f32())?;
            }
            Launch::ScatterAdd { rows, width } => {
                index::scatter_add(isa, x.i32(0), x.f32(1), *rows, *width, out.f32())?;
            }
            Launch::Rope(rope) => rope.run(isa, x.f32(0), out.f32()),
            Launch::LogSumExp(axis) if axis.inner == 1 => {
                rows::log_sum_exp(isa, axis.length, x.f32(0), out.f32());
            }
            Launch::LogSumExp(axis) => across::log_sum_exp(isa, *axis, x.f32(0), out.f32()),
            Launch::Unfold { windows, fill } => {
                window::unfold(windows, *fill, x.f32(0), out.f32());
            }
            Launch::Fold(windows) => window::fold(isa, windows, x.f32(0), out.f32()),
            Launch::Dropout(dropout) => dropout.run(isa, draw, x.f32(0), out.f32()),
        }
        Ok(())
    }
}
