//! Elementwise operations.

use super::functions::{self, Function};
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};
use monarch_graph::{BinaryOp, CompareOp, UnaryOp};

/// y = f(x), lane by lane.
pub(crate) trait Map1: Copy {
    fn apply<L: Lanes>(&self, x: L) -> L;
}

/// z = f(x, y), lane by lane.
pub(crate) trait Map2: Copy {
    fn apply<L: Lanes>(&self, x: L, y: L) -> L;
}

struct Job1<'a, F> {
    f: F,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl<F: Map1> Kernel for Job1<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let (x, x_rest) = self.x.as_chunks::<LANES>();
        let (out, out_rest) = self.out.as_chunks_mut::<LANES>();
        for (x, out) in x.iter().zip(out) {
            self.f.apply(L::load(x)).store(out);
        }
        if !x_rest.is_empty() {
            self.f.apply(L::load_part(x_rest)).store_part(out_rest);
        }
    }
}

/// x and the result are as long as each other; y is repeated along them.
struct Job2<'a, F> {
    f: F,
    x: &'a [f32],
    y: &'a [f32],
    out: &'a mut [f32],
}

impl<F: Map2> Kernel for Job2<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Job2 { f, x, y, out } = self;
        if y.len() == 1 {
            return splat2::<L, F>(f, x, L::splat(y[0]), out);
        }
        if y.is_empty() {
            return;
        }
        for (x, out) in x.chunks_exact(y.len()).zip(out.chunks_exact_mut(y.len())) {
            both2::<L, F>(f, x, y, out);
        }
    }
}

#[inline(always)]
fn both2<L: Lanes, F: Map2>(f: F, x: &[f32], y: &[f32], out: &mut [f32]) {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (y, y_rest) = y.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for ((x, y), out) in x.iter().zip(y).zip(out) {
        f.apply(L::load(x), L::load(y)).store(out);
    }
    if !x_rest.is_empty() {
        f.apply(L::load_part(x_rest), L::load_part(y_rest)).store_part(out_rest);
    }
}

#[inline(always)]
fn splat2<L: Lanes, F: Map2>(f: F, x: &[f32], y: L, out: &mut [f32]) {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (x, out) in x.iter().zip(out) {
        f.apply(L::load(x), y).store(out);
    }
    if !x_rest.is_empty() {
        f.apply(L::load_part(x_rest), y).store_part(out_rest);
    }
}

/// f with its arguments changed over.
#[derive(Clone, Copy)]
struct Flip<F>(F);

impl<F: Map2> Map2 for Flip<F> {
    #[inline(always)]
    fn apply<L: Lanes>(&self, x: L, y: L) -> L {
        self.0.apply(y, x)
    }
}

/// out = f(x, y); the shorter of both is repeated.
pub(crate) fn zip(isa: Isa, f: impl Map2, x: &[f32], y: &[f32], out: &mut [f32]) {
    if x.len() >= y.len() {
        isa.call(Job2 { f, x, y, out });
    } else {
        isa.call(Job2 { f: Flip(f), x: y, y: x, out });
    }
}

#[derive(Clone, Copy)]
struct Value<F>(F);

impl<F: Function> Map1 for Value<F> {
    #[inline(always)]
    fn apply<L: Lanes>(&self, x: L) -> L {
        F::value(x)
    }
}

#[derive(Clone, Copy)]
struct Slope<F>(F);

impl<F: Function> Map2 for Slope<F> {
    #[inline(always)]
    fn apply<L: Lanes>(&self, x: L, dy: L) -> L {
        F::slope(x, dy)
    }
}

macro_rules! each_function {
    ($op:expr, $f:ident => $body:expr) => {
        match $op {
            UnaryOp::Neg => {
                let $f = functions::Neg;
                $body
            }
            UnaryOp::Exp => {
                let $f = functions::Exp;
                $body
            }
            UnaryOp::Log => {
                let $f = functions::Log;
                $body
            }
            UnaryOp::Sqrt => {
                let $f = functions::Sqrt;
                $body
            }
            UnaryOp::Rsqrt => {
                let $f = functions::Rsqrt;
                $body
            }
            UnaryOp::Square => {
                let $f = functions::Square;
                $body
            }
            UnaryOp::Abs => {
                let $f = functions::Abs;
                $body
            }
            UnaryOp::Recip => {
                let $f = functions::Recip;
                $body
            }
            UnaryOp::Tanh => {
                let $f = functions::Tanh;
                $body
            }
            UnaryOp::Sigmoid => {
                let $f = functions::Sigmoid;
                $body
            }
            UnaryOp::Relu => {
                let $f = functions::Relu;
                $body
            }
            UnaryOp::Gelu => {
                let $f = functions::Gelu;
                $body
            }
            UnaryOp::Silu => {
                let $f = functions::Silu;
                $body
            }
            UnaryOp::Softplus => {
                let $f = functions::Softplus;
                $body
            }
        }
    };
}

/// out = f(x).
pub(crate) fn unary(isa: Isa, op: UnaryOp, x: &[f32], out: &mut [f32]) {
    each_function!(op, f => isa.call(Job1 { f: Value(f), x, out }))
}

/// out = dy * f'(x).
pub(crate) fn unary_grad(isa: Isa, op: UnaryOp, x: &[f32], dy: &[f32], out: &mut [f32]) {
    each_function!(op, f => isa.call(Job2 { f: Slope(f), x, y: dy, out }))
}

#[derive(Clone, Copy)]
struct Affine {
    mul: f32,
    add: f32,
}

impl Map1 for Affine {
    #[inline(always)]
    fn apply<L: Lanes>(&self, x: L) -> L {
        x.fma(L::splat(self.mul), L::splat(self.add))
    }
}

/// out = x * mul + add.
pub(crate) fn affine(isa: Isa, mul: f64, add: f64, x: &[f32], out: &mut [f32]) {
    isa.call(Job1 { f: Affine { mul: mul as f32, add: add as f32 }, x, out });
}

macro_rules! maps {
    ($($name:ident($x:ident, $y:ident) = $body:expr;)*) => {$(
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Map2 for $name {
            #[inline(always)]
            fn apply<L: Lanes>(&self, $x: L, $y: L) -> L {
                $body
            }
        }
    )*};
}

maps! {
    Plus(x, y) = x + y;
    Minus(x, y) = x - y;
    Times(x, y) = x * y;
    Over(x, y) = x / y;
    Larger(x, y) = x.max_or_nan(y);
    Smaller(x, y) = x.min_or_nan(y);
    Equal(x, y) = L::select(x.eq(y), L::splat(1.0), L::zero());
    Differ(x, y) = L::select(x.eq(y), L::zero(), L::splat(1.0));
    Less(x, y) = L::select(x.lt(y), L::splat(1.0), L::zero());
    AtMost(x, y) = L::select(x.le(y), L::splat(1.0), L::zero());
}

/// out = a op b; the shorter of both is repeated.
pub(crate) fn binary(isa: Isa, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    match op {
        BinaryOp::Add => zip(isa, Plus, a, b, out),
        BinaryOp::Sub => zip(isa, Minus, a, b, out),
        BinaryOp::Mul => zip(isa, Times, a, b, out),
        BinaryOp::Div => zip(isa, Over, a, b, out),
        BinaryOp::Max => zip(isa, Larger, a, b, out),
        BinaryOp::Min => zip(isa, Smaller, a, b, out),
    }
}

/// out = 1 where the comparison holds, else 0.
pub(crate) fn compare(isa: Isa, op: CompareOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    match op {
        CompareOp::Eq => zip(isa, Equal, a, b, out),
        CompareOp::Ne => zip(isa, Differ, a, b, out),
        CompareOp::Lt => zip(isa, Less, a, b, out),
        CompareOp::Le => zip(isa, AtMost, a, b, out),
        CompareOp::Gt => zip(isa, Flip(Less), a, b, out),
        CompareOp::Ge => zip(isa, Flip(AtMost), a, b, out),
    }
}

/// Pairs of integers, the shorter side repeated.
fn pairs<'a>(a: &'a [i32], b: &'a [i32]) -> impl Iterator<Item = (i32, i32)> + 'a {
    let n = if a.is_empty() || b.is_empty() { 0 } else { a.len().max(b.len()) };
    a.iter().copied().cycle().zip(b.iter().copied().cycle()).take(n)
}

/// Integers wrap around.
pub(crate) fn binary_int(op: BinaryOp, a: &[i32], b: &[i32], out: &mut [i32]) {
    for (out, (x, y)) in out.iter_mut().zip(pairs(a, b)) {
        *out = match op {
            BinaryOp::Add => x.wrapping_add(y),
            BinaryOp::Sub => x.wrapping_sub(y),
            BinaryOp::Mul | BinaryOp::Div => x.wrapping_mul(y),
            BinaryOp::Max => x.max(y),
            BinaryOp::Min => x.min(y),
        };
    }
}

pub(crate) fn compare_int(op: CompareOp, a: &[i32], b: &[i32], out: &mut [f32]) {
    for (out, (x, y)) in out.iter_mut().zip(pairs(a, b)) {
        let holds = match op {
            CompareOp::Eq => x == y,
            CompareOp::Ne => x != y,
            CompareOp::Lt => x < y,
            CompareOp::Le => x <= y,
            CompareOp::Gt => x > y,
            CompareOp::Ge => x >= y,
        };
        *out = f32::from(u8::from(holds));
    }
}

pub(crate) fn to_float(x: &[i32], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = x as f32;
    }
}
