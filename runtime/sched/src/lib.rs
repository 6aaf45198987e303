//! The controller as a state machine: `step(now, Event) -> Vec<Command>`.
//! Invariants: no clock, no sockets, no threads; imports `graph` alone.
