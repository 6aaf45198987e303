use crate::{Answer, Tried};
use monarch_graph::{Best, Every, Plan, Rule};
use std::collections::BTreeMap;
use std::fmt;

/// Which transport may carry gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where all workers can share it, else QUIC.
    #[default]
    Auto,
    SharedMemory,
    Quic,
}

/// Bounds on every wait, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start until all workers have joined.
    pub join_ns: u64,
    /// From `Start` until all are ready.
    pub ready_ns: u64,
    /// No word from any worker while work is outstanding.
    pub stall_ns: u64,
    /// From an interrupt, or from `Finish`, until the end.
    pub grace_ns: u64,
    /// From a survivor's complaint until its cause must be known.
    pub settle_ns: u64,
    /// From `Halt` until a worker must have answered.
    pub halt_ns: u64,
    /// From the start of a controller in the place of another until its workers are back.
    pub return_ns: u64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        const SECOND: u64 = 1_000_000_000;
        Timeouts {
            join_ns: 30 * SECOND,
            ready_ns: 300 * SECOND,
            stall_ns: 1_800 * SECOND,
            grace_ns: 30 * SECOND,
            settle_ns: SECOND,
            halt_ns: 10 * SECOND,
            return_ns: 10 * SECOND,
        }
    }
}

/// What follows the loss of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The others go on while at least so many are left; 0: the run ends.
    pub least: u32,
    /// Workers that were started here are started again.
    pub replace: bool,
    /// So many times in a row without a step between.
    pub attempts: u32,
}

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery { least: 1, replace: true, attempts: 3 }
    }
}

/// What follows when a worker holds the others up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowAnswer {
    /// Says so, once it is slower by this share.
    Warn { after: f64 },
    /// Says so, and deals its shards to faster ones.
    Rebalance { after: f64 },
    /// Goes on without it, once it has been slow for so long.
    Exclude { after_ns: u64 },
    /// Starts another one in its place.
    Replace,
    /// Saves a checkpoint and ends the run.
    Stop,
}

impl SlowAnswer {
    /// What follows where a job says nothing.
    pub fn usual() -> Vec<SlowAnswer> {
        vec![SlowAnswer::Rebalance { after: 0.2 }]
    }
}

/// An evaluation of the plan, by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalNames {
    pub name: String,
    pub metrics: Vec<String>,
}

/// When checkpoints are saved, beside the clock and the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saves {
    /// After every so many steps too.
    pub also: Option<u64>,
    /// With every evaluation.
    pub after_eval: bool,
    /// Training waits until it is whole.
    pub waits: bool,
    /// An evaluation that beats all before it is saved.
    pub best: Option<Best>,
    /// The best value before this run's first step.
    pub best_so_far: Option<f64>,
}

/// What the state machine must know of a plan and of a person's wishes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub world: u32,
    pub shards: u32,
    /// Lanes per worker; None shares a host's cores among its workers.
    pub threads: Option<u32>,
    pub transport: Transport,
    /// Steps of the whole run.
    pub steps: u64,
    /// Steps done before this run: 0, or the checkpoint's.
    pub first_step: u64,
    pub evals: Vec<EvalNames>,
    pub eval_every: Option<Every>,
    /// Evaluate whenever a checkpoint is saved.
    pub eval_after_save: bool,
    pub save_every: Option<Every>,
    pub saves: Saves,
    /// Save when the run ends, whether it is complete or was asked to stop.
    pub save_at_end: bool,
    pub rules: Vec<Rule>,
    /// What follows the loss of a worker.
    pub recovery: Recovery,
    /// What follows when loss or gradients are not finite, one after the other; then the run ends.
    pub answers: Vec<Answer>,
    /// How far they had been tried before this run's first step.
    pub tried: Tried,
    /// Whole checkpoints up to the first step that the steps had asked for, and whether they are
    /// finite.
    pub points: BTreeMap<u64, bool>,
    /// What follows when a worker is slow: one after the other. None: it is not looked at.
    pub slow: Vec<SlowAnswer>,
    pub timeouts: Timeouts,
}

impl Config {
    /// The part of a plan that matters here; the rest as a person would leave it.
    pub fn of(plan: &Plan, world: u32) -> Config {
        Config {
            world,
            shards: plan.shards,
            threads: None,
            transport: Transport::Auto,
            steps: plan.steps,
            first_step: 0,
            evals: plan.evals.iter().map(names).collect(),
            eval_every: plan.eval_every,
            eval_after_save: plan.eval_after_checkpoint,
            save_every: plan.checkpoint.as_ref().and_then(|c| c.every),
            saves: plan.checkpoint.as_ref().map_or_else(Saves::default, |c| Saves {
                also: c.also,
                after_eval: c.after_eval,
                waits: !c.background,
                best: c.best.clone(),
                best_so_far: None,
            }),
            save_at_end: true,
            rules: plan.rules.clone(),
            recovery: Recovery::default(),
            answers: Vec::new(),
            tried: Tried::default(),
            points: BTreeMap::new(),
            slow: SlowAnswer::usual(),
            timeouts: Timeouts::default(),
        }
    }

    /// The evaluations at the step from which the run goes on are made (again): one who is stopped
    /// in the middle of them has not made the decisions that hang on them. Those that time alone
    /// had asked for are not, nor those at the end of a run that was shorter.
    pub fn evaluates_at_first_step(&self) -> bool {
        let first = self.first_step;
        first > 0
            && !self.evals.is_empty()
            && (first == self.steps
                || crate::run::due_by_step(self.eval_every, first)
                || (self.eval_after_save && self.saves_by_step(first)))
    }

    /// Whether the steps alone make a checkpoint due at this edge.
    pub(crate) fn saves_by_step(&self, edge: u64) -> bool {
        let also = self.saves.also.is_some_and(|n| n > 0 && edge.is_multiple_of(n));
        edge > 0 && (also || crate::run::due_by_step(self.save_every, edge))
    }

    /// Whether this metric decides which checkpoint is the best.
    pub(crate) fn is_best(&self, metric: Metric) -> bool {
        self.saves.best.as_ref().is_some_and(|b| self.metric(&b.metric) == Some(metric))
    }

    /// Position of the metric among the evaluations, or that it is the training loss.
    pub(crate) fn metric(&self, name: &str) -> Option<Metric> {
        if name == "loss" {
            return Some(Metric::Loss);
        }
        let (eval, metric) = name.split_once('.')?;
        let evaluation = self.evals.iter().position(|e| e.name == eval)?;
        let value = self.evals.get(evaluation)?.metrics.iter().position(|m| m == metric)?;
        Some(Metric::Eval { evaluation: evaluation as u32, value })
    }
}

fn names(eval: &monarch_graph::Evaluation) -> EvalNames {
    let metrics = eval.metrics.iter().map(|m| m.name.clone()).collect();
    EvalNames { name: eval.name.clone(), metrics }
}

/// What a rule watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Loss,
    Eval { evaluation: u32, value: usize },
}

/// Why no run can be made of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    NoWorkers,
    /// Some workers would have nothing to do.
    IdleWorkers {
        world: u32,
        shards: u32,
    },
    /// A rule watches what nothing measures.
    UnknownMetric {
        name: String,
        known: Vec<String>,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::NoWorkers => write!(f, "a run needs at least one worker"),
            ConfigError::IdleWorkers { world, shards } => write!(
                f,
                "{world} workers cannot share {shards} shards: {} would be idle; use at most \
                 {shards} workers, or set more `shards` in the job",
                world - shards,
            ),
            ConfigError::UnknownMetric { name, known } => {
                write!(f, "a rule watches `{name}`, which nothing measures; known: ")?;
                write!(f, "{}", known.join(", "))
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Nothing is silently idle or ignored.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.world == 0 {
            return Err(ConfigError::NoWorkers);
        }
        if self.world > self.shards {
            return Err(ConfigError::IdleWorkers { world: self.world, shards: self.shards });
        }
        for rule in &self.rules {
            if self.metric(&rule.metric).is_none() {
                let mut known = vec!["loss".to_string()];
                for eval in &self.evals {
                    known.extend(eval.metrics.iter().map(|m| format!("{}.{m}", eval.name)));
                }
                return Err(ConfigError::UnknownMetric { name: rule.metric.clone(), known });
            }
        }
        Ok(())
    }
}
