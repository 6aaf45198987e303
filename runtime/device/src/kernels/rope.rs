//! Rotary position embedding (Su et al., 2021), half-split.

use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};
use monarch_graph::RopeAngles;
use monarch_graph::math as math64;
use std::sync::Arc;

/// Cosines and sines for each position and pair: [length, half] each.
#[derive(Debug)]
struct Turns {
    cos: Vec<f32>,
    sin: Vec<f32>,
    length: usize,
    half: usize,
    angles: RopeAngles,
}

impl Turns {
    /// Position times the frequency of base^(-i/half), for pair i.
    fn new(length: usize, half: usize, by: RopeAngles) -> Turns {
        let step = math64::log(by.base) / half.max(1) as f64;
        let angles = (0..length).flat_map(|position| {
            (0..half).map(move |i| position as f64 * by.frequency(math64::exp(-(i as f64) * step)))
        });
        let (sin, cos) = angles
            .map(|angle| {
                let (sin, cos) = math64::sin_cos(angle);
                (sin as f32, cos as f32)
            })
            .unzip();
        Turns { cos, sin, length, half, angles: by }
    }
}

/// Tables made so far: layers share them, and so do both directions and all sizes of shards.
#[derive(Debug, Default)]
pub(crate) struct Tables(Vec<Arc<Turns>>);

impl Tables {
    fn get(&mut self, length: usize, half: usize, by: RopeAngles) -> Arc<Turns> {
        let fits = |t: &&Arc<Turns>| (t.length, t.half, t.angles) == (length, half, by);
        if let Some(found) = self.0.iter().find(fits) {
            return found.clone();
        }
        let made = Arc::new(Turns::new(length, half, by));
        self.0.push(made.clone());
        made
    }
}

/// A rotation of known shape.
#[derive(Debug)]
pub(crate) struct Rope {
    turns: Arc<Turns>,
    /// Rows of one position that lie together.
    rows: usize,
    inverse: bool,
}

impl Rope {
    /// For x of (outer, `length`, `rows`, 2 `half`).
    pub(crate) fn new(
        tables: &mut Tables,
        length: usize,
        rows: usize,
        half: usize,
        angles: RopeAngles,
        inverse: bool,
    ) -> Rope {
        Rope { turns: tables.get(length, half, angles), rows, inverse }
    }

    pub(crate) fn run(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        if self.turns.half > 0 && self.turns.length > 0 && self.rows > 0 {
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
        let Rope { turns, rows, inverse } = self.plan;
        let Turns { cos, sin, length, half, .. } = &**turns;
        let sign = L::splat(if *inverse { -1.0 } else { 1.0 });
        let width = 2 * half;
        let lines = self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for (i, (x, out)) in lines.enumerate() {
            let position = i / rows % length;
            let cos = &cos[position * half..][..*half];
            let sin = &sin[position * half..][..*half];
            turn::<L>(x, cos, sin, sign, out);
        }
    }
}

#[inline(always)]
fn turn<L: Lanes>(x: &[f32], cos: &[f32], sin: &[f32], sign: L, out: &mut [f32]) {
    let half = cos.len();
    let (x0, x1) = x.split_at(half);
    let (out0, out1) = out.split_at_mut(half);
    for i in (0..half).step_by(LANES) {
        let part = i..(i + LANES).min(half);
        let c = L::load_some(&cos[part.clone()], 0.0);
        let s = L::load_some(&sin[part.clone()], 0.0) * sign;
        let (a, b) = (L::load_some(&x0[part.clone()], 0.0), L::load_some(&x1[part.clone()], 0.0));
        a.fma(c, -(b * s)).store_some(&mut out0[part.clone()]);
        b.fma(c, a * s).store_some(&mut out1[part]);
    }
}
