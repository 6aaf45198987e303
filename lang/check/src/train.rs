//! The `train` block: what is trained, on what, how long.

use crate::batch::Batch;
use crate::data::DataFacts;
use crate::hir::{Job, Layout, ModelId, Quantity, Unit, Value};
use crate::registry::TRAIN;
use crate::rules::Known;
use crate::scope::{Checker, Entity, In};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Data, Span};
use monarch_syntax::ast::{self, Expr};

/// Numbers that turn epochs, samples and tokens into steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub batch: u64,
    /// None if the number of samples is not known.
    pub steps_per_epoch: Option<u64>,
    /// As written, where the batch is written in tokens.
    pub tokens_per_step: f64,
    /// Whether samples are made of tokens at all.
    pub has_tokens: bool,
}

impl Pace {
    /// Optimizer steps, as a fraction; None for a unit that does not count any.
    pub fn steps(self, q: Quantity) -> Option<f64> {
        let batch = self.batch as f64;
        Some(match q.unit {
            Unit::Steps => q.amount,
            Unit::Epochs => q.amount * self.steps_per_epoch? as f64,
            Unit::Samples => q.amount / batch,
            Unit::Tokens => q.amount / self.tokens_per_step,
            _ => return None,
        })
    }
}

/// Steps of a run: more than any machine does.
pub(crate) const MAX_STEPS: f64 = 1e15;

impl<'a> Checker<'a> {
    pub fn check_trains(&mut self) -> Option<Job> {
        let mut job = None;
        for id in 0..self.trains.len() {
            let In { file, ast, .. } = self.trains[id];
            if id > 0 {
                self.report(
                    Diagnostic::error("M0906", "one program trains one thing, for now")
                        .label(ast.kind.span, "a second `train`")
                        .label(self.trains[0].ast.kind.span, "the first one"),
                );
            }
            let found = self.train(file, ast);
            if id == 0 {
                job = found;
            }
        }
        job
    }

    fn train(&mut self, file: u32, block: &'a ast::Block) -> Option<Job> {
        let given = self.train_settings(block);
        let model = given.values.get("model").and_then(|e| self.train_model(file, e));
        let data = given.values.get("data").and_then(|e| self.data_expr(file, e, None));
        let place = self.train_place(file, block);
        let layout = place.and_then(|p| self.state.layouts.get(p.1?).cloned().flatten());
        let batch = self.batch(file, &given, data.as_ref(), layout.as_ref());
        let data = data.map(|data| self.held_out(file, &given, data, batch.map(|b| b.samples)));
        let shards = self.optional(file, "shards", &given, 1);
        let seed = self.optional(file, "seed", &given, 0);
        let drop_last = self.flag(file, "drop_last", &given, false);
        let overlap = self.flag(file, "overlap", &given, true);
        let pace = self.pace(&given, data.as_ref(), batch, drop_last);
        let steps = self.until(file, &given, pace);
        let optimizer = given.values.get("optim").map(|e| self.optimizer(file, e));
        let schedule = self.schedule(file, block, &given, optimizer.as_ref(), pace, steps);
        let loss = given.functions.first().and_then(|f| {
            let loss = self.objective(file, f, data.as_ref(), model)?;
            self.loss_uses(&loss, model, f.name.span)?;
            Some(loss)
        });
        let (eval, metrics) = self.eval(file, &given, data.as_ref(), model, pace);
        let evaluates = given.blocks.contains_key("eval");
        let known = Known::of(evaluates, &metrics, eval.as_ref().and_then(Option::as_ref));
        let checkpoint = self.checkpoint(file, &given, &known, model, pace);
        let recorded = self.metrics(file, &given, data.as_ref(), pace);
        let faults = self.faults(file, &given, pace, checkpoint.as_ref());
        let on = self.rules(file, &given, &known, pace);
        self.check_hook_files(&known);
        self.mark_place(place, layout.as_ref());
        if let (Some(data), Some(loss)) = (&data, &loss) {
            self.unread_columns(data, loss, eval.as_ref());
        }
        let (rules, hooks) = on?;
        let (data, batch) = (data?, batch?);
        Some(Job {
            name: block.name.as_ref()?.name.clone(),
            span: block.kind.span.to(block.name.as_ref()?.span),
            model: ModelId(model? as u32),
            columns: data.columns,
            rows: if data.rows_known { data.rows } else { 0 },
            tokens_per_sample: data.tokens_per_sample,
            data: Data {
                source: data.source,
                splits: data.splits,
                order: data.order,
                span: data.span,
            },
            loss: loss?,
            optimizer: optimizer??.optimizer,
            schedule: schedule?,
            steps: steps?,
            shards: self.shards_of(&given, batch.pieces, shards?)?,
            batch: batch.samples,
            micro: batch.micro,
            accumulate: batch.accumulate,
            seed: seed?.unwrap_or(0),
            drop_last: drop_last?,
            overlap: overlap?,
            eval: eval?,
            checkpoint: Some(checkpoint?),
            rules,
            hooks,
            faults: faults?,
            metrics: recorded?,
            cluster: place?.0,
            layout: place?.1,
        })
    }

    /// All settings; reports what is missing.
    fn train_settings(&mut self, block: &'a ast::Block) -> Settings<'a> {
        let given = self.settings(&TRAIN, block.body.as_ref());
        let mut missing: Vec<&str> = ["model", "data", "optim", "batch", "until"]
            .into_iter()
            .filter(|name| !given.values.contains_key(name))
            .collect();
        if given.functions.is_empty() {
            missing.push("loss");
        }
        missing.retain(|name| !given.meant.contains(name));
        match missing.as_slice() {
            [] => {}
            [name] => self.missing(block, &TRAIN, name, &given),
            _ => self.all_missing(block, &TRAIN, &missing, &given),
        }
        self.remember_defaults(&TRAIN, "train", &given);
        given
    }

    /// Outer None: reported. Inner None: not given.
    fn optional(
        &mut self,
        file: u32,
        name: &str,
        given: &Settings<'a>,
        least: i64,
    ) -> Option<Option<u64>> {
        match given.values.get(name) {
            None => Some(None),
            Some(e) => self.whole_setting(file, &format!("train.{name}"), e, least).map(Some),
        }
    }

    fn flag(&mut self, file: u32, name: &str, given: &Settings<'a>, default: bool) -> Option<bool> {
        match given.values.get(name) {
            None => Some(default),
            Some(e) => self.bool_setting(file, &format!("train.{name}"), e),
        }
    }

    fn train_model(&mut self, file: u32, expr: &Expr) -> Option<usize> {
        let Some(name) = crate::calls::as_name(expr) else {
            self.report(
                Diagnostic::error("M0124", "the name of a model is needed here")
                    .label(expr.span, "something else")
                    .help("define it first: `model net = Name[..]`"),
            );
            return None;
        };
        match self.lookup(file, &name.name) {
            Some(Entity::Model(id)) => self.model_value(id).map(|_| id),
            Some(other) => {
                self.wrong_entity(name, other, "a model");
                None
            }
            None => {
                self.unknown_name(file, name, &[]);
                None
            }
        }
    }

    /// Optimizer steps of a length; a unit that counts nothing here is reported.
    pub fn steps_of(&mut self, q: Quantity, pace: Pace, at: Span) -> Option<f64> {
        if q.unit == Unit::Tokens && !pace.has_tokens {
            self.no_tokens(at);
            return None;
        }
        if q.unit == Unit::Epochs && pace.steps_per_epoch.is_none() {
            if self.state.absent.is_empty() {
                self.report(
                    Diagnostic::error("M0505", "how long an epoch is cannot be known here")
                        .label(at, "an epoch of data in an object store")
                        .help("count tokens or steps"),
                );
            }
            return None;
        }
        pace.steps(q)
    }

    pub fn no_tokens(&mut self, at: Span) {
        self.report(
            Diagnostic::error("M0103", "the samples of this data set are not made of tokens")
                .label(at, "counts tokens")
                .help("count samples, steps or epochs"),
        );
    }

    fn pace(
        &mut self,
        given: &Settings<'a>,
        data: Option<&DataFacts>,
        batch: Option<Batch>,
        drop_last: Option<bool>,
    ) -> Option<Pace> {
        let (data, Batch { samples: batch, tokens, .. }) = (data?, batch?);
        let Some(split) = data.splits.iter().find(|s| s.name == "train") else {
            let at = given.values.get("data").map_or(data.span, |e| e.span);
            self.report(
                Diagnostic::error("M0606", "this data set has no part `train`")
                    .label(at, "nothing to train on"),
            );
            return None;
        };
        let rows = split.end - split.start;
        let steps_per_epoch = if drop_last? { rows / batch } else { rows.div_ceil(batch) }.max(1);
        let steps_per_epoch = Some(steps_per_epoch).filter(|_| data.rows_known);
        let exact = batch as f64 * data.tokens_per_sample as f64;
        let (tokens_per_step, has_tokens) = (tokens.unwrap_or(exact), data.has_tokens());
        Some(Pace { batch, steps_per_epoch, tokens_per_step, has_tokens })
    }

    fn until(&mut self, file: u32, given: &Settings<'a>, pace: Option<Pace>) -> Option<u64> {
        let expr = *given.values.get("until")?;
        let value = self.setting_value(file, "train.until", expr)?;
        let q = match value {
            Value::Quantity(q) => q,
            other => {
                let title = format!("`until` needs a unit: {} of what?", show(&other));
                let steps = self.loaded.sources.slice(expr.span);
                let fixed = format!("{steps} steps");
                self.report(
                    Diagnostic::error("M0103", title)
                        .label(expr.span, type_of(&other).noun())
                        .fix(format!("did you mean `{fixed}`?"), expr.span, fixed)
                        .help("it counts steps, epochs, samples or tokens"),
                );
                return None;
            }
        };
        if !matches!(q.unit, Unit::Steps | Unit::Epochs | Unit::Samples | Unit::Tokens) {
            let title =
                format!("`until` counts steps, epochs, samples or tokens, not {}", q.unit.noun());
            self.report(
                Diagnostic::error("M0103", title)
                    .label(expr.span, q.unit.label())
                    .help("the length of a run does not depend on the machines"),
            );
            return None;
        }
        let exact = self.steps_of(q, pace?, expr.span)?;
        if exact <= 0.0 || exact > MAX_STEPS {
            let shown = show(&Value::Quantity(q));
            self.report(match exact > MAX_STEPS {
                true => Diagnostic::error("M0112", format!("no run is as long as {shown}"))
                    .label(expr.span, format!("{exact:.0e} steps; at most {MAX_STEPS:e}")),
                false => {
                    let title = format!("a run has at least one step: {shown} is none");
                    Diagnostic::error("M0505", title).label(expr.span, "no run")
                }
            });
            return None;
        }
        let steps = (exact - 1e-9).ceil().max(1.0);
        if (exact - exact.round()).abs() > 1e-9 {
            let title = format!("the run has {steps} steps: {exact:.2} rounded up");
            self.report(
                Diagnostic::note("M0508", title)
                    .label(expr.span, format!("{} samples a step", pace?.batch)),
            );
        }
        Some(steps as u64)
    }

    /// Notes what of a job's place a run does not carry out.
    fn mark_place(
        &mut self,
        place: Option<(Option<usize>, Option<usize>)>,
        layout: Option<&Layout>,
    ) {
        let Some((cluster, plan)) = place else { return };
        if let Some(id) = cluster {
            self.mark_cluster(id);
        }
        if let (Some(layout), Some(id)) = (layout, plan) {
            self.mark_layout(layout);
            let block = self.plans[id].ast;
            self.mark_words(layout, block);
        }
    }

    /// The cluster and the layout that `on` names; without it the only cluster there is.
    fn train_place(
        &mut self,
        file: u32,
        block: &ast::Block,
    ) -> Option<(Option<usize>, Option<usize>)> {
        let Some(on) = &block.on else {
            return Some(((self.clusters.len() == 1).then_some(0), None));
        };
        let Some(name) = on.single() else {
            let d = Diagnostic::error("M0124", "a plan or a cluster is needed here");
            self.report(d.label(on.span, "not a name"));
            return None;
        };
        let found = self.needs_entity(file, name, "a plan or a cluster", |e| {
            matches!(e, Entity::Cluster(_) | Entity::Plan(_))
        });
        match found? {
            Entity::Plan(id) => {
                let layout = self.state.layouts.get(id)?.as_ref()?;
                Some((layout.cluster, Some(id)))
            }
            Entity::Cluster(id) => Some((Some(id), None)),
            _ => None,
        }
    }
}
