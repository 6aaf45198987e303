//! `trait Device`; the CPU device with fast kernels, and the slow reference.
//!
//! Invariants: a result never depends on the number of threads, on the instruction set or on the
//! machine's libm; the crate knows no network, no language and no clock. Kernels are
//! single-threaded: whoever has more threads runs more shards.

pub mod reference;
