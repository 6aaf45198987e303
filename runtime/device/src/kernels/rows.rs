//! Operations along the last axis: softmax, cross-entropy, norms. Each row is read from the
//! first-level cache after its first pass.

use super::index::{BadId, class};
use super::reduce::{Dot, SquaresAbout, Sum, fold, largest};
use crate::simd::math::{exp, log};
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};

/// What is done to each row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RowOp {
    Softmax,
    RmsNorm {
        eps: f32,
    },
    LayerNorm {
        eps: f32,
    },
    /// x is the softmax, y its dy.
    SoftmaxGrad,
    RmsNormGrad {
        eps: f32,
    },
    LayerNormGrad {
        eps: f32,
    },
}

/// Applies `op` to each row of `width` elements; y is x where the operation has one input.
pub(crate) fn rows(isa: Isa, op: RowOp, width: usize, x: &[f32], y: &[f32], out: &mut [f32]) {
    if width > 0 {
        isa.call(Rows { op, width, x, y, out });
    }
}

struct Rows<'a> {
    op: RowOp,
    width: usize,
    x: &'a [f32],
    y: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Rows { op, width, x, y, out } = self;
        let lines = x.chunks_exact(width).zip(y.chunks_exact(width));
        for ((x, y), out) in lines.zip(out.chunks_exact_mut(width)) {
            match op {
                RowOp::Softmax => {
                    softmax::<L>(x, out);
                }
                RowOp::SoftmaxGrad => {
                    let dot = fold::<L>(Dot, x, y);
                    softmax_grad::<L>(x, y, dot, out);
                }
                RowOp::RmsNorm { eps } => {
                    let r = 1.0 / (fold::<L>(Dot, x, x) / width as f32 + eps).sqrt();
                    line::<L>(0.0, r, x, out);
                }
                RowOp::RmsNormGrad { eps } => {
                    let r = 1.0 / (fold::<L>(Dot, x, x) / width as f32 + eps).sqrt();
                    let slant = fold::<L>(Dot, x, y) / width as f32 * r * r;
                    norm_grad::<L>(Norm { mean: 0.0, r, flat: 0.0, slant }, x, y, out);
                }
                RowOp::LayerNorm { eps } => {
                    let (mean, r) = moments::<L>(x, eps);
                    line::<L>(mean, r, x, out);
                }
                RowOp::LayerNormGrad { eps } => layer_grad::<L>(x, y, eps, out),
            }
        }
    }
}

/// Mean and 1/sqrt(var + eps), in two passes.
#[inline(always)]
fn moments<L: Lanes>(x: &[f32], eps: f32) -> (f32, f32) {
    let mean = fold::<L>(Sum, x, x) / x.len() as f32;
    let var = fold::<L>(SquaresAbout(mean), x, x) / x.len() as f32;
    (mean, 1.0 / (var + eps).sqrt())
}

/// (x - mean) * r.
#[inline(always)]
fn line<L: Lanes>(mean: f32, r: f32, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
        ((L::load_some(x, 0.0) - L::splat(mean)) * L::splat(r)).store_some(out);
    }
}

/// What the derivative of a norm needs of its row.
struct Norm {
    mean: f32,
    /// 1 / deviation.
    r: f32,
    /// Mean of dy, where the mean is taken out.
    flat: f32,
    /// Mean of dy * (x - mean), times r^2.
    slant: f32,
}

/// r * (dy - flat - (x - mean) * slant).
#[inline(always)]
fn norm_grad<L: Lanes>(norm: Norm, x: &[f32], dy: &[f32], out: &mut [f32]) {
    let lines = x.chunks(LANES).zip(dy.chunks(LANES));
    for ((x, dy), out) in lines.zip(out.chunks_mut(LANES)) {
        let d = L::load_some(x, 0.0) - L::splat(norm.mean);
        let rest = (-d).fma(L::splat(norm.slant), L::load_some(dy, 0.0) - L::splat(norm.flat));
        (rest * L::splat(norm.r)).store_some(out);
    }
}

#[inline(always)]
fn layer_grad<L: Lanes>(x: &[f32], dy: &[f32], eps: f32, out: &mut [f32]) {
    let width = x.len() as f32;
    let (mean, r) = moments::<L>(x, eps);
    let flat = fold::<L>(Sum, dy, dy) / width;
    // x - mean first: x itself may be large against its deviation.
    let slant = fold::<L>(DotAbout(mean), x, dy) / width * r * r;
    norm_grad::<L>(Norm { mean, r, flat, slant }, x, dy, out);
}

/// sum of (x - mean) * y.
struct DotAbout(f32);

impl super::reduce::Fold for DotAbout {
    #[inline(always)]
    fn step<L: Lanes>(&self, sum: L, x: L, y: L) -> L {
        (x - L::splat(self.0)).fma(y, sum)
    }
}

/// Softmax of one row; returns (largest element, sum of exponentials relative to it).
#[inline(always)]
fn softmax<L: Lanes>(x: &[f32], out: &mut [f32]) -> (f32, f32) {
    let (top, sum) = exponentials::<L>(x, out);
    let r = L::splat(1.0 / sum);
    for out in out.chunks_mut(LANES) {
        (L::load_some(out, 0.0) * r).store_some(out);
    }
    (top, sum)
}

/// out = exp(x - top), and their sum.
#[inline(always)]
fn exponentials<L: Lanes>(x: &[f32], out: &mut [f32]) -> (f32, f32) {
    let top = largest::<L>(x);
    let mut sums = [L::zero(); 4];
    for (x, out) in x.chunks(4 * LANES).zip(out.chunks_mut(4 * LANES)) {
        let lines = x.chunks(LANES).zip(out.chunks_mut(LANES));
        for (sum, (x, out)) in sums.iter_mut().zip(lines) {
            let e = exp(L::load_some(x, f32::NEG_INFINITY) - L::splat(top));
            e.store_some(out);
            *sum = *sum + e;
        }
    }
    (top, ((sums[0] + sums[1]) + (sums[2] + sums[3])).fold_sum())
}

/// y * (dy - dot).
#[inline(always)]
fn softmax_grad<L: Lanes>(y: &[f32], dy: &[f32], dot: f32, out: &mut [f32]) {
    let lines = y.chunks(LANES).zip(dy.chunks(LANES));
    for ((y, dy), out) in lines.zip(out.chunks_mut(LANES)) {
        let (y, dy) = (L::load_some(y, 0.0), L::load_some(dy, 0.0));
        (y * (dy - L::splat(dot))).store_some(out);
    }
}

/// Loss of each row of logits: log(sum of exp(x - top)) + (top - x[target]).
pub(crate) fn cross_entropy(
    isa: Isa,
    width: usize,
    logits: &[f32],
    targets: &[i32],
    out: &mut [f32],
) -> Result<(), BadId> {
    isa.call(CrossEntropy { width, logits, targets, out })
}

struct CrossEntropy<'a> {
    width: usize,
    logits: &'a [f32],
    targets: &'a [i32],
    out: &'a mut [f32],
}

impl Kernel for CrossEntropy<'_> {
    type Output = Result<(), BadId>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Result<(), BadId> {
        let rows = self.logits.chunks_exact(self.width.max(1));
        for ((row, out), x) in self.out.iter_mut().enumerate().zip(rows) {
            let target = class(self.targets, row, self.width)?;
            let top = largest::<L>(x);
            let sum = fold::<L>(Exponentials(top), x, x);
            *out = log_of::<L>(sum) + (top - x[target]);
        }
        Ok(())
    }
}

/// log of the sum of exponentials of each row.
pub(crate) fn log_sum_exp(isa: Isa, width: usize, x: &[f32], out: &mut [f32]) {
    if width > 0 {
        isa.call(LogSumExp { width, x, out });
    }
}

struct LogSumExp<'a> {
    width: usize,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for LogSumExp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (x, out) in self.x.chunks_exact(self.width).zip(self.out) {
            let top = largest::<L>(x);
            *out = log_of::<L>(fold::<L>(Exponentials(top), x, x)) + top;
        }
    }
}

/// sum of exp(x - top).
struct Exponentials(f32);

impl super::reduce::Fold for Exponentials {
    #[inline(always)]
    fn pad(&self) -> f32 {
        f32::NEG_INFINITY
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, sum: L, x: L, _: L) -> L {
        sum + exp(x - L::splat(self.0))
    }
}

#[inline(always)]
fn log_of<L: Lanes>(x: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    log(L::splat(x)).store(&mut lanes);
    lanes[0]
}

/// (softmax(logits) - one-hot(target)) * dy.
pub(crate) fn cross_entropy_grad(
    isa: Isa,
    width: usize,
    logits: &[f32],
    targets: &[i32],
    dy: &[f32],
    out: &mut [f32],
) -> Result<(), BadId> {
    isa.call(CrossEntropyGrad { width, logits, targets, dy, out })
}

struct CrossEntropyGrad<'a> {
    width: usize,
    logits: &'a [f32],
    targets: &'a [i32],
    dy: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for CrossEntropyGrad<'_> {
    type Output = Result<(), BadId>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Result<(), BadId> {
        let width = self.width.max(1);
        let rows = self.logits.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for ((row, &dy), (x, out)) in self.dy.iter().enumerate().zip(rows) {
            let target = class(self.targets, row, self.width)?;
            softmax::<L>(x, out);
            out[target] -= 1.0;
            for out in out.chunks_mut(LANES) {
                (L::load_some(out, 0.0) * L::splat(dy)).store_some(out);
            }
        }
        Ok(())
    }
}
