//! From a checked program to a plan: lowered to a tensor graph, differentiated, simplified, its
//! memory laid out, its gradients cut into buckets, its work cut into tasks, its cost estimated.
//!
//! Invariants
//! - Pure: no files, no clock, no threads. Two calls with one program give equal plans, byte for
//!   byte; the cluster changes the report alone, never the plan.
//! - A program that `check` accepted never panics here. A mistake of this crate's own is found by
//!   its checkers (types of every node, layout of memory, order of tasks), which run on every
//!   plan, and comes out as a diagnostic.
//! - Knows the language only as [`monarch_check::hir`], and the runtime only as the plain data of
//!   `monarch_graph`.
//! - The order of every sum is a function of the program: nothing iterates over a hash table.

pub mod bucket;
pub mod build;
pub mod cost;
pub mod differentiate;
pub mod infer;
pub mod lower;
pub mod memory;
pub mod mesh;
mod plan;
pub mod report;
mod share;
pub mod simplify;
pub mod tasks;

pub use cost::{Link, Rates};
pub use plan::{Facts, plan};
pub use report::Report;
pub use share::{Share, Shares, shares};
