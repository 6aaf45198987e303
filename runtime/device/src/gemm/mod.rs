//! Matrix products: `out[m, n] = sum over k of a[m, k] * b[k, n]`, for each of some batches.
//!
//! Strides add up over labels, so any contraction of two tensors is this product with tables of
//! offsets: element (m, k) of `a` lies at `rows[m] + depth[k]`, and so on.
//!
//! What fixes the bits: the sum over k is cut into blocks whose length depends on k alone
//! ([`block_of`]); within a block an element is one chain of fused multiply-adds in the order of
//! k, starting from zero; the blocks are added in order. Tiles, packing and the order of the
//! loops change nothing.

mod micro;
mod pack;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use plan::Gemm;

use crate::simd::{Isa, Kernel, LANES, Lanes};
use micro::{Target, multiply};

/// Longest block of k.
const MAX_BLOCK: usize = 512;
/// Floats of packed `b` that should stay in the second-level cache (640 KiB).
const RESIDENT: usize = 160 << 10;
/// Floats of b that are read where they lie, however often (half of a first-level cache).
const NEAR: usize = 6 << 10;
/// Rows of the largest register tile of any instruction set.
const MAX_ROWS: usize = 14;
/// Columns of the largest register tile of any instruction set.
const MAX_COLUMNS: usize = 2 * LANES;

/// Length of the blocks of a sum of `k` products: equal parts, rounded up to sixteen.
fn block_of(k: usize) -> usize {
    let blocks = k.div_ceil(MAX_BLOCK).max(1);
    k.div_ceil(blocks).next_multiple_of(16)
}

impl Gemm {
    /// Floats of scratch that `run` needs.
    pub(crate) fn scratch(&self) -> usize {
        let block = block_of(self.k).min(self.k.next_multiple_of(16));
        let columns = self.n.next_multiple_of(MAX_COLUMNS);
        let resident = (columns * block).min(RESIDENT.max(MAX_COLUMNS * MAX_BLOCK));
        resident + (MAX_ROWS + LANES) * (block + LANES)
    }

    /// Computes the product. `x` and `y` are the operands in the order of the graph.
    ///
    /// # Panics
    /// When a slice is shorter than the shapes said at planning.
    pub(crate) fn run(&self, isa: Isa, x: &[f32], y: &[f32], out: &mut [f32], scratch: &mut [f32]) {
        let (a, b) = if self.swapped { (y, x) } else { (x, y) };
        assert!(a.len() >= self.reach.0 && b.len() >= self.reach.1);
        assert!(out.len() >= self.reach.2 && scratch.len() >= self.scratch());
        if self.k == 0 {
            out.fill(0.0);
        } else if self.m > 0 && self.n > 0 {
            isa.call(Product { plan: self, a, b, out, scratch });
        }
    }
}

struct Product<'a> {
    plan: &'a Gemm,
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Product { plan, a, b, out, scratch } = self;
        let block = block_of(plan.k);
        let width = L::TILE.1 * LANES;
        let (panel, resident) = scratch.split_at_mut((MAX_ROWS + LANES) * (block + LANES));
        let columns = (resident.len() / block / width).max(1) * width;
        for &(at_a, at_b, at_out) in &plan.batches {
            let (a, b, out) = (&a[at_a..], &b[at_b..], &mut out[at_out..]);
            for start in (0..plan.k).step_by(block) {
                let depth = start..(start + block).min(plan.k);
                for left in (0..plan.n).step_by(columns) {
                    let part = left..(left + columns).min(plan.n);
                    let job = Block { plan, depth: depth.clone(), columns: part };
                    job.run::<L>(a, b, out, panel, resident);
                }
            }
        }
    }
}

/// One block of k and of columns, all rows.
struct Block<'a> {
    plan: &'a Gemm,
    depth: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
}

impl Block<'_> {
    #[inline(always)]
    fn run<L: Lanes>(
        &self,
        a: &[f32],
        b: &[f32],
        out: &mut [f32],
        panel: &mut [f32],
        resident: &mut [f32],
    ) {
        let plan = self.plan;
        let (rows, width) = (L::TILE.0, L::TILE.1 * LANES);
        let k = self.depth.len();
        let panels = plan.m.div_ceil(rows);
        let height = plan.m.div_ceil(panels);
        // Packing pays where b is read many times from beyond the first-level cache.
        let near = k * self.columns.len() <= NEAR;
        let in_place = plan.b_in_place && (panels <= 2 || near);
        for (tile, left) in self.columns.clone().step_by(width).enumerate() {
            let end = (left + width).min(self.columns.end);
            if !(in_place && end - left == width) {
                let to = &mut resident[tile * width * k..][..width * k];
                pack::columns::<L>(plan, b, &self.depth, left..end, width, to);
            }
        }
        for top in (0..plan.m).step_by(height) {
            let bottom = (top + height).min(plan.m);
            pack::rows::<L>(plan, a, &self.depth, top..bottom, panel);
            for (tile, left) in self.columns.clone().step_by(width).enumerate() {
                let end = (left + width).min(self.columns.end);
                let target = Target {
                    plan,
                    rows: top..bottom,
                    columns: left..end,
                    accumulate: self.depth.start > 0,
                };
                if in_place && end - left == width {
                    let from = plan.b_columns[left] + plan.b_depth[self.depth.start];
                    multiply::<L>(k, panel, &b[from..], plan.b_step, target, out);
                } else {
                    let from = &resident[tile * width * k..][..width * k];
                    multiply::<L>(k, panel, from, width, target, out);
                }
            }
        }
    }
}
