//! The learning rate as a function of the step.

use crate::math::{exp, log, power};
use wincode::{SchemaRead, SchemaWrite};

/// Learning rate as a function of the optimizer step: pieces one after another. The last piece
/// goes on for ever (a finished cosine stays at its end).
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Schedule {
    pub pieces: Vec<Piece>,
}

/// `value(s)` for s = 0.. within the piece.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Piece {
    pub curve: Curve,
    /// Steps.
    pub length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum Curve {
    Constant(f64),
    /// to * (s + 1) / length.
    Warmup {
        to: f64,
    },
    /// from + (to - from) * s / length.
    Linear {
        from: f64,
        to: f64,
    },
    /// to + (from - to) * (1 + cos(pi * s / length)) / 2.
    Cosine {
        from: f64,
        to: f64,
    },
    /// from * (to / from)^(s / length), both above 0.
    Exponential {
        from: f64,
        to: f64,
    },
    /// from * factor^floor(s / every).
    Step {
        from: f64,
        factor: f64,
        every: u64,
    },
    /// from * sqrt(after / (after + s)), `after` being the steps before the piece (Vaswani et al.
    /// 2017).
    InverseSqrt {
        from: f64,
        after: u64,
    },
}

impl Schedule {
    /// Learning rate of optimizer step `step` (counted from 0).
    pub fn at(&self, step: u64) -> f64 {
        let mut s = step;
        for (i, piece) in self.pieces.iter().enumerate() {
            if s < piece.length || i + 1 == self.pieces.len() {
                return piece.curve.at(s.min(piece.length), piece.length);
            }
            s -= piece.length;
        }
        0.0
    }
}

impl Curve {
    /// At step `s` of a piece of `length` steps.
    pub fn at(self, s: u64, length: u64) -> f64 {
        let part = if length == 0 { 1.0 } else { s as f64 / length as f64 };
        match self {
            Curve::Constant(v) => v,
            Curve::Warmup { to } if length == 0 => to,
            Curve::Warmup { to } => to * (s.min(length - 1) + 1) as f64 / length as f64,
            Curve::Linear { from, to } => from + (to - from) * part,
            Curve::Cosine { from, to } => to + (from - to) * (1.0 + cos_pi(part)) / 2.0,
            Curve::Exponential { to, .. } if part == 1.0 => to,
            Curve::Exponential { from, to } => from * exp(part * (log(to) - log(from))),
            Curve::Step { from, factor, every } => from * power(factor, s / every.max(1)),
            Curve::InverseSqrt { from, after } => {
                from * (after as f64 / (after as f64 + s as f64)).sqrt()
            }
        }
    }
}

/// cos(pi * x) for x in 0..=1 by a polynomial, so that no machine's libm has a say in the
/// learning rate: Taylor about the nearest of 0, 1/2 and 1, error below 1e-15.
fn cos_pi(x: f64) -> f64 {
    if x > 0.5 {
        return -cos_pi(1.0 - x);
    }
    if x > 0.25 {
        return sin_poly(std::f64::consts::PI * (0.5 - x));
    }
    let y = std::f64::consts::PI * x;
    let z = y * y;
    let mut term = 1.0;
    let mut sum = 1.0;
    for n in 1..10 {
        term *= -z / f64::from((2 * n - 1) * (2 * n));
        sum += term;
    }
    sum
}

fn sin_poly(y: f64) -> f64 {
    let z = y * y;
    let mut term = y;
    let mut sum = y;
    for n in 1..10 {
        term *= -z / f64::from((2 * n) * (2 * n + 1));
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_is_a_cosine() {
        for i in 0..=1000 {
            let x = f64::from(i) / 1000.0;
            let want = (std::f64::consts::PI * x).cos();
            assert!((cos_pi(x) - want).abs() < 1e-15, "{x}");
        }
    }

    #[test]
    fn schedules_chain() {
        let schedule = Schedule {
            pieces: vec![
                Piece { curve: Curve::Warmup { to: 0.003 }, length: 4 },
                Piece { curve: Curve::Cosine { from: 0.003, to: 0.0003 }, length: 8 },
            ],
        };
        assert_eq!(schedule.at(0), 0.00075);
        assert_eq!(schedule.at(3), 0.003);
        assert_eq!(schedule.at(4), 0.003);
        assert!((schedule.at(5) - 0.002_897_237_368_890_237_4).abs() < 1e-15);
        assert_eq!(schedule.at(12), 0.0003);
        assert_eq!(schedule.at(1_000), 0.0003);
    }

    #[test]
    fn curves_are_their_formulas() {
        let close = |curve: Curve, s, length, want: f64| {
            let found = curve.at(s, length);
            assert!((found / want - 1.0).abs() < 1e-14, "{curve:?} at {s}: {found}, not {want}");
        };
        let exponential = Curve::Exponential { from: 0.1, to: 0.001 };
        close(exponential, 0, 8, 0.1);
        close(exponential, 4, 8, 0.01);
        assert_eq!(exponential.at(8, 8), 0.001);
        let step = Curve::Step { from: 0.1, factor: 0.5, every: 3 };
        assert_eq!([0, 2, 3, 6].map(|s| step.at(s, 100)), [0.1, 0.1, 0.05, 0.025]);
        let root = Curve::InverseSqrt { from: 0.1, after: 100 };
        assert_eq!(root.at(0, 1000), 0.1);
        assert_eq!(root.at(300, 1000), 0.05);
    }
}
