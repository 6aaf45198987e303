//! The controller as a state machine: `step(now, Event) -> Vec<Command>`.
//!
//! Invariants: no clock (time comes in as an argument), no sockets, no threads, no files and no
//! iteration over hashes, so that a run can be replayed from its events alone. Imports `graph`
//! alone: it knows neither the wire format nor the language. What it decides:
//!
//! - a window of steps never shrinks, and never passes a step at which a decision is due;
//! - a step is recorded once, when all ranks have reported it and their numbers are equal to the
//!   bit;
//! - a checkpoint is committed only when all ranks have written their part, and at most one is
//!   being written at a time;
//! - a lost worker's part is done by the others: they halt, agree on the edge that the furthest of
//!   them has reached, and go on from there as a new generation;
//! - a worker that hangs is ended and done without; what it says when it wakes up is not heard;
//! - whatever happens, a run is concluded exactly once, and every wait is bounded by a deadline.

mod blame;
mod command;
mod config;
mod drain;
mod event;
mod fault;
mod hang;
mod ranks;
mod recover;
mod restore;
mod rollback;
mod run;
mod scheduler;
mod slow;
mod straggle;

pub use command::{
    Cause, Command, Due, DueKind, Ended, EvalNumbers, Forming, LinkPlan, Outcome, Placement,
    Warning,
};
pub use config::{
    Config, ConfigError, EvalNames, Recovery, Saves, SlowAnswer, Timeouts, Transport,
};
pub use event::{Event, Exit, Failure, Hang, Joined, StepNumbers, Times, WorkerId};
pub use restore::{EndedBy, Facts};
pub use rollback::{Answer, Source, Tried, Verdict};
pub use scheduler::Scheduler;
pub use straggle::{SlowPhase, Slowness};
