//! Operands in the order in which the register tile reads them.

use super::Gemm;
use crate::simd::{LANES, Lanes, LanesExt};
use std::ops::Range;

/// Columns `columns` of b over `depth`: element (k, j) goes to `to[k * width + j]`; zeros beyond.
#[inline(always)]
pub(super) fn columns<L: Lanes>(
    plan: &Gemm,
    b: &[f32],
    depth: &Range<usize>,
    columns: Range<usize>,
    width: usize,
    to: &mut [f32],
) {
    let depths = &plan.b_depth[depth.clone()];
    for lane in (0..width).step_by(LANES) {
        let left = (columns.start + lane).min(columns.end);
        let part = &plan.b_columns[left..(left + LANES).min(columns.end)];
        // Tiles start at multiples of sixteen, as the groups of `b_unit` do.
        if plan.b_unit.get(left / LANES).copied().unwrap_or(false) && !part.is_empty() {
            side_by_side::<L>(&b[part[0]..], part.len(), depths, &mut to[lane..], width);
        } else {
            strided::<L>(b, part, depths, plan.b_depth_unit, &mut to[lane..], width);
        }
    }
}

/// Rows `rows` of a over `depth`: element (i, k) goes to `to[k * rows.len() + i]`. Writes up to
/// sixteen elements beyond the last one.
#[inline(always)]
pub(super) fn rows<L: Lanes>(
    plan: &Gemm,
    a: &[f32],
    depth: &Range<usize>,
    rows: Range<usize>,
    to: &mut [f32],
) {
    let depths = &plan.a_depth[depth.clone()];
    let part = &plan.a_rows[rows];
    let height = part.len();
    if part.windows(2).all(|w| w[1] == w[0] + 1) {
        side_by_side::<L>(&a[part[0]..], height, depths, to, height);
    } else {
        strided::<L>(a, part, depths, plan.a_depth_unit, to, height);
    }
}

/// `count` (at most sixteen) neighbours at each depth. Whole vectors are stored, lowest depth
/// first: where `step` is less than sixteen the next one overwrites what is too much. (Stores
/// with a mask are slow on some processors.)
#[inline(always)]
fn side_by_side<L: Lanes>(
    from: &[f32],
    count: usize,
    depths: &[usize],
    to: &mut [f32],
    step: usize,
) {
    for (k, &at) in depths.iter().enumerate() {
        if let Some(to) = to[k * step..].first_chunk_mut() {
            L::load_some(&from[at..][..count], 0.0).store(to);
        }
    }
}

/// Lines (at most sixteen) anywhere: element `from[lines[j] + depths[k]]` goes to
/// `to[k * step + j]`, in whole vectors as above; zeros beyond the lines. Where depths lie side
/// by side, in squares of sixteen.
#[inline(always)]
fn strided<L: Lanes>(
    from: &[f32],
    lines: &[usize],
    depths: &[usize],
    unit: bool,
    to: &mut [f32],
    step: usize,
) {
    let mut k = 0;
    while unit && k < depths.len() {
        let deep = (depths.len() - k).min(LANES);
        let mut square = [L::splat(0.0); LANES];
        for (vector, &line) in square.iter_mut().zip(lines) {
            *vector = L::load_some(&from[line + depths[k]..][..deep], 0.0);
        }
        L::transpose(&mut square);
        for (i, vector) in square.iter().take(deep).enumerate() {
            if let Some(to) = to[(k + i) * step..].first_chunk_mut() {
                vector.store(to);
            }
        }
        k += deep;
    }
    for (k, &at) in depths.iter().enumerate().skip(k) {
        let mut row = [0.0; LANES];
        for (to, &line) in row.iter_mut().zip(lines) {
            *to = from[line + at];
        }
        if let Some(to) = to[k * step..].first_chunk_mut() {
            *to = row;
        }
    }
}
