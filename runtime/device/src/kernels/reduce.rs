//! Sums and maxima.

use super::map::{Larger, Map2, Plus};
use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};
use monarch_graph::ReduceOp;

/// Elements in one round of a contiguous reduction: four vectors, each with its own partial sum.
const ROUND: usize = 4 * LANES;

/// A term that is folded over x (and y) by contiguous elements.
pub(crate) trait Fold {
    /// The value of x beyond its end such that it adds nothing (with y = 0 there).
    fn pad(&self) -> f32 {
        0.0
    }
    fn step<L: Lanes>(&self, sum: L, x: L, y: L) -> L;
}

pub(crate) struct Sum;
pub(crate) struct Dot;
/// sum of (x - mean)^2.
pub(crate) struct SquaresAbout(pub f32);

impl Fold for Sum {
    #[inline(always)]
    fn step<L: Lanes>(&self, sum: L, x: L, _: L) -> L {
        sum + x
    }
}

impl Fold for Dot {
    #[inline(always)]
    fn step<L: Lanes>(&self, sum: L, x: L, y: L) -> L {
        x.fma(y, sum)
    }
}

impl Fold for SquaresAbout {
    #[inline(always)]
    fn pad(&self) -> f32 {
        self.0
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, sum: L, x: L, _: L) -> L {
        let d = x - L::splat(self.0);
        d.fma(d, sum)
    }
}

/// Folds two slices of one length (the same one twice for terms of x alone).
#[inline(always)]
pub(crate) fn fold<L: Lanes>(term: impl Fold, x: &[f32], y: &[f32]) -> f32 {
    let mut sums = [L::zero(); 4];
    let mut rounds = x.chunks_exact(ROUND).zip(y.chunks_exact(ROUND));
    for (x, y) in &mut rounds {
        let (x, y) = (x.as_chunks::<LANES>().0, y.as_chunks::<LANES>().0);
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum = term.step(*sum, L::load(x), L::load(y));
        }
    }
    let done = x.len() / ROUND * ROUND;
    let rest = x[done..].chunks(LANES).zip(y[done..].chunks(LANES));
    for (sum, (x, y)) in sums.iter_mut().zip(rest) {
        *sum = term.step(*sum, L::load_some(x, term.pad()), L::load_some(y, 0.0));
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).fold_sum()
}

/// The largest element; -inf of none. NaN only counts where `nan` says so.
#[inline(always)]
pub(crate) fn largest<L: Lanes>(x: &[f32]) -> f32 {
    let mut tops = [L::splat(f32::NEG_INFINITY); 4];
    for round in x.chunks(ROUND) {
        for (top, x) in tops.iter_mut().zip(round.chunks(LANES)) {
            *top = L::load_some(x, f32::NEG_INFINITY).max(*top);
        }
    }
    tops[0].max(tops[1]).max(tops[2].max(tops[3])).fold_max()
}

/// `largest`, or NaN where there is one.
#[inline(always)]
fn largest_or_nan<L: Lanes>(x: &[f32]) -> f32 {
    let mut any = L::zero();
    for x in x.chunks(LANES) {
        let x = L::load_some(x, 0.0);
        any = L::select(x.eq(x), any, L::splat(1.0));
    }
    if any.fold_max() > 0.0 { f32::NAN } else { largest::<L>(x) }
}

/// A reduction of known shape.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    max: bool,
    /// Contiguous elements that are folded, or kept, together.
    inner: usize,
    inner_folded: bool,
    /// (length, stride in the result) of the axes outside, outermost first.
    outer: Vec<(usize, usize)>,
    elements: usize,
}

impl Reduce {
    pub(crate) fn new(op: ReduceOp, shape: &[usize], axes: &[u8]) -> Reduce {
        // Joins neighbouring axes of one kind.
        let mut runs: Vec<(usize, bool)> = Vec::new();
        for (i, &n) in shape.iter().enumerate() {
            let folded = axes.iter().any(|&a| usize::from(a) == i);
            match runs.last_mut() {
                _ if n == 1 => {}
                Some(run) if run.1 == folded => run.0 *= n,
                _ => runs.push((n, folded)),
            }
        }
        let (inner, inner_folded) = runs.pop().unwrap_or((1, false));
        let mut stride = if inner_folded { 1 } else { inner };
        let mut outer = Vec::new();
        for &(n, folded) in runs.iter().rev() {
            outer.insert(0, (n, if folded { 0 } else { stride }));
            stride *= if folded { 1 } else { n };
        }
        let elements = shape.iter().product();
        Reduce { max: op == ReduceOp::Max, inner, inner_folded, outer, elements }
    }

    /// # Panics
    /// When a slice is shorter than what was planned.
    pub(crate) fn run(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        out.fill(if self.max { f32::NEG_INFINITY } else { 0.0 });
        if self.elements > 0 {
            isa.call(Job { plan: self, x: &x[..self.elements], out });
        }
    }
}

struct Job<'a> {
    plan: &'a Reduce,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Job { plan, x, out } = self;
        let outer = &plan.outer[..];
        let mut at = [0usize; super::copy::MAX_AXES];
        let mut target = 0;
        for x in x.chunks_exact(plan.inner) {
            match (plan.inner_folded, plan.max) {
                (true, false) => out[target] += fold::<L>(Sum, x, x),
                (true, true) => {
                    let top = largest_or_nan::<L>(x);
                    out[target] = if top > out[target] || top.is_nan() { top } else { out[target] };
                }
                (false, false) => merge::<L>(Plus, x, &mut out[target..][..plan.inner]),
                (false, true) => merge::<L>(Larger, x, &mut out[target..][..plan.inner]),
            }
            for axis in (0..outer.len()).rev() {
                at[axis] += 1;
                target += outer[axis].1;
                if at[axis] < outer[axis].0 {
                    break;
                }
                target -= at[axis] * outer[axis].1;
                at[axis] = 0;
            }
        }
    }
}

/// out = f(out, x).
#[inline(always)]
pub(crate) fn merge<L: Lanes>(f: impl Map2, x: &[f32], out: &mut [f32]) {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (x, out) in x.iter().zip(out) {
        f.apply(L::load(out), L::load(x)).store(out);
    }
    if !x_rest.is_empty() {
        f.apply(L::load_part(out_rest), L::load_part(x_rest)).store_part(out_rest);
    }
}

/// Index of the largest element along the middle of (outer, length, inner); the first of equals.
pub(crate) fn argmax(x: &[f32], length: usize, inner: usize, out: &mut [i32]) {
    if length == 0 || inner == 0 {
        return;
    }
    for (block, out) in x.chunks_exact(length * inner).zip(out.chunks_exact_mut(inner)) {
        for (i, out) in out.iter_mut().enumerate() {
            let mut best = 0;
            for k in 1..length {
                if block[k * inner + i] > block[best * inner + i] {
                    best = k;
                }
            }
            *out = best as i32;
        }
    }
}

/// Sum in float64, in the order in which the elements lie.
pub(crate) fn sum_in_order(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x)).sum()
}
