//! Windows of images: copies of them side by side, and the sum of overlapping ones.

use super::map::Plus;
use super::reduce::merge;
use crate::simd::{Isa, Kernel, Lanes};
use std::ops::Range;

/// Windows over rows and columns of images [outer, height, width, channels].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Windows {
    pub outer: usize,
    /// Height and width of an image.
    pub image: [usize; 2],
    pub channels: usize,
    /// Windows along each axis.
    pub count: [usize; 2],
    /// Elements of a window along each axis.
    pub window: [usize; 2],
    pub stride: [usize; 2],
    /// Elements before the image, above and on the left, at which the first window begins.
    pub before: [usize; 2],
}

/// A row of a window: where it lies in the windows, and where in the images.
struct Row {
    /// All elements of the row in the windows.
    whole: Range<usize>,
    /// The part of them that lies in the image.
    inside: Range<usize>,
    /// That part in the images.
    image: Range<usize>,
}

impl Windows {
    /// Calls `f` for each row of each window, in the order in which they lie.
    #[inline(always)]
    fn each_row(&self, mut f: impl FnMut(Row)) {
        let [height, width] = self.image;
        let line = self.window[1] * self.channels;
        let mut at = 0;
        for (o, oy, ox) in self.places() {
            let left = ox * self.stride[1];
            // Columns of the window that lie in the image.
            let from = self.before[1].saturating_sub(left).min(self.window[1]);
            let to = (width + self.before[1]).saturating_sub(left).min(self.window[1]).max(from);
            for p in 0..self.window[0] {
                let y = (oy * self.stride[0] + p).wrapping_sub(self.before[0]);
                let whole = at..at + line;
                let (inside, image) = if y < height && from < to {
                    let start =
                        ((o * height + y) * width + left + from - self.before[1]) * self.channels;
                    let (from, to) = (from * self.channels, to * self.channels);
                    (at + from..at + to, start..start + to - from)
                } else {
                    (at..at, 0..0)
                };
                f(Row { whole, inside, image });
                at += line;
            }
        }
    }

    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (outer, [rows, columns]) = (self.outer, self.count);
        (0..outer)
            .flat_map(move |o| (0..rows).flat_map(move |y| (0..columns).map(move |x| (o, y, x))))
    }
}

/// out [outer, count, count, window, window, channels]: x, or `fill` outside the image.
pub(crate) fn unfold(windows: &Windows, fill: f32, x: &[f32], out: &mut [f32]) {
    windows.each_row(|row| {
        if row.inside.len() < row.whole.len() {
            out[row.whole].fill(fill);
        }
        out[row.inside].copy_from_slice(&x[row.image]);
    });
}

/// out [outer, height, width, channels]: the sum of what windows have of each element, window by
/// window in order.
pub(crate) fn fold(isa: Isa, windows: &Windows, x: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    isa.call(Job { windows, x, out });
}

struct Job<'a> {
    windows: &'a Windows,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Job { windows, x, out } = self;
        windows.each_row(|row| merge::<L>(Plus, &x[row.inside], &mut out[row.image]));
    }
}
