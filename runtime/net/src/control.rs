//! Control connections for code that is not asynchronous: frames in and out, low latency.
//!
//! A frame crosses two threads on each side: the caller's and the network's. The callback that
//! takes events runs on the network's thread, so that no further thread is woken.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::time::timeout;

use crate::addr::BindError;
use crate::config::Options;
use crate::connection::Connection;
use crate::endpoint::{AcceptError, ConnectError, Endpoint, Incoming};
use crate::farewell::all_ended;
use crate::frame::{FrameReader, FrameWriter};
use crate::identity::{Identity, Role};
use crate::link;
use crate::lost::{Lost, code};
use crate::outbox::{Outbox, SendError};
use crate::runtime::{AtWork, NetThread};

/// Said to the other side when a facade is dropped without a reason.
const DROPPED: &str = "the process at the other end ended";

/// A connection of a [`ControlServer`]; never used again within its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// What a [`ControlServer`] reports. For one connection: one `Connected`, frames in the order in
/// which they were sent, one `Closed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    Connected {
        id: ConnId,
        addr: SocketAddr,
    },
    Frame {
        id: ConnId,
        bytes: Vec<u8>,
    },
    Closed {
        id: ConnId,
        lost: Lost,
    },
    /// A newcomer was not let in.
    Refused {
        error: AcceptError,
    },
}

/// What a [`ControlClient`] reports: frames in order, then one `Closed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    Frame(Vec<u8>),
    Closed(Lost),
}

type ServerSink = Arc<dyn Fn(ServerEvent) + Send + Sync>;

/// Accepts control connections of workers.
///
/// Dropping it closes them all, as [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
pub struct ControlServer {
    local: SocketAddr,
    identity: Identity,
    endpoint: Endpoint,
    registry: Arc<Registry>,
    flush: Duration,
    thread: NetThread,
}

/// The open connections.
#[derive(Debug, Default)]
struct Registry {
    state: Mutex<State>,
    last: AtomicU64,
    at_work: AtWork,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<ConnId, Open>,
    /// The server is about to leave: newcomers are told so at once.
    closing: Option<String>,
}

#[derive(Debug)]
struct Open {
    outbox: Outbox<Vec<u8>>,
    connection: Connection,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: ConnId) -> Option<Outbox<Vec<u8>>> {
        self.lock().open.get(&id).map(|open| open.outbox.clone())
    }

    fn add(&self, id: ConnId, outbox: Outbox<Vec<u8>>, connection: Connection) {
        let mut state = self.lock();
        if let Some(reason) = &state.closing {
            outbox.close(reason);
        }
        state.open.insert(id, Open { outbox, connection });
    }

    fn connections(&self) -> Vec<Connection> {
        self.lock().open.values().map(|open| open.connection.clone()).collect()
    }
}

impl ControlServer {
    /// Listens on `addr` (`HOST:PORT`, port 0 takes a free one) and hands out events in a channel.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start(
        addr: &str,
        identity: &Identity,
        options: &Options,
    ) -> Result<(ControlServer, mpsc::Receiver<ServerEvent>), BindError> {
        let (sender, receiver) = mpsc::channel();
        let server = ControlServer::start_with(addr, identity, options, move |event| {
            // A receiver that is gone wants no more events.
            let _ = sender.send(event);
        })?;
        Ok((server, receiver))
    }

    /// As [`start`](Self::start), with a callback that runs on the network's thread and must not
    /// wait: sending on a channel is what it is for.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start_with(
        addr: &str,
        identity: &Identity,
        options: &Options,
        sink: impl Fn(ServerEvent) + Send + Sync + 'static,
    ) -> Result<ControlServer, BindError> {
        let failed = |source| BindError::Io { addr: addr.to_string(), source };
        let thread = NetThread::start("monarch-net").map_err(failed)?;
        let registry = Arc::<Registry>::default();
        let (at, who, how) = (addr.to_string(), identity.clone(), options.clone());
        let endpoint = thread
            .run(async move { Endpoint::bind(&at, &who, &how).await })
            .unwrap_or_else(|| Err(failed(std::io::Error::other("the network thread ended"))))?;
        let local = endpoint.local_addr();
        let server =
            Server { registry: registry.clone(), options: options.clone(), sink: Arc::new(sink) };
        thread.spawn(server.accept(endpoint.clone()));
        let flush = options.flush_timeout;
        let identity = identity.clone();
        Ok(ControlServer { local, identity, endpoint, registry, flush, thread })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The identity it proves.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Queues a frame. It does not wait.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::Lost`], or [`SendError::Unknown`] once the connection's
    /// `Closed` is reported.
    pub fn send(&self, id: ConnId, frame: Vec<u8>) -> Result<(), SendError> {
        let outbox = self.registry.get(id).ok_or(SendError::Unknown)?;
        let bytes = frame.len();
        outbox.send(frame, bytes, Duration::ZERO)
    }

    /// Takes no more for this connection, sends what is queued, then closes: the other side
    /// receives all frames and then exactly this reason, cut to 1,000 bytes. `Closed` follows.
    /// Does nothing for a closed connection.
    pub fn close(&self, id: ConnId, reason: &str) {
        if let Some(outbox) = self.registry.get(id) {
            outbox.close(reason);
        }
    }

    /// Closes all connections as [`close`](Self::close) does, also those that come in from now
    /// on. It does not wait.
    pub fn close_all(&self, reason: &str) {
        let mut state = self.registry.lock();
        state.closing.get_or_insert_with(|| reason.to_string());
        for open in state.open.values() {
            open.outbox.close(reason);
        }
    }

    /// Closes all connections as [`close_all`](Self::close_all) does and waits for it, twice the
    /// flush timeout at most.
    pub fn shutdown(self, reason: &str) {
        self.close_and_wait(reason);
    }

    fn close_and_wait(&self, reason: &str) {
        self.close_all(reason);
        let (registry, limit) = (self.registry.clone(), self.flush * 2);
        let (endpoint, reason) = (self.endpoint.clone(), reason.to_string());
        self.thread.run(async move {
            all_ended(&registry.at_work, limit, || registry.connections()).await;
            endpoint.close(&reason);
        });
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.close_and_wait(DROPPED);
    }
}

/// What the tasks of a server share.
#[derive(Clone)]
struct Server {
    registry: Arc<Registry>,
    options: Options,
    sink: ServerSink,
}

impl Server {
    async fn accept(self, endpoint: Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                if let Err(error) = server.serve(incoming).await {
                    (server.sink)(ServerEvent::Refused { error });
                }
            });
        }
    }

    /// One connection from its handshake to its end.
    async fn serve(&self, incoming: Incoming) -> Result<(), AcceptError> {
        let connection = incoming.handshake().await?;
        let addr = connection.remote_addr();
        if connection.peer_role() != Role::Worker {
            connection.close("only workers are served here");
            return Err(AcceptError::WrongRole { addr, found: connection.peer_role() });
        }
        let limit = self.options.handshake_timeout;
        let (writer, reader) = timeout(limit, greet_client(&connection))
            .await
            .map_err(|_| AcceptError::TimedOut { addr, after: limit })?
            .map_err(|lost| AcceptError::Failed { addr, lost })?;

        let id = ConnId(self.registry.last.fetch_add(1, Ordering::Relaxed));
        let (outbox, queue) = Outbox::new(self.options.max_queued);
        let budget = outbox.budget();
        let flush = self.options.flush_timeout;
        let _at_work = self.registry.at_work.enter();
        self.registry.add(id, outbox, connection.clone());
        (self.sink)(ServerEvent::Connected { id, addr });
        let writing =
            tokio::spawn(link::write(writer, connection.clone(), queue, budget.clone(), flush));
        let take = |bytes| (self.sink)(ServerEvent::Frame { id, bytes });
        let lost = link::read(reader, &connection, flush, take).await;
        budget.end(lost.clone());
        self.registry.lock().open.remove(&id);
        // A closing writer still has a packet to send; with the connection gone it ends at once.
        let _ = writing.await;
        (self.sink)(ServerEvent::Closed { id, lost });
        Ok(())
    }
}

/// The client opens the stream with an empty frame; an empty frame back says that it is let in.
async fn greet_client(connection: &Connection) -> Result<(FrameWriter, FrameReader), Lost> {
    let (mut writer, mut reader) = connection.accept_frames().await?;
    expect_greeting(connection, &mut reader).await?;
    send_greeting(&mut writer).await?;
    Ok((writer, reader))
}

async fn greet_server(connection: &Connection) -> Result<(FrameWriter, FrameReader), Lost> {
    let (mut writer, mut reader) = connection.open_frames().await?;
    send_greeting(&mut writer).await?;
    expect_greeting(connection, &mut reader).await?;
    Ok((writer, reader))
}

async fn send_greeting(writer: &mut FrameWriter) -> Result<(), Lost> {
    writer.write_frame(Vec::new()).await.map_err(|error| match error {
        crate::WriteError::Lost(lost) => lost,
        other => Lost::Transport { detail: other.to_string() },
    })
}

async fn expect_greeting(connection: &Connection, reader: &mut FrameReader) -> Result<(), Lost> {
    let what = match reader.read_frame().await {
        Ok(Some(frame)) if frame.is_empty() => return Ok(()),
        Ok(Some(_)) => "the first frame is not the greeting".to_string(),
        Ok(None) => "the stream ended before the greeting".to_string(),
        Err(crate::ReadError::Lost(lost)) => return Err(lost),
        Err(crate::ReadError::Frame(error)) => error.to_string(),
    };
    let lost = Lost::Framing(crate::FrameError::Unexpected { what: what.clone() });
    connection.close_as(code::FRAMING, &what, lost.clone());
    Err(lost)
}

/// A worker's control connection.
///
/// Dropping it closes the connection, as [`close`](Self::close) does.
#[derive(Debug)]
pub struct ControlClient {
    outbox: Outbox<Vec<u8>>,
    connection: Connection,
    at_work: AtWork,
    limit: Duration,
    thread: NetThread,
}

impl ControlClient {
    /// Connects to the controller at `addr` (`HOST:PORT`) and waits until it has let this side
    /// in. While nothing is heard from there, it is tried again up to `limit`; who has answered may
    /// take the handshake's own time.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        addr: &str,
        identity: &Identity,
        options: &Options,
        limit: Duration,
    ) -> Result<(ControlClient, mpsc::Receiver<ClientEvent>), ConnectError> {
        let (sender, receiver) = mpsc::channel();
        let client = ControlClient::connect_with(addr, identity, options, limit, move |event| {
            // A receiver that is gone wants no more events.
            let _ = sender.send(event);
        })?;
        Ok((client, receiver))
    }

    /// As [`connect`](Self::connect), with a callback that runs on the network's thread and must
    /// not wait.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_with(
        addr: &str,
        identity: &Identity,
        options: &Options,
        limit: Duration,
        mut sink: impl FnMut(ClientEvent) + Send + 'static,
    ) -> Result<ControlClient, ConnectError> {
        let thread = NetThread::start("monarch-net").map_err(ConnectError::Runtime)?;
        let (at, who, how) = (addr.to_string(), identity.clone(), options.clone());
        let ready =
            thread.run(async move { open_client(&at, &who, &how, limit).await }).unwrap_or_else(
                || Err(ConnectError::Runtime(std::io::Error::other("the network thread ended"))),
            )?;
        let (connection, writer, reader) = ready;
        let kept = connection.clone();
        let (outbox, queue) = Outbox::new(options.max_queued);
        let at_work = AtWork::default();
        let (budget, flush, guard) = (outbox.budget(), options.flush_timeout, at_work.enter());
        thread.spawn(async move {
            let writing =
                tokio::spawn(link::write(writer, connection.clone(), queue, budget.clone(), flush));
            let take = |bytes| sink(ClientEvent::Frame(bytes));
            let lost = link::read(reader, &connection, flush, take).await;
            budget.end(lost.clone());
            let _ = writing.await;
            sink(ClientEvent::Closed(lost));
            drop(guard);
        });
        Ok(ControlClient { outbox, connection: kept, at_work, limit: flush * 2, thread })
    }

    /// Address of the controller.
    pub fn remote_addr(&self) -> SocketAddr {
        self.connection.remote_addr()
    }

    /// Queues a frame. It does not wait.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Lost`].
    pub fn send(&self, frame: Vec<u8>) -> Result<(), SendError> {
        let bytes = frame.len();
        self.outbox.send(frame, bytes, Duration::ZERO)
    }

    /// Sends what is queued, closes so that the other side receives all frames and then exactly
    /// this reason (cut to 1,000 bytes), and waits for it, twice the flush timeout at most.
    pub fn close(self, reason: &str) {
        self.close_and_wait(reason);
    }

    fn close_and_wait(&self, reason: &str) {
        self.outbox.close(reason);
        let (at_work, limit) = (self.at_work.clone(), self.limit);
        let connection = self.connection.clone();
        self.thread.run(async move {
            all_ended(&at_work, limit, || vec![connection.clone()]).await;
        });
    }
}

/// Opens the connection, for whose first sign there is `limit`, and its stream.
async fn open_client(
    addr: &str,
    identity: &Identity,
    options: &Options,
    limit: Duration,
) -> Result<(Connection, FrameWriter, FrameReader), ConnectError> {
    let (_, connection) = Endpoint::dial(addr, identity, options, Role::Controller, limit).await?;
    let addr = connection.remote_addr();
    let after = options.handshake_timeout;
    match timeout(after, greet_server(&connection)).await {
        Ok(Ok((writer, reader))) => Ok((connection, writer, reader)),
        Ok(Err(lost)) => Err(ConnectError::from_lost(addr, lost)),
        Err(_) => Err(ConnectError::Unfinished { addr, after }),
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        self.close_and_wait(DROPPED);
    }
}
