//! The crate to embed: [`Engine`] checks, plans and runs a program within this process.
//!
//! Invariants: the real `World` lives here (files come in through [`world::Disk`] alone); it ties
//! the language's half to the runtime's and decides nothing that belongs to either. The binary
//! (`src/cli/`) is a user of this crate like any other.

pub mod chaos;
pub mod engine;
pub mod front;
pub mod launch;
pub mod prove;
pub mod resume;
pub mod run_id;
pub mod saved;
pub mod sweep;
pub mod world;

pub use engine::{Engine, EngineError, Flow};
pub use monarch_controller::{RunError, RunEvent, StepEvent, Summary, Why};
