use wincode::{SchemaRead, SchemaWrite};

/// Index of a node in its [`crate::Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, SchemaWrite, SchemaRead)]
pub struct NodeId(pub u32);

/// Index into [`crate::Plan::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, SchemaWrite, SchemaRead)]
pub struct WeightId(pub u32);

/// Index into [`crate::Plan::buckets`]; also the collective's sequence number within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, SchemaWrite, SchemaRead)]
pub struct BucketId(pub u32);

/// Index into [`crate::TaskGraph::tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, SchemaWrite, SchemaRead)]
pub struct TaskId(pub u32);

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl WeightId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl BucketId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl TaskId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
