//! Messages between controller and workers, their codec and the version handshake.
//!
//! Invariants: the only place that knows the byte format (bincode's, written by wincode);
//! decoders are total: any bytes give a message or an error, never a panic, and never an
//! allocation above [`codec::LIMIT_BYTES`]. Knows no socket and no clock.

pub mod codec;
pub mod message;

pub use codec::{WireError, decode, encode, job_hash};
pub use message::*;

/// Version of the messages below. Both sides say theirs first; they must be equal.
pub const PROTOCOL: u32 = 1;
