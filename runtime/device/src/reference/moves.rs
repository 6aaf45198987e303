//! Operations that move elements: the result is filled index by index.

use super::{Job, Problem, Tensor, TensorData, Value, each_index, strides};
use monarch_graph::Op;

pub(super) fn run(job: &Job) -> Value {
    match &job.node.op {
        Op::Broadcast { axes } => broadcast(job, axes),
        Op::Reshape => Ok(job.inputs[0].clone()),
        Op::Permute(order) => permute(job, order),
        Op::Slice { axis, start } => slice(job, *axis, *start as usize),
        Op::Unslice { axis, start } => unslice(job, *axis, *start as usize),
        Op::Concat { axis } => concat(job, *axis),
        Op::Causal { fill } => causal(job, *fill),
        Op::Gather => gather(job),
        _ => scatter_add(job),
    }
}

/// The result whose element `i` is element `source[i]` of input 0.
fn pick(job: &Job, source: &[usize]) -> Value {
    fn all<T: Copy>(from: &[T], source: &[usize]) -> Option<Vec<T>> {
        source.iter().map(|&s| from.get(s).copied()).collect()
    }
    let data = match &job.inputs[0].data {
        TensorData::F64(v) => all(v, source).map(TensorData::F64),
        TensorData::I64(v) => all(v, source).map(TensorData::I64),
    };
    match data {
        Some(data) => Ok(Tensor { shape: job.shape.to_vec(), data }),
        None => job.wrong(format!("{:?} reaches beyond {:?}", job.shape, job.inputs[0].shape)),
    }
}

fn broadcast(job: &Job, axes: &[u8]) -> Value {
    let from = strides(&job.inputs[0].shape);
    let new = |i: usize| axes.iter().any(|&a| usize::from(a) == i);
    let kept: Vec<usize> = (0..job.shape.len()).filter(|&i| !new(i)).collect();
    if kept.len() != from.len()
        || !kept.iter().zip(&job.inputs[0].shape).all(|(&i, &n)| job.shape[i] == n)
    {
        return job.wrong("axes of a broadcast do not match its input");
    }
    let mut source = Vec::new();
    each_index(job.shape, |at| source.push(kept.iter().zip(&from).map(|(&i, s)| at[i] * s).sum()));
    pick(job, &source)
}

fn permute(job: &Job, order: &[u8]) -> Value {
    let from = strides(&job.inputs[0].shape);
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    let whole = sorted.iter().enumerate().all(|(i, &a)| usize::from(a) == i);
    if order.len() != from.len() || order.len() != job.shape.len() || !whole {
        return job.wrong("the axes are not a permutation");
    }
    let step: Vec<usize> = order.iter().map(|&a| from[usize::from(a)]).collect();
    let mut source = Vec::new();
    each_index(job.shape, |at| source.push(at.iter().zip(&step).map(|(i, s)| i * s).sum()));
    pick(job, &source)
}

fn slice(job: &Job, axis: u8, start: usize) -> Value {
    let (_, length, _) = job.axis(0, axis)?;
    let axis = usize::from(axis);
    if job.shape.get(axis).is_none_or(|n| start + n > length) {
        return job.wrong(format!("a slice from {start} on does not fit into {length}"));
    }
    let from = strides(&job.inputs[0].shape);
    let mut source = Vec::new();
    each_index(job.shape, |at| {
        let place: usize = at.iter().zip(&from).map(|(i, s)| i * s).sum();
        source.push(place + start * from[axis]);
    });
    pick(job, &source)
}

fn unslice(job: &Job, axis: u8, start: usize) -> Value {
    let x = job.floats(0)?;
    let (_, length, _) = job.axis(0, axis)?;
    let axis = usize::from(axis);
    if job.shape.get(axis).is_none_or(|&n| start + length > n) {
        return job.wrong(format!("{length} elements do not fit from {start} on"));
    }
    let to = strides(job.shape);
    let mut out = vec![0.0; job.shape.iter().product()];
    let mut next = x.iter();
    each_index(&job.inputs[0].shape, |at| {
        let place: usize = at.iter().zip(&to).map(|(i, s)| i * s).sum();
        if let Some(&value) = next.next() {
            out[place + start * to[axis]] = value;
        }
    });
    job.result(out)
}

fn concat(job: &Job, axis: u8) -> Value {
    let (outer, _, _) = job.axis(0, axis)?;
    let mut rows = Vec::new();
    for input in 0..job.inputs.len() {
        let (n, length, inner) = job.axis(input, axis)?;
        if n != outer {
            return job.wrong("parts differ in their leading axes");
        }
        rows.push(length * inner);
    }
    if job.inputs[0].as_f64().is_some() {
        let parts: Result<Vec<_>, _> = (0..rows.len()).map(|i| job.floats(i)).collect();
        return Ok(Tensor::floats(job.shape, join(&parts?, &rows, outer)));
    }
    let parts: Result<Vec<_>, _> = (0..rows.len()).map(|i| job.ints(i)).collect();
    Ok(Tensor::ints(job.shape, join(&parts?, &rows, outer)))
}

fn join<T: Copy>(parts: &[&[T]], rows: &[usize], outer: usize) -> Vec<T> {
    let mut out = Vec::new();
    for o in 0..outer {
        for (part, n) in parts.iter().zip(rows) {
            out.extend_from_slice(&part[o * n..(o + 1) * n]);
        }
    }
    out
}

fn causal(job: &Job, fill: f64) -> Value {
    let x = job.floats(0)?;
    let rank = job.inputs[0].shape.len();
    if rank < 2 {
        return job.wrong("a causal mask needs two axes");
    }
    let (t, s) = (job.inputs[0].shape[rank - 2], job.inputs[0].shape[rank - 1]);
    let masked = |i: usize| i % s + t > i / s % t + s;
    job.result(x.iter().enumerate().map(|(i, &v)| if masked(i) { fill } else { v }).collect())
}

/// Length of one row of `shape` after its first `lead` axes.
fn row(shape: &[usize], lead: usize) -> usize {
    shape[lead..].iter().product()
}

fn gather(job: &Job) -> Value {
    let table = job.floats(0)?;
    let Some(&rows) = job.inputs[0].shape.first() else {
        return job.wrong("the table needs an axis of rows");
    };
    let width = row(&job.inputs[0].shape, 1);
    let ids = job.ids(1, rows)?;
    job.result(ids.iter().flat_map(|&r| table[r * width..(r + 1) * width].to_vec()).collect())
}

fn scatter_add(job: &Job) -> Value {
    let dy = job.floats(1)?;
    let Some(&rows) = job.shape.first() else {
        return job.wrong("the result needs an axis of rows");
    };
    let width = row(job.shape, 1);
    let ids = job.ids(0, rows)?;
    if dy.len() != ids.len() * width {
        return Err(Problem::Shape("rows and ids differ in number".into()));
    }
    let mut out = vec![0.0; rows * width];
    for (i, &r) in ids.iter().enumerate() {
        for j in 0..width {
            out[r * width + j] += dy[i * width + j];
        }
    }
    job.result(out)
}
