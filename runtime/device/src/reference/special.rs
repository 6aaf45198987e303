//! erf and erfc in float64, which std lacks.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// erf(x) = 2/sqrt(pi) * exp(-x^2) * sum over n of 2^n x^(2n+1) / (2n+1)!! (all terms of one
/// sign: no cancellation), up to |x| = 3; 1 - erfc beyond.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a >= 3.0 {
        return (1.0 - erfc(a)).copysign(x);
    }
    let mut term = a;
    let mut sum = a;
    let mut n = 1.0;
    while term > sum * 1e-18 {
        term *= 2.0 * a * a / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    (2.0 / PI.sqrt() * (-a * a).exp() * sum).copysign(x)
}

/// erfc(x) = exp(-x^2) / sqrt(pi) / (x + (1/2)/(x + 1/(x + (3/2)/(x + ...)))) from x = 2 on
/// (Abramowitz & Stegun 7.1.14), 1 - erf below.
pub fn erfc(x: f64) -> f64 {
    if x < 2.0 {
        return 1.0 - erf(x);
    }
    let mut tail = x;
    for n in (1..=200).rev() {
        tail = x + f64::from(n) / 2.0 / tail;
    }
    (-x * x).exp() / PI.sqrt() / tail
}

/// Distribution function of the standard normal.
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x * FRAC_1_SQRT_2)
}

/// Density of the standard normal.
pub fn normal_pdf(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Abramowitz & Stegun, tables 7.1 and 7.3.
    #[test]
    fn erf_of_the_tables() {
        for (x, want) in [
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.9, 0.999_958_902_121_900_5),
            (3.5, 0.999_999_256_901_627_7),
        ] {
            assert!((erf(x) - want).abs() < 1e-15, "{x}: {:e}", erf(x) - want);
            assert_eq!(erf(-x), -erf(x));
        }
        let want = 1.537_459_794_428_035e-12;
        assert!((erfc(5.0) / want - 1.0).abs() < 1e-13);
    }
}
