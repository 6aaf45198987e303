//! Arguments with declared types, for events, responses and actions.

use crate::calls::Declared;
use crate::events::{ArgDoc, Takes};
use crate::hir::{MeshAxis, Unit, Value};
use crate::scope::Checker;
use crate::statics::{show, type_of};
use crate::train::{MAX_STEPS, Pace};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{Arg, Expr};

/// The value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// A bound, a share, seconds.
    Number(f64),
    /// A whole number, steps, checkpoints.
    Whole(u64),
    Flag(bool),
    Text(String),
    Axis(MeshAxis),
}

/// Values of the arguments that were given.
#[derive(Debug, Default)]
pub(crate) struct GivenArgs(Vec<(&'static str, Given)>);

impl GivenArgs {
    fn get(&self, name: &str) -> Option<&Given> {
        self.0.iter().find(|a| a.0 == name).map(|a| &a.1)
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Given::Number(n) => Some(*n),
            _ => None,
        }
    }

    pub fn whole(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Given::Whole(n) => Some(*n),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Given::Flag(true))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Given::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn axis(&self) -> Option<MeshAxis> {
        self.0.iter().find_map(|a| match a.1 {
            Given::Axis(axis) => Some(axis),
            _ => None,
        })
    }
}

impl Checker<'_> {
    /// The arguments of a call of `callee`, each of its type. None if reported.
    pub fn typed_args(
        &mut self,
        file: u32,
        callee: &str,
        docs: &[ArgDoc],
        at: Span,
        args: &[Arg],
        pace: Option<Pace>,
    ) -> Option<GivenArgs> {
        let declared: Vec<Declared> =
            docs.iter().map(|d| Declared { name: d.name, required: d.default.is_none() }).collect();
        let matched = self.match_args(callee, at, &declared, args, 0)?;
        let mut out = Some(GivenArgs::default());
        for (doc, arg) in docs.iter().zip(matched) {
            let Some(arg) = arg else { continue };
            match (self.typed(file, callee, doc, &arg.value, pace), &mut out) {
                (Some(value), Some(list)) => list.0.push((doc.name, value)),
                _ => out = None,
            }
        }
        out
    }

    fn typed(
        &mut self,
        file: u32,
        callee: &str,
        doc: &ArgDoc,
        expr: &Expr,
        pace: Option<Pace>,
    ) -> Option<Given> {
        if doc.takes == Takes::Axis {
            return self.mesh_axis(expr, None).map(|a| Given::Axis(a.0));
        }
        let value = self.plain_value(file, expr)?;
        let found = match (&value, doc.takes) {
            (Value::Text(text), Takes::Text) => Some(Given::Text(text.clone())),
            (Value::Bool(flag), Takes::Flag) => Some(Given::Flag(*flag)),
            (Value::Int(i), Takes::Whole(least)) if *i >= least => Some(Given::Whole(*i as u64)),
            (Value::Quantity(q), Takes::Bound | Takes::Share) if q.unit == Unit::Share => {
                Some(Given::Number(q.amount))
            }
            (Value::Quantity(q), Takes::Time) if q.unit == Unit::Seconds => {
                Some(Given::Number(q.amount))
            }
            (Value::Quantity(q), Takes::Checkpoints) if q.unit == Unit::Checkpoints => {
                whole(q.amount)
            }
            (Value::Quantity(q), Takes::Steps)
                if matches!(q.unit, Unit::Steps | Unit::Epochs | Unit::Samples | Unit::Tokens) =>
            {
                let exact = match q.unit {
                    Unit::Steps => q.amount,
                    _ => self.steps_of(*q, pace?, expr.span)?,
                };
                let rounded = self.rounded(exact, expr.span, "the interval");
                (rounded < MAX_STEPS).then(|| whole(rounded)).flatten()
            }
            (other, Takes::Bound) => other.number().map(Given::Number),
            _ => None,
        };
        // A time or a share of nothing would hold at once and always.
        let empty = matches!(found, Some(Given::Number(n)) if n <= 0.0)
            && matches!(doc.takes, Takes::Time | Takes::Share);
        if found.is_none() || empty {
            self.untyped(callee, doc, expr, &value);
            return None;
        }
        found
    }

    fn untyped(&mut self, callee: &str, doc: &ArgDoc, expr: &Expr, value: &Value) {
        let (name, noun) = (doc.name, doc.takes.noun());
        let quantity = matches!(value, Value::Quantity(_));
        let code = if quantity { "M0103" } else { "M0111" };
        let least = match doc.takes {
            Takes::Whole(least) => format!(" from {least}"),
            _ => String::new(),
        };
        let title = format!("`{name}` of `{callee}` is {noun}{least}, not {}", show(value));
        let d = Diagnostic::error(code, title).label(expr.span, type_of(value).noun());
        let example = doc.takes.example();
        self.report(d.help(format!("for example `{callee}({name} = {example})`")));
    }
}

fn whole(amount: f64) -> Option<Given> {
    (amount >= 1.0 && amount.fract() == 0.0 && amount < 1e15).then_some(Given::Whole(amount as u64))
}
