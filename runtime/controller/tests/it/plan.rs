//! A plan with nothing to compute.

use monarch_graph as g;

fn weight(name: &str) -> g::Weight {
    g::Weight {
        name: name.into(),
        shape: vec![4, 4],
        axes: vec!["D".into(), "D".into()],
        init: g::Init::Zeros,
        trainable: true,
        stored: monarch_graph::Float::F32,
        adapter: false,
        span: g::Span::default(),
    }
}

fn ratio(name: &str) -> g::Ratio {
    g::Ratio { name: name.into(), numerator: g::NodeId(0), denominator: g::Count::PerSample(1) }
}

/// 100 samples in batches of 8: 13 steps an epoch. Evaluates every 10 steps.
pub fn plan(steps: u64) -> g::Plan {
    let program = g::Program {
        graph: g::Graph::default(),
        columns: Vec::new(),
        memory: g::MemoryPlan::default(),
    };
    let loss = ratio("loss");
    let eval = g::Evaluation {
        name: "eval".into(),
        program: program.clone(),
        metrics: vec![ratio("accuracy")],
        batches: None,
    };
    g::Plan {
        name: "images".into(),
        files: vec!["job.mon".into()],
        seed: 5,
        weights: vec![weight("a"), weight("b")],
        data: g::Data {
            source: g::Source::Digits,
            splits: vec![g::Split { name: "train".into(), start: 0, end: 100 }],
            order: g::Order::Shuffled,
            span: g::Span::default(),
        },
        train: g::Training { program, loss, forward: 0, gradients: Vec::new() },
        evals: vec![eval],
        optimizer: g::Optimizer {
            kind: g::OptimizerKind::Sgd { momentum: 0.9, decay: 0.0, nesterov: false },
            clip: None,
            decay_on: Default::default(),
        },
        schedule: g::Schedule { pieces: Vec::new() },
        steps,
        batch: 8,
        shards: 4,
        drop_last: false,
        buckets: Vec::new(),
        tasks: g::TaskGraph::default(),
        eval_every: Some(g::Every::Steps(10)),
        eval_after_checkpoint: false,
        checkpoint: None,
        rules: Vec::new(),
        metrics: Default::default(),
        overlap: true,
    }
}

/// Checkpoints every `steps` steps, the newest `keep` kept.
pub fn saving(mut plan: g::Plan, steps: u64, keep: u64) -> g::Plan {
    let every = Some(g::Every::Steps(steps));
    let (to, span) = ("runs/{run.id}".to_string(), g::Span::default());
    plan.checkpoint = Some(g::CheckpointPolicy { every, keep, to, span, ..Default::default() });
    plan
}
