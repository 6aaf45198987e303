//! Operands in the order in which the register tile reads them.

use super::{Gemm, MAX_ROWS};
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
            for (k, &at) in depths.iter().enumerate() {
                let from = &b[at + part[0]..][..part.len()];
                let to = &mut to[k * width + lane..][..LANES];
                if let (Ok(from), Ok(to)) = (from.try_into(), (&mut *to).try_into()) {
                    L::load(from).store(to);
                } else {
                    L::load_part(from).store_part(to);
                }
            }
        } else {
            let unit = plan.b_depth_unit;
            strided::<L>(b, part, depths, unit, &mut to[lane..], width, LANES);
        }
    }
}

/// Rows `rows` of a over `depth`: element (i, k) goes to `to[k * rows.len() + i]`.
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
        for (k, &at) in depths.iter().enumerate() {
            let from = &a[at + part[0]..][..height];
            // Beyond `height` come zeros that the next row overwrites: the panel has the room.
            let to = &mut to[k * height..][..LANES];
            L::load_part(from).store_part(to);
        }
    } else {
        strided::<L>(a, part, depths, plan.a_depth_unit, to, height, MAX_ROWS);
    }
}

/// Element (k, j) of `from[lines[j] + depths[k]]` goes to `to[k * step + j]`; zeros from
/// `lines.len()` up to `fill` where `step` leaves the room.
#[inline(always)]
fn strided<L: Lanes>(
    from: &[f32],
    lines: &[usize],
    depths: &[usize],
    unit: bool,
    to: &mut [f32],
    step: usize,
    fill: usize,
) {
    let used = fill.min(step);
    let mut k = 0;
    while unit && k < depths.len() {
        let deep = (depths.len() - k).min(LANES);
        let mut square = [L::splat(0.0); LANES];
        for (vector, &line) in square.iter_mut().zip(lines) {
            *vector = L::load_part(&from[line + depths[k]..][..deep]);
        }
        L::transpose(&mut square);
        for (i, vector) in square.iter().take(deep).enumerate() {
            vector.store_part(&mut to[(k + i) * step..][..used]);
        }
        k += deep;
    }
    for (k, &at) in depths.iter().enumerate().skip(k) {
        let row = &mut to[k * step..][..used];
        row.fill(0.0);
        for (to, &line) in row.iter_mut().zip(lines) {
            *to = from[line + at];
        }
    }
}
