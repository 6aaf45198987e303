//! What an update is: the kind of optimizer, and which of its rules each weight follows.

use crate::Weight;
use wincode::{SchemaRead, SchemaWrite};

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Optimizer {
    pub kind: OptimizerKind,
    /// Global-norm clipping (Pascanu et al. 2013) before the update.
    pub clip: Option<f64>,
    pub decay_on: DecayOn,
}

/// Which weights decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum DecayOn {
    #[default]
    All,
    /// Those with two axes or more: no gains, no shifts.
    Matrices,
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum OptimizerKind {
    /// v = momentum * v + (g + decay * w); w -= lr * v. With `nesterov` the step is along
    /// g + decay * w + momentum * v.
    Sgd { momentum: f64, decay: f64, nesterov: bool },
    /// Decoupled weight decay (Loshchilov & Hutter 2019), bias-corrected moments.
    AdamW { beta1: f64, beta2: f64, eps: f64, decay: f64 },
    /// Kingma & Ba 2015; `decay` is added to the gradient (L2).
    Adam { beta1: f64, beta2: f64, eps: f64, decay: f64 },
    /// Chen et al. 2023: w -= lr * (sign(beta1 m + (1 - beta1) g) + decay w), then
    /// m = beta2 m + (1 - beta2) g.
    Lion { beta1: f64, beta2: f64, decay: f64 },
    /// Jordan 2024, on [`OptimizerKind::is_hidden_matrix`]; all others are AdamW's. With
    /// m = momentum m + (1 - momentum) g and u = m, or g + momentum (m - g) with `nesterov`:
    /// w -= lr * (sqrt(max(1, out / in)) orthogonalised(u) + decay w), by `steps` Newton-Schulz
    /// iterations.
    Muon { momentum: f64, nesterov: bool, steps: u32, decay: f64, others: Others },
}

/// AdamW for the weights that are not Muon's.
#[derive(Clone, Copy, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Others {
    /// Their learning rate as a multiple of the schedule's.
    pub scale: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
}

impl OptimizerKind {
    /// As checkpoints name it.
    pub fn name(&self) -> &'static str {
        match self {
            OptimizerKind::Sgd { .. } => "sgd",
            OptimizerKind::AdamW { .. } => "adamw",
            OptimizerKind::Adam { .. } => "adam",
            OptimizerKind::Lion { .. } => "lion",
            OptimizerKind::Muon { .. } => "muon",
        }
    }

    /// Names of the state tensors kept per weight, in order. Not every weight has all: see
    /// [`OptimizerKind::has_slot`].
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            OptimizerKind::Sgd { .. } => &["momentum"],
            OptimizerKind::Lion { .. } => &["exp_avg"],
            _ => &["exp_avg", "exp_avg_sq"],
        }
    }

    /// Whether this trained weight has state tensor number `slot`.
    pub fn has_slot(&self, slot: usize, weight: &Weight) -> bool {
        match self {
            OptimizerKind::Muon { .. } => slot == 0 || !OptimizerKind::is_hidden_matrix(weight),
            _ => true,
        }
    }

    /// A weight of two axes, neither of them a vocabulary (`V`): tables and heads over words are
    /// no linear maps between hidden states.
    pub fn is_hidden_matrix(weight: &Weight) -> bool {
        weight.shape.len() == 2 && !weight.axes.iter().any(|a| a == "V")
    }
}

/// What one weight follows.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateRule {
    pub kind: OptimizerKind,
    /// Multiplies the learning rate.
    pub rate: f64,
}

impl Optimizer {
    /// The rule of one weight: without decay where it does not decay, AdamW where Muon does not
    /// apply.
    pub fn rule(&self, weight: &Weight) -> UpdateRule {
        let still = self.decay_on == DecayOn::Matrices && weight.shape.len() < 2;
        let keep = |decay: f64| if still { 0.0 } else { decay };
        let mut rate = 1.0;
        let kind = match self.kind {
            OptimizerKind::Sgd { momentum, decay, nesterov } => {
                OptimizerKind::Sgd { momentum, decay: keep(decay), nesterov }
            }
            OptimizerKind::AdamW { beta1, beta2, eps, decay } => {
                OptimizerKind::AdamW { beta1, beta2, eps, decay: keep(decay) }
            }
            OptimizerKind::Adam { beta1, beta2, eps, decay } => {
                OptimizerKind::Adam { beta1, beta2, eps, decay: keep(decay) }
            }
            OptimizerKind::Lion { beta1, beta2, decay } => {
                OptimizerKind::Lion { beta1, beta2, decay: keep(decay) }
            }
            OptimizerKind::Muon { decay, others, .. }
                if !OptimizerKind::is_hidden_matrix(weight) =>
            {
                rate = others.scale;
                let Others { beta1, beta2, eps, .. } = others;
                OptimizerKind::AdamW { beta1, beta2, eps, decay: keep(decay) }
            }
            ref muon => muon.clone(),
        };
        UpdateRule { kind, rate }
    }

    /// Elements of all state tensors.
    pub fn state_elements<'a>(&self, weights: impl IntoIterator<Item = &'a Weight>) -> u64 {
        let slots = |w: &Weight| {
            (0..self.kind.slots().len()).filter(|s| self.kind.has_slot(*s, w)).count() as u64
        };
        weights.into_iter().filter(|w| w.trainable).map(|w| slots(w) * w.elements()).sum()
    }

    /// Elements that one thread needs beside that, while it updates the largest weight: Muon's
    /// products.
    pub fn scratch_elements<'a>(&self, weights: impl IntoIterator<Item = &'a Weight>) -> u64 {
        let OptimizerKind::Muon { .. } = self.kind else { return 0 };
        let of = |w: &Weight| match w.shape.as_slice() {
            &[a, b] if w.trainable && OptimizerKind::is_hidden_matrix(w) => {
                2 * a * b + 3 * a.min(b) * a.min(b)
            }
            _ => 0,
        };
        weights.into_iter().map(of).max().unwrap_or(0)
    }

    /// Floating-point operations of products in one update of all weights.
    pub fn flops<'a>(&self, weights: impl IntoIterator<Item = &'a Weight>) -> f64 {
        let OptimizerKind::Muon { steps, .. } = self.kind else { return 0.0 };
        let of = |w: &Weight| match w.shape.as_slice() {
            &[a, b] if w.trainable && OptimizerKind::is_hidden_matrix(w) => {
                let (n, m) = (a.min(b) as f64, a.max(b) as f64);
                f64::from(steps) * (4.0 * n * n * m + 2.0 * n * n * n)
            }
            _ => 0.0,
        };
        weights.into_iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Init, Span};

    fn weight(shape: &[u64], axes: &[&str]) -> Weight {
        Weight {
            name: "w".into(),
            shape: shape.to_vec(),
            axes: axes.iter().map(|a| (*a).to_owned()).collect(),
            init: Init::Zeros,
            trainable: true,
            stored: crate::Float::F32,
            adapter: false,
            span: Span::default(),
        }
    }

    #[test]
    fn each_weight_has_its_rule() {
        let others = Others { scale: 0.015, beta1: 0.9, beta2: 0.95, eps: 1e-10 };
        let kind =
            OptimizerKind::Muon { momentum: 0.95, nesterov: true, steps: 5, decay: 0.1, others };
        let muon = Optimizer { kind: kind.clone(), clip: None, decay_on: DecayOn::Matrices };
        let (hidden, table) = (weight(&[8, 4], &["D", "F"]), weight(&[8, 4], &["V", "D"]));
        let (gain, stack) = (weight(&[8], &["D"]), weight(&[3, 8, 4], &["3", "D", "K"]));
        assert_eq!(muon.rule(&hidden), UpdateRule { kind, rate: 1.0 });
        let adam = |decay| OptimizerKind::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-10, decay };
        assert_eq!(muon.rule(&table), UpdateRule { kind: adam(0.1), rate: 0.015 });
        assert_eq!(muon.rule(&stack), UpdateRule { kind: adam(0.1), rate: 0.015 });
        assert_eq!(muon.rule(&gain), UpdateRule { kind: adam(0.0), rate: 0.015 });
        let all = [hidden, table, gain, stack];
        assert_eq!(muon.state_elements(&all), 32 + 64 + 16 + 2 * 96);
        assert_eq!(muon.scratch_elements(&all), 2 * 32 + 3 * 16);
        assert_eq!(muon.flops(&all), 5.0 * (4.0 * 16.0 * 8.0 + 2.0 * 64.0));
    }
}
