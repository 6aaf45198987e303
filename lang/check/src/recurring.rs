//! What happens again and again while a job runs: evaluation and checkpoints.

use crate::data::DataFacts;
use crate::hir::{Eval, Objective, Unit, Value};
use crate::registry::{CHECKPOINT, EVAL};
use crate::rules::Known;
use crate::scope::{Checker, with_near};
use crate::settings::{Settings, last};
use crate::statics::{show, type_of};
use crate::train::{MAX_STEPS, Pace};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{CheckpointPolicy, Contents, Every, Span};
use monarch_syntax::ast::{self, Expr};

impl<'a> Checker<'a> {
    /// `every`: steps, epochs or time.
    pub fn every(
        &mut self,
        file: u32,
        path: &str,
        expr: &Expr,
        pace: Option<Pace>,
    ) -> Option<Every> {
        self.clock(file, path, expr, pace, "steps, epochs or time")
    }

    /// What counts these `units`.
    pub fn clock(
        &mut self,
        file: u32,
        path: &str,
        expr: &Expr,
        pace: Option<Pace>,
        units: &str,
    ) -> Option<Every> {
        let value = self.setting_value(file, path, expr)?;
        let q = match &value {
            Value::Quantity(q) => *q,
            other => {
                let title = format!("`{}` needs a unit: {} of what?", last(path), show(other));
                let time = if units.contains("time") { ", `10 min`" } else { "" };
                self.report(
                    Diagnostic::error("M0103", title)
                        .label(expr.span, type_of(other).noun())
                        .help(format!("for example `250 steps`, `1 epoch`{time}")),
                );
                return None;
            }
        };
        if q.unit == Unit::Seconds {
            let ms = (q.amount * 1000.0).round();
            return (1.0..1e15).contains(&ms).then_some(Every::Time(ms as u64)).or_else(|| {
                self.never(expr, ms > 1.0);
                None
            });
        }
        if !matches!(q.unit, Unit::Steps | Unit::Epochs | Unit::Samples | Unit::Tokens) {
            let title = format!("`{}` counts {units}, not {}", last(path), q.unit.noun());
            self.report(Diagnostic::error("M0103", title).label(expr.span, q.unit.label()));
            return None;
        }
        let exact = self.steps_of(q, pace?, expr.span)?;
        if !(1.0..MAX_STEPS).contains(&exact.round()) {
            self.never(expr, exact > 1.0);
            return None;
        }
        Some(Every::Steps(self.rounded(exact, expr.span, "the interval") as u64))
    }

    /// Too short for a clock, or too `long`.
    fn never(&mut self, expr: &Expr, long: bool) {
        self.report(match long {
            true => Diagnostic::error("M0112", "no run is long enough for this to happen")
                .label(expr.span, "too long"),
            false => Diagnostic::error("M0505", "this is less than one step")
                .label(expr.span, "too short"),
        });
    }

    /// The evaluation, and the names of its metrics. Outer None: reported; inner: not asked for.
    pub fn eval(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        data: Option<&DataFacts>,
        model: Option<usize>,
        pace: Option<Pace>,
    ) -> (Option<Option<Eval>>, Vec<String>) {
        let Some(block) = given.blocks.get("eval").copied() else {
            return (Some(None), Vec::new());
        };
        let own = self.settings(&EVAL, block.body.as_ref());
        let names = own.functions.iter().map(|f| f.name.name.clone()).collect();
        self.remember_defaults(&EVAL, "train.eval", &own);
        let every = match own.values.get("every") {
            Some(e) => self.every(file, "train.eval.every", e, pace).map(Some),
            None => {
                if !own.values.contains_key("after") {
                    self.missing(block, &EVAL, "every", &own);
                    return (None, names);
                }
                Some(None)
            }
        };
        let after = self.after(&own, "train.eval.after", "checkpoint");
        let batches = match own.values.get("batches") {
            Some(e) => self.whole_setting(file, "train.eval.batches", e, 1).map(Some),
            None => Some(None),
        };
        let split = data.map(|d| d.splits.iter().any(|s| s.name == "eval"));
        if split == Some(false) {
            let at = given.values.get("data").map_or(block.kind.span, |e| e.span);
            self.report(
                Diagnostic::error("M0606", "there is nothing to evaluate on")
                    .label(at, "this data set has no part `eval`")
                    .label(block.kind.span, "evaluated here")
                    .help("split it: `.split(train = 80%, eval = 20%)`"),
            );
        }
        let mut metrics: Option<Vec<Objective>> = Some(Vec::new());
        for func in &own.functions {
            if func.name.name == "loss" {
                self.report(
                    Diagnostic::error("M0105", "`eval.loss` is always there")
                        .label(func.name.span, "again here")
                        .help("call this metric something else"),
                );
            }
            match (self.objective(file, func, data, model), &mut metrics) {
                (Some(m), Some(list)) => list.push(m),
                _ => metrics = None,
            }
        }
        let eval = (|| {
            Some(Eval {
                every: every?,
                after_checkpoint: after?,
                batches: batches?,
                metrics: metrics?,
                span: block.kind.span,
            })
        })();
        (eval.filter(|_| split == Some(true)).map(Some), names)
    }

    /// `after = checkpoint`; false if it is not there.
    fn after(&mut self, own: &Settings<'a>, path: &str, what: &str) -> Option<bool> {
        let Some(expr) = own.values.get("after").copied() else { return Some(false) };
        self.remember(path, expr);
        match crate::calls::as_name(expr) {
            Some(name) if name.name == what => Some(true),
            Some(name) => {
                let title = format!("nothing waits for `{}`", name.name);
                let d = Diagnostic::error("M0110", title).label(name.span, "not here");
                let fix = format!("write `after = {what}`");
                self.report(d.fix(fix, name.span, what.to_owned()));
                None
            }
            None => {
                let d = Diagnostic::error("M0111", "`after` names what is waited for");
                let d = d.label(expr.span, "not a name");
                self.report(d.help(format!("write `after = {what}`, or `every = ..`")));
                None
            }
        }
    }

    pub fn checkpoint(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        known: &Known,
        model: Option<usize>,
        pace: Option<Pace>,
    ) -> Option<CheckpointPolicy> {
        let Some(block) = given.blocks.get("checkpoint").copied() else {
            return Some(CheckpointPolicy::default());
        };
        let own = self.settings(&CHECKPOINT, block.body.as_ref());
        self.remember_defaults(&CHECKPOINT, "train.checkpoint", &own);
        let get = |name: &str| own.values.get(name).copied();
        let every = get("every").map(|e| self.every(file, "train.checkpoint.every", e, pace));
        let also = get("also").map(|e| self.every_steps(file, "train.checkpoint.also", e, pace));
        let keep = get("keep").map(|e| self.whole_setting(file, "train.checkpoint.keep", e, 1));
        let to = get("to").map(|e| {
            let text = self.text_setting(file, "train.checkpoint.to", e)?;
            self.placeholders(&text, e.span)?;
            Some(text)
        });
        let async_ = get("async").map(|e| self.bool_setting(file, "train.checkpoint.async", e));
        let best = get("best").map(|e| self.best(e, known));
        let format = get("format").map(|e| self.format(file, e));
        let what = get("what").map(|e| self.contents(e, model));
        let after_eval = self.after(&own, "train.checkpoint.after", "eval");
        self.waits_in_circle(given)?;
        if after_eval == Some(true) && !given.blocks.contains_key("eval") {
            let at = get("after").map_or(block.kind.span, |e| e.span);
            let d = Diagnostic::error("M0110", "this job has no `eval` to wait for");
            self.report(d.label(at, "never happens").help("add `eval { every = .. }`"));
            return None;
        }
        format.unwrap_or(Some(()))?;
        let default = CheckpointPolicy::default();
        Some(CheckpointPolicy {
            every: every.map_or(Some(None), |e| e.map(Some))?,
            also: also.map_or(Some(None), |e| e.map(Some))?,
            after_eval: after_eval?,
            keep: keep.unwrap_or(Some(default.keep))?,
            best: best.map_or(Some(None), |b| b.map(Some))?,
            what: what.unwrap_or(Some(default.what))?,
            background: async_.unwrap_or(Some(default.background))?,
            to: to.unwrap_or(Some(default.to))?,
            span: block.kind.span,
        })
    }

    fn format(&mut self, file: u32, expr: &Expr) -> Option<()> {
        let text = self.text_setting(file, "train.checkpoint.format", expr)?;
        if text == "safetensors" {
            return Some(());
        }
        let d = Diagnostic::error("M0112", format!("checkpoints are not written as `{text}`"))
            .label(expr.span, "unknown format");
        self.report(d.fix("write `\"safetensors\"`", expr.span, "\"safetensors\""));
        None
    }

    fn contents(&mut self, expr: &Expr, model: Option<usize>) -> Option<Contents> {
        self.remember("train.checkpoint.what", expr);
        let all = [
            ("all", Contents::All),
            ("adapters", Contents::Adapters),
            ("weights", Contents::Weights),
        ];
        let names = all.iter().map(|a| a.0);
        let Some(name) = crate::calls::as_name(expr) else {
            let d = Diagnostic::error("M0111", "`what` is all, adapters or weights");
            self.report(d.label(expr.span, "something else"));
            return None;
        };
        let Some((_, what)) = all.iter().find(|a| a.0 == name.name) else {
            let title = format!("a checkpoint of `{}` is not known", name.name);
            let d = Diagnostic::error("M0106", title).label(name.span, "unknown");
            self.report(with_near(d, name, names, "there are"));
            return None;
        };
        let model = model.and_then(|id| self.model_value(id));
        if *what == Contents::Adapters
            && model.is_some_and(|m| m.weights.iter().all(|w| w.trainable))
        {
            let d = Diagnostic::error("M0805", "this model has no adapters: all of it is trained");
            let help = "`what = all` saves the same; `lora(..)` and `freeze` make a difference";
            self.report(d.label(expr.span, "nothing to leave out").help(help));
            return None;
        }
        Some(*what)
    }

    /// `{run.id}` is the one thing that is filled in.
    fn placeholders(&mut self, text: &str, at: Span) -> Option<()> {
        if text.is_empty() || text == "~" || text.starts_with("~/") {
            let d = match text.is_empty() {
                true => {
                    Diagnostic::error("M0126", "a folder needs a name").label(at, "an empty text")
                }
                false => {
                    Diagnostic::error("M0126", "nothing fills in `~`").label(at, "in this text")
                }
            };
            self.report(d.help("a folder beside the program, or one that begins with `/`"));
            return None;
        }
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let after = &rest[open + 1..];
            let name = after.split('}').next().unwrap_or(after);
            if name != "run.id" || name.len() == after.len() {
                let title = match name.len() == after.len() {
                    true => "a `{` without a `}`".to_owned(),
                    false => format!("nothing fills in `{{{name}}}`"),
                };
                self.report(
                    Diagnostic::error("M0126", title)
                        .label(at, "in this text")
                        .help("`{run.id}` is the run's own name"),
                );
                return None;
            }
            rest = &after[name.len()..];
        }
        if text.contains("://") {
            let help = "a run saves into a folder: `to = \"runs/{run.id}\"`";
            self.not_run_yet(at, "saving to object stores", help);
        }
        Some(())
    }

    /// `eval { after = checkpoint }` and `checkpoint { after = eval }`, and no clock in either.
    fn waits_in_circle(&mut self, given: &Settings<'a>) -> Option<()> {
        let (Some(eval), Some(save)) = (given.blocks.get("eval"), given.blocks.get("checkpoint"))
        else {
            return Some(());
        };
        let (a, b) = (after(eval), after(save));
        let (Some((_, a)), Some((_, b))) = (
            a.filter(|a| a.0 == "checkpoint" && !has_clock(eval)),
            b.filter(|b| b.0 == "eval" && !has_clock(save)),
        ) else {
            return Some(());
        };
        self.report(
            Diagnostic::error("M0501", "`eval` and `checkpoint` wait for each other")
                .label(a, "eval waits for checkpoint")
                .label(b, "checkpoint waits for eval")
                .help("give one of them a clock: `eval { every = 250 steps }`"),
        );
        None
    }
}

/// What a block's `after` names, and where it is written.
fn after(block: &ast::Block) -> Option<(&str, Span)> {
    block.body.iter().flat_map(|b| &b.entries).find_map(|e| match &e.kind {
        ast::EntryKind::Assign(a) if a.path.text() == "after" => {
            let name = crate::calls::as_name(&a.value)?;
            Some((name.name.as_str(), a.path.span.to(a.value.span)))
        }
        _ => None,
    })
}

fn has_clock(block: &ast::Block) -> bool {
    block.body.iter().flat_map(|b| &b.entries).any(|e| match &e.kind {
        ast::EntryKind::Assign(a) => ["every", "also"].contains(&a.path.text().as_str()),
        _ => false,
    })
}
