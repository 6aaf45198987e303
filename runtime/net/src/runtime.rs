//! One thread that runs the network for code that is not asynchronous.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

/// A thread with a single-threaded runtime. Dropping it ends all its tasks.
#[derive(Debug)]
pub(crate) struct NetThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NetThread {
    pub(crate) fn start(name: &str) -> io::Result<NetThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || {
            // An error means that the sender was dropped, which ends the thread as well.
            let _ = runtime.block_on(stopped);
            // A name server that does not answer must not hold the end up.
            runtime.shutdown_background();
        })?;
        Ok(NetThread { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs `future` on the thread and waits for it; `None` if it panicked, or if called on the
    /// thread itself, which cannot wait for itself.
    pub(crate) fn run<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if self.is_current() {
            return None;
        }
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            // The receiver waits below; it cannot be gone.
            let _ = done.send(future.await);
        });
        result.recv().ok()
    }

    fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == current)
    }

    pub(crate) fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.handle.spawn(future);
    }
}

impl Drop for NetThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A facade dropped by a callback on the thread itself must not wait for itself.
        if !self.is_current()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Counts what is still at work, so that a facade can wait for its end.
#[derive(Clone, Debug)]
pub(crate) struct AtWork(Arc<watch::Sender<usize>>);

impl Default for AtWork {
    fn default() -> AtWork {
        AtWork(Arc::new(watch::Sender::new(0)))
    }
}

impl AtWork {
    /// Counts one until the guard is dropped.
    pub(crate) fn enter(&self) -> AtWorkGuard {
        self.0.send_modify(|count| *count += 1);
        AtWorkGuard(self.clone())
    }

    /// Waits until nothing is at work (true), or `limit` is over.
    pub(crate) async fn done(&self, limit: Duration) -> bool {
        let mut count = self.0.subscribe();
        // The sender lives in `self`, so waiting ends with the limit or at zero.
        tokio::time::timeout(limit, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

#[derive(Debug)]
pub(crate) struct AtWorkGuard(AtWork);

impl Drop for AtWorkGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
