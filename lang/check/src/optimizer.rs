//! `optim = AdamW(..)`

use crate::calls::as_name;
use crate::hir::Value;
use crate::scope::{Checker, with_near};
use crate::statics::{show, type_of};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DecayOn, Optimizer, OptimizerKind, Others};
use monarch_syntax::ast::{self, Expr};

/// `optim = AdamW(..)`
pub(crate) struct OptimValue<'a> {
    pub optimizer: Optimizer,
    /// Its first argument.
    pub lr: Option<&'a Expr>,
}

/// Matched arguments of an optimizer, except its rate.
struct Given(Vec<(String, Option<Vec<f64>>)>);

impl Given {
    fn all(&self, name: &str) -> Option<&[f64]> {
        self.0.iter().find(|x| x.0 == name).and_then(|x| x.1.as_deref())
    }

    /// A number; None where it is not given or there is none of that name.
    fn one(&self, name: &str) -> Option<f64> {
        self.all(name).and_then(|v| v.first().copied())
    }

    fn pair(&self, name: &str) -> Option<(f64, f64)> {
        match self.all(name)? {
            [a, b] => Some((*a, *b)),
            _ => None,
        }
    }

    fn kind(&self, name: &str) -> Option<OptimizerKind> {
        let one = |n: &str| self.one(n);
        let decay = one("decay")?;
        let nesterov = one("nesterov") == Some(1.0);
        if name == "SGD" {
            return Some(OptimizerKind::Sgd { momentum: one("momentum")?, decay, nesterov });
        }
        let (beta1, beta2) = self.pair("betas")?;
        Some(match name {
            "Lion" => OptimizerKind::Lion { beta1, beta2, decay },
            "Muon" => {
                let scale = one("others")?;
                let others = Others { scale, beta1, beta2, eps: one("eps")? };
                let (momentum, steps) = (one("momentum")?, one("steps")? as u32);
                OptimizerKind::Muon { momentum, nesterov, steps, decay, others }
            }
            "Adam" => OptimizerKind::Adam { beta1, beta2, eps: one("eps")?, decay },
            _ => OptimizerKind::AdamW { beta1, beta2, eps: one("eps")?, decay },
        })
    }
}

impl<'a> Checker<'a> {
    pub fn optimizer(&mut self, file: u32, expr: &'a Expr) -> Option<OptimValue<'a>> {
        self.state.read.clear();
        let (op, args) = self.library_call(file, expr, "optimizer", "an optimizer")?;
        let matched = self.match_op(op, expr.span, args, 0)?;
        let ast = self.ops[op].ast;
        let mut lr = None;
        let mut decay_on = DecayOn::All;
        let mut given = Given(Vec::new());
        let mut fine = true;
        for (field, arg) in ast.fields.iter().zip(&matched) {
            let name = field.name.name.clone();
            match (name.as_str(), arg) {
                ("lr", arg) => lr = arg.map(|a| &a.value),
                ("decay_on", None) => {}
                ("decay_on", Some(arg)) => match self.decay_on(&arg.value) {
                    Some(found) => decay_on = found,
                    None => fine = false,
                },
                (_, arg) => {
                    let found = match arg {
                        Some(arg) => self.optim_number(file, &name, &arg.value),
                        None => self.optim_default(op, field),
                    };
                    match found {
                        Some(found) => given.0.push((name, found)),
                        None => fine = false,
                    }
                }
            }
        }
        self.remember("train.optim", expr);
        if !fine {
            return None;
        }
        let kind = given.kind(self.op_name(op))?;
        if matches!(kind, OptimizerKind::Sgd { momentum: 0.0, nesterov: true, .. }) {
            self.report(
                Diagnostic::error("M0112", "`nesterov` looks ahead along a momentum of 0")
                    .label(expr.span, "no momentum")
                    .help("give it one: `momentum = 0.9`"),
            );
            return None;
        }
        let optimizer = Optimizer { kind, clip: given.one("clip"), decay_on };
        Some(OptimValue { optimizer, lr })
    }

    /// `all` or `matrices`.
    fn decay_on(&mut self, expr: &Expr) -> Option<DecayOn> {
        let word = as_name(expr);
        match word.map(|w| w.name.as_str()) {
            Some("all") => return Some(DecayOn::All),
            Some("matrices") => return Some(DecayOn::Matrices),
            _ => {}
        }
        let words = ["all", "matrices"];
        let d = Diagnostic::error("M0111", "`decay_on` is `all` or `matrices`")
            .label(expr.span, "which weights decay?");
        self.report(match word {
            Some(word) => with_near(d, word, words.into_iter(), "there are"),
            None => d,
        });
        None
    }

    /// A default of the library: outer None never happens, inner None is `none`.
    fn optim_default(&mut self, op: usize, field: &'a ast::Field) -> Option<Option<Vec<f64>>> {
        let default = field.default.as_ref()?;
        if as_name(default).is_some_and(|n| n.name == "none") {
            return Some(None);
        }
        let file = self.ops[op].file;
        let value = self.plain_value(file, default)?;
        Some(Some(floats(&value)?))
    }

    fn optim_number(&mut self, file: u32, name: &str, expr: &Expr) -> Option<Option<Vec<f64>>> {
        if name == "clip" && as_name(expr).is_some_and(|n| n.name == "none") {
            return Some(None);
        }
        let value = self.plain_value(file, expr)?;
        let found = floats(&value);
        let one = |low: f64, high: f64| {
            let plain = !matches!(value, Value::Bool(_));
            plain && found.as_ref().is_some_and(|v| v.len() == 1 && v[0] >= low && v[0] < high)
        };
        let whole = matches!(value, Value::Int(_));
        let (fine, needs) = match name {
            "betas" => (
                matches!(&found, Some(v) if v.len() == 2
                    && v.iter().all(|b| (0.0..1.0).contains(b))),
                "two numbers from 0 to below 1",
            ),
            "nesterov" => (matches!(value, Value::Bool(_)), "true or false"),
            "steps" => (whole && one(1.0, 33.0), "a whole number from 1 to 32"),
            "momentum" => (one(0.0, 1.0), "a number from 0 to below 1"),
            "eps" | "clip" => (one(f64::MIN_POSITIVE, f64::INFINITY), "a number above 0"),
            _ => (one(0.0, f64::INFINITY), "a number from 0"),
        };
        if fine {
            return Some(found);
        }
        let title = format!("`{name}` is {needs}, not {}", show(&value));
        self.report(Diagnostic::error("M0112", title).label(expr.span, type_of(&value).noun()));
        None
    }
}

fn floats(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::List(items) => items.iter().map(Value::number).collect(),
        Value::Bool(b) => Some(vec![f64::from(u8::from(*b))]),
        other => other.number().map(|x| vec![x]),
    }
}
