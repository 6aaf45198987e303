//! Softmax and the log of a sum of exponentials along an axis that is not the last: vectorised
//! over the elements beside it.

use crate::simd::math::{exp, log};
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};

/// The axis in x: (outer, length, inner) with inner > 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Across {
    pub length: usize,
    pub inner: usize,
}

/// Softmax; with dy, its derivative (x is then the softmax).
pub(crate) fn softmax(isa: Isa, across: Across, x: &[f32], dy: Option<&[f32]>, out: &mut [f32]) {
    if across.length > 0 && across.inner > 0 {
        isa.call(Job { across, x, dy, out });
    }
}

struct Job<'a> {
    across: Across,
    x: &'a [f32],
    dy: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Across { length, inner } = self.across;
        let block = length * inner;
        for (o, out) in self.out.chunks_exact_mut(block).enumerate() {
            let x = &self.x[o * block..][..block];
            for i in (0..inner).step_by(LANES) {
                let wide = (inner - i).min(LANES);
                let at = |k: usize| k * inner + i..k * inner + i + wide;
                match self.dy {
                    None => value::<L>(x, out, length, at),
                    Some(dy) => slope::<L>(x, &dy[o * block..][..block], out, length, at),
                }
            }
        }
    }
}

#[inline(always)]
fn value<L: Lanes>(
    x: &[f32],
    out: &mut [f32],
    length: usize,
    at: impl Fn(usize) -> std::ops::Range<usize>,
) {
    let mut top = L::splat(f32::NEG_INFINITY);
    for k in 0..length {
        top = L::load_some(&x[at(k)], 0.0).max(top);
    }
    let mut sum = L::zero();
    for k in 0..length {
        let e = exp(L::load_some(&x[at(k)], 0.0) - top);
        e.store_some(&mut out[at(k)]);
        sum = sum + e;
    }
    let r = L::splat(1.0) / sum;
    for k in 0..length {
        (L::load_some(&out[at(k)], 0.0) * r).store_some(&mut out[at(k)]);
    }
}

#[inline(always)]
fn slope<L: Lanes>(
    y: &[f32],
    dy: &[f32],
    out: &mut [f32],
    length: usize,
    at: impl Fn(usize) -> std::ops::Range<usize>,
) {
    let mut dot = L::zero();
    for k in 0..length {
        dot = L::load_some(&y[at(k)], 0.0).fma(L::load_some(&dy[at(k)], 0.0), dot);
    }
    for k in 0..length {
        let (y, dy) = (L::load_some(&y[at(k)], 0.0), L::load_some(&dy[at(k)], 0.0));
        (y * (dy - dot)).store_some(&mut out[at(k)]);
    }
}

/// log of the sum of exponentials; the axis disappears.
pub(crate) fn log_sum_exp(isa: Isa, across: Across, x: &[f32], out: &mut [f32]) {
    if across.length > 0 && across.inner > 0 {
        isa.call(LogSumExp { across, x, out });
    }
}

struct LogSumExp<'a> {
    across: Across,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for LogSumExp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Across { length, inner } = self.across;
        let blocks = self.x.chunks_exact(length * inner);
        for (x, out) in blocks.zip(self.out.chunks_exact_mut(inner)) {
            for (i, out) in out.chunks_mut(LANES).enumerate() {
                let at = |k: usize| k * inner + i * LANES..k * inner + i * LANES + out.len();
                let mut top = L::splat(f32::NEG_INFINITY);
                for k in 0..length {
                    top = L::load_some(&x[at(k)], 0.0).max(top);
                }
                let mut sum = L::zero();
                for k in 0..length {
                    sum = sum + exp(L::load_some(&x[at(k)], 0.0) - top);
                }
                (log(sum) + top).store_some(out);
            }
        }
    }
}
