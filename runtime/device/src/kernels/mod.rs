//! The fast kernels: one function per operation, on slices whose lengths the caller has planned.
//!
//! All take the instruction set and give the same bits on each. Reductions along contiguous
//! elements run in sixty-four columns (four vectors), folded in one order; reductions across
//! rows are one chain per output.

pub(crate) mod across;
pub(crate) mod copy;
pub(crate) mod dropout;
pub(crate) mod functions;
pub(crate) mod index;
pub(crate) mod map;
pub(crate) mod reduce;
pub(crate) mod rope;
pub(crate) mod rows;
pub(crate) mod window;
