//! Rotary position embedding (Su et al., 2021), half-split.

use crate::math64;
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};

/// Cosines and sines for each position and pair, made once per shape.
#[derive(Debug)]
pub(crate) struct Rope {
    /// [length, half] each; the sines with their sign turned when the rotation is undone.
    cos: Vec<f32>,
    sin: Vec<f32>,
    length: usize,
    half: usize,
    /// Rows of one position that lie together.
    rows: usize,
}

impl Rope {
    /// For x of (outer, `length`, `rows`, 2 `half`).
    pub(crate) fn new(length: usize, rows: usize, half: usize, base: f64, inverse: bool) -> Rope {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let step = math64::log(base) / half.max(1) as f64;
        for position in 0..length {
            for i in 0..half {
                let angle = position as f64 * math64::exp(-(i as f64) * step);
                let (s, c) = math64::sin_cos(angle);
                cos.push(c as f32);
                sin.push(if inverse { -s } else { s } as f32);
            }
        }
        Rope { cos, sin, length, half, rows }
    }

    pub(crate) fn run(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        if self.half > 0 && self.rows > 0 && self.length > 0 {
            isa.call(Job { plan: self, x, out });
        }
    }
}

struct Job<'a> {
    plan: &'a Rope,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Rope { cos, sin, length, half, rows } = self.plan;
        let width = 2 * half;
        let lines = self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for (i, (x, out)) in lines.enumerate() {
            let position = i / rows % length;
            let cos = &cos[position * half..][..*half];
            let sin = &sin[position * half..][..*half];
            turn::<L>(x, cos, sin, out);
        }
    }
}

#[inline(always)]
fn turn<L: Lanes>(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let half = cos.len();
    let (x0, x1) = x.split_at(half);
    let (out0, out1) = out.split_at_mut(half);
    for i in (0..half).step_by(LANES) {
        let part = i..(i + LANES).min(half);
        let (c, s) = (L::load_some(&cos[part.clone()], 0.0), L::load_some(&sin[part.clone()], 0.0));
        let (a, b) = (L::load_some(&x0[part.clone()], 0.0), L::load_some(&x1[part.clone()], 0.0));
        a.fma(c, -(b * s)).store_some(&mut out0[part.clone()]);
        b.fma(c, a * s).store_some(&mut out1[part]);
    }
}
