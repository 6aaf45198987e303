//! `on eval.accuracy(above = 98%) => stop`.

use crate::hir::{Eval, ExprKind as H, Objective, Op, Unit, Value};
use crate::registry::{ACTIONS, EVENTS};
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{Action, Rule};
use monarch_syntax::ast::{self, Expr, ExprKind};

/// Whether a metric is the share of samples for which a comparison holds.
fn is_share(metric: &Objective) -> bool {
    metric.weight.is_none()
        && matches!(&metric.function.result.kind, H::Op { op: Op::Compare(_), .. })
}

impl<'a> Checker<'a> {
    pub fn rules(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        metrics: &[String],
        eval: Option<&Option<Eval>>,
    ) -> Option<Vec<Rule>> {
        let mut known = vec!["loss".to_owned()];
        if eval.is_some() || given.blocks.contains_key("eval") {
            known.push("eval.loss".to_owned());
            known.extend(metrics.iter().map(|m| format!("eval.{m}")));
        }
        let metrics = eval.into_iter().flatten().flat_map(|e| &e.metrics);
        let shares: Vec<String> =
            metrics.filter(|m| is_share(m)).map(|m| format!("eval.{}", m.name)).collect();
        let mut out = Some(Vec::new());
        for hook in &given.hooks {
            match (self.rule(file, hook, &known, &shares), &mut out) {
                (Some(rule), Some(list)) => list.push(rule),
                _ => out = None,
            }
        }
        out
    }

    fn rule(
        &mut self,
        file: u32,
        hook: &'a ast::Hook,
        known: &[String],
        shares: &[String],
    ) -> Option<Rule> {
        let event = hook.event.text();
        let is_metric = known.contains(&event);
        if !is_metric && !EVENTS.contains(&event.as_str()) {
            self.unknown_event(&hook.event, known);
            return None;
        }
        if let ExprKind::Rhai(rhai) = &hook.action.kind {
            self.report(
                Diagnostic::error("M0905", "hooks in Rhai are not built yet")
                    .label(rhai.span, "this hook")
                    .help("`on metric(above = ..) => stop` and `=> checkpoint` are"),
            );
            return None;
        }
        if !is_metric {
            self.report(
                Diagnostic::error("M0905", format!("waiting for `{event}` is not built yet"))
                    .label(hook.event.span, "this event")
                    .help(format!("rules on metrics are: {}", known.join(", "))),
            );
            return None;
        }
        let action = self.action(&hook.action);
        let (mut above, mut below) = (None, None);
        for arg in &hook.args {
            let slot = match arg.name.as_ref().map(|n| n.name.as_str()) {
                Some("above") => &mut above,
                Some("below") => &mut below,
                _ => {
                    self.rule_arg(arg);
                    return None;
                }
            };
            *slot = Some(self.bound(file, &event, &arg.value, shares)?);
        }
        if above.is_none() && below.is_none() {
            self.report(
                Diagnostic::error("M0118", format!("when should `{event}` do this?"))
                    .label(hook.event.span, "no bound")
                    .help(format!("write `on {event}(above = 98%) => ..` or `below`")),
            );
            return None;
        }
        Some(Rule { metric: event, above, below, action: action?, span: hook.span })
    }

    /// The number a metric is compared with.
    fn bound(&mut self, file: u32, event: &str, expr: &Expr, shares: &[String]) -> Option<f64> {
        let value = self.plain_value(file, expr)?;
        let number = match &value {
            Value::Quantity(q) if q.unit == Unit::Share => Some(q.amount),
            other => other.number(),
        };
        let Some(n) = number else {
            let title = format!("a bound is a number or a share, not {}", show(&value));
            let d = Diagnostic::error("M0103", title);
            self.report(d.label(expr.span, type_of(&value).noun()));
            return None;
        };
        if (0.0..=1.0).contains(&n) || !shares.iter().any(|s| s == event) {
            return Some(n);
        }
        let title = format!("`{event}` is a share, and never {}", show(&value));
        let d = Diagnostic::error("M0112", title).label(expr.span, "out of reach");
        let share = format!("{}%", self.loaded.sources.slice(expr.span));
        let percent = (1.0..=100.0).contains(&n) && !matches!(value, Value::Quantity(_));
        self.report(match percent {
            true => d.fix(format!("did you mean `{share}`?"), expr.span, share),
            false => d.help("it lies between 0% and 100%"),
        });
        None
    }

    fn rule_arg(&mut self, arg: &ast::Arg) {
        match &arg.name {
            Some(name) => {
                let title = format!("a rule has no `{}`", name.name);
                let d = Diagnostic::error("M0117", title).label(name.span, "unknown argument");
                let all = ["above", "below"].into_iter();
                self.report(with_near(d, name, all, "it has"));
            }
            None => self.report(
                Diagnostic::error("M0118", "a bound says which side it is on")
                    .label(arg.span, "`above` or `below`?"),
            ),
        }
    }

    fn unknown_event(&mut self, event: &ast::Path, known: &[String]) {
        let text = event.text();
        let all = EVENTS.iter().copied().chain(known.iter().map(String::as_str));
        let near = suggest(&text, all.clone());
        // The part that is wrong: `eval.acuracy` is right up to the dot.
        let good = |n: usize| {
            let head: Vec<&str> = event.parts[..n].iter().map(|p| p.name.as_str()).collect();
            let head = format!("{}.", head.join("."));
            all.clone().any(|e| e.starts_with(&head))
        };
        let n = (1..event.parts.len()).take_while(|n| good(*n)).last().unwrap_or(0);
        let at = event.parts.get(n).map_or(event.span, |p| p.span);
        let d = Diagnostic::error("M0110", format!("nothing called `{text}` ever happens"))
            .label(at, "unknown event");
        let others: Vec<&str> = all.filter(|e| Some(*e) != near).collect();
        let d = match near {
            Some(near) => {
                let help = format!("did you mean `{near}`? also: {}", others.join(", "));
                d.fix(help, event.span, near)
            }
            None => d.help(format!("there are: {}", others.join(", "))),
        };
        self.report(d);
    }

    fn action(&mut self, expr: &Expr) -> Option<Action> {
        let expr = match &crate::calls::bare(expr).kind {
            ExprKind::Call(callee, args) if args.is_empty() => callee,
            _ => expr,
        };
        let Some(name) = crate::calls::as_name(expr) else {
            self.report(
                Diagnostic::error("M0905", "this action is not built yet")
                    .label(expr.span, "`stop` and `checkpoint` are"),
            );
            return None;
        };
        match name.name.as_str() {
            "stop" => Some(Action::Stop),
            "checkpoint" => Some(Action::Checkpoint),
            "note" | "set" | "rollback" | "pause" => {
                self.report(
                    Diagnostic::error("M0905", format!("`{}` is not built yet", name.name))
                        .label(name.span, "`stop` and `checkpoint` are"),
                );
                None
            }
            _ => {
                let title = format!("no rule can `{}`", name.name);
                let d = Diagnostic::error("M0110", title).label(name.span, "unknown action");
                self.report(with_near(d, name, ACTIONS.iter().copied(), "it can"));
                None
            }
        }
    }
}
