//! Arguments of the library's functions that are no tensors: numbers, shares, counts, paddings.

use crate::calls::as_name;
use crate::function::{FnCx, Val};
use crate::hir::{Quantity, Static, Unit, Value};
use crate::scope::{Checker, with_near};
use crate::statics::{Ty, show};
use monarch_diagnostic::Diagnostic;
use monarch_syntax::ast;

impl Checker<'_> {
    /// The argument `name` of a function, which is of this kind. None: reported.
    pub fn op_number(
        &mut self,
        cx: &mut FnCx,
        kind: &str,
        name: &str,
        expr: &ast::Expr,
    ) -> Option<Static> {
        if kind == "share" {
            return self.layer_share(cx, expr);
        }
        if kind == "padding"
            && let Some(word) = as_name(expr)
            && !cx.by_name.contains_key(&word.name)
            && !cx.names.statics.contains_key(&word.name)
        {
            if word.name == "same" {
                return Some(Static::Value(Value::Text("same".into())));
            }
            if self.lookup(cx.file, &word.name).is_none() {
                let title = format!("no padding is called `{}`", word.name);
                let d = Diagnostic::error("M0106", title).label(word.span, "unknown");
                let words = ["same"].into_iter();
                self.report(with_near(d, word, words, "a number of elements, or"));
                return None;
            }
        }
        let value = self.layer_number(cx, expr)?;
        let Static::Value(known) = &value else { return Some(value) };
        let number = known.number().unwrap_or(f64::NAN);
        let whole = matches!(known, Value::Int(_));
        let (fine, needs) = match (kind, name) {
            ("int", _) => (whole && number >= 1.0, "a whole number from 1"),
            ("padding", _) => (whole && number >= 0.0, "a whole number from 0, or `same`"),
            (_, "smoothing") => ((0.0..1.0).contains(&number), "a number from 0 to below 1"),
            (_, "delta" | "eps" | "base") => (number > 0.0, "a number above 0"),
            _ => (true, ""),
        };
        if fine {
            return Some(value);
        }
        let title = format!("`{name}` is {needs}, not {}", show(known));
        self.report(Diagnostic::error("M0112", title).label(expr.span, "out of range"));
        None
    }

    fn layer_number(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Static> {
        match self.value(cx, expr)? {
            Val::Static(typed, _) if typed.ty == Ty::Number => Some(typed.value),
            Val::Static(typed, at) => {
                self.wrong_type(at, "a number", typed.ty);
                None
            }
            other => {
                self.report(
                    Diagnostic::error("M0111", "a number known before the run is needed here")
                        .label(other.span(), "a tensor"),
                );
                None
            }
        }
    }

    /// `10%`: from 0 to below 100 %, as far as it is known here.
    fn layer_share(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Static> {
        let (typed, at) = match self.value(cx, expr)? {
            Val::Static(typed, at) => (typed, at),
            other => {
                self.report(
                    Diagnostic::error("M0111", "a share known before the run is needed here")
                        .label(other.span(), "a tensor"),
                );
                return None;
            }
        };
        let plain = match &typed.value {
            Static::Value(v) => v.number(),
            _ => None,
        };
        match (&typed.value, typed.ty) {
            (Static::Value(Value::Quantity(q)), Ty::Unit(Unit::Share))
                if !(0.0..1.0).contains(&q.amount) =>
            {
                let shown = crate::units::show(*q);
                let title = format!("a share from 0% to below 100% is dropped, not {shown}");
                self.report(Diagnostic::error("M0112", title).label(at, "out of range"));
                None
            }
            (_, Ty::Unit(Unit::Share)) => Some(typed.value),
            _ => {
                let title = format!("a share is needed here, and this is {}", typed.ty.noun());
                let d = Diagnostic::error("M0111", title).label(at, typed.ty.noun());
                self.report(match plain.filter(|x| (0.0..1.0).contains(x)) {
                    Some(x) => {
                        let q = Quantity { amount: x, unit: Unit::Share };
                        let share = crate::units::show(q);
                        d.fix(format!("did you mean `{share}`?"), at, share)
                    }
                    None => d.help("write it as `10%`; a param of this kind is a `share`"),
                });
                None
            }
        }
    }
}
