//! Sixteen lanes of f32 on every instruction set, with the same bits.
//!
//! A kernel is written once, generic over [`Lanes`], and instantiated for portable code, for AVX2
//! with FMA and for AVX-512. What makes the bits agree:
//! - every operation here is correctly rounded (IEEE 754) or moves bits; `fma` rounds once;
//! - a vector has sixteen lanes even where a register has eight, and lanes are folded in one
//!   order (halves, then quarters, ...);
//! - nothing calls the machine's libm: [`math`] has its own polynomials.
//!
//! Which bits a NaN carries is not part of the promise; that it is a NaN is.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
mod scalar;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Lanes of a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// Sixteen f32. Crate-private: values of the AVX types arise only below [`Isa::call`], which has
/// made sure that the processor knows the instructions.
pub(crate) trait Lanes:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    type Mask: Copy;
    /// Rows and vectors per row of the matrix product's register tile. No bit depends on it.
    const TILE: (usize, usize);

    fn splat(x: f32) -> Self;
    fn load(from: &[f32; LANES]) -> Self;
    fn store(self, to: &mut [f32; LANES]);
    /// The first `from.len()` lanes (at most sixteen); `fill` elsewhere.
    fn load_part_or(from: &[f32], fill: f32) -> Self;
    /// Stores the first `to.len()` lanes (at most sixteen).
    fn store_part(self, to: &mut [f32]);

    /// self * m + a, rounded once.
    fn fma(self, m: Self, a: Self) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    /// self > other ? self : other; so `other` where one is NaN.
    fn max(self, other: Self) -> Self;
    /// self < other ? self : other; so `other` where one is NaN.
    fn min(self, other: Self) -> Self;

    fn eq(self, other: Self) -> Self::Mask;
    fn lt(self, other: Self) -> Self::Mask;
    fn le(self, other: Self) -> Self::Mask;
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// self * 2^n for whole n in -250..=250 and self in 0.5..=2, rounded once.
    fn scale2(self, n: Self) -> Self;
    /// (e, m) with self = m * 2^e and m in [sqrt(1/2), sqrt(2)), for positive normal numbers.
    fn split2(self) -> (Self, Self);

    /// Lane i + lane i + 8, then + 4, + 2, + 1.
    fn fold_sum(self) -> f32;
    /// `max` in the order of `fold_sum`.
    fn fold_max(self) -> f32;

    /// Says that this place will be used soon; may do nothing.
    #[inline(always)]
    fn prefetch(_: &f32) {}
    /// Lane j of vector i becomes lane i of vector j.
    fn transpose(square: &mut [Self; LANES]);
    /// Runs a kernel as a function of its own (not inlined) with this instruction set.
    fn enter<K: Kernel>(kernel: K) -> K::Output;
}

/// What is common to all implementations.
pub(crate) trait LanesExt: Lanes {
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    /// The first `from.len()` lanes (at most sixteen); zero elsewhere.
    #[inline(always)]
    fn load_part(from: &[f32]) -> Self {
        Self::load_part_or(from, 0.0)
    }

    /// Up to sixteen lanes: all where `from` has them, else `fill` beyond its end.
    #[inline(always)]
    fn load_some(from: &[f32], fill: f32) -> Self {
        match from.try_into() {
            Ok(whole) => Self::load(whole),
            Err(_) => Self::load_part_or(from, fill),
        }
    }

    /// Stores as many lanes as `to` has room for, up to sixteen.
    #[inline(always)]
    fn store_some(self, to: &mut [f32]) {
        match <&mut [f32; LANES]>::try_from(&mut *to) {
            Ok(whole) => self.store(whole),
            Err(_) => self.store_part(to),
        }
    }

    /// Nearest whole number, ties to even; for |x| < 2^22.
    #[inline(always)]
    fn round(self) -> Self {
        let magic = Self::splat(12_582_912.0);
        (self + magic) - magic
    }

    /// Larger of both; NaN where one is NaN.
    #[inline(always)]
    fn max_or_nan(self, other: Self) -> Self {
        Self::select(self.eq(self), self.max(other), self)
    }

    /// Smaller of both; NaN where one is NaN.
    #[inline(always)]
    fn min_or_nan(self, other: Self) -> Self {
        Self::select(self.eq(self), self.min(other), self)
    }

    /// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
    #[inline(always)]
    fn poly<const N: usize>(self, c: &[f32; N]) -> Self {
        let mut sum = Self::splat(c[N - 1]);
        for i in (0..N - 1).rev() {
            sum = sum.fma(self, Self::splat(c[i]));
        }
        sum
    }
}

impl<L: Lanes> LanesExt for L {}

/// Work that is compiled for every instruction set. `run` and all that it calls must be
/// `#[inline(always)]`, or it would be compiled without the instructions.
pub(crate) trait Kernel {
    type Output;
    fn run<L: Lanes>(self) -> Self::Output;
}

/// The instruction set that kernels use. A value stands for one that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    Avx2,
    Avx512,
}

/// `MONARCH_ISA` asks for something that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsaError {
    Unknown { asked: String },
    Unavailable { asked: String, best: &'static str },
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsaError::Unknown { asked } => write!(
                f,
                "MONARCH_ISA is `{asked}`: known are scalar, avx2 and avx512 (unset: the best)"
            ),
            IsaError::Unavailable { asked, best } => write!(
                f,
                "MONARCH_ISA is `{asked}`, which this processor lacks: its best is {best}"
            ),
        }
    }
}

impl std::error::Error for IsaError {}

impl Isa {
    /// Portable code, without any vector instruction of its own.
    pub const SCALAR: Isa = Isa(Kind::Scalar);

    /// The best that this processor has, or the one that the environment names in `MONARCH_ISA`.
    pub fn detect() -> Result<Isa, IsaError> {
        match std::env::var_os("MONARCH_ISA") {
            Some(asked) => Isa::named(&asked.to_string_lossy()),
            None => Ok(Isa::best()),
        }
    }

    /// `scalar`, `avx2` or `avx512`, if this processor has it.
    pub fn named(name: &str) -> Result<Isa, IsaError> {
        let asked = name.to_string();
        if !["scalar", "avx2", "avx512"].contains(&name) {
            return Err(IsaError::Unknown { asked });
        }
        let best = Isa::best().name();
        let found = Isa::available().into_iter().find(|isa| isa.name() == name);
        found.ok_or(IsaError::Unavailable { asked, best })
    }

    /// All that this processor has, the plainest first.
    pub fn available() -> Vec<Isa> {
        let mut all = vec![Isa(Kind::Scalar)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Isa(Kind::Avx2));
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                    all.push(Isa(Kind::Avx512));
                }
            }
        }
        all
    }

    fn best() -> Isa {
        Isa::available().pop().unwrap_or(Isa::SCALAR)
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            Kind::Avx2 => "avx2",
            Kind::Avx512 => "avx512",
        }
    }

    /// Runs a kernel compiled for this instruction set.
    #[inline]
    pub(crate) fn call<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::Scalar => kernel.run::<scalar::Scalar>(),
            // SAFETY: an `Isa` of this kind is only made after the processor was asked.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { call_avx2(kernel) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { call_avx512(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            Kind::Avx2 | Kind::Avx512 => kernel.run::<scalar::Scalar>(),
        }
    }
}

/// # Safety
/// The processor must have AVX2 and FMA.
#[inline(never)]
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn call_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<avx2::Avx2>()
}

/// # Safety
/// The processor must have AVX2, FMA, AVX-512F and AVX-512DQ.
#[inline(never)]
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
unsafe fn call_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<avx512::Avx512>()
}
