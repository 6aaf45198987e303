//! A plan made by hand: y ~ tanh(x @ hidden) @ out, squared error, two buckets.

use monarch_data::{SourceSpec, facts};
use monarch_graph::*;
use std::path::Path;

pub const SAMPLES: usize = 50;
const IN: u64 = 4;

/// Writes the data: SAMPLES rows of x f32[4] and y f32.
pub fn write_data(path: &Path, poison: Option<usize>) {
    let mut x = Vec::new();
    let mut y = Vec::new();
    for i in 0..SAMPLES {
        let row: Vec<f32> = (0..4).map(|j| ((i * 7 + j * 13) % 23) as f32 / 11.0 - 1.0).collect();
        let target = row[0] * row[1] - 0.5 * row[2] + 0.25 * row[3];
        y.push(if poison == Some(i) { f32::NAN } else { target });
        x.extend(row);
    }
    let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (x, y) = (bytes(&x), bytes(&y));
    let view = |shape: Vec<usize>, data| {
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, data).unwrap()
    };
    let tensors = [("x", view(vec![SAMPLES, 4], &x)), ("y", view(vec![SAMPLES], &y))];
    safetensors::serialize_to_file(tensors, None, path).unwrap();
}

struct Nodes {
    hidden: u64,
    graph: Graph,
    places: Vec<Place>,
    arena: u64,
    max: u64,
}

impl Nodes {
    fn add(&mut self, op: Op, inputs: &[u32], shape: &[Dim], place: Option<Place>) -> NodeId {
        let shape = Shape(shape.to_vec());
        let elements = shape.elements(self.max).next_multiple_of(16);
        let place = place.unwrap_or(Place::Arena(self.arena));
        if matches!(place, Place::Arena(_)) {
            self.arena += elements;
        }
        self.places.push(place);
        let inputs = inputs.iter().map(|&i| NodeId(i)).collect();
        self.graph.push(Node { op, inputs, shape, dtype: DType::F32, span: Span::default() })
    }

    fn program(self) -> Program {
        let column = |name: &str, shape: Vec<u64>| Column {
            name: name.into(),
            dtype: DType::F32,
            shape,
            below: None,
            span: Span::default(),
        };
        let memory = MemoryPlan { arena: self.arena, max_samples: self.max, places: self.places };
        let columns = vec![column("x", vec![IN]), column("y", vec![])];
        Program { graph: self.graph, columns, memory }
    }
}

fn einsum(a: &[u8], b: &[u8], out: &[u8]) -> Op {
    Op::Einsum(Einsum { a: a.to_vec(), b: b.to_vec(), out: out.to_vec() })
}

/// Nodes 0..9; node 8 is the squared error of each sample.
fn forward(hidden: u64, max: u64) -> Nodes {
    let mut n = Nodes { hidden, graph: Graph::default(), places: vec![], arena: 0, max };
    let (b, f, h) = (Dim::samples(), Dim::fixed(IN), Dim::fixed(hidden));
    n.add(Op::Column(0), &[], &[b, f], Some(Place::Column(0)));
    n.add(Op::Column(1), &[], &[b], Some(Place::Column(1)));
    n.add(Op::Weight(0), &[], &[f, h], Some(Place::Weight(0)));
    n.add(Op::Weight(1), &[], &[h], Some(Place::Weight(1)));
    n.add(einsum(&[0, 1], &[1, 2], &[0, 2]), &[0, 2], &[b, h], None);
    n.add(Op::Unary(UnaryOp::Tanh), &[4], &[b, h], None);
    n.add(einsum(&[0, 2], &[2], &[0]), &[5, 3], &[b], None);
    n.add(Op::Binary(BinaryOp::Sub), &[6, 1], &[b], None);
    n.add(Op::Unary(UnaryOp::Square), &[7], &[b], None);
    n
}

fn training(hidden: u64, max: u64) -> (Program, NodeId, NodeId) {
    let mut n = forward(hidden, max);
    let (b, f, h) = (Dim::samples(), Dim::fixed(IN), Dim::fixed(n.hidden));
    n.add(Op::Affine { mul: 2.0, add: 0.0 }, &[7], &[b], None);
    let out = n.add(einsum(&[0, 2], &[0], &[2]), &[5, 9], &[h], Some(Place::Gradient(0)));
    n.add(einsum(&[0], &[2], &[0, 2]), &[9, 3], &[b, h], None);
    n.add(Op::UnaryGrad(UnaryOp::Tanh), &[4, 11], &[b, h], None);
    let place = Some(Place::Gradient(hidden.next_multiple_of(16)));
    let hidden = n.add(einsum(&[0, 1], &[0, 2], &[1, 2]), &[0, 12], &[f, h], place);
    (n.program(), hidden, out)
}

fn tasks() -> TaskGraph {
    let task = |name: &str, kind, stream, after: &[u32]| Task {
        name: name.into(),
        kind,
        stream,
        after: after.iter().map(|&t| TaskId(t)).collect(),
        span: Span::default(),
    };
    use Stream::{Communication, Compute};
    use TaskKind::*;
    let run = |start, end| TaskKind::Compute { start, end };
    let fold = |b| Fold { bucket: BucketId(b) };
    let reduce = |b| AllReduce { bucket: BucketId(b) };
    let tasks = vec![
        task("load batch", LoadBatch, Compute, &[]),
        task("forward", run(0, 9), Compute, &[0]),
        task("backward to out", run(9, 11), Compute, &[1]),
        task("fold bucket 0", fold(0), Compute, &[2]),
        task("backward to hidden", run(11, 14), Compute, &[3]),
        task("fold bucket 1", fold(1), Compute, &[4]),
        task("reduce bucket 0: out", reduce(0), Communication, &[3]),
        task("reduce bucket 1: hidden", reduce(1), Communication, &[5]),
        task("reduce loss and counts", AllReduceScalars, Communication, &[1, 5]),
        task("update", Update, Compute, &[6, 7, 8]),
    ];
    TaskGraph { role: "worker".into(), tasks }
}

fn schedule() -> Schedule {
    let cosine = Curve::Cosine { from: 0.05, to: 0.005 };
    let pieces = vec![
        Piece { curve: Curve::Warmup { to: 0.05 }, length: 4 },
        Piece { curve: cosine, length: 12 },
    ];
    Schedule { pieces }
}

/// 40 samples to train on, 10 to evaluate, batches of 14 (so each epoch ends with one of 12),
/// 8 shards, AdamW with clipping.
pub fn plan(data: &Path, overlap: bool) -> Plan {
    wide_plan(data, overlap, 8)
}

fn weight(name: &str, shape: Vec<u64>, axes: &[&str]) -> Weight {
    Weight {
        name: name.into(),
        shape,
        axes: axes.iter().map(|a| a.to_string()).collect(),
        init: Init::Normal(0.4),
        trainable: true,
        stored: monarch_graph::Float::F32,
        adapter: false,
        span: Span::default(),
    }
}

/// The same with this many hidden units.
pub fn wide_plan(data: &Path, overlap: bool, width: u64) -> Plan {
    let ratio = |name: &str| Ratio {
        name: name.into(),
        numerator: NodeId(8),
        denominator: Count::PerSample(1),
    };
    let second = width.next_multiple_of(16);
    let (program, hidden, out) = training(width, 2);
    let bucket = |id, start, elements, weight, used| Bucket {
        id: BucketId(id),
        start,
        elements,
        parts: vec![Part { weight: WeightId(weight), start, elements: used }],
    };
    let source = facts(&SourceSpec::Tensors { path: data.into() }, &[]).unwrap().source;
    let split = |name: &str, start, end| Split { name: name.into(), start, end };
    Plan {
        name: "hand".into(),
        files: vec!["hand.mon".into()],
        seed: 7,
        weights: vec![
            weight("hidden", vec![IN, width], &["X", "H"]),
            weight("out", vec![width], &["H"]),
        ],
        data: Data {
            source,
            splits: vec![split("train", 0, 40), split("eval", 40, 50)],
            order: Order::Shuffled,
            span: Span::default(),
        },
        train: Training {
            program,
            loss: ratio("loss"),
            forward: 9,
            gradients: vec![Some(hidden), Some(out)],
        },
        evals: vec![Evaluation {
            name: "eval".into(),
            program: forward(width, 2).program(),
            metrics: vec![ratio("loss")],
            batches: None,
        }],
        optimizer: Optimizer {
            kind: OptimizerKind::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.01 },
            clip: Some(0.5),
            decay_on: Default::default(),
        },
        schedule: schedule(),
        steps: 16,
        batch: 14,
        shards: 8,
        drop_last: false,
        buckets: vec![
            bucket(0, 0, second, 1, width),
            bucket(1, second, IN * second, 0, IN * width),
        ],
        tasks: tasks(),
        eval_every: None,
        eval_after_checkpoint: false,
        checkpoint: None,
        rules: Vec::new(),
        metrics: Default::default(),
        overlap,
    }
}
