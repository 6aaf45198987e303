//! Data sets, tokenizers, order, batches: (seed, epoch, index) -> sample.
//!
//! Invariants: a sample depends on nothing but the data set and these three numbers; a data set
//! is the bytes that the planner saw, or an error; no knowledge of the language, of a device, of
//! who asks. No clock, no threads. Arbitrary bytes in a file never panic and never make the
//! reader allocate more than the file's own size.
//!
//! [`facts`] describes a source for the planner, [`Dataset::open`] opens it again at a worker and
//! verifies it, [`Reader::fill`] hands out the samples of a shard, [`position`] says which samples
//! a step trains on, [`glob()`] finds files.

mod bpe;
mod chat;
mod csv;
mod dataset;
mod digits;
mod error;
mod facts;
mod file;
mod glob;
mod order;
mod position;
mod records;
mod split;
mod tensors;
mod text;
mod tokens;

pub use dataset::{Buffer, ColumnMut, Dataset, Order, Reader};
pub use digits::{CsvError, Digits};
pub use error::{DataError, FillError};
pub use facts::{ColumnFact, Facts, RecordFacts, SourceSpec, Unused, facts, record_facts};
pub use file::describe;
pub use glob::{GlobError, glob};
pub use order::Permutation;
pub use position::{Position, batch_range, position};
pub use split::{Cut, CutError, cut};
