//! The register tile: M rows of V vectors, kept in registers over one block of k.

use super::Gemm;
use crate::simd::{Kernel, LANES, Lanes, LanesExt};
use std::ops::Range;

/// Where a tile's sums go.
pub(super) struct Target<'a> {
    pub plan: &'a Gemm,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// Add to what stands there (an earlier block of k).
    pub accumulate: bool,
}

/// Multiplies a packed panel of rows with a tile of columns whose rows are `step` apart.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(
    k: usize,
    a: &[f32],
    b: &[f32],
    step: usize,
    target: Target,
    out: &mut [f32],
) {
    let narrow = target.columns.len() <= LANES;
    let vectors = if narrow { 1 } else { L::TILE.1 };
    let (m, width) = (target.rows.len(), vectors * LANES);
    assert!(a.len() >= m * k && b.len() >= (k - 1) * step + width);
    assert!(target.rows.end <= target.plan.m && target.columns.end <= target.plan.n);
    macro_rules! tile {
        ($($rows:literal)*) => {
            match m {
                $($rows if L::TILE.0 >= $rows => {
                    if L::TILE.1 == 2 && !narrow {
                        L::enter(Tile::<$rows, 2> { k, a, b, step, target, out })
                    } else {
                        L::enter(Tile::<$rows, 1> { k, a, b, step, target, out })
                    }
                })*
                _ => unreachable!("a tile has at most {} rows", L::TILE.0),
            }
        };
    }
    tile!(1 2 3 4 5 6 7 8 9 10 11 12 13 14)
}

struct Tile<'a, const M: usize, const V: usize> {
    k: usize,
    a: &'a [f32],
    b: &'a [f32],
    step: usize,
    target: Target<'a>,
    out: &'a mut [f32],
}

impl<const M: usize, const V: usize> Kernel for Tile<'_, M, V> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Target { plan, rows, columns, accumulate } = self.target;
        let rows = &plan.out_rows[rows];
        let to = &plan.out_columns[columns.clone()];
        let unit = &plan.out_unit[columns.start / LANES..columns.end.div_ceil(LANES)];
        // The common case: the whole tile lies side by side.
        let whole = to.len() == V * LANES
            && to[(V - 1) * LANES] == to[0] + (V - 1) * LANES
            && unit.iter().all(|&u| u);
        if whole {
            for place in
                rows.iter().flat_map(|&at| self.out[at + to[0]..].iter().step_by(LANES).take(V))
            {
                L::prefetch(place);
            }
        }
        let sums = sums::<L, M, V>(self.k, self.a, self.b, self.step);
        if whole {
            for (row, &at) in sums.iter().zip(rows) {
                let (line, _) = self.out[at + to[0]..][..V * LANES].as_chunks_mut::<LANES>();
                for (&sum, to) in row.iter().zip(line) {
                    let sum = if accumulate { L::load(to) + sum } else { sum };
                    sum.store(to);
                }
            }
            return;
        }
        for (row, &at) in sums.iter().zip(rows) {
            for ((&sum, to), &unit) in row.iter().zip(to.chunks(LANES)).zip(unit) {
                put(sum, unit, at, to, accumulate, self.out);
            }
        }
    }
}

/// The products of M packed rows with V vectors, summed over k.
#[inline(always)]
fn sums<L: Lanes, const M: usize, const V: usize>(
    k: usize,
    a: &[f32],
    b: &[f32],
    step: usize,
) -> [[L; V]; M] {
    let mut sums = [[L::splat(0.0); V]; M];
    let (mut a, mut b) = (a.as_ptr(), b.as_ptr());
    for _ in 0..k {
        // SAFETY: `multiply` has checked that a has k * M elements and that b has V vectors in
        // each of k rows, `step` apart; the pointers move past the end only by `wrapping_add`,
        // after the last use.
        unsafe {
            let vectors: [L; V] =
                std::array::from_fn(|v| L::load(&*b.add(v * LANES).cast::<[f32; LANES]>()));
            for (i, row) in sums.iter_mut().enumerate() {
                let x = L::splat(*a.add(i));
                for (sum, y) in row.iter_mut().zip(vectors) {
                    *sum = x.fma(y, *sum);
                }
            }
        }
        a = a.wrapping_add(M);
        b = b.wrapping_add(step);
    }
    sums
}

/// Stores (or adds) the lanes of one vector.
#[inline(always)]
fn put<L: Lanes>(
    sum: L,
    unit: bool,
    row: usize,
    columns: &[usize],
    accumulate: bool,
    out: &mut [f32],
) {
    if !unit {
        let mut lanes = [0.0; LANES];
        sum.store(&mut lanes);
        for (&column, lane) in columns.iter().zip(lanes) {
            let to = &mut out[row + column];
            *to = if accumulate { *to + lane } else { lane };
        }
        return;
    }
    let to = &mut out[row + columns[0]..][..columns.len()];
    let sum = if accumulate { L::load_some(to, 0.0) + sum } else { sum };
    sum.store_some(to);
}
