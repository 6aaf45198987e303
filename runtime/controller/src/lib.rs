//! Carries out a plan on workers: one event loop over one closed enum.
//!
//! Invariants:
//!
//! - it receives a plan, never source text, and knows no kernel, no sample and no weight;
//! - it decides nothing: what happens next is said by `monarch_sched`; this crate turns messages,
//!   exits and time into its events, and its commands into messages, files and words;
//! - the loop never waits for a disk, but for making one directory a checkpoint: records and
//!   checkpoints are written by threads of their own, behind bounded queues;
//! - on every way out the workers that it started are told to leave, killed when they do not, and
//!   reaped; shared memory is a file without a name and goes with its last user;
//! - the loop runs on the caller's thread, and so does [`Observer::event`]: a slow observer delays
//!   decisions, and training only when it is half a second late.

mod children;
mod config;
mod control;
mod event;
mod eventloop;
mod handle;
mod journal;
mod link;
mod measure;
mod merge;
mod oom;
mod recorder;
mod run;
mod saver;
mod summary;
mod words;

pub use children::{Child, ChildExit, Launcher, Seat};
pub use config::{Network, PATIENCE_AFAR, PATIENCE_HERE, Resume, RunConfig};
pub use control::{ControlHandle, ControlInbox, ControlRequest, control};
pub use event::{
    CheckpointEvent, EvalEvent, Observer, RunEvent, SlowEvent, StartedEvent, StepEvent, WorkerEvent,
};
pub use handle::ProcessHandle;
pub use journal::{ChildMark, Head, JOURNAL, JournalError, Journaled, Seen, read as read_journal};
pub use link::{Door, LinkClosed, WorkerEnd};
pub use measure::{Measured, measure};
pub use monarch_sched::{Answer, ConfigError, Recovery, SlowAnswer, Timeouts, Transport};
pub use run::{is_at_work, run};
pub use summary::{Logs, RunError, Summary, Why};
