//! `trait Device`; the CPU device with fast kernels, and the slow reference.
//! Invariants: results never depend on threads or instruction sets; knows no network.
