//! `fit(job, steps = 200, batches = 1)`: a short run within this process.

use crate::launch::Threads;
use monarch_controller::{RunConfig, RunEvent, control};
use monarch_graph::Plan;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a run has measured, step by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fitted {
    pub loss: Vec<f64>,
    pub lr: Vec<f64>,
    pub grad_norm: Vec<f64>,
}

/// Trains for `steps` steps, on the first `batches` batches of the `train` split alone if given.
/// Nothing is evaluated, saved or stopped by rules. Err: why the run failed.
pub(crate) fn fit(mut plan: Plan, steps: u64, batches: Option<u64>) -> Result<Fitted, String> {
    plan.steps = steps;
    plan.eval_every = None;
    plan.evals.clear();
    plan.checkpoint = None;
    plan.rules.clear();
    let batch = plan.batch;
    if let Some(batches) = batches
        && let Some(train) = plan.data.splits.iter_mut().find(|s| s.name == "train")
    {
        train.end = train.end.min(train.start.saturating_add(batches.saturating_mul(batch)));
    }
    let hash = monarch_wire::job_hash(&plan).map_err(|e| e.to_string())?;
    let scratch = Scratch::new();
    let mut config = RunConfig::new(plan, hash, "test", scratch.path.clone(), 1);
    config.save_at_end = false;
    let mut found = Fitted::default();
    let mut observer = |event: &RunEvent| {
        if let RunEvent::Step(step) = event {
            found.loss.push(step.loss);
            found.lr.push(step.lr);
            found.grad_norm.push(step.grad_norm);
        }
    };
    let (_handle, inbox) = control();
    monarch_controller::run(&config, &mut Threads { count: 1 }, &mut observer, inbox)
        .map_err(|e| e.message)?;
    Ok(found)
}

/// A folder for what a run records; it goes when the run is over.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("monarch-test-{}-{number}", std::process::id());
        Scratch { path: std::env::temp_dir().join(name) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
