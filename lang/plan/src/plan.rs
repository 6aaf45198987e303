//! The whole way from a checked program to a plan and its report.

use crate::bucket::{self, BucketPolicy};
use crate::cost::{self, Held, Link, Pace, Rates};
use crate::differentiate::differentiate;
use crate::infer::verify_graph;
use crate::lower::{
    LoweredProgram, MAX_ELEMENTS, Mode, internal, lower_objectives, remap, results,
};
use crate::memory::{Overwrite, plan_memory, verify_memory};
use crate::report::{BucketRow, Report, bytes};
use crate::simplify::simplify;
use crate::tasks::{TaskInput, cuts, verify_tasks, worker_tasks};
use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Bucket, Evaluation, NodeId, Plan, Program, Span, TaskKind, Training, Weight};

/// The CPU device's kernels read and write distinct memory.
const OVERWRITE: Overwrite = Overwrite::Never;

/// What the planner is told about the cluster. Only the report depends on it, never the plan:
/// the same program gives the same plan, byte for byte, for any cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    pub workers: u32,
    /// Compute threads of each worker.
    pub threads: u32,
    pub link: Link,
    pub rates: Rates,
    /// What each worker may use; None if that is not known.
    pub memory_bytes: Option<u64>,
}

impl Default for Facts {
    fn default() -> Facts {
        let (link, rates) = (Link::SharedMemory, Rates::default());
        Facts { workers: 1, threads: 1, link, rates, memory_bytes: None }
    }
}

/// Plans `program`'s job for a cluster.
///
/// None if there is an error among the diagnostics.
pub fn plan(program: &hir::Program, facts: &Facts) -> (Option<(Plan, Report)>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let Some(job) = &program.job else {
        diagnostics.push(no_job());
        return (None, diagnostics);
    };
    if let Some(error) = too_many_workers(job, facts) {
        diagnostics.push(error);
    }
    // The rest is judged for as many as can work.
    let facts = &Facts { workers: facts.workers.min(job.shards), ..*facts };
    match make(program, job, &mut diagnostics) {
        Ok((plan, at)) => {
            let report = report(&plan, job, &at, facts);
            diagnostics.extend(too_much_memory(&report, job, facts));
            let good = diagnostics.iter().all(|d| !d.is_error());
            (good.then_some((plan, report)), diagnostics)
        }
        Err(error) => {
            diagnostics.push(error);
            (None, diagnostics)
        }
    }
}

pub(crate) fn no_job() -> Diagnostic {
    let error = Diagnostic::error("M0301", "this program has no job to plan");
    error.help("add a block `train name { model = .., data = .., .. }`")
}

fn too_much_memory(report: &Report, job: &hir::Job, facts: &Facts) -> Option<Diagnostic> {
    let offered = facts.memory_bytes?;
    let needed = report.memory.total();
    if needed <= offered {
        return None;
    }
    let title = format!("a worker needs {}; it is offered {}", bytes(needed), bytes(offered));
    let mut rows = report.memory.rows();
    rows.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
    let parts: Vec<String> =
        rows.iter().take(3).map(|(name, size)| format!("{name} {}", bytes(*size))).collect();
    let error = Diagnostic::error("M0401", title).label(job.span, parts.join(", "));
    let help = match rows.first() {
        Some(("activations" | "batch", _)) if facts.threads > 1 => {
            format!(
                "use fewer than {} threads a worker, more shards or a smaller batch",
                facts.threads
            )
        }
        Some(("activations" | "batch", _)) => "use more shards or a smaller batch".into(),
        _ => "use a smaller model: every worker holds all weights and their optimizer state".into(),
    };
    Some(error.help(help))
}

fn too_many_workers(job: &hir::Job, facts: &Facts) -> Option<Diagnostic> {
    if facts.workers <= job.shards {
        return None;
    }
    let (workers, shards) = (facts.workers, job.shards);
    let idle = workers - shards;
    let title = format!("{workers} workers cannot share {shards} shards: {idle} would be idle");
    let mut help = format!("use at most {shards} workers");
    let most = workers.checked_next_power_of_two().filter(|n| u64::from(*n) <= job.batch);
    if let Some(most) = most {
        help.push_str(&format!(", or set `shards = {most}` in the job"));
    }
    let label = format!("cuts each batch into {shards} shards");
    Some(Diagnostic::error("M0302", title).label(job.span, label).help(help))
}

fn fits_a_machine(weight: &Weight) -> Result<(), Diagnostic> {
    let elements = weight.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    if elements.is_some_and(|n| n <= MAX_ELEMENTS) {
        return Ok(());
    }
    let title = format!("`{}` is larger than any machine's memory", weight.name);
    let shape: Vec<String> = weight.shape.iter().map(u64::to_string).collect();
    Err(Diagnostic::error("M0211", title)
        .label(weight.span, format!("[{}]", shape.join(", ")))
        .help("check the sizes: perhaps a product stands where a sum was meant"))
}

/// Where backward completes each bucket.
type Cuts = Vec<usize>;

fn make(
    program: &hir::Program,
    job: &hir::Job,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<(Plan, Cuts), Diagnostic> {
    let model = program.model(job.model);
    let model = model.ok_or_else(|| internal(job.span, "the job's model does not exist"))?;
    let weights = model.weights.clone();
    weights.iter().try_for_each(fits_a_machine)?;
    let loss = lower_objectives(program, job, &[&job.loss], Mode::Train)?;
    refuse_trained_weights_of_targets(&loss, &weights)?;
    let max_samples = job.batch.div_ceil(u64::from(job.shards.max(1))).max(1);
    let (train, buckets) = training(&loss, &weights, max_samples, job)?;
    unused(&train, &weights, model, diagnostics);
    let input = TaskInput {
        graph: &train.program.graph,
        forward: train.forward as usize,
        gradients: &train.gradients,
        buckets: &buckets,
        weights: &weights,
        overlap: job.overlap,
        span: job.span,
    };
    let tasks = worker_tasks(input);
    verify_tasks(&tasks, &train.program.graph, &train.gradients, &buckets)
        .map_err(|e| internal(job.span, e))?;
    let at = cuts(&buckets, &train.gradients, train.forward as usize);
    let mut evals = Vec::new();
    if let Some(eval) = &job.eval {
        evals.push(evaluation(program, job, eval, max_samples)?);
    }
    let plan = Plan {
        name: job.name.clone(),
        files: program.sources.iter().map(|s| s.name().to_owned()).collect(),
        seed: job.seed,
        weights,
        data: job.data.clone(),
        train,
        evals,
        optimizer: job.optimizer.clone(),
        schedule: job.schedule.clone(),
        steps: job.steps,
        batch: job.batch,
        shards: job.shards,
        drop_last: job.drop_last,
        buckets,
        tasks,
        eval_every: job.eval.as_ref().and_then(|e| e.every),
        eval_after_checkpoint: job.eval.as_ref().is_some_and(|e| e.after_checkpoint),
        checkpoint: job.checkpoint.clone(),
        rules: job.rules.clone(),
        metrics: job.metrics.clone(),
        overlap: job.overlap,
    };
    Ok((plan, at))
}

/// Weights of targets divide the loss but are not differentiated, so they may not be trained.
fn refuse_trained_weights_of_targets(
    loss: &LoweredProgram,
    weights: &[Weight],
) -> Result<(), Diagnostic> {
    for ratio in &loss.ratios {
        let monarch_graph::Count::Sum(node) = ratio.denominator else { continue };
        let trainable: Vec<bool> = weights.iter().map(|w| w.trainable).collect();
        if !crate::differentiate::depends_on(&loss.graph, node, &trainable) {
            continue;
        }
        let title = "the weights of the targets may not depend on the model";
        return Err(Diagnostic::error("M0318", title)
            .label(loss.graph.node(node).span, "computed from trained weights")
            .help("weights come from the data: a column, or a comparison of columns"));
    }
    Ok(())
}

fn training(
    loss: &LoweredProgram,
    weights: &[Weight],
    max_samples: u64,
    job: &hir::Job,
) -> Result<(Training, Vec<Bucket>), Diagnostic> {
    let ratio = loss.ratios.first().ok_or_else(|| internal(job.span, "there is no loss"))?;
    let trainable: Vec<bool> = weights.iter().map(|w| w.trainable).collect();
    let whole = differentiate(loss.graph.clone(), ratio.numerator, &trainable)?;
    if whole.gradients.iter().all(Option::is_none) {
        return Err(nothing_to_train(job));
    }
    let mut roots = loss.results();
    roots.extend(whole.gradients.iter().flatten());
    let simple = simplify(&whole.graph, &roots)?;
    let forward = simple.boundary(whole.forward);
    let mut gradients = Vec::with_capacity(whole.gradients.len());
    for gradient in &whole.gradients {
        gradients.push(gradient.map(|g| simple.now(g)).transpose()?);
    }
    let ratios = remap(&loss.ratios, |n| simple.now(n))?;
    let settled = bucket::settle(&simple.graph, forward, &gradients)?;
    let moved = |n: NodeId| {
        settled.map.get(n.index()).copied().ok_or_else(|| crate::build::BuildError {
            message: "a result was lost".into(),
            span: job.span,
        })
    };
    let ratios = remap(&ratios, moved)?;
    let sizes: Vec<u64> = weights.iter().map(Weight::elements).collect();
    let buckets = bucket::fill(&sizes, &settled.gradients, BucketPolicy::default());
    let offsets = bucket::offsets(&buckets, weights.len());
    let slots: Vec<(NodeId, u64)> = settled
        .gradients
        .iter()
        .zip(&offsets)
        .filter_map(|(node, offset)| Some(((*node)?, (*offset)?)))
        .collect();
    let keep = results(&ratios);
    verify_graph(&settled.graph).map_err(|e| internal(job.span, e))?;
    let memory = plan_memory(&settled.graph, max_samples, &keep, &slots, OVERWRITE);
    verify_memory(&settled.graph, &memory, &keep, OVERWRITE).map_err(|e| internal(job.span, e))?;
    let loss_now = ratios.into_iter().next();
    let training = Training {
        program: Program { graph: settled.graph, columns: loss.columns.clone(), memory },
        loss: loss_now.ok_or_else(|| internal(job.span, "the loss was lost"))?,
        forward: forward as u32,
        gradients: settled.gradients,
    };
    Ok((training, buckets))
}

pub(crate) fn nothing_to_train(job: &hir::Job) -> Diagnostic {
    let title = "the loss depends on no weight: there is nothing to train";
    Diagnostic::error("M0303", title)
        .label(job.loss.span, "no trainable weight is behind this")
        .help("pass the data through the model, and check that its layers are not frozen")
}

/// Weights that are trained in name only.
fn unused(
    train: &Training,
    weights: &[Weight],
    model: &hir::Model,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut names: Vec<(&str, Span)> = Vec::new();
    for (weight, gradient) in weights.iter().zip(&train.gradients) {
        if weight.trainable && gradient.is_none() {
            names.push((&weight.name, weight.span));
        }
    }
    let Some((first, span)) = names.first() else { return };
    let title = match names.len() {
        1 => format!("`{first}` does not change the loss"),
        n => format!("{n} weights do not change the loss, `{first}` first"),
    };
    diagnostics.push(
        Diagnostic::warning("M0304", title)
            .label(*span, "has no gradient, so it keeps its first value")
            .label(model.span, format!("a weight of `{}`", model.name))
            .help("use it in `forward`, or remove it"),
    );
}

fn evaluation(
    program: &hir::Program,
    job: &hir::Job,
    eval: &hir::Eval,
    max_samples: u64,
) -> Result<Evaluation, Diagnostic> {
    let mut objectives = vec![&job.loss];
    objectives.extend(&eval.metrics);
    let lowered = lower_objectives(program, job, &objectives, Mode::Evaluate)?;
    let keep = lowered.results();
    verify_graph(&lowered.graph).map_err(|e| internal(eval.span, e))?;
    let memory = plan_memory(&lowered.graph, max_samples, &keep, &[], OVERWRITE);
    verify_memory(&lowered.graph, &memory, &keep, OVERWRITE).map_err(|e| internal(eval.span, e))?;
    let mut metrics = lowered.ratios;
    if let Some(loss) = metrics.first_mut() {
        loss.name = "loss".into();
    }
    Ok(Evaluation {
        name: "eval".into(),
        program: Program { graph: lowered.graph, columns: lowered.columns, memory },
        metrics,
        batches: eval.batches,
    })
}

fn report(plan: &Plan, job: &hir::Job, cuts: &[usize], facts: &Facts) -> Report {
    let samples = plan.train.program.memory.max_samples;
    let graph = &plan.train.program.graph;
    let (forward, nodes) = (plan.train.forward as usize, graph.nodes.len());
    let workers = facts.workers.max(1);
    let trainable: u64 = plan.buckets.iter().flat_map(|b| &b.parts).map(|p| p.elements).sum();
    let columns = |p: &Program| -> u64 {
        let per = |c: &monarch_graph::Column| c.shape.iter().product::<u64>();
        p.columns.iter().map(per).sum::<u64>().saturating_mul(samples)
    };
    let eval_arena = plan.evals.iter().map(|e| e.program.memory.arena).max().unwrap_or(0);
    let eval_columns = plan.evals.iter().map(|e| columns(&e.program)).max().unwrap_or(0);
    let held = Held {
        weights: plan.weights.iter().map(Weight::elements).sum(),
        state: plan.optimizer.state_elements(&plan.weights),
        scratch: plan.optimizer.scratch_elements(&plan.weights),
        slab: plan.slab_elements(),
        arena: plan.train.program.memory.arena.max(eval_arena),
        columns: columns(&plan.train.program).max(eval_columns),
        shards: plan.shards,
        workers,
        threads: facts.threads,
    };
    let pace = Pace {
        graph,
        forward,
        cuts,
        buckets: &plan.buckets,
        samples,
        shards: plan.shards,
        workers,
        threads: facts.threads,
        link: facts.link,
        overlap: plan.overlap,
        trainable,
        update_flops: plan.optimizer.flops(&plan.weights),
    };
    let all = cost::work(graph, forward..nodes, samples).seconds(&facts.rates).max(1e-30);
    let buckets = plan.buckets.iter().zip(cuts).map(|(bucket, &cut)| BucketRow {
        bytes: bucket.elements * 4,
        ready: cost::work(graph, forward..cut, samples).seconds(&facts.rates) / all,
        what: task_name(plan, bucket),
    });
    Report {
        name: plan.name.clone(),
        workers,
        threads: facts.threads,
        link: facts.link,
        shards: plan.shards,
        steps: plan.steps,
        batch: plan.batch,
        tokens_per_sample: job.tokens_per_sample,
        rows: job.rows,
        weights: plan.weights.len() as u64,
        parameters: held.weights,
        trainable,
        memory: cost::memory(held),
        time: cost::time(pace, &plan.optimizer, &facts.rates),
        flops_per_step: flops_per_step(plan),
        bubble: 0.0,
        traffic: cost::traffic(plan.slab_elements() * 4, plan.shards, workers),
        overlap: plan.overlap,
        buckets: buckets.collect(),
        nodes: nodes as u64,
        tasks: plan.tasks.tasks.len() as u64,
        rates: facts.rates,
    }
}

fn task_name(plan: &Plan, bucket: &Bucket) -> String {
    let reduce = TaskKind::AllReduce { bucket: bucket.id };
    let task = plan.tasks.tasks.iter().find(|t| t.kind == reduce);
    let name = task.map_or("", |t| t.name.as_str());
    name.split_once(": ").map_or(name, |(_, what)| what).to_owned()
}

fn flops_per_step(plan: &Plan) -> f64 {
    let graph = &plan.train.program.graph;
    (0..plan.shards)
        .map(|shard| {
            let range = monarch_graph::shard_range(plan.batch, plan.shards, shard);
            cost::work(graph, 0..graph.nodes.len(), range.end - range.start).flops
        })
        .sum()
}
