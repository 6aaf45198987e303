//! Bulk transfers between workers for code that is not asynchronous: one connection per pair.
//!
//! Rank i opens the connections to all ranks below it and accepts those of the ranks above. Each
//! side then says its rank and the size of the mesh, and both check them: a mixed-up list of
//! addresses is an error here, not wrong sums later.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};

use crate::addr::BindError;
use crate::bulk::Header;
use crate::config::Options;
use crate::connection::Connection;
use crate::endpoint::{ConnectError, Endpoint};
use crate::farewell::all_ended;
use crate::identity::Identity;
use crate::lost::Lost;
use crate::outbox::{Out, Outbox, SendError};
use crate::payload::Payload;
use crate::queue::{Empty, Queue};
use crate::runtime::{AtWork, NetThread};

mod form;
mod pump;

/// Said to the other side when a mesh is dropped without a reason.
const DROPPED: &str = "the process at the other end ended";

/// Why a mesh was not formed.
#[derive(Debug)]
pub enum MeshError {
    /// The own rank is not below the number of addresses.
    BadRank { rank: u32, world: usize },
    /// A mesh is formed once; start a new one.
    Formed,
    /// A lower rank could not be connected to.
    Connect { rank: u32, error: ConnectError },
    /// Higher ranks did not connect in time.
    Missing { ranks: Vec<u32>, after: Duration },
    /// The process at an address has another rank: the lists of addresses differ.
    WrongRank { addr: SocketAddr, expected: u32, found: u32 },
    /// A peer counts another number of ranks: the lists of addresses differ.
    WrongWorld { rank: u32, ours: u32, theirs: u32 },
    /// A peer was lost while the mesh was formed.
    Lost { rank: u32, lost: Lost },
    /// [`PeerMesh::give_up`] was called.
    GivenUp,
    /// The network's thread has ended.
    Ended,
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeshError::BadRank { rank, world } => {
                write!(f, "rank {rank} of {world}: ranks count from 0")
            }
            MeshError::Formed => f.write_str("this mesh is formed already; start a new one"),
            MeshError::Connect { rank, error } => write!(f, "rank {rank}: {error}"),
            MeshError::Missing { ranks, after } => write!(
                f,
                "within {after:?} these ranks did not connect: {ranks:?}; do they run, and do \
                 they know this process's address?"
            ),
            MeshError::WrongRank { addr, expected, found } => write!(
                f,
                "{addr} is rank {found}, expected was rank {expected}: the workers were given \
                 different lists of addresses"
            ),
            MeshError::WrongWorld { rank, ours, theirs } => write!(
                f,
                "rank {rank} counts {theirs} workers, this one {ours}: the workers were given \
                 different lists of addresses"
            ),
            MeshError::Lost { rank, lost } => write!(f, "rank {rank}: {lost}"),
            MeshError::GivenUp => f.write_str("nobody waits for this mesh any more"),
            MeshError::Ended => f.write_str("the network's thread has ended"),
        }
    }
}

impl std::error::Error for MeshError {}

/// What a mesh reports. Of one peer: its messages in the order in which they were sent, then one
/// `Lost`.
#[derive(Debug)]
pub enum MeshEvent {
    Message { peer: u32, header: Header, payload: Payload },
    Lost { peer: u32, lost: Lost },
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// Nothing came in time.
    TimedOut { after: Duration },
    /// The mesh was closed.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::TimedOut { after } => write!(f, "nothing was received within {after:?}"),
            RecvError::Closed => f.write_str("the mesh was closed"),
        }
    }
}

impl std::error::Error for RecvError {}

/// A header and a payload on their way out.
type Message = (Header, Bytes);

/// A received event and its share of what may wait, which is given back when it is taken.
type Received = (MeshEvent, Option<tokio::sync::OwnedSemaphorePermit>);

/// One worker's end of a full mesh. All methods may be called from any thread.
///
/// Dropping it closes all connections, as [`close`](Self::close) does.
#[derive(Debug)]
pub struct PeerMesh {
    local: SocketAddr,
    shared: Arc<Shared>,
    endpoint: Endpoint,
    thread: NetThread,
}

/// What the mesh and its tasks share.
#[derive(Debug)]
struct Shared {
    options: Options,
    received: Queue<Received>,
    peers: Mutex<BTreeMap<u32, Peer>>,
    arrivals: form::Arrivals,
    /// Nobody waits for the mesh to be formed any more.
    given_up: Notify,
    at_work: AtWork,
}

#[derive(Debug)]
struct Peer {
    outbox: Outbox<Message>,
    connection: Connection,
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, BTreeMap<u32, Peer>> {
        // Nothing panics while it holds the lock.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerMesh {
    /// Listens on `addr` (`HOST:PORT`, port 0 takes a free one) and returns the mesh with the
    /// address that the peers are to be told. Peers may connect from then on.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start(
        addr: &str,
        identity: &Identity,
        options: &Options,
    ) -> Result<(PeerMesh, SocketAddr), BindError> {
        let failed = |source| BindError::Io { addr: addr.to_string(), source };
        let thread = NetThread::start("monarch-mesh").map_err(failed)?;
        let (at, who, how) = (addr.to_string(), identity.clone(), options.clone());
        let endpoint = thread
            .run(async move { Endpoint::bind(&at, &who, &how).await })
            .unwrap_or_else(|| Err(failed(std::io::Error::other("the network thread ended"))))?;
        let local = endpoint.local_addr();
        let shared = Arc::new(Shared {
            options: options.clone(),
            received: Queue::default(),
            peers: Mutex::default(),
            arrivals: form::Arrivals::default(),
            given_up: Notify::new(),
            at_work: AtWork::default(),
        });
        thread.spawn(form::accept(endpoint.clone(), shared.clone()));
        Ok((PeerMesh { local, shared, endpoint, thread }, local))
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Connects to all other ranks within `limit`: `addrs` holds the address of each rank, the
    /// own one included. All ranks call it, in any order.
    ///
    /// # Errors
    /// [`MeshError`]; the mesh is then of no use.
    pub fn connect_all(
        &self,
        rank: u32,
        addrs: &[SocketAddr],
        limit: Duration,
    ) -> Result<(), MeshError> {
        let world = match u32::try_from(addrs.len()) {
            Ok(world) if rank < world => world,
            _ => return Err(MeshError::BadRank { rank, world: addrs.len() }),
        };
        let formation = form::Formation {
            endpoint: self.endpoint.clone(),
            shared: self.shared.clone(),
            rank,
            world,
            limit,
        };
        let addrs = addrs.to_vec();
        let shared = self.shared.clone();
        let formed = async move {
            tokio::select! {
                biased;
                () = shared.given_up.notified() => Err(MeshError::GivenUp),
                formed = formation.run(&addrs) => formed,
            }
        };
        let links = self.thread.run(formed).unwrap_or(Err(MeshError::Ended))?;
        for link in links {
            let (outbox, queue) = Outbox::new(self.shared.options.max_queued);
            let (budget, connection) = (outbox.budget(), link.connection.clone());
            self.shared.peers().insert(link.rank, Peer { outbox, connection });
            self.thread.spawn(pump::run(self.shared.clone(), link, budget, queue));
        }
        Ok(())
    }

    /// Ends [`connect_all`](Self::connect_all), now or when it is called.
    pub fn give_up(&self) {
        self.shared.given_up.notify_one();
    }

    /// Queues a message to a peer without waiting or copying: a `Vec<u8>` or `Bytes`; other owners
    /// of memory become one by `Bytes::from_owner`.
    ///
    /// # Errors
    /// [`SendError`]; the message is then not sent.
    pub fn send(
        &self,
        peer: u32,
        header: Header,
        payload: impl Into<Bytes>,
    ) -> Result<(), SendError> {
        self.send_within(peer, header, payload, Duration::ZERO)
    }

    /// As [`send`](Self::send), but waits up to `limit` while too much is queued already.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_within(
        &self,
        peer: u32,
        header: Header,
        payload: impl Into<Bytes>,
        limit: Duration,
    ) -> Result<(), SendError> {
        let outbox = {
            let peers = self.shared.peers();
            peers.get(&peer).map(|p| p.outbox.clone()).ok_or(SendError::Unknown)?
        };
        let payload = payload.into();
        let bytes = payload.len();
        outbox.send((header, payload), bytes, limit)
    }

    /// Waits up to `limit` for the next event of any peer.
    ///
    /// What is not taken stays within bounds: each peer is held back once
    /// [`Options::max_received`] bytes of it wait.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&self, limit: Duration) -> Result<MeshEvent, RecvError> {
        match self.shared.received.pop(limit) {
            Ok((event, _permit)) => Ok(event),
            Err(Empty::TimedOut) => Err(RecvError::TimedOut { after: limit }),
            Err(Empty::Closed) => Err(RecvError::Closed),
        }
    }

    /// Closes all connections so that the peers receive all that was sent and then exactly this
    /// reason, and waits for it, twice the flush timeout at most.
    pub fn close(self, reason: &str) {
        self.close_all(reason);
    }

    fn close_all(&self, reason: &str) {
        for peer in self.shared.peers().values() {
            peer.outbox.close(reason);
        }
        let (shared, limit) = (self.shared.clone(), self.shared.options.flush_timeout * 2);
        let (endpoint, reason) = (self.endpoint.clone(), reason.to_string());
        self.thread.run(async move {
            let open = || shared.peers().values().map(|peer| peer.connection.clone()).collect();
            all_ended(&shared.at_work, limit, open).await;
            endpoint.close(&reason);
        });
        self.shared.received.close();
    }
}

impl Drop for PeerMesh {
    fn drop(&mut self) {
        self.close_all(DROPPED);
    }
}
