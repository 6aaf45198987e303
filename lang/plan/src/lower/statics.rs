//! Static expressions with the numbers of the frame at hand.

use super::{Frame, Result, internal};
use monarch_check::hir::{EvalError, Static, StaticEnv, Sym, Unit, Value};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;

impl Frame<'_> {
    /// A number known when the plan is made.
    pub(super) fn number(&self, value: &Static, span: Span) -> Result<f64> {
        let (value, env) = (self.with_sizes(value, span)?, self.env());
        value.number(&env).map_err(|e| not_known(e, span))
    }

    /// A whole number from `least`: the argument `name`.
    pub(super) fn count(&self, value: &Static, name: &str, least: i64, span: Span) -> Result<u64> {
        let value = self.with_sizes(value, span)?;
        match value.eval(&self.env()).map_err(|e| not_known(e, span))? {
            Value::Int(n) if n >= least => Ok(n as u64),
            other => {
                let shown = other.number().map_or_else(String::new, |x| format!(", not {x}"));
                let title = format!("`{name}` is a whole number from {least}{shown}");
                let label = format!("out of range{}", self.place());
                Err(Diagnostic::error("M0112", title).label(span, label))
            }
        }
    }

    /// Which layer this is: ` in `blocks.0.attn``; empty in the model itself.
    pub(super) fn place(&self) -> String {
        match self.instance {
            Some(i) if !i.path.is_empty() => format!(" in `{}`", i.path),
            _ => String::new(),
        }
    }

    /// A share from 0 to below 1: what a dropout drops.
    pub(super) fn share(&self, value: &Static, span: Span) -> Result<f64> {
        let value = self.with_sizes(value, span)?;
        let found = match value.eval(&self.env()).map_err(|e| not_known(e, span))? {
            Value::Quantity(q) if q.unit == Unit::Share => q.amount,
            other => other.number().unwrap_or(f64::NAN),
        };
        if (0.0..1.0).contains(&found) {
            return Ok(found);
        }
        let title = format!("a share from 0% to below 100% is dropped, not {:.4}%", 100.0 * found);
        let label = format!("out of range{}", self.place());
        Err(Diagnostic::error("M0112", title).label(span, label))
    }

    pub(super) fn truth(&self, value: &Static, span: Span) -> Result<bool> {
        let (value, env) = (self.with_sizes(value, span)?, self.env());
        value.truth(&env).map_err(|e| not_known(e, span))
    }

    pub(super) fn whole(&self, value: &Static, span: Span) -> Result<u64> {
        let (value, env) = (self.with_sizes(value, span)?, self.env());
        match value.eval(&env) {
            Ok(Value::Int(n)) if n >= 0 => Ok(n as u64),
            Ok(other) => Err(internal(span, format!("{other:?} counts no elements"))),
            Err(e) => Err(not_known(e, span)),
        }
    }

    fn env(&self) -> StaticEnv<'_> {
        match self.instance {
            Some(instance) => StaticEnv { sizes: &instance.sizes, fields: &instance.fields },
            None => StaticEnv { sizes: &[], fields: &[] },
        }
    }

    /// `value` with every size replaced by its number: free axes are known here, but not to a
    /// [`StaticEnv`].
    fn with_sizes(&self, value: &Static, span: Span) -> Result<Static> {
        let again = |v: &Static| self.with_sizes(v, span);
        Ok(match value {
            Static::Size(size) => {
                let fixed = |s: Sym| {
                    let dim = self.symbols.get(s.index()).copied().flatten();
                    dim.filter(|d| !d.batch).map(|d| d.per)
                };
                match size.ratio(&fixed) {
                    Some(r) => Static::Value(match (i64::try_from(r.num), r.den) {
                        (Ok(whole), 1) => Value::Int(whole),
                        _ => Value::Float(r.num as f64 / r.den as f64),
                    }),
                    None => return Err(counts_samples(span)),
                }
            }
            Static::Value(_) | Static::Field(_) => value.clone(),
            Static::Neg(a) => Static::Neg(Box::new(again(a)?)),
            Static::Not(a) => Static::Not(Box::new(again(a)?)),
            Static::Binary(op, a, b) => {
                Static::Binary(*op, Box::new(again(a)?), Box::new(again(b)?))
            }
            Static::Call(function, args) => {
                Static::Call(*function, args.iter().map(again).collect::<Result<_>>()?)
            }
            Static::If(c, yes, no) => {
                Static::If(Box::new(again(c)?), Box::new(again(yes)?), Box::new(again(no)?))
            }
        })
    }
}

fn not_known(error: EvalError, span: Span) -> Diagnostic {
    Diagnostic::error("M0313", format!("this has no value: {error}")).label(span, "computed here")
}

fn counts_samples(span: Span) -> Diagnostic {
    Diagnostic::error("M0205", "the number of samples is no number that a model may use")
        .label(span, "depends on how many samples a shard holds")
        .help("shards differ in size; `mean(..)` in the loss divides by the whole batch")
}
