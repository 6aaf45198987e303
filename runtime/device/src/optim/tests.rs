use super::*;
use crate::testing::{Noise, bits, isas};

const SGD: OptimizerKind = OptimizerKind::Sgd { momentum: 0.9, decay: 0.01, nesterov: false };
const NESTEROV: OptimizerKind = OptimizerKind::Sgd { momentum: 0.9, decay: 0.01, nesterov: true };
const ADAM: OptimizerKind = OptimizerKind::Adam { beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.1 };
const LION: OptimizerKind = OptimizerKind::Lion { beta1: 0.9, beta2: 0.99, decay: 0.1 };
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
        let shape = [n as u64];
        let target = Target { shape: &shape, weight: &mut weight, gradient: &gradient };
        update(isa, kind, step, target, &mut views).unwrap();
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
                OptimizerKind::Sgd { momentum, decay, nesterov } => {
                    let g = g + decay * weight[i];
                    m[i] = momentum * m[i] + g;
                    weight[i] -= 1e-2 * if *nesterov { g + momentum * m[i] } else { m[i] };
                }
                OptimizerKind::Lion { beta1, beta2, decay } => {
                    let along = beta1 * m[i] + (1.0 - beta1) * g;
                    weight[i] -= 1e-2 * (along.signum() + decay * weight[i]);
                    m[i] = beta2 * m[i] + (1.0 - beta2) * g;
                }
                OptimizerKind::Muon { .. } => unreachable!("tested with its products"),
                OptimizerKind::Adam { beta1, beta2, eps, decay } => {
                    let g = g + decay * weight[i];
                    m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                    v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                    let (m, v) = (m[i] / (1.0 - beta1.powi(t)), v[i] / (1.0 - beta2.powi(t)));
                    weight[i] -= 1e-2 * m / (v.sqrt() + eps);
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
    for kind in [SGD, NESTEROV, ADAMW, ADAM, LION] {
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
    let shape = &[4];
    let target = Target { shape, weight: &mut w, gradient: &[0.0; 4] };
    let none = update(Isa::SCALAR, &SGD, step, target, &mut []);
    assert_eq!(none, Err(UpdateError::Slots { expected: 1, found: 0 }));
    let mut short = [0.0; 3];
    let target = Target { shape, weight: &mut w, gradient: &[0.0; 4] };
    let one = update(Isa::SCALAR, &SGD, step, target, &mut [&mut short]);
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
