//! `metrics { every = 10 steps, log = [loss, lr] }`, and metrics by name.

use crate::calls::{as_name, bare};
use crate::data::DataFacts;
use crate::events::METRICS as NUMBERS;
use crate::registry::METRICS;
use crate::rules::Known;
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use crate::train::Pace;
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{Best, Every, Metrics};
use monarch_syntax::ast::{Arg, Expr, ExprKind, Ident};

impl<'a> Checker<'a> {
    pub fn metrics(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        data: Option<&DataFacts>,
        pace: Option<Pace>,
    ) -> Option<Metrics> {
        let Some(block) = given.blocks.get("metrics").copied() else {
            return Some(Metrics::default());
        };
        let own = self.settings(&METRICS, block.body.as_ref());
        self.remember_defaults(&METRICS, "train.metrics", &own);
        let every = match own.values.get("every") {
            Some(e) => self.every_steps(file, "train.metrics.every", e, pace),
            None => Some(1),
        };
        let log = match own.values.get("log") {
            Some(e) => self.log(e, data).map(Some),
            None => Some(None),
        };
        Some(Metrics { every: every?, log: log? })
    }

    /// An interval in steps: not one in time, which no two runs would share.
    pub fn every_steps(
        &mut self,
        file: u32,
        path: &str,
        expr: &Expr,
        pace: Option<Pace>,
    ) -> Option<u64> {
        match self.clock(file, path, expr, pace, "steps or epochs")? {
            Every::Steps(n) => Some(n),
            Every::Time(_) => {
                let title = format!("`{}` counts steps, not time", crate::settings::last(path));
                self.report(
                    Diagnostic::error("M0103", title)
                        .label(expr.span, "a time")
                        .help("the same steps in every run: `10 steps`, `1 epoch`"),
                );
                None
            }
        }
    }

    fn log(&mut self, expr: &'a Expr, data: Option<&DataFacts>) -> Option<Vec<String>> {
        self.remember("train.metrics.log", expr);
        let ExprKind::List(items) = &bare(expr).kind else {
            let d = Diagnostic::error("M0111", "`log` is a list of metrics");
            self.report(d.label(expr.span, "not a list").help("for example `log = [loss, lr]`"));
            return None;
        };
        let mut out: Vec<String> = Vec::new();
        let mut fine = true;
        for item in items {
            let found = self.logged(item, &out);
            fine &= found.is_some();
            let Some(name) = found else { continue };
            if name == "tokens_per_s" && data.is_some_and(|d| !d.has_tokens()) {
                self.no_tokens(item.span);
                fine = false;
            }
            if name == "mfu" {
                let what = "`mfu`: the peak of this machine's cores is not known";
                let help = "`tokens_per_s` is measured; `monarch plan` estimates `mfu`";
                self.not_run_yet(item.span, what, help);
            }
            out.push(name);
        }
        fine.then_some(out)
    }

    fn logged(&mut self, item: &Expr, seen: &[String]) -> Option<String> {
        if matches!(item.kind, ExprKind::Broken) {
            return None;
        }
        let Some(name) = dotted(item) else {
            let d = Diagnostic::error("M0111", "the name of a metric is needed here");
            self.report(d.label(item.span, "not a name").help("for example `loss`"));
            return None;
        };
        if seen.contains(&name.name) {
            let title = format!("`{}` is listed twice", name.name);
            self.report(Diagnostic::error("M0105", title).label(name.span, "again here"));
            return None;
        }
        if NUMBERS.iter().any(|m| m.0 == name.name) {
            return Some(name.name);
        }
        let title = match name.name.strip_prefix("eval.") {
            Some(_) => format!("`{}` belongs to evaluations, which are always recorded", name.name),
            None => format!("there is no metric `{}`", name.name),
        };
        let d = Diagnostic::error("M0110", title).label(name.span, "not a number of every step");
        self.report(with_near(d, &name, NUMBERS.iter().map(|m| m.0), "there are"));
        None
    }

    /// `best = min(eval.loss)`
    pub fn best(&mut self, expr: &'a Expr, known: &Known) -> Option<Best> {
        self.remember("train.checkpoint.best", expr);
        let (how, args): (Option<&Ident>, &[Arg]) = match &bare(expr).kind {
            ExprKind::Call(callee, args) => (as_name(callee), args),
            ExprKind::Broken => return None,
            _ => (None, &[]),
        };
        let (Some(how), [arg]) = (how, args) else {
            let d = Diagnostic::error("M0111", "`best` says which metric, and which way is better");
            let help = "write `best = min(eval.loss)` or `max(..)`";
            self.report(d.label(expr.span, "neither min(..) nor max(..)").help(help));
            return None;
        };
        let smallest = match how.name.as_str() {
            "min" => true,
            "max" => false,
            _ => {
                let title = format!("nothing is the best by `{}`", how.name);
                let d = Diagnostic::error("M0106", title).label(how.span, "unknown");
                self.report(with_near(d, how, ["min", "max"].into_iter(), "there are"));
                return None;
            }
        };
        let Some(name) = dotted(&arg.value) else {
            let d = Diagnostic::error("M0111", "the name of a metric is needed here");
            self.report(d.label(arg.value.span, "not a metric"));
            return None;
        };
        let all: Vec<&str> =
            known.watched.iter().map(String::as_str).filter(|m| m.starts_with("eval.")).collect();
        if all.contains(&name.name.as_str()) {
            return Some(Best { metric: name.name, smallest });
        }
        let title = match name.name.as_str() {
            "loss" => "the loss of one batch does not make a checkpoint the best".to_owned(),
            other => format!("no evaluation measures `{other}`"),
        };
        let d = Diagnostic::error("M0110", title).label(name.span, "not measured");
        self.report(match suggest(&name.name, all.iter().copied()) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
            None if all.is_empty() => d.help("this job has no `eval`: add `eval { every = .. }`"),
            None => d.help(format!("there are: {}", all.join(", "))),
        });
        None
    }
}

/// `a.b.c` as one name.
pub(crate) fn dotted(expr: &Expr) -> Option<Ident> {
    match &bare(expr).kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Member(base, member) => {
            let base = dotted(base)?;
            let name = format!("{}.{}", base.name, member.name);
            Some(Ident { name, span: base.span.to(member.span) })
        }
        _ => None,
    }
}
