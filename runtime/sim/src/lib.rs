//! A cluster in one thread: the controller's state machine and the workers' protocol as they are,
//! network, clocks, disk and processes simulated. Everything follows from a seed.
//!
//! Invariants: no clock, no thread, no socket, no file; a schedule gives the same events on any
//! machine. Weights are hashes (`weights`), so that a shard left out or counted twice, or a stale
//! one, changes all bits that follow. What must hold is in `check`, and is looked at with every
//! event.
//!
//! `cargo run --release -p monarch-sim --example schedules -- --count 1000000 --seed 1` carries out
//! random schedules; one that fails is shrunk and printed, and `--seed N --count 1 --trace` shows
//! it event by event.

#![forbid(unsafe_code)]

mod check;
mod cluster;
mod disk;
mod faults;
mod hub;
mod node;
mod queue;
pub mod rng;
mod rounds;
pub mod schedule;
mod shrink;
pub mod weights;

pub use cluster::{Report, run};
pub use schedule::Schedule;
pub use shrink::shrink;
