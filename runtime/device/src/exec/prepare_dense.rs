//! Launches of the operations that fold or mix along axes.

use super::prepare::{Job, Planned, size};
use super::step::Launch;
use crate::kernels::across::Across;
use crate::kernels::dropout::Dropout;
use crate::kernels::reduce::Reduce;
use crate::kernels::rope::{Rope, Tables};
use crate::kernels::rows::RowOp;
use crate::kernels::window::Windows;
use monarch_graph::{self as graph, ReduceOp};

impl Job<'_> {
    /// (outer, length, inner) of an axis of the first input.
    fn axis(&self, axis: u8) -> Result<(usize, usize, usize), String> {
        let x = &self.shapes[0];
        let axis = usize::from(axis);
        match x.get(axis) {
            Some(&n) => Ok((size(&x[..axis])?, n, size(&x[axis + 1..])?)),
            None => Err(format!("axis {axis} of a tensor with {} axes", x.len())),
        }
    }

    /// Length of the last axis of the first input.
    fn width(&self) -> Result<usize, String> {
        self.shapes[0].last().copied().ok_or_else(|| "a scalar has no last axis".into())
    }

    pub(super) fn reduce(&self, op: ReduceOp, axes: &[u8]) -> Planned {
        let x = &self.shapes[0];
        let folded = |i: usize| axes.iter().any(|&a| usize::from(a) == i);
        let kept: Vec<usize> = (0..x.len()).filter(|&i| !folded(i)).map(|i| x[i]).collect();
        if kept != self.shape || axes.iter().any(|&a| usize::from(a) >= x.len()) {
            return Err(format!("{x:?} less axes {axes:?} is not {:?}", self.shape));
        }
        Ok(Launch::Reduce(Reduce::new(op, x, axes)))
    }

    pub(super) fn argmax(&self, axis: u8) -> Planned {
        let (outer, length, inner) = self.axis(axis)?;
        if outer * inner != size(self.shape)? {
            return Err(format!(
                "{:?} without axis {axis} is not {:?}",
                self.shapes[0], self.shape
            ));
        }
        if length == 0 || length > i32::MAX as usize {
            return Err(format!("the largest of {length} elements"));
        }
        Ok(Launch::ArgMax { length, inner })
    }

    pub(super) fn softmax(&self, axis: u8, op: RowOp) -> Planned {
        let (_, length, inner) = self.axis(axis)?;
        self.alike(match inner {
            1 => Launch::Rows { op, width: length },
            _ => Launch::Across(Across { length, inner }),
        })
    }

    pub(super) fn norm(&self, op: RowOp) -> Planned {
        self.alike(Launch::Rows { op, width: self.width()? })
    }

    pub(super) fn causal(&self, fill: f64) -> Planned {
        match self.shapes[0][..] {
            [.., rows, columns] => self.alike(Launch::Causal { rows, columns, fill: fill as f32 }),
            _ => Err("a causal mask needs two axes".into()),
        }
    }

    pub(super) fn cross_entropy(&self, grad: bool) -> Planned {
        let width = self.width()?;
        let logits = &self.shapes[0];
        let rows = &logits[..logits.len() - 1];
        let out = if grad { logits } else { rows };
        if width == 0 || self.shapes[1..].iter().any(|s| s != rows) || self.shape != out {
            return Err(format!(
                "logits {logits:?} want one target per row, not {:?}",
                &self.shapes[1..]
            ));
        }
        Ok(match grad {
            false => Launch::CrossEntropy { width },
            true => Launch::CrossEntropyGrad { width },
        })
    }

    pub(super) fn gather(&self) -> Planned {
        let (table, ids) = (&self.shapes[0], &self.shapes[1]);
        let Some((&rows, row)) = table.split_first() else {
            return Err("the table needs an axis of rows".into());
        };
        if self.shape != [ids, row].concat() {
            return Err(format!("rows of {table:?} by {ids:?} are not {:?}", self.shape));
        }
        Ok(Launch::Gather { rows, width: size(row)? })
    }

    pub(super) fn scatter_add(&self) -> Planned {
        let (ids, dy) = (&self.shapes[0], &self.shapes[1]);
        let Some((&rows, row)) = self.shape.split_first() else {
            return Err("the result needs an axis of rows".into());
        };
        if *dy != [ids, row].concat() {
            return Err(format!("{dy:?} are not rows of {:?} by {ids:?}", self.shape));
        }
        Ok(Launch::ScatterAdd { rows, width: size(row)? })
    }

    pub(super) fn log_sum_exp(&self, axis: u8) -> Planned {
        let (outer, length, inner) = self.axis(axis)?;
        if outer * inner != size(self.shape)? || length == 0 {
            return Err(format!("{:?} less axis {axis} is not {:?}", self.shapes[0], self.shape));
        }
        Ok(Launch::LogSumExp(Across { length, inner }))
    }

    pub(super) fn unfold(&self, windows: &graph::Windows, fill: f32) -> Planned {
        let windows = Box::new(windows_of(windows, &self.shapes[0], self.shape)?);
        Ok(Launch::Unfold { windows, fill })
    }

    pub(super) fn fold(&self, windows: &graph::Windows) -> Planned {
        Ok(Launch::Fold(Box::new(windows_of(windows, self.shape, &self.shapes[0])?)))
    }

    pub(super) fn dropout(&self, p: f64, number: u32) -> Planned {
        if !(0.0..1.0).contains(&p) || number >= 1 << 16 {
            return Err(format!("dropout {number} of a share of {p}"));
        }
        let shape = self.shape;
        let axis = self.node.shape.0.iter().position(|d| d.batch);
        let (samples, run) = match axis {
            // `per` elements of each sample stand together on its axis.
            Some(axis) => {
                let per = self.node.shape.0[axis].per as usize;
                let samples = shape[axis].checked_div(per).unwrap_or(0);
                (samples, per * size(&shape[axis + 1..])?)
            }
            None => (1, size(shape)?),
        };
        let of_a_sample = size(shape)?.checked_div(samples).unwrap_or(0);
        if of_a_sample as u64 > 4 << 32 {
            return Err(format!("a dropout of {of_a_sample} elements of each sample"));
        }
        self.alike(Launch::Dropout(Dropout::new(p, number, samples, run)))
    }

    pub(super) fn rope(
        &self,
        tables: &mut Tables,
        axis: u8,
        angles: graph::RopeAngles,
        inverse: bool,
    ) -> Planned {
        let (_, length, inner) = self.axis(axis)?;
        let width = self.width()?;
        if usize::from(axis) + 1 >= self.shapes[0].len() || width % 2 != 0 {
            return Err("rope turns pairs of an even last axis, along an earlier axis".into());
        }
        let base = angles.base;
        if !(base.is_finite() && base >= f64::MIN_POSITIVE) {
            return Err(format!("base {base} of rope is not positive"));
        }
        let rows = inner.checked_div(width).unwrap_or(0);
        let rope = Rope::new(tables, length, rows, width / 2, angles, inverse);
        self.alike(Launch::Rope(Box::new(rope)))
    }
}

/// The windows between images and windows of these shapes.
fn windows_of(
    windows: &graph::Windows,
    images: &[usize],
    folded: &[usize],
) -> Result<Windows, String> {
    let wrong = || format!("{windows:?} do not make {folded:?} of {images:?}");
    let ([outer @ .., height, width, c], [lead @ .., rows, columns, p, q, channels]) =
        (images, folded)
    else {
        return Err(wrong());
    };
    let same = outer == lead && c == channels && windows.size == [*p as u64, *q as u64];
    // Each window begins inside the image or before it.
    let fits = |n: usize, at: usize, length: usize| {
        let (stride, before) = (windows.stride[at], windows.before[at]);
        let last = (n as u64).saturating_sub(1).checked_mul(stride);
        stride > 0 && last.is_some_and(|last| last < length as u64 + before)
    };
    if !same || !fits(*rows, 0, *height) || !fits(*columns, 1, *width) {
        return Err(wrong());
    }
    Ok(Windows {
        outer: size(outer)?,
        image: [*height, *width],
        channels: *channels,
        count: [*rows, *columns],
        window: [*p, *q],
        stride: windows.stride.map(|n| n as usize),
        before: windows.before.map(|n| n as usize),
    })
}
