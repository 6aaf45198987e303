use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Asks a worker to leave its run in good order: the others go on without it from the next edge
/// between two steps on. Clones ask the same worker.
#[derive(Clone, Debug, Default)]
pub struct Leave(Arc<AtomicU8>);

/// Nobody has asked; somebody has; the controller has been told.
const NO: u8 = 0;
const ASKED: u8 = 1;
const TOLD: u8 = 2;

impl Leave {
    /// May be called from any thread, more than once, and before the worker runs.
    pub fn ask(&self) {
        let _ = self.0.compare_exchange(NO, ASKED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The one that was told is gone: another one is told again.
    pub(crate) fn untold(&self) {
        let _ = self.0.compare_exchange(TOLD, ASKED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the controller is to be told now; true once.
    pub(crate) fn take_wish(&self, can_tell: bool) -> bool {
        can_tell
            && self.0.compare_exchange(ASKED, TOLD, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
