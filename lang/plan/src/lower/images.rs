//! Convolutions and pooling: windows side by side, then a product or a fold.

use super::{Frame, Lowerer, Result, internal, mixing};
use monarch_check::hir::{Along, Conv, Padding, Pool, Reduction, Static, windows_along};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Dim, Einsum, NodeId, ReduceOp, Shape, Span, Windows};

/// Windows over images of known size.
struct Layout {
    lead: Vec<Dim>,
    image: [u64; 2],
    channels: u64,
    size: [u64; 2],
    stride: u64,
    along: [Along; 2],
}

impl Layout {
    /// Nothing but a reshape: the windows are the image.
    fn is_image(&self) -> bool {
        self.size == [1, 1] && self.stride == 1
    }

    /// Windows side by side without padding.
    fn tiles(&self) -> bool {
        let covers = |i: usize| self.along[i].count * self.size[i] == self.image[i];
        self.size == [self.stride; 2] && covers(0) && covers(1)
    }

    fn shape(&self, last: &[u64]) -> Shape {
        let fixed = last.iter().map(|&n| Dim::fixed(n));
        Shape(self.lead.iter().copied().chain(fixed).collect())
    }

    fn count(&self) -> [u64; 2] {
        [self.along[0].count, self.along[1].count]
    }
}

impl Lowerer<'_> {
    /// `conv2d`: windows [.., Y', X', P, Q, C] times the weight [P, Q, C / groups, O].
    pub(super) fn conv2d(
        &mut self,
        [x, w]: [NodeId; 2],
        conv: &Conv,
        frame: &Frame,
        span: Span,
    ) -> Result<NodeId> {
        let weight: Vec<Dim> = self.b.shape(w).0;
        let &[p, q, inner, out] = weight.as_slice() else {
            return Err(internal(span, "a weight of another rank"));
        };
        if weight.iter().any(|d| d.batch) {
            return Err(mixing::diagnostic(span, "this convolution"));
        }
        let layout = self.layout(x, [p.per, q.per], &conv.stride, &conv.padding, frame, span)?;
        let groups = frame.count(&conv.groups, "groups", 1, span)?;
        if groups.checked_mul(inner.per) != Some(layout.channels) || !out.per.is_multiple_of(groups)
        {
            return Err(groups_differ(groups, layout.channels, out.per, span));
        }
        let windows = self.windows(x, &layout, 0.0)?;
        let [rows, columns] = layout.count();
        let lead = layout.lead.len() as u8 + 2;
        let m: Vec<u8> = (0..lead).collect();
        let with = |more: &[u8]| m.iter().chain(more).copied().collect::<Vec<u8>>();
        // Labels after the leading ones: p, q, channels of a group, channels of the result, group.
        let [lp, lq, lc, lo, lg] = [lead, lead + 1, lead + 2, lead + 3, lead + 4];
        if groups == 1 {
            let e = Einsum { a: with(&[lp, lq, lc]), b: vec![lp, lq, lc, lo], out: with(&[lo]) };
            return Ok(self.b.einsum(e, windows, w)?);
        }
        let each = out.per / groups;
        let split = layout.shape(&[rows, columns, p.per, q.per, groups, inner.per]);
        let windows = self.b.reshape(windows, split)?;
        let split = Shape::fixed(&[p.per, q.per, inner.per, groups, each]);
        let w = self.b.reshape(w, split)?;
        let e = Einsum {
            a: with(&[lp, lq, lg, lc]),
            b: vec![lp, lq, lc, lg, lo],
            out: with(&[lg, lo]),
        };
        let product = self.b.einsum(e, windows, w)?;
        Ok(self.b.reshape(product, layout.shape(&[rows, columns, out.per]))?)
    }

    /// `max_pool2d`, `avg_pool2d`.
    pub(super) fn pool(
        &mut self,
        x: NodeId,
        pool: &Pool,
        frame: &Frame,
        span: Span,
    ) -> Result<NodeId> {
        let side = frame.count(&pool.size, "size", 1, span)?;
        let layout = self.layout(x, [side, side], &pool.stride, &pool.padding, frame, span)?;
        let [rows, columns] = layout.count();
        let lead = layout.lead.len() as u8;
        let max = pool.kind == Reduction::Max;
        let (windows, axes) = if layout.tiles() {
            // No element is in two windows: they need not be copied.
            let tiles = layout.shape(&[rows, side, columns, side, layout.channels]);
            (self.b.reshape(x, tiles)?, [lead + 1, lead + 3])
        } else {
            let fill = if max { f64::NEG_INFINITY } else { 0.0 };
            (self.windows(x, &layout, fill)?, [lead + 2, lead + 3])
        };
        if max {
            return Ok(self.b.reduce(ReduceOp::Max, windows, &axes)?);
        }
        let sum = self.b.reduce(ReduceOp::Sum, windows, &axes)?;
        Ok(self.b.affine(sum, 1.0 / (side * side) as f64, 0.0)?)
    }

    fn windows(&mut self, x: NodeId, layout: &Layout, fill: f64) -> Result<NodeId> {
        let ([rows, columns], [p, q]) = (layout.count(), layout.size);
        let to = layout.shape(&[rows, columns, p, q, layout.channels]);
        if layout.is_image() {
            return Ok(self.b.reshape(x, to)?);
        }
        let before = [layout.along[0].before, layout.along[1].before];
        let windows = Windows { size: layout.size, stride: [layout.stride; 2], before };
        Ok(self.b.unfold(x, windows, fill, to)?)
    }

    fn layout(
        &self,
        x: NodeId,
        size: [u64; 2],
        stride: &Static,
        padding: &Padding,
        frame: &Frame,
        span: Span,
    ) -> Result<Layout> {
        let dims = self.b.shape(x).0;
        let [lead @ .., y, x, c] = dims.as_slice() else {
            return Err(internal(span, "images of another rank"));
        };
        if [y, x, c].iter().any(|d| d.batch) {
            return Err(mixing::diagnostic(span, "a window"));
        }
        let stride = frame.count(stride, "stride", 1, span)?;
        let padding = match padding {
            Padding::Same => None,
            Padding::Each(p) => Some(frame.count(p, "padding", 0, span)?),
        };
        let along = |length: u64, window: u64| {
            windows_along(length, window, stride, padding).map_err(|e| {
                let here = frame.place();
                Diagnostic::error(e.code, e.title)
                    .label(span, format!("windows of images {} x {}{here}", y.per, x.per))
                    .help(e.help)
            })
        };
        Ok(Layout {
            lead: lead.to_vec(),
            image: [y.per, x.per],
            channels: c.per,
            size,
            stride,
            along: [along(y.per, size[0])?, along(x.per, size[1])?],
        })
    }
}

fn groups_differ(groups: u64, channels: u64, out: u64, span: Span) -> Diagnostic {
    let title = format!("{groups} groups do not divide {channels} channels into {out}");
    Diagnostic::error("M0204", title)
        .label(span, "each group takes as many channels and gives as many")
        .help("`groups` divides both numbers of channels")
}
