//! Functions, losses and layers of the library, from their text to numbers: values against their
//! formulas in float64, and gradients of whole programs against differences.

mod support;

use monarch_check::TensorFact;
use monarch_device::reference::{Tensor, TensorData, eval};
use monarch_graph::Plan;
use monarch_plan::{Facts, plan};
use support::jobs::{checked, random_inputs};
use support::world::Files;

const SAMPLES: u64 = 3;
/// Rows, columns and channels of `x` and `y`.
const SHAPE: [usize; 3] = [6, 5, 4];

/// A layer that scales channels, so that everything has a gradient.
const SCALE: &str = "
layer Net[R, S, C] {
  w: [C] ~ ones
  forward(x: [B, R, S, C]) -> [B, R, S, C] = x * w
}
model net = Net[R = 6, S = 5, C = 4]";

struct Run {
    plan: Plan,
    weights: Vec<Tensor>,
    columns: Vec<Tensor>,
    /// Elements of the loss.
    value: Tensor,
}

fn files(text: &str) -> Files {
    let tensor = |name: &str, dtype: &str, shape: &[u64]| TensorFact {
        name: name.into(),
        dtype: dtype.into(),
        shape: shape.to_vec(),
    };
    let mut files = Files::with("job.mon", text);
    files.tensors = vec![
        tensor("x", "F32", &[48, 6, 5, 4]),
        tensor("y", "F32", &[48, 6, 5, 4]),
        tensor("ids", "I32", &[48, 6, 5]),
    ];
    files
}

fn job(layers: &str, loss: &str) -> String {
    format!(
        "use std.nn\nuse std.nn.{{conv2d, max_pool2d, avg_pool2d, log_softmax, leaky_relu, elu}}\n\
         use std.nn.{{gelu_tanh, swiglu, SwiGlu, Conv2d, Conv2dSame, GroupNorm, Dropout, relu}}\n\
         use std.loss\nuse std.optim.SGD\n{layers}\n\
         data d = tensors(\"t.safetensors\", order = file)\n\
         train job {{\n  model = net, data = d, optim = SGD(lr = 0.1)\n  \
         batch = 12, until = 2 steps\n  \
         loss(x: f32[B, 6, 5, 4], y: f32[B, 6, 5, 4], ids: i32[B, 6, 5]) = {loss}\n}}\n"
    )
}

/// Plans the job, runs it on random numbers, and compares all gradients with differences.
fn run(layers: &str, loss: &str) -> Run {
    let program = checked(&files(&job(layers, loss)), &[]);
    let (made, diagnostics) = plan(&program, &Facts::default());
    let (plan, _) = made.unwrap_or_else(|| panic!("{loss}: {diagnostics:#?}"));
    let program = &plan.train.program;
    let (weights, mut columns) = random_inputs(&plan, &program.columns, SAMPLES);
    for (column, tensor) in program.columns.iter().zip(&mut columns) {
        if let (TensorData::I64(v), "ids") = (&mut tensor.data, column.name.as_str()) {
            v.iter_mut().for_each(|id| *id %= 4);
        }
    }
    let values = eval(&program.graph, SAMPLES, &weights, &columns).unwrap();
    let value = values[plan.train.loss.numerator.index()].clone();
    let total = |weights: &[Tensor]| -> f64 {
        let values = eval(&program.graph, SAMPLES, weights, &columns).unwrap();
        values[plan.train.loss.numerator.index()].as_f64().unwrap().iter().sum()
    };
    for (w, gradient) in plan.train.gradients.iter().enumerate() {
        let name = &plan.weights[w].name;
        let gradient = gradient.unwrap_or_else(|| panic!("{loss}: `{name}` has no gradient"));
        let found = values[gradient.index()].as_f64().unwrap();
        for (i, found) in found.iter().enumerate() {
            let at = |by: f64| {
                let mut weights = weights.clone();
                if let TensorData::F64(v) = &mut weights[w].data {
                    v[i] += by;
                }
                total(&weights)
            };
            let want = (at(1e-5) - at(-1e-5)) / 2e-5;
            let close = (found - want).abs() < 2e-5 * want.abs().max(1.0);
            assert!(close, "{loss}: {name}[{i}] has gradient {found}, not {want}");
        }
    }
    Run { plan, weights, columns, value }
}

impl Run {
    fn column(&self, name: &str) -> &Tensor {
        let columns = &self.plan.train.program.columns;
        &self.columns[columns.iter().position(|c| c.name == name).unwrap()]
    }

    fn weight(&self, name: &str) -> &Tensor {
        &self.weights[self.plan.weights.iter().position(|w| w.name == name).unwrap()]
    }

    /// Compares each element of the loss with `want` at its place.
    fn is(&self, what: &str, shape: &[usize], want: impl Fn(&[usize]) -> f64) {
        let shape: Vec<usize> = [SAMPLES as usize].iter().chain(shape).copied().collect();
        assert_eq!(self.value.shape, shape, "{what}");
        let mut at = vec![0; shape.len()];
        for (i, found) in self.value.as_f64().unwrap().iter().enumerate() {
            let mut rest = i;
            for (at, n) in at.iter_mut().zip(&shape).rev() {
                (*at, rest) = (rest % n, rest / n);
            }
            let want = want(&at);
            let close = (found - want).abs() < 1e-9 * want.abs().max(1.0);
            assert!(close, "{what}: {at:?} is {found}, not {want}");
        }
    }
}

fn at(t: &Tensor, place: &[usize]) -> f64 {
    let flat = place.iter().zip(&t.shape).fold(0, |n, (i, length)| n * length + i);
    t.as_f64().unwrap()[flat]
}

/// `x * w`, what the net of [`SCALE`] gives.
fn scaled(run: &Run, i: &[usize]) -> f64 {
    at(run.column("x"), i) * at(run.weight("w"), &i[3..])
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A function of two numbers.
type Pair = fn(f64, f64) -> f64;

#[test]
fn functions_of_elements() {
    let cases: [(&str, Pair); 16] = [
        ("mean(softplus(net(x)))", |u, _| u.exp().ln_1p()),
        ("mean(log_sigmoid(net(x)))", |u, _| sigmoid(u).ln()),
        ("mean(leaky_relu(net(x)))", |u, _| if u > 0.0 { u } else { 0.01 * u }),
        ("mean(leaky_relu(net(x), slope = 0.2))", |u, _| if u > 0.0 { u } else { 0.2 * u }),
        ("mean(elu(net(x)))", |u, _| if u > 0.0 { u } else { u.exp() - 1.0 }),
        ("mean(elu(net(x), 0.5))", |u, _| if u > 0.0 { u } else { 0.5 * (u.exp() - 1.0) }),
        ("mean(gelu_tanh(net(x)))", |u, _| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (u + 0.044_715 * u * u * u);
            0.5 * u * (1.0 + inner.tanh())
        }),
        ("mean(clamp(net(x), -0.3, 0.4))", |u, _| u.clamp(-0.3, 0.4)),
        ("mean(maximum(net(x), y))", f64::max),
        ("mean(minimum(net(x), y))", f64::min),
        ("mean(swiglu(net(x), y))", |u, y| u * sigmoid(u) * y),
        ("loss.mse(net(x), y)", |u, y| (u - y) * (u - y)),
        ("loss.l1(net(x), y)", |u, y| (u - y).abs()),
        ("loss.huber(net(x), y)", |u, y| {
            let e = (u - y).abs();
            if e <= 1.0 { 0.5 * e * e } else { e - 0.5 }
        }),
        ("loss.huber(net(x), y, delta = 0.25)", |u, y| {
            let e = (u - y).abs();
            if e <= 0.25 { 0.5 * e * e } else { 0.25 * (e - 0.125) }
        }),
        ("loss.bce_with_logits(net(x), square(y))", |u, y| {
            -(y * y) * sigmoid(u).ln() - (1.0 - y * y) * (1.0 - sigmoid(u)).ln()
        }),
    ];
    for (loss, want) in cases {
        let run = run(SCALE, loss);
        run.is(loss, &SHAPE, |i| {
            // A column that is not read is not loaded.
            let reads = run.plan.train.program.columns.iter().any(|c| c.name == "y");
            want(scaled(&run, i), if reads { at(run.column("y"), i) } else { 0.0 })
        });
    }
}

#[test]
fn functions_along_an_axis() {
    let log_sum = |line: &[f64]| line.iter().map(|x| x.exp()).sum::<f64>().ln();
    let loss = "mean(logsumexp(net(x), over = S))";
    let r = run(SCALE, loss);
    r.is(loss, &[6, 4], |i| {
        log_sum(&(0..5).map(|s| scaled(&r, &[i[0], i[1], s, i[2]])).collect::<Vec<_>>())
    });
    let loss = "mean(log_softmax(net(x), over = R))";
    let r = run(SCALE, loss);
    r.is(loss, &SHAPE, |i| {
        let line: Vec<f64> = (0..6).map(|s| scaled(&r, &[i[0], s, i[2], i[3]])).collect();
        line[i[1]] - log_sum(&line)
    });
    let loss = "mean(min(net(x), over = C) + log_softmax(min(net(x), over = C), over = S))";
    let r = run(SCALE, loss);
    r.is(loss, &[6, 5], |i| {
        let least = |s: usize| {
            (0..4).map(|c| scaled(&r, &[i[0], i[1], s, c])).fold(f64::INFINITY, f64::min)
        };
        let line: Vec<f64> = (0..5).map(least).collect();
        2.0 * line[i[2]] - log_sum(&line)
    });
}

#[test]
fn losses_of_classes() {
    let logs = |run: &Run, i: &[usize]| -> Vec<f64> {
        let line: Vec<f64> = (0..4).map(|c| scaled(run, &[i[0], i[1], i[2], c])).collect();
        let all = line.iter().map(|x| x.exp()).sum::<f64>().ln();
        line.iter().map(|x| x - all).collect()
    };
    for smoothing in [0.0, 0.1, 0.75] {
        let loss = format!("loss.cross_entropy(net(x), ids, smoothing = {smoothing})");
        let r = run(SCALE, &loss);
        r.is(&loss, &[6, 5], |i| {
            let logs = logs(&r, i);
            let flat = (i[0] * 6 + i[1]) * 5 + i[2];
            let target = r.column("ids").as_i64().unwrap()[flat] as usize;
            let even = -logs.iter().sum::<f64>() / 4.0;
            -(1.0 - smoothing) * logs[target] + smoothing * even
        });
    }
    let loss = "loss.kl(net(x), y)";
    let r = run(SCALE, loss);
    r.is(loss, &[6, 5], |i| {
        let q = logs(&r, i);
        let t: Vec<f64> = (0..4).map(|c| at(r.column("y"), &[i[0], i[1], i[2], c])).collect();
        let all = t.iter().map(|x| x.exp()).sum::<f64>().ln();
        t.iter().zip(&q).map(|(t, q)| (t - all).exp() * (t - all - q)).sum()
    });
}

/// Element (y, x, c) of images scaled by the net; None outside.
fn pixel(run: &Run, sample: usize, y: isize, x: isize, c: usize) -> Option<f64> {
    let inside = (0..6).contains(&y) && (0..5).contains(&x);
    inside.then(|| scaled(run, &[sample, y as usize, x as usize, c]))
}

#[test]
fn pools() {
    // Text, size, stride, before, rows and columns of the result.
    let cases: [(&str, usize, usize, isize, [usize; 2]); 5] = [
        ("2, stride = 1", 2, 1, 0, [5, 4]),
        ("size = 5, stride = 1, padding = 1", 5, 1, 1, [4, 3]),
        ("3, stride = 1, padding = same", 3, 1, 1, [6, 5]),
        ("1", 1, 1, 0, [6, 5]),
        ("3, stride = 3, padding = 2", 3, 3, 2, [0, 3]),
    ];
    for (text, size, stride, before, count) in cases {
        // (6 + 4 - 3) / 3 is not whole.
        if count[0] == 0 {
            let program = files(&job(SCALE, &format!("mean(max_pool2d(net(x), {text}))")));
            let checked = monarch_check::check(&program, "job.mon", &[], &[]);
            assert!(checked.diagnostics.iter().any(|d| d.code == "M0204"));
            continue;
        }
        let window = |r: &Run, i: &[usize]| -> Vec<Option<f64>> {
            let places = (0..size * size).map(|k| {
                let y = (i[1] * stride + k / size) as isize - before;
                let x = (i[2] * stride + k % size) as isize - before;
                pixel(r, i[0], y, x, i[3])
            });
            places.collect()
        };
        let shape = [count[0], count[1], 4];
        let loss = format!("mean(max_pool2d(net(x), {text}))");
        let r = run(SCALE, &loss);
        r.is(&loss, &shape, |i| {
            window(&r, i).into_iter().flatten().fold(f64::NEG_INFINITY, f64::max)
        });
        let loss = format!("mean(avg_pool2d(net(x), {text}))");
        let r = run(SCALE, &loss);
        r.is(&loss, &shape, |i| {
            window(&r, i).into_iter().flatten().sum::<f64>() / (size * size) as f64
        });
    }
    // Side by side: no copies of windows are made.
    let loss = "mean(avg_pool2d(rearrange[B R S C -> B C R S](net(x)), 2))";
    let r = run(SCALE, loss);
    r.is(loss, &[2, 3, 5], |i| {
        let pick = |k: usize| scaled(&r, &[i[0], 2 * i[2] + k % 2, i[3], 2 * i[1] + k / 2]);
        (0..4).map(pick).sum::<f64>() / 4.0
    });
    let unfolds = |op: &monarch_graph::Op| matches!(op, monarch_graph::Op::Unfold { .. });
    assert!(!r.plan.train.program.graph.nodes.iter().any(|n| unfolds(&n.op)));
}

#[test]
fn convolutions() {
    let layer = |shape: &str, result: &str, call: &str| {
        format!(
            "layer Net[R, S, C] {{\n  w: [{shape}] ~ ones\n  \
             forward(x: [B, R, S, C]) -> [B, {result}] = conv2d(x, w, {call})\n}}\n\
             model net = Net[R = 6, S = 5, C = 4]"
        )
    };
    // Weight, result, arguments; stride, before, window, rows and columns, groups.
    let cases = [
        ("3, 2, C, 3", "R - 2, S - 1, 3", "stride = 1", 1, [0, 0], [3, 2], [4, 4], 1),
        ("3, 3, C, 2", "R, S, 2", "padding = 1", 1, [1, 1], [3, 3], [6, 5], 1),
        ("3, 3, C, 2", "R, S, 2", "padding = same", 1, [1, 1], [3, 3], [6, 5], 1),
        ("1, 1, C, 5", "R, S, 5", "stride = 1", 1, [0, 0], [1, 1], [6, 5], 1),
        ("2, 1, C, 2", "R / 2, (S - 1) / 2 + 1, 2", "2", 2, [0, 0], [2, 1], [3, 3], 1),
        ("3, 2, C / 2, 6", "R, S + 1, 6", "1, 1, groups = 2", 1, [1, 1], [3, 2], [6, 6], 2),
        ("3, 3, 1, C", "R, S, C", "padding = 1, groups = C", 1, [1, 1], [3, 3], [6, 5], 4),
    ];
    for (shape, result, call, stride, before, window, count, groups) in cases {
        let r = run(&layer(shape, result, call), "mean(net(x))");
        let w = r.weight("w");
        let (inner, out) = (w.shape[2], w.shape[3]);
        r.is(call, &[count[0], count[1], out], |i| {
            let group = i[3] / (out / groups);
            let mut sum = 0.0;
            for k in 0..window[0] * window[1] * inner {
                let (p, q, c) = (k / inner / window[1], k / inner % window[1], k % inner);
                let y = (i[1] * stride + p) as isize - before[0];
                let x = (i[2] * stride + q) as isize - before[1];
                if (0..6).contains(&y) && (0..5).contains(&x) {
                    let place = [i[0], y as usize, x as usize, group * inner + c];
                    sum += at(r.column("x"), &place) * at(w, &[p, q, c, i[3]]);
                }
            }
            sum
        });
    }
}

#[test]
fn layers_for_images() {
    let net = "
layer Net[R, S, C] {
  a = Conv2d[I = C, O = 6](padding = 1, groups = 2)
  b = Conv2dSame[I = 6, O = 4](kernel = 2, bias = false)
  norm = GroupNorm[C = 4](groups = 2)
  gate = SwiGlu[D = 4, F = 3]
  drop = Dropout(0%)
  forward(x: [B, R, S, C]) -> [B, R, S, 4] = x |> a |> relu |> b |> norm |> gate |> drop
}
model net = Net[R = 6, S = 5, C = 4]";
    let r = run(net, "mean(square(net(x)))");
    assert_eq!(r.weight("a.w").shape, [3, 3, 2, 6]);
    assert_eq!(r.weight("b.w").shape, [2, 2, 6, 4]);
    let norm = "
layer Net[R, S, C] {
  norm = GroupNorm[C](groups = 2)
  forward(x: [B, R, S, C]) -> [B, R, S, C] = norm(x)
}
model net = Net[R = 6, S = 5, C = 4]";
    let r = run(norm, "mean(net(x))");
    r.is("group norm", &SHAPE, |i| {
        let group = i[3] / 2 * 2;
        let all: Vec<f64> = (0..60)
            .map(|k| at(r.column("x"), &[i[0], k / 2 / 5, k / 2 % 5, group + k % 2]))
            .collect();
        let mean = all.iter().sum::<f64>() / 60.0;
        let var = all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 60.0;
        let h = (at(r.column("x"), i) - mean) / (var + 1e-5).sqrt();
        h * at(r.weight("norm.w"), &i[3..]) + at(r.weight("norm.b"), &i[3..])
    });
}

/// Of the training program alone; and twice the same mask in its two halves (the differences
/// of [`run`] would not agree otherwise).
#[test]
fn dropout_is_there_in_training_alone() {
    let job = job(SCALE, "mean(nn.dropout(net(x), 25%))");
    let with_eval =
        job.replace("until = 2 steps\n", "until = 2 steps\n  eval { every = 1 steps }\n");
    let text = with_eval.replace("data = d,", "data = d.split(train = 50%, eval = 50%),");
    let program = checked(&files(&text), &[]);
    let (made, diagnostics) = plan(&program, &Facts::default());
    let (plan, _) = made.unwrap_or_else(|| panic!("{diagnostics:#?}"));
    let count = |graph: &monarch_graph::Graph| {
        let drops = |op: &monarch_graph::Op| matches!(op, monarch_graph::Op::Dropout { .. });
        graph.nodes.iter().filter(|n| drops(&n.op)).count()
    };
    assert_eq!(count(&plan.train.program.graph), 2);
    assert_eq!(count(&plan.evals[0].program.graph), 0);
    let r = run(SCALE, "mean(nn.dropout(net(x), 25%))");
    let dropped = r.value.as_f64().unwrap().iter().filter(|v| **v == 0.0).count();
    assert!((50..130).contains(&dropped), "{dropped} of 360");
    r.is("dropout", &SHAPE, |i| {
        let kept = at(&r.value, i) != 0.0;
        if kept { scaled(&r, i) / 0.75 } else { 0.0 }
    });
}
