//! Figures of a plan by the names that tests use: `p.memory.peak`, `p.bubble`.

use super::report::MeshReport;
use monarch_check::hir::{Quantity, Unit, Value};

/// Names that [`what`] knows.
pub const FIGURES: [&str; 19] = [
    "memory.peak",
    "memory.offered",
    "memory.weights",
    "memory.gradients",
    "memory.optimizer",
    "memory.activations",
    "bubble",
    "step_time",
    "run_time",
    "tokens_per_day",
    "samples_per_day",
    "tokens_per_step",
    "flops",
    "mfu",
    "hfu",
    "devices",
    "stages",
    "steps",
    "parameters",
];

/// The figure of that name: sizes in bytes, times in seconds, shares with 1 for all.
pub fn what(report: &MeshReport, path: &str) -> Option<Value> {
    let quantity = |amount: f64, unit| Some(Value::Quantity(Quantity { amount, unit }));
    let bytes = |n: u64| quantity(n as f64, Unit::Bytes);
    let whole = |n: u64| i64::try_from(n).ok().map(Value::Int);
    let stage = report.estimate.stages.get(report.estimate.fullest())?;
    let steps_a_day = 86_400.0 / report.step_seconds().max(1e-12);
    match path {
        "memory.peak" => bytes(report.peak_memory()),
        "memory.offered" => bytes(report.offered),
        "memory.weights" => bytes(stage.memory.weights),
        "memory.gradients" => bytes(stage.memory.gradients),
        "memory.optimizer" => bytes(stage.memory.optimizer),
        "memory.activations" => bytes(stage.memory.activations),
        "bubble" => quantity(report.estimate.bubble, Unit::Share),
        "step_time" => quantity(report.step_seconds(), Unit::Seconds),
        "run_time" => quantity(report.run_seconds(), Unit::Seconds),
        "tokens_per_day" => quantity(steps_a_day * report.tokens_per_step() as f64, Unit::Tokens),
        "samples_per_day" => quantity(steps_a_day * report.batch as f64, Unit::Samples),
        "tokens_per_step" => quantity(report.tokens_per_step() as f64, Unit::Tokens),
        "flops" => Some(Value::Float(report.estimate.model_flops)),
        "mfu" => quantity(report.mfu(), Unit::Share),
        "hfu" => quantity(report.hfu(), Unit::Share),
        "devices" => whole(report.devices()),
        "stages" => whole(report.estimate.stages.len() as u64),
        "steps" => whole(report.steps),
        "parameters" => whole(report.parameters),
        _ => None,
    }
}
