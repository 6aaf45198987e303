//! Workers started here: processes for the command line, threads for embedding programs.

pub mod process;
pub mod thread;

pub use process::{Processes, end_left};
pub use thread::Threads;
