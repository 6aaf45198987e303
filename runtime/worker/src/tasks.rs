//! The plan's tasks, sorted by who carries them out, after a check that they can be.

use crate::WorkerError;
use monarch_graph::{Bucket, Part, Plan, Stream, Task, TaskKind};

/// What a step consists of, in the order in which each stream does it.
#[derive(Debug)]
pub(crate) struct Tasks {
    /// Once per shard: load, compute, fold.
    pub(crate) shard: Vec<Task>,
    /// Place in `shard` after which the loss is known: the end of the forward pass.
    pub(crate) loss_after: usize,
    /// Once per step: reductions.
    pub(crate) communication: Vec<Task>,
    pub(crate) update: String,
}

impl Tasks {
    pub(crate) fn new(plan: &Plan) -> Result<Tasks, WorkerError> {
        let (shard, communication) = (Vec::new(), Vec::new());
        let mut tasks = Tasks { shard, loss_after: 0, communication, update: "update".into() };
        for task in &plan.tasks.tasks {
            match (&task.kind, task.stream) {
                (TaskKind::AllReduce { .. } | TaskKind::AllReduceScalars, _) => {
                    tasks.communication.push(task.clone());
                }
                (TaskKind::Update, _) => tasks.update = task.name.clone(),
                (_, Stream::Communication) => {
                    return Err(wrong(format!("task `{}` cannot communicate", task.name)));
                }
                _ => tasks.shard.push(task.clone()),
            }
        }
        tasks.check(plan).map_err(wrong)?;
        let forward = plan.train.forward;
        let known = |t: &Task| matches!(t.kind, TaskKind::Compute { end, .. } if end >= forward);
        tasks.loss_after = tasks.shard.iter().position(known).unwrap_or(0);
        Ok(tasks)
    }

    /// Nodes in order and each once; buckets in order, folded once and reduced once. All ranks
    /// reduce in this order, so it cannot deadlock.
    fn check(&self, plan: &Plan) -> Result<(), String> {
        let nodes = plan.train.program.graph.nodes.len();
        let (mut at, mut folded) = (0, 0);
        let mut loads = 0;
        for task in &self.shard {
            match task.kind {
                TaskKind::LoadBatch if at == 0 => loads += 1,
                TaskKind::Compute { start, end } if start as usize == at && end >= start => {
                    at = end as usize;
                }
                TaskKind::Fold { bucket } if bucket.index() == folded => folded += 1,
                _ => return Err(format!("task `{}` comes out of turn", task.name)),
            }
        }
        let (mut reduced, mut scalars) = (0, 0);
        for task in &self.communication {
            match task.kind {
                TaskKind::AllReduce { bucket } if bucket.index() == reduced => reduced += 1,
                TaskKind::AllReduceScalars => scalars += 1,
                _ => return Err(format!("task `{}` comes out of turn", task.name)),
            }
        }
        for bucket in &plan.buckets {
            check_parts(plan, bucket)?;
        }
        let buckets = plan.buckets.len();
        let once = loads == 1 && scalars == 1 && at == nodes;
        if !once || folded != buckets || reduced != buckets {
            return Err(format!(
                "the tasks load {loads} times, run {at} of {nodes} nodes, fold {folded} and reduce \
                 {reduced} of {buckets} buckets, and reduce numbers {scalars} times"
            ));
        }
        Ok(())
    }
}

/// Every part is the whole gradient of one weight, within its bucket.
fn check_parts(plan: &Plan, bucket: &Bucket) -> Result<(), String> {
    let within = |part: &Part| {
        let end = part.start.checked_add(part.elements);
        let weight = plan.weights.get(part.weight.index());
        part.start >= bucket.start
            && end.is_some_and(|end| end - bucket.start <= bucket.elements)
            && weight.is_some_and(|w| w.trainable && w.elements() == part.elements)
    };
    if bucket.parts.iter().all(within) {
        return Ok(());
    }
    Err(format!("bucket {} holds other gradients than the weights say", bucket.id.0))
}

fn wrong(what: String) -> WorkerError {
    WorkerError::setup("read the plan", what)
}
