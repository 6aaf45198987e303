//! From a checked program to a plan.

pub mod bucket;
pub mod build;
pub mod differentiate;
pub mod infer;
pub mod memory;
pub mod simplify;
pub mod tasks;
