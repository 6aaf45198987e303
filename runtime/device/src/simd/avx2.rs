//! Two registers of eight lanes (AVX2 with FMA).
//!
//! SAFETY of every block below: a value of this type, and so a call of these functions, only
//! arises under `Isa::call`, after the processor was found to have the instructions. Loads and
//! stores stay within the slices that they are given (masked-off lanes are not touched).

use super::scalar::SQRT_HALF;
use super::{Kernel, LANES, Lanes};
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

/// Sixteen set lanes, then sixteen clear ones: a window of it is a mask of any length.
static WINDOW: [i32; 2 * LANES] = {
    let mut all = [0; 2 * LANES];
    let mut i = 0;
    while i < LANES {
        all[i] = -1;
        i += 1;
    }
    all
};

/// Masks of the first `n` of sixteen lanes.
#[inline(always)]
fn first(n: usize) -> (__m256i, __m256i) {
    let n = n.min(LANES);
    // SAFETY: see the head of the file; LANES - n + 16 <= 32.
    unsafe {
        let at = WINDOW.as_ptr().add(LANES - n);
        (_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(8).cast()))
    }
}

macro_rules! both {
    ($f:ident($($x:expr),*)) => {
        // SAFETY: see the head of the file.
        unsafe { Avx2($f($($x.0),*), $f($($x.1),*)) }
    };
}

/// 2^n per lane, for whole n in -126..=127.
#[inline(always)]
fn power2(n: __m256i) -> __m256 {
    // SAFETY: see the head of the file.
    unsafe {
        let biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
    }
}

#[inline(always)]
fn scale2_half(x: __m256, n: __m256) -> __m256 {
    // SAFETY: see the head of the file.
    unsafe {
        let whole = _mm256_cvttps_epi32(n);
        let half = _mm256_srai_epi32::<1>(whole);
        let rest = _mm256_sub_epi32(whole, half);
        let (low, high) = (_mm256_set1_epi32(-126), _mm256_set1_epi32(127));
        let half = _mm256_min_epi32(_mm256_max_epi32(half, low), high);
        let rest = _mm256_min_epi32(_mm256_max_epi32(rest, low), high);
        _mm256_mul_ps(_mm256_mul_ps(x, power2(half)), power2(rest))
    }
}

#[inline(always)]
fn split2_half(x: __m256) -> (__m256, __m256) {
    // SAFETY: see the head of the file.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let e = _mm256_srai_epi32::<23>(_mm256_sub_epi32(bits, _mm256_set1_epi32(SQRT_HALF)));
        let m = _mm256_sub_epi32(bits, _mm256_slli_epi32::<23>(e));
        (_mm256_cvtepi32_ps(e), _mm256_castsi256_ps(m))
    }
}

macro_rules! fold {
    ($x:expr, $eight:ident, $four:ident, $one:ident) => {
        // SAFETY: see the head of the file.
        unsafe {
            let eight = $eight($x.0, $x.1);
            let low = _mm256_castps256_ps128(eight);
            let four = $four(low, _mm256_extractf128_ps::<1>(eight));
            let two = $four(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32($one(two, _mm_movehdup_ps(two)))
        }
    };
}

impl Lanes for Avx2 {
    type Mask = (__m256, __m256);
    const TILE: (usize, usize) = (6, 1);

    #[inline(always)]
    fn splat(x: f32) -> Avx2 {
        // SAFETY: see the head of the file.
        unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Avx2 {
        // SAFETY: see the head of the file.
        unsafe {
            let at = from.as_ptr();
            Avx2(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)))
        }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        // SAFETY: see the head of the file.
        unsafe {
            let at = to.as_mut_ptr();
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }

    #[inline(always)]
    fn load_part_or(from: &[f32], fill: f32) -> Avx2 {
        let mask = first(from.len());
        let at = from.as_ptr();
        // SAFETY: see the head of the file; `wrapping_add`, as the upper half may be all masked.
        unsafe {
            let fill = _mm256_set1_ps(fill);
            let low = _mm256_maskload_ps(at, mask.0);
            let high = _mm256_maskload_ps(at.wrapping_add(8), mask.1);
            Avx2(
                _mm256_blendv_ps(fill, low, _mm256_castsi256_ps(mask.0)),
                _mm256_blendv_ps(fill, high, _mm256_castsi256_ps(mask.1)),
            )
        }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32]) {
        let mask = first(to.len());
        let at = to.as_mut_ptr();
        // SAFETY: see the head of the file; `wrapping_add`, as the upper half may be all masked.
        unsafe {
            _mm256_maskstore_ps(at, mask.0, self.0);
            _mm256_maskstore_ps(at.wrapping_add(8), mask.1, self.1);
        }
    }

    #[inline(always)]
    fn fma(self, m: Avx2, a: Avx2) -> Avx2 {
        both!(_mm256_fmadd_ps(self, m, a))
    }

    #[inline(always)]
    fn sqrt(self) -> Avx2 {
        both!(_mm256_sqrt_ps(self))
    }

    #[inline(always)]
    fn abs(self) -> Avx2 {
        let sign = Avx2::splat(-0.0);
        both!(_mm256_andnot_ps(sign, self))
    }

    #[inline(always)]
    fn max(self, other: Avx2) -> Avx2 {
        both!(_mm256_max_ps(self, other))
    }

    #[inline(always)]
    fn min(self, other: Avx2) -> Avx2 {
        both!(_mm256_min_ps(self, other))
    }

    #[inline(always)]
    fn eq(self, other: Avx2) -> (__m256, __m256) {
        // SAFETY: see the head of the file.
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, other.0);
            (low, _mm256_cmp_ps::<_CMP_EQ_OQ>(self.1, other.1))
        }
    }

    #[inline(always)]
    fn lt(self, other: Avx2) -> (__m256, __m256) {
        // SAFETY: see the head of the file.
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0);
            (low, _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, other.1))
        }
    }

    #[inline(always)]
    fn le(self, other: Avx2) -> (__m256, __m256) {
        // SAFETY: see the head of the file.
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_LE_OQ>(self.0, other.0);
            (low, _mm256_cmp_ps::<_CMP_LE_OQ>(self.1, other.1))
        }
    }

    #[inline(always)]
    fn select(mask: (__m256, __m256), yes: Avx2, no: Avx2) -> Avx2 {
        both!(_mm256_blendv_ps(no, yes, mask))
    }

    #[inline(always)]
    fn scale2(self, n: Avx2) -> Avx2 {
        Avx2(scale2_half(self.0, n.0), scale2_half(self.1, n.1))
    }

    #[inline(always)]
    fn split2(self) -> (Avx2, Avx2) {
        let (low, high) = (split2_half(self.0), split2_half(self.1));
        (Avx2(low.0, high.0), Avx2(low.1, high.1))
    }

    #[inline(always)]
    fn fold_sum(self) -> f32 {
        fold!(self, _mm256_add_ps, _mm_add_ps, _mm_add_ss)
    }

    #[inline(always)]
    fn fold_max(self) -> f32 {
        fold!(self, _mm256_max_ps, _mm_max_ps, _mm_max_ss)
    }

    /// As four squares of eight, of which two change places.
    #[inline(always)]
    fn transpose(square: &mut [Avx2; LANES]) {
        let old = *square;
        let quarter = |i: usize, right: bool| -> [__m256; 8] {
            let pick = |j: usize| if right { old[i + j].1 } else { old[i + j].0 };
            transpose8(std::array::from_fn(pick))
        };
        let (a, b) = (quarter(0, false), quarter(0, true));
        let (c, d) = (quarter(8, false), quarter(8, true));
        for i in 0..8 {
            square[i] = Avx2(a[i], c[i]);
            square[i + 8] = Avx2(b[i], d[i]);
        }
    }

    #[inline(always)]
    fn prefetch(place: &f32) {
        // SAFETY: see the head of the file; a hint about memory that is borrowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }

    #[inline(always)]
    fn enter<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: see the head of the file.
        unsafe { super::call_avx2(kernel) }
    }
}

#[inline(always)]
fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: see the head of the file.
    unsafe {
        let mut t = r;
        for i in 0..4 {
            t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        let mut u = t;
        for i in [0, 4] {
            u[i] = _mm256_shuffle_ps::<0x44>(t[i], t[i + 2]);
            u[i + 1] = _mm256_shuffle_ps::<0xee>(t[i], t[i + 2]);
            u[i + 2] = _mm256_shuffle_ps::<0x44>(t[i + 1], t[i + 3]);
            u[i + 3] = _mm256_shuffle_ps::<0xee>(t[i + 1], t[i + 3]);
        }
        let mut out = u;
        for i in 0..4 {
            out[i] = _mm256_permute2f128_ps::<0x20>(u[i], u[i + 4]);
            out[i + 4] = _mm256_permute2f128_ps::<0x31>(u[i], u[i + 4]);
        }
        out
    }
}

impl Add for Avx2 {
    type Output = Avx2;
    #[inline(always)]
    fn add(self, other: Avx2) -> Avx2 {
        both!(_mm256_add_ps(self, other))
    }
}

impl Sub for Avx2 {
    type Output = Avx2;
    #[inline(always)]
    fn sub(self, other: Avx2) -> Avx2 {
        both!(_mm256_sub_ps(self, other))
    }
}

impl Mul for Avx2 {
    type Output = Avx2;
    #[inline(always)]
    fn mul(self, other: Avx2) -> Avx2 {
        both!(_mm256_mul_ps(self, other))
    }
}

impl Div for Avx2 {
    type Output = Avx2;
    #[inline(always)]
    fn div(self, other: Avx2) -> Avx2 {
        both!(_mm256_div_ps(self, other))
    }
}

impl Neg for Avx2 {
    type Output = Avx2;
    #[inline(always)]
    fn neg(self) -> Avx2 {
        let sign = Avx2::splat(-0.0);
        both!(_mm256_xor_ps(sign, self))
    }
}
