//! exp, log, sine, cosine and whole powers in float64, of additions, multiplications and divisions
//! alone: where a few numbers are wanted (tables, initial values), the same on every machine.

use std::f64::consts::{LN_2, LOG2_E, PI, SQRT_2};

/// ln 2 = LN2_HIGH + LN2_LOW, the first with trailing zeros (fdlibm's constants).
const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// exp(x) for |x| < 700: 2^n times the Taylor series of the rest (error below 1e-15).
pub fn exp(x: f64) -> f64 {
    let n = (x * LOG2_E).round_ties_even();
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut sum = 1.0;
    for i in (1..=17).rev() {
        sum = 1.0 + r * sum / f64::from(i);
    }
    sum * f64::from_bits(((n as i64 + 1023) as u64) << 52)
}

/// Natural logarithm of a positive normal number: exponent, and 2 artanh((m - 1)/(m + 1)).
pub fn log(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut e = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 1023 << 52);
    if m > SQRT_2 {
        m *= 0.5;
        e += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut sum = 0.0;
    for i in (0..=11).rev() {
        sum = sum * z + 1.0 / f64::from(2 * i + 1);
    }
    e as f64 * LN_2 + 2.0 * s * sum
}

/// (sin, cos) of 2 pi t.
pub fn sin_cos_turns(t: f64) -> (f64, f64) {
    let quarter = (t * 4.0).round_ties_even();
    let y = (t * 4.0 - quarter) * (PI / 2.0);
    let z = y * y;
    let (mut sin, mut cos) = (0.0, 0.0);
    for i in (0..=9).rev() {
        sin = 1.0 - sin * z / f64::from((2 * i + 2) * (2 * i + 3));
        cos = 1.0 - cos * z / f64::from((2 * i + 1) * (2 * i + 2));
    }
    let sin = sin * y;
    match (quarter as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// (sin, cos) of an angle; error about |angle| * 1e-16.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    sin_cos_turns(angle / (2.0 * PI))
}

/// x^n by squaring.
pub fn power(x: f64, n: u64) -> f64 {
    let (mut base, mut left, mut product) = (x, n, 1.0);
    while left > 0 {
        if left & 1 == 1 {
            product *= base;
        }
        base *= base;
        left >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agree_with_libm() {
        for i in -2000..=2000 {
            let x = f64::from(i) * 0.0137;
            assert!((exp(x) / x.exp() - 1.0).abs() < 2e-15, "exp {x}");
            let (s, c) = sin_cos(x * 10.0);
            assert!((s - (x * 10.0).sin()).abs() < 1e-13, "sin {x}");
            assert!((c - (x * 10.0).cos()).abs() < 1e-13, "cos {x}");
            let y = x.abs() + 1e-12;
            assert!((log(y) - y.ln()).abs() < 4e-16 * y.ln().abs().max(1.0), "log {y}");
        }
        assert!((log(1e-300) / 1e-300f64.ln() - 1.0).abs() < 1e-15);
    }

    #[test]
    fn turns_are_exact_at_quarters() {
        for (t, want) in [(0.0, (0.0, 1.0)), (0.25, (1.0, 0.0)), (0.5, (0.0, -1.0))] {
            assert_eq!(sin_cos_turns(t), want);
            assert_eq!(sin_cos_turns(t + 3.0), want);
        }
    }

    #[test]
    fn powers() {
        assert_eq!(power(0.5, 10), 1.0 / 1024.0);
        assert_eq!(power(3.0, 0), 1.0);
        assert!((power(0.999, 100_000) / 0.999f64.powf(100_000.0) - 1.0).abs() < 1e-11);
    }
}
