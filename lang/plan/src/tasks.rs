//! The TaskGraph of the role `worker`: what a data-parallel rank does in one step.
//!
//! The compute stream loads a shard, runs forward, and runs backward cut where a bucket becomes
//! complete; a fold follows each cut. The communication stream reduces bucket after bucket. With
//! overlap a reduction waits for its own bucket alone, otherwise for the end of backward.

use monarch_graph::{
    Bucket, BucketId, Graph, NodeId, Span, Stream, Task, TaskGraph, TaskId, TaskKind, Weight,
};

/// What the task graph is made from.
#[derive(Clone, Copy, Debug)]
pub struct TaskInput<'a> {
    pub graph: &'a Graph,
    /// Nodes `0..forward` are the forward half.
    pub forward: usize,
    pub gradients: &'a [Option<NodeId>],
    pub buckets: &'a [Bucket],
    pub weights: &'a [Weight],
    pub overlap: bool,
    /// Of the `train` block.
    pub span: Span,
}

/// Per bucket: the end of the node range that completes it.
pub fn cuts(buckets: &[Bucket], gradients: &[Option<NodeId>], forward: usize) -> Vec<usize> {
    let mut at = forward;
    let mut cuts = Vec::with_capacity(buckets.len());
    for bucket in buckets {
        for part in &bucket.parts {
            if let Some(Some(node)) = gradients.get(part.weight.index()) {
                at = at.max(node.index() + 1);
            }
        }
        cuts.push(at);
    }
    cuts
}

/// Makes the worker's tasks.
pub fn worker_tasks(input: TaskInput) -> TaskGraph {
    let mut tasks = Vec::new();
    let add = |tasks: &mut Vec<Task>, name: String, kind, stream, after, span| {
        tasks.push(Task { name, kind, stream, after, span });
        TaskId(tasks.len() as u32 - 1)
    };
    let load = TaskKind::LoadBatch;
    let mut last = add(&mut tasks, "load batch".into(), load, Stream::Compute, vec![], input.span);
    let whole = TaskKind::Compute { start: 0, end: input.forward as u32 };
    last = add(&mut tasks, "forward".into(), whole, Stream::Compute, vec![last], input.span);
    let forward = last;
    let mut folds = Vec::new();
    let mut start = input.forward;
    for (bucket, end) in
        input.buckets.iter().zip(cuts(input.buckets, input.gradients, input.forward))
    {
        let span = span_of(bucket, input.weights).unwrap_or(input.span);
        let what = weights_of(bucket, input.weights);
        if end > start {
            let kind = TaskKind::Compute { start: start as u32, end: end as u32 };
            let name = format!("backward to {what}");
            last = add(&mut tasks, name, kind, Stream::Compute, vec![last], span);
            start = end;
        }
        let kind = TaskKind::Fold { bucket: bucket.id };
        let name = format!("fold bucket {}", bucket.id.0);
        last = add(&mut tasks, name, kind, Stream::Compute, vec![last], span);
        folds.push((bucket.id, last, what, span));
    }
    let end = input.graph.nodes.len();
    if end > start {
        let kind = TaskKind::Compute { start: start as u32, end: end as u32 };
        let name = "rest of backward".into();
        last = add(&mut tasks, name, kind, Stream::Compute, vec![last], input.span);
    }
    let mut update_after = vec![last];
    for (bucket, fold, what, span) in folds {
        let after = vec![if input.overlap { fold } else { last }];
        let name = format!("reduce bucket {}: {what}", bucket.0);
        let kind = TaskKind::AllReduce { bucket };
        update_after.push(add(&mut tasks, name, kind, Stream::Communication, after, span));
    }
    let (kind, after) = (TaskKind::AllReduceScalars, vec![forward, last]);
    let name = "reduce loss and counts".into();
    update_after.push(add(&mut tasks, name, kind, Stream::Communication, after, input.span));
    let kind = TaskKind::Update;
    add(&mut tasks, "update".into(), kind, Stream::Compute, update_after, input.span);
    TaskGraph { role: "worker".into(), tasks }
}

fn span_of(bucket: &Bucket, weights: &[Weight]) -> Option<Span> {
    weights.get(bucket.parts.first()?.weight.index()).map(|w| w.span)
}

/// A name for the weights of a bucket: their common layer, or the first and the last.
fn weights_of(bucket: &Bucket, weights: &[Weight]) -> String {
    let names: Vec<&str> = bucket
        .parts
        .iter()
        .filter_map(|p| weights.get(p.weight.index()).map(|w| w.name.as_str()))
        .collect();
    match names.as_slice() {
        [] => "nothing".into(),
        [one] => (*one).into(),
        [first, .., last] => {
            let mut common: Vec<&str> = first.split('.').collect();
            for name in &names {
                let same = common.iter().zip(name.split('.')).take_while(|(a, b)| **a == *b);
                let same = same.count();
                common.truncate(same);
            }
            // `blocks` alone would name all of them.
            if common.len() < 2 { format!("{first} .. {last}") } else { common.join(".") }
        }
    }
}

/// Proves a task graph: every node of `graph` runs exactly once and in order, every bucket is
/// folded when complete and reduced once, reductions come in bucket order, the update comes after
/// all of them, and running each stream in the order of its ids never deadlocks.
pub fn verify_tasks(
    tasks: &TaskGraph,
    graph: &Graph,
    gradients: &[Option<NodeId>],
    buckets: &[Bucket],
) -> Result<(), String> {
    let mut at = 0;
    let mut folded = Vec::new();
    let mut reduced: Vec<BucketId> = Vec::new();
    let mut updates = 0;
    for (i, task) in tasks.tasks.iter().enumerate() {
        // Dependencies that point back, with streams in order of ids, cannot deadlock.
        if let Some(bad) = task.after.iter().find(|t| t.index() >= i) {
            return Err(format!("task {i} waits for task {}, which comes later", bad.0));
        }
        match task.kind {
            TaskKind::Compute { start, end } => {
                if start != at || end <= start && !graph.nodes.is_empty() {
                    return Err(format!("task {i} runs nodes {start}..{end} after {at}"));
                }
                at = end;
            }
            TaskKind::Fold { bucket } => {
                let parts = buckets.get(bucket.index()).map(|b| b.parts.as_slice());
                let complete = parts.unwrap_or(&[]).iter().all(
                    |part| matches!(gradients.get(part.weight.index()), Some(Some(n)) if n.0 < at),
                );
                if !complete || folded.iter().any(|(b, _)| *b == bucket) {
                    return Err(format!("task {i} folds bucket {} too early", bucket.0));
                }
                folded.push((bucket, i));
            }
            TaskKind::AllReduce { bucket } => {
                if bucket.index() != reduced.len() || task.stream != Stream::Communication {
                    return Err(format!("task {i} reduces bucket {} out of turn", bucket.0));
                }
                let fold = folded.iter().find(|(b, _)| *b == bucket).map(|(_, t)| *t);
                if !fold.is_some_and(|fold| reaches(tasks, i, fold)) {
                    return Err(format!("task {i} reduces bucket {} unfolded", bucket.0));
                }
                reduced.push(bucket);
            }
            TaskKind::Update => updates += 1,
            TaskKind::LoadBatch | TaskKind::AllReduceScalars => {}
        }
    }
    let all = folded.len() == buckets.len() && reduced.len() == buckets.len();
    if at as usize != graph.nodes.len() || !all || updates != 1 {
        return Err(format!(
            "runs {at} of {} nodes, folds {} and reduces {} of {} buckets, updates {updates} times",
            graph.nodes.len(),
            folded.len(),
            reduced.len(),
            buckets.len()
        ));
    }
    verify_update(tasks)
}

/// The update waits for every other task.
fn verify_update(tasks: &TaskGraph) -> Result<(), String> {
    let Some(update) = tasks.tasks.iter().position(|t| t.kind == TaskKind::Update) else {
        return Err("nothing updates the weights".into());
    };
    match (0..update).find(|&i| !reaches(tasks, update, i)) {
        Some(i) => Err(format!("the update does not wait for task {i}")),
        None => Ok(()),
    }
}

/// Whether task `from` runs after task `to`: by dependencies and by the order of its stream.
fn reaches(tasks: &TaskGraph, from: usize, to: usize) -> bool {
    let mut before = vec![false; from + 1];
    before[from] = true;
    for i in (0..=from).rev() {
        if !before[i] {
            continue;
        }
        for t in &tasks.tasks[i].after {
            before[t.index()] = true;
        }
        let stream = tasks.tasks[i].stream;
        if let Some(previous) = (0..i).rev().find(|&p| tasks.tasks[p].stream == stream) {
            before[previous] = true;
        }
    }
    before[to]
}
