//! Two machines run the same job when their programs and their data are the same, wherever the
//! files lie.

use monarch_graph::*;
use monarch_wire::job_hash;

fn plan(folder: &str, sha256: [u8; 32]) -> Plan {
    let file = DataFile { path: format!("{folder}/data.safetensors"), bytes: 8, sha256 };
    let program =
        Program { graph: Graph::default(), columns: Vec::new(), memory: MemoryPlan::default() };
    let numerator = NodeId(0);
    let loss = Ratio { name: "loss".into(), numerator, denominator: Count::PerSample(1) };
    let path = format!("{folder}/w.safetensors");
    let init = Init::File { path, name: "w".into(), transpose: false };
    Plan {
        name: "job".into(),
        files: vec![format!("{folder}/job.mon"), "std.nn".into()],
        seed: 0,
        weights: vec![Weight {
            name: "w".into(),
            shape: vec![2],
            axes: vec!["D".into()],
            init,
            trainable: true,
            stored: monarch_graph::Float::F32,
            adapter: false,
            span: Span::default(),
        }],
        data: Data {
            source: Source::Tensors { file },
            splits: Vec::new(),
            order: Order::File,
            span: Span::default(),
        },
        train: Training { program, loss, forward: 0, gradients: Vec::new() },
        evals: Vec::new(),
        optimizer: Optimizer {
            kind: OptimizerKind::Sgd { momentum: 0.0, decay: 0.0, nesterov: false },
            clip: None,
            decay_on: Default::default(),
        },
        schedule: Schedule { pieces: Vec::new() },
        steps: 1,
        batch: 1,
        shards: 8,
        drop_last: false,
        buckets: Vec::new(),
        tasks: TaskGraph::default(),
        eval_every: None,
        eval_after_checkpoint: false,
        checkpoint: None,
        rules: Vec::new(),
        metrics: Default::default(),
        overlap: true,
    }
}

#[test]
fn folders_do_not_count() {
    assert_eq!(job_hash(&plan("/elsewhere/a", [1; 32])), job_hash(&plan("data", [1; 32])));
}

#[test]
fn bytes_and_settings_do() {
    let one = plan("/a", [1; 32]);
    assert_ne!(job_hash(&one), job_hash(&plan("/a", [2; 32])));
    assert_ne!(job_hash(&one), job_hash(&Plan { seed: 1, ..one.clone() }));
}
