//! The `train` block: what is trained, on what, how long.

use crate::data::DataFacts;
use crate::hir::{Job, ModelId, Quantity, Unit, Value};
use crate::registry::TRAIN;
use crate::scope::{Checker, Entity, In};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Data, Span};
use monarch_syntax::ast::{self, Expr, ExprKind};

/// Numbers that turn epochs, samples and tokens into steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub batch: u64,
    /// None if the number of samples is not known.
    pub steps_per_epoch: Option<u64>,
    pub tokens_per_sample: u64,
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
            Unit::Tokens => q.amount / (batch * self.tokens_per_sample as f64),
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
        let batch = self.batch(file, &given, data.as_ref());
        let data = data.map(|data| self.held_out(file, &given, data, batch));
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
        let checkpoint = self.checkpoint(file, &given, pace);
        let after = self.waits_in_circle(&given);
        let rules = self.rules(file, &given, &metrics, eval.as_ref());
        let place = self.train_place(file, block);
        self.mark_place(place);
        if let (Some(data), Some(loss)) = (&data, &loss) {
            self.unread_columns(data, loss, eval.as_ref());
        }
        after?;
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
            shards: self.shards_of(&given, batch.1, shards?)?,
            batch: batch.0,
            seed: seed?.unwrap_or(0),
            drop_last: drop_last?,
            overlap: overlap?,
            eval: eval?,
            checkpoint: Some(checkpoint?),
            rules: rules?,
            cluster: place?.0,
            layout: place?.1,
        })
    }

    /// All settings; reports what is missing.
    fn train_settings(&mut self, block: &'a ast::Block) -> Settings<'a> {
        let given = self.settings(&TRAIN, block.body.as_ref());
        for name in ["model", "data", "optim", "batch", "until"] {
            if !given.values.contains_key(name) {
                self.missing(block, &TRAIN, name, &given);
            }
        }
        if given.functions.is_empty() {
            self.missing(block, &TRAIN, "loss", &given);
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

    /// Samples of a step, and the number of pieces if the program says it through `accumulate`.
    fn batch(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        data: Option<&DataFacts>,
    ) -> Option<(u64, Option<u64>)> {
        let expr = *given.values.get("batch")?;
        let found = match &expr.kind {
            ExprKind::Record(record) => self.micro_batch(file, record, expr.span)?,
            _ => {
                let value = self.setting_value(file, "train.batch", expr)?;
                (self.batch_value(value, expr, data)?, None)
            }
        };
        let rows = data.and_then(|d| d.splits.iter().find(|s| s.name == "train"));
        let rows = rows.map(|s| s.end - s.start);
        if let Some(rows) = rows.filter(|rows| found.0 > *rows) {
            let title = format!("a batch of {} does not fit: there are {rows} samples", found.0);
            let mut d = Diagnostic::error("M0506", title).label(expr.span, "samples of one step");
            if let Some(data) = data {
                d = d.label(data.span, format!("{rows} samples to train on"));
            }
            self.report(d.help(format!("use a batch of at most {rows}")));
            return None;
        }
        Some(found)
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

    fn no_tokens(&mut self, at: Span) {
        self.report(
            Diagnostic::error("M0103", "the samples of this data set are not made of tokens")
                .label(at, "counts tokens")
                .help("count samples, steps or epochs"),
        );
    }

    fn batch_value(&mut self, value: Value, expr: &Expr, data: Option<&DataFacts>) -> Option<u64> {
        let amount = match &value {
            Value::Int(i) if *i >= 1 => return Some(*i as u64),
            Value::Quantity(q) if q.unit == Unit::Samples => q.amount,
            Value::Quantity(q) if q.unit == Unit::Tokens => {
                let data = data?;
                if !data.has_tokens() {
                    self.no_tokens(expr.span);
                    return None;
                }
                q.amount / data.tokens_per_sample as f64
            }
            Value::Quantity(q) => {
                let noun = q.unit.noun();
                let title = format!("`batch` counts tokens or samples, not {noun}");
                self.report(
                    Diagnostic::error("M0103", title)
                        .label(expr.span, q.unit.label())
                        .help("did you mean `4M tokens`? a plain number counts samples"),
                );
                return None;
            }
            other => {
                let title = format!("`batch` is a number of samples from 1, not {}", show(other));
                self.report(
                    Diagnostic::error("M0111", title).label(expr.span, type_of(other).noun()),
                );
                return None;
            }
        };
        if amount >= 1.0 && amount.fract() == 0.0 && amount < 1e15 {
            return Some(amount as u64);
        }
        let tokens = data.map_or(1, |d| d.tokens_per_sample);
        let title = format!("a batch is a whole number of samples, and this is {amount}");
        self.report(
            Diagnostic::error("M0507", title)
                .label(expr.span, show(&value))
                .help(format!("one sample has {tokens} tokens: use a multiple of that")),
        );
        None
    }

    /// `{ micro = 2, accumulate = 8 }`
    fn micro_batch(
        &mut self,
        file: u32,
        record: &'a ast::Record,
        at: Span,
    ) -> Option<(u64, Option<u64>)> {
        let names = ["global", "micro", "accumulate"];
        let mut found: [Option<u64>; 3] = [None; 3];
        for (name, value) in self.record(record)? {
            let Some(i) = names.iter().position(|n| *n == name.name) else {
                let d = Diagnostic::error("M0101", format!("`batch` has no `{}`", name.name))
                    .label(name.span, "unknown setting");
                let all = names.iter().copied();
                self.report(crate::scope::with_near(d, name, all, "it has"));
                return None;
            };
            let path = format!("train.batch.{}", names[i]);
            found[i] = Some(self.whole_setting(file, &path, value, 1)?);
        }
        let (global, accumulate) = match found {
            [Some(g), Some(m), Some(a)] if g == m.saturating_mul(a) => (g, a),
            [None, Some(m), Some(a)] => (m.saturating_mul(a), a),
            [Some(g), Some(m), None] if g % m == 0 => (g, g / m),
            [Some(g), None, Some(a)] if g % a == 0 => (g, a),
            _ => {
                self.report(
                    Diagnostic::error("M0507", "the batch does not multiply out")
                        .label(at, "global = micro * accumulate")
                        .help("give two of global, micro and accumulate; the third follows"),
                );
                return None;
            }
        };
        Some((global, Some(accumulate)))
    }

    /// Pieces of a batch: `shards`, or `accumulate` where the program says that.
    fn shards_of(
        &mut self,
        given: &Settings<'a>,
        implied: Option<u64>,
        shards: Option<u64>,
    ) -> Option<u32> {
        let accumulate = given.values.get("batch");
        let n = match (shards, implied) {
            (Some(s), Some(a)) if s != a => {
                let at = given.values.get("shards").map_or(Span::default(), |e| e.span);
                let title = format!("`shards` is {s}, and `accumulate` makes {a} pieces");
                self.report(
                    Diagnostic::error("M0507", title)
                        .label(at, "pieces of a batch")
                        .label(accumulate.map_or(at, |e| e.span), "pieces of a batch too"),
                );
                return None;
            }
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) => 8,
        };
        if n > 4096 {
            let at = given.values.get("shards").or(given.values.get("batch"));
            let title = format!("a batch is cut into at most 4096 pieces, not {n}");
            let d = Diagnostic::error("M0112", title);
            self.report(match at {
                Some(e) => d.label(e.span, "too many"),
                None => d,
            });
            return None;
        }
        Some(n as u32)
    }

    fn pace(
        &mut self,
        given: &Settings<'a>,
        data: Option<&DataFacts>,
        batch: Option<(u64, Option<u64>)>,
        drop_last: Option<bool>,
    ) -> Option<Pace> {
        let (data, batch) = (data?, batch?.0);
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
        let (tokens_per_sample, has_tokens) = (data.tokens_per_sample, data.has_tokens());
        Some(Pace { batch, steps_per_epoch, tokens_per_sample, has_tokens })
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
            let title =
                format!("a run has at least one step: {} is none", show(&Value::Quantity(q)));
            self.report(Diagnostic::error("M0505", title).label(expr.span, "no run"));
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
    fn mark_place(&mut self, place: Option<(Option<usize>, Option<usize>)>) {
        let Some((cluster, layout)) = place else { return };
        if let Some(id) = cluster {
            self.mark_cluster(id);
        }
        let Some(id) = layout else { return };
        if let Some(layout) = self.state.layouts.get(id).cloned().flatten() {
            self.mark_layout(&layout);
            let block = self.plans[id].ast;
            self.mark_words(&layout, block);
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
