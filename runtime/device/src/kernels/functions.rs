//! The elementwise functions and their derivatives.

use crate::simd::math::{exp, log, normal, sigmoid, tanh};
use crate::simd::{Lanes, LanesExt};

/// f(x), and dy * f'(x).
pub(crate) trait Function: Copy {
    fn value<L: Lanes>(x: L) -> L;
    fn slope<L: Lanes>(x: L, dy: L) -> L;
}

macro_rules! functions {
    ($($name:ident: $x:ident => $value:expr, ($y:ident, $dy:ident) => $slope:expr;)*) => {$(
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Function for $name {
            #[inline(always)]
            fn value<L: Lanes>($x: L) -> L {
                $value
            }

            #[inline(always)]
            fn slope<L: Lanes>($y: L, $dy: L) -> L {
                $slope
            }
        }
    )*};
}

functions! {
    Neg: x => -x, (_x, dy) => -dy;
    Exp: x => exp(x), (x, dy) => dy * exp(x);
    Log: x => log(x), (x, dy) => dy / x;
    Sqrt: x => x.sqrt(), (x, dy) => (dy * L::splat(0.5)) / x.sqrt();
    Rsqrt: x => L::splat(1.0) / x.sqrt(), (x, dy) => (dy * L::splat(-0.5)) / (x * x.sqrt());
    Square: x => x * x, (x, dy) => (dy + dy) * x;
    Abs: x => x.abs(), (x, dy) => abs_slope(x, dy);
    Recip: x => L::splat(1.0) / x, (x, dy) => -(dy / (x * x));
    Tanh: x => tanh(x), (x, dy) => tanh_slope(x, dy);
    Sigmoid: x => sigmoid(x), (x, dy) => sigmoid_slope(x, dy);
    Relu: x => L::zero().max(x), (x, dy) => L::select(L::zero().lt(x), dy, L::zero());
    Gelu: x => x * normal(x).0, (x, dy) => gelu_slope(x, dy);
    Softplus: x => softplus(x), (x, dy) => dy * sigmoid(x);
    Silu: x => x * sigmoid(x), (x, dy) => silu_slope(x, dy);
}

/// max(x, 0) + log(1 + e) with e = exp(-|x|); the logarithm is corrected for what rounding took
/// from 1 + e (Kahan), so that it stays right where it is tiny.
#[inline(always)]
fn softplus<L: Lanes>(x: L) -> L {
    let e = exp(-x.abs());
    let one = L::splat(1.0);
    let whole = one + e;
    let near = log(whole) * (e / (whole - one));
    let log1p = L::select(whole.eq(one), e, near);
    // In this order of arguments NaN passes through `max`.
    L::zero().max(x) + log1p
}

#[inline(always)]
fn abs_slope<L: Lanes>(x: L, dy: L) -> L {
    let signed = L::select(x.lt(L::zero()), -dy, dy);
    L::select(x.eq(L::zero()), L::zero(), signed)
}

/// 1 - tanh^2.
#[inline(always)]
fn tanh_slope<L: Lanes>(x: L, dy: L) -> L {
    let t = tanh(x);
    dy * (-t).fma(t, L::splat(1.0))
}

/// s (1 - s) = e / (1 + e)^2 with e = exp(-|x|): no cancellation far out.
#[inline(always)]
fn sigmoid_slope<L: Lanes>(x: L, dy: L) -> L {
    let e = exp(-x.abs());
    let q = L::splat(1.0) / (e + L::splat(1.0));
    dy * (e * (q * q))
}

/// Phi(x) + x phi(x).
#[inline(always)]
fn gelu_slope<L: Lanes>(x: L, dy: L) -> L {
    let (below, density) = normal(x);
    dy * x.fma(density, below)
}

/// s + x s (1 - s).
#[inline(always)]
fn silu_slope<L: Lanes>(x: L, dy: L) -> L {
    let s = sigmoid(x);
    let bend = x * (L::splat(1.0) - s);
    dy * s.fma(bend, s)
}
