//! Optimizer updates, the global norm and what guards them.
//!
//! A gradient arrives as the sum over shards of the loss's numerator. [`Step::factor`] folds the
//! division by the denominator and the clipping into one multiplication.

use crate::muon::Muon;
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};
use monarch_graph::OptimizerKind;
use monarch_graph::math::power;
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
    /// An update for matrices of a weight with another number of axes.
    Shape { axes: usize },
    /// A product of matrices cannot be made.
    Product(String),
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
            UpdateError::Shape { axes } => {
                write!(f, "an update for matrices of a weight with {axes} axes")
            }
            UpdateError::Product(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for UpdateError {}

/// One weight of an update.
#[derive(Debug)]
pub struct Target<'a> {
    pub shape: &'a [u64],
    pub weight: &'a mut [f32],
    pub gradient: &'a [f32],
}

/// Updates one weight in place. `slots` are the optimizer's tensors for it, in the order of
/// [`OptimizerKind::slots`], zero before the first step.
pub fn update(
    isa: Isa,
    kind: &OptimizerKind,
    step: Step,
    target: Target<'_>,
    slots: &mut [&mut [f32]],
) -> Result<(), UpdateError> {
    let Target { shape, weight, gradient } = target;
    let expected = weight.len();
    let mut lengths = slots.iter().map(|s| s.len()).chain([gradient.len()]);
    if let Some(found) = lengths.find(|&n| n != expected) {
        return Err(UpdateError::Length { expected, found });
    }
    let factor = step.factor as f32;
    match (kind, slots) {
        (OptimizerKind::Sgd { momentum, decay, nesterov }, [velocity]) => isa.call(Sgd {
            momentum: *momentum as f32,
            decay: *decay as f32,
            nesterov: *nesterov,
            lr: step.lr as f32,
            factor,
            weight,
            gradient,
            velocity,
        }),
        (
            OptimizerKind::AdamW { beta1, beta2, eps, decay }
            | OptimizerKind::Adam { beta1, beta2, eps, decay },
            [first, second],
        ) => {
            let coupled = matches!(kind, OptimizerKind::Adam { .. });
            let rates = Moments { beta1: *beta1, beta2: *beta2, eps: *eps, decay: *decay, coupled };
            isa.call(rates.kernel(step, weight, gradient, first, second));
        }
        (OptimizerKind::Lion { beta1, beta2, decay }, [average]) => isa.call(Lion {
            keep1: (1.0 - beta1) as f32,
            keep2: (1.0 - beta2) as f32,
            shrink: (step.lr * decay) as f32,
            lr: step.lr as f32,
            factor,
            weight,
            gradient,
            average,
        }),
        (OptimizerKind::Muon { momentum, nesterov, steps, decay, .. }, [average]) => {
            let &[rows, columns] = shape else {
                return Err(UpdateError::Shape { axes: shape.len() });
            };
            let matrix = Muon {
                momentum: *momentum as f32,
                nesterov: *nesterov,
                steps: *steps,
                shrink: (step.lr * decay) as f32,
                lr: step.lr,
                factor,
                shape: [rows as usize, columns as usize],
            };
            matrix.update(isa, weight, gradient, average)?;
        }
        (kind, slots) => {
            return Err(UpdateError::Slots { expected: kind.slots().len(), found: slots.len() });
        }
    }
    Ok(())
}

/// What Adam and AdamW are told; `coupled` adds the decay to the gradient, as Adam does.
struct Moments {
    beta1: f64,
    beta2: f64,
    eps: f64,
    decay: f64,
    coupled: bool,
}

impl Moments {
    fn kernel<'a>(
        &self,
        step: Step,
        weight: &'a mut [f32],
        gradient: &'a [f32],
        first: &'a mut [f32],
        second: &'a mut [f32],
    ) -> AdamW<'a> {
        let t = step.step + 1;
        let corrected = 1.0 - power(self.beta2, t);
        AdamW {
            keep1: (1.0 - self.beta1) as f32,
            keep2: (1.0 - self.beta2) as f32,
            beta2: self.beta2 as f32,
            eps: self.eps as f32,
            shrink: if self.coupled { 0.0 } else { (step.lr * self.decay) as f32 },
            couple: if self.coupled { self.decay as f32 } else { 0.0 },
            rate: (step.lr / (1.0 - power(self.beta1, t))) as f32,
            deviation: (1.0 / corrected.sqrt()) as f32,
            factor: step.factor as f32,
            weight,
            gradient,
            first,
            second,
        }
    }
}

/// v = momentum v + (g + decay w); w = w - lr v; with `nesterov` w - lr (g + decay w + momentum v).
struct Sgd<'a> {
    momentum: f32,
    decay: f32,
    nesterov: bool,
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
            let along = if self.nesterov { v.fma(L::splat(self.momentum), g) } else { v };
            along.fma(L::splat(-self.lr), w).store_some(weight);
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
    /// What is added to the gradient of each weight (Adam's decay).
    couple: f32,
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
            let w = L::load_some(weight, 0.0);
            let g = L::load_some(gradient, 0.0) * L::splat(self.factor);
            let g = w.fma(L::splat(self.couple), g);
            let m = L::load_some(first, 0.0);
            let m = (g - m).fma(L::splat(self.keep1), m);
            let fresh = (g * L::splat(self.keep2)) * g;
            let v = L::load_some(second, 0.0).fma(L::splat(self.beta2), fresh);
            let w = w.fma(L::splat(-self.shrink), w);
            let below = v.sqrt().fma(L::splat(self.deviation), L::splat(self.eps));
            m.store_some(first);
            v.store_some(second);
            (m / below).fma(L::splat(-self.rate), w).store_some(weight);
        }
    }
}

/// w = (w - lr decay w) - lr sign(m + (1 - beta1)(g - m)); m = m + (1 - beta2)(g - m).
struct Lion<'a> {
    keep1: f32,
    keep2: f32,
    /// lr * decay.
    shrink: f32,
    lr: f32,
    factor: f32,
    weight: &'a mut [f32],
    gradient: &'a [f32],
    average: &'a mut [f32],
}

impl Kernel for Lion<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let state = self.weight.chunks_mut(LANES).zip(self.average.chunks_mut(LANES));
        for ((weight, average), gradient) in state.zip(self.gradient.chunks(LANES)) {
            let g = L::load_some(gradient, 0.0) * L::splat(self.factor);
            let m = L::load_some(average, 0.0);
            let along = (g - m).fma(L::splat(self.keep1), m);
            let (one, zero) = (L::splat(1.0), L::zero());
            let sign = L::select(along.lt(zero), -one, L::select(zero.lt(along), one, along));
            let w = L::load_some(weight, 0.0);
            let w = w.fma(L::splat(-self.shrink), w);
            (g - m).fma(L::splat(self.keep2), m).store_some(average);
            sign.fma(L::splat(-self.lr), w).store_some(weight);
        }
    }
}

#[cfg(test)]
mod tests;
