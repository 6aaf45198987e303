use crate::control::ControlRequest;
use crate::saver::Saved;
use monarch_net::{ConnId, ControlServer, ServerEvent};
use monarch_pulse::Sign;
use monarch_sched::WorkerId;
use monarch_wire::{FromWorker, ToWorker, WireError, encode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// All that can reach the event loop.
#[derive(Debug)]
pub(crate) enum Input {
    Net(ServerEvent),
    Local(LocalEvent),
    Control(ControlRequest),
    Saved(Saved),
    /// A process that was started here has ended.
    ChildEnded,
    /// Something was seen of the worker of this number.
    Pulse(WorkerId, Sign),
}

/// From a worker in this process.
#[derive(Debug)]
pub(crate) enum LocalEvent {
    Connected { id: u64, to_worker: Sender<ToWorker> },
    Message { id: u64, message: Box<FromWorker> },
    Closed { id: u64 },
}

/// The other side is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkClosed;

impl std::fmt::Display for LinkClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the controller is gone")
    }
}

impl std::error::Error for LinkClosed {}

/// Where workers that are threads of this process come in.
#[derive(Clone, Debug)]
pub struct Door {
    inbox: Sender<Input>,
    next: Arc<AtomicU64>,
}

impl Door {
    /// Doors of one run are numbered, so that no two links have one number.
    pub(crate) fn numbered(inbox: Sender<Input>, number: u64) -> Door {
        Door { inbox, next: Arc::new(AtomicU64::new(number << 32)) }
    }

    /// A worker's end of a new link. It begins with `Hello`, as over a socket.
    pub fn connect(&self) -> WorkerEnd {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (to_worker, receiver) = channel();
        // When the run is over already, the first receive says so.
        let _ = self.inbox.send(Input::Local(LocalEvent::Connected { id, to_worker }));
        WorkerEnd { id, inbox: self.inbox.clone(), receiver }
    }
}

/// A worker's end of a link within the process. Dropped, it is a closed connection.
#[derive(Debug)]
pub struct WorkerEnd {
    id: u64,
    inbox: Sender<Input>,
    receiver: Receiver<ToWorker>,
}

impl WorkerEnd {
    /// Does not wait.
    pub fn send(&self, message: FromWorker) -> Result<(), LinkClosed> {
        let message = Box::new(message);
        let event = LocalEvent::Message { id: self.id, message };
        self.inbox.send(Input::Local(event)).map_err(|_| LinkClosed)
    }

    /// Something that sends from another thread. It does not keep the link open.
    pub fn sender(
        &self,
    ) -> impl Fn(FromWorker) -> Result<(), LinkClosed> + Clone + Send + Sync + 'static {
        let (id, inbox) = (self.id, self.inbox.clone());
        move |message| {
            let event = LocalEvent::Message { id, message: Box::new(message) };
            inbox.send(Input::Local(event)).map_err(|_| LinkClosed)
        }
    }

    /// Waits for the next message.
    pub fn recv(&self) -> Result<ToWorker, LinkClosed> {
        self.receiver.recv().map_err(|_| LinkClosed)
    }

    /// The next message, if it comes within `limit`.
    pub fn recv_timeout(&self, limit: Duration) -> Result<Option<ToWorker>, LinkClosed> {
        match self.receiver.recv_timeout(limit) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(LinkClosed),
        }
    }
}

impl Drop for WorkerEnd {
    fn drop(&mut self) {
        // Nobody is left to be told when this fails.
        let _ = self.inbox.send(Input::Local(LocalEvent::Closed { id: self.id }));
    }
}

/// How a worker is reached.
enum Link {
    Net(ConnId),
    Local(Sender<ToWorker>),
}

/// Name of a connection at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Net(ConnId),
    Local(u64),
}

/// All links of a run.
pub(crate) struct Links {
    pub server: Option<ControlServer>,
    open: BTreeMap<WorkerId, Link>,
    origins: BTreeMap<Origin, WorkerId>,
    next: u64,
}

impl Links {
    pub fn new(server: Option<ControlServer>) -> Links {
        Links { server, open: BTreeMap::new(), origins: BTreeMap::new(), next: 0 }
    }

    pub fn connected_net(&mut self, id: ConnId) -> WorkerId {
        self.connected(Origin::Net(id), Link::Net(id))
    }

    pub fn connected_local(&mut self, id: u64, to_worker: Sender<ToWorker>) -> WorkerId {
        self.connected(Origin::Local(id), Link::Local(to_worker))
    }

    fn connected(&mut self, origin: Origin, link: Link) -> WorkerId {
        let worker = WorkerId(self.next);
        self.next += 1;
        self.open.insert(worker, link);
        self.origins.insert(origin, worker);
        worker
    }

    pub fn worker(&self, origin: Origin) -> Option<WorkerId> {
        self.origins.get(&origin).copied()
    }

    pub fn closed(&mut self, origin: Origin) -> Option<WorkerId> {
        let worker = self.origins.remove(&origin)?;
        self.open.remove(&worker);
        Some(worker)
    }

    /// Sends one message to several workers, encoded once. A link that is gone says so by itself,
    /// through its `Closed`. Err: the message cannot travel at all.
    pub fn send(&self, workers: &[WorkerId], message: &ToWorker) -> Result<(), WireError> {
        let mut bytes: Option<Vec<u8>> = None;
        for worker in workers {
            match self.open.get(worker) {
                Some(Link::Local(to_worker)) => {
                    let _ = to_worker.send(message.clone());
                }
                Some(Link::Net(id)) => {
                    let frame = match &bytes {
                        Some(frame) => frame.clone(),
                        None => bytes.insert(encode(message)?).clone(),
                    };
                    if let Some(server) = &self.server
                        && server.send(*id, frame).is_err()
                    {
                        // A queue that is full belongs to a worker that takes nothing any more.
                        server.close(*id, "the worker does not take its messages");
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Ends one connection after what was sent before.
    pub fn close(&mut self, worker: WorkerId, reason: &str) {
        match self.open.get(&worker) {
            Some(Link::Net(id)) => {
                if let Some(server) = &self.server {
                    server.close(*id, reason);
                }
            }
            Some(Link::Local(_)) => {
                self.open.remove(&worker);
            }
            None => {}
        }
    }

    /// Everyone that is connected.
    pub fn everyone(&self) -> Vec<WorkerId> {
        self.open.keys().copied().collect()
    }

    /// Ends all connections after what was sent before, also those still to come; does not wait.
    pub fn dismiss(&mut self, reason: &str) {
        self.open.clear();
        if let Some(server) = &self.server {
            server.close_all(reason);
        }
    }

    /// Ends all connections after what was sent before; waits a moment for it.
    pub fn shutdown(&mut self, reason: &str) {
        self.open.clear();
        if let Some(server) = self.server.take() {
            server.shutdown(reason);
        }
    }
}
