use crate::protocol::Trouble;
use monarch_collective::CollectiveError;
use monarch_graph::Span;
use monarch_wire::Failure;
use std::fmt;

/// Why a worker's run ended early.
#[derive(Debug)]
pub enum WorkerError {
    /// The link to the controller is gone.
    LinkClosed { why: String },
    /// The controller said so.
    Aborted { why: String },
    /// Members change: the work at hand is dropped.
    Halted,
    /// The others go on without this worker.
    Released,
    /// The controller does not want this worker.
    Refused { why: String },
    /// A message that makes no sense at this point.
    Protocol { what: String },
    /// Data, weights, checkpoint, memory or peers could not be set up.
    Setup { task: String, message: String, span: Option<Span> },
    /// A task of a step failed.
    Task { step: u64, task: String, message: String, span: Option<Span> },
    /// Reduction with the peers failed.
    Collective { step: Option<u64>, task: String, source: CollectiveError },
    /// A bug: a thread of the worker panicked.
    Panic { task: String, message: String },
}

impl WorkerError {
    /// A setup error from anything that can say what it is.
    pub(crate) fn setup(task: &str, error: impl fmt::Display) -> WorkerError {
        WorkerError::Setup { task: task.into(), message: error.to_string(), span: None }
    }

    pub(crate) fn task(step: u64, task: &str, error: impl fmt::Display) -> WorkerError {
        WorkerError::Task { step, task: task.into(), message: error.to_string(), span: None }
    }

    /// True for an error that follows from another: the stop switch was set.
    pub(crate) fn is_echo(&self) -> bool {
        self.trouble() == Trouble::Echo
    }

    /// What matters of it for what follows.
    pub(crate) fn trouble(&self) -> Trouble {
        match self {
            WorkerError::Halted => Trouble::Echo,
            WorkerError::Collective { source: CollectiveError::Aborted, .. } => Trouble::Echo,
            WorkerError::Collective { source, .. } if source.lost_peer().is_some() => {
                Trouble::LostPeer
            }
            WorkerError::Collective { .. } | WorkerError::Setup { .. } => Trouble::WithPeers,
            _ => Trouble::Own,
        }
    }

    /// What the controller is told; None when it knows already or cannot be told.
    pub fn failure(&self) -> Option<Failure> {
        let (step, task, message, span, lost_peer) = match self {
            WorkerError::LinkClosed { .. }
            | WorkerError::Aborted { .. }
            | WorkerError::Halted
            | WorkerError::Released
            | WorkerError::Refused { .. } => return None,
            WorkerError::Protocol { what } => (None, "control".into(), what.clone(), None, None),
            WorkerError::Setup { task, message, span } => {
                (None, task.clone(), message.clone(), *span, None)
            }
            WorkerError::Task { step, task, message, span } => {
                (Some(*step), task.clone(), message.clone(), *span, None)
            }
            WorkerError::Collective { step, task, source } => {
                (*step, task.clone(), source.to_string(), None, source.lost_peer())
            }
            WorkerError::Panic { task, message } => {
                (None, task.clone(), format!("the worker panicked: {message}"), None, None)
            }
        };
        Some(Failure { step, task, message, span, lost_peer })
    }
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerError::LinkClosed { why } => {
                write!(f, "the link to the controller is gone: {why}")
            }
            WorkerError::Aborted { why } => write!(f, "the controller ended the run: {why}"),
            WorkerError::Halted => f.write_str("the members of the run change"),
            WorkerError::Released => f.write_str("the others go on without this worker"),
            WorkerError::Refused { why } => write!(f, "the controller refused this worker: {why}"),
            WorkerError::Protocol { what } => f.write_str(what),
            WorkerError::Setup { task, message, .. } => write!(f, "{task}: {message}"),
            WorkerError::Task { step, task, message, .. } => {
                write!(f, "step {step}, {task}: {message}")
            }
            WorkerError::Collective { step: Some(step), task, source } => {
                write!(f, "step {step}, {task}: {source}")
            }
            WorkerError::Collective { step: None, task, source } => write!(f, "{task}: {source}"),
            WorkerError::Panic { task, message } => write!(f, "{task}: panicked: {message}"),
        }
    }
}

impl std::error::Error for WorkerError {}
