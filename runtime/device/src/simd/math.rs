//! exp, log, tanh, the logistic and the normal distribution, by polynomials of our own.
//!
//! Coefficients are minimax fits (Remez exchange in 40 digits) to the functions named; the errors
//! given are theirs, before rounding.

// Coefficients stand as the fits gave them.
#![allow(clippy::excessive_precision)]

use super::{Lanes, LanesExt};

/// ln 2 in two parts: the first has trailing zeros, so that n * LN2_HIGH is exact.
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2, relative error of exp 5e-11.
const EXP: [f32; 6] = [
    5.0e-1,
    1.666_666_567e-1,
    4.166_629_165e-2,
    8.333_498_612e-3,
    1.394_494_204e-3,
    1.979_007_939e-4,
];

/// exp(x), within 2 ulp; 0 below -104, infinite above 88.73.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    // In this order of arguments `max` and `min` pass NaN on.
    let x = L::splat(-105.0).max(L::splat(89.5).min(x));
    let n = (x * L::splat(std::f32::consts::LOG2_E)).round();
    let r = (-n).fma(L::splat(LN2_HIGH), x);
    let r = (-n).fma(L::splat(LN2_LOW), r);
    let tail = (r * r).fma(r.poly(&EXP), r);
    (tail + L::splat(1.0)).scale2(n)
}

/// (log(1 + f) - f + f^2/2) / f^3 for f in [sqrt(1/2) - 1, sqrt(2) - 1], error of log 7e-10.
const LOG: [f32; 9] = [
    3.333_331_048e-1,
    -2.499_998_510e-1,
    2.000_224_441e-1,
    -1.666_935_980e-1,
    1.421_832_740e-1,
    -1.238_211_915e-1,
    1.187_348_291e-1,
    -1.180_410_236e-1,
    6.931_640_953e-2,
];

/// Natural logarithm, within 2 ulp; -inf at 0, NaN below.
#[inline(always)]
pub(crate) fn log<L: Lanes>(x: L) -> L {
    let tiny = x.lt(L::splat(f32::MIN_POSITIVE));
    let scaled = L::select(tiny, x * L::splat(16_777_216.0), x);
    let (e, m) = scaled.split2();
    let e = L::select(tiny, e - L::splat(24.0), e);
    let f = m - L::splat(1.0);
    let square = f * f;
    let tail = (f * square) * f.poly(&LOG);
    let tail = e.fma(L::splat(LN2_LOW), tail);
    let tail = L::splat(-0.5).fma(square, tail);
    let value = e.fma(L::splat(LN2_HIGH), f + tail);
    // inf and NaN stay, 0 gives -inf, what is below gives NaN.
    let value = L::select(x.lt(L::splat(f32::INFINITY)), value, x);
    let value = L::select(x.eq(L::zero()), L::splat(f32::NEG_INFINITY), value);
    L::select(x.lt(L::zero()), L::splat(f32::NAN), value)
}

/// (tanh(x)/x - 1) / x^2 in x^2, for |x| < 0.625, error 4e-9.
const TANH: [f32; 5] =
    [-3.333_328_366e-1, 1.333_149_076e-1, -5.374_338_478e-2, 2.065_019_868e-2, -5.716_590_676e-3];

/// tanh(x), within 2 ulp: a polynomial near 0, 1 - 2/(exp(2x) + 1) beyond.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(x: L) -> L {
    let size = x.abs();
    let square = x * x;
    let near = (x * square).fma(square.poly(&TANH), x);
    let far = L::splat(1.0) - L::splat(2.0) / (exp(size + size) + L::splat(1.0));
    let far = L::select(x.lt(L::zero()), -far, far);
    L::select(size.lt(L::splat(0.625)), near, far)
}

/// 1 / (1 + exp(-x)).
#[inline(always)]
pub(crate) fn sigmoid<L: Lanes>(x: L) -> L {
    L::splat(1.0) / (L::splat(1.0) + exp(-x))
}

/// With t = 1/(1 + |x|/sqrt(8)) and u = t - 1/2: erfc(|x|/sqrt(2)) / 2 = exp(-x^2/2) * t * this,
/// relative error 3e-9.
const TAIL: [f32; 11] = [
    2.553_956_807e-1,
    3.435_803_354e-1,
    2.794_717_848e-1,
    7.288_347_930e-2,
    -8.602_337_539e-2,
    -5.180_391_669e-2,
    4.900_747_165e-2,
    2.658_390_626e-2,
    -3.792_306_408e-2,
    -5.817_398_895e-3,
    1.758_571_528e-2,
];

/// Distribution function and density of the standard normal, both with a small relative error
/// (also far out on the left, where the first is tiny).
#[inline(always)]
pub(crate) fn normal<L: Lanes>(x: L) -> (L, L) {
    let square = x * x;
    // What rounding took from x^2 still counts after exp when x is large.
    let lost = x.fma(x, -square);
    let lost = L::select(square.lt(L::splat(400.0)), lost, L::zero());
    let bell = exp(square * L::splat(-0.5));
    let bell = (bell * lost).fma(L::splat(-0.5), bell);
    let t = L::splat(1.0) / x.abs().fma(L::splat(0.353_553_4), L::splat(1.0));
    let tail = (bell * t) * (t - L::splat(0.5)).poly(&TAIL);
    let below = L::select(x.lt(L::zero()), tail, L::splat(1.0) - tail);
    (below, bell * L::splat(0.398_942_3))
}
