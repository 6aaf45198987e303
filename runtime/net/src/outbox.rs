//! What waits to be sent to one peer, counted in bytes.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::lost::Lost;

/// Why a message was not queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// So many bytes wait already: the other side takes them too slowly.
    Full { queued: usize, limit: usize },
    /// The connection has ended, or was closed.
    Lost(Lost),
    /// There is no such peer.
    Unknown,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Full { queued, limit } => write!(
                f,
                "{queued} bytes wait to be sent already (limit {limit}): the other side takes \
                 them too slowly"
            ),
            SendError::Lost(lost) => lost.fmt(f),
            SendError::Unknown => f.write_str("there is no such peer"),
        }
    }
}

impl std::error::Error for SendError {}

/// What the writing task of a connection is told.
#[derive(Debug)]
pub(crate) enum Out<T> {
    Message(T),
    /// Send what was queued before, then close with this reason.
    Close(String),
}

/// The sending end. Any thread may use it; it never waits for the network.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    sender: mpsc::UnboundedSender<Out<T>>,
    budget: Arc<Budget>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Outbox { sender: self.sender.clone(), budget: self.budget.clone() }
    }
}

impl<T> Outbox<T> {
    pub(crate) fn new(limit: usize) -> (Outbox<T>, mpsc::UnboundedReceiver<Out<T>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Outbox { sender, budget: Arc::new(Budget::new(limit)) }, receiver)
    }

    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.budget.clone()
    }

    /// Queues a message that counts as `bytes`; waits up to `wait` for room.
    pub(crate) fn send(&self, message: T, bytes: usize, wait: Duration) -> Result<(), SendError> {
        self.budget.take(bytes, wait)?;
        if self.sender.send(Out::Message(message)).is_err() {
            return Err(SendError::Lost(self.budget.lost()));
        }
        Ok(())
    }

    /// Nothing more can be queued; what was queued before is sent, then the reason.
    pub(crate) fn close(&self, reason: &str) {
        self.budget.end(Lost::ClosedHere { reason: reason.to_string() });
        // Without a receiver the connection has ended already.
        let _ = self.sender.send(Out::Close(reason.to_string()));
    }
}

/// Bytes that wait, with a limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queued: usize,
    lost: Option<Lost>,
}

impl Budget {
    fn new(limit: usize) -> Budget {
        Budget { limit, state: Mutex::default(), room: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `bytes` in. One message alone may be longer than the limit.
    fn take(&self, bytes: usize, wait: Duration) -> Result<(), SendError> {
        let deadline = Instant::now().checked_add(wait);
        let mut state = self.lock();
        loop {
            if let Some(lost) = &state.lost {
                return Err(SendError::Lost(lost.clone()));
            }
            if state.queued == 0 || state.queued.saturating_add(bytes) <= self.limit {
                state.queued = state.queued.saturating_add(bytes);
                return Ok(());
            }
            let left = deadline.map_or(wait, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(SendError::Full { queued: state.queued, limit: self.limit });
            }
            let woken = self.room.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts `bytes` out again: the transport has them.
    pub(crate) fn give(&self, bytes: usize) {
        let mut state = self.lock();
        state.queued = state.queued.saturating_sub(bytes);
        drop(state);
        self.room.notify_all();
    }

    /// Nothing can be sent any more. The first reason stands.
    pub(crate) fn end(&self, lost: Lost) {
        self.lock().lost.get_or_insert(lost);
        self.room.notify_all();
    }

    fn lost(&self) -> Lost {
        let ended = || Lost::Transport { detail: "the connection has ended".into() };
        self.lock().lost.clone().unwrap_or_else(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_room_wakes_a_waiting_sender() {
        let (outbox, mut receiver) = Outbox::<u8>::new(100);
        outbox.send(1, 1000, Duration::ZERO).unwrap();
        let full = SendError::Full { queued: 1000, limit: 100 };
        assert_eq!(outbox.send(2, 1, Duration::ZERO), Err(full));
        let budget = outbox.budget();
        let waiting = std::thread::spawn(move || outbox.send(3, 60, Duration::from_secs(20)));
        budget.give(1000);
        waiting.join().unwrap().unwrap();
        assert!(matches!(receiver.try_recv(), Ok(Out::Message(1))));
        assert!(matches!(receiver.try_recv(), Ok(Out::Message(3))));
    }

    #[test]
    fn a_lost_connection_wakes_a_waiting_sender() {
        let (outbox, _receiver) = Outbox::<u8>::new(10);
        outbox.send(1, 10, Duration::ZERO).unwrap();
        let budget = outbox.budget();
        let waiting = std::thread::spawn(move || outbox.send(2, 1, Duration::from_secs(20)));
        budget.end(Lost::Vanished);
        assert_eq!(waiting.join().unwrap(), Err(SendError::Lost(Lost::Vanished)));
    }
}
