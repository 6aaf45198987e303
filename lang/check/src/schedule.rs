//! Optimizers and learning rates.

use crate::hir::{Quantity, Unit, Value};
use crate::optimizer::OptimValue;
use crate::registry::TRAIN;
use crate::scope::{Checker, Entity};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use crate::train::Pace;
use crate::units;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Curve, Piece, Schedule, Span};
use monarch_syntax::ast::{self, Arg, BinaryOp, Expr, ExprKind};

/// A piece of a schedule before its length is known.
struct PieceSpec {
    name: String,
    to: f64,
    from: Option<f64>,
    length: Option<(Quantity, Span)>,
    factor: f64,
    every: Option<(Quantity, Span)>,
    span: Span,
}

impl PieceSpec {
    fn new(name: String, to: f64, span: Span) -> PieceSpec {
        PieceSpec { name, to, from: None, length: None, factor: 1.0, every: None, span }
    }
}

impl<'a> Checker<'a> {
    /// The function of the library that a call names, if it gives `kind`.
    pub fn library_call(
        &mut self,
        file: u32,
        expr: &'a Expr,
        kind: &str,
        needed: &str,
    ) -> Option<(usize, &'a [Arg])> {
        let (callee, args): (&Expr, &'a [Arg]) = match &crate::calls::bare(expr).kind {
            ExprKind::Call(callee, args) => (callee, args),
            ExprKind::Broken => return None,
            _ => (expr, &[]),
        };
        let (name, entity) = match &crate::calls::bare(callee).kind {
            ExprKind::Name(name) => (name, self.lookup(file, &name.name)),
            ExprKind::Member(base, member) => {
                let module = crate::calls::as_name(base).and_then(|n| self.lookup(file, &n.name));
                match module {
                    Some(Entity::Module(id)) => (member, Some(self.member_of(id, member))),
                    _ => return self.no_library_call(expr, needed),
                }
            }
            _ => return self.no_library_call(expr, needed),
        };
        match entity {
            Some(Entity::Op(op)) if self.op_result(op) == Some(kind) => Some((op, args)),
            Some(Entity::Op(_)) => {
                let title = format!("`{}` is not {needed}", name.name);
                self.report(Diagnostic::error("M0124", title).label(name.span, "another function"));
                None
            }
            Some(other) => {
                self.wrong_entity(name, other, needed);
                None
            }
            None => {
                let more = crate::library::module("std.optim").unwrap_or_default();
                let near = monarch_diagnostic::suggest(&name.name, crate::reference::names(more));
                let exists = near.is_some_and(|n| self.lookup(file, n).is_none());
                match (near, exists) {
                    (Some(near), true) => {
                        let title = format!("nothing here is called `{}`", name.name);
                        self.report(
                            Diagnostic::error("M0106", title)
                                .label(name.span, "unknown name")
                                .help(format!("did you mean `{near}`? add `use std.optim.{near}`")),
                        );
                    }
                    _ => self.unknown_name(file, name, &[]),
                }
                None
            }
        }
    }

    fn no_library_call<T>(&mut self, expr: &Expr, needed: &str) -> Option<T> {
        let title = format!("{needed} is needed here");
        self.report(Diagnostic::error("M0124", title).label(expr.span, "something else"));
        None
    }

    pub fn schedule(
        &mut self,
        file: u32,
        block: &'a ast::Block,
        given: &Settings<'a>,
        optim: Option<&Option<OptimValue<'a>>>,
        pace: Option<Pace>,
        steps: Option<u64>,
    ) -> Option<Schedule> {
        let own = given.values.get("lr").copied();
        let inner = optim.and_then(|o| o.as_ref()).and_then(|o| o.lr);
        let expr = match (own, inner) {
            (Some(a), Some(b)) => {
                self.report(
                    Diagnostic::error("M0504", "the learning rate is given twice")
                        .label(b.span, "again here")
                        .label(a.span, "first here")
                        .help("take it out of the optimizer"),
                );
                return None;
            }
            (Some(e), None) | (None, Some(e)) => e,
            (None, None) => {
                if matches!(optim, Some(Some(_))) {
                    self.missing(block, &TRAIN, "lr", given);
                }
                return None;
            }
        };
        self.state.read.clear();
        let mut specs = Vec::new();
        let fine = self.pieces(file, expr, &mut specs);
        self.remember("train.lr", expr);
        if !fine {
            return None;
        }
        self.resolve_pieces(given, &specs, pace, steps)
    }

    /// The pieces of a chain, in order. False if something was reported.
    fn pieces(&mut self, file: u32, expr: &'a Expr, out: &mut Vec<PieceSpec>) -> bool {
        match &crate::calls::bare(expr).kind {
            ExprKind::Binary(BinaryOp::Then, _, a, b) => {
                let first = self.pieces(file, a, out);
                self.pieces(file, b, out) && first
            }
            ExprKind::Call(callee, args) if !is_math(callee) => {
                match self.piece(file, expr, args) {
                    Some(piece) => {
                        out.push(piece);
                        true
                    }
                    None => false,
                }
            }
            _ => {
                let Some(value) = self.plain_value(file, expr) else { return false };
                match value.number().filter(|x| *x >= 0.0) {
                    Some(to) => {
                        out.push(PieceSpec::new("constant".to_owned(), to, expr.span));
                        true
                    }
                    None => {
                        let title =
                            format!("a learning rate is a number from 0, not {}", show(&value));
                        self.report(
                            Diagnostic::error("M0111", title)
                                .label(expr.span, type_of(&value).noun()),
                        );
                        false
                    }
                }
            }
        }
    }

    fn piece(&mut self, file: u32, expr: &'a Expr, _args: &'a [Arg]) -> Option<PieceSpec> {
        let (op, args) = self.library_call(file, expr, "schedule", "a schedule")?;
        let name = self.op_name(op).to_owned();
        let matched = self.match_op(op, expr.span, args, 0)?;
        let ast = self.ops[op].ast;
        let mut piece = PieceSpec::new(name, 0.0, expr.span);
        let mut fine = true;
        for (field, arg) in ast.fields.iter().zip(matched) {
            let Some(arg) = arg else { continue };
            let value = self.plain_value(file, &arg.value);
            let Some(value) = value else {
                fine = false;
                continue;
            };
            let at = arg.value.span;
            match (field.name.name.as_str(), &value) {
                ("length" | "every", Value::Quantity(q))
                    if !matches!(q.unit, Unit::Bytes | Unit::Seconds | Unit::BytesPerSecond) =>
                {
                    let place = match field.name.name.as_str() {
                        "every" => &mut piece.every,
                        _ => &mut piece.length,
                    };
                    *place = Some((*q, at));
                }
                ("length" | "every", other) => {
                    let title = format!(
                        "a length is steps, epochs, tokens or a share, not {}",
                        show(other)
                    );
                    self.report(
                        Diagnostic::error("M0103", title)
                            .label(at, type_of(other).noun())
                            .help("`100 steps`, or `2%` of the run"),
                    );
                    fine = false;
                }
                (what, v) => match v.number().filter(|x| *x >= 0.0) {
                    Some(x) if what == "from" => piece.from = Some(x),
                    Some(x) if what == "factor" => piece.factor = x,
                    Some(x) => piece.to = x,
                    None => {
                        let title = format!("`{what}` is a number from 0, not {}", show(v));
                        self.report(Diagnostic::error("M0111", title).label(at, type_of(v).noun()));
                        fine = false;
                    }
                },
            }
        }
        fine.then_some(piece)
    }

    /// Steps of a piece, a fraction that is not nothing; a share is one of the whole run.
    fn piece_steps(&mut self, q: Quantity, at: Span, pace: Pace, steps: u64) -> Option<f64> {
        let exact = match q.unit {
            Unit::Share => q.amount * steps as f64,
            _ => self.steps_of(q, pace, at)?,
        };
        if exact < 0.5 {
            let title = format!("a piece lasts at least one step: {} is none", units::show(q));
            self.report(Diagnostic::error("M0505", title).label(at, "no length"));
            return None;
        }
        Some(exact)
    }

    /// The nearest number of steps. Nothing is rounded without a word.
    pub fn rounded(&mut self, exact: f64, at: Span, what: &str) -> f64 {
        let steps = exact.round();
        if (exact - steps).abs() > 1e-9 {
            let title = format!("{what} is {exact:.2} steps, rounded to {steps}");
            self.report(Diagnostic::note("M0508", title).label(at, "no whole number of steps"));
        }
        steps
    }

    fn resolve_pieces(
        &mut self,
        given: &Settings<'a>,
        specs: &[PieceSpec],
        pace: Option<Pace>,
        steps: Option<u64>,
    ) -> Option<Schedule> {
        let (pace, steps) = (pace?, steps?);
        let mut pieces = Vec::new();
        let mut at = 0u64;
        let mut value: Option<f64> = None;
        for (i, spec) in specs.iter().enumerate() {
            let is_last = i + 1 == specs.len();
            let length = match &spec.length {
                None if is_last => steps.saturating_sub(at),
                None => {
                    let title = format!("`{}` does not say how long it lasts", spec.name);
                    self.report(
                        Diagnostic::error("M0502", title)
                            .label(spec.span, "only the last piece may go on to the end")
                            .help("give it a length: `100 steps`, or `2%` of the run"),
                    );
                    return None;
                }
                Some((q, span)) => {
                    let exact = self.piece_steps(*q, *span, pace, steps)?;
                    let length = exact.round().clamp(1.0, 1e15) as u64;
                    let end = at.saturating_add(length);
                    let short = end > steps || (end == steps && !is_last);
                    if short {
                        self.run_too_short(given, spec, *span, length, steps, pace);
                        return None;
                    }
                    self.rounded(exact, *span, "the piece");
                    length
                }
            };
            let curve = self.curve(spec, spec.from.or(value), at, pace, steps)?;
            pieces.push(Piece { curve, length });
            value = Some(curve.at(length, length));
            at += length;
        }
        Some(Schedule { pieces })
    }

    /// The curve of a piece that begins at step `at`, `from` this rate.
    fn curve(
        &mut self,
        spec: &PieceSpec,
        from: Option<f64>,
        at: u64,
        pace: Pace,
        steps: u64,
    ) -> Option<Curve> {
        Some(match (spec.name.as_str(), from) {
            ("constant", _) => Curve::Constant(spec.to),
            ("warmup", _) => Curve::Warmup { to: spec.to },
            ("cosine", Some(from)) => Curve::Cosine { from, to: spec.to },
            ("linear", Some(from)) => Curve::Linear { from, to: spec.to },
            ("exponential", Some(from)) => {
                if from <= 0.0 || spec.to <= 0.0 {
                    self.report(
                        Diagnostic::error("M0112", "an exponential lies between rates above 0")
                            .label(spec.span, "one of its ends is 0")
                            .help("`linear(to = 0)` and `cosine(to = 0)` reach 0"),
                    );
                    return None;
                }
                Curve::Exponential { from, to: spec.to }
            }
            ("step", Some(from)) => {
                let (q, span) = spec.every?;
                let exact = self.piece_steps(q, span, pace, steps)?;
                let every = self.rounded(exact, span, "the interval");
                let every = every.clamp(1.0, 1e15) as u64;
                Curve::Step { from, factor: spec.factor, every }
            }
            ("inverse_sqrt", Some(from)) if at > 0 => Curve::InverseSqrt { from, after: at },
            (name, _) => {
                let title = format!("`{name}` has nothing to start from");
                let help = match name {
                    "inverse_sqrt" => {
                        "warm up first: `warmup(to = 1e-3, 4000 steps) then inverse_sqrt()`"
                            .to_owned()
                    }
                    "step" => "say it: `step(from = 1e-3, ..)`".to_owned(),
                    _ => format!("say it: `{name}(from = 1e-3, to = ..)`"),
                };
                let d = Diagnostic::error("M0502", title).label(spec.span, "the first piece");
                self.report(d.help(help));
                return None;
            }
        })
    }

    fn run_too_short(
        &mut self,
        given: &Settings<'a>,
        spec: &PieceSpec,
        at: Span,
        length: u64,
        steps: u64,
        pace: Pace,
    ) {
        let title = match spec.name.as_str() {
            "warmup" => "the run ends before its warmup does".to_owned(),
            name => format!("the run ends before its `{name}` does"),
        };
        let tokens = |amount: f64| units::show(Quantity { amount, unit: Unit::Tokens });
        let label = match pace.has_tokens {
            false => format!("{length} steps"),
            true => {
                let (step, all) = (pace.tokens_per_step, length as f64 * pace.tokens_per_step);
                format!("{length} steps x {} = {}", tokens(step), tokens(all))
            }
        };
        let mut d = Diagnostic::error("M0503", title).label(at, label);
        if let Some(until) = given.values.get("until") {
            let mut place = (until.span, format!("the run is {steps} steps"));
            if let Some(name) = crate::calls::as_name(until)
                && let Some(Entity::Param(id)) = self.lookup(until.span.file, &name.name)
            {
                place.0 = self.param_label(id).0;
            }
            d = d.label(place.0, place.1);
        }
        // The whole piece with its length as a share: `warmup(to = lr, 2%)`.
        let share = format!("{}%", if steps >= 50 { 2 } else { 100 / steps.max(1) });
        let before = self.loaded.sources.slice(Span { end: at.start, ..spec.span });
        let after = self.loaded.sources.slice(Span { start: at.end, ..spec.span });
        let whole = format!("{before}{share}{after}");
        let text = format!("shorten it, or say it as a share of the run: `{whole}`");
        self.report(d.fix(text, at, share));
    }
}

fn is_math(callee: &Expr) -> bool {
    crate::calls::as_name(callee).is_some_and(|n| crate::statics::math_fn(&n.name).is_some())
}
