mod more;

use super::*;
use crate::reference::{self, Tensor, TensorData};
use crate::testing::{Noise, bits, isas};
use monarch_graph::{
    BinaryOp, Column, CompareOp, DType, Dim, Einsum, Graph, MemoryPlan, Node, Op, Place, ReduceOp,
    RopeAngles, RopeStretch, Shape, UnaryOp,
};

/// Builds a program in which every node has its own memory.
struct Build {
    graph: Graph,
    columns: Vec<Column>,
    weights: Vec<Vec<u64>>,
}

impl Build {
    fn new() -> Build {
        Build { graph: Graph::default(), columns: Vec::new(), weights: Vec::new() }
    }

    fn node(&mut self, op: Op, inputs: &[NodeId], shape: Shape, dtype: DType) -> NodeId {
        let span = Span::new(0, self.graph.nodes.len(), self.graph.nodes.len() + 1);
        self.graph.push(Node { op, inputs: inputs.to_vec(), shape, dtype, span })
    }

    fn f32(&mut self, op: Op, inputs: &[NodeId], shape: &Shape) -> NodeId {
        self.node(op, inputs, shape.clone(), DType::F32)
    }

    fn weight(&mut self, lengths: &[u64]) -> NodeId {
        let number = self.weights.len() as u32;
        self.weights.push(lengths.to_vec());
        self.f32(Op::Weight(number), &[], &Shape::fixed(lengths))
    }

    fn column(&mut self, lengths: &[u64], below: Option<u64>) -> NodeId {
        let number = self.columns.len() as u32;
        let dtype = if below.is_some() { DType::I32 } else { DType::F32 };
        let shape = lengths.to_vec();
        let name = format!("c{number}");
        self.columns.push(Column { name, dtype, shape, below, span: Span::default() });
        self.node(Op::Column(number), &[], per_sample(lengths), dtype)
    }

    fn program(self, max_samples: u64) -> Program {
        let mut arena = 0;
        let mut places = Vec::new();
        for node in &self.graph.nodes {
            places.push(match node.op {
                Op::Weight(w) => Place::Weight(w),
                Op::Column(c) => Place::Column(c),
                _ => {
                    let at = arena;
                    arena += node.shape.elements(max_samples).next_multiple_of(16);
                    Place::Arena(at)
                }
            });
        }
        let memory = MemoryPlan { arena, max_samples, places };
        Program { graph: self.graph, columns: self.columns, memory }
    }
}

fn per_sample(lengths: &[u64]) -> Shape {
    let mut dims = vec![Dim::samples()];
    dims.extend(lengths.iter().map(|&n| Dim::fixed(n)));
    Shape(dims)
}

/// Random values for the weights and columns of a program.
struct Data {
    weights: Weights,
    columns: Columns,
}

fn data(program: &Program, shapes: &[Vec<u64>], float: &mut dyn FnMut() -> f32) -> Data {
    let mut noise = Noise::new(51);
    let elements: Vec<u64> = shapes.iter().map(|s| s.iter().product()).collect();
    let mut weights = Weights::new(elements).unwrap();
    for i in 0..weights.len() {
        weights.get_mut(i).fill_with(&mut *float);
    }
    let mut columns = Columns::new(&program.columns, program.memory.max_samples).unwrap();
    for (i, column) in program.columns.iter().enumerate() {
        match column.below {
            Some(limit) => {
                columns.i32_mut(i).unwrap().fill_with(|| noise.below(limit as usize) as i32)
            }
            None => columns.f32_mut(i).unwrap().fill_with(&mut *float),
        }
    }
    Data { weights, columns }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

fn expected(program: &Program, data: &Data, shapes: &[Vec<u64>], samples: u64) -> Vec<Tensor> {
    let lengths = |s: &[u64]| s.iter().map(|&n| n as usize).collect::<Vec<_>>();
    let weights: Vec<Tensor> = shapes
        .iter()
        .enumerate()
        .map(|(i, s)| Tensor::floats(&lengths(s), wide(data.weights.get(i))))
        .collect();
    let columns: Vec<Tensor> = (0..program.columns.len())
        .map(|i| {
            let n = data.columns.per_sample(i).unwrap() * samples as usize;
            let words = &data.columns.words(i)[..n];
            match program.columns[i].dtype {
                DType::F32 => Tensor::floats(&[n], wide(words)),
                DType::I32 => {
                    Tensor::ints(&[n], words.iter().map(|x| x.to_bits() as i64).collect())
                }
            }
        })
        .collect();
    reference::eval(&program.graph, samples, &weights, &columns).unwrap()
}

/// On every instruction set the values agree with the reference to `tolerance` of each node's
/// largest entry, and all bits with each other: also where the data is anything at all.
fn check(build: Build, samples: u64, tolerance: f64, noise: &mut Noise) {
    let shapes = build.weights.clone();
    let program = build.program(samples + 2);
    let tame = data(&program, &shapes, &mut || noise.float());
    let want = expected(&program, &tame, &shapes, samples);
    for (isa, values) in everywhere(&program, &tame, samples) {
        for ((found, want), node) in values.iter().zip(&want).zip(&program.graph.nodes) {
            let what = format!("{:?} on {}", node.op, isa.name());
            if let Some(found) = found {
                close(found, want, tolerance, &what);
            }
        }
    }
    let wild = data(&program, &shapes, &mut || noise.wild(1)[0]);
    everywhere(&program, &wild, samples);
}

type Found = Vec<Option<Vec<f32>>>;

/// The values of all nodes on each instruction set, whose bits must agree.
fn everywhere(program: &Program, data: &Data, samples: u64) -> Vec<(Isa, Found)> {
    let mut all: Vec<(Isa, Found)> = Vec::new();
    let nodes = 0..program.graph.nodes.len();
    for isa in isas() {
        let mut lane = Lane::new(program, isa).unwrap();
        lane.run(nodes.clone(), samples, &data.weights, &data.columns, &mut []).unwrap();
        let value = |i| lane.values(NodeId(i as u32), samples).map(<[f32]>::to_vec);
        let values: Found = nodes.clone().map(value).collect();
        if let Some((_, first)) = all.first() {
            for (i, (x, y)) in values.iter().zip(first).enumerate() {
                let (x, y) = (x.as_deref().map(bits), y.as_deref().map(bits));
                let op = &program.graph.nodes[i].op;
                assert_eq!(x, y, "{op:?} on {}", isa.name());
            }
        }
        all.push((isa, values));
    }
    all
}

fn close(found: &[f32], want: &Tensor, tolerance: f64, what: &str) {
    let want: Vec<f64> = match &want.data {
        TensorData::F64(v) => v.clone(),
        TensorData::I64(v) => {
            let found: Vec<i64> = found.iter().map(|x| i64::from(x.to_bits() as i32)).collect();
            assert_eq!(&found, v, "{what}");
            return;
        }
    };
    assert_eq!(found.len(), want.len(), "{what}");
    let top = want.iter().filter(|x| x.is_finite()).fold(1e-30f64, |a, x| a.max(x.abs()));
    for (i, (&x, &y)) in found.iter().zip(&want).enumerate() {
        let x = f64::from(x);
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * top;
        assert!(same, "{what}: element {i} is {x}, not {y}");
    }
}

const UNARY: [UnaryOp; 14] = [
    UnaryOp::Neg,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Square,
    UnaryOp::Abs,
    UnaryOp::Recip,
    UnaryOp::Tanh,
    UnaryOp::Sigmoid,
    UnaryOp::Relu,
    UnaryOp::Gelu,
    UnaryOp::Silu,
    UnaryOp::Softplus,
];

#[test]
fn elementwise_functions_and_their_slopes() {
    let mut noise = Noise::new(11);
    for op in UNARY {
        for width in [1, 7, 16, 45] {
            let mut b = Build::new();
            let (x, dy) = (b.column(&[width], None), b.column(&[width], None));
            let shape = per_sample(&[width]);
            let positive = b.f32(Op::Unary(UnaryOp::Square), &[x], &shape);
            let positive = b.f32(Op::Affine { mul: 1.5, add: 0.25 }, &[positive], &shape);
            let x = match op {
                UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Recip => positive,
                _ => x,
            };
            b.f32(Op::Unary(op), &[x], &shape);
            b.f32(Op::UnaryGrad(op), &[x, dy], &shape);
            check(b, 3, 4e-7, &mut noise);
        }
    }
}

#[test]
fn pairs_of_equal_and_trailing_shapes() {
    use BinaryOp::{Add, Div, Max, Min, Mul, Sub};
    use CompareOp::{Eq, Ge, Gt, Le, Lt, Ne};
    let mut noise = Noise::new(12);
    for lengths in [vec![1], vec![5], vec![3, 17], vec![2, 32]] {
        let mut b = Build::new();
        let (x, y) = (b.column(&lengths, None), b.column(&lengths, None));
        let w = b.weight(&lengths);
        let last = b.weight(&lengths[lengths.len() - 1..]);
        let one = b.f32(Op::Const(0.75), &[], &Shape::scalar());
        let shape = per_sample(&lengths);
        for (p, q) in [(x, y), (x, w), (w, x), (x, last), (last, x), (x, one), (one, x), (x, x)] {
            for op in [Add, Sub, Mul, Max, Min, Div] {
                b.f32(Op::Binary(op), &[p, q], &shape);
            }
            for op in [Eq, Ne, Lt, Le, Gt, Ge] {
                b.f32(Op::Compare(op), &[p, q], &shape);
            }
        }
        check(b, 4, 2e-7, &mut noise);
    }
}

#[test]
fn integers() {
    let mut noise = Noise::new(13);
    let mut b = Build::new();
    let (x, y) = (b.column(&[19], Some(5)), b.column(&[19], Some(5)));
    let shape = per_sample(&[19]);
    let two = b.node(Op::Const(2.0), &[], Shape::scalar(), DType::I32);
    for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min] {
        b.node(Op::Binary(op), &[x, y], shape.clone(), DType::I32);
    }
    for op in [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Ge] {
        b.f32(Op::Compare(op), &[x, two], &shape);
        b.f32(Op::Compare(op), &[two, y], &shape);
    }
    b.f32(Op::ToFloat, &[x], &shape);
    b.node(Op::Slice { axis: 1, start: 4 }, &[x], per_sample(&[9]), DType::I32);
    check(b, 3, 0.0, &mut noise);
}

#[test]
fn moves() {
    let mut noise = Noise::new(14);
    for (p, q, r) in [(3, 5, 7), (2, 16, 33), (1, 40, 20), (17, 1, 4)] {
        let mut b = Build::new();
        let x = b.column(&[p, q, r], None);
        let d = Dim::samples();
        let fixed = Dim::fixed;
        for order in [[0, 2, 1, 3], [0, 1, 3, 2], [3, 2, 1, 0], [2, 0, 3, 1], [0, 1, 2, 3]] {
            let from = [d, fixed(p), fixed(q), fixed(r)];
            let shape = Shape(order.iter().map(|&a: &u8| from[usize::from(a)]).collect());
            b.f32(Op::Permute(order.to_vec()), &[x], &shape);
        }
        b.f32(Op::Reshape, &[x], &per_sample(&[p * q * r]));
        let w = b.weight(&[q, r]);
        b.f32(Op::Broadcast { axes: vec![1] }, &[w], &Shape::fixed(&[q, 6, r]));
        b.f32(Op::Broadcast { axes: vec![0, 1] }, &[w], &per_sample(&[p, q, r]));
        b.f32(Op::Broadcast { axes: vec![2] }, &[w], &Shape::fixed(&[q, r, 9]));
        let part = b.f32(Op::Slice { axis: 3, start: 1 }, &[x], &per_sample(&[p, q, r - 2]));
        b.f32(Op::Unslice { axis: 3, start: 2 }, &[part], &per_sample(&[p, q, r + 3]));
        b.f32(Op::Unslice { axis: 1, start: 2 }, &[part], &per_sample(&[p + 2, q, r - 2]));
        b.f32(Op::Concat { axis: 3 }, &[x, part, x], &per_sample(&[p, q, 3 * r - 2]));
        b.f32(Op::Concat { axis: 1 }, &[x, x], &per_sample(&[2 * p, q, r]));
        b.f32(Op::Causal { fill: -65_536.0 }, &[x], &per_sample(&[p, q, r]));
        check(b, 2, 0.0, &mut noise);
    }
}

#[test]
fn reductions_over_any_axes() {
    let mut noise = Noise::new(15);
    for lengths in [[3, 5, 7], [1, 70, 2], [2, 3, 200], [4, 1, 16]] {
        let mut b = Build::new();
        // Positive: a sum near zero would make any error look large.
        let x = b.column(&lengths, None);
        let x = b.f32(Op::Unary(UnaryOp::Square), &[x], &per_sample(&lengths));
        for bits in 0..16u8 {
            let axes: Vec<u8> = (0..4).filter(|a| bits >> a & 1 == 1).collect();
            let full = per_sample(&lengths);
            let kept = (0..4u8).filter(|a| !axes.contains(a)).map(|a| full.0[usize::from(a)]);
            let shape = Shape(kept.collect());
            for op in [ReduceOp::Sum, ReduceOp::Max] {
                b.f32(Op::Reduce { op, axes: axes.clone() }, &[x], &shape);
            }
        }
        for axis in 0..4u8 {
            let mut shape = per_sample(&lengths);
            b.f32(Op::Softmax { axis }, &[x], &shape);
            shape.0.remove(usize::from(axis));
            b.node(Op::ArgMax { axis }, &[x], shape, DType::I32);
        }
        check(b, 3, 2e-6, &mut noise);
    }
}

#[test]
fn softmax_norms_and_their_slopes() {
    let mut noise = Noise::new(16);
    for (rows, width) in [(3, 5), (2, 16), (4, 100), (1, 131)] {
        let mut b = Build::new();
        let (x, dy) = (b.column(&[rows, width], None), b.column(&[rows, width], None));
        let shape = per_sample(&[rows, width]);
        let eps = 1e-5;
        for axis in [1, 2] {
            let y = b.f32(Op::Softmax { axis }, &[x], &shape);
            b.f32(Op::SoftmaxGrad { axis }, &[y, dy], &shape);
        }
        b.f32(Op::RmsNorm { eps }, &[x], &shape);
        b.f32(Op::RmsNormGrad { eps }, &[x, dy], &shape);
        b.f32(Op::LayerNorm { eps }, &[x], &shape);
        b.f32(Op::LayerNormGrad { eps }, &[x, dy], &shape);
        check(b, 3, 2e-6, &mut noise);
    }
}

#[test]
fn losses_tables_and_rotations() {
    let mut noise = Noise::new(17);
    for (rows, width) in [(5, 3), (4, 10), (7, 65)] {
        let mut b = Build::new();
        let x = b.column(&[rows, width], None);
        let ids = b.column(&[rows], Some(width));
        let dy = b.column(&[rows], None);
        let shape = per_sample(&[rows, width]);
        b.f32(Op::CrossEntropy, &[x, ids], &per_sample(&[rows]));
        b.f32(Op::CrossEntropyGrad, &[x, ids, dy], &shape);
        let table = b.weight(&[width, 21]);
        let found = b.f32(Op::Gather, &[table, ids], &per_sample(&[rows, 21]));
        b.f32(Op::ScatterAdd, &[ids, found], &Shape::fixed(&[width, 21]));
        let stretch = Some(RopeStretch { factor: 8.0, low: 1.0, high: 4.0, context: 64.0 });
        for (heads, size) in [(2, 8), (1, 40)] {
            let q = b.column(&[rows, heads, size], None);
            for inverse in [false, true] {
                let angles = RopeAngles { base: 10_000.0, stretch: stretch.filter(|_| heads == 1) };
                let op = Op::Rope { axis: 1, angles, inverse };
                b.f32(op, &[q], &per_sample(&[rows, heads, size]));
            }
        }
        check(b, 3, 2e-6, &mut noise);
    }
}

#[test]
fn attention_forward_and_a_weight_gradient() {
    let mut noise = Noise::new(18);
    let (t, h, k, d) = (9, 2, 8, 24);
    let mut b = Build::new();
    let x = b.column(&[t, d], None);
    let w = b.weight(&[3, d, h, k]);
    let einsum = |a: &[u8], b: &[u8], out: &[u8]| {
        Op::Einsum(Einsum { a: a.to_vec(), b: b.to_vec(), out: out.to_vec() })
    };
    let samples = Dim::samples();
    let f = Dim::fixed;
    let all = Shape(vec![f(3), samples, f(t), f(h), f(k)]);
    let qkv = b.f32(einsum(&[0, 1, 5], &[6, 5, 3, 4], &[6, 0, 1, 3, 4]), &[x, w], &all);
    let part = |b: &mut Build, start| {
        let one = Shape(vec![f(1), samples, f(t), f(h), f(k)]);
        let y = b.f32(Op::Slice { axis: 0, start }, &[qkv], &one);
        b.f32(Op::Reshape, &[y], &per_sample(&[t, h, k]))
    };
    let (q, key, v) = (part(&mut b, 0), part(&mut b, 1), part(&mut b, 2));
    let scores = per_sample(&[h, t, t]);
    let s = b.f32(einsum(&[0, 1, 3, 4], &[0, 2, 3, 4], &[0, 3, 1, 2]), &[q, key], &scores);
    let s = b.f32(Op::Affine { mul: 0.02, add: 0.0 }, &[s], &scores);
    let s = b.f32(Op::Causal { fill: f64::from(f32::MIN) }, &[s], &scores);
    let p = b.f32(Op::Softmax { axis: 3 }, &[s], &scores);
    let mix = einsum(&[0, 3, 1, 2], &[0, 2, 3, 4], &[0, 1, 3, 4]);
    b.f32(mix, &[p, v], &per_sample(&[t, h, k]));
    let back = einsum(&[0, 1, 5], &[6, 0, 1, 3, 4], &[6, 5, 3, 4]);
    b.f32(back, &[x, qkv], &Shape::fixed(&[3, d, h, k]));
    check(b, 3, 2e-6, &mut noise);
}

/// A small program with a gradient in the slab.
fn small() -> (Program, Data) {
    let mut b = Build::new();
    let (x, y) = (b.column(&[6], None), b.column(&[], Some(4)));
    let w = b.weight(&[6, 4]);
    let dot = |a: [u8; 2], b: [u8; 2]| {
        Op::Einsum(Einsum { a: a.to_vec(), b: b.to_vec(), out: vec![0, 1] })
    };
    let logits = b.f32(dot([0, 2], [2, 1]), &[x, w], &per_sample(&[4]));
    let loss = b.f32(Op::CrossEntropy, &[logits, y], &per_sample(&[]));
    let one = b.f32(Op::Const(1.0), &[], &per_sample(&[]));
    let slope = b.f32(Op::CrossEntropyGrad, &[logits, y, one], &per_sample(&[4]));
    let dw = b.f32(dot([2, 0], [2, 1]), &[x, slope], &Shape::fixed(&[6, 4]));
    assert_eq!((loss, dw), (NodeId(4), NodeId(7)));
    let shapes = b.weights.clone();
    let mut program = b.program(5);
    program.memory.places[dw.index()] = Place::Gradient(16);
    let mut noise = Noise::new(19);
    let data = data(&program, &shapes, &mut || noise.float());
    (program, data)
}

#[test]
fn gradients_go_to_the_slab_and_nothing_makes_them_zero() {
    let (program, data) = small();
    let mut lane = Lane::new(&program, Isa::detect().unwrap()).unwrap();
    let mut slab = vec![7.0; 48];
    lane.run(0..8, 5, &data.weights, &data.columns, &mut slab).unwrap();
    let want = expected(&program, &data, &[vec![6, 4]], 5);
    close(&slab[16..40], &want[7], 1e-6, "dw");
    assert!(slab[..16].iter().chain(&slab[40..]).all(|&x| x == 7.0));
    let sum = lane.sum(NodeId(4), 5, &data.weights, &data.columns, &slab).unwrap();
    let wanted: f64 = want[4].as_f64().unwrap().iter().sum();
    assert!((sum - wanted).abs() < 1e-6 * wanted);
    lane.run(0..8, 0, &data.weights, &data.columns, &mut slab).unwrap();
    assert!(slab[16..40].iter().all(|&x| x == 0.0));
    assert_eq!(lane.sum(NodeId(4), 0, &data.weights, &data.columns, &slab), Ok(0.0));
}

#[test]
fn shards_of_other_sizes_use_the_same_lane() {
    let (program, data) = small();
    let mut lane = Lane::new(&program, Isa::detect().unwrap()).unwrap();
    let mut slab = vec![0.0; 48];
    for samples in [5, 3, 1, 5] {
        lane.run(0..8, samples, &data.weights, &data.columns, &mut slab).unwrap();
        let want = expected(&program, &data, &[vec![6, 4]], samples);
        close(&slab[16..40], &want[7], 1e-6, "dw");
    }
    let too_many = lane.run(0..8, 6, &data.weights, &data.columns, &mut slab);
    assert!(too_many.unwrap_err().to_string().contains("planned for 5"));
}

#[test]
fn a_bad_class_is_named() {
    let (program, mut data) = small();
    data.columns.i32_mut(1).unwrap()[2] = 9;
    let mut lane = Lane::new(&program, Isa::detect().unwrap()).unwrap();
    let error = lane.run(0..8, 5, &data.weights, &data.columns, &mut [0.0; 48]).unwrap_err();
    let span = program.graph.nodes[4].span;
    assert_eq!(error, ExecError::Id { node: 4, span, id: 9, position: 2, limit: 4 });
    assert_eq!(error.to_string(), "id 9 at position 2 of the shard is outside 0..4");
}

#[test]
fn programs_that_do_not_hold_together_are_refused() {
    let try_run = |change: &dyn Fn(&mut Program)| {
        let (mut program, data) = small();
        change(&mut program);
        let mut lane = Lane::new(&program, Isa::SCALAR)?;
        lane.run(0..8, 5, &data.weights, &data.columns, &mut [0.0; 48])
    };
    let text = |change: &dyn Fn(&mut Program)| try_run(change).unwrap_err().to_string();
    assert_eq!(try_run(&|_| {}), Ok(()));
    assert!(text(&|p| p.memory.places[4] = p.memory.places[3]).contains("overlaps"));
    assert!(text(&|p| p.memory.arena = 20).contains("do not fit the arena"));
    assert!(text(&|p| p.memory.places[3] = Place::None).contains("never computed"));
    assert!(text(&|p| p.memory.places[4] = Place::Alias(NodeId(3))).contains("cannot stand for"));
    assert!(text(&|p| p.memory.places[7] = Place::Gradient(40)).contains("slab"));
    assert!(text(&|p| p.memory.places[7] = Place::Weight(0)).contains("cannot lie in a weight"));
    assert!(text(&|p| p.graph.nodes[4].inputs.swap(0, 1)).contains("wants inputs"));
    assert!(text(&|p| p.graph.nodes[3].shape = per_sample(&[5])).contains("label 1"));
    assert!(text(&|p| p.graph.nodes[2].shape = Shape::fixed(&[6, 4, 2])).contains("one label"));
    assert!(
        text(&|p| {
            p.memory.places.pop();
        })
        .contains("places")
    );
}
