//! Optimizer updates, the global norm and what guards them.
//!
//! A gradient arrives as the sum over shards of the loss's numerator. [`Step::factor`] folds the
//! division by the denominator and the clipping into one multiplication.

use crate::math64::power;
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};
use monarch_graph::OptimizerKind;
use std::fmt;

/// Elements of a block of [`norm2`]; a constant, as the order of the sum depends on it.
pub const NORM_BLOCK: usize = 4096;

/// Sum of squares of a gradient in float64: blocks of [`NORM_BLOCK`] elements from the start of
/// the tensor, sixteen columns in each folded in one order, blocks added in order.
///
/// Squares of f32 are exact in f64, so only the additions round.
pub fn norm2(isa: Isa, gradient: &[f32]) -> f64 {
    isa.call(Norm2(gradient))
}

struct Norm2<'a>(&'a [f32]);

impl Kernel for Norm2<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let mut total = 0.0;
        for block in self.0.chunks(NORM_BLOCK) {
            let mut columns = [0.0f64; LANES];
            for row in block.chunks(LANES) {
                for (sum, &x) in columns.iter_mut().zip(row) {
                    *sum += f64::from(x) * f64::from(x);
                }
            }
            for half in [8, 4, 2, 1] {
                for i in 0..half {
                    columns[i] += columns[i + half];
                }
            }
            total += columns[0];
        }
        total
    }
}

/// Index of the first element that is not finite.
pub fn first_not_finite(isa: Isa, values: &[f32]) -> Option<usize> {
    let blocks = values.chunks(NORM_BLOCK).enumerate();
    for (i, block) in blocks {
        if !isa.call(Finite(block)) {
            let within = block.iter().position(|x| !x.is_finite())?;
            return Some(i * NORM_BLOCK + within);
        }
    }
    None
}

struct Finite<'a>(&'a [f32]);

impl Kernel for Finite<'_> {
    type Output = bool;

    /// x * 0 is 0 for what is finite and NaN for what is not.
    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        let mut bad = L::zero();
        for x in self.0.chunks(LANES) {
            let x = L::load_some(x, 0.0);
            let zero = x * L::zero();
            bad = L::select(zero.eq(zero), bad, L::splat(1.0));
        }
        bad.fold_max() == 0.0
    }
}

/// How much of a gradient of global norm `norm` is kept: clip / (norm + 1e-6), at most 1
/// (PyTorch's `clip_grad_norm_`).
pub fn clip_coefficient(clip: Option<f64>, norm: f64) -> f64 {
    match clip {
        Some(clip) if norm.is_finite() => (clip / (norm + 1e-6)).min(1.0),
        _ => 1.0,
    }
}

/// What one optimizer step needs besides tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Learning rate of this step.
    pub lr: f64,
    /// Number of this update, counted from 0.
    pub step: u64,
    /// What gradients are multiplied by first: 1/denominator, times the clip coefficient.
    pub factor: f64,
}

/// Tensors that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// The optimizer keeps another number of tensors per weight.
    Slots { expected: usize, found: usize },
    /// A gradient or slot of another length than its weight.
    Length { expected: usize, found: usize },
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::Slots { expected, found } => {
                write!(f, "the optimizer keeps {expected} tensors per weight, not {found}")
            }
            UpdateError::Length { expected, found } => {
                write!(f, "a weight of {expected} elements with {found} of gradient or state")
            }
        }
    }
}

impl std::error::Error for UpdateError {}

/// Updates one weight in place. `slots` are the optimizer's tensors for it, in the order of
/// [`OptimizerKind::slots`], zero before the first step.
pub fn update(
    isa: Isa,
    kind: &OptimizerKind,
    step: Step,
    weight: &mut [f32],
    gradient: &[f32],
    slots: &mut [&mut [f32]],
) -> Result<(), UpdateError> {
    let expected = weight.len();
    let mut lengths = slots.iter().map(|s| s.len()).chain([gradient.len()]);
    if let Some(found) = lengths.find(|&n| n != expected) {
        return Err(UpdateError::Length { expected, found });
    }
    match (kind, slots) {
        (OptimizerKind::Sgd { momentum, decay }, [velocity]) => isa.call(Sgd {
            momentum: *momentum as f32,
            decay: *decay as f32,
            lr: step.lr as f32,
            factor: step.factor as f32,
            weight,
            gradient,
            velocity,
        }),
        (OptimizerKind::AdamW { beta1, beta2, eps, decay }, [first, second]) => {
            let t = step.step + 1;
            let corrected = 1.0 - power(*beta2, t);
            isa.call(AdamW {
                keep1: (1.0 - beta1) as f32,
                keep2: (1.0 - beta2) as f32,
                beta2: *beta2 as f32,
                eps: *eps as f32,
                shrink: (step.lr * decay) as f32,
                rate: (step.lr / (1.0 - power(*beta1, t))) as f32,
                deviation: (1.0 / corrected.sqrt()) as f32,
                factor: step.factor as f32,
                weight,
                gradient,
                first,
                second,
            });
        }
        (kind, slots) => {
            return Err(UpdateError::Slots { expected: kind.slots().len(), found: slots.len() });
        }
    }
    Ok(())
}

/// v = momentum v + (g + decay w); w = w - lr v.
struct Sgd<'a> {
    momentum: f32,
    decay: f32,
    lr: f32,
    factor: f32,
    weight: &'a mut [f32],
    gradient: &'a [f32],
    velocity: &'a mut [f32],
}

impl Kernel for Sgd<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let state = self.weight.chunks_mut(LANES).zip(self.velocity.chunks_mut(LANES));
        for ((weight, velocity), gradient) in state.zip(self.gradient.chunks(LANES)) {
            let g = L::load_some(gradient, 0.0) * L::splat(self.factor);
            let w = L::load_some(weight, 0.0);
            let g = w.fma(L::splat(self.decay), g);
            let v = L::load_some(velocity, 0.0).fma(L::splat(self.momentum), g);
            v.store_some(velocity);
            v.fma(L::splat(-self.lr), w).store_some(weight);
        }
    }
}

/// m = m + (1 - beta1)(g - m); v = beta2 v + (1 - beta2) g^2;
/// w = (w - lr decay w) - lr/(1 - beta1^t) m / (sqrt(v)/sqrt(1 - beta2^t) + eps).
struct AdamW<'a> {
    keep1: f32,
    keep2: f32,
    beta2: f32,
    eps: f32,
    /// lr * decay.
    shrink: f32,
    /// lr / (1 - beta1^t).
    rate: f32,
    /// 1 / sqrt(1 - beta2^t).
    deviation: f32,
    factor: f32,
    weight: &'a mut [f32],
    gradient: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Kernel for AdamW<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let moments = self.first.chunks_mut(LANES).zip(self.second.chunks_mut(LANES));
        let ours = self.weight.chunks_mut(LANES).zip(self.gradient.chunks(LANES));
        for ((weight, gradient), (first, second)) in ours.zip(moments) {
            let g = L::load_some(gradient, 0.0) * L::splat(self.factor);
            let m = L::load_some(first, 0.0);
            let m = (g - m).fma(L::splat(self.keep1), m);
            let fresh = (g * L::splat(self.keep2)) * g;
            let v = L::load_some(second, 0.0).fma(L::splat(self.beta2), fresh);
            let w = L::load_some(weight, 0.0);
            let w = w.fma(L::splat(-self.shrink), w);
            let below = v.sqrt().fma(L::splat(self.deviation), L::splat(self.eps));
            m.store_some(first);
            v.store_some(second);
            (m / below).fma(L::splat(-self.rate), w).store_some(weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Noise, bits, isas};

    const SGD: OptimizerKind = OptimizerKind::Sgd { momentum: 0.9, decay: 0.01 };
    const ADAMW: OptimizerKind =
        OptimizerKind::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.1 };

    /// Ten steps with fresh gradients; weights and slots at the end.
    fn ten_steps(isa: Isa, kind: &OptimizerKind, n: usize) -> Vec<Vec<f32>> {
        let mut noise = Noise::new(31);
        let mut weight = noise.floats(n);
        let mut slots = vec![vec![0.0; n]; kind.slots().len()];
        for step in 0..10 {
            let gradient = noise.floats(n);
            let mut views: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
            let step = Step { lr: 1e-2, step, factor: 0.125 };
            update(isa, kind, step, &mut weight, &gradient, &mut views).unwrap();
        }
        slots.insert(0, weight);
        slots
    }

    /// The textbook, in float64.
    fn by_hand(kind: &OptimizerKind, n: usize) -> Vec<f64> {
        let mut noise = Noise::new(31);
        let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<_>>();
        let mut weight = wide(noise.floats(n));
        let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
        for t in 1..=10 {
            for (i, g) in wide(noise.floats(n)).into_iter().enumerate() {
                let g = g * 0.125;
                match kind {
                    OptimizerKind::Sgd { momentum, decay } => {
                        m[i] = momentum * m[i] + g + decay * weight[i];
                        weight[i] -= 1e-2 * m[i];
                    }
                    OptimizerKind::AdamW { beta1, beta2, eps, decay } => {
                        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                        v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                        weight[i] *= 1.0 - 1e-2 * decay;
                        let (m, v) = (m[i] / (1.0 - beta1.powi(t)), v[i] / (1.0 - beta2.powi(t)));
                        weight[i] -= 1e-2 * m / (v.sqrt() + eps);
                    }
                }
            }
        }
        weight
    }

    #[test]
    fn updates_are_the_textbook_and_the_same_everywhere() {
        for kind in [SGD, ADAMW] {
            for n in [1, 16, 37] {
                let all = ten_steps(Isa::SCALAR, &kind, n);
                for (x, y) in all[0].iter().zip(by_hand(&kind, n)) {
                    assert!((f64::from(*x) - y).abs() < 2e-6, "{kind:?}: {x} is not {y}");
                }
                for isa in isas() {
                    for (found, want) in ten_steps(isa, &kind, n).iter().zip(&all) {
                        assert_eq!(bits(found), bits(want), "{kind:?} on {}", isa.name());
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_and_slots_are_checked() {
        let step = Step { lr: 1.0, step: 0, factor: 1.0 };
        let mut w = [0.0; 4];
        let none = update(Isa::SCALAR, &SGD, step, &mut w, &[0.0; 4], &mut []);
        assert_eq!(none, Err(UpdateError::Slots { expected: 1, found: 0 }));
        let mut short = [0.0; 3];
        let one = update(Isa::SCALAR, &SGD, step, &mut w, &[0.0; 4], &mut [&mut short]);
        assert_eq!(one, Err(UpdateError::Length { expected: 4, found: 3 }));
    }

    #[test]
    fn norms_are_the_same_everywhere() {
        let x = Noise::new(32).floats(3 * NORM_BLOCK + 77);
        let want: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let scalar = norm2(Isa::SCALAR, &x);
        assert!((scalar - want).abs() < 1e-9 * want);
        for isa in isas() {
            assert_eq!(norm2(isa, &x).to_bits(), scalar.to_bits(), "{}", isa.name());
        }
        assert_eq!(norm2(Isa::SCALAR, &[]), 0.0);
    }

    #[test]
    fn what_is_not_finite_is_found() {
        for isa in isas() {
            let mut x = vec![1.0; 5000];
            assert_eq!(first_not_finite(isa, &x), None);
            x[4999] = f32::INFINITY;
            assert_eq!(first_not_finite(isa, &x), Some(4999));
            x[17] = f32::NAN;
            assert_eq!(first_not_finite(isa, &x), Some(17));
        }
    }

    #[test]
    fn clipping_is_pytorchs() {
        assert_eq!(clip_coefficient(None, 5.0), 1.0);
        assert_eq!(clip_coefficient(Some(1.0), 0.5), 1.0);
        assert_eq!(clip_coefficient(Some(1.0), 4.0), 1.0 / 4.000_001);
    }
}
