//! How a weight begins: `~ normal(0.02)`, `~ if bias { zeros } else { none }`.

use crate::calls::bare;
use crate::hir::{Static, StaticEnv, Value};
use crate::layers::LayerNames;
use crate::scope::{Checker, Entity};
use crate::statics::{Names, Ty};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Init;
use monarch_syntax::ast::{Arg, Expr, ExprKind, Ident};
use std::rc::Rc;

/// The beginning of a weight, before numbers.
#[derive(Clone, Debug)]
pub(crate) enum InitSpec {
    Zeros,
    Ones,
    Constant(Static),
    Normal(Static),
    Uniform(Static),
    TruncatedNormal(Static),
    Orthogonal(Static),
    Eye,
    /// Variance gain^2 / mean of the fans that count.
    Fan {
        normal: bool,
        fans: Fans,
        gain: Static,
    },
    /// There is no weight.
    Absent,
    If(Static, Box<InitSpec>, Box<InitSpec>),
}

/// Which fans a variance is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fans {
    /// Glorot & Bengio 2010: the mean of both.
    Both,
    /// He et al. 2015.
    In,
}

impl Fans {
    /// Of a weight whose last axis is its output: all axes but the last are its input; the axes
    /// before the last two (a window's) count for the output too.
    fn of(self, shape: &[u64]) -> f64 {
        let product = |axes: &[u64]| axes.iter().map(|&n| n as f64).product::<f64>();
        let fan_in = product(&shape[..shape.len().saturating_sub(1)]);
        let window = product(&shape[..shape.len().saturating_sub(2)]);
        let fan_out = window * shape.last().map_or(1.0, |&n| n as f64);
        match self {
            Fans::Both => (fan_in + fan_out) / 2.0,
            Fans::In => fan_in,
        }
    }
}

impl InitSpec {
    /// When the weight exists; None for always.
    pub fn exists(&self) -> Option<Static> {
        match self.existence() {
            Static::Value(Value::Bool(true)) => None,
            other => Some(other),
        }
    }

    fn existence(&self) -> Static {
        let yes = || Static::Value(Value::Bool(true));
        match self {
            InitSpec::Absent => Static::Value(Value::Bool(false)),
            InitSpec::If(c, a, b) => match (a.existence(), b.existence()) {
                (Static::Value(Value::Bool(x)), Static::Value(Value::Bool(y))) if x == y => {
                    Static::Value(Value::Bool(x))
                }
                (Static::Value(Value::Bool(true)), Static::Value(Value::Bool(false))) => c.clone(),
                (Static::Value(Value::Bool(false)), Static::Value(Value::Bool(true))) => {
                    Static::Not(Box::new(c.clone()))
                }
                (a, b) => Static::If(Box::new(c.clone()), Box::new(a), Box::new(b)),
            },
            _ => yes(),
        }
    }

    /// With numbers, for a weight of this shape; None if there is no weight.
    pub fn with(&self, env: &StaticEnv, shape: &[u64]) -> Result<Option<Init>, String> {
        let number = |s: &Static| s.number(env).map_err(|e| e.to_string());
        let spread = |s: &Static| match number(s)? {
            x if x < 0.0 => Err(format!("the spread of a distribution is not negative: {x}")),
            x => Ok(x),
        };
        Ok(Some(match self {
            InitSpec::Absent => return Ok(None),
            InitSpec::Zeros => Init::Zeros,
            InitSpec::Ones => Init::Ones,
            InitSpec::Constant(s) => Init::Constant(number(s)?),
            InitSpec::Normal(s) => Init::Normal(spread(s)?),
            InitSpec::Uniform(s) => Init::Uniform(spread(s)?),
            InitSpec::TruncatedNormal(s) => Init::TruncatedNormal(spread(s)?),
            InitSpec::Orthogonal(s) if shape.len() >= 2 => Init::Orthogonal(number(s)?),
            InitSpec::Eye if shape.len() == 2 => Init::Eye,
            InitSpec::Orthogonal(_) | InitSpec::Eye => {
                return Err(format!(
                    "this is for matrices, and the weight has {} axes",
                    shape.len()
                ));
            }
            InitSpec::Fan { .. } if shape.len() < 2 => {
                return Err("the fans of a weight need two axes, of input and of output".into());
            }
            InitSpec::Fan { normal, fans, gain } => {
                let deviation = spread(gain)? / fans.of(shape).sqrt();
                match normal {
                    true => Init::Normal(deviation),
                    false => Init::Uniform(3f64.sqrt() * deviation),
                }
            }
            InitSpec::If(c, a, b) => {
                let holds = c.truth(env).map_err(|e| e.to_string())?;
                return if holds { a.with(env, shape) } else { b.with(env, shape) };
            }
        }))
    }
}

impl Checker<'_> {
    pub fn init_spec(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        expr: &Expr,
    ) -> Option<InitSpec> {
        match &bare(expr).kind {
            ExprKind::Name(name) => self.init_call(file, names, name, expr, &[]),
            ExprKind::Call(callee, args) => match &callee.kind {
                ExprKind::Name(name) => self.init_call(file, names, name, expr, args),
                _ => self.no_init(expr),
            },
            ExprKind::If(c) => {
                let condition = self.layer_static(file, names, &c.condition, Ty::Bool);
                let yes = self.init_spec(file, names, &c.yes);
                let no = self.init_spec(file, names, &c.no);
                Some(InitSpec::If(condition?, Box::new(yes?), Box::new(no?)))
            }
            ExprKind::Broken => None,
            _ => self.no_init(expr),
        }
    }

    fn no_init(&mut self, expr: &Expr) -> Option<InitSpec> {
        self.report(
            Diagnostic::error("M0111", "this does not say how the weight begins")
                .label(expr.span, "not a distribution")
                .help(format!("one of: {}", all().join(", "))),
        );
        None
    }

    /// A static value in a layer, of this type.
    pub fn layer_static(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        expr: &Expr,
        ty: Ty,
    ) -> Option<Static> {
        let local = |n: &str| names.get(n);
        let names = Names { file, local: &local, all: &|| names.words() };
        self.fixed_of(&names, expr, ty).map(|t| t.value)
    }

    fn init_call(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        name: &Ident,
        expr: &Expr,
        args: &[Arg],
    ) -> Option<InitSpec> {
        let op = match self.lookup(file, &name.name) {
            Some(Entity::Op(op)) if self.op_result(op) == Some("init") => op,
            Some(Entity::Broken) => return None,
            _ => {
                let all = all();
                let title = format!("no weight begins as `{}`", name.name);
                let d = Diagnostic::error("M0106", title).label(name.span, "unknown distribution");
                self.report(match suggest(&name.name, all.iter().copied()) {
                    Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
                    None => d.help(format!("one of: {}", all.join(", "))),
                });
                return None;
            }
        };
        let matched = self.match_op(op, expr.span, args, 0)?;
        let field = self.ops[op].ast.fields.first();
        let first = match (matched.first(), field.and_then(|f| f.default.as_ref())) {
            (Some(Some(arg)), _) => Some(self.layer_static(file, names, &arg.value, Ty::Number)?),
            (_, Some(default)) => {
                Some(Static::Value(self.plain_value(self.ops[op].file, default)?))
            }
            _ => None,
        };
        let fan = |normal, fans, gain| InitSpec::Fan { normal, fans, gain };
        Some(match (name.name.as_str(), first) {
            ("zeros", _) => InitSpec::Zeros,
            ("ones", _) => InitSpec::Ones,
            ("none", _) => InitSpec::Absent,
            ("normal", Some(s)) => InitSpec::Normal(s),
            ("uniform", Some(s)) => InitSpec::Uniform(s),
            ("constant", Some(s)) => InitSpec::Constant(s),
            ("truncated_normal", Some(s)) => InitSpec::TruncatedNormal(s),
            ("orthogonal", Some(s)) => InitSpec::Orthogonal(s),
            ("eye", _) => InitSpec::Eye,
            ("xavier_normal", Some(s)) => fan(true, Fans::Both, s),
            ("xavier_uniform", Some(s)) => fan(false, Fans::Both, s),
            ("kaiming_normal", Some(s)) => fan(true, Fans::In, s),
            ("kaiming_uniform", Some(s)) => fan(false, Fans::In, s),
            _ => return self.no_init(expr),
        })
    }
}

/// All ways to begin.
fn all() -> Vec<&'static str> {
    crate::library::module("std.init")
        .map_or_else(Vec::new, |t| crate::reference::names(t).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fans_are_those_of_the_papers() {
        // A linear map, and a convolution of 3 x 3 from 8 to 16 channels.
        assert_eq!((Fans::In.of(&[6, 4]), Fans::Both.of(&[6, 4])), (6.0, 5.0));
        assert_eq!((Fans::In.of(&[3, 3, 8, 16]), Fans::Both.of(&[3, 3, 8, 16])), (72.0, 108.0));
        let env = StaticEnv { sizes: &[], fields: &[] };
        let gain = Static::Value(Value::Float(2f64.sqrt()));
        let he = InitSpec::Fan { normal: true, fans: Fans::In, gain };
        assert_eq!(he.with(&env, &[8, 4]), Ok(Some(Init::Normal(2f64.sqrt() / 8f64.sqrt()))));
        assert!(he.with(&env, &[8]).is_err());
        let glorot =
            InitSpec::Fan { normal: false, fans: Fans::Both, gain: Static::Value(Value::Int(1)) };
        let bound = (6.0f64 / 12.0).sqrt();
        match glorot.with(&env, &[8, 4]) {
            Ok(Some(Init::Uniform(x))) => assert!((x - bound).abs() < 1e-15),
            other => panic!("{other:?}"),
        }
    }
}
