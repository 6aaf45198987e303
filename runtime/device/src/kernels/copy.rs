//! Moving elements: any copy whose source and destination are regular, planned once.

use crate::simd::{Isa, Kernel, LANES, Lanes, LanesExt};

/// Copies element (i, j, ...) from `source + sum i * from` to `target + sum i * to`.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    source: usize,
    target: usize,
    /// (length, source stride, target stride), outermost first; runs that can be joined are.
    axes: Vec<Axis>,
    /// The two innermost axes are a matrix to be transposed.
    turned: bool,
    /// One past the last element of each side; 0 for nothing to do.
    reach: (usize, usize),
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    length: usize,
    from: usize,
    to: usize,
}

impl Strided {
    pub(crate) fn new(
        lengths: &[usize],
        from: &[usize],
        to: &[usize],
        source: usize,
        target: usize,
    ) -> Strided {
        let mut axes: Vec<Axis> = Vec::new();
        for ((&length, &from), &to) in lengths.iter().zip(from).zip(to) {
            match axes.last_mut() {
                _ if length == 1 => {}
                Some(a) if a.from == length * from && a.to == length * to => {
                    *a = Axis { length: a.length * length, from, to };
                }
                _ => axes.push(Axis { length, from, to }),
            }
        }
        let span = |step: fn(&Axis) -> usize| {
            axes.iter().map(|a| a.length.saturating_sub(1) * step(a)).sum::<usize>() + 1
        };
        let reach = match lengths.contains(&0) {
            true => (0, 0),
            false => (source + span(|a| a.from), target + span(|a| a.to)),
        };
        let turned = turn(&mut axes);
        Strided { source, target, axes, turned, reach }
    }

    /// # Panics
    /// When a slice is shorter than what was planned.
    pub(crate) fn run(&self, isa: Isa, from: &[f32], to: &mut [f32]) {
        assert!(from.len() >= self.reach.0 && to.len() >= self.reach.1);
        if self.reach.1 > 0 {
            isa.call(Job { plan: self, from, to });
        }
    }
}

/// Where the innermost axis strides over the source and another one is contiguous in it, brings
/// that one next to it.
fn turn(axes: &mut Vec<Axis>) -> bool {
    let Some(&last) = axes.last() else { return false };
    let across = axes.iter().position(|a| a.from == 1 && a.to != 1);
    match across {
        Some(at) if last.to == 1 && last.from > 1 && at + 1 < axes.len() => {
            let axis = axes.remove(at);
            axes.insert(axes.len() - 1, axis);
            true
        }
        _ => false,
    }
}

struct Job<'a> {
    plan: &'a Strided,
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Job { plan, from, to } = self;
        let inner = if plan.turned { 2 } else { 1 }.min(plan.axes.len());
        let (outer, inner) = plan.axes.split_at(plan.axes.len() - inner);
        let mut at = [0usize; MAX_AXES];
        let at = &mut at[..outer.len().min(MAX_AXES)];
        let (mut source, mut target) = (plan.source, plan.target);
        loop {
            match inner {
                [rows, columns] => {
                    transpose::<L>(*rows, *columns, &from[source..], &mut to[target..])
                }
                [line] => copy_line(*line, &from[source..], &mut to[target..]),
                _ => to[target] = from[source],
            }
            // The next index vector, innermost first.
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                at[axis] += 1;
                source += outer[axis].from;
                target += outer[axis].to;
                if at[axis] < outer[axis].length {
                    break;
                }
                source -= at[axis] * outer[axis].from;
                target -= at[axis] * outer[axis].to;
                at[axis] = 0;
            }
        }
    }
}

/// Axes of a tensor, at most; planning refuses more.
pub(crate) const MAX_AXES: usize = 16;

#[inline(always)]
fn copy_line(line: Axis, from: &[f32], to: &mut [f32]) {
    match (line.from, line.to) {
        (1, 1) => to[..line.length].copy_from_slice(&from[..line.length]),
        (0, 1) => to[..line.length].fill(from[0]),
        _ => {
            for i in 0..line.length {
                to[i * line.to] = from[i * line.from];
            }
        }
    }
}

/// Rows are contiguous in the source, columns in the target; squares of sixteen.
#[inline(always)]
fn transpose<L: Lanes>(rows: Axis, columns: Axis, from: &[f32], to: &mut [f32]) {
    for i in (0..rows.length).step_by(LANES) {
        let tall = (rows.length - i).min(LANES);
        for j in (0..columns.length).step_by(LANES) {
            let wide = (columns.length - j).min(LANES);
            let mut square = [L::zero(); LANES];
            for (c, vector) in square.iter_mut().enumerate().take(wide) {
                *vector = L::load_some(&from[(j + c) * columns.from + i..][..tall], 0.0);
            }
            L::transpose(&mut square);
            for (r, vector) in square.iter().enumerate().take(tall) {
                vector.store_some(&mut to[(i + r) * rows.to + j..][..wide]);
            }
        }
    }
}

/// x [.., t, s]: elements with column > row + (s - t) become `fill`.
pub(crate) fn causal(x: &[f32], t: usize, s: usize, fill: f32, out: &mut [f32]) {
    if s == 0 || t == 0 {
        return;
    }
    for (i, (x, out)) in x.chunks_exact(s).zip(out.chunks_exact_mut(s)).enumerate() {
        let kept = (i % t + 1 + s).saturating_sub(t).min(s);
        out[..kept].copy_from_slice(&x[..kept]);
        out[kept..].fill(fill);
    }
}
