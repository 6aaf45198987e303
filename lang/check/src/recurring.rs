//! What happens again and again while a job runs: evaluation and checkpoints.

use crate::data::DataFacts;
use crate::hir::{Eval, Objective, Unit, Value};
use crate::registry::{CHECKPOINT, EVAL};
use crate::scope::Checker;
use crate::settings::{Settings, last};
use crate::statics::{show, type_of};
use crate::train::{MAX_STEPS, Pace};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{CheckpointPolicy, Every, Span};
use monarch_syntax::ast::{self, Expr};

impl<'a> Checker<'a> {
    /// `every`: steps, epochs or time.
    fn every(&mut self, file: u32, path: &str, expr: &Expr, pace: Option<Pace>) -> Option<Every> {
        let value = self.setting_value(file, path, expr)?;
        let q = match &value {
            Value::Quantity(q) => *q,
            other => {
                let title = format!("`{}` needs a unit: {} of what?", last(path), show(other));
                self.report(
                    Diagnostic::error("M0103", title)
                        .label(expr.span, type_of(other).noun())
                        .help("`250 steps`, `1 epoch` or `10 min`"),
                );
                return None;
            }
        };
        if q.unit == Unit::Seconds {
            let ms = (q.amount * 1000.0).round();
            return (1.0..1e15).contains(&ms).then_some(Every::Time(ms as u64)).or_else(|| {
                self.never(expr);
                None
            });
        }
        if !matches!(q.unit, Unit::Steps | Unit::Epochs | Unit::Samples | Unit::Tokens) {
            let title =
                format!("`{}` counts steps, epochs or time, not {}", last(path), q.unit.noun());
            self.report(Diagnostic::error("M0103", title).label(expr.span, q.unit.label()));
            return None;
        }
        let exact = self.steps_of(q, pace?, expr.span)?;
        if !(1.0..MAX_STEPS).contains(&exact.round()) {
            self.never(expr);
            return None;
        }
        Some(Every::Steps(self.rounded(exact, expr.span, "the interval") as u64))
    }

    fn never(&mut self, expr: &Expr) {
        self.report(
            Diagnostic::error("M0505", "this is less than one step").label(expr.span, "too short"),
        );
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
            Some(e) => self.every(file, "train.eval.every", e, pace),
            None => {
                if !has_after(block) {
                    self.missing(block, &EVAL, "every", &own);
                }
                None
            }
        };
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
                batches: batches?,
                metrics: metrics?,
                span: block.kind.span,
            })
        })();
        (eval.filter(|_| split == Some(true)).map(Some), names)
    }

    pub fn checkpoint(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        pace: Option<Pace>,
    ) -> Option<CheckpointPolicy> {
        let default =
            |span| CheckpointPolicy { every: None, keep: 3, to: "runs/{run.id}".to_owned(), span };
        let Some(block) = given.blocks.get("checkpoint").copied() else {
            return Some(default(Span::default()));
        };
        let own = self.settings(&CHECKPOINT, block.body.as_ref());
        self.remember_defaults(&CHECKPOINT, "train.checkpoint", &own);
        let every =
            own.values.get("every").map(|e| self.every(file, "train.checkpoint.every", e, pace));
        let keep =
            own.values.get("keep").map(|e| self.whole_setting(file, "train.checkpoint.keep", e, 1));
        let to = own.values.get("to").map(|e| {
            let text = self.text_setting(file, "train.checkpoint.to", e)?;
            self.placeholders(&text, e.span)?;
            Some(text)
        });
        let mut policy = default(block.kind.span);
        if let Some(every) = every {
            policy.every = Some(every?);
        }
        if let Some(keep) = keep {
            policy.keep = keep?;
        }
        if let Some(to) = to {
            policy.to = to?;
        }
        Some(policy)
    }

    /// `{run.id}` is the one thing that is filled in.
    fn placeholders(&mut self, text: &str, at: Span) -> Option<()> {
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let after = &rest[open + 1..];
            let name = after.split('}').next().unwrap_or(after);
            if name != "run.id" {
                let title = format!("nothing fills in `{{{name}}}`");
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

    /// `eval { after = checkpoint }` and `checkpoint { after = eval }`.
    pub fn waits_in_circle(&mut self, given: &Settings<'a>) -> Option<()> {
        let (Some(eval), Some(save)) = (given.blocks.get("eval"), given.blocks.get("checkpoint"))
        else {
            return Some(());
        };
        let (a, b) = (after(eval), after(save));
        let circle = matches!((&a, &b), (Some(a), Some(b))
            if a.name == "checkpoint" && b.name == "eval");
        if !circle {
            return Some(());
        }
        self.diagnostics.retain(|d| {
            let inside = |s: Span| {
                let holds = |o: Span| o.file == s.file && o.start <= s.start && s.end <= o.end;
                [eval, save].iter().any(|b| b.body.as_ref().is_some_and(|x| holds(x.span)))
            };
            !(d.code == "M0906" && d.title.contains("`after`") && d.span().is_some_and(inside))
        });
        let whole =
            |b: &ast::Block| b.kind.span.to(b.body.as_ref().map_or(b.kind.span, |x| x.span));
        self.report(
            Diagnostic::error("M0501", "`eval` and `checkpoint` wait for each other")
                .label(whole(eval), "eval waits for checkpoint")
                .label(whole(save), "checkpoint waits for eval")
                .help("give one of them a clock: `eval { every = 250 steps }`"),
        );
        None
    }
}

/// What a block's `after` names.
fn after(block: &ast::Block) -> Option<ast::Ident> {
    block.body.iter().flat_map(|b| &b.entries).find_map(|e| match &e.kind {
        ast::EntryKind::Assign(a) if a.path.text() == "after" => {
            crate::calls::as_name(&a.value).cloned()
        }
        _ => None,
    })
}

fn has_after(block: &ast::Block) -> bool {
    after(block).is_some()
}
