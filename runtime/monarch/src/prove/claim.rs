//! `assert`: whether a claim holds, and what to say if it does not.

use super::tensor::Tensor;
use super::{Prover, Result};
use monarch_check::hir::{Condition, ConditionKind, Expr, Number, NumberKind, TensorType, Value};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{CompareOp, Span};

impl Prover<'_> {
    /// Err: what does not hold.
    pub(super) fn claim(&mut self, condition: &Condition, at: Span) -> Result<()> {
        match self.look(condition)? {
            None => Ok(()),
            Some(found) => {
                let d = Diagnostic::error("M1001", found.title);
                let labels = match found.labels.is_empty() {
                    true => vec![(at, "asserted here".to_owned())],
                    false => found.labels,
                };
                let d = labels.into_iter().fold(d, |d, (span, text)| d.label(span, text));
                let d = found.help.into_iter().fold(d, Diagnostic::help);
                Err(d.into())
            }
        }
    }

    /// None if it holds.
    fn look(&mut self, condition: &Condition) -> Result<Option<Broken>> {
        let at = condition.span;
        Ok(match &condition.kind {
            ConditionKind::Known(true) => None,
            ConditionKind::Known(false) => Some(Broken::new("this does not hold", at, "false")),
            ConditionKind::Numbers { op, left, right } => {
                let (a, b) = (self.number(left)?, self.number(right)?);
                compare_numbers(*op, (left, &a), (right, &b))
            }
            ConditionKind::Tensors { op, left, right } => {
                let (a, b) = (self.tensors.value(left)?, self.tensors.value(right)?);
                compare_tensors(*op, (left, &a), (right, &b))
            }
            ConditionKind::Near { left, right, within } => {
                let (a, b) = (self.tensors.value(left)?, self.tensors.value(right)?);
                far((left, &a), (right, &b), *within)
            }
            ConditionKind::Not(inner) => match self.look(inner)? {
                Some(_) => None,
                None => Some(Broken::new("this holds, and must not", inner.span, "true")),
            },
            ConditionKind::And(a, b) => match self.look(a)? {
                None => self.look(b)?,
                broken => broken,
            },
            ConditionKind::Or(a, b) => match self.look(a)? {
                None => None,
                Some(first) => self.look(b)?.map(|second| {
                    let labels = first.labels.into_iter().chain(second.labels).collect();
                    let title = "neither side of this `or` holds".to_owned();
                    Broken { title, labels, help: second.help }
                }),
            },
        })
    }
}

/// A claim that does not hold.
struct Broken {
    title: String,
    labels: Vec<(Span, String)>,
    help: Option<String>,
}

impl Broken {
    fn new(title: &str, at: Span, label: &str) -> Broken {
        Broken { title: title.to_owned(), labels: vec![(at, label.to_owned())], help: None }
    }
}

fn symbol(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

fn holds(op: CompareOp, a: f64, b: f64) -> bool {
    match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
    }
}

fn compare_numbers(
    op: CompareOp,
    (left, a): (&Number, &Value),
    (right, b): (&Number, &Value),
) -> Option<Broken> {
    let amount = |v: &Value| match v {
        Value::Quantity(q) => q.amount,
        other => other.number().unwrap_or(f64::NAN),
    };
    let fine = match (a, b) {
        (Value::Int(a), Value::Int(b)) => match op {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        },
        _ => holds(op, amount(a), amount(b)),
    };
    if fine {
        return None;
    }
    let shown = [a, b].map(monarch_check::show);
    let title = format!("this does not hold: {} {} {}", shown[0], symbol(op), shown[1]);
    let sides = [(left, a), (right, b)];
    // What is written as a number needs no label; a claim of two such does.
    let plain = |n: &Number| matches!(n.kind, NumberKind::Known(_));
    let all = sides.iter().all(|(n, _)| plain(n));
    let told = sides.iter().filter(|(n, _)| all || !plain(n));
    let labels = told.map(|(n, v)| (n.span, monarch_check::show(v))).collect();
    Some(Broken { title, labels, help: None })
}

/// The elements of two tensors side by side; the one with fewer axes is repeated.
struct Pairs<'t> {
    a: &'t Tensor,
    b: &'t Tensor,
}

impl Pairs<'_> {
    fn len(&self) -> usize {
        match self.a.len().min(self.b.len()) {
            0 => 0,
            _ => self.a.len().max(self.b.len()),
        }
    }

    /// Elements beside one another: one side's axes are a trailing part of the other's.
    fn places(&self, i: usize) -> (usize, usize) {
        (i % self.a.len().max(1), i % self.b.len().max(1))
    }

    fn get(&self, i: usize) -> (f64, f64) {
        let (a, b) = self.places(i);
        (self.a.get(a).unwrap_or(f64::NAN), self.b.get(b).unwrap_or(f64::NAN))
    }

    fn larger(&self) -> &Tensor {
        if self.a.shape.len() >= self.b.shape.len() { self.a } else { self.b }
    }

    /// `[0, 5]` for the number of an element.
    fn index(&self, mut i: usize) -> String {
        let mut parts = Vec::new();
        for length in self.larger().shape.iter().rev() {
            let length = (*length).max(1) as usize;
            parts.push((i % length).to_string());
            i /= length;
        }
        parts.reverse();
        format!("[{}]", parts.join(", "))
    }

    /// What stands on both sides at element `i`.
    fn labels(&self, i: usize, left: &Expr, right: &Expr) -> Vec<(Span, String)> {
        let (a, b) = self.places(i);
        let one = self.larger().shape.is_empty();
        let at = |span: Span, tensor: &Tensor, i: usize, ty: &TensorType| match one {
            true => (span, tensor.text(i)),
            false => (
                span,
                format!("{} at {}: {}", type_text(ty), self.index_of(tensor, i), tensor.text(i)),
            ),
        };
        vec![at(left.span, self.a, a, &left.ty), at(right.span, self.b, b, &right.ty)]
    }

    fn index_of(&self, tensor: &Tensor, i: usize) -> String {
        Pairs { a: tensor, b: tensor }.index(i)
    }

    /// The largest distance and where it is. A difference that is no number is the largest.
    fn furthest(&self) -> Option<(usize, f64)> {
        let distance = |i: usize| {
            let (a, b) = self.get(i);
            // Two infinities of one sign are the same; their difference would be no number.
            if a == b { 0.0 } else { (a - b).abs() }
        };
        (0..self.len()).map(|i| (i, distance(i))).reduce(|best, next| {
            let further = next.1.is_nan() || next.1 > best.1;
            if !best.1.is_nan() && further { next } else { best }
        })
    }
}

fn compare_tensors(
    op: CompareOp,
    (left, a): (&Expr, &Tensor),
    (right, b): (&Expr, &Tensor),
) -> Option<Broken> {
    let pairs = Pairs { a, b };
    let wrong = |i: &usize| {
        let (a, b) = pairs.get(*i);
        !holds(op, a, b)
    };
    let n = pairs.len();
    let first = (0..n).find(wrong)?;
    let count = (0..n).filter(wrong).count();
    let elements = match n {
        1 => "this does not hold".to_owned(),
        n => format!("this does not hold for {count} of {n} elements"),
    };
    let places = pairs.places(first);
    let title = match n {
        1 => format!("{elements}: {} {} {}", a.text(places.0), symbol(op), b.text(places.1)),
        _ => elements,
    };
    let far = pairs.furthest().filter(|_| op == CompareOp::Eq && n > 1);
    let help = far.map(|(i, distance)| {
        let advice = match distance <= 1e-3 {
            true => "; `near(a, b, within = ..)` allows for rounding",
            false => "",
        };
        format!("the largest difference is {} at {}{advice}", shown(distance), pairs.index(i))
    });
    Some(Broken { title, labels: pairs.labels(first, left, right), help })
}

fn far((left, a): (&Expr, &Tensor), (right, b): (&Expr, &Tensor), within: f64) -> Option<Broken> {
    let pairs = Pairs { a, b };
    // A difference that is no number is not near either.
    let beyond = |distance: f64| distance > within || distance.is_nan();
    let (i, distance) = pairs.furthest().filter(|(_, distance)| beyond(*distance))?;
    let title = format!("these are up to {} apart, more than {}", shown(distance), shown(within));
    Some(Broken { title, labels: pairs.labels(i, left, right), help: None })
}

fn shown(x: f64) -> String {
    match x != 0.0 && (x.abs() < 1e-3 || x.abs() >= 1e7) {
        true => {
            let text = format!("{x:.3e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
        }
        false => format!("{x:.6}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// `[1, T, 65]`
fn type_text(ty: &TensorType) -> String {
    let name = |a: &monarch_check::hir::Axis| {
        let number = || a.size.as_number().map_or("?".to_owned(), |n| n.to_string());
        a.name.clone().unwrap_or_else(number)
    };
    format!("[{}]", ty.axes.iter().map(name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::tensor::Data;
    use super::*;

    fn tensor(shape: &[u64], data: &[f32]) -> Tensor {
        Tensor { shape: shape.to_vec(), data: Data::F32(data.to_vec()) }
    }

    #[test]
    fn pairs_repeat_the_smaller_side() {
        let (a, b) = (tensor(&[2, 2], &[1., 2., 3., 5.]), tensor(&[2], &[1., 2.]));
        let pairs = Pairs { a: &a, b: &b };
        assert_eq!((pairs.len(), pairs.get(3)), (4, (5.0, 2.0)));
        assert_eq!(pairs.furthest(), Some((3, 3.0)));
        assert_eq!(pairs.index(2), "[1, 0]");
    }

    #[test]
    fn what_is_no_number_is_far() {
        let (a, b) = (tensor(&[2], &[f32::NAN, 1.]), tensor(&[2], &[0., 9.]));
        let furthest = Pairs { a: &a, b: &b }.furthest();
        assert!(furthest.is_some_and(|(i, d)| i == 0 && d.is_nan()));
        let inf = tensor(&[1], &[f32::INFINITY]);
        assert_eq!(Pairs { a: &inf, b: &inf }.furthest(), Some((0, 0.0)));
    }

    #[test]
    fn distances_for_people() {
        assert_eq!(shown(0.25), "0.25");
        assert_eq!(shown(1.2345e-6), "1.234e-6");
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(1e-5), "1e-5");
    }
}
