//! Names, units, sizes and shapes: from the syntax tree to a [`hir::Program`].
//!
//! Invariants
//! - Pure: files are seen through [`World`] alone; no clock, no environment, no sockets. The same
//!   files give the same program and the same diagnostics, in the same order.
//! - Never fails: `(Option<Program>, Vec<Diagnostic>)`. All mistakes of a file in one go, one
//!   diagnostic per cause. A program is handed out only if there is no error.
//! - Nothing is ignored: a name, setting, unit or event that is not known is an error; what is
//!   known and not built yet says so.
//! - A layer is checked once, with symbols for its sizes, whether or not anything uses it.
//! - Knows nothing of devices, of how graphs are differentiated or of how a job is run.

pub mod hir;
pub mod poly;
pub mod world;

pub use world::{TensorFact, TextFacts, World, WorldError};
