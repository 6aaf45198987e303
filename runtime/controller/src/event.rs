use crate::summary::Summary;
use monarch_wire::Phases;
use std::path::PathBuf;

/// Learns what happens in a run, as it happens.
pub trait Observer {
    /// Called on the run's own thread, in the order of events: be quick.
    fn event(&mut self, event: &RunEvent);
}

impl<F: FnMut(&RunEvent)> Observer for F {
    fn event(&mut self, event: &RunEvent) {
        self(event);
    }
}

/// What happens in a run.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// Workers may come to this address.
    Listening {
        address: std::net::SocketAddr,
    },
    /// One more worker has joined: `joined` of `world`.
    Joined {
        host: String,
        joined: u32,
        world: u32,
    },
    /// All workers are ready; steps begin.
    Started(StartedEvent),
    Step(StepEvent),
    /// Loss or gradients of a step are not finite: its update is not made.
    NotFinite(NotFiniteEvent),
    Evaluated(EvalEvent),
    CheckpointSaved(CheckpointEvent),
    /// Something a person should know; the run goes on.
    Warning {
        text: String,
    },
    /// A worker is lost. The others go on, or the run ends.
    WorkerLost {
        rank: u32,
        host: String,
        why: String,
        /// The one at hand.
        step: u64,
    },
    /// A worker holds the others up.
    WorkerSlow(SlowEvent),
    /// A worker that was slow is as fast as the others again.
    WorkerRecovered {
        rank: u32,
        host: String,
    },
    /// A worker has left in good order: it was told to end, or sent away. It is not started again.
    WorkerLeft {
        rank: u32,
        host: String,
        pid: u32,
        /// Steps done.
        step: u64,
    },
    /// Other members go on at this step.
    Regrouped {
        generation: u64,
        step: u64,
        workers: u32,
        /// From the last loss or arrival until all had taken their places.
        seconds: f64,
    },
    /// The controller was started again in the place of one that was killed, and goes on at this
    /// step with the workers that came back.
    Restarted {
        run_id: String,
        run_dir: PathBuf,
        incarnation: u64,
        step: u64,
        steps: u64,
        workers: u32,
        /// From the call of `run`.
        seconds: f64,
    },
    Finished(Box<Summary>),
}

/// A worker that takes longer than the others over its own work; waits do not count.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowEvent {
    pub rank: u32,
    pub host: String,
    /// `loading data`, `forward`, `backward`, `the update`: the phase that costs the most.
    pub phase: &'static str,
    /// In that phase: so many times the others' time.
    pub times: f64,
    /// Seconds of that phase, for a shard or for an update; the others': their median.
    pub seconds: f64,
    pub others_seconds: f64,
    /// Its shards before and after, when they are dealt anew.
    pub shards: Option<(u32, u32)>,
}

/// The cluster of a run as it begins.
#[derive(Clone, Debug)]
pub struct StartedEvent {
    pub run_id: String,
    pub run_dir: PathBuf,
    pub job: String,
    pub job_hash: [u8; 32],
    pub workers: Vec<WorkerEvent>,
    /// `none`, `shared memory`, `QUIC`.
    pub transport: &'static str,
    /// Of the weights before the first step.
    pub fingerprint: String,
    pub first_step: u64,
    pub steps: u64,
    /// From the call of `run` until all workers had joined, and until all were ready.
    pub joined_ns: u64,
    pub ready_ns: u64,
}

/// A worker of a run.
#[derive(Clone, Debug)]
pub struct WorkerEvent {
    pub rank: u32,
    pub host: String,
    pub pid: u32,
    pub threads: u32,
    /// Memory for weights, gradients, optimizer and activations.
    pub bytes: u64,
    /// Vector instructions: `avx512`, `avx2`, `scalar`.
    pub isa: String,
}

/// A step whose loss or gradients are not finite.
#[derive(Clone, Debug)]
pub struct NotFiniteEvent {
    pub step: u64,
    /// What is not finite, and where it comes from: worker, shard, samples, line of the job.
    pub what: String,
    /// The shard that is to blame, if one is.
    pub shard: Option<u32>,
    /// `skip`, `rollback`, `stop`.
    pub answer: &'static str,
    /// The same in words.
    pub follows: String,
}

/// One step, seen by all workers together.
#[derive(Clone, Debug)]
pub struct StepEvent {
    /// Number of the step, from 0.
    pub step: u64,
    /// Steps of the whole run.
    pub steps: u64,
    pub epoch: u64,
    pub samples: u64,
    pub loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    /// Loss and gradients are numbers, and the update was made.
    pub finite: bool,
    /// Duration on the slowest worker.
    pub seconds: f64,
    pub samples_per_second: f64,
    /// For jobs that have tokens.
    pub tokens_per_second: Option<f64>,
    /// Share of all workers' time in which computing had ended and communication had not.
    pub wait_share: f64,
    /// In order of rank.
    pub phases: Vec<Phases>,
}

impl StepEvent {
    /// Seconds that each worker waited for communication, in order of rank.
    pub fn waits(&self) -> Vec<f64> {
        self.phases.iter().map(|p| p.wait_ns as f64 * 1e-9).collect()
    }
}

#[derive(Clone, Debug)]
pub struct EvalEvent {
    /// Steps done when it ran.
    pub step: u64,
    /// `eval`.
    pub name: String,
    /// `eval.loss`, `eval.accuracy` and their values.
    pub values: Vec<(String, f64)>,
    pub samples: u64,
    pub seconds: f64,
}

#[derive(Clone, Debug)]
pub struct CheckpointEvent {
    pub path: PathBuf,
    /// Steps done.
    pub step: u64,
    pub fingerprint: String,
    /// From the request until it was whole.
    pub seconds: f64,
}
