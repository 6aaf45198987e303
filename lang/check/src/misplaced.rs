//! Tensors and layers of a function where something else belongs: `x.matmul(w)`,
//! `up.forward(x)`, `if x > 0 { .. }`.

use crate::function::FnCx;
use crate::layers::walk_names;
use crate::scope::{Checker, Entity};
use monarch_diagnostic::Diagnostic;
use monarch_syntax::ast::{Expr, Ident};

/// What a name of a function is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Tensor,
    Layer,
    /// Its definition was reported.
    Broken,
}

/// Methods of other libraries that move axes.
const MOVES: [&str; 7] =
    ["view", "reshape", "permute", "transpose", "flatten", "squeeze", "unsqueeze"];

impl Checker<'_> {
    fn own(&self, cx: &FnCx, name: &str) -> Option<Own> {
        match cx.by_name.get(name) {
            Some(Some(_)) => return Some(Own::Tensor),
            Some(None) => return Some(Own::Broken),
            None => {}
        }
        let layer = cx.layer?;
        match self.weight_index(layer, name) {
            Some(_) => Some(Own::Tensor),
            None => self.sub_index(layer, name).map(|_| Own::Layer),
        }
    }

    /// Reports a tensor or a layer in an expression that must have a value before samples flow.
    /// False if there is none.
    pub fn flows(&mut self, cx: &FnCx, expr: &Expr) -> bool {
        let mut found = None;
        walk_names(expr, &mut |name: &Ident| {
            if found.is_none() {
                found = self.own(cx, &name.name).map(|own| (name.clone(), own));
            }
        });
        let Some((name, own)) = found else { return false };
        let (is, label) = match own {
            Own::Tensor => ("a tensor", "known only when samples flow"),
            Own::Layer => ("a layer", "not a value"),
            Own::Broken => return true,
        };
        let title =
            format!("`{}` is {is}, and a value that is known now is needed here", name.name);
        self.report(
            Diagnostic::error("M0111", title)
                .label(name.span, label)
                .help("sizes, params and fields of the layer are known now"),
        );
        true
    }

    /// `x.matmul(w)`, `up.forward(x)`, `self.up(x)`: there are no methods. False for anything
    /// else.
    pub fn method(&mut self, cx: &FnCx, base: &Ident, member: &Ident) -> bool {
        let (of, name) = (&base.name, &member.name);
        let itself = matches!(of.as_str(), "self" | "this") && self.lookup(cx.file, of).is_none();
        let d = match self.own(cx, of) {
            Some(Own::Broken) => return true,
            Some(Own::Layer) => Diagnostic::error("M0124", "a layer is called by its name alone")
                .label(base.span.to(member.span), "no methods")
                .fix(format!("write `{of}(x)`"), base.span.to(member.span), of.clone()),
            Some(Own::Tensor) => {
                let d = Diagnostic::error("M0120", format!("a tensor has no `{name}`"))
                    .label(member.span, "there are no methods");
                match name.as_str() {
                    "matmul" | "mm" | "dot" | "bmm" => d.help(format!("write `{of} @ other`")),
                    "at" => d.help("`.at(..)` is for tests"),
                    n if MOVES.contains(&n) => {
                        d.help(format!("axes are moved by `rearrange[A B -> (A B)]({of})`"))
                    }
                    n if matches!(self.lookup(cx.file, n), Some(Entity::Op(_))) => {
                        d.help(format!("functions come first: `{n}({of})`"))
                    }
                    _ => d.help(format!("functions come first: `f({of})` or `{of} |> f`")),
                }
            }
            None if itself => Diagnostic::error("M0106", format!("there is no `{of}`"))
                .label(base.span, "unknown name")
                .fix(format!("write `{name}`"), base.span.to(member.span), name.clone()),
            None => return false,
        };
        self.report(d);
        true
    }
}
