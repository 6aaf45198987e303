use monarch_graph::Span;

/// A worker's connection, numbered by the controller; never used twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// All that can happen to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Joined(Joined),
    /// A worker has lost its controller, and comes with its job, and with its weights if it had
    /// any. `generation`: the highest that it was told of. What it has reported since the last
    /// word of what is on record follows again.
    Returned {
        joined: Joined,
        generation: u64,
    },
    /// The worker has data, weights and peers, and waits for its first window.
    Ready {
        worker: WorkerId,
        generation: u64,
        fingerprint: String,
    },
    /// The answer to [`crate::Command::Halt`].
    Halted {
        worker: WorkerId,
        generation: u64,
        /// Steps that its weights have seen; None if it has none yet.
        done: Option<u64>,
        /// Where its peers reach it from now on.
        peer_address: String,
    },
    Step {
        worker: WorkerId,
        numbers: StepNumbers,
    },
    Evaluated {
        worker: WorkerId,
        step: u64,
        evaluation: u32,
        values: Vec<f64>,
        samples: u64,
        nanoseconds: u64,
    },
    Saved {
        worker: WorkerId,
        step: u64,
        fingerprint: String,
        error: Option<String>,
    },
    /// The answer to [`crate::Command::Commit`].
    Committed {
        step: u64,
        /// All of its numbers are.
        finite: bool,
        error: Option<String>,
    },
    /// There is no place for the checkpoint of this step: nobody was asked to write it.
    SaveRefused {
        step: u64,
        why: String,
    },
    /// The controller itself cannot go on.
    Broken {
        what: String,
    },
    Finished {
        worker: WorkerId,
        step: u64,
        fingerprint: String,
    },
    /// The worker reports that it cannot go on.
    Failed {
        worker: WorkerId,
        failure: Failure,
    },
    /// The worker's connection is gone.
    Lost {
        worker: WorkerId,
        why: String,
    },
    /// The end that follows is the worker's own doing: a signal that it brought upon itself, more
    /// memory than there is, a bad exit code. It may come again.
    Crashed {
        slot: u32,
    },
    /// A worker that the controller started has ended, whether it had joined or not.
    Exited {
        slot: u32,
        exit: Exit,
    },
    /// The worker was told to end, and asks for its release.
    Leaving {
        worker: WorkerId,
    },
    /// The embedding program sends this worker away.
    Drain {
        rank: u32,
    },
    /// The worker lives, as far as is known, and does not get on.
    Hung {
        worker: WorkerId,
        hang: Hang,
    },
    /// Time has passed.
    Tick,
    /// Ctrl-C or SIGTERM: the first saves and stops, the second stops now.
    Interrupt,
    /// The embedding program asks for an orderly end: save, then stop.
    Stop,
    /// The embedding program asks for a checkpoint.
    Checkpoint,
}

/// A worker has introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub worker: WorkerId,
    pub host: String,
    /// Equal for workers that can share memory.
    pub shm_domain: String,
    /// Processors that the worker may use.
    pub cores: u32,
    pub peer_address: String,
    /// The number given to a worker that the controller started itself.
    pub slot: Option<u32>,
    /// Why this worker can take no part (another version, another job), both sides shown.
    pub objection: Option<String>,
}

/// One step as one rank saw it. All but the times must be equal on all ranks, to the bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepNumbers {
    pub step: u64,
    pub epoch: u64,
    pub samples: u64,
    pub loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    /// Duration of the step on this rank; the longest one in a merged step.
    pub total_ns: u64,
    /// What this rank was busy with.
    pub times: Times,
    /// Loss and gradients are numbers: the update was made.
    pub finite: bool,
}

/// A rank's own work in a step, nanoseconds, without any wait for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Added up over the shards held.
    pub load_ns: u64,
    pub forward_ns: u64,
    pub backward_ns: u64,
    /// Of all weights, whatever the number of shards.
    pub update_ns: u64,
}

/// What a worker says about its own end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub step: Option<u64>,
    pub task: String,
    pub message: String,
    pub span: Option<Span>,
    /// Set when the trouble is another rank's: that rank's own story is the cause.
    pub lost_peer: Option<u32>,
}

/// Why a worker is not to be counted on any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// What it was at: `forward and backward`.
    pub phase: String,
    /// The step at hand, as it said itself.
    pub step: Option<u64>,
    /// What speaks for it.
    pub evidence: String,
}

impl std::fmt::Display for Hang {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it hangs, {}", self.phase)?;
        if let Some(step) = self.step {
            write!(f, " in step {step}")?;
        }
        write!(f, ": {}", self.evidence)
    }
}

/// How a process or thread ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// `exit code 1`, `killed by signal 9 (SIGKILL)`.
    pub text: String,
    /// By a signal: never the consequence of another worker's trouble.
    pub by_signal: bool,
    /// Code 0.
    pub clean: bool,
}
