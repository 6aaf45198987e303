//! What a run does beside its steps: hooks, and what follows a fault.

use super::MeshAxis;
use monarch_graph::Span;

/// `on step(every = 50 steps) => ..`: everything of the kind that is no rule on a metric with
/// `stop` or `checkpoint`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    pub event: HookEvent,
    pub action: HookAction,
    /// The run fails with this hook; otherwise a failing hook is reported and switched off.
    pub required: bool,
    /// Of the whole entry.
    pub span: Span,
}

/// What a hook waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum HookEvent {
    /// After every so many optimizer steps.
    Step {
        every: u64,
    },
    EvalDone,
    CheckpointDone,
    WorkerLost,
    WorkerJoined,
    /// This share slower than the others.
    WorkerSlow {
        above: f64,
    },
    LossNan,
    /// More than `above` times the moving average over so many steps.
    LossSpike {
        above: f64,
        over: u64,
    },
    Stop,
    /// A metric (`loss`, `eval.accuracy`) is beyond a bound.
    Metric {
        name: String,
        above: Option<f64>,
        below: Option<f64>,
    },
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq)]
pub enum HookAction {
    /// A text in Rhai, parsed and found right; line 1 is the rest of the line of its fence.
    Rhai {
        source: String,
        span: Span,
    },
    /// A function without parameters of an imported file, whose text this is.
    Function {
        file: String,
        name: String,
        source: String,
        span: Span,
    },
    Ask(Request),
}

/// What rules and hooks may ask for without Rhai.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Note(String),
    Checkpoint,
    SetLr(f64),
    /// So many checkpoints back.
    Rollback(u64),
    Pause,
    Stop,
}

/// What may go wrong without the program being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    WorkerLost,
    WorkerSlow,
    Collective,
    LossNan,
}

impl FaultKind {
    pub const ALL: [FaultKind; 4] =
        [FaultKind::WorkerLost, FaultKind::WorkerSlow, FaultKind::Collective, FaultKind::LossNan];

    /// Its setting in `fault { .. }`.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::WorkerLost => "worker.lost",
            FaultKind::WorkerSlow => "worker.slow",
            FaultKind::Collective => "collective",
            FaultKind::LossNan => "loss.nan",
        }
    }
}

/// `worker.lost = replace(from = "spares") then stop`: one response after another, each when the
/// one before has not helped. A chain that is used up stops the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub kind: FaultKind,
    /// Never empty; `Stop` only at its end.
    pub chain: Vec<Response>,
    pub span: Span,
}

impl Fault {
    /// For `replace then shrink(dp, min = 2) then stop`, with or without its first link: whether
    /// there is a replacement, and the fewest workers that go on.
    pub fn shrinks(&self) -> Option<(bool, u64)> {
        let mut chain = self.chain.as_slice();
        let replaces = matches!(chain, [Response::Replace { from }, ..] if from == "spares");
        if replaces {
            chain = chain.get(1..)?;
        }
        match chain {
            [Response::Shrink { axis: MeshAxis::Dp, min }]
            | [Response::Shrink { axis: MeshAxis::Dp, min }, Response::Stop] => {
                Some((replaces, *min))
            }
            _ => None,
        }
    }
}

/// One response to a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// By a worker of this pool.
    Replace {
        from: String,
    },
    /// To fewer along this axis.
    Shrink {
        axis: MeshAxis,
        min: u64,
    },
    /// Once this share slower than the others.
    Warn {
        after: f64,
    },
    /// Its shards go to faster ones, once this share slower than the others.
    Rebalance {
        after: f64,
    },
    /// Seconds.
    Exclude {
        after: f64,
    },
    /// Seconds.
    Abort {
        after: f64,
    },
    Retry {
        times: u64,
    },
    Skip {
        steps: u64,
    },
    /// So many checkpoints back.
    Rollback {
        by: u64,
    },
    Stop,
}
