use crate::straggle::Slowness;
use crate::{Exit, Failure, Hang, Source, StepNumbers, Tried, Verdict, WorkerId};

/// What the controller is to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Turn this worker away.
    Refuse { worker: WorkerId, why: String },
    /// Send every worker its job and place. In order of rank.
    Start { placements: Vec<Placement>, deal: Vec<u32>, links: LinkPlan },
    /// Send to all of `workers`: drop the step at hand and say how far you are.
    Halt { generation: u64, workers: Vec<WorkerId> },
    /// Send every worker its place in a new generation, which goes on at `base`.
    Form(Forming),
    /// All have taken their places in this generation: steps go on.
    Formed { generation: u64, step: u64, world: u32, waited_ns: u64 },
    /// Start another worker under this number.
    Replace { slot: u32 },
    /// End this worker: it is not counted on any more.
    Evict { worker: WorkerId, why: String },
    /// The others go on at `step` without this worker: let it leave.
    Release { worker: WorkerId, step: u64 },
    /// All are ready; steps begin. Fingerprint of the weights before the first one.
    Started { fingerprint: String },
    /// Send to all: run until `until` (exclusive), with what is due.
    Window { until: u64, due: Vec<Due> },
    /// All ranks have reported this step and agree.
    Step(StepNumbers),
    /// Loss or gradients of this step are not finite, and what follows. `told`: it is in the record
    /// already.
    NotFinite { step: u64, verdict: Verdict, told: bool },
    /// Send to all: leave the update of this step out, and go on.
    Skip { step: u64 },
    /// All ranks have reported this evaluation and agree.
    Evaluated(EvalNumbers),
    /// All parts of the checkpoint are written: verify, write the manifest, rename. Answered by
    /// [`crate::Event::Committed`]. With `only_finite` one whose numbers are not is refused.
    Commit { step: u64, fingerprint: String, tried: Tried, only_finite: bool },
    /// The checkpoint cannot become whole: remove what there is of it.
    Discard { step: u64, why: String },
    /// Something a person should know at once; the run goes on.
    Warn(Warning),
    /// A worker holds the others up; with a new deal, its shards before and after.
    Slow { rank: u32, worker: WorkerId, what: Slowness, shards: Option<(u32, u32)> },
    /// Tell all to leave now.
    Abort { why: String },
    /// Tell all that the run is over.
    Finish,
    /// The end. Nothing follows.
    Conclude(Box<Outcome>),
}

/// The members of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forming {
    pub generation: u64,
    /// Steps done when it begins.
    pub base: u64,
    /// In order of rank.
    pub placements: Vec<Placement>,
    /// Per shard: the rank that computes it. A rank may have none.
    pub deal: Vec<u32>,
    /// Per rank: holds weights and optimizer after `base` steps. If nobody does, all begin anew;
    /// otherwise those that do not receive them from one that does.
    pub holders: Vec<bool>,
    pub source: Source,
    pub links: LinkPlan,
}

/// A worker's place in the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub worker: WorkerId,
    pub rank: u32,
    /// Lanes: threads that compute shards.
    pub threads: u32,
}

/// How gradients travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkPlan {
    None,
    SharedMemory,
    /// Addresses in order of rank.
    Quic {
        peers: Vec<String>,
    },
}

/// Something to do when `step` steps are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub step: u64,
    pub what: DueKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueKind {
    Evaluate(u32),
    Save,
}

/// An evaluation on which all ranks agree.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalNumbers {
    /// Steps done when it ran.
    pub step: u64,
    pub evaluation: u32,
    pub values: Vec<f64>,
    pub samples: u64,
    /// The slowest rank's.
    pub nanoseconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A worker is gone and the others go on; `step` is the one at hand.
    WorkerLost { rank: u32, worker: WorkerId, slot: Option<u32>, why: String, step: u64 },
    /// A worker that is started again and again ends each time: it is given up.
    GivenUp { slot: u32, times: u32 },
    /// Two workers do not reach each other; the same members try once more.
    LinkBroken { rank: u32, peer: u32, why: String },
    /// A worker that nobody started here was turned away.
    Refused { worker: WorkerId, why: String },
    /// A worker left before the job began; others may come.
    LeftEarly { worker: WorkerId, why: String },
    /// Training goes on; the last whole checkpoint remains.
    SaveFailed { step: u64, why: String },
    /// The run ends in a failure, and what it has come to is on no disk.
    NotSaved { step: u64, why: String },
    /// A worker did not take its leave although all of its work was done.
    BadGoodbye { rank: u32, why: String },
    /// A worker was told to end, and too few would be left: the run is saved and ends.
    LastLeaves { worker: WorkerId, left: u32 },
    /// A worker cannot be sent away.
    NotDrained { rank: u32, why: String },
    /// A worker that was slow is as fast as the others again.
    Recovered { rank: u32, worker: WorkerId },
    /// The first interrupt: the run is to be saved at this step and then to stop.
    Stopping { step: u64 },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub ended: Ended,
    /// Steps done by all ranks.
    pub steps: u64,
    /// Of the weights at the end, when the run came to an orderly one.
    pub fingerprint: Option<String>,
    /// Step of the last whole checkpoint written or resumed from.
    pub checkpoint: Option<u64>,
    /// What else was said of the failure: consequences of its cause.
    pub followed: Vec<Cause>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// All steps done.
    Completed,
    /// Rule number `rule` of the plan asked for the end, at this value of its metric.
    Rule {
        rule: usize,
        value: f64,
    },
    /// The embedding program asked for it.
    Stopped,
    /// `saved`: a checkpoint holds all steps done.
    Interrupted {
        saved: bool,
    },
    Failed(Cause),
}

/// The first cause of a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// The controller was started again, and its workers cannot go on from where they were: the
    /// last checkpoint is left.
    NoWayBack { why: String },
    /// Not enough workers came in time.
    TooFew { came: u32, world: u32, waited_ns: u64 },
    /// A worker that the controller started was turned away.
    Refused { worker: WorkerId, why: String },
    /// A worker that the controller started ended before it joined.
    NeverJoined { slot: u32, exit: Exit },
    /// Shared memory was asked for, and these workers cannot share any.
    NoSharedMemory { hosts: Vec<String> },
    /// These ranks did not get ready in time.
    NotReady { ranks: Vec<u32>, waited_ns: u64 },
    /// A worker's own report.
    Worker { rank: u32, worker: WorkerId, failure: Failure },
    /// A worker ended.
    Exited { rank: u32, worker: WorkerId, exit: Exit },
    /// A worker lives and does not get on.
    Hung { rank: u32, worker: WorkerId, hang: Hang },
    /// A worker's connection ended, and nothing says why.
    Lost { rank: u32, worker: WorkerId, why: String },
    /// The controller itself could not go on.
    Controller { what: String },
    /// Ranks that must agree to the bit do not: groups of ranks with what each saw.
    Mismatch { step: u64, what: &'static str, groups: Vec<(Vec<u32>, String)> },
    /// A worker said what it could not have known or done.
    Protocol { rank: u32, worker: WorkerId, what: String },
    /// No word from anyone for this long, while these ranks had work to report.
    Stalled { ranks: Vec<u32>, waited_ns: u64, step: u64 },
    /// Loss or gradients of this step are not finite, and no answer is left.
    NotFinite { step: u64 },
    /// A worker holds the others up, and the job wants no run with such a one.
    Slow { rank: u32, worker: WorkerId, what: Slowness },
    /// The weights at the end could not be saved.
    FinalSave { step: u64, why: String },
    /// The checkpoint to go on from lies beyond the end of the job.
    BeyondEnd { first_step: u64, steps: u64 },
}
