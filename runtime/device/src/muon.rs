//! Muon (Jordan 2024, "Muon: an optimizer for hidden layers in neural networks"): the update of a
//! matrix is orthogonalised by Newton-Schulz iterations.
//!
//! X = U / (|U| + 1e-7), then `steps` times A = X X', X = a X + (b A + c A A) X, where X' is the
//! transpose; X X' is taken over the longer side, so that A is as small as can be. All products
//! are those of [`crate::gemm`], so the bits are the same on every instruction set.

use crate::gemm::Gemm;
use crate::optim::{UpdateError, norm2};
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};
use monarch_graph::Einsum;

/// Coefficients of the iteration, from the note above: steep at 0, and singular values between
/// 0.7 and 1.2 at the end.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];

/// What an update needs besides tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Muon {
    pub momentum: f32,
    pub nesterov: bool,
    pub steps: u32,
    /// lr * decay.
    pub shrink: f32,
    pub lr: f64,
    pub factor: f32,
    /// [in, out]
    pub shape: [usize; 2],
}

impl Muon {
    pub(crate) fn update(
        &self,
        isa: Isa,
        weight: &mut [f32],
        gradient: &[f32],
        average: &mut [f32],
    ) -> Result<(), UpdateError> {
        let [rows, columns] = self.shape;
        if rows.checked_mul(columns) != Some(weight.len()) {
            let found = rows.saturating_mul(columns);
            return Err(UpdateError::Length { expected: weight.len(), found });
        }
        let mut x = vec![0.0; weight.len()];
        isa.call(Average { muon: self, gradient, average, along: &mut x });
        let norm = norm2(isa, &x).sqrt();
        let scale = (1.0 / (norm + 1e-7)) as f32;
        x.iter_mut().for_each(|x| *x *= scale);
        let x = orthogonal(isa, x, self.shape, self.steps)?;
        let gain = (columns as f64 / rows as f64).max(1.0).sqrt();
        let rate = (self.lr * gain) as f32;
        isa.call(Apply { shrink: self.shrink, rate, along: &x, weight });
        Ok(())
    }
}

/// m = m + (1 - momentum)(g - m); along = m, or g + momentum (m - g).
struct Average<'a> {
    muon: &'a Muon,
    gradient: &'a [f32],
    average: &'a mut [f32],
    along: &'a mut [f32],
}

impl Kernel for Average<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let keep = L::splat(1.0 - self.muon.momentum);
        let state = self.average.chunks_mut(LANES).zip(self.along.chunks_mut(LANES));
        for ((average, along), gradient) in state.zip(self.gradient.chunks(LANES)) {
            let g = L::load_some(gradient, 0.0) * L::splat(self.muon.factor);
            let m = L::load_some(average, 0.0);
            let m = (g - m).fma(keep, m);
            m.store_some(average);
            let ahead = (m - g).fma(L::splat(self.muon.momentum), g);
            let u = if self.muon.nesterov { ahead } else { m };
            u.store_some(along);
        }
    }
}

/// w = (w - lr decay w) - rate along.
struct Apply<'a> {
    shrink: f32,
    rate: f32,
    along: &'a [f32],
    weight: &'a mut [f32],
}

impl Kernel for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (weight, along) in self.weight.chunks_mut(LANES).zip(self.along.chunks(LANES)) {
            let w = L::load_some(weight, 0.0);
            let w = w.fma(L::splat(-self.shrink), w);
            L::load_some(along, 0.0).fma(L::splat(-self.rate), w).store_some(weight);
        }
    }
}

/// out = a x + b out.
struct Mix<'a> {
    a: f32,
    x: &'a [f32],
    b: f32,
    out: &'a mut [f32],
}

impl Kernel for Mix<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (out, x) in self.out.chunks_mut(LANES).zip(self.x.chunks(LANES)) {
            let y = L::load_some(out, 0.0) * L::splat(self.b);
            L::load_some(x, 0.0).fma(L::splat(self.a), y).store_some(out);
        }
    }
}

/// `steps` iterations on a matrix of norm at most 1.
fn orthogonal(
    isa: Isa,
    mut x: Vec<f32>,
    shape: [usize; 2],
    steps: u32,
) -> Result<Vec<f32>, UpdateError> {
    let wide = shape[0] <= shape[1];
    let n = shape[0].min(shape[1]);
    let product = |a: [u8; 2], b: [u8; 2], x: [usize; 2], y: [usize; 2], out: [usize; 2]| {
        let e = Einsum { a: a.to_vec(), b: b.to_vec(), out: vec![0, 1] };
        Gemm::new(&e, &x, &y, &out).map_err(UpdateError::Product)
    };
    // A = X X' over the longer side; A A; and A X, or X A.
    let (outer, apply) = match wide {
        true => (
            product([0, 2], [1, 2], shape, shape, [n, n])?,
            product([0, 2], [2, 1], [n, n], shape, shape)?,
        ),
        false => (
            product([2, 0], [2, 1], shape, shape, [n, n])?,
            product([0, 2], [2, 1], shape, [n, n], shape)?,
        ),
    };
    let square = product([0, 2], [2, 1], [n, n], [n, n], [n, n])?;
    let scratch = [&outer, &apply, &square].iter().map(|g| g.scratch()).max().unwrap_or(0);
    let mut scratch = vec![0.0; scratch];
    let (mut a, mut b) = (vec![0.0; n * n], vec![0.0; n * n]);
    let mut y = vec![0.0; x.len()];
    let [first, second, third] = COEFFICIENTS;
    for _ in 0..steps {
        outer.run(isa, &x, &x, &mut a, &mut scratch);
        square.run(isa, &a, &a, &mut b, &mut scratch);
        isa.call(Mix { a: second, x: &a, b: third, out: &mut b });
        match wide {
            true => apply.run(isa, &b, &x, &mut y, &mut scratch),
            false => apply.run(isa, &x, &b, &mut y, &mut scratch),
        }
        isa.call(Mix { a: first, x: &x, b: 1.0, out: &mut y });
        std::mem::swap(&mut x, &mut y);
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Noise, bits, isas};

    const SHAPES: [[usize; 2]; 6] = [[1, 1], [1, 9], [7, 3], [16, 16], [20, 33], [65, 40]];

    fn muon(shape: [usize; 2], nesterov: bool) -> Muon {
        Muon { momentum: 0.9, nesterov, steps: 5, shrink: 1e-3, lr: 0.02, factor: 0.25, shape }
    }

    fn five_steps(isa: Isa, muon: &Muon) -> [Vec<f32>; 2] {
        let mut noise = Noise::new(71);
        let n = muon.shape[0] * muon.shape[1];
        let (mut weight, mut average) = (noise.floats(n), vec![0.0; n]);
        for _ in 0..5 {
            let gradient = noise.floats(n);
            muon.update(isa, &mut weight, &gradient, &mut average).unwrap();
        }
        [weight, average]
    }

    /// The note's formulas in float64, element by element.
    fn by_hand(muon: &Muon) -> Vec<f64> {
        let mut noise = Noise::new(71);
        let [rows, columns] = muon.shape;
        let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<_>>();
        let (mut weight, mut m) = (wide(noise.floats(rows * columns)), vec![0.0; rows * columns]);
        let mu = f64::from(muon.momentum);
        for _ in 0..5 {
            let g: Vec<f64> = wide(noise.floats(rows * columns)).iter().map(|g| g * 0.25).collect();
            m = m.iter().zip(&g).map(|(m, g)| mu * m + (1.0 - mu) * g).collect();
            let ahead = |(m, g): (&f64, &f64)| mu * m + (1.0 - mu) * g;
            let mut x =
                if muon.nesterov { m.iter().zip(&g).map(ahead).collect() } else { m.clone() };
            let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
            x.iter_mut().for_each(|x| *x /= norm);
            for _ in 0..5 {
                // (X X') X, whatever the shape: (X X') X = X (X' X).
                let times = |x: &[f64], y: &[f64]| -> Vec<f64> {
                    let gram = |i: usize, j: usize| -> f64 {
                        (0..columns).map(|k| y[i * columns + k] * y[j * columns + k]).sum()
                    };
                    let gram: Vec<f64> =
                        (0..rows * rows).map(|at| gram(at / rows, at % rows)).collect();
                    let cell = |i: usize, j: usize| -> f64 {
                        (0..rows).map(|k| gram[i * rows + k] * x[k * columns + j]).sum()
                    };
                    (0..rows * columns).map(|at| cell(at / columns, at % columns)).collect()
                };
                let once = times(&x, &x);
                let twice = times(&once, &x);
                let [a, b, c] = COEFFICIENTS.map(f64::from);
                x = (0..x.len()).map(|i| a * x[i] + b * once[i] + c * twice[i]).collect();
            }
            let gain = (columns as f64 / rows as f64).max(1.0).sqrt();
            for (w, x) in weight.iter_mut().zip(&x) {
                *w = *w * (1.0 - f64::from(muon.shrink)) - muon.lr * gain * x;
            }
        }
        weight
    }

    #[test]
    fn updates_are_the_notes_and_the_same_everywhere() {
        for (shape, nesterov) in SHAPES.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let muon = muon(shape, nesterov);
            let scalar = five_steps(Isa::SCALAR, &muon);
            for (x, y) in scalar[0].iter().zip(by_hand(&muon)) {
                assert!((f64::from(*x) - y).abs() < 2e-5, "{shape:?}: {x} is not {y}");
            }
            for isa in isas() {
                for (found, want) in five_steps(isa, &muon).iter().zip(&scalar) {
                    assert_eq!(bits(found), bits(want), "{shape:?} on {}", isa.name());
                }
            }
        }
    }

    #[test]
    fn what_is_made_is_nearly_orthogonal() {
        let mut noise = Noise::new(72);
        let (rows, columns) = (24, 60);
        let mut x = noise.floats(rows * columns);
        let norm = norm2(Isa::SCALAR, &x).sqrt() as f32;
        x.iter_mut().for_each(|x| *x /= norm);
        let x = orthogonal(Isa::SCALAR, x, [rows, columns], 5).unwrap();
        for row in x.chunks(columns) {
            let length = norm2(Isa::SCALAR, row).sqrt();
            assert!((0.6..1.3).contains(&length), "{length}");
        }
    }
}
