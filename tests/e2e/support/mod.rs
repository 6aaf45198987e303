//! What all end-to-end tests need.

pub mod checkpoint;
pub mod faultproxy;
pub mod outcome;
pub mod place;
pub mod process;
pub mod programs;
pub mod running;
pub mod stuck;
pub mod tensors;

pub use faultproxy::{FaultProxy, Faults, Way};
pub use outcome::Outcome;
pub use place::Place;
pub use programs::{CHARGPT_SMALL, Corpus, chargpt, digits, swap};
pub use running::Running;
pub use tensors::Tensors;

use std::path::PathBuf;
use std::time::Duration;

/// No run of these tests takes as long, on the slowest machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}
