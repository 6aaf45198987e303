//! Forming a mesh: who connects to whom, and the first message that says who is who.

use super::pump::Link;
use super::*;
use crate::bulk::{BULK_HEADER_BYTES, BulkEvent, BulkReceiver, BulkSender};
use crate::connection::{Connection, ReadError, WriteError};
use crate::endpoint::Incoming;
use crate::frame::FrameError;
use crate::identity::Role;
use crate::lost::code;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// First bytes of a hello; the last one is its version.
const MAGIC: &[u8; 16] = b"monarch mesh   1";

/// What the first message on each stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    rank: u32,
    world: u32,
}

impl Hello {
    fn encode(self) -> Header {
        let mut header = [0; BULK_HEADER_BYTES];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&self.rank.to_le_bytes());
        header[20..24].copy_from_slice(&self.world.to_le_bytes());
        header
    }

    fn decode(header: &Header) -> Option<Hello> {
        let field = |at: usize| {
            let bytes = header.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        if !header.starts_with(MAGIC) || header[24..] != [0; 8] {
            return None;
        }
        Some(Hello { rank: field(16)?, world: field(20)? })
    }

    async fn send(self, connection: &Connection) -> Result<BulkSender, Lost> {
        let mut sender = connection.open_bulk().await?;
        match sender.send(&self.encode(), Bytes::new()).await {
            Ok(()) => Ok(sender),
            Err(WriteError::Lost(lost)) => Err(lost),
            Err(other) => Err(Lost::Transport { detail: other.to_string() }),
        }
    }

    async fn receive(connection: &Connection) -> Result<(Hello, BulkReceiver), Lost> {
        let mut receiver = connection.accept_bulk().await?;
        let begun = Hello::next(&mut receiver).await?;
        let ended = Hello::next(&mut receiver).await?;
        if let (Some(BulkEvent::Begin { header, length: 0 }), Some(BulkEvent::Payload(_))) =
            (begun, ended)
            && let Some(hello) = Hello::decode(&header)
        {
            return Ok((hello, receiver));
        }
        let what = "the first message is not a mesh's hello".to_string();
        let lost = Lost::Framing(FrameError::Unexpected { what: what.clone() });
        connection.close_as(code::FRAMING, &what, lost.clone());
        Err(lost)
    }

    async fn next(receiver: &mut BulkReceiver) -> Result<Option<BulkEvent>, Lost> {
        receiver.next().await.map_err(|error| match error {
            ReadError::Lost(lost) => lost,
            ReadError::Frame(error) => Lost::Framing(error),
        })
    }
}

/// Peers that have connected and said who they are, before or while the mesh is formed.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    waiting: Mutex<Option<BTreeMap<u32, Arrival>>>,
    formed: Mutex<bool>,
    notify: Notify,
}

#[derive(Debug)]
struct Arrival {
    connection: Connection,
    receiver: BulkReceiver,
    hello: Hello,
}

impl Arrivals {
    /// Marks the mesh as formed; says whether it was before.
    fn begin(&self) -> bool {
        let mut formed = self.formed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *formed, true)
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<u32, Arrival>>> {
        // Nothing panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, arrival: Arrival) {
        let rank = arrival.hello.rank;
        // A peer that tries again counts with its latest connection.
        let before = self.lock().get_or_insert_default().insert(rank, arrival);
        if let Some(before) = before {
            before.connection.close("replaced by a newer connection of the same rank");
        }
        self.notify.notify_waiters();
    }

    async fn take(&self, rank: u32) -> Arrival {
        loop {
            // Created before the look, so that no notice in between is missed.
            let notified = self.notify.notified();
            if let Some(arrival) = self.lock().get_or_insert_default().remove(&rank) {
                return arrival;
            }
            notified.await;
        }
    }

    /// Turns away whoever is not part of the mesh.
    fn clear(&self) {
        for arrival in self.lock().take().into_iter().flatten() {
            arrival.1.connection.close("this mesh has no place for that rank");
        }
    }
}

/// Accepts peers as long as the endpoint lives.
pub(super) async fn accept(endpoint: Endpoint, shared: Arc<Shared>) {
    while let Some(incoming) = endpoint.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move { arrive(incoming, &shared).await });
    }
}

/// Whoever cannot prove itself or says nothing is dropped; the formation then names the rank that
/// is missing, and the other side has its own error.
async fn arrive(incoming: Incoming, shared: &Shared) {
    let Ok(connection) = incoming.handshake().await else { return };
    if connection.peer_role() != Role::Worker {
        connection.close("only workers are part of a mesh");
        return;
    }
    let limit = shared.options.handshake_timeout;
    if let Ok(Ok((hello, receiver))) = timeout(limit, Hello::receive(&connection)).await {
        shared.arrivals.add(Arrival { connection, receiver, hello });
    }
}

/// One forming of a mesh.
#[derive(Clone)]
pub(super) struct Formation {
    pub endpoint: Endpoint,
    pub shared: Arc<Shared>,
    pub rank: u32,
    pub world: u32,
    pub limit: Duration,
}

impl Formation {
    /// Connects to all lower ranks and waits for all higher ones.
    pub(super) async fn run(self, addrs: &[SocketAddr]) -> Result<Vec<Link>, MeshError> {
        if self.shared.arrivals.begin() {
            return Err(MeshError::Formed);
        }
        let deadline = Instant::now() + self.limit;
        let mut tasks = JoinSet::new();
        let mut missing: Vec<u32> = Vec::new();
        for (peer, addr) in (0..self.world).zip(addrs.iter().copied()) {
            let formation = self.clone();
            if peer < self.rank {
                tasks.spawn(async move { formation.connect(peer, addr, deadline).await });
            } else if peer > self.rank {
                missing.push(peer);
                tasks.spawn(async move { formation.welcome(peer).await });
            }
        }
        let mut links = Vec::new();
        loop {
            match timeout_at(deadline, tasks.join_next()).await {
                Ok(None) => break,
                Ok(Some(Ok(Ok(link)))) => {
                    missing.retain(|rank| *rank != link.rank);
                    links.push(link);
                }
                Ok(Some(Ok(Err(error)))) => return Err(error),
                Ok(Some(Err(_))) => return Err(MeshError::Ended),
                Err(_) if !missing.is_empty() => {
                    return Err(MeshError::Missing { ranks: missing, after: self.limit });
                }
                // Only connections to lower ranks are left; they end at the same deadline.
                Err(_) => match tasks.join_next().await {
                    Some(Ok(Err(error))) => return Err(error),
                    _ => return Err(MeshError::Ended),
                },
            }
        }
        self.shared.arrivals.clear();
        Ok(links)
    }

    fn hello(&self) -> Hello {
        Hello { rank: self.rank, world: self.world }
    }

    fn check(&self, connection: &Connection, expected: u32, hello: Hello) -> Result<(), MeshError> {
        let error = if hello.rank != expected {
            let addr = connection.remote_addr();
            MeshError::WrongRank { addr, expected, found: hello.rank }
        } else if hello.world != self.world {
            MeshError::WrongWorld { rank: expected, ours: self.world, theirs: hello.world }
        } else {
            return Ok(());
        };
        connection.close(&error.to_string());
        Err(error)
    }

    async fn connect(
        &self,
        rank: u32,
        addr: SocketAddr,
        deadline: Instant,
    ) -> Result<Link, MeshError> {
        // A peer listens before its address is told; what it does next may take its time.
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.min(self.shared.options.answer_timeout);
        let failed = |error| MeshError::Connect { rank, error };
        let lost = |lost| MeshError::Lost { rank, lost };
        let connection = self.endpoint.connect(addr, Role::Worker, left).await.map_err(failed)?;
        let sender = self.hello().send(&connection).await.map_err(lost)?;
        // The other side answers once it forms its mesh too.
        let (hello, receiver) = timeout_at(deadline, Hello::receive(&connection))
            .await
            .map_err(|_| MeshError::Missing { ranks: vec![rank], after: self.limit })?
            .map_err(lost)?;
        self.check(&connection, rank, hello)?;
        Ok(Link { rank, connection, sender, receiver })
    }

    /// Waits for a higher rank; the caller's deadline ends it.
    async fn welcome(&self, rank: u32) -> Result<Link, MeshError> {
        let Arrival { connection, receiver, hello } = self.shared.arrivals.take(rank).await;
        let answered = self.hello().send(&connection).await;
        self.check(&connection, rank, hello)?;
        let sender = answered.map_err(|lost| MeshError::Lost { rank, lost })?;
        Ok(Link { rank, connection, sender, receiver })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_round_trips_and_nothing_else_is_one() {
        let hello = Hello { rank: 3, world: 8 };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert_eq!(Hello::decode(&[0; BULK_HEADER_BYTES]), None);
        let mut longer = hello.encode();
        longer[31] = 1;
        assert_eq!(Hello::decode(&longer), None);
    }
}
