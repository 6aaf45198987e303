//! One register of sixteen lanes (AVX-512F and DQ).
//!
//! SAFETY of every block below: a value of this type, and so a call of these functions, only
//! arises under `Isa::call`, after the processor was found to have the instructions. Loads and
//! stores stay within the slices that they are given (masked-off lanes are not touched).

use super::scalar::SQRT_HALF;
use super::{Kernel, LANES, Lanes};
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

macro_rules! on {
    ($f:ident($($x:expr),*)) => {
        // SAFETY: see the head of the file.
        Avx512(unsafe { $f($($x.0),*) })
    };
}

/// Mask of the first `n` lanes.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n.min(LANES)) - 1) as __mmask16
}

macro_rules! fold {
    ($x:expr, $eight:ident, $four:ident, $one:ident) => {
        // SAFETY: see the head of the file.
        unsafe {
            let low = _mm512_castps512_ps256($x.0);
            let eight = $eight(low, _mm512_extractf32x8_ps::<1>($x.0));
            let low = _mm256_castps256_ps128(eight);
            let four = $four(low, _mm256_extractf128_ps::<1>(eight));
            let two = $four(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32($one(two, _mm_movehdup_ps(two)))
        }
    };
}

impl Lanes for Avx512 {
    type Mask = __mmask16;
    const TILE: (usize, usize) = (14, 2);

    #[inline(always)]
    fn splat(x: f32) -> Avx512 {
        // SAFETY: see the head of the file.
        Avx512(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Avx512 {
        // SAFETY: see the head of the file.
        Avx512(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        // SAFETY: see the head of the file.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn load_part_or(from: &[f32], fill: f32) -> Avx512 {
        // SAFETY: see the head of the file.
        Avx512(unsafe {
            _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(from.len()), from.as_ptr())
        })
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32]) {
        // SAFETY: see the head of the file.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), first(to.len()), self.0) }
    }

    #[inline(always)]
    fn fma(self, m: Avx512, a: Avx512) -> Avx512 {
        on!(_mm512_fmadd_ps(self, m, a))
    }

    #[inline(always)]
    fn sqrt(self) -> Avx512 {
        on!(_mm512_sqrt_ps(self))
    }

    #[inline(always)]
    fn abs(self) -> Avx512 {
        on!(_mm512_abs_ps(self))
    }

    #[inline(always)]
    fn max(self, other: Avx512) -> Avx512 {
        on!(_mm512_max_ps(self, other))
    }

    #[inline(always)]
    fn min(self, other: Avx512) -> Avx512 {
        on!(_mm512_min_ps(self, other))
    }

    #[inline(always)]
    fn eq(self, other: Avx512) -> __mmask16 {
        // SAFETY: see the head of the file.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn lt(self, other: Avx512) -> __mmask16 {
        // SAFETY: see the head of the file.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn le(self, other: Avx512) -> __mmask16 {
        // SAFETY: see the head of the file.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn select(mask: __mmask16, yes: Avx512, no: Avx512) -> Avx512 {
        // SAFETY: see the head of the file.
        Avx512(unsafe { _mm512_mask_blend_ps(mask, no.0, yes.0) })
    }

    #[inline(always)]
    fn scale2(self, n: Avx512) -> Avx512 {
        on!(_mm512_scalef_ps(self, n))
    }

    #[inline(always)]
    fn split2(self) -> (Avx512, Avx512) {
        // SAFETY: see the head of the file.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let e = _mm512_srai_epi32::<23>(_mm512_sub_epi32(bits, _mm512_set1_epi32(SQRT_HALF)));
            let m = _mm512_sub_epi32(bits, _mm512_slli_epi32::<23>(e));
            (Avx512(_mm512_cvtepi32_ps(e)), Avx512(_mm512_castsi512_ps(m)))
        }
    }

    #[inline(always)]
    fn fold_sum(self) -> f32 {
        fold!(self, _mm256_add_ps, _mm_add_ps, _mm_add_ss)
    }

    #[inline(always)]
    fn fold_max(self) -> f32 {
        fold!(self, _mm256_max_ps, _mm_max_ps, _mm_max_ss)
    }

    /// Pairs, then quadruples within each 128-bit quarter; then the quarters change places.
    #[inline(always)]
    fn transpose(square: &mut [Avx512; LANES]) {
        let r: [__m512; LANES] = square.map(|v| v.0);
        let mut t = r;
        let mut u = r;
        // SAFETY: see the head of the file.
        unsafe {
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in [0, 4, 8, 12] {
                u[i] = _mm512_shuffle_ps::<0x44>(t[i], t[i + 2]);
                u[i + 1] = _mm512_shuffle_ps::<0xee>(t[i], t[i + 2]);
                u[i + 2] = _mm512_shuffle_ps::<0x44>(t[i + 1], t[i + 3]);
                u[i + 3] = _mm512_shuffle_ps::<0xee>(t[i + 1], t[i + 3]);
            }
            // u[4 q + j]: lanes 4 s + j (s = 0..4 in the quarters) of rows 4 q .. 4 q + 4.
            for j in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(u[j], u[4 + j]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(u[j], u[4 + j]);
                let even_low = _mm512_shuffle_f32x4::<0x88>(u[8 + j], u[12 + j]);
                let odd_low = _mm512_shuffle_f32x4::<0xdd>(u[8 + j], u[12 + j]);
                square[j].0 = _mm512_shuffle_f32x4::<0x88>(even, even_low);
                square[8 + j].0 = _mm512_shuffle_f32x4::<0xdd>(even, even_low);
                square[4 + j].0 = _mm512_shuffle_f32x4::<0x88>(odd, odd_low);
                square[12 + j].0 = _mm512_shuffle_f32x4::<0xdd>(odd, odd_low);
            }
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
        unsafe { super::call_avx512(kernel) }
    }
}

impl Add for Avx512 {
    type Output = Avx512;
    #[inline(always)]
    fn add(self, other: Avx512) -> Avx512 {
        on!(_mm512_add_ps(self, other))
    }
}

impl Sub for Avx512 {
    type Output = Avx512;
    #[inline(always)]
    fn sub(self, other: Avx512) -> Avx512 {
        on!(_mm512_sub_ps(self, other))
    }
}

impl Mul for Avx512 {
    type Output = Avx512;
    #[inline(always)]
    fn mul(self, other: Avx512) -> Avx512 {
        on!(_mm512_mul_ps(self, other))
    }
}

impl Div for Avx512 {
    type Output = Avx512;
    #[inline(always)]
    fn div(self, other: Avx512) -> Avx512 {
        on!(_mm512_div_ps(self, other))
    }
}

impl Neg for Avx512 {
    type Output = Avx512;
    #[inline(always)]
    fn neg(self) -> Avx512 {
        let sign = Avx512::splat(-0.0);
        on!(_mm512_xor_ps(sign, self))
    }
}
