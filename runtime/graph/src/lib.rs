//! Plain data that both halves share: spans, shapes, the tensor graph, the plan with its
//! TaskGraph, and the few pure rules that everyone must agree on to the bit (how samples fall into
//! shards, the tree in which gradients are summed, counter-based random numbers).
//!
//! Invariants: no I/O, no clock, no threads, no knowledge of the language, of a device or of a
//! network. Everything here can be encoded, compared and hashed.

pub mod hex;
pub mod id;
pub mod math;
pub mod mix;
pub mod op;
pub mod optimizer;
pub mod philox;
pub mod plan;
pub mod rope;
pub mod schedule;
pub mod shape;
pub mod source;
pub mod span;
pub mod task;
pub mod tree;

pub use hex::hex;
pub use id::{BucketId, NodeId, TaskId, WeightId};
pub use op::{BinaryOp, CompareOp, Einsum, Graph, Node, Op, ReduceOp, UnaryOp, Windows};
pub use optimizer::{DecayOn, Optimizer, OptimizerKind, Others, UpdateRule};
pub use philox::Draw;
pub use plan::*;
pub use rope::{RopeAngles, RopeStretch};
pub use schedule::{Curve, Piece, Schedule};
pub use shape::{DType, Dim, Float, Shape, even_deal, rank_range, shard_range};
pub use source::*;
pub use span::Span;
pub use task::{Stream, Task, TaskGraph, TaskKind};
