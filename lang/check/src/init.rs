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
    /// There is no weight.
    Absent,
    If(Static, Box<InitSpec>, Box<InitSpec>),
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

    /// With numbers; None if there is no weight.
    pub fn with(&self, env: &StaticEnv) -> Result<Option<Init>, String> {
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
            InitSpec::If(c, a, b) => {
                let holds = c.truth(env).map_err(|e| e.to_string())?;
                return if holds { a.with(env) } else { b.with(env) };
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
                .help("one of: normal(std), uniform(bound), zeros, ones, constant(value), none"),
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
                let all = ["normal", "uniform", "zeros", "ones", "constant", "none"];
                let title = format!("no weight begins as `{}`", name.name);
                let d = Diagnostic::error("M0106", title).label(name.span, "unknown distribution");
                self.report(match suggest(&name.name, all) {
                    Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
                    None => d.help(format!("one of: {}", all.join(", "))),
                });
                return None;
            }
        };
        let matched = self.match_op(op, expr.span, args, 0)?;
        let first = match matched.first() {
            Some(Some(arg)) => Some(self.layer_static(file, names, &arg.value, Ty::Number)?),
            _ => None,
        };
        Some(match (name.name.as_str(), first) {
            ("zeros", _) => InitSpec::Zeros,
            ("ones", _) => InitSpec::Ones,
            ("none", _) => InitSpec::Absent,
            ("normal", Some(s)) => InitSpec::Normal(s),
            ("uniform", Some(s)) => InitSpec::Uniform(s),
            ("constant", Some(s)) => InitSpec::Constant(s),
            _ => return self.no_init(expr),
        })
    }
}
