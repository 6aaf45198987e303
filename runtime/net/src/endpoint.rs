//! A UDP socket that accepts and opens connections.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionId, ConnectionIdGenerator, TransportConfig, VarInt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::addr::{BindError, ResolveError, resolve};
use crate::config::{
    MAX_PAYLOAD_BYTES, Options, Tuning, TuningError, bind_socket, is_loopback, version_of,
};
use crate::connection::Connection;
use crate::identity::{Identity, Role};
use crate::lost::{Lost, code};
use crate::probe::{self, Deaf};
use crate::socket::{Ear, Ears, Socket};

/// How long to wait before asking again whether something listens on this machine's port.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How long a handshake goes on of which nothing is heard.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Longest wait for a name server when a port is bound.
const BIND_RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// Newcomers that may wait to be accepted; more are refused.
const MAX_WAITING: usize = 4096;

/// Why a connection could not be opened.
#[derive(Debug)]
pub enum ConnectError {
    /// The text gives no address.
    Resolve(ResolveError),
    /// This side could not open its own socket.
    Local(BindError),
    /// No thread or runtime could be started for it.
    Runtime(io::Error),
    /// The address cannot be reached from this socket, as IPv6 from IPv4.
    Unreachable { addr: SocketAddr, detail: String },
    /// Nobody answered. `refused`: the machine is there, and nothing listens on the port.
    NoAnswer { addr: SocketAddr, after: Duration, refused: bool },
    /// Somebody answers there, and no connection came of it in time.
    Unfinished { addr: SocketAddr, after: Duration },
    /// The other side holds another cluster key. Both sides' public keys are shown, as far as
    /// they are known.
    WrongKey { addr: SocketAddr, expected: String, shown: Option<String> },
    /// The other side belongs to the cluster but has another role.
    WrongRole { addr: SocketAddr, expected: Role, found: Role },
    /// The other side speaks another protocol version; `None` where it did not say which.
    OtherVersion { addr: SocketAddr, ours: u16, theirs: Option<u16> },
    /// The other side closed the connection at once, in these words.
    Refused { addr: SocketAddr, reason: String },
    /// The connection ended before it stood.
    Failed { addr: SocketAddr, lost: Lost },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Resolve(error) => write!(f, "cannot connect: {error}"),
            ConnectError::Local(error) => write!(f, "cannot connect: {error}"),
            ConnectError::Runtime(error) => {
                write!(f, "cannot connect: no thread for the network ({error})")
            }
            ConnectError::Unreachable { addr, detail } => {
                write!(f, "cannot connect to {addr}: {detail}")
            }
            ConnectError::NoAnswer { addr, after, refused: true } => write!(
                f,
                "nothing listens on {addr} (asked for {after:?}): is the process there running, \
                 and is this its port?"
            ),
            ConnectError::NoAnswer { addr, after, refused: false } => write!(
                f,
                "no answer from {addr} within {after:?}: check the address, that its machine is \
                 up, and that UDP passes the firewalls between"
            ),
            ConnectError::Unfinished { addr, after } => write!(
                f,
                "{addr} answers, and no connection came of it within {after:?}: most packets get \
                 lost on the way, or the process there hangs"
            ),
            ConnectError::WrongKey { addr, expected, shown } => {
                write!(f, "{addr} holds another cluster key")?;
                if let Some(shown) = shown {
                    write!(f, " (its public key is {shown}.., ours gives {expected}..)")?;
                }
                f.write_str(": give both sides the same key file")
            }
            ConnectError::WrongRole { addr, expected, found } => {
                write!(f, "{addr} is a {found} of this cluster, a {expected} was expected")
            }
            ConnectError::OtherVersion { addr, ours, theirs } => {
                write!(f, "{addr}: {}", Lost::OtherVersion { ours: *ours, theirs: *theirs })?;
                f.write_str("; run the same release on both sides")
            }
            ConnectError::Refused { addr, reason } if reason.is_empty() => {
                write!(f, "{addr} refused the connection")
            }
            ConnectError::Refused { addr, reason } => {
                write!(f, "{addr} refused the connection: {reason}")
            }
            ConnectError::Failed { addr, lost } => write!(f, "cannot connect to {addr}: {lost}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a newcomer was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// It holds another cluster key, or none.
    WrongKey { addr: SocketAddr },
    /// It belongs to the cluster but has another role than is served here.
    WrongRole { addr: SocketAddr, found: Role },
    /// It speaks another protocol version.
    OtherVersion { addr: SocketAddr, ours: u16, theirs: Option<u16> },
    /// It did not finish in time.
    TimedOut { addr: SocketAddr, after: Duration },
    /// Its connection ended before it stood.
    Failed { addr: SocketAddr, lost: Lost },
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::WrongKey { addr } => {
                write!(f, "{addr} was refused: it holds another cluster key")
            }
            AcceptError::WrongRole { addr, found } => {
                write!(f, "{addr} was refused: it is a {found}, which is not served here")
            }
            AcceptError::OtherVersion { addr, ours, theirs } => {
                let lost = Lost::OtherVersion { ours: *ours, theirs: *theirs };
                write!(f, "{addr} was refused: {lost}")
            }
            AcceptError::TimedOut { addr, after } => {
                write!(f, "{addr} was refused: it did not prove itself within {after:?}")
            }
            AcceptError::Failed { addr, lost } => write!(f, "{addr} was refused: {lost}"),
        }
    }
}

impl std::error::Error for AcceptError {}

/// A UDP socket of one identity. Clones are handles of the same socket.
#[derive(Clone, Debug)]
pub struct Endpoint {
    quic: quinn::Endpoint,
    local: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    identity: Identity,
    options: Options,
    /// Transport parameters for peers on this machine, and for others.
    loopback: Arc<TransportConfig>,
    network: Arc<TransportConfig>,
    /// The same for connections that are accepted; `None` where none are.
    serve: Option<(Arc<quinn::ServerConfig>, Arc<quinn::ServerConfig>)>,
    ears: Ears,
}

/// Random connection ids. They must not be bound to a process's life: a process started again at
/// the same address then answers packets of old connections with a reset.
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; 8];
        // Without randomness no handshake succeeds either; the id itself need only differ.
        let _ = SystemRandom::new().fill(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn tls_setting(error: impl fmt::Display) -> BindError {
    BindError::Io { addr: "TLS".into(), source: io::Error::other(error.to_string()) }
}

impl Endpoint {
    /// Listens on `addr`, `HOST:PORT`; port 0 takes a free one. Runs within a tokio runtime, to
    /// which the endpoint then belongs.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(
        addr: &str,
        identity: &Identity,
        options: &Options,
    ) -> Result<Endpoint, BindError> {
        let mut failed = None;
        for addr in resolve(addr, BIND_RESOLVE_LIMIT).await? {
            match Endpoint::open(addr, identity, options, true) {
                Ok(endpoint) => return Ok(endpoint),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let addr = addr.to_string();
        Err(failed.unwrap_or(BindError::Resolve(ResolveError::NoPort { addr })))
    }

    fn open(
        addr: SocketAddr,
        identity: &Identity,
        options: &Options,
        serve: bool,
    ) -> Result<Endpoint, BindError> {
        options.validate()?;
        let io = |source| BindError::from_io(addr, source);
        let (socket, buffer) = bind_socket(addr).map_err(io)?;
        let local = socket.local_addr().map_err(io)?;
        let loopback = Tuning::loopback(options.traffic, buffer).transport(options)?;
        let network = Tuning::network(options.traffic).transport(options)?;
        let serve = if serve {
            let tls = identity.server_tls(options.alpn()).map_err(tls_setting)?;
            let crypto = Arc::new(QuicServerConfig::try_from(tls).map_err(tls_setting)?);
            let config = |transport: &Arc<TransportConfig>| {
                let mut config = quinn::ServerConfig::with_crypto(crypto.clone());
                config
                    .transport_config(transport.clone())
                    .migration(false)
                    .max_incoming(MAX_WAITING);
                Arc::new(config)
            };
            Some((config(&loopback), config(&network)))
        } else {
            None
        };
        let mut config = quinn::EndpointConfig::new(Arc::new(identity.reset_key(local.port())));
        config.cid_generator(|| Box::new(RandomIds));
        config.max_udp_payload_size(MAX_PAYLOAD_BYTES).map_err(tls_setting)?;
        let default = serve.as_ref().map(|(_, network)| network.as_ref().clone());
        let runtime = Arc::new(quinn::TokioRuntime);
        let ears = Ears::default();
        let socket = Socket::new(socket, MAX_PAYLOAD_BYTES, ears.clone()).map_err(io)?;
        let quic = quinn::Endpoint::new_with_abstract_socket(config, default, socket, runtime)
            .map_err(io)?;
        let (identity, options) = (identity.clone(), options.clone());
        let shared = Arc::new(Shared { identity, options, loopback, network, serve, ears });
        Ok(Endpoint { quic, local, shared })
    }

    /// Opens a socket and from it a connection to `HOST:PORT`, which must be a `role` of the
    /// cluster, as [`connect`](Self::connect) does. A name with several addresses is tried at all
    /// of them at once; if none will do, the one that says most is told of.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn dial(
        addr: &str,
        identity: &Identity,
        options: &Options,
        role: Role,
        limit: Duration,
    ) -> Result<(Endpoint, Connection), ConnectError> {
        let deadline = Instant::now() + limit;
        let found = resolve(addr, limit).await.map_err(ConnectError::Resolve)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let mut attempts = JoinSet::new();
        for addr in found {
            let any = Endpoint::any_for(addr);
            let endpoint =
                Endpoint::open(any, identity, options, false).map_err(ConnectError::Local)?;
            attempts.spawn(async move {
                let connected = endpoint.connect(addr, role, left).await;
                connected.map(|connection| (endpoint, connection))
            });
        }
        let mut failed: Option<ConnectError> = None;
        while let Some(ended) = attempts.join_next().await {
            let error = match ended {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => error,
                Err(error) => ConnectError::Runtime(io::Error::other(error)),
            };
            if failed.as_ref().is_none_or(|before| error.tells() > before.tells()) {
                failed = Some(error);
            }
        }
        let addr = addr.to_string();
        Err(failed.unwrap_or(ConnectError::Resolve(ResolveError::NoPort { addr })))
    }

    /// The local address from which `addr` can be reached.
    fn any_for(addr: SocketAddr) -> SocketAddr {
        match (addr, is_loopback(addr.ip())) {
            (SocketAddr::V4(_), true) => (Ipv4Addr::LOCALHOST, 0).into(),
            (SocketAddr::V4(_), false) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            (SocketAddr::V6(_), true) => (Ipv6Addr::LOCALHOST, 0).into(),
            (SocketAddr::V6(_), false) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Connects to `addr`, which must be a `role` of the cluster. While nothing is heard from
    /// there, it is tried again up to `limit`; once something is, the handshake may take its own
    /// time.
    ///
    /// The other side may still refuse this one after this call: its refusal is then the
    /// connection's end.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        &self,
        addr: SocketAddr,
        role: Role,
        limit: Duration,
    ) -> Result<Connection, ConnectError> {
        let begun = Instant::now();
        let ear = self.shared.ears.prick(addr);
        let patience = async {
            sleep_until(begun + limit).await;
            while ear.has_heard() && begun.elapsed() < limit + self.shared.options.handshake_timeout
            {
                sleep(RETRY_PAUSE).await;
            }
        };
        let mut obstacle = None;
        tokio::select! {
            biased;
            done = self.persist(addr, role, &ear, &mut obstacle) => return done,
            () = patience => {}
        }
        // For people: what remained of the caller's time, without its last nanoseconds.
        let whole =
            |time: Duration| Duration::from_millis((time.as_secs_f64() * 1e3).round() as u64);
        Err(match obstacle {
            Some(Deaf::NoWay(error)) => {
                ConnectError::Unreachable { addr, detail: error.to_string() }
            }
            _ if ear.has_heard() => {
                ConnectError::Unfinished { addr, after: whole(begun.elapsed()) }
            }
            refused => {
                ConnectError::NoAnswer { addr, after: whole(limit), refused: refused.is_some() }
            }
        })
    }

    /// Tries until somebody says yes or no. `obstacle`: why nobody does, as far as is known.
    async fn persist(
        &self,
        addr: SocketAddr,
        role: Role,
        ear: &Ear,
        obstacle: &mut Option<Deaf>,
    ) -> Result<Connection, ConnectError> {
        let near = is_loopback(addr.ip());
        loop {
            if near && probe::is_refused_now(addr).await {
                *obstacle = Some(Deaf::Refused);
                sleep(RETRY_PAUSE).await;
                continue;
            }
            tokio::select! {
                biased;
                done = self.attempt(addr, role) => return done,
                () = unanswered(ear) => {}
                deaf = probe::unreachable(addr) => {
                    *obstacle = Some(deaf);
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
            *obstacle = None;
        }
    }

    async fn attempt(&self, addr: SocketAddr, role: Role) -> Result<Connection, ConnectError> {
        let Shared { identity, options, .. } = &*self.shared;
        let own = |error: String| ConnectError::Unreachable { addr, detail: error };
        let (tls, stranger) =
            identity.client_tls(role, options.alpn()).map_err(|e| own(e.to_string()))?;
        let crypto = QuicClientConfig::try_from(tls).map_err(|e| own(e.to_string()))?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        let near = is_loopback(addr.ip());
        let transport = if near { &self.shared.loopback } else { &self.shared.network };
        config.transport_config(transport.clone());
        let connecting = self
            .quic
            .connect_with(config, addr, &options.server_name())
            .map_err(|e| own(e.to_string()))?;
        let lost = |error| Lost::from_quic(&error, options.version, options.idle_timeout);
        let quic = connecting.await.map_err(|error| match lost(error) {
            Lost::WrongKey => self.wrong_key(addr, role, stranger.fingerprint()),
            other => ConnectError::from_lost(addr, other),
        })?;
        if protocol(&quic).0 == Some(options.alpn_own()) {
            return Ok(Connection::new(quic, role, options));
        }
        // Only the common name was agreed on: the other side tells its version and closes.
        let told = timeout(options.handshake_timeout, quic.closed()).await;
        Err(ConnectError::from_lost(
            addr,
            told.map_or(Lost::Silent { idle: options.handshake_timeout }, lost),
        ))
    }

    fn wrong_key(&self, addr: SocketAddr, role: Role, shown: Option<String>) -> ConnectError {
        let identity = &self.shared.identity;
        let roles = [Role::Controller, Role::Worker];
        let member = roles.into_iter().find(|r| shown.as_ref() == Some(&identity.fingerprint(*r)));
        match member {
            Some(found) => ConnectError::WrongRole { addr, expected: role, found },
            None => ConnectError::WrongKey { addr, expected: identity.fingerprint(role), shown },
        }
    }

    /// Waits for the next newcomer; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        let quic = self.quic.accept().await?;
        Some(Incoming { quic, shared: self.shared.clone() })
    }

    /// Closes all connections at once and accepts no more.
    pub fn close(&self, reason: &str) {
        let reason = crate::lost::fit_reason(reason);
        self.quic.close(VarInt::from_u32(code::CLOSED), reason.as_bytes());
    }
}

/// Ends when a handshake is to be begun anew: its packets are sent ever more seldom, and a machine
/// that comes up later shall find a fresh one.
async fn unanswered(ear: &Ear) {
    loop {
        sleep(ATTEMPT).await;
        if !ear.has_heard() {
            return;
        }
    }
}

impl ConnectError {
    /// How much this error says about what is wrong.
    fn tells(&self) -> u32 {
        match self {
            ConnectError::Unreachable { .. } => 0,
            ConnectError::NoAnswer { refused: true, .. } => 1,
            ConnectError::NoAnswer { refused: false, .. } => 2,
            ConnectError::Unfinished { .. } => 3,
            _ => 4,
        }
    }

    /// A connection that ended before it was of use.
    pub(crate) fn from_lost(addr: SocketAddr, lost: Lost) -> ConnectError {
        match lost {
            Lost::OtherVersion { ours, theirs } => {
                ConnectError::OtherVersion { addr, ours, theirs }
            }
            Lost::ClosedByPeer { reason } => ConnectError::Refused { addr, reason },
            lost => ConnectError::Failed { addr, lost },
        }
    }
}

/// The protocol agreed on and, on the accepting side, the server name the client sent.
fn protocol(quic: &quinn::Connection) -> (Option<Vec<u8>>, Option<String>) {
    quic.handshake_data()
        .and_then(|data| data.downcast::<HandshakeData>().ok())
        .map_or((None, None), |data| (data.protocol, data.server_name))
}

/// A newcomer that has proven nothing yet.
#[derive(Debug)]
pub struct Incoming {
    quic: quinn::Incoming,
    shared: Arc<Shared>,
}

impl Incoming {
    /// Address of the newcomer, which it may have forged.
    pub fn remote_addr(&self) -> SocketAddr {
        self.quic.remote_address()
    }

    /// Lets the newcomer prove itself, within the handshake timeout.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub async fn handshake(self) -> Result<Connection, AcceptError> {
        let addr = self.remote_addr();
        let Shared { identity, options, serve, .. } = &*self.shared;
        let failed = |error: quinn::ConnectionError| {
            refused(addr, Lost::from_quic(&error, options.version, options.idle_timeout))
        };
        let connecting = match serve {
            Some((near, _)) if is_loopback(addr.ip()) => self.quic.accept_with(near.clone()),
            Some((_, far)) => self.quic.accept_with(far.clone()),
            None => self.quic.accept(),
        };
        let limit = options.handshake_timeout;
        let quic = timeout(limit, connecting.map_err(failed)?)
            .await
            .map_err(|_| AcceptError::TimedOut { addr, after: limit })?
            .map_err(failed)?;
        let shown = quic
            .peer_identity()
            .and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
        let key = shown.as_ref().and_then(|shown| shown.first());
        let role =
            key.and_then(|key| identity.role_of(key)).ok_or(AcceptError::WrongKey { addr })?;
        let (protocol, server_name) = protocol(&quic);
        let connection = Connection::new(quic, role, options);
        if protocol == Some(options.alpn_own()) {
            return Ok(connection);
        }
        let theirs = server_name.as_deref().and_then(version_of);
        let lost = Lost::OtherVersion { ours: options.version, theirs };
        connection.close_as(code::VERSION, &options.version.to_string(), lost.clone());
        Err(refused(addr, lost))
    }
}

fn refused(addr: SocketAddr, lost: Lost) -> AcceptError {
    match lost {
        Lost::WrongKey => AcceptError::WrongKey { addr },
        Lost::OtherVersion { ours, theirs } => AcceptError::OtherVersion { addr, ours, theirs },
        lost => AcceptError::Failed { addr, lost },
    }
}

impl From<TuningError> for ConnectError {
    fn from(error: TuningError) -> ConnectError {
        ConnectError::Local(error.into())
    }
}
