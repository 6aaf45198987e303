//! `trait Device`; the CPU device with fast kernels, and the slow reference.
//!
//! Invariants: a result never depends on the number of threads, on the instruction set or on the
//! machine's libm; the crate knows no network, no language and no clock. Kernels are
//! single-threaded: whoever has more threads runs more shards. `unsafe` stands only in `simd`,
//! in the register tile of the matrix product and in `memory`.

mod buffers;
pub mod device;
mod exec;
mod fold;
mod gemm;
pub mod init;
mod kernels;
mod memory;
mod muon;
pub mod optim;
pub mod reference;
mod simd;
#[cfg(test)]
mod testing;

pub use buffers::{Columns, Weights};
pub use device::{Cpu, Device};
pub use exec::{ExecError, Health, Lane};
pub use fold::{add_assign, add_into};
pub use memory::OutOfMemory;
pub use simd::{Isa, IsaError};
