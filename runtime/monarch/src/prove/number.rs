//! Numbers of a test: known ones, and what `fit` and `plan` have found.

use super::{Found, Prover, Result};
use monarch_check::hir::{
    Device, Fold, Measure, MemoryPart, Number, NumberKind, Quantity, Series, StaticOp, Unit, Value,
};
use monarch_diagnostic::Diagnostic;
use monarch_plan::Report;
use monarch_plan::mesh::{self, MeshReport, machines};

impl Prover<'_> {
    /// The value of a number.
    pub(super) fn number(&mut self, number: &Number) -> Result<Value> {
        let span = number.span;
        let fail = |what: String| Diagnostic::error("M1005", what).label(span, "asked for here");
        Ok(match &number.kind {
            NumberKind::Known(value) => value.clone(),
            NumberKind::Measured(result, what) => {
                let found = self.results.get(result.0 as usize).and_then(Option::as_ref);
                let value = match found {
                    Some(Found::Fitted(fitted)) => measured(fitted, *what),
                    Some(Found::Workers(report)) => planned(report, *what),
                    Some(Found::Devices(report)) => declared(report, *what),
                    None => None,
                };
                value.ok_or_else(|| fail("there is no such figure of this result".into()))?
            }
            NumberKind::DeviceMemory(id) => {
                let device = self.program.clusters.get(*id).and_then(|c| c.device.as_ref());
                let table = |d: &Device| Some(machines::machine(&d.kind)?.memory);
                let bytes = device.and_then(|d| d.memory_bytes.or_else(|| table(d)));
                let bytes = bytes.ok_or_else(|| {
                    fail("how much memory this device has is not known".into())
                        .help("say it: `device = MI300X { memory = 192 GiB }`")
                })?;
                bytes_value(bytes)
            }
            NumberKind::Element(expr) => {
                let tensor = self.tensors.value(expr)?;
                Value::Float(tensor.get(0).ok_or_else(|| fail("this has no value".into()))?)
            }
            NumberKind::Neg(inner) => {
                let value = self.number(inner)?;
                let minus = monarch_check::arithmetic(StaticOp::Mul, &Value::Int(-1), &value);
                minus.map_err(|e| fail(e.to_string()))?
            }
            NumberKind::Binary(op, a, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                monarch_check::arithmetic(*op, &a, &b).map_err(|e| fail(e.to_string()))?
            }
        })
    }
}

fn bytes_value(bytes: u64) -> Value {
    Value::Quantity(Quantity { amount: bytes as f64, unit: Unit::Bytes })
}

fn whole(n: u64) -> Option<Value> {
    i64::try_from(n).ok().map(Value::Int)
}

fn measured(fitted: &super::Fitted, what: Measure) -> Option<Value> {
    match what {
        Measure::Steps => whole(fitted.loss.len() as u64),
        Measure::Series(series, fold) => {
            let values = match series {
                Series::Loss => &fitted.loss,
                Series::Lr => &fitted.lr,
                Series::GradNorm => &fitted.grad_norm,
            };
            folded(values, fold).map(Value::Float)
        }
        _ => None,
    }
}

fn folded(values: &[f64], fold: Fold) -> Option<f64> {
    match fold {
        Fold::First => values.first().copied(),
        Fold::Last => values.last().copied(),
        // A step without a number is neither the least nor the most: it is what there is to see.
        Fold::Min | Fold::Max if values.iter().any(|v| v.is_nan()) => Some(f64::NAN),
        Fold::Min => values.iter().copied().min_by(f64::total_cmp),
        Fold::Max => values.iter().copied().max_by(f64::total_cmp),
        Fold::Mean if values.is_empty() => None,
        Fold::Mean => Some(values.iter().sum::<f64>() / values.len() as f64),
    }
}

fn planned(report: &Report, what: Measure) -> Option<Value> {
    let share = |amount| Value::Quantity(Quantity { amount, unit: Unit::Share });
    Some(match what {
        Measure::Memory(part) => bytes_value(match part {
            MemoryPart::Peak => report.memory.total(),
            MemoryPart::Weights => report.memory.weights,
            MemoryPart::Gradients => report.memory.gradients,
            MemoryPart::Optimizer => report.memory.optimizer,
            MemoryPart::Activations => report.memory.activations,
        }),
        Measure::Bubble => share(report.bubble),
        Measure::Devices => return whole(u64::from(report.workers)),
        Measure::Steps => return whole(report.steps),
        Measure::StepTime => {
            let amount = report.time.step();
            Value::Quantity(Quantity { amount, unit: Unit::Seconds })
        }
        Measure::Series(..) => return None,
    })
}

/// Figures of a plan for devices, by the names that the planner gives them.
fn declared(report: &MeshReport, what: Measure) -> Option<Value> {
    let path = match what {
        Measure::Memory(part) => match part {
            MemoryPart::Peak => "memory.peak",
            MemoryPart::Weights => "memory.weights",
            MemoryPart::Gradients => "memory.gradients",
            MemoryPart::Optimizer => "memory.optimizer",
            MemoryPart::Activations => "memory.activations",
        },
        Measure::Bubble => "bubble",
        Measure::Devices => "devices",
        Measure::Steps => "steps",
        Measure::StepTime => "step_time",
        Measure::Series(..) => return None,
    };
    mesh::what(report, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_of_a_series() {
        let all = [3.0, 1.0, 2.0];
        let folds = [Fold::First, Fold::Last, Fold::Min, Fold::Max, Fold::Mean];
        let found = folds.map(|f| folded(&all, f));
        assert_eq!(found, [3.0, 2.0, 1.0, 3.0, 2.0].map(Some));
        assert!(folds.iter().all(|f| folded(&[], *f).is_none()));
        assert!(folded(&[1.0, f64::NAN], Fold::Min).is_some_and(f64::is_nan));
    }
}
