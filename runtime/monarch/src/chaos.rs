//! A run under random faults, held against the same run left alone.
//!
//! Invariants: which faults strike, in which order and at which share of which pause, is a function
//! of a seed ([`schedule`]); signals reach worker processes of this run alone ([`process`]); every
//! wait is bounded ([`drive::PATIENCE`]).

pub mod drive;
pub mod figures;
mod incident;
pub mod process;
pub mod quiet;
pub mod schedule;
pub mod watch;

pub use drive::{Drive, Ended, Trouble};
pub use figures::{Figures, Measured};
pub use quiet::Quiet;
pub use schedule::{Fault, Kind, Schedule};
pub use watch::{Launch, Watched};
