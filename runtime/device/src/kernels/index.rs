//! Rows chosen by number.

use super::map::Plus;
use super::reduce::merge;
use crate::simd::{Isa, Kernel, Lanes};

/// A row or class number outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadId {
    pub id: i32,
    /// Index among the ids.
    pub position: usize,
    pub limit: usize,
}

/// `ids[position]`, if it lies in 0..limit.
#[inline(always)]
pub(super) fn class(ids: &[i32], position: usize, limit: usize) -> Result<usize, BadId> {
    let id = ids.get(position).copied().unwrap_or(-1);
    match usize::try_from(id) {
        Ok(row) if row < limit => Ok(row),
        _ => Err(BadId { id, position, limit }),
    }
}

/// Row `ids[i]` of the table becomes row i.
pub(crate) fn gather(
    table: &[f32],
    rows: usize,
    width: usize,
    ids: &[i32],
    out: &mut [f32],
) -> Result<(), BadId> {
    for position in 0..ids.len() {
        let row = class(ids, position, rows)?;
        out[position * width..][..width].copy_from_slice(&table[row * width..][..width]);
    }
    Ok(())
}

/// Row i of dy is added to row `ids[i]`, in the order of i.
pub(crate) fn scatter_add(
    isa: Isa,
    ids: &[i32],
    dy: &[f32],
    rows: usize,
    width: usize,
    out: &mut [f32],
) -> Result<(), BadId> {
    out.fill(0.0);
    isa.call(Scatter { ids, dy, rows, width, out })
}

struct Scatter<'a> {
    ids: &'a [i32],
    dy: &'a [f32],
    rows: usize,
    width: usize,
    out: &'a mut [f32],
}

impl Kernel for Scatter<'_> {
    type Output = Result<(), BadId>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Result<(), BadId> {
        let width = self.width;
        for position in 0..self.ids.len() {
            let row = class(self.ids, position, self.rows)?;
            let from = &self.dy[position * width..][..width];
            merge::<L>(Plus, from, &mut self.out[row * width..][..width]);
        }
        Ok(())
    }
}
