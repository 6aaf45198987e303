//! What a run leaves to look at: TensorBoard event files, JSON lines, a Chrome trace.
//!
//! Invariants: plain values in, files out; no knowledge of messages, plans or devices, no clock
//! (times are arguments). A writer that fails never stops training: the first failure of a row is
//! returned, the others are only counted, and writing goes on when it can. No record is ever half
//! there: what a full disk or a kill cut off is cut away. After a resume no curve overlaps itself.

mod append;
mod crc32c;
mod error;
mod events;
mod jsonl;
mod proto;
mod tfrecord;
mod trace;

pub use error::RecordError;
pub use events::{Events, Stamp};
pub use jsonl::{JsonLines, number};
pub use trace::{TraceSpan, Track, write_trace};
