//! Convolutions and pooling: sizes of results are polynomials in the sizes of the images.

use crate::function::FnCx;
use crate::hir::{
    Axis, Conv, Expr, Op, Padding, Poly, Pool, Reduction, Static, TensorType, Value, windows_along,
};
use crate::operators::op_expr;
use crate::scope::Checker;
use crate::statics::as_size;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};

/// Windows of one size and stride.
struct Frame<'a> {
    /// The tensor of images and the call.
    images: &'a Expr,
    span: Span,
    stride: Poly,
    /// None: `same`.
    padding: Option<Poly>,
}

impl Checker<'_> {
    /// `conv2d`, `max_pool2d` or `avg_pool2d` of matched arguments.
    pub fn image_op(
        &mut self,
        cx: &mut FnCx,
        name: &str,
        args: Vec<Expr>,
        numbers: &[(String, Static)],
        span: Span,
    ) -> Option<Expr> {
        let number = |n: &str| numbers.iter().find(|x| x.0 == n).map(|x| x.1.clone());
        let images = args.first()?.clone();
        let [.., rows, columns, channels] = images.ty.axes.as_slice() else { return None };
        let (rows, columns, channels) = (rows.clone(), columns.clone(), channels.clone());
        // A stride left out of a pool is its size: windows side by side.
        let stride = number("stride").or_else(|| number("size"))?;
        let padding = match number("padding")? {
            Static::Value(Value::Text(_)) => Padding::Same,
            other => Padding::Each(other),
        };
        let (size, last, op) = if name == "conv2d" {
            let groups = number("groups")?;
            let [p, q, inner, out] = args.get(1)?.ty.axes.clone().try_into().ok()?;
            let whole = self.in_size(as_size(&groups), span)?.mul(&inner.size);
            if whole.as_ref() != Some(&channels.size) {
                self.channels_differ(cx, &images, args.get(1)?, &groups);
                return None;
            }
            let (stride, padding) = (stride.clone(), padding.clone());
            let op = Op::Conv2d(Box::new(Conv { stride, padding, groups }));
            ([p.size, q.size], out, op)
        } else {
            let size = number("size")?;
            let side = self.in_size(as_size(&size), span)?;
            let kind = if name == "max_pool2d" { Reduction::Max } else { Reduction::Mean };
            let (stride, padding) = (stride.clone(), padding.clone());
            let op = Op::Pool(Box::new(Pool { kind, size, stride, padding }));
            ([side.clone(), side], channels.clone(), op)
        };
        for axis in [&rows, &columns] {
            cx.mixes(&axis.size, span);
        }
        if name == "conv2d" {
            cx.mixes(&channels.size, span);
        }
        let frame = Frame {
            images: &images,
            span,
            stride: self.in_size(as_size(&stride), span)?,
            padding: match &padding {
                Padding::Same => None,
                Padding::Each(p) => Some(self.in_size(as_size(p), span)?),
            },
        };
        let down = self.windows(cx, &frame, &rows, &size[0]);
        let across = self.windows(cx, &frame, &columns, &size[1]);
        let lead = images.ty.axes.len() - 3;
        let mut axes = images.ty.axes[..lead].to_vec();
        axes.extend([down?, across?, last]);
        let ty = TensorType { dtype: DType::F32, rest: images.ty.rest, axes };
        Some(op_expr(op, args, ty, span))
    }

    /// A number that has a part in sizes.
    fn in_size(&mut self, size: Option<Poly>, at: Span) -> Option<Poly> {
        if size.is_none() {
            self.report(
                Diagnostic::error("M0111", "windows are counted in whole numbers")
                    .label(at, "one of its numbers is none")
                    .help("a field that has a part in sizes is an `int`"),
            );
        }
        size
    }

    fn channels_differ(&mut self, cx: &FnCx, images: &Expr, weight: &Expr, groups: &Static) {
        let axis = |e: &Expr, i: usize| e.ty.axes.iter().rev().nth(i).map(|a| cx.axis_text(a));
        let (has, takes) = (axis(images, 0), axis(weight, 1));
        let (has, takes) = (has.unwrap_or_default(), takes.unwrap_or_default());
        let by = match groups {
            Static::Value(Value::Int(1)) => String::new(),
            _ => " in each group".to_owned(),
        };
        let title = format!("the images have {has} channels, and the weight takes {takes}{by}");
        self.report(
            Diagnostic::error("M0209", title)
                .label(weight.span, cx.type_text(&weight.ty))
                .label(images.span, cx.type_text(&images.ty))
                .help("a weight is [rows, columns, channels / groups, channels of the result]"),
        );
    }

    /// The axis of windows along an axis of the images.
    fn windows(&mut self, cx: &FnCx, frame: &Frame, axis: &Axis, window: &Poly) -> Option<Axis> {
        let value = |p: &Poly| p.eval(&|s| cx.numbers.get(s.index()).copied());
        let padding = frame.padding.as_ref().map(value);
        if let (Some(length), Some(size), Some(stride)) =
            (value(&axis.size), value(window), value(&frame.stride))
            && padding != Some(None)
            && let Err(e) = windows_along(length, size, stride, padding.flatten())
        {
            let known = cx.size_note(axis).unwrap_or_else(|| cx.axis_text(axis));
            self.report(
                Diagnostic::error(e.code, e.title)
                    .label(frame.span, "windows along this axis")
                    .label(frame.images.span, known)
                    .help(e.help),
            );
            return None;
        }
        let count = match &frame.padding {
            None => axis.size.div(&frame.stride),
            Some(p) => (|| {
                let room = axis.size.add(&p.add(p)?)?.sub(window)?;
                room.div(&frame.stride)?.add(&Poly::number(1))
            })(),
        };
        let count = self.in_size(count, frame.span)?;
        let name = if count == axis.size { axis.name.clone() } else { None };
        Some(Axis { name, size: count })
    }
}
