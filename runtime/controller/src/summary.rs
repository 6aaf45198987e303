use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// All steps are done.
    Completed,
    /// A rule of the job asked for it; in words, with the rule's line.
    Rule(String),
    /// The embedding program asked for it.
    Stopped,
    /// A person asked for it; `saved`: a checkpoint holds all steps done.
    Interrupted {
        saved: bool,
    },
    Failed,
}

/// What a run has come to.
#[derive(Clone, Debug)]
pub struct Summary {
    pub run_id: String,
    pub run_dir: PathBuf,
    pub why: Why,
    /// Steps done before this run, and now.
    pub first_step: u64,
    pub steps: u64,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// Last value of each evaluation metric.
    pub metrics: BTreeMap<String, f64>,
    /// Best value of each evaluation metric whose direction is known, and steps done then.
    pub best: BTreeMap<String, (f64, u64)>,
    /// Fingerprint of the weights at the end.
    pub fingerprint: Option<String>,
    /// Last whole checkpoint, and steps done in it.
    pub checkpoint: Option<(PathBuf, u64)>,
    pub logs: Logs,
    /// From the call of `run` to the end.
    pub wall: Duration,
    /// Time in steps alone, as the slowest worker of each saw it.
    pub stepping: Duration,
    pub samples: u64,
    pub tokens: Option<u64>,
    /// Share of the workers' time spent waiting for communication.
    pub wait_share: f64,
    /// Records that were dropped because the disk was too slow, or could not be written.
    pub records_dropped: u64,
}

impl Summary {
    pub fn samples_per_second(&self) -> f64 {
        let seconds = self.stepping.as_secs_f64();
        if seconds > 0.0 { self.samples as f64 / seconds } else { 0.0 }
    }
}

/// Where to look at a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// One line of JSON per event.
    pub events: Option<PathBuf>,
    /// Directory of TensorBoard event files.
    pub tensorboard: Option<PathBuf>,
    /// Chrome trace of the steps asked for.
    pub trace: Option<PathBuf>,
}

/// A run that did not end well.
#[derive(Clone, Debug)]
pub struct RunError {
    /// Exit code for a command line: 1 failed, 2 cannot be run as asked, 4 the cluster cannot be
    /// reached, 130 interrupted.
    pub code: u8,
    /// The first cause, on one or more lines.
    pub message: String,
    /// What was achieved, when the run had begun.
    pub summary: Option<Box<Summary>>,
    /// The workers of the controller that was killed could not go on: the last checkpoint can.
    pub only_checkpoint: bool,
}

impl RunError {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> RunError {
        RunError { code, message: message.into(), summary: None, only_checkpoint: false }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RunError {}
