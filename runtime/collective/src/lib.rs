//! Sums gradients over shards and workers in one fixed binary tree, so that the result has the
//! same bits whoever holds which shard.
//!
//! Invariants: knows no kernel, no socket and no plan, only regions of memory and the tree of
//! `monarch_graph::tree`; decides nothing about when a bucket is due (overlap is the caller's
//! policy). Every wait has an end: all of them notice [`Stop`], a lost peer and a deadline. What a
//! peer says is checked before it is used. All `unsafe` of the crate is in [`shm`].

mod error;
mod fold;
mod layout;
mod mesh;
mod pool;
pub mod shm;
mod stop;
mod sum;
mod transport;

pub use error::CollectiveError;
pub use fold::Fold;
pub use layout::Layout;
pub use mesh::{Bulk, BulkError, BulkEvent, BulkPayload, HEADER_BYTES, Mesh};
pub use pool::{Piece, Pool};
pub use shm::{Region, SharedMemory};
pub use stop::Stop;
pub use transport::{Alone, Scalars, Settings, Transport, all_reduce_scalars};
