use crate::link::Input;
use monarch_checkpoint::{About, Best, Keep, ShardInfo, Staging, prune};
use monarch_graph::Plan;
use monarch_sched::{Answer, Config};
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
    /// One whose numbers are not finite is refused.
    pub only_finite: bool,
    /// When it was asked for.
    pub since: Instant,
}

/// What has become of it.
#[derive(Debug)]
pub(crate) struct Saved {
    pub step: u64,
    pub fingerprint: String,
    pub finite: bool,
    pub result: Result<PathBuf, String>,
    pub seconds: f64,
    /// Old checkpoints that could not be removed.
    pub complaints: Vec<String>,
}

impl Saver {
    pub fn start(
        plan: &Plan,
        scheduling: &Config,
        root: PathBuf,
        inbox: Sender<Input>,
    ) -> std::io::Result<Saver> {
        let axes = monarch_checkpoint::axes(&monarch_checkpoint::layout(plan, 1));
        let keep = plan.checkpoint.as_ref().map_or(KEEP, |c| c.keep);
        let also = plan.checkpoint.as_ref().and_then(|c| c.also);
        let best = best_metric(plan);
        let goes_back = scheduling.answers.contains(&Answer::Rollback);
        let scheduling = goes_back.then(|| scheduling.clone());
        let (jobs, queue) = channel::<Job>();
        std::thread::Builder::new().name("monarch-save".to_string()).spawn(move || {
            for job in queue {
                let mut saved = save(job, &axes);
                if saved.result.is_ok() {
                    let point = |step: u64| scheduling.as_ref().is_some_and(|s| s.is_point(step));
                    let point: Option<&dyn Fn(u64) -> bool> = Some(&point);
                    let keep = Keep { newest: keep, best: best.as_ref(), also, point };
                    saved.complaints = tidy(&root, keep);
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
    let Job { step, staging, about, shards, only_finite, since } = job;
    let fingerprint = about.fingerprint.to_string();
    let finite = shards.iter().all(|s| s.finite);
    let result = match only_finite && !finite {
        true => Err("the weights are not finite any more".to_string()),
        false => staging.commit(&about, &shards, axes).map_err(|e| e.to_string()),
    };
    let seconds = since.elapsed().as_secs_f64();
    Saved { step, fingerprint, finite, result, seconds, complaints: Vec::new() }
}

fn tidy(root: &std::path::Path, keep: Keep<'_>) -> Vec<String> {
    match prune(root, keep) {
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
