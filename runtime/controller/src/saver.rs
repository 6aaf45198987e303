use crate::link::Input;
use monarch_checkpoint::{About, Best, ShardInfo, Staging, prune};
use monarch_graph::Plan;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// Whole checkpoints kept when the job does not say how many.
const KEEP: u64 = 3;

/// Makes checkpoints whole, on a thread of its own: training never waits for the disk here.
pub(crate) struct Saver {
    jobs: Sender<Job>,
}

/// A checkpoint whose parts are all written.
pub(crate) struct Job {
    pub step: u64,
    pub staging: Staging,
    pub about: About,
    pub shards: Vec<ShardInfo>,
    /// When it was asked for.
    pub since: Instant,
}

/// What has become of it.
#[derive(Debug)]
pub(crate) struct Saved {
    pub step: u64,
    pub fingerprint: String,
    pub result: Result<PathBuf, String>,
    pub seconds: f64,
    /// Old checkpoints that could not be removed.
    pub complaints: Vec<String>,
}

impl Saver {
    pub fn start(plan: &Plan, root: PathBuf, inbox: Sender<Input>) -> std::io::Result<Saver> {
        let axes = monarch_checkpoint::axes(&monarch_checkpoint::layout(plan, 1));
        let keep = plan.checkpoint.as_ref().map_or(KEEP, |c| c.keep);
        let also = plan.checkpoint.as_ref().and_then(|c| c.also);
        let best = best_metric(plan);
        let (jobs, queue) = channel::<Job>();
        std::thread::Builder::new().name("monarch-save".to_string()).spawn(move || {
            for job in queue {
                let mut saved = save(job, &axes);
                if saved.result.is_ok() {
                    saved.complaints = tidy(&root, keep, best.as_ref(), also);
                }
                if inbox.send(Input::Saved(saved)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Saver { jobs })
    }

    /// False when the thread is gone.
    pub fn commit(&self, job: Job) -> bool {
        self.jobs.send(job).is_ok()
    }
}

fn save(job: Job, axes: &BTreeMap<String, Vec<String>>) -> Saved {
    let Job { step, staging, about, shards, since } = job;
    let fingerprint = about.fingerprint.to_string();
    let result = staging.commit(&about, &shards, axes).map_err(|e| e.to_string());
    let seconds = since.elapsed().as_secs_f64();
    Saved { step, fingerprint, result, seconds, complaints: Vec::new() }
}

fn tidy(root: &std::path::Path, keep: u64, best: Option<&Best>, also: Option<u64>) -> Vec<String> {
    match prune(root, keep, best, also) {
        Ok(pruned) => pruned
            .failed
            .iter()
            .map(|(path, e)| format!("cannot remove the old checkpoint `{}`: {e}", path.display()))
            .collect(),
        Err(error) => vec![format!("old checkpoints stay: {error}")],
    }
}

/// What the job says; else the first metric of the first evaluation decides which checkpoint is
/// the best.
pub(crate) fn best_metric(plan: &Plan) -> Option<Best> {
    if let Some(best) = plan.checkpoint.as_ref().and_then(|c| c.best.as_ref()) {
        return Some(Best { metric: best.metric.clone(), smallest: best.smallest });
    }
    let eval = plan.evals.first()?;
    let name = &eval.metrics.first()?.name;
    let smallest = crate::words::smallest_is_best(name)?;
    Some(Best { metric: format!("{}.{name}", eval.name), smallest })
}
