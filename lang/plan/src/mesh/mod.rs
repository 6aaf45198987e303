//! Plans for declared machines: a job's own graph divided over a mesh of devices, with memory,
//! traffic, bubble and time from a model that states what it assumes.
//!
//! How a plan is made
//! 1. [`resolve`] settles the program's cluster and layout: every length is a number.
//! 2. [`traced`] lowers and differentiates the loss for one sample, and remembers which layer made
//!    each node and what the program calls its axes. Nothing is known of any architecture.
//! 3. [`shard`] divides the tensors and finds the collectives that follow.
//! 4. [`profile`] adds up the work, the traffic and the kept tensors of each block.
//! 5. [`pipeline`] writes the task lists of all stages and simulates them.
//! 6. [`estimate`] puts it together; [`judge`] and [`fit`] say what is wrong.

mod estimate;
mod facts;
mod fit;
mod judge;
mod labels;
pub mod machines;
mod memory;
pub mod pipeline;
mod profile;
mod report;
mod resolve;
mod search;
mod setup;
mod shard;
mod traced;
mod what;
mod words;

pub use estimate::{Estimate, Stage, StepTime, TrafficRow};
pub use memory::StageMemory;
pub use report::MeshReport;
pub use resolve::{Wish, is_declared};
pub use search::{Candidate, Search, search};
pub use what::{FIGURES, what};

use crate::lower::internal;
use estimate::{Source, estimate};
use facts::Facts;
use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Weight;
use resolve::{Resolved, resolve};
use traced::Traced;

/// Plans `program`'s job for the machines that it declares, or for those that `wish` names.
///
/// None if there is an error among the diagnostics.
pub fn plan(program: &hir::Program, wish: &Wish) -> (Option<MeshReport>, Vec<Diagnostic>) {
    let mut out = Vec::new();
    let Some(job) = &program.job else {
        out.push(crate::plan::no_job());
        return (None, out);
    };
    let report = plan_job(program, job, wish, &mut out);
    let good = out.iter().all(|d| !d.is_error());
    (report.filter(|_| good), out)
}

fn plan_job(
    program: &hir::Program,
    job: &hir::Job,
    wish: &Wish,
    out: &mut Vec<Diagnostic>,
) -> Option<MeshReport> {
    let mut resolved = resolve(program, job, wish, out)?;
    let source = match source(program, job) {
        Ok(source) => source,
        Err(error) => {
            out.push(error);
            return None;
        }
    };
    judge::judge(&resolved, &source, out);
    let settled = judge::settle_batch(&mut resolved, out);
    if settled.is_none() || out.iter().any(Diagnostic::is_error) {
        return None;
    }
    let found = match estimate(&source, &resolved.setup) {
        Ok(found) => found,
        Err(error) => {
            out.push(internal(job.span, error));
            return None;
        }
    };
    judge::divided(&resolved, &found.divides, out);
    if out.iter().any(Diagnostic::is_error) {
        return None;
    }
    if let Some(error) = fit::too_full(&resolved, &source, &found) {
        out.push(error);
        return None;
    }
    Some(report_of(job, &resolved, &source, found))
}

/// The job's graph, lowered once for all layouts.
fn source<'a>(program: &'a hir::Program, job: &hir::Job) -> Result<Source<'a>, Diagnostic> {
    let traced = Traced::new(program, job)?;
    if traced.gradients.iter().all(Option::is_none) {
        return Err(crate::plan::nothing_to_train(job));
    }
    let model = program.model(job.model);
    let weights = model.map_or(&[][..], |m| m.weights.as_slice());
    let trained = traced.gradients.iter().map(Option::is_some).collect();
    let facts = Facts::new(&traced);
    Ok(Source { facts, traced, weights, trained })
}

fn report_of(job: &hir::Job, r: &Resolved, source: &Source, found: Estimate) -> MeshReport {
    let setup = &r.setup;
    let sizes = || source.weights.iter().map(Weight::elements);
    let trained = sizes().zip(&source.trained).filter(|(_, t)| **t).map(|(n, _)| n);
    MeshReport {
        name: job.name.clone(),
        layout: r.layout.map(|l| l.name.clone()),
        device: setup.machine.name.to_owned(),
        nodes: setup.nodes,
        per_node: setup.per_node,
        mesh: setup.lengths,
        microbatches: setup.microbatches,
        batch: setup.batch,
        tokens_per_sample: setup.tokens_per_sample,
        rows: job.rows,
        steps: setup.steps,
        parameters: sizes().sum(),
        trainable: trained.sum(),
        offered: fit::offered(setup),
        memory: setup.memory,
        peak_flops_per_second: setup.machine.peak(setup.precision.weights) * setup.devices() as f64,
        estimate: found,
        setup: setup.clone(),
    }
}
