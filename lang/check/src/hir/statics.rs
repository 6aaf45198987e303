//! Values that are known before a device is touched.

use super::Poly;
use monarch_graph::Span;
use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// A number with a unit.
    Quantity(Quantity),
    List(Vec<Value>),
}

impl Value {
    /// As a float, if it is a plain number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Int(i) => Some(*i as f64),
            Value::Float(f) => Some(*f),
            _ => None,
        }
    }
}

/// A number and what it counts. `amount` is in the base unit: bytes, seconds, tokens, steps, ...;
/// a share of 100 % is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    pub amount: f64,
    pub unit: Unit,
}

/// What a quantity counts. Units are types: no two mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Bytes,
    Seconds,
    Tokens,
    Samples,
    Steps,
    Epochs,
    Batches,
    Checkpoints,
    BytesPerSecond,
    Share,
}

/// An expression over static values, inside a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Static {
    Value(Value),
    /// A size as a number.
    Size(Poly),
    /// A field of the layer that is not a whole number, by position.
    Field(u32),
    Neg(Box<Static>),
    Not(Box<Static>),
    Binary(StaticOp, Box<Static>, Box<Static>),
    Call(MathFn, Vec<Static>),
    If(Box<Static>, Box<Static>, Box<Static>),
}

/// Operators on static values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticOp {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
}

/// Functions on static numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MathFn {
    Sqrt,
    Exp,
    Log,
    Min,
    Max,
}

/// Why a static expression has no value: it would divide by zero, leave the whole numbers, or
/// leave the finite ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(pub String);

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EvalError {}

/// A static expression where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Spanned {
    pub value: Static,
    pub span: Span,
}

/// The numbers that a static expression is evaluated with.
pub struct StaticEnv<'a> {
    /// `Instance::sizes`
    pub sizes: &'a [u64],
    /// `Instance::fields`
    pub fields: &'a [Value],
}

impl Static {
    /// The value with an instance's numbers.
    pub fn eval(&self, env: &StaticEnv) -> Result<Value, EvalError> {
        match self {
            Static::Value(value) => Ok(value.clone()),
            Static::Size(poly) => {
                let number = poly.ratio(&|s| env.sizes.get(s.index()).copied());
                let ratio = number.ok_or_else(|| EvalError("a size is not known".into()))?;
                match (i64::try_from(ratio.num), ratio.den) {
                    (Ok(whole), 1) => Ok(Value::Int(whole)),
                    _ => Ok(Value::Float(ratio.num as f64 / ratio.den as f64)),
                }
            }
            Static::Field(index) => {
                let value = env.fields.get(*index as usize).cloned();
                value.ok_or_else(|| EvalError("a field is not known".into()))
            }
            Static::Neg(a) => match a.eval(env)? {
                Value::Int(i) => i.checked_neg().map(Value::Int).ok_or_else(too_large),
                other => float(-number(&other)?),
            },
            Static::Not(a) => Ok(Value::Bool(!a.truth(env)?)),
            Static::Binary(op, a, b) => binary(*op, a, b, env),
            Static::Call(function, args) => {
                let args: Result<Vec<Value>, _> = args.iter().map(|a| a.eval(env)).collect();
                function.apply(&args?)
            }
            Static::If(condition, yes, no) => match condition.truth(env)? {
                true => yes.eval(env),
                false => no.eval(env),
            },
        }
    }

    /// The value as a float.
    pub fn number(&self, env: &StaticEnv) -> Result<f64, EvalError> {
        number(&self.eval(env)?)
    }

    /// The value as a condition.
    pub fn truth(&self, env: &StaticEnv) -> Result<bool, EvalError> {
        match self.eval(env)? {
            Value::Bool(b) => Ok(b),
            _ => Err(EvalError("a condition is neither true nor false".into())),
        }
    }
}

fn binary(op: StaticOp, a: &Static, b: &Static, env: &StaticEnv) -> Result<Value, EvalError> {
    match op {
        StaticOp::And => return Ok(Value::Bool(a.truth(env)? && b.truth(env)?)),
        StaticOp::Or => return Ok(Value::Bool(a.truth(env)? || b.truth(env)?)),
        _ => {}
    }
    op.apply(&a.eval(env)?, &b.eval(env)?)
}

impl StaticOp {
    /// The operator on two values. Whole numbers stay whole where the result is.
    pub fn apply(self, a: &Value, b: &Value) -> Result<Value, EvalError> {
        use StaticOp as O;
        match (self, a, b) {
            (O::Eq, Value::Text(_) | Value::Bool(_), _) => return Ok(Value::Bool(a == b)),
            (O::Ne, Value::Text(_) | Value::Bool(_), _) => return Ok(Value::Bool(a != b)),
            (O::And, Value::Bool(x), Value::Bool(y)) => return Ok(Value::Bool(*x && *y)),
            (O::Or, Value::Bool(x), Value::Bool(y)) => return Ok(Value::Bool(*x || *y)),
            _ => {}
        }
        if let (Value::Int(x), Value::Int(y)) = (a, b)
            && let Some(result) = self.whole(*x, *y)
        {
            return result.map(Value::Int).ok_or_else(too_large);
        }
        let (x, y) = (number(a)?, number(b)?);
        match self {
            O::Add => float(x + y),
            O::Sub => float(x - y),
            O::Mul => float(x * y),
            O::Div if y == 0.0 => Err(EvalError("this divides by zero".into())),
            O::Div => float(x / y),
            O::Pow => float(power(x, y)),
            O::Eq => Ok(Value::Bool(x == y)),
            O::Ne => Ok(Value::Bool(x != y)),
            O::Lt => Ok(Value::Bool(x < y)),
            O::Le => Ok(Value::Bool(x <= y)),
            O::Gt => Ok(Value::Bool(x > y)),
            O::Ge => Ok(Value::Bool(x >= y)),
            O::And | O::Or => Err(EvalError("a condition is neither true nor false".into())),
        }
    }

    /// Outer None: not an operation that stays whole. Inner None: out of range.
    fn whole(self, x: i64, y: i64) -> Option<Option<i64>> {
        match self {
            StaticOp::Add => Some(x.checked_add(y)),
            StaticOp::Sub => Some(x.checked_sub(y)),
            StaticOp::Mul => Some(x.checked_mul(y)),
            StaticOp::Div if y != 0 && x % y == 0 => Some(x.checked_div(y)),
            StaticOp::Pow => u32::try_from(y).ok().map(|y| x.checked_pow(y)),
            _ => None,
        }
    }
}

/// Whole exponents by multiplication, so that the result does not depend on a machine's libm.
fn power(x: f64, y: f64) -> f64 {
    match y.fract() == 0.0 && y.abs() <= 1024.0 {
        true => x.powi(y as i32),
        false => x.powf(y),
    }
}

impl MathFn {
    /// The function as written.
    pub fn name(self) -> &'static str {
        match self {
            MathFn::Sqrt => "sqrt",
            MathFn::Exp => "exp",
            MathFn::Log => "log",
            MathFn::Min => "min",
            MathFn::Max => "max",
        }
    }

    /// The function on values; `min` and `max` take two or more.
    pub fn apply(self, args: &[Value]) -> Result<Value, EvalError> {
        let better = |a: f64, b: f64| match self {
            MathFn::Min => b < a,
            _ => b > a,
        };
        match (self, args) {
            (MathFn::Sqrt, [x]) => match number(x)? {
                x if x < 0.0 => Err(EvalError("this takes the root of a negative number".into())),
                x => float(x.sqrt()),
            },
            (MathFn::Exp, [x]) => float(number(x)?.exp()),
            (MathFn::Log, [x]) => match number(x)? {
                x if x <= 0.0 => Err(EvalError("this takes the log of no positive number".into())),
                x => float(x.ln()),
            },
            (MathFn::Min | MathFn::Max, [first, rest @ ..]) => {
                let mut best = first;
                for value in rest {
                    if better(number(best)?, number(value)?) {
                        best = value;
                    }
                }
                Ok(best.clone())
            }
            _ => Err(EvalError(format!("`{}` takes another number of values", self.name()))),
        }
    }
}

fn number(value: &Value) -> Result<f64, EvalError> {
    value.number().ok_or_else(|| EvalError("a plain number is needed here".into()))
}

fn float(x: f64) -> Result<Value, EvalError> {
    x.is_finite().then_some(Value::Float(x)).ok_or_else(too_large)
}

fn too_large() -> EvalError {
    EvalError("the number is too large".into())
}
