//! Operations on one element at a time.

use super::special::{normal_cdf, normal_pdf, sigmoid};
use super::{Job, Problem, Tensor, TensorData, Value};
use monarch_graph::{BinaryOp, CompareOp, Op, UnaryOp};

pub(super) fn run(job: &Job) -> Value {
    match &job.node.op {
        Op::Unary(op) => job.result(job.floats(0)?.iter().map(|&x| unary(*op, x)).collect()),
        Op::UnaryGrad(op) => {
            let (x, dy) = (job.floats(0)?, job.floats(1)?);
            if x.len() != dy.len() {
                return job.wrong("x and dy differ in length");
            }
            job.result(x.iter().zip(dy).map(|(&x, &dy)| dy * slope(*op, x)).collect())
        }
        Op::Affine { mul, add } => {
            job.result(job.floats(0)?.iter().map(|&x| x * mul + add).collect())
        }
        Op::Binary(op) => binary_op(job, *op),
        Op::Compare(op) => compare_op(job, *op),
        _ => job.result(job.ints(0)?.iter().map(|&x| x as f64).collect()),
    }
}

/// f(x).
pub fn unary(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Square => x * x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::Gelu => x * normal_cdf(x),
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}

/// f'(x); 0 where abs and relu have a corner.
pub fn slope(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -1.0,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => 1.0 / x,
        UnaryOp::Sqrt => 0.5 / x.sqrt(),
        UnaryOp::Rsqrt => -0.5 / (x * x.sqrt()),
        UnaryOp::Square => 2.0 * x,
        UnaryOp::Abs if x == 0.0 => 0.0,
        UnaryOp::Abs => x.signum(),
        UnaryOp::Recip => -1.0 / (x * x),
        UnaryOp::Tanh => 1.0 - x.tanh() * x.tanh(),
        UnaryOp::Sigmoid => sigmoid(x) * (1.0 - sigmoid(x)),
        UnaryOp::Relu if x > 0.0 => 1.0,
        UnaryOp::Relu => 0.0,
        UnaryOp::Gelu => normal_cdf(x) + x * normal_pdf(x),
        UnaryOp::Softplus => sigmoid(x),
        UnaryOp::Silu => sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
    }
}

/// Pairs each element of the result with its elements of a and b: the shorter shape is a suffix
/// of the longer and is repeated.
fn pairs<T: Copy, R>(
    job: &Job,
    a: &[T],
    b: &[T],
    f: impl Fn(T, T) -> R,
) -> Result<Vec<R>, Problem> {
    let (sa, sb) = (&job.inputs[0].shape, &job.inputs[1].shape);
    if !sa.ends_with(sb) && !sb.ends_with(sa) {
        return job.wrong(format!("neither of {sa:?} and {sb:?} is a trailing part of the other"));
    }
    let n = if a.is_empty() || b.is_empty() { 0 } else { a.len().max(b.len()) };
    Ok((0..n).map(|i| f(a[i % a.len()], b[i % b.len()])).collect())
}

fn binary_op(job: &Job, op: BinaryOp) -> Value {
    match (&job.inputs[0].data, &job.inputs[1].data) {
        (TensorData::F64(a), TensorData::F64(b)) => {
            job.result(pairs(job, a, b, |x, y| binary(op, x, y))?)
        }
        (TensorData::I64(_), TensorData::I64(_)) if op == BinaryOp::Div => {
            job.wrong("integers are not divided")
        }
        (TensorData::I64(a), TensorData::I64(b)) => {
            Ok(Tensor::ints(job.shape, pairs(job, a, b, |x, y| binary_int(op, x, y))?))
        }
        _ => Err(Problem::DType { input: 1 }),
    }
}

fn binary(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max => maximum(a, b),
        BinaryOp::Min => -maximum(-a, -b),
    }
}

/// The larger of both; NaN where one is NaN.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Integers wrap at 32 bits, as in the fast kernels.
fn binary_int(op: BinaryOp, a: i64, b: i64) -> i64 {
    let (a, b) = (a as i32, b as i32);
    i64::from(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul | BinaryOp::Div => a.wrapping_mul(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
    })
}

fn compare_op(job: &Job, op: CompareOp) -> Value {
    let hit = |yes: bool| if yes { 1.0 } else { 0.0 };
    match (&job.inputs[0].data, &job.inputs[1].data) {
        (TensorData::F64(a), TensorData::F64(b)) => {
            job.result(pairs(job, a, b, |x, y| hit(compare(op, x, y)))?)
        }
        (TensorData::I64(a), TensorData::I64(b)) => {
            job.result(pairs(job, a, b, |x, y| hit(compare(op, x, y)))?)
        }
        _ => Err(Problem::DType { input: 1 }),
    }
}

fn compare<T: PartialOrd>(op: CompareOp, a: T, b: T) -> bool {
    match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
    }
}
