//! Rules on metrics: `on eval.accuracy(above = 98%) => stop`; and all other `on`.

use crate::events::{EVENTS, MAIN_EVENTS, METRICS, REQUIRED};
use crate::hir::{
    Eval, ExprKind as H, Hook, HookAction, HookEvent, Objective, Op, Request, Unit, Value,
};
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use crate::train::Pace;
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{Action, Rule, Span};
use monarch_syntax::ast::{self, Expr};

/// Whether a metric is the share of samples for which a comparison holds.
fn is_share(metric: &Objective) -> bool {
    metric.weight.is_none()
        && matches!(&metric.function.result.kind, H::Op { op: Op::Compare(_), .. })
}

/// Metrics of a job, for `on`, `best` and hooks.
pub(crate) struct Known {
    /// `loss`, `eval.loss`, `eval.accuracy`: `on` takes them.
    pub watched: Vec<String>,
    /// Those of them that lie between 0 and 1.
    shares: Vec<String>,
}

impl Known {
    pub fn of(evaluates: bool, metrics: &[String], eval: Option<&Eval>) -> Known {
        let mut watched = vec!["loss".to_owned()];
        if evaluates {
            watched.push("eval.loss".to_owned());
            watched.extend(metrics.iter().map(|m| format!("eval.{m}")));
        }
        let metrics = eval.into_iter().flat_map(|e| &e.metrics);
        let shares = metrics.filter(|m| is_share(m)).map(|m| format!("eval.{}", m.name));
        Known { watched, shares: shares.collect() }
    }

    /// All that a hook can read: these, and the numbers of every step.
    pub fn readable(&self) -> Vec<&str> {
        let own = self.watched.iter().map(String::as_str);
        own.chain(METRICS.iter().map(|m| m.0).filter(|m| *m != "loss")).collect()
    }
}

/// What an `on` is.
enum On {
    /// Carried out by the scheduler.
    Rule(Rule),
    Hook(Hook),
}

impl<'a> Checker<'a> {
    pub fn rules(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        known: &Known,
        pace: Option<Pace>,
    ) -> Option<(Vec<Rule>, Vec<Hook>)> {
        let (mut rules, mut hooks) = (Vec::new(), Vec::new());
        let mut fine = true;
        for hook in &given.hooks {
            match self.on(file, hook, known, pace) {
                Some(On::Rule(rule)) => rules.push(rule),
                Some(On::Hook(hook)) => hooks.push(hook),
                None => fine = false,
            }
        }
        fine.then_some((rules, hooks))
    }

    fn on(
        &mut self,
        file: u32,
        hook: &'a ast::Hook,
        known: &Known,
        pace: Option<Pace>,
    ) -> Option<On> {
        let event = hook.event.text();
        let found = match known.watched.contains(&event) {
            true => self.metric_event(file, hook, &event, known),
            false => self.plain_event(file, hook, &event, known, pace),
        };
        let action = self.hook_action(file, hook, known);
        let ((event, required), action) = (found?, action?);
        let act = match &action {
            HookAction::Ask(Request::Stop) => Some(Action::Stop),
            HookAction::Ask(Request::Checkpoint) => Some(Action::Checkpoint),
            _ => None,
        };
        let span = hook.span;
        match (event, act) {
            (HookEvent::Metric { name: metric, above, below }, Some(action)) => {
                Some(On::Rule(Rule { metric, above, below, action, span }))
            }
            (event, _) => {
                let help = "`on metric(above = ..) => stop` and `=> checkpoint` are carried out";
                let at = hook.event.span.to(hook.action.span);
                self.not_run_yet(at, &format!("`on {}` like this", hook.event.text()), help);
                Some(On::Hook(Hook { event, action, required, span }))
            }
        }
    }

    /// `eval.accuracy(above = 98%)`
    fn metric_event(
        &mut self,
        file: u32,
        hook: &'a ast::Hook,
        event: &str,
        known: &Known,
    ) -> Option<(HookEvent, bool)> {
        let (mut above, mut below, mut required) = (None, None, false);
        for arg in &hook.args {
            let slot = match arg.name.as_ref().map(|n| n.name.as_str()) {
                Some("above") => &mut above,
                Some("below") => &mut below,
                Some("required") => {
                    let one = std::slice::from_ref(arg);
                    let given = self.typed_args(file, event, &[REQUIRED], arg.span, one, None)?;
                    required = given.flag("required");
                    continue;
                }
                _ => {
                    self.rule_arg(arg);
                    return None;
                }
            };
            *slot = Some(self.bound(file, event, &arg.value, &known.shares)?);
        }
        if above.is_none() && below.is_none() {
            self.report(
                Diagnostic::error("M0118", format!("when should `{event}` do this?"))
                    .label(hook.event.span, "no bound")
                    .help(format!("write `on {event}(above = 98%) => ..` or `below`")),
            );
            return None;
        }
        Some((HookEvent::Metric { name: event.to_owned(), above, below }, required))
    }

    /// `step(every = 50 steps)`
    fn plain_event(
        &mut self,
        file: u32,
        hook: &'a ast::Hook,
        event: &str,
        known: &Known,
        pace: Option<Pace>,
    ) -> Option<(HookEvent, bool)> {
        let Some(doc) = EVENTS.iter().find(|e| e.name == event) else {
            self.unknown_event(&hook.event, known);
            return None;
        };
        let docs: Vec<_> = doc.args.iter().copied().chain([REQUIRED]).collect();
        let given = self.typed_args(file, event, &docs, hook.event.span, &hook.args, pace)?;
        let above = |default: f64| given.number("above").unwrap_or(default);
        let found = match event {
            "step" => HookEvent::Step { every: given.whole("every").unwrap_or(1) },
            "eval.done" => HookEvent::EvalDone,
            "checkpoint.done" => HookEvent::CheckpointDone,
            "worker.lost" => HookEvent::WorkerLost,
            "worker.joined" => HookEvent::WorkerJoined,
            "worker.slow" => HookEvent::WorkerSlow { above: above(0.2) },
            "loss.nan" => HookEvent::LossNan,
            "loss.spike" => {
                HookEvent::LossSpike { above: above(2.0), over: given.whole("over").unwrap_or(200) }
            }
            _ => HookEvent::Stop,
        };
        if found == HookEvent::EvalDone && known.watched.len() == 1 {
            self.never_happens(hook.event.span, "this job has no `eval`");
            return None;
        }
        Some((found, given.flag("required")))
    }

    fn never_happens(&mut self, at: Span, why: &str) {
        let d = Diagnostic::error("M0110", "this never happens").label(at, why);
        self.report(d.help("add `eval { every = .. }`"));
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
                let all = ["above", "below", "required"].into_iter();
                self.report(with_near(d, name, all, "it has"));
            }
            None => self.report(
                Diagnostic::error("M0118", "a bound says which side it is on")
                    .label(arg.span, "`above` or `below`?"),
            ),
        }
    }

    fn unknown_event(&mut self, event: &ast::Path, known: &Known) {
        let text = event.text();
        let names = EVENTS.iter().map(|e| e.name);
        let all = names.clone().chain(known.watched.iter().map(String::as_str));
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
        // Metrics are told where one may be meant.
        let others = names.take(MAIN_EVENTS).filter(|e| Some(*e) != near);
        let watched = known.watched.iter().map(String::as_str).filter(|e| Some(*e) != near);
        let d = match near {
            Some(near) if known.watched.iter().any(|w| w == near) => {
                let others: Vec<&str> = watched.collect();
                let help = format!("did you mean `{near}`? also: {}", others.join(", "));
                d.fix(help, event.span, near)
            }
            Some(near) => {
                let others: Vec<&str> = others.collect();
                let help = format!("did you mean `{near}`? also: {}", others.join(", "));
                d.fix(help, event.span, near)
            }
            None => {
                let all: Vec<&str> = watched.chain(others).collect();
                d.help(format!("there are: {}", all.join(", ")))
            }
        };
        self.report(d);
    }
}
