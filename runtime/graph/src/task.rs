use crate::{BucketId, Span, TaskId};
use std::ops::Range;
use wincode::{SchemaRead, SchemaWrite};

/// What one role does in one step, as tasks with dependencies on streams.
///
/// Tasks of a stream run in the order of their ids. `Compute` tasks run once per shard held.
#[derive(Clone, Debug, Default, PartialEq, SchemaWrite, SchemaRead)]
pub struct TaskGraph {
    /// `worker` (data-parallel rank), later also pipeline stages.
    pub role: String,
    pub tasks: Vec<Task>,
}

#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct Task {
    /// For people: `forward`, `backward of blocks.3`, `reduce bucket 2`.
    pub name: String,
    pub kind: TaskKind,
    pub stream: Stream,
    pub after: Vec<TaskId>,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum Stream {
    Compute,
    Communication,
    Host,
}

#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum TaskKind {
    /// Put the shard's samples into the column buffers.
    LoadBatch,
    /// Run nodes `start..end` of the training graph for the shard at hand.
    Compute { start: u32, end: u32 },
    /// The bucket's gradients of the shard at hand are complete: fold them into the tree.
    Fold { bucket: BucketId },
    /// Sum the bucket over all ranks, in the tree's order.
    AllReduce { bucket: BucketId },
    /// Sum loss, counts and flags over all ranks.
    AllReduceScalars,
    /// Scale, clip and update the weights.
    Update,
}

impl TaskKind {
    pub fn nodes(&self) -> Option<Range<usize>> {
        match self {
            TaskKind::Compute { start, end } => Some(*start as usize..*end as usize),
            _ => None,
        }
    }
}
