//! Executes tasks on one machine; decides nothing.
//!
//! Invariants: knows the plan and the messages of `monarch_wire`, never the language or the
//! controller. What it computes depends on the plan and the checkpoint alone: not on its rank, its
//! threads, the transport, the clock. Every wait ends when the controller says `Abort` or its link
//! closes, so no worker outlives its controller by more than the time for which it looks for one
//! that was started again. A rank's shards are computed by *lanes* (threads
//! that run whole shards); a communication thread reduces buckets while they go on; the control
//! link has a thread of its own, so that a ping is answered in the middle of a step.

#![forbid(unsafe_code)]

mod again;
mod comm;
mod control;
mod crew;
mod engine;
mod error;
mod evaluate;
mod leave;
mod link;
mod model;
mod nan;
mod peers;
pub mod protocol;
mod pulse;
mod remote;
mod run;
mod save;
mod setup;
mod shard;
mod share;
mod step;
mod tasks;
mod trace;
mod update;

pub use error::WorkerError;
pub use leave::Leave;
pub use link::{ControlLink, NoWay, Received, Way};
pub use model::initial_weights;
pub use peers::PeerSettings;
pub use remote::{Cut, connect, connect_cut};
pub use run::{Config, Parting, run, run_again};
