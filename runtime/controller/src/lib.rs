//! sched + net + journal: one event loop over one closed enum.
//! Invariant: receives a Plan, never source.
