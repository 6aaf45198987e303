//! One authenticated connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quinn::{ConnectionError, VarInt};

use crate::bulk::{BulkReceiver, BulkSender};
use crate::config::{Options, is_loopback};
use crate::frame::{FrameError, FrameReader, FrameWriter};
use crate::identity::Role;
use crate::lost::{Lost, code, fit_reason};
use crate::probe::Watch;

/// Longest wait for the operating system to take the packet that closes a connection.
const CLOSE_SENT_LIMIT: Duration = Duration::from_millis(100);

/// Why nothing more can be read from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The bytes are no frames.
    Frame(FrameError),
    /// The connection ended.
    Lost(Lost),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Frame(error) => error.fmt(f),
            ReadError::Lost(lost) => lost.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<FrameError> for ReadError {
    fn from(error: FrameError) -> ReadError {
        ReadError::Frame(error)
    }
}

/// Why nothing more can be written to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// A frame is longer than a prefix of four bytes can say.
    TooLong { length: u64 },
    /// The other side wants no more of this stream.
    Stopped,
    /// The connection ended.
    Lost(Lost),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::TooLong { length } => {
                write!(f, "a frame of {length} bytes; a frame has less than 4 GiB")
            }
            WriteError::Stopped => f.write_str("the other side wants no more of this stream"),
            WriteError::Lost(lost) => lost.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

/// A connection to a proven member of the cluster. Clones are handles of the same connection,
/// which is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    quic: quinn::Connection,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    role: Role,
    version: u16,
    idle_timeout: Duration,
    max_frame: u32,
    max_payload: u64,
    verdict: Verdict,
    /// The task that looks whether the other side still exists.
    watch: OnceLock<tokio::task::AbortHandle>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }
}

/// Why this side ended a connection; set once, before the connection is closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<OnceLock<Lost>>);

impl Verdict {
    pub(crate) fn set(&self, lost: Lost) {
        // The first verdict stands.
        let _ = self.0.set(lost);
    }
}

impl Connection {
    pub(crate) fn new(quic: quinn::Connection, role: Role, options: &Options) -> Connection {
        let shared = Shared {
            role,
            version: options.version,
            idle_timeout: options.idle_timeout,
            max_frame: options.max_frame,
            max_payload: options.max_payload,
            verdict: Verdict::default(),
            watch: OnceLock::new(),
        };
        let connection = Connection { quic, shared: Arc::new(shared) };
        let (quic, verdict) = (connection.quic.clone(), connection.shared.verdict.clone());
        let watch = Watch::new(options, is_loopback(quic.remote_address().ip()));
        let task = tokio::spawn(crate::probe::watch(quic, verdict, watch));
        let _ = connection.shared.watch.set(task.abort_handle());
        connection
    }

    /// Address of the other side.
    pub fn remote_addr(&self) -> SocketAddr {
        self.quic.remote_address()
    }

    /// The role that the other side has proven.
    pub fn peer_role(&self) -> Role {
        self.shared.role
    }

    /// The measured round trip of the transport.
    pub fn round_trip(&self) -> Duration {
        self.quic.rtt()
    }

    /// Closes at once; what was written and not yet received is lost (see
    /// [`FrameWriter::finish`]). The other side is told `reason`, cut to 1,000 bytes.
    pub fn close(&self, reason: &str) {
        let reason = fit_reason(reason);
        self.close_as(code::CLOSED, reason, Lost::ClosedHere { reason: reason.to_string() });
    }

    pub(crate) fn close_as(&self, code: u32, reason: &str, verdict: Lost) {
        self.shared.verdict.set(verdict);
        self.quic.close(VarInt::from_u32(code), fit_reason(reason).as_bytes());
    }

    /// Closes, and waits (100 ms at most) until the operating system has the packet that says so.
    pub async fn close_sent(&self, reason: &str) {
        if self.quic.close_reason().is_some() {
            return;
        }
        let sent = || self.quic.stats().udp_tx.datagrams;
        let before = sent();
        self.close(reason);
        let since = Instant::now();
        while sent() == before && since.elapsed() < CLOSE_SENT_LIMIT {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the connection has ended and says why.
    pub async fn closed(&self) -> Lost {
        let error = self.quic.closed().await;
        self.lost(&error)
    }

    /// Why the connection has ended, if it has.
    pub fn close_reason(&self) -> Option<Lost> {
        self.quic.close_reason().map(|error| self.lost(&error))
    }

    pub(crate) fn lost(&self, error: &ConnectionError) -> Lost {
        if matches!(error, ConnectionError::LocallyClosed)
            && let Some(verdict) = self.shared.verdict.0.get()
        {
            return verdict.clone();
        }
        Lost::from_quic(error, self.shared.version, self.shared.idle_timeout)
    }

    pub(crate) fn read_error(&self, error: quinn::ReadError) -> ReadError {
        match error {
            quinn::ReadError::ConnectionLost(error) => ReadError::Lost(self.lost(&error)),
            // A stream is only reset when its writer was dropped in the middle.
            other => ReadError::Lost(Lost::Transport { detail: other.to_string() }),
        }
    }

    pub(crate) fn write_error(&self, error: quinn::WriteError) -> WriteError {
        match error {
            quinn::WriteError::ConnectionLost(error) => WriteError::Lost(self.lost(&error)),
            quinn::WriteError::Stopped(_) | quinn::WriteError::ClosedStream => WriteError::Stopped,
            other => WriteError::Lost(Lost::Transport { detail: other.to_string() }),
        }
    }

    /// Opens a bidirectional stream of frames. The other side sees it with the first frame.
    ///
    /// # Errors
    /// [`Lost`] if the connection ended; until then it waits for the other side to allow one more
    /// stream (of four).
    pub async fn open_frames(&self) -> Result<(FrameWriter, FrameReader), Lost> {
        let (send, receive) = self.quic.open_bi().await.map_err(|error| self.lost(&error))?;
        Ok(self.frames(send, receive))
    }

    /// Takes the next bidirectional stream that the other side opens.
    ///
    /// # Errors
    /// [`Lost`] if the connection ended.
    pub async fn accept_frames(&self) -> Result<(FrameWriter, FrameReader), Lost> {
        let (send, receive) = self.quic.accept_bi().await.map_err(|error| self.lost(&error))?;
        Ok(self.frames(send, receive))
    }

    fn frames(
        &self,
        send: quinn::SendStream,
        receive: quinn::RecvStream,
    ) -> (FrameWriter, FrameReader) {
        (
            FrameWriter::new(send, self.clone()),
            FrameReader::new(receive, self.clone(), self.shared.max_frame),
        )
    }

    /// Opens a unidirectional stream of bulk messages.
    ///
    /// # Errors
    /// As [`open_frames`](Self::open_frames).
    pub async fn open_bulk(&self) -> Result<BulkSender, Lost> {
        let stream = self.quic.open_uni().await.map_err(|error| self.lost(&error))?;
        Ok(BulkSender::new(stream, self.clone()))
    }

    /// Takes the next unidirectional stream that the other side opens.
    ///
    /// # Errors
    /// [`Lost`] if the connection ended.
    pub async fn accept_bulk(&self) -> Result<BulkReceiver, Lost> {
        let stream = self.quic.accept_uni().await.map_err(|error| self.lost(&error))?;
        Ok(BulkReceiver::new(stream, self.clone(), self.shared.max_payload))
    }
}
