//! Bulk transfers to the other workers over QUIC.

use crate::WorkerError;
use monarch_collective::{
    Bulk, BulkError, BulkEvent, BulkPayload, CollectiveError, HEADER_BYTES, Stop,
};
use monarch_net::{
    Identity, MeshError, MeshEvent, Options, Payload, PeerMesh, RecvError, SendError,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a wait looks whether the run has ended.
const SLICE: Duration = Duration::from_millis(2);

/// How this worker can be reached by its peers.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Of the role `Worker`.
    pub identity: Identity,
    /// [`Options::bulk`], unless there is a reason.
    pub options: Options,
    /// `HOST:PORT`; port 0 takes a free one.
    pub listen: String,
    /// `HOST`, or `HOST:PORT`, that peers are told instead of what is listened on: for `0.0.0.0`,
    /// or where addresses are translated on the way.
    pub advertise: Option<String>,
}

/// Listens for peers.
pub(crate) struct Listening {
    mesh: PeerMesh,
    /// What peers are told.
    pub(crate) address: String,
}

impl Listening {
    /// `patience`: how long the port may still be in use by a mesh of ours.
    pub(crate) fn start(
        settings: &PeerSettings,
        patience: Duration,
    ) -> Result<Listening, WorkerError> {
        let start = || PeerMesh::start(&settings.listen, &settings.identity, &settings.options);
        let mut started = start();
        let deadline = Instant::now() + patience;
        while started.is_err() && Instant::now() < deadline {
            std::thread::sleep(SLICE);
            started = start();
        }
        let (mesh, local) = started.map_err(|e| WorkerError::setup("listen for workers", e))?;
        let address = match &settings.advertise {
            Some(address) if has_port(address) => address.clone(),
            Some(host) if host.contains(':') => format!("[{host}]:{}", local.port()),
            Some(host) => format!("{host}:{}", local.port()),
            None => local.to_string(),
        };
        Ok(Listening { mesh, address })
    }

    /// Connects to all peers, given in order of rank.
    pub(crate) fn connect(
        self,
        rank: u32,
        peers: &[String],
        limit: Duration,
        stop: &Stop,
    ) -> Result<PeerBulk, WorkerError> {
        const TASK: &str = "connect to the other workers";
        let failed = |e: &dyn std::fmt::Display| WorkerError::setup(TASK, e);
        let lost = |source| WorkerError::Collective { step: None, task: TASK.into(), source };
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for peer in peers {
            let found = std::net::ToSocketAddrs::to_socket_addrs(peer);
            let found = found.map_err(|e| failed(&format_args!("`{peer}`: {e}")))?.next();
            addresses.push(found.ok_or_else(|| failed(&format_args!("`{peer}` has no address")))?);
        }
        // On a thread of its own, for it looks at no switch while it waits.
        let mesh = Arc::new(self.mesh);
        let (say, done) = channel();
        let its_mesh = mesh.clone();
        let work = move || {
            let connected = its_mesh.connect_all(rank, &addresses, limit);
            // Before anybody is told: the last one to let go of the mesh frees its port.
            drop(its_mesh);
            let _ = say.send(connected);
        };
        let thread = std::thread::Builder::new().name("connect".into());
        thread.spawn(work).map_err(|e| failed(&e))?;
        loop {
            match done.recv_timeout(SLICE) {
                Ok(Ok(())) => return Ok(PeerBulk { mesh }),
                Ok(Err(error)) => {
                    stop.check().map_err(lost)?;
                    let why = error.to_string();
                    return Err(match peer_of(&error) {
                        Some(rank) => lost(CollectiveError::PeerLost { rank, why }),
                        None => failed(&why),
                    });
                }
                // The next generation listens at the same port.
                Err(RecvTimeoutError::Timeout) if stop.is_set() => mesh.give_up(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }
}

/// Whether an address names a port: `node7:4000`, `[::1]:4000`, but not `::1`.
fn has_port(address: &str) -> bool {
    match address.rsplit_once(':') {
        Some((host, port)) => {
            port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':'))
        }
        None => false,
    }
}

/// The peer that a mesh could not be formed with.
fn peer_of(error: &MeshError) -> Option<u32> {
    match error {
        MeshError::Connect { rank, .. } | MeshError::Lost { rank, .. } => Some(*rank),
        MeshError::Missing { ranks, .. } => ranks.first().copied(),
        _ => None,
    }
}

/// Connections to all peers.
pub(crate) struct PeerBulk {
    mesh: Arc<PeerMesh>,
}

pub(crate) struct Received(Payload);

impl BulkPayload for Received {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn copy_to(&self, target: &mut [u8]) -> bool {
        self.0.copy_to(target)
    }
}

impl Bulk for PeerBulk {
    type Payload = Received;

    fn send(
        &mut self,
        peer: u32,
        header: [u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<bool, BulkError> {
        match self.mesh.send(peer, header, payload.to_vec()) {
            Ok(()) => Ok(true),
            Err(SendError::Full { .. }) => Ok(false),
            Err(error) => Err(BulkError { peer: Some(peer), why: error.to_string() }),
        }
    }

    fn recv(&mut self, limit: Duration) -> Result<BulkEvent<Received>, BulkError> {
        match self.mesh.recv(limit) {
            Ok(MeshEvent::Message { peer, header, payload }) => {
                Ok(BulkEvent::Message { peer, header, payload: Received(payload) })
            }
            Ok(MeshEvent::Lost { peer, lost }) => {
                Ok(BulkEvent::Lost { peer, why: lost.to_string() })
            }
            Err(RecvError::TimedOut { .. }) => Ok(BulkEvent::Nothing),
            Err(error) => Err(BulkError { peer: None, why: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_from_addresses_of_ipv6() {
        for address in ["node7:4000", "[::1]:4000", "10.0.0.1:1"] {
            assert!(has_port(address), "{address}");
        }
        for host in ["node7", "::1", "fe80::1:4000", "10.0.0.1", "[::1]", "node7:x"] {
            assert!(!has_port(host), "{host}");
        }
    }
}
