use std::fmt;
use std::io;
use std::time::Duration;

/// Why a collective operation could not be carried out.
#[derive(Debug)]
pub enum CollectiveError {
    /// [`crate::Stop`] was set while waiting.
    Aborted,
    /// A peer has left or died.
    PeerLost { rank: u32, why: String },
    /// Peers did not arrive in time; `missing` are their ranks.
    Timeout { waited: Duration, missing: Vec<u32>, what: String },
    /// A peer takes part in another collective, or cut it in another way.
    Mismatch { rank: u32, ours: String, theirs: String },
    /// The buckets, or what was handed in, break a rule.
    Layout(String),
    /// Memory could not be reserved or mapped.
    Memory { what: String, source: io::Error },
}

impl CollectiveError {
    /// The rank whose loss was noticed, when that is the cause.
    pub fn lost_peer(&self) -> Option<u32> {
        match self {
            CollectiveError::PeerLost { rank, .. } => Some(*rank),
            CollectiveError::Timeout { missing, .. } => missing.first().copied(),
            _ => None,
        }
    }
}

impl fmt::Display for CollectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectiveError::Aborted => f.write_str("aborted"),
            CollectiveError::PeerLost { rank, why } => write!(f, "lost worker {rank}: {why}"),
            CollectiveError::Timeout { waited, missing, what } => {
                let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
                let ranks = ranks.join(", ");
                write!(f, "{what}: waited {:.1} s for worker {ranks}", waited.as_secs_f64())
            }
            CollectiveError::Mismatch { rank, ours, theirs } => {
                write!(f, "worker {rank} is at {theirs}, this one at {ours}")
            }
            CollectiveError::Layout(what) => f.write_str(what),
            CollectiveError::Memory { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for CollectiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CollectiveError::Memory { source, .. } => Some(source),
            _ => None,
        }
    }
}
