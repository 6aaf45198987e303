//! All that decides what a run does, as names and texts.

use monarch_check::hir::{self, Float, Pipeline, PipelineSchedule};
use monarch_graph::{
    Action, CheckpointPolicy, Curve, DataFile, Every, Graph, Init, Metrics, Optimizer, Order, Plan,
    Ratio, Rule, Schedule, Source, Weight,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Hex digits of a hash that a person compares.
const SHORT: usize = 16;

#[derive(Default)]
struct Facts(BTreeMap<String, String>);

impl Facts {
    fn put(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// Only what is there.
    fn may(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Only if there is any.
    fn list(&mut self, name: &str, items: impl Iterator<Item = String>) {
        let items: Vec<String> = items.collect();
        if !items.is_empty() {
            self.put(name, items.join("; "));
        }
    }
}

pub fn facts(program: &hir::Program, plan: Option<&Plan>) -> BTreeMap<String, String> {
    let mut out = Facts::default();
    for param in &program.params {
        out.put(&format!("param {}", param.name), monarch_check::show(&param.value));
    }
    let Some(job) = &program.job else { return out.0 };
    of_job(&mut out, job);
    of_data(&mut out, job);
    if let Some(model) = program.model(job.model) {
        of_model(&mut out, model);
    }
    if let Some(cluster) = job.cluster.and_then(|c| program.clusters.get(c)) {
        of_cluster(&mut out, cluster);
    }
    if let Some(layout) = job.layout.and_then(|l| program.layouts.get(l)) {
        of_layout(&mut out, layout);
    }
    if let Some(plan) = plan {
        let loss = std::slice::from_ref(&plan.train.loss);
        out.put("graph of the loss", graph(&plan.train.program.graph, loss));
        for eval in &plan.evals {
            let text = graph(&eval.program.graph, &eval.metrics);
            out.put(&format!("graph of {}", eval.name), text);
        }
    }
    out.0
}

/// Taken apart whole, so that a new field has to find its place here. What stands for itself
/// elsewhere: data, model, cluster, layout, the graphs. `overlap` changes no bit of a result.
fn of_job(out: &mut Facts, job: &hir::Job) {
    let hir::Job {
        name,
        steps,
        batch,
        micro,
        accumulate,
        shards,
        seed,
        drop_last,
        optimizer,
        schedule: rate,
        eval,
        checkpoint: policy,
        rules,
        hooks,
        faults,
        metrics,
        span: _,
        model: _,
        data: _,
        columns: _,
        rows: _,
        tokens_per_sample: _,
        loss: _,
        overlap: _,
        cluster: _,
        layout: _,
    } = job;
    out.put("train.name", name);
    out.put("train.steps", steps);
    out.put("train.batch", format!("{batch} samples"));
    out.may("train.batch.micro", *micro);
    out.may("train.batch.accumulate", *accumulate);
    out.put("train.shards", shards);
    out.put("train.seed", seed);
    out.put("train.drop_last", drop_last);
    let Optimizer { kind, clip, decay_on } = optimizer;
    out.put("train.optim", format!("{kind:?}"));
    out.put("train.optim.decay_on", format!("{decay_on:?}").to_lowercase());
    out.may("train.optim.clip", *clip);
    out.put("train.lr", schedule(rate));
    if let Some(eval) = eval {
        of_eval(out, eval);
    }
    out.may("train.checkpoint", policy.as_ref().map(checkpoint));
    out.list("train.rules", rules.iter().map(rule));
    out.list("train.hooks", hooks.iter().map(hook));
    for hir::Fault { kind, chain, span: _ } in faults {
        out.list(&format!("train.fault.{}", kind.name()), chain.iter().map(|r| format!("{r:?}")));
    }
    let Metrics { every, log } = metrics;
    out.put("train.metrics.every", format!("{every} steps"));
    out.may("train.metrics.log", log.as_ref().map(|names| names.join(", ")));
}

fn of_eval(out: &mut Facts, eval: &hir::Eval) {
    out.may("train.eval.every", eval.every.map(every));
    if eval.after_checkpoint {
        out.put("train.eval.after", "checkpoint");
    }
    out.may("train.eval.batches", eval.batches);
    let names: Vec<&str> = eval.metrics.iter().map(|m| m.name.as_str()).collect();
    if !names.is_empty() {
        out.put("train.eval.metrics", names.join(", "));
    }
}

fn every(every: Every) -> String {
    match every {
        Every::Steps(n) => format!("{n} steps"),
        Every::Time(ms) => format!("{} s", ms as f64 / 1000.0),
    }
}

fn checkpoint(policy: &CheckpointPolicy) -> String {
    let CheckpointPolicy {
        every: clock,
        also,
        after_eval,
        keep,
        best,
        what,
        background,
        to,
        span: _,
    } = policy;
    let clock = clock.map_or("at the end".to_owned(), |e| format!("every {}", every(e)));
    let mut text = format!("{clock}, keep {keep}, to {to}");
    if let Some(also) = also {
        text += &format!(", also every {also} steps");
    }
    if *after_eval {
        text += ", after eval";
    }
    if let Some(best) = best {
        text += &format!(", best {best:?}");
    }
    text.push_str(&format!(", what {what:?}"));
    if !background {
        text += ", training waits";
    }
    text
}

/// What a hook waits for and does. Its script counts as it is written.
fn hook(hook: &hir::Hook) -> String {
    let hir::Hook { event, action, required, span: _ } = hook;
    let action = match action {
        hir::HookAction::Rhai { source, span: _ } => format!("rhai {}", digest(source.as_bytes())),
        hir::HookAction::Function { file: _, name, source, span: _ } => {
            format!("{name} of {}", digest(source.as_bytes()))
        }
        hir::HookAction::Ask(request) => format!("{request:?}"),
    };
    let required = if *required { ", required" } else { "" };
    format!("{event:?} => {action}{required}")
}

fn rule(rule: &Rule) -> String {
    let bound = |name: &str, x: Option<f64>| x.map(|x| format!("{name} {x}"));
    let bounds: Vec<String> =
        bound("above", rule.above).into_iter().chain(bound("below", rule.below)).collect();
    let action = match rule.action {
        Action::Stop => "stop",
        Action::Checkpoint => "checkpoint",
    };
    format!("{} {} => {action}", rule.metric, bounds.join(" "))
}

fn schedule(schedule: &Schedule) -> String {
    let piece = |p: &monarch_graph::Piece| {
        let steps = p.length;
        match p.curve {
            Curve::Constant(x) => format!("constant {x:e} for {steps} steps"),
            Curve::Warmup { to } => format!("warmup to {to:e} in {steps} steps"),
            Curve::Linear { from, to } => format!("linear {from:e} to {to:e} in {steps} steps"),
            Curve::Cosine { from, to } => format!("cosine {from:e} to {to:e} in {steps} steps"),
            Curve::Exponential { from, to } => {
                format!("exponential {from:e} to {to:e} in {steps} steps")
            }
            Curve::Step { from, factor, every } => {
                format!("{from:e} times {factor:e} every {every} steps, for {steps} steps")
            }
            Curve::InverseSqrt { from, after } => {
                format!("inverse root from {from:e} after {after} steps, for {steps} steps")
            }
        }
    };
    schedule.pieces.iter().map(piece).collect::<Vec<_>>().join(", then ")
}

fn of_data(out: &mut Facts, job: &hir::Job) {
    let data = &job.data;
    let kind = match &data.source {
        Source::Digits => "digits",
        Source::Tensors { .. } => "tensors",
        Source::Text { .. } => "text",
        Source::Tokens { .. } => "tokens",
        Source::Records { .. } => "records",
    };
    out.put("data", kind);
    out.put("data.tokens_per_sample", job.tokens_per_sample);
    let split = |s: &monarch_graph::Split| format!("{} {}..{}", s.name, s.start, s.end);
    out.put("data.splits", data.splits.iter().map(split).collect::<Vec<_>>().join(", "));
    let order = match data.order {
        Order::Shuffled => "shuffled",
        Order::File => "as stored",
    };
    out.put("data.order", order);
    let columns: Vec<String> =
        job.columns.iter().map(|c| format!("{} {:?} {:?}", c.name, c.dtype, c.shape)).collect();
    out.put("data.columns", columns.join(", "));
    let files = data.source.files();
    for file in &files {
        out.put(&format!("file {}", name_of(&file.path)), content(file));
    }
    // Names may be equal in different folders; their order decides which sample is which.
    let list: Vec<String> = files.iter().map(|f| content(f)).collect();
    out.put("data.files", format!("{}, {}", files.len(), digest(list.join("\n").as_bytes())));
    let mut rest = data.source.clone();
    for file in rest.files_mut() {
        *file = DataFile { path: String::new(), bytes: 0, sha256: [0; 32] };
    }
    out.put("data.settings", digest(format!("{rest:?}").as_bytes()));
}

/// What is in a file: its hash where it was read, else its length.
fn content(file: &DataFile) -> String {
    let bytes = file.bytes;
    match file.sha256.iter().all(|b| *b == 0) {
        true => format!("{bytes} bytes, not read"),
        false => format!("{bytes} bytes, sha256 {}", monarch_graph::hex(&file.sha256)),
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn of_model(out: &mut Facts, model: &hir::Model) {
    out.put("model", &model.name);
    let elements: u64 = model.weights.iter().map(Weight::elements).sum();
    let trained = model.weights.iter().filter(|w| w.trainable).map(Weight::elements).sum::<u64>();
    out.put("model.tensors", model.weights.len());
    out.put("model.parameters", format!("{elements}, {trained} trained"));
    let mut all = String::new();
    for w in &model.weights {
        let init = match &w.init {
            Init::File { path, name, transpose } => {
                format!("{} {name} {transpose}", name_of(path))
            }
            other => format!("{other:?}"),
        };
        let (name, shape, stored) = (&w.name, &w.shape, w.stored);
        all += &format!("{name} {shape:?} {stored:?} {} {} {init}\n", w.trainable, w.adapter);
    }
    out.put("model.weights", digest(all.as_bytes()));
}

fn of_cluster(out: &mut Facts, cluster: &hir::Cluster) {
    if !cluster.nodes.is_empty() {
        out.put("cluster.nodes", cluster.nodes.join(", "));
    }
    if let Some(device) = &cluster.device {
        out.put("cluster.device", format!("{} x {}", device.count, device.kind));
        out.may("cluster.device.memory", device.memory_bytes.map(|b| format!("{b} bytes")));
    }
    if let Some(links) = &cluster.links {
        out.may("cluster.link.intra", links.intra.map(|r| format!("{r} bytes/s")));
        out.may("cluster.link.inter", links.inter.map(|r| format!("{r} bytes/s")));
    }
}

fn of_layout(out: &mut Facts, layout: &hir::Layout) {
    let length = |n: Option<u32>| n.map_or("_".to_owned(), |n| n.to_string());
    let mut axes: Vec<_> = layout.mesh.axes.iter().map(|a| (a.axis, length(a.length))).collect();
    axes.sort();
    let axes: Vec<String> = axes.iter().map(|(a, n)| format!("{} = {n}", a.name())).collect();
    out.put("plan.mesh", axes.join(", "));
    let mut shard: Vec<String> =
        layout.shard.iter().map(|s| format!("{} -> {}", s.axis, s.over.name())).collect();
    shard.sort();
    if !shard.is_empty() {
        out.put("plan.shard", shard.join(", "));
    }
    out.may("plan.sequence", layout.sequence.map(|s| s.0.name()));
    out.may("plan.pipeline", layout.pipeline.as_ref().map(pipeline));
    let zero = layout.zero.map(|z| format!("stage {} over {}", z.stage, z.over.name()));
    out.may("plan.zero", zero);
    let mut paths: Vec<&str> =
        layout.recompute.iter().flat_map(|r| &r.paths).map(String::as_str).collect();
    paths.sort_unstable();
    paths.dedup();
    if !paths.is_empty() {
        let hash = digest(paths.join("\n").as_bytes());
        let patterns: Vec<&str> = layout.recompute.iter().map(|r| r.pattern.as_str()).collect();
        let n = paths.len();
        out.put("plan.recompute", format!("{}: {n} layers, {hash}", patterns.join(", ")));
    }
    if layout.offload.optimizer {
        out.put("plan.offload", "optimizer");
    }
    let p = layout.precision;
    let float = |f: Float| match f {
        Float::F32 => "f32",
        Float::Bf16 => "bf16",
        Float::F16 => "f16",
    };
    let words = [("weights", p.weights), ("grads", p.grads), ("optimizer", p.optimizer)];
    let words: Vec<String> = words.iter().map(|(n, f)| format!("{n} {}", float(*f))).collect();
    out.put("plan.precision", words.join(", "));
    let o = layout.overlap;
    let bucket = o.bucket_bytes.map_or(String::new(), |b| format!(" in {b} bytes"));
    let text = format!("grads {}{bucket}, tp {}, exact {}", o.grads, o.tp, o.exact);
    out.put("plan.overlap", text);
}

fn pipeline(pipeline: &Pipeline) -> String {
    let schedule = match pipeline.schedule {
        PipelineSchedule::GPipe => "gpipe".to_owned(),
        PipelineSchedule::OneFOneB => "1f1b".to_owned(),
        PipelineSchedule::Interleaved { chunks } => format!("interleaved, {chunks} chunks"),
        PipelineSchedule::ZeroBubbleH1 => "zb-h1".to_owned(),
    };
    let micro = pipeline.microbatches.map_or(String::new(), |m| format!(", {m} micro-batches"));
    format!("{} over {}, {schedule}{micro}", pipeline.split, pipeline.over.name())
}

/// Hash of what a graph computes and of the means that are taken of it; where its text stands
/// does not count.
fn graph(graph: &Graph, means: &[Ratio]) -> String {
    let mut hash = Sha256::new();
    for node in &graph.nodes {
        let (op, inputs, shape, dtype) = (&node.op, &node.inputs, &node.shape, node.dtype);
        hash.update(format!("{op:?} {inputs:?} {shape:?} {dtype:?}\n").as_bytes());
    }
    hash.update(format!("{means:?}").as_bytes());
    let hash = monarch_graph::hex(&hash.finalize());
    format!("{} nodes, {}", graph.nodes.len(), hash.get(..SHORT).unwrap_or(&hash))
}

fn digest(bytes: &[u8]) -> String {
    let hash = monarch_graph::hex(&Sha256::digest(bytes));
    hash.get(..SHORT).unwrap_or(&hash).to_owned()
}
