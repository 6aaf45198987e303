//! Types, shapes, parameters, and lists between commas.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P};
use crate::ast::{Axis, AxisKind, ExprKind, Field, Ident, Kind, Pattern, TensorType};
use crate::parse::Rule;

impl<'t> Builder<'t> {
    /// The parts of a list between commas: junk and empty places get their diagnostics here.
    /// `what` may stand in such a place.
    pub(super) fn slots(&mut self, list: P<'t>, what: &str) -> std::vec::IntoIter<P<'t>> {
        let inner = list.clone().into_inner();
        let count = inner.len();
        let mut kept = Vec::with_capacity(count);
        for (n, pair) in inner.enumerate() {
            match pair.as_rule() {
                // `()` and a comma at the end are fine, `(, a)` is not.
                Rule::no_slot if n + 1 == count => {}
                Rule::no_slot => {
                    let before = kept.last().map_or(self.opening(&list), |kept| self.span(kept));
                    let after = if kept.is_empty() { list.as_str().get(..1) } else { Some(",") };
                    self.missing(&pair, before, what, after.unwrap_or(""));
                }
                Rule::junk => self.junk_in_list(&pair, what),
                _ => kept.push(pair),
            }
        }
        kept.into_iter()
    }

    fn junk_in_list(&mut self, junk: &P<'t>, what: &str) {
        if self.silent() || !junk.as_str().starts_with(':') || what != "an argument" {
            return self.junk(junk, "a comma stands between one and the next");
        }
        let start = self.start(junk);
        let span = Span::new(self.file, start, start + 1);
        self.error(
            Diagnostic::error("M0010", "an argument gets its name with `=`, not with `:`")
                .label(span, "write `name = value`")
                .fix("write `=`", span, " ="),
        );
    }

    /// The opening bracket of a list.
    fn opening(&self, list: &P<'t>) -> Span {
        let start = self.start(list);
        Span::new(self.file, start, start + 1)
    }

    pub(super) fn kind(&mut self, pair: P<'t>) -> Kind {
        let whole = pair.clone();
        let mut inner = pair.into_inner();
        let first = inner.next();
        let is_name = first.as_ref().is_some_and(|pair| pair.as_rule() == Rule::ident);
        match (is_name, first, inner.next()) {
            (true, Some(name), None) => Kind::Name(self.ident(&name)),
            _ => Kind::Tensor(self.tensor(whole)),
        }
    }

    /// A type that is not there.
    pub(super) fn no_kind(&self, before: Span) -> Kind {
        Kind::Name(self.no_ident(before))
    }

    pub(super) fn tensor(&mut self, pair: P<'t>) -> TensorType {
        let span = self.span(&pair);
        let mut tensor = TensorType { span, dtype: None, axes: Vec::new() };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => tensor.dtype = Some(self.ident(&part)),
                _ => {
                    let slots = self.slots(part, "an axis");
                    tensor.axes = slots.map(|axis| self.axis(axis)).collect();
                }
            }
        }
        tensor
    }

    pub(super) fn axis(&mut self, pair: P<'t>) -> Axis {
        let Some(inner) = pair.into_inner().next() else {
            return Axis { span: Span::default(), kind: AxisKind::Any };
        };
        if inner.as_rule() == Rule::rest {
            return Axis { span: self.span(&inner), kind: AxisKind::Rest };
        }
        let expr = self.expr(inner);
        let span = expr.span;
        let any = matches!(&expr.kind, ExprKind::Name(name) if name.name == "_");
        Axis { span, kind: if any { AxisKind::Any } else { AxisKind::Size(expr) } }
    }

    pub(super) fn fields(&mut self, list: P<'t>) -> Vec<Field> {
        self.slots(list, "a parameter").map(|field| self.field(field)).collect()
    }

    fn field(&mut self, pair: P<'t>) -> Field {
        let whole = self.span(&pair);
        let name = Ident { name: String::new(), span: whole };
        let mut field = Field { span: whole, name, kind: None, default: None };
        for part in pair.into_inner() {
            let before = field.span;
            field.span = match part.as_rule() {
                Rule::ident => {
                    field.name = self.ident(&part);
                    field.name.span
                }
                Rule::kind => {
                    let kind = self.kind(part);
                    let end = kind.span();
                    field.kind = Some(kind);
                    before.to(end)
                }
                Rule::no_kind => {
                    self.missing(&part, before, "a type", ":");
                    before
                }
                _ => {
                    let value = self.value(part, before, "=");
                    let end = value.span;
                    field.default = Some(value);
                    before.to(end)
                }
            };
        }
        field
    }

    pub(super) fn names(&mut self, list: P<'t>) -> Vec<Ident> {
        self.slots(list, "a name").map(|name| self.ident(&name)).collect()
    }

    pub(super) fn pattern(&mut self, pair: P<'t>) -> Pattern {
        let span = self.span(&pair);
        if pair.as_str().starts_with('[') {
            return Pattern::Many(self.names(pair), span);
        }
        match pair.into_inner().next() {
            Some(name) => Pattern::One(self.ident(&name)),
            None => Pattern::One(self.no_ident(span)),
        }
    }
}
