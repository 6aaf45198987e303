//! Every operation's derivative against central differences in float64, by the reference
//! interpreter; and the same gradients again after all rewrites.

mod support;

use monarch_device::reference::{Tensor, TensorData};
use monarch_graph::{
    BinaryOp, CompareOp, Dim, Einsum, Graph, NodeId, ReduceOp, Shape, UnaryOp, Windows,
};
use monarch_plan::bucket::settle;
use monarch_plan::differentiate::differentiate;
use monarch_plan::infer::verify_graph;
use monarch_plan::simplify::simplify;
use support::{Bench, sum};

const STEP: f64 = 1e-5;
const SEEDS: std::ops::Range<u64> = 0..6;

/// Builds a tensor with `make`, weighs it with random numbers, and compares gradients of all
/// weights with differences.
fn check(name: &str, make: impl Fn(&mut Bench) -> NodeId) {
    for seed in SEEDS {
        let mut bench = Bench::new(seed);
        let y = make(&mut bench);
        let shape = bench.b.shape(y);
        let by = bench.frozen(&shape);
        let loss = bench.b.binary(BinaryOp::Mul, y, by).unwrap();
        let graph = bench.b.graph().clone();
        let d = differentiate(graph.clone(), loss, &bench.trainable).unwrap();
        verify_graph(&d.graph).unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
        let values = bench.run(&d.graph, &bench.weights);
        let got: Vec<Option<Tensor>> =
            d.gradients.iter().map(|g| g.map(|g| values[g.index()].clone())).collect();
        compare(&format!("{name}, seed {seed}"), &bench, &graph, loss, &got);
        rewritten(&format!("{name}, seed {seed}"), &bench, d, loss, &got);
    }
}

fn compare(name: &str, bench: &Bench, graph: &Graph, loss: NodeId, gradients: &[Option<Tensor>]) {
    for (w, gradient) in gradients.iter().enumerate() {
        if !bench.trainable[w] {
            assert_eq!(gradient, &None, "{name}: frozen weight {w} has a gradient");
            continue;
        }
        for i in 0..bench.weights[w].len() {
            let at = |by: f64| {
                let mut weights = bench.weights.clone();
                if let TensorData::F64(v) = &mut weights[w].data {
                    v[i] += by;
                }
                sum(&bench.run(graph, &weights)[loss.index()])
            };
            let want = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let got = gradient.as_ref().map_or(0.0, |g| g.as_f64().unwrap()[i]);
            let scale = want.abs().max(1.0);
            assert!(
                (got - want).abs() < 2e-6 * scale,
                "{name}: weight {w}[{i}] has gradient {got}, differences say {want}"
            );
        }
    }
}

/// Simplified and settled, the graph gives the same gradients, each in a node of its own.
fn rewritten(
    name: &str,
    bench: &Bench,
    d: monarch_plan::differentiate::Differentiated,
    loss: NodeId,
    want: &[Option<Tensor>],
) {
    let mut roots = vec![loss];
    roots.extend(d.gradients.iter().flatten());
    let s = simplify(&d.graph, &roots).unwrap();
    let now: Vec<Option<NodeId>> =
        d.gradients.iter().map(|g| g.map(|g| s.now(g).unwrap())).collect();
    let forward = s.boundary(d.forward);
    let settled = settle(&s.graph, forward, &now).unwrap();
    verify_graph(&settled.graph).unwrap_or_else(|e| panic!("{name}, rewritten: {e}"));
    let values = bench.run(&settled.graph, &bench.weights);
    for (w, (gradient, want)) in settled.gradients.iter().zip(want).enumerate() {
        let (Some(node), Some(want)) = (gradient, want) else {
            assert_eq!(gradient.is_some(), want.is_some());
            continue;
        };
        let twin = settled.gradients.iter().filter(|g| *g == gradient).count();
        assert_eq!(twin, 1, "{name}: two weights share a gradient");
        let got = values[node.index()].as_f64().unwrap();
        for (a, b) in got.iter().zip(want.as_f64().unwrap()) {
            assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{name}: {w} is {a}, was {b}");
        }
    }
}

fn lengths(bench: &mut Bench, rank: usize) -> Vec<u64> {
    (0..rank).map(|_| bench.rng.below(1, 4)).collect()
}

/// A [B, ..] tensor that depends on a weight.
fn sampled(bench: &mut Bench, lengths: &[u64]) -> NodeId {
    let mut dims = vec![Dim::samples()];
    dims.extend(lengths.iter().map(|&n| Dim::fixed(n)));
    let column = bench.frozen(&Shape(dims));
    let weight = bench.weight(lengths);
    bench.b.binary(BinaryOp::Add, column, weight).unwrap()
}

#[test]
fn unary() {
    use UnaryOp::*;
    for op in [Neg, Exp, Square, Abs, Tanh, Sigmoid, Relu, Gelu, Silu, Softplus] {
        check(&format!("{op:?}"), |t| {
            let n = lengths(t, 2);
            let x = sampled(t, &n);
            t.b.unary(op, x).unwrap()
        });
    }
    for op in [Log, Sqrt, Rsqrt, Recip] {
        check(&format!("{op:?}"), |t| {
            let n = lengths(t, 2);
            let x = t.weight(&n);
            let positive = t.b.affine(x, 0.4, 1.5).unwrap();
            t.b.unary(op, positive).unwrap()
        });
    }
}

#[test]
fn affine() {
    check("affine", |t| {
        let n = lengths(t, 3);
        let x = t.weight(&n);
        let y = t.b.affine(x, -1.5, 0.25).unwrap();
        t.b.affine(y, 2.0, 1.0).unwrap()
    });
}

#[test]
fn binary() {
    use BinaryOp::*;
    for op in [Add, Sub, Mul, Div, Max, Min] {
        for (left, right) in [(0, 0), (0, 1), (1, 0), (0, 3), (3, 0), (2, 0)] {
            check(&format!("{op:?} of suffixes {left} and {right}"), |t| {
                let n = lengths(t, 3);
                let a = t.weight(&n[left..]);
                let b = t.weight(&n[right..]);
                let b = if op == Div { t.b.affine(b, 0.4, 1.5).unwrap() } else { b };
                t.b.binary(op, a, b).unwrap()
            });
        }
        check(&format!("{op:?} with itself"), |t| {
            let n = lengths(t, 2);
            let a = sampled(t, &n);
            let b = t.b.affine(a, 0.4, 2.5).unwrap();
            t.b.binary(op, a, b).unwrap()
        });
    }
}

#[test]
fn equals_go_to_the_first() {
    for (op, want) in [(BinaryOp::Max, [1.0, 0.0]), (BinaryOp::Min, [1.0, 0.0])] {
        let mut t = Bench::new(1);
        let (a, b) = (t.weight(&[1]), t.weight(&[1]));
        t.weights = vec![Tensor::floats(&[1], vec![0.5]); 2];
        let y = t.b.binary(op, a, b).unwrap();
        let d = differentiate(t.b.graph().clone(), y, &t.trainable).unwrap();
        let values = t.run(&d.graph, &t.weights);
        for (g, want) in d.gradients.iter().zip(want) {
            assert_eq!(values[g.unwrap().index()].as_f64().unwrap(), [want]);
        }
    }
}

#[test]
fn comparisons_are_constants() {
    use CompareOp::*;
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        check(&format!("{op:?}"), |t| {
            let n = lengths(t, 2);
            let (a, b) = (t.weight(&n), t.weight(&n[1..]));
            let mask = t.b.compare(op, a, b).unwrap();
            t.b.binary(BinaryOp::Mul, mask, a).unwrap()
        });
    }
    check("argmax and to_float", |t| {
        let x = t.weight(&[3, 4]);
        let at = t.b.arg_max(x, 1).unwrap();
        let at = t.b.to_float(at).unwrap();
        let row = t.b.reduce(ReduceOp::Sum, x, &[1]).unwrap();
        t.b.binary(BinaryOp::Mul, row, at).unwrap()
    });
}

#[test]
fn moves() {
    check("broadcast", |t| {
        let n = lengths(t, 2);
        let x = t.weight(&n);
        let axes = [0, 2];
        let to = Shape(vec![Dim::samples(), Dim::fixed(n[0]), Dim::fixed(3), Dim::fixed(n[1])]);
        t.b.broadcast(x, &axes, to).unwrap()
    });
    check("reshape", |t| {
        let x = sampled(t, &[3, 4]);
        t.b.reshape(x, Shape(vec![Dim { per: 3, batch: true }, Dim::fixed(4)])).unwrap()
    });
    for order in [[0, 1, 2], [1, 0, 2], [2, 0, 1], [1, 2, 0]] {
        check(&format!("permute {order:?}"), |t| {
            let n = lengths(t, 3);
            let x = t.weight(&n);
            let y = t.b.permute(x, &order).unwrap();
            t.b.permute(y, &order).unwrap()
        });
    }
    check("unslice", |t| {
        let x = t.weight(&[2, 3]);
        t.b.unslice(x, 1, 1, Shape::fixed(&[2, 5])).unwrap()
    });
    check("concat", |t| {
        let (a, b) = (sampled(t, &[2, 3]), sampled(t, &[4, 3]));
        let c = t.b.slice(a, 1, 1, 1).unwrap();
        t.b.concat(&[a, b, c], 1).unwrap()
    });
}

#[test]
fn slices() {
    // That tile the whole, that leave gaps, that overlap, and beside another use.
    for (name, cuts, whole) in [
        ("tiling", vec![(0, 1), (1, 2), (3, 1)], false),
        ("tiling out of order", vec![(3, 1), (0, 1), (1, 2)], true),
        ("with gaps", vec![(0, 1), (2, 1)], false),
        ("overlapping", vec![(0, 2), (1, 2)], true),
    ] {
        check(&format!("slices {name}"), |t| {
            let x = t.weight(&[2, 4]);
            let x = t.b.unary(UnaryOp::Tanh, x).unwrap();
            let mut out: Option<NodeId> = None;
            for &(start, length) in &cuts {
                let part = t.b.slice(x, 1, start, length).unwrap();
                let part = t.b.unary(UnaryOp::Square, part).unwrap();
                let part = t.b.reduce(ReduceOp::Sum, part, &[1]).unwrap();
                out = Some(match out {
                    Some(y) => t.b.binary(BinaryOp::Mul, y, part).unwrap(),
                    None => part,
                });
            }
            let y = out.unwrap();
            if !whole {
                return y;
            }
            let all = t.b.reduce(ReduceOp::Sum, x, &[1]).unwrap();
            t.b.binary(BinaryOp::Add, y, all).unwrap()
        });
    }
}

#[test]
fn reductions() {
    for axes in [vec![0], vec![1], vec![2], vec![0, 2], vec![0, 1, 2]] {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            check(&format!("{op:?} over {axes:?}"), |t| {
                let n = lengths(t, 3);
                let x = t.weight(&n);
                t.b.reduce(op, x, &axes).unwrap()
            });
        }
    }
}

#[test]
fn equal_maxima_share() {
    let mut t = Bench::new(1);
    let x = t.weight(&[4]);
    t.weights = vec![Tensor::floats(&[4], vec![2.0, 1.0, 2.0, 2.0])];
    let y = t.b.reduce(ReduceOp::Max, x, &[0]).unwrap();
    let d = differentiate(t.b.graph().clone(), y, &t.trainable).unwrap();
    let values = t.run(&d.graph, &t.weights);
    let got = values[d.gradients[0].unwrap().index()].as_f64().unwrap().to_vec();
    assert_eq!(got, [1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0 / 3.0]);
}

#[test]
fn einsums() {
    for seed in 0..20 {
        check(&format!("einsum {seed}"), |t| {
            // Labels by role: batch, rows, columns, contracted; each operand in random order.
            let mut roles: Vec<u64> = (0..5).map(|_| t.rng.below(0, 4)).collect();
            roles[0] = seed % 4;
            let sizes: Vec<u64> = (0..5).map(|_| t.rng.below(1, 4)).collect();
            let mut pick = |skip: u64| {
                let mut all: Vec<u8> = (0..5).filter(|&l| roles[l as usize] != skip).collect();
                for i in (1..all.len()).rev() {
                    all.swap(i, t.rng.below(0, i as u64 + 1) as usize);
                }
                all
            };
            let e = Einsum { a: pick(2), b: pick(1), out: pick(3) };
            let shape =
                |labels: &[u8]| -> Vec<u64> { labels.iter().map(|&l| sizes[l as usize]).collect() };
            let a = t.weight(&shape(&e.a));
            let b = t.weight(&shape(&e.b));
            t.b.einsum(e, a, b).unwrap()
        });
    }
    check("einsum of a tensor with itself", |t| {
        let x = t.weight(&[3, 3]);
        let e = Einsum { a: vec![0, 1], b: vec![1, 2], out: vec![2, 0] };
        t.b.einsum(e, x, x).unwrap()
    });
    for (rows, columns) in [(2, 9), (9, 2)] {
        check("a scaled product", |t| {
            let (x, y) = (sampled(t, &[rows, 1]), t.weight(&[columns, 1]));
            let e = Einsum { a: vec![0, 1, 2], b: vec![3, 2], out: vec![1, 0, 3] };
            let product = t.b.einsum(e, x, y).unwrap();
            t.b.affine(product, 0.3, 0.0).unwrap()
        });
    }
    check("transposed operands", |t| {
        let (x, y) = (sampled(t, &[2, 3]), t.weight(&[4, 3]));
        let x = t.b.permute(x, &[1, 0, 2]).unwrap();
        let y = t.b.permute(y, &[1, 0]).unwrap();
        let e = Einsum { a: vec![0, 1, 2], b: vec![2, 3], out: vec![1, 0, 3] };
        t.b.einsum(e, x, y).unwrap()
    });
}

#[test]
fn normalisations() {
    for axis in 0..3 {
        check(&format!("softmax over {axis}"), |t| {
            let n = lengths(t, 2);
            let x = sampled(t, &n);
            t.b.softmax(x, axis).unwrap()
        });
    }
    for axis in 0..3 {
        check(&format!("log of a sum over {axis}"), |t| {
            let n = lengths(t, 2);
            let x = sampled(t, &n);
            t.b.log_sum_exp(x, axis).unwrap()
        });
    }
    check("rms norm", |t| {
        let x = sampled(t, &[2, 5]);
        t.b.rms_norm(x, 1e-5).unwrap()
    });
    check("layer norm", |t| {
        let x = sampled(t, &[2, 5]);
        t.b.layer_norm(x, 1e-5).unwrap()
    });
}

#[test]
fn attention_parts() {
    for fill in [0.0, -3.0] {
        check(&format!("causal with {fill}"), |t| {
            let t_len = t.rng.below(1, 4);
            let s_len = t_len + t.rng.below(0, 3);
            let x = sampled(t, &[2, t_len, s_len]);
            t.b.causal(x, fill).unwrap()
        });
    }
    check("causal softmax", |t| {
        let x = sampled(t, &[3, 3]);
        let masked = t.b.causal(x, f64::NEG_INFINITY).unwrap();
        t.b.softmax(masked, 2).unwrap()
    });
    for inverse in [false, true] {
        for axis in [1, 2] {
            check(&format!("rope along {axis}, inverse {inverse}"), |t| {
                let x = sampled(t, &[3, 2, 6]);
                t.b.rope(x, axis, 100.0, inverse).unwrap()
            });
        }
    }
}

/// (rows, columns) of the image, window, stride, before, windows.
const WINDOWS: [([u64; 2], Windows, [u64; 2]); 5] = [
    ([4, 3], Windows { size: [3, 2], stride: [1, 1], before: [0, 0] }, [2, 2]),
    ([4, 3], Windows { size: [3, 3], stride: [1, 1], before: [1, 1] }, [4, 3]),
    ([5, 4], Windows { size: [2, 3], stride: [2, 1], before: [1, 2] }, [3, 4]),
    ([1, 1], Windows { size: [3, 3], stride: [1, 2], before: [1, 1] }, [1, 1]),
    ([6, 6], Windows { size: [1, 1], stride: [3, 5], before: [0, 0] }, [2, 2]),
];

#[test]
fn windows_of_images() {
    for (image, windows, count) in WINDOWS {
        let c = 2;
        let folded = [count[0], count[1], windows.size[0], windows.size[1], c];
        let to = |lengths: &[u64]| {
            let fixed = lengths.iter().map(|&n| Dim::fixed(n));
            Shape([Dim::samples()].into_iter().chain(fixed).collect())
        };
        check(&format!("unfold {windows:?}"), |t| {
            let x = sampled(t, &[image[0], image[1], c]);
            let shape = to(&folded);
            t.b.unfold(x, windows, -2.0, shape).unwrap()
        });
        check(&format!("fold {windows:?}"), |t| {
            let x = sampled(t, &folded);
            let shape = to(&[image[0], image[1], c]);
            t.b.fold(x, windows, shape).unwrap()
        });
        check(&format!("the largest of {windows:?}"), |t| {
            let x = sampled(t, &[image[0], image[1], c]);
            let shape = to(&folded);
            let x = t.b.unfold(x, windows, f64::NEG_INFINITY, shape).unwrap();
            t.b.reduce(ReduceOp::Max, x, &[3, 4]).unwrap()
        });
    }
}

#[test]
fn dropout() {
    for (number, p) in [(0, 0.1), (1, 0.5), (2, 0.9)] {
        check(&format!("dropout of {p}"), |t| {
            let n = lengths(t, 2);
            let x = sampled(t, &n);
            let x = t.b.dropout(x, p, number).unwrap();
            let y = t.b.permute(x, &[1, 0, 2]).unwrap();
            t.b.dropout(y, p, number + 3).unwrap()
        });
    }
    check("dropout of a weight", |t| {
        let x = t.weight(&[3, 3]);
        t.b.dropout(x, 0.5, 7).unwrap()
    });
}

#[test]
fn tables() {
    check("gather", |t| {
        let table = t.weight(&[5, 3]);
        let ids = t.ids(&Shape(vec![Dim::samples(), Dim::fixed(4)]), 5);
        t.b.gather(table, ids).unwrap()
    });
    check("scatter add", |t| {
        let ids = t.ids(&Shape(vec![Dim::samples(), Dim::fixed(4)]), 5);
        let rows = sampled(t, &[4, 3]);
        t.b.scatter_add(ids, rows, Shape::fixed(&[5, 3])).unwrap()
    });
    check("cross entropy", |t| {
        let logits = sampled(t, &[2, 5]);
        let targets = t.ids(&Shape(vec![Dim::samples(), Dim::fixed(2)]), 5);
        t.b.cross_entropy(logits, targets).unwrap()
    });
    check("a tied table", |t| {
        let table = t.weight(&[5, 3]);
        let shape = Shape(vec![Dim::samples(), Dim::fixed(2)]);
        let (ids, next) = (t.ids(&shape, 5), t.ids(&shape, 5));
        let x = t.b.gather(table, ids).unwrap();
        let x = t.b.unary(UnaryOp::Gelu, x).unwrap();
        let e = Einsum { a: vec![0, 1, 2], b: vec![3, 2], out: vec![0, 1, 3] };
        let logits = t.b.einsum(e, x, table).unwrap();
        t.b.cross_entropy(logits, next).unwrap()
    });
}

#[test]
fn gradients_that_share_their_memory() {
    check("two weights, one gradient", |t| {
        let (a, b) = (t.weight(&[3]), t.weight(&[3]));
        let sum = t.b.binary(BinaryOp::Add, a, b).unwrap();
        let c = t.weight(&[3, 1]);
        let c = t.b.reshape(c, Shape::fixed(&[3])).unwrap();
        t.b.binary(BinaryOp::Add, sum, c).unwrap()
    });
    check("a weight that is the loss", |t| t.weight(&[2, 2]));
    check("an unused weight", |t| {
        t.weight(&[2]);
        t.weight(&[3])
    });
}
