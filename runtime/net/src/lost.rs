//! Why a connection ended.

use std::fmt;
use std::time::Duration;

use quinn::{ConnectionError, TransportErrorCode, VarInt};

use crate::frame::FrameError;

/// Application close codes. They are part of the protocol: never renumber.
pub(crate) mod code {
    /// Closed on purpose; the reason is for people.
    pub const CLOSED: u32 = 1;
    /// Another protocol version; the reason is the closing side's version in digits.
    pub const VERSION: u32 = 2;
    /// The other side broke the framing; the reason says how.
    pub const FRAMING: u32 = 3;
    /// Nothing was heard from the other side for so many milliseconds, which are the reason.
    pub const SILENT: u32 = 4;
}

/// TLS alerts (RFC 8446, 6.2) as QUIC reports them: 0x100 plus the alert.
mod alert {
    pub const ACCESS_DENIED: u8 = 49;
    pub const DECRYPT_ERROR: u8 = 51;
    pub const CERTIFICATE_REQUIRED: u8 = 116;
    pub const NO_APPLICATION_PROTOCOL: u8 = 120;
}

/// Longest reason that surely fits into one packet with its overhead, in bytes.
const MAX_REASON_BYTES: usize = 1000;

/// Why a connection ended, as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The other side closed the connection, in these words.
    ClosedByPeer { reason: String },
    /// This side closed the connection, in these words.
    ClosedHere { reason: String },
    /// Nothing was heard for the idle timeout: the machine, the network or the process stopped.
    Silent { idle: Duration },
    /// The other side heard nothing from here for so long, and could still say so: the way from
    /// here to there is broken, or this process was stopped.
    Unheard { idle: Option<Duration> },
    /// The other side's socket is gone: its process ended without closing.
    Vanished,
    /// The other side was started again at the same address and knows nothing of the connection.
    Restarted,
    /// The other side holds another cluster key.
    WrongKey,
    /// The other side speaks another protocol version; `None` where it did not say which.
    OtherVersion { ours: u16, theirs: Option<u16> },
    /// The other side sent bytes that are not frames.
    Framing(FrameError),
    /// The other side gave the handshake up: what it heard of it made no whole.
    GivenUp,
    /// Anything else, in the transport's words.
    Transport { detail: String },
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::ClosedByPeer { reason } if reason.is_empty() => {
                f.write_str("the other side closed the connection without a reason")
            }
            Lost::ClosedByPeer { reason } => {
                write!(f, "the other side closed the connection: {reason}")
            }
            Lost::ClosedHere { reason } => write!(f, "closed: {reason}"),
            Lost::Silent { idle } => {
                write!(
                    f,
                    "nothing heard from the other side for {idle:?}: its machine is down, or the \
                     way from there to here is cut"
                )
            }
            Lost::Unheard { idle } => {
                f.write_str("the other side has heard nothing from here")?;
                if let Some(idle) = idle {
                    write!(f, " for {idle:?}")?;
                }
                f.write_str(
                    ", and what it says arrives: the way from here to there is cut, or this \
                     process was stopped for so long",
                )
            }
            Lost::Vanished => f.write_str(
                "the other side's process ended without closing the connection (killed?)",
            ),
            Lost::GivenUp => f.write_str("the other side waited in vain for the greeting's end"),
            Lost::Restarted => f.write_str("the other side was started again"),
            Lost::WrongKey => f.write_str("the other side holds another cluster key"),
            Lost::OtherVersion { ours, theirs: Some(theirs) } => write!(
                f,
                "the other side speaks protocol version {theirs}, this side version {ours}"
            ),
            Lost::OtherVersion { ours, theirs: None } => write!(
                f,
                "the other side does not speak this protocol, or a version far from {ours}"
            ),
            Lost::Framing(error) => write!(f, "the other side broke the protocol: {error}"),
            Lost::Transport { detail } => f.write_str(detail),
        }
    }
}

impl std::error::Error for Lost {}

impl Lost {
    /// Translates what QUIC reports. `ours` is this side's protocol version, `idle` its timeout.
    pub(crate) fn from_quic(error: &ConnectionError, ours: u16, idle: Duration) -> Lost {
        match error {
            ConnectionError::VersionMismatch => Lost::OtherVersion { ours, theirs: None },
            ConnectionError::TransportError(e) => from_code(e.code, &e.to_string(), ours),
            ConnectionError::ConnectionClosed(close) => {
                from_code(close.error_code, &close.to_string(), ours)
            }
            ConnectionError::ApplicationClosed(close) => {
                let reason = String::from_utf8_lossy(&close.reason).into_owned();
                if close.error_code == VarInt::from_u32(code::VERSION) {
                    return Lost::OtherVersion { ours, theirs: reason.parse().ok() };
                }
                if close.error_code == VarInt::from_u32(code::SILENT) {
                    return Lost::Unheard { idle: reason.parse().ok().map(Duration::from_millis) };
                }
                Lost::ClosedByPeer { reason }
            }
            ConnectionError::Reset => Lost::Restarted,
            ConnectionError::TimedOut => Lost::Silent { idle },
            ConnectionError::LocallyClosed => Lost::ClosedHere { reason: String::new() },
            ConnectionError::CidsExhausted => {
                Lost::Transport { detail: "too many connections at this endpoint".into() }
            }
        }
    }
}

fn from_code(found: TransportErrorCode, detail: &str, ours: u16) -> Lost {
    let is = |alert| found == TransportErrorCode::crypto(alert);
    if is(alert::NO_APPLICATION_PROTOCOL) {
        return Lost::OtherVersion { ours, theirs: None };
    }
    if found == TransportErrorCode::APPLICATION_ERROR {
        return Lost::GivenUp;
    }
    let key = [alert::ACCESS_DENIED, alert::DECRYPT_ERROR, alert::CERTIFICATE_REQUIRED];
    if key.into_iter().any(is) {
        return Lost::WrongKey;
    }
    Lost::Transport { detail: detail.to_string() }
}

/// Cuts a reason to what fits into one packet, at a character's end.
pub(crate) fn fit_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(fit_reason("short"), "short");
        let long = format!("x{}", "é".repeat(600));
        let cut = fit_reason(&long);
        assert_eq!(cut.len(), 999);
        assert!(long.starts_with(cut));
    }
}
