use monarch_graph::Plan;
use monarch_net::ClusterKey;
use monarch_sched::{Answer, Config, Recovery, SlowAnswer, Timeouts, Transport};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that a run needs but its workers.
#[derive(Clone)]
pub struct RunConfig {
    pub plan: Plan,
    /// Of the plan: `monarch_wire::job_hash`.
    pub job_hash: [u8; 32],
    pub run_id: String,
    /// Holds checkpoints and logs; made when it is not there.
    pub run_dir: PathBuf,
    pub workers: u32,
    /// Lanes per worker; None shares each host's cores among its workers.
    pub threads: Option<u32>,
    /// None: all workers are threads of this process, and no socket is opened.
    pub network: Option<Network>,
    pub transport: Transport,
    pub resume: Option<Resume>,
    /// Steps whose tasks go into `trace.json`.
    pub trace_steps: Vec<u64>,
    /// What follows the loss of a worker.
    pub recovery: Recovery,
    /// What follows when loss or gradients are not finite, one after the other; then the run ends.
    pub answers: Vec<Answer>,
    /// What follows when a worker is slow: one after the other; none: it is not looked at.
    pub slow: Vec<SlowAnswer>,
    pub timeouts: Timeouts,
    /// Save the weights when the run ends.
    pub save_at_end: bool,
    /// Texts of `plan.files`, in their order, so that failures can name lines.
    pub sources: Vec<String>,
    /// Keep a journal, by which a run goes on whose controller is killed. Workers that are threads
    /// of this process end with it: theirs goes on from a checkpoint.
    pub journal: bool,
    /// The journal of a controller that was killed, whose workers are waited for.
    pub restore: Option<crate::journal::Journaled>,
    /// What the directory's records say is of an attempt of this run that left no checkpoint.
    pub anew: bool,
    /// Params of the job as a person gave them, for `job.json`.
    pub params: Vec<(String, String)>,
}

/// Where workers of other processes reach the controller.
#[derive(Clone)]
pub struct Network {
    /// `HOST:PORT`; port 0 takes a free one.
    pub listen: String,
    pub key: ClusterKey,
    /// Silence after which a connection counts as lost, at most an hour. Workers of this machine
    /// show their death by other signs; with patience there, a controller that a person stops
    /// for a while (Ctrl-Z) loses nothing.
    pub patience: Duration,
}

/// Patience with workers of other machines: four times what a machine whose processors are all
/// busy keeps a network thread waiting in the worst case, and a lost one is found within 3 s.
pub const PATIENCE_AFAR: Duration = Duration::from_secs(2);
/// Patience between processes of one machine.
pub const PATIENCE_HERE: Duration = Duration::from_secs(3600);

/// The checkpoint to go on from, which is whole and fits the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    pub directory: PathBuf,
    /// Optimizer steps done in it.
    pub step: u64,
    /// Of the last evaluation before it, `eval.accuracy` and the like.
    pub metrics: BTreeMap<String, f64>,
}

impl RunConfig {
    /// A run as a person would leave it, on threads of this process.
    pub fn new(
        plan: Plan,
        job_hash: [u8; 32],
        run_id: impl Into<String>,
        run_dir: impl Into<PathBuf>,
        workers: u32,
    ) -> RunConfig {
        RunConfig {
            plan,
            job_hash,
            run_id: run_id.into(),
            run_dir: run_dir.into(),
            workers,
            threads: None,
            network: None,
            transport: Transport::Auto,
            resume: None,
            trace_steps: Vec::new(),
            recovery: Recovery::default(),
            answers: Vec::new(),
            slow: SlowAnswer::usual(),
            timeouts: Timeouts::default(),
            save_at_end: true,
            sources: Vec::new(),
            journal: false,
            restore: None,
            anew: false,
            params: Vec::new(),
        }
    }

    /// What the state machine must know.
    pub(crate) fn scheduling(&self) -> Config {
        Config {
            threads: self.threads,
            transport: self.transport,
            first_step: self.first_step(),
            save_at_end: self.save_at_end,
            recovery: self.recovery,
            answers: self.answers.clone(),
            slow: self.slow.clone(),
            timeouts: self.timeouts,
            ..Config::of(&self.plan, self.workers)
        }
    }

    /// Counts the controllers of this run, from 1.
    pub(crate) fn incarnation(&self) -> u64 {
        self.restore.as_ref().map_or(1, |j| j.head.incarnation.saturating_add(1))
    }

    pub(crate) fn first_step(&self) -> u64 {
        self.resume.as_ref().map_or(0, |r| r.step)
    }

    /// Tokens in one sample, for jobs that have tokens.
    pub(crate) fn tokens_per_sample(&self) -> Option<u64> {
        self.plan.data.source.tokens_per_sample()
    }
}
