use crate::CollectiveError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A switch that ends every wait of a worker. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends all waits, now and later.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// `Aborted` once the switch is set.
    pub fn check(&self) -> Result<(), CollectiveError> {
        if self.is_set() { Err(CollectiveError::Aborted) } else { Ok(()) }
    }
}
