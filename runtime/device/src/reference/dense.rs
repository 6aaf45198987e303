//! Operations that fold or mix along axes.

use super::elementwise::maximum;
use super::{Job, Problem, Tensor, Value, each_index, strides};
use monarch_graph::philox::{block, dropout_threshold};
use monarch_graph::{Einsum, Op, ReduceOp, RopeAngles, Windows};

pub(super) fn run(job: &Job) -> Value {
    match &job.node.op {
        Op::Reduce { op, axes } => reduce(job, *op, axes),
        Op::ArgMax { axis } => argmax(job, *axis),
        Op::Einsum(einsum) => contract(job, einsum),
        Op::Softmax { axis } => along(job, *axis, |x, _| softmax(x)),
        Op::SoftmaxGrad { axis } => along(job, *axis, |y, dy| {
            let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)).collect()
        }),
        Op::RmsNorm { eps } => along(job, last(job)?, |x, _| {
            let r = rms(x, *eps);
            x.iter().map(|x| x / r).collect()
        }),
        Op::RmsNormGrad { eps } => along(job, last(job)?, |x, dy| rms_grad(x, dy, *eps)),
        Op::LayerNorm { eps } => along(job, last(job)?, |x, _| {
            let (mean, deviation) = moments(x, *eps);
            x.iter().map(|x| (x - mean) / deviation).collect()
        }),
        Op::LayerNormGrad { eps } => along(job, last(job)?, |x, dy| layer_grad(x, dy, *eps)),
        Op::CrossEntropy => cross_entropy(job),
        Op::CrossEntropyGrad => cross_entropy_grad(job),
        Op::LogSumExp { axis } => log_sum_exp(job, *axis),
        Op::Unfold { windows, fill } => unfold(job, windows, *fill),
        Op::Fold(windows) => fold_windows(job, windows),
        Op::Dropout { p, number } => dropout(job, *p, *number),
        Op::Rope { axis, angles, inverse } => rope(job, *axis, *angles, *inverse),
        other => job.wrong(format!("{other:?} has no reference")),
    }
}

fn last(job: &Job) -> Result<u8, Problem> {
    match job.inputs[0].shape.len() {
        0 => job.wrong("a scalar has no last axis"),
        rank => Ok(rank as u8 - 1),
    }
}

/// Applies `f` to each line along `axis` of input 0 (and of input 1, where there is one).
fn along(job: &Job, axis: u8, f: impl Fn(&[f64], &[f64]) -> Vec<f64>) -> Value {
    let (outer, length, inner) = job.axis(0, axis)?;
    let x = job.floats(0)?;
    let other = if job.inputs.len() > 1 { job.floats(1)? } else { x };
    if other.len() != x.len() {
        return job.wrong("both inputs must have one shape");
    }
    let mut out = vec![0.0; x.len()];
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let place = |k: usize| (o * length + k) * inner + i;
        let line: Vec<f64> = (0..length).map(|k| x[place(k)]).collect();
        let second: Vec<f64> = (0..length).map(|k| other[place(k)]).collect();
        for (k, value) in f(&line, &second).into_iter().enumerate() {
            out[place(k)] = value;
        }
    }
    job.result(out)
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = x.iter().map(|x| (x - top).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

fn rms(x: &[f64], eps: f64) -> f64 {
    (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + eps).sqrt()
}

/// d(x_i / r)/dx_j = [i = j] / r - x_i x_j / (n r^3).
fn rms_grad(x: &[f64], dy: &[f64], eps: f64) -> Vec<f64> {
    let r = rms(x, eps);
    let dot: f64 = x.iter().zip(dy).map(|(x, dy)| x * dy).sum();
    let n = x.len() as f64;
    x.iter().zip(dy).map(|(x, dy)| dy / r - x * dot / (n * r * r * r)).collect()
}

/// Mean and sqrt(var + eps).
fn moments(x: &[f64], eps: f64) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let var = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    (mean, (var + eps).sqrt())
}

/// With h = (x - mean)/s: dx = (dy - mean(dy) - h mean(dy h)) / s.
fn layer_grad(x: &[f64], dy: &[f64], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let (mean, s) = moments(x, eps);
    let h: Vec<f64> = x.iter().map(|x| (x - mean) / s).collect();
    let flat = dy.iter().sum::<f64>() / n;
    let slant = dy.iter().zip(&h).map(|(dy, h)| dy * h).sum::<f64>() / n;
    dy.iter().zip(&h).map(|(dy, h)| (dy - flat - h * slant) / s).collect()
}

fn reduce(job: &Job, op: ReduceOp, axes: &[u8]) -> Value {
    let x = job.floats(0)?;
    let shape = &job.inputs[0].shape;
    if let Some(axis) = axes.iter().find(|&&a| usize::from(a) >= shape.len()) {
        return job.wrong(format!("axis {axis} of a tensor of rank {}", shape.len()));
    }
    let kept: Vec<usize> =
        (0..shape.len()).filter(|&i| !axes.iter().any(|&a| usize::from(a) == i)).collect();
    let kept_shape: Vec<usize> = kept.iter().map(|&i| shape[i]).collect();
    let to = strides(&kept_shape);
    let start = if op == ReduceOp::Sum { 0.0 } else { f64::NEG_INFINITY };
    let mut out = vec![start; kept_shape.iter().product()];
    let mut next = x.iter();
    each_index(shape, |at| {
        let place: usize = kept.iter().zip(&to).map(|(&i, s)| at[i] * s).sum();
        if let Some(&value) = next.next() {
            out[place] = match op {
                ReduceOp::Sum => out[place] + value,
                ReduceOp::Max => maximum(out[place], value),
            };
        }
    });
    job.result(out)
}

fn argmax(job: &Job, axis: u8) -> Value {
    let x = job.floats(0)?;
    let (outer, length, inner) = job.axis(0, axis)?;
    if length == 0 {
        return job.wrong("the largest of no elements");
    }
    let mut out = Vec::new();
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let value = |k: usize| x[(o * length + k) * inner + i];
        let best = (1..length).fold(0, |best, k| if value(k) > value(best) { k } else { best });
        out.push(best as i64);
    }
    Ok(Tensor::ints(job.shape, out))
}

/// Lengths of the labels, and each operand's stride per label (0 where it lacks it).
fn contract(job: &Job, einsum: &Einsum) -> Value {
    let (a, b) = (job.floats(0)?, job.floats(1)?);
    let mut labels = einsum.out.clone();
    labels.extend(einsum.a.iter().filter(|l| !einsum.out.contains(l)));
    if let Some(lone) = einsum.b.iter().find(|l| !labels.contains(l)) {
        return job.wrong(format!("label {lone} of b alone must be reduced first"));
    }
    let mut lengths = vec![0; labels.len()];
    let operands = [(&einsum.a, &job.inputs[0].shape), (&einsum.b, &job.inputs[1].shape)];
    for (own, shape) in operands {
        if own.len() != shape.len() {
            return job.wrong("one label per axis");
        }
        for (l, &n) in own.iter().zip(shape) {
            let at = labels.iter().position(|x| x == l).unwrap_or(0);
            if lengths[at] != 0 && lengths[at] != n {
                return job.wrong(format!("label {l} is both {} and {n} long", lengths[at]));
            }
            lengths[at] = n;
        }
    }
    let step = |own: &[u8], shape: &[usize]| -> Vec<usize> {
        let s = strides(shape);
        labels.iter().map(|l| own.iter().position(|x| x == l).map_or(0, |i| s[i])).collect()
    };
    let (sa, sb) = (step(&einsum.a, operands[0].1), step(&einsum.b, operands[1].1));
    let outs = einsum.out.len();
    let dot = |at: &[usize], s: &[usize]| -> usize { at.iter().zip(s).map(|(i, s)| i * s).sum() };
    let mut out = Vec::new();
    each_index(&lengths[..outs], |at| {
        let (oa, ob) = (dot(at, &sa[..outs]), dot(at, &sb[..outs]));
        let mut sum = 0.0;
        each_index(&lengths[outs..], |k| {
            sum += a[oa + dot(k, &sa[outs..])] * b[ob + dot(k, &sb[outs..])];
        });
        out.push(sum);
    });
    job.result(out)
}

/// Width of the last axis of the logits and the targets, one per row.
fn classes(job: &Job) -> Result<(usize, Vec<usize>), Problem> {
    let width = match job.inputs[0].shape.last() {
        Some(&v) if v > 0 => v,
        _ => return job.wrong("logits need a last axis of classes"),
    };
    let ids = job.ids(1, width)?;
    if ids.len() * width != job.inputs[0].len() {
        return job.wrong("one target per row of logits");
    }
    Ok((width, ids))
}

fn cross_entropy(job: &Job) -> Value {
    let (width, ids) = classes(job)?;
    let rows = job.floats(0)?.chunks(width);
    let loss = |x: &[f64], target: usize| {
        let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        x.iter().map(|x| (x - top).exp()).sum::<f64>().ln() + top - x[target]
    };
    job.result(rows.zip(ids).map(|(x, target)| loss(x, target)).collect())
}

fn cross_entropy_grad(job: &Job) -> Value {
    let (width, ids) = classes(job)?;
    let dy = job.floats(2)?;
    if dy.len() != ids.len() {
        return job.wrong("one dy per row of logits");
    }
    let mut out = Vec::new();
    for (r, x) in job.floats(0)?.chunks(width).enumerate() {
        let mut row = softmax(x);
        row[ids[r]] -= 1.0;
        out.extend(row.iter().map(|p| p * dy[r]));
    }
    job.result(out)
}

fn rope(job: &Job, axis: u8, angles: RopeAngles, inverse: bool) -> Value {
    let x = job.floats(0)?;
    let (_, length, inner) = job.axis(0, axis)?;
    let width = job.inputs[0].shape.last().copied().unwrap_or(0);
    if usize::from(axis) + 1 >= job.inputs[0].shape.len() || width % 2 != 0 {
        return job.wrong("rope turns pairs of an even last axis, along an earlier axis");
    }
    let half = width / 2;
    let mut out = vec![0.0; x.len()];
    for (place, value) in out.iter_mut().enumerate() {
        let (position, k) = (place / inner % length, place % width);
        let plain = angles.base.powf(-2.0 * (k % half) as f64 / width as f64);
        let angle = position as f64 * angles.frequency(plain);
        let sin = if inverse { -angle.sin() } else { angle.sin() };
        *value = if k < half {
            x[place] * angle.cos() - x[place + half] * sin
        } else {
            x[place] * angle.cos() + x[place - half] * sin
        };
    }
    job.result(out)
}

/// Element by element: which sample it is of, and its number there.
fn dropout(job: &Job, p: f64, number: u32) -> Value {
    let dims = &job.node.shape.0;
    let shape = job.shape;
    let mut out = Vec::new();
    let mut x = job.floats(0)?.iter();
    each_index(shape, |at| {
        let (mut sample, mut element) = (0, 0);
        for ((&i, &n), dim) in at.iter().zip(shape).zip(dims) {
            let per = dim.per as usize;
            if dim.batch {
                (sample, element) = ((i / per) as u64, element * per + i % per);
            } else {
                element = element * n + i;
            }
        }
        let (counter, key) = job.draw.dropout(number, sample, (element / 4) as u32);
        let dropped = block(counter, key)[element % 4] < dropout_threshold(p);
        out.extend(x.next().map(|x| if dropped { 0.0 } else { x / (1.0 - p) }));
    });
    job.result(out)
}

fn log_sum_exp(job: &Job, axis: u8) -> Value {
    let (outer, length, inner) = job.axis(0, axis)?;
    let x = job.floats(0)?;
    let mut out = Vec::new();
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let line = || (0..length).map(|k| x[(o * length + k) * inner + i]);
        let top = line().fold(f64::NEG_INFINITY, f64::max);
        out.push(line().map(|x| (x - top).exp()).sum::<f64>().ln() + top);
    }
    job.result(out)
}

/// Calls `f` with each element's place among the windows and in the image, if it lies there.
fn each_window(
    windows: &Windows,
    images: &[usize],
    folded: &[usize],
    mut f: impl FnMut(usize, Option<usize>),
) -> Result<(), Problem> {
    let (lead, steps) = (images.len().saturating_sub(3), strides(images));
    if images.len() < 3 || folded.len() != images.len() + 2 {
        return Err(Problem::Shape(format!("windows {folded:?} of {images:?}")));
    }
    let mut place = 0;
    each_index(folded, |at| {
        let (outer, at) = at.split_at(lead);
        let mut target: usize = outer.iter().zip(&steps).map(|(i, s)| i * s).sum();
        let mut inside = true;
        for k in 0..2 {
            let i = (at[k] as u64 * windows.stride[k] + at[2 + k] as u64) as i64
                - windows.before[k] as i64;
            inside &= (0..images[lead + k] as i64).contains(&i);
            target = target.wrapping_add_signed(i as isize * steps[lead + k] as isize);
        }
        f(place, inside.then_some(target + at[4]));
        place += 1;
    });
    Ok(())
}

fn unfold(job: &Job, windows: &Windows, fill: f64) -> Value {
    let x = job.floats(0)?;
    let mut out = Vec::new();
    each_window(windows, &job.inputs[0].shape, job.shape, |_, at| {
        out.push(at.map_or(fill, |at| x[at]));
    })?;
    job.result(out)
}

fn fold_windows(job: &Job, windows: &Windows) -> Value {
    let x = job.floats(0)?;
    let mut out = vec![0.0; job.shape.iter().product()];
    each_window(windows, job.shape, &job.inputs[0].shape, |place, at| {
        if let Some(at) = at {
            out[at] += x[place];
        }
    })?;
    job.result(out)
}
