//! Portable lanes: an array. What the other two must agree with.

use super::{Kernel, LANES, Lanes};
use std::ops::{Add, Div, Mul, Neg, Sub};

#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; LANES]);

impl Scalar {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Scalar {
        Scalar(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, other: Scalar, f: impl Fn(f32, f32) -> f32) -> Scalar {
        Scalar(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    #[inline(always)]
    fn test(self, other: Scalar, f: impl Fn(f32, f32) -> bool) -> [bool; LANES] {
        std::array::from_fn(|i| f(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn fold(mut self, f: impl Fn(f32, f32) -> f32) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                self.0[i] = f(self.0[i], self.0[i + half]);
            }
        }
        self.0[0]
    }
}

/// 2^n for n in -126..=127, from its exponent bits.
#[inline(always)]
fn power2(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

impl Lanes for Scalar {
    type Mask = [bool; LANES];
    const TILE: (usize, usize) = (4, 1);

    #[inline(always)]
    fn splat(x: f32) -> Scalar {
        Scalar([x; LANES])
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Scalar {
        Scalar(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }

    #[inline(always)]
    fn load_part_or(from: &[f32], fill: f32) -> Scalar {
        let mut all = [fill; LANES];
        for (to, &x) in all.iter_mut().zip(from) {
            *to = x;
        }
        Scalar(all)
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32]) {
        for (to, x) in to.iter_mut().zip(self.0) {
            *to = x;
        }
    }

    #[inline(always)]
    fn fma(self, m: Scalar, a: Scalar) -> Scalar {
        Scalar(std::array::from_fn(|i| self.0[i].mul_add(m.0[i], a.0[i])))
    }

    #[inline(always)]
    fn sqrt(self) -> Scalar {
        self.map(f32::sqrt)
    }

    #[inline(always)]
    fn abs(self) -> Scalar {
        self.map(f32::abs)
    }

    #[inline(always)]
    fn max(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn eq(self, other: Scalar) -> [bool; LANES] {
        self.test(other, |a, b| a == b)
    }

    #[inline(always)]
    fn lt(self, other: Scalar) -> [bool; LANES] {
        self.test(other, |a, b| a < b)
    }

    #[inline(always)]
    fn le(self, other: Scalar) -> [bool; LANES] {
        self.test(other, |a, b| a <= b)
    }

    #[inline(always)]
    fn select(mask: [bool; LANES], yes: Scalar, no: Scalar) -> Scalar {
        Scalar(std::array::from_fn(|i| if mask[i] { yes.0[i] } else { no.0[i] }))
    }

    /// In two steps, of which the first is exact: one would overflow the exponent.
    #[inline(always)]
    fn scale2(self, n: Scalar) -> Scalar {
        self.zip(n, |x, n| {
            let whole = n as i32;
            let half = whole >> 1;
            x * power2(half.clamp(-126, 127)) * power2((whole - half).clamp(-126, 127))
        })
    }

    #[inline(always)]
    fn split2(self) -> (Scalar, Scalar) {
        // Wrapping, as the vector instructions do on what is not a number.
        let exponent = |bits: i32| bits.wrapping_sub(SQRT_HALF) >> 23;
        let e = self.map(|x| exponent(x.to_bits() as i32) as f32);
        let m = self.map(|x| {
            let bits = x.to_bits() as i32;
            f32::from_bits(bits.wrapping_sub(exponent(bits) << 23) as u32)
        });
        (e, m)
    }

    #[inline(always)]
    fn fold_sum(self) -> f32 {
        self.fold(|a, b| a + b)
    }

    #[inline(always)]
    fn fold_max(self) -> f32 {
        self.fold(|a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn transpose(square: &mut [Scalar; LANES]) {
        let old = *square;
        *square = std::array::from_fn(|i| Scalar(std::array::from_fn(|j| old[j].0[i])));
    }

    #[inline(always)]
    fn enter<K: Kernel>(kernel: K) -> K::Output {
        call(kernel)
    }
}

#[inline(never)]
fn call<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Scalar>()
}

/// Bits of sqrt(1/2).
pub(super) const SQRT_HALF: i32 = 0x3f35_04f3;

impl Add for Scalar {
    type Output = Scalar;
    #[inline(always)]
    fn add(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a + b)
    }
}

impl Sub for Scalar {
    type Output = Scalar;
    #[inline(always)]
    fn sub(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a - b)
    }
}

impl Mul for Scalar {
    type Output = Scalar;
    #[inline(always)]
    fn mul(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a * b)
    }
}

impl Div for Scalar {
    type Output = Scalar;
    #[inline(always)]
    fn div(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a / b)
    }
}

impl Neg for Scalar {
    type Output = Scalar;
    #[inline(always)]
    fn neg(self) -> Scalar {
        self.map(|x| -x)
    }
}
