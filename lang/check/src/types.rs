//! Tensor types in words, and which of them go together.

use crate::function::FnCx;
use crate::hir::{Axis, Expr, Poly, Sym, TensorType};
use crate::scope::Checker;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};

/// A scalar of this type.
pub(crate) fn scalar(dtype: DType) -> TensorType {
    TensorType { dtype, rest: false, axes: Vec::new() }
}

pub(crate) fn is_scalar(ty: &TensorType) -> bool {
    !ty.rest && ty.axes.is_empty()
}

/// Axes that may be taken for one another: equal sizes, and equal names where both have one.
pub(crate) fn same_axis(a: &Axis, b: &Axis) -> bool {
    let names = match (&a.name, &b.name) {
        (Some(x), Some(y)) => x == y,
        _ => true,
    };
    names && a.size == b.size
}

impl FnCx {
    pub fn sym_name(&self, sym: Sym) -> String {
        self.symbols.get(sym.index()).map_or_else(|| "?".to_owned(), |s| s.name.clone())
    }

    pub fn size_text(&self, size: &Poly) -> String {
        size.text(&|s| self.sym_name(s))
    }

    pub fn axis_text(&self, axis: &Axis) -> String {
        axis.name.clone().unwrap_or_else(|| self.size_text(&axis.size))
    }

    /// `[B, T, D]`, `i32[B, T]`
    pub fn type_text(&self, ty: &TensorType) -> String {
        let mut parts: Vec<String> = Vec::new();
        if ty.rest {
            parts.push("..".to_owned());
        }
        parts.extend(ty.axes.iter().map(|a| self.axis_text(a)));
        let dtype = if ty.dtype == DType::I32 { "i32" } else { "" };
        format!("{dtype}[{}]", parts.join(", "))
    }

    /// `F = 4 * D = 1536`: what is known of a size, as far as it says more than its name.
    pub fn size_note(&self, axis: &Axis) -> Option<String> {
        let name = self.axis_text(axis);
        let mut words = vec![name.clone()];
        match axis.size.as_symbol() {
            Some(sym) => {
                let own = self.sym_name(sym);
                if own != name {
                    words.push(own);
                }
                let text = self.texts.get(sym.index()).cloned().flatten();
                words.extend(text.filter(|t| *t != name));
            }
            None => words.push(self.size_text(&axis.size)),
        }
        let value = axis.size.eval(&|s| self.numbers.get(s.index()).copied());
        words.extend(value.map(|v| v.to_string()));
        words.dedup();
        (words.len() > 1).then(|| words.join(" = "))
    }

    /// The type, and what is known of one of its axes: `[B, T, F]   F = 4 * D = 1536`.
    pub fn type_note(&self, ty: &TensorType, axis: Option<&Axis>) -> String {
        let text = self.type_text(ty);
        match axis.and_then(|a| self.size_note(a)) {
            Some(note) => format!("{text}   {note}"),
            None => text,
        }
    }

    /// Notes that elements meet along an axis.
    pub fn mixes(&mut self, size: &Poly, at: Span) {
        for sym in size.symbols() {
            if sym.index() >= self.fixed && !self.mixed.iter().any(|m| m.0 == sym) {
                self.mixed.push((sym, at));
            }
        }
    }
}

impl Checker<'_> {
    /// The type of an elementwise combination. `at` is the operator.
    pub fn broadcast(
        &mut self,
        cx: &FnCx,
        symbol: &str,
        at: Span,
        a: &Expr,
        b: &Expr,
    ) -> Option<TensorType> {
        if a.ty.dtype != b.ty.dtype {
            let (x, y) = (a.ty.dtype.name(), b.ty.dtype.name());
            let whole = if a.ty.dtype == DType::I32 { a } else { b };
            self.report(
                Diagnostic::error("M0210", format!("`{symbol}` does not combine {x} with {y}"))
                    .label(whole.span, cx.type_text(&whole.ty))
                    .label(if whole.span == a.span { b.span } else { a.span }, "f32")
                    .help("`float(..)` makes f32 of i32"),
            );
            return None;
        }
        let (x, y) = (&a.ty, &b.ty);
        let n = x.axes.len().min(y.axes.len());
        let tails = |t: &TensorType| t.axes[t.axes.len() - n..].to_vec();
        for (p, q) in tails(x).iter().zip(&tails(y)).rev() {
            if !same_axis(p, q) {
                self.not_trailing(cx, symbol, (a, p), (b, q));
                return None;
            }
        }
        let longer = if x.axes.len() >= y.axes.len() { x } else { y };
        let unclear = match (x.rest, y.rest) {
            (true, true) => x.axes.len() != y.axes.len(),
            (true, false) => y.axes.len() > x.axes.len(),
            (false, true) => x.axes.len() > y.axes.len(),
            (false, false) => false,
        };
        if unclear {
            let (x, y) = (cx.type_text(x), cx.type_text(y));
            let title = format!("`{symbol}` cannot tell whether {x} and {y} end alike");
            self.report(
                Diagnostic::error("M0202", title).label(b.span, y).label(a.span, x).label(at, ""),
            );
            return None;
        }
        let mut ty = longer.clone();
        ty.rest = x.rest || y.rest;
        // A named axis says more than an unnamed one.
        let shift = ty.axes.len() - n;
        for (i, (p, q)) in tails(x).into_iter().zip(tails(y)).enumerate() {
            ty.axes[shift + i].name = p.name.or(q.name);
        }
        Some(ty)
    }

    fn not_trailing(
        &mut self,
        cx: &FnCx,
        symbol: &str,
        (a, p): (&Expr, &Axis),
        (b, q): (&Expr, &Axis),
    ) {
        let (x, y) = (cx.axis_text(p), cx.axis_text(q));
        let title = match p.size == q.size {
            true => format!("`{symbol}` meets axis {x} with axis {y}: same size, other axis"),
            false => format!("`{symbol}` meets {x} with {y}, and they are different axes"),
        };
        let mut d = Diagnostic::error("M0202", title)
            .label(b.span, cx.type_note(&b.ty, Some(q)))
            .label(a.span, cx.type_note(&a.ty, Some(p)));
        d = match p.size == q.size {
            true => d.help("a pattern may give an axis another name: `rearrange[B S -> B S](x)`"),
            false => match (symbol, by_einsum(cx, a, b)) {
                ("*", Some(pattern)) => d.help(format!("axes are matched by `{pattern}`")),
                _ => d.help("the shorter shape must be the end of the longer one"),
            },
        };
        self.report(d);
    }
}

/// A product of more axes than this is hardly what somebody meant.
const MAX_PRODUCT_AXES: usize = 4;

/// The product of two tensors as a pattern: all axes of the longer, then what the other adds.
fn by_einsum(cx: &FnCx, a: &Expr, b: &Expr) -> Option<String> {
    let words = |e: &Expr| -> Option<Vec<String>> {
        let plain = |axis: &Axis| cx.axis_text(axis);
        let all: Vec<String> = e.ty.axes.iter().map(plain).collect();
        let names = |w: &String| w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let named = all.iter().all(|w| names(w) && w.starts_with(|c: char| c.is_alphabetic()));
        (named && !e.ty.rest).then_some(all)
    };
    let (x, y) = (words(a)?, words(b)?);
    let (longer, shorter) = if x.len() >= y.len() { (&x, &y) } else { (&y, &x) };
    let added = shorter.iter().filter(|axis| !longer.contains(axis));
    let out: Vec<&str> = longer.iter().chain(added).map(String::as_str).collect();
    if out.len() > MAX_PRODUCT_AXES {
        return None;
    }
    let (p, q, out) = (x.join(" "), y.join(" "), out.join(" "));
    Some(format!("einsum[{p}, {q} -> {out}](..)"))
}
