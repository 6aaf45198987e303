//! What a plan says of its checkpoints: which tensors, who writes them, where the data stand.

use monarch_checkpoint::{About, Content, DataPosition, Fingerprint, axes, layout};
use monarch_graph as g;

fn weight(name: &str, shape: &[u64], trainable: bool) -> g::Weight {
    g::Weight {
        name: name.into(),
        shape: shape.to_vec(),
        axes: shape.iter().map(|n| format!("A{n}")).collect(),
        init: g::Init::Zeros,
        trainable,
        stored: g::Float::F32,
        adapter: false,
        span: g::Span::default(),
    }
}

/// 100 samples in batches of 8: 13 steps an epoch.
fn plan() -> g::Plan {
    let program = g::Program {
        graph: g::Graph::default(),
        columns: Vec::new(),
        memory: g::MemoryPlan::default(),
    };
    let loss = g::Ratio {
        name: "loss".into(),
        numerator: g::NodeId(0),
        denominator: g::Count::PerSample(1),
    };
    let adamw = g::OptimizerKind::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.1 };
    g::Plan {
        name: "images".into(),
        files: Vec::new(),
        seed: 5,
        weights: vec![
            weight("big", &[10, 10], true),
            weight("frozen", &[30], false),
            weight("small", &[7], true),
        ],
        data: g::Data {
            source: g::Source::Digits,
            splits: vec![g::Split { name: "train".into(), start: 0, end: 100 }],
            order: g::Order::Shuffled,
            span: g::Span::default(),
        },
        train: g::Training { program, loss, forward: 0, gradients: Vec::new() },
        evals: Vec::new(),
        optimizer: g::Optimizer { kind: adamw, clip: None, decay_on: Default::default() },
        schedule: g::Schedule { pieces: Vec::new() },
        steps: 100,
        batch: 8,
        shards: 4,
        drop_last: false,
        buckets: Vec::new(),
        tasks: g::TaskGraph::default(),
        eval_every: None,
        eval_after_checkpoint: false,
        checkpoint: None,
        rules: Vec::new(),
        metrics: Default::default(),
        overlap: true,
    }
}

#[test]
fn weights_and_the_state_of_trained_ones() {
    let tensors = layout(&plan(), 2);
    let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "big",
            "frozen",
            "small",
            "optim.exp_avg.big",
            "optim.exp_avg.small",
            "optim.exp_avg_sq.big",
            "optim.exp_avg_sq.small",
        ]
    );
    assert_eq!(tensors[6].content, Content::Slot { slot: 1, weight: 2 });
    // 100 | 30 + 7 + 100 | 7 + 100 | 7
    assert_eq!(tensors.iter().map(|t| t.rank).collect::<Vec<_>>(), [0, 1, 1, 1, 0, 0, 1]);
    assert_eq!(axes(&tensors)["optim.exp_avg.small"], ["A7"]);
    assert!(layout(&plan(), 1).iter().all(|t| t.rank == 0));
    assert!(layout(&plan(), 100).iter().all(|t| t.rank < 7));
}

#[test]
fn the_data_position_is_that_of_the_next_step() {
    let plan = plan();
    let at = |step| DataPosition::after(&plan, step);
    assert_eq!(at(0), DataPosition { epoch: 0, sample: 0 });
    assert_eq!(at(12), DataPosition { epoch: 0, sample: 96 });
    assert_eq!(at(13), DataPosition { epoch: 1, sample: 0 });
    assert_eq!(at(27), DataPosition { epoch: 2, sample: 8 });
    let about = About::of(&plan, 27, "ab", 3, Fingerprint(9));
    assert_eq!((about.step, about.schedule_step, about.shards, about.world), (27, 27, 4, 3));
    assert_eq!(about.slots, ["exp_avg", "exp_avg_sq"]);
    assert_eq!(about.data, at(27));
}
