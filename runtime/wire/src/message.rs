use crate::codec::Message;
use monarch_graph::Plan;
use wincode::{SchemaRead, SchemaWrite};

/// A worker introduces itself; the first frame on its control stream.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Hello {
    /// `CARGO_PKG_VERSION` of the worker.
    pub version: String,
    /// Name of the machine, for people.
    pub host: String,
    /// Equal for processes that can share memory: boot id and user id.
    pub shm_domain: String,
    pub pid: u32,
    /// Processors that the worker may use.
    pub cores: u32,
    /// Where its peers reach it, `ip:port`.
    pub peer_address: String,
    /// Hash of the job that the worker was started for, when it was given one.
    pub job: Option<[u8; 32]>,
    /// Echo of the number that the controller gave a process it started itself.
    pub slot: Option<u32>,
    /// The process's descriptor of its page of signs of life.
    pub pulse: Option<u32>,
    /// For one whose controller is gone: what it brings. Its reports that were not said to be kept
    /// follow at once.
    pub back: Option<Back>,
}

/// A worker that has lost its controller comes to one that was started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Back {
    /// Number of the last controller that it worked for; 0 before its first `Start`.
    pub incarnation: u64,
    /// Name of the run in its `Start`; None if it has had none.
    pub run: Option<String>,
    /// The highest generation that it was told of.
    pub generation: u64,
}

/// What the controller says to a worker.
// `Start` is large and sent once; boxing it would burden everyone who matches on messages.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum ToWorker {
    /// Not welcome, and why: wrong version, wrong job, cluster full.
    Refused { why: String },
    /// The job and the worker's place in it. Answered by `Ready` or `Failed`.
    Start(Start),
    /// Run steps up to `until` (exclusive), with what is due after some of them. Steps already
    /// run are not run again; a later window extends an earlier one.
    Window(Window),
    /// Answered by `Pong` with the same number.
    Ping(u64),
    /// The run is over: answer `Finished`, then leave.
    Finish,
    /// Leave now; nothing is saved.
    Abort { why: String },
    /// Members change: drop the step at hand. Answered by `Halted`; then `Form` or `Abort` comes.
    Halt { generation: u64 },
    /// A place in a new generation, for a worker that has had its `Start`. Answered like it.
    Form(Form),
    /// The others go on without this worker: leave in good order.
    Release,
    /// Leave the update of this step out, whose numbers were reported as not finite, and go on.
    Skip { step: u64 },
    /// The answer to a `Hello` with `back`: this controller goes on with the run.
    Adopted(Adopted),
}

#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Adopted {
    /// Counts the controllers of a run, from 1.
    pub incarnation: u64,
    /// A file that ends when the controller does, for a process of the same machine.
    pub lifeline: Option<String>,
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Start {
    pub plan: Plan,
    pub run: String,
    /// Continue from this checkpoint directory.
    pub resume: Option<String>,
    /// Step at which the run starts (0, or the checkpoint's).
    pub first_step: u64,
    /// Record spans of these steps for the trace.
    pub trace: Vec<u64>,
    /// Counts the controllers of a run, from 1: one that is killed may be started again.
    pub incarnation: u64,
    pub form: Form,
}

/// A worker's place among the members of a generation.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Form {
    /// Counts the times that the members have changed.
    pub generation: u64,
    pub rank: u32,
    pub world: u32,
    /// Lanes: threads that compute shards.
    pub threads: u32,
    /// Which transport carries gradients.
    pub links: Links,
    /// Steps done when it begins.
    pub base: u64,
    /// Per rank: has the weights and the optimizer's state after `base` steps. When nobody has,
    /// all begin as `Start` says; otherwise those that have not receive them from the first that
    /// has.
    pub holders: Vec<bool>,
    /// Per shard: the rank that computes it. A rank may have none.
    pub deal: Vec<u32>,
    /// Where weights and optimizer come from.
    pub source: Source,
}

/// Where the weights and the optimizer of a generation come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Source {
    /// From its members, as `Form::holders` says.
    #[default]
    Members,
    /// The values that the plan begins with.
    Beginning,
    /// This checkpoint, which is of this step.
    Checkpoint { directory: String, step: u64 },
}

impl Form {
    /// Some members have the weights, and others are to receive them.
    pub fn is_shared(&self) -> bool {
        self.holders.contains(&true) && self.holders.contains(&false)
    }
}

/// How gradients travel between the workers of a job.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Links {
    /// One worker alone.
    None,
    /// All on one host: a file in memory that everyone maps and makes as long as it must be.
    SharedMemory { path: String },
    /// QUIC; addresses in order of rank.
    Quic { peers: Vec<String> },
}

/// Each due is sent exactly once, in the order in which dues are carried out. A due at `until`
/// may come with the window that ends there or with a later one of the same `until`: a worker
/// that has reached `until` waits for either a further step or a due at hand.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Window {
    pub until: u64,
    pub due: Vec<Due>,
    /// Steps below this one are on record for good: no controller will ask for their reports again.
    pub kept: u64,
}

/// Something to do when `step` steps are done, before step number `step` begins.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Due {
    pub step: u64,
    pub what: DueKind,
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum DueKind {
    /// Run evaluation number `.0` of the plan.
    Evaluate(u32),
    /// Write this worker's part of a checkpoint into the directory (which exists).
    Save { directory: String },
}

/// What a worker says to the controller.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum FromWorker {
    Hello(Hello),
    /// Data opened, weights set, peers connected.
    Ready(Ready),
    Step(StepReport),
    Evaluated(EvalReport),
    Saved(SaveReport),
    Pong(u64),
    Finished(Finished),
    Failed(Failure),
    Halted(Halted),
    /// It was told to end: it asks to be let go at the next edge between two steps. Answered by
    /// `Release`, or by the end of the run, which it then sees to the end.
    Leaving,
    /// Signs of life of a worker that nobody has started here, again and again from a thread of
    /// its own.
    Pulse(Pulse),
}

/// A worker's counters, for a controller that cannot see its page.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Pulse {
    /// Rises as long as the process runs.
    pub beats: u64,
    /// The step at hand.
    pub step: Option<u64>,
    pub streams: Vec<PulseStream>,
}

/// One thread of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct PulseStream {
    /// Which one: as `monarch_pulse::Role` codes it.
    pub role: u32,
    /// What it is at: as `monarch_pulse::Phase` numbers it.
    pub phase: u8,
    /// Rises with everything that it finishes.
    pub count: u64,
    pub thread: u32,
}

/// The answer to `Halt`: nothing of the generation before follows it.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Halted {
    pub generation: u64,
    /// Steps that this worker's weights have seen; None while it has none.
    pub done: Option<u64>,
    /// Where its peers reach it from now on.
    pub peer_address: String,
    /// Shards of the step at hand that need not be computed again here, if the run goes on at
    /// `done`.
    pub kept: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Ready {
    pub generation: u64,
    /// Fingerprint of the weights before the first step: equal on all ranks. Empty in a later
    /// generation all of whose members have kept their weights.
    pub fingerprint: String,
    /// Bytes this worker holds: weights, gradients, optimizer, activations.
    pub bytes: u64,
    /// Vector instructions in use: `avx512`, `avx2`, `scalar`.
    pub isa: String,
    pub threads: u32,
}

/// One step as one worker saw it. Loss and norm are those of the whole batch, equal on all
/// ranks to the bit.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct StepReport {
    pub step: u64,
    pub epoch: u64,
    /// Samples of the whole batch.
    pub samples: u64,
    pub loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    pub phases: Phases,
    /// Filled for traced steps.
    pub spans: Vec<TraceSpan>,
    /// Loss or gradients are not finite: no weight has changed, and the worker waits to be told
    /// what follows.
    pub trouble: Option<NotFinite>,
}

/// Numbers that are not finite.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct NotFinite {
    /// Of the whole batch, equal on all ranks.
    pub what: String,
    pub span: Option<monarch_graph::Span>,
    /// Where it comes from, on ranks that hold a shard which is to blame.
    pub origin: Option<Origin>,
}

#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Origin {
    pub shard: u32,
    /// The shard's samples: positions `first..end` in the epoch's order.
    pub first: u64,
    pub end: u64,
    pub what: String,
    pub span: Option<monarch_graph::Span>,
}

/// Where a step's time went on one worker, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Phases {
    pub total_ns: u64,
    pub data_ns: u64,
    /// Computing threads busy with forward and backward (wall time of the compute phase).
    pub compute_ns: u64,
    /// Compute had ended and a reduction had not: communication that overlap did not hide.
    pub wait_ns: u64,
    /// Communication thread busy or waiting for peers.
    pub communication_ns: u64,
    pub update_ns: u64,
    /// Added up over the shards held, whichever lane computed them, and without any wait for
    /// peers: loading, then computing up to the loss, then the rest.
    pub load_ns: u64,
    pub forward_ns: u64,
    pub backward_ns: u64,
    /// Gradient bytes sent to other workers.
    pub sent_bytes: u64,
    /// Shards that this worker has computed since the members last changed.
    pub shards: u32,
}

/// One task on one stream of one worker, for the Chrome trace.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct TraceSpan {
    pub name: String,
    /// 0.. are lanes, then `communication`, `host`.
    pub stream: String,
    /// Nanoseconds of CLOCK_MONOTONIC of that host.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Gradient bytes, for communication.
    pub bytes: u64,
}

/// Every rank reports each evaluation once; values are equal on all ranks to the bit.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct EvalReport {
    /// Steps done when it ran.
    pub step: u64,
    pub evaluation: u32,
    /// Values in the order of the plan's metrics.
    pub values: Vec<f64>,
    pub samples: u64,
    pub nanoseconds: u64,
}

/// Every rank reports each save once, also a failed one, after which it goes on.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct SaveReport {
    pub step: u64,
    /// Name within the directory; None when this rank had nothing to write.
    pub file: Option<SavedFile>,
    /// Fingerprint of all weights at this step.
    pub fingerprint: String,
    pub nanoseconds: u64,
    /// Why the file could not be written.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct SavedFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: [u8; 32],
    pub tensors: Vec<String>,
    /// Whether all values are.
    pub finite: bool,
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Finished {
    /// Steps done.
    pub step: u64,
    pub fingerprint: String,
}

/// The first thing that went wrong on a worker.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Failure {
    /// Step at hand, if any.
    pub step: Option<u64>,
    /// Task at hand: `forward`, `reduce bucket 2`, `load data`.
    pub task: String,
    pub message: String,
    /// Line of the job, when one is to blame.
    pub span: Option<monarch_graph::Span>,
    /// Rank whose loss was noticed, when that is the cause: its own report says more.
    pub lost_peer: Option<u32>,
}

impl Message for Plan {
    const WHAT: &'static str = "plan";
}
impl Message for ToWorker {
    const WHAT: &'static str = "message from the controller";
}
impl Message for FromWorker {
    const WHAT: &'static str = "message from a worker";
}
