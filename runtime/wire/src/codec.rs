use crate::PROTOCOL;
use monarch_graph::{Init, Plan};
use sha2::{Digest, Sha256};
use std::fmt;
use wincode::config::{Configuration, DefaultConfig};
use wincode::{SchemaReadOwned, SchemaWrite};

/// Longest message, and the most that a decoder allocates for one list.
pub const LIMIT_BYTES: usize = 64 << 20;

type Limits = Configuration<true, LIMIT_BYTES>;

fn limits() -> Limits {
    DefaultConfig::default().with_preallocation_size_limit::<LIMIT_BYTES>()
}

/// Why bytes were not a message, or a message not bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireError {
    /// Longer than [`LIMIT_BYTES`].
    TooLong { bytes: usize },
    /// Not a message of this protocol version.
    Malformed { what: &'static str, why: String },
    /// The other side speaks another version.
    Version { theirs: u32 },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::TooLong { bytes } => {
                write!(f, "a message of {bytes} bytes exceeds the limit of {LIMIT_BYTES}")
            }
            WireError::Malformed { what, why } => write!(f, "malformed {what}: {why}"),
            WireError::Version { theirs } => {
                write!(f, "the other side speaks protocol {theirs}, this one {PROTOCOL}")
            }
        }
    }
}

impl std::error::Error for WireError {}

/// A type that travels.
pub trait Message: SchemaReadOwned<Limits, Dst = Self> + SchemaWrite<Limits, Src = Self> {
    /// For error messages.
    const WHAT: &'static str;
}

/// The message's bytes, the protocol version first.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, WireError> {
    let mut bytes = PROTOCOL.to_le_bytes().to_vec();
    let body = wincode::config::serialize(message, limits())
        .map_err(|e| WireError::Malformed { what: M::WHAT, why: e.to_string() })?;
    bytes.extend_from_slice(&body);
    if bytes.len() > LIMIT_BYTES {
        return Err(WireError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// The message in exactly these bytes.
pub fn decode<M: Message>(bytes: &[u8]) -> Result<M, WireError> {
    if bytes.len() > LIMIT_BYTES {
        return Err(WireError::TooLong { bytes: bytes.len() });
    }
    let malformed = |why: &str| WireError::Malformed { what: M::WHAT, why: why.to_string() };
    let (version, body) = bytes.split_first_chunk::<4>().ok_or_else(|| malformed("too short"))?;
    let version = u32::from_le_bytes(*version);
    if version != PROTOCOL {
        return Err(WireError::Version { theirs: version });
    }
    wincode::config::deserialize_exact(body, limits()).map_err(|e| malformed(&e.to_string()))
}

/// SHA-256 of the plan: equal for two sides that run the same job on the same bytes.
///
/// Folders do not count, so that machines may keep program and data in different ones: files
/// enter with their names, and with the hashes that the plan holds. Nor does it count whether
/// reductions go on under backward, which changes no bit of a result.
pub fn job_hash(plan: &Plan) -> Result<[u8; 32], WireError> {
    let mut plan = plan.clone();
    plan.overlap = true;
    plan.files.iter_mut().for_each(keep_name);
    plan.data.source.files_mut().into_iter().for_each(|f| keep_name(&mut f.path));
    for weight in &mut plan.weights {
        if let Init::File { path, .. } = &mut weight.init {
            keep_name(path);
        }
    }
    Ok(Sha256::digest(encode(&plan)?).into())
}

fn keep_name(path: &mut String) {
    if let Some(at) = path.rfind('/') {
        path.drain(..=at);
    }
}

/// The first 12 hex digits of a hash, for people.
pub fn short(hash: &[u8; 32]) -> String {
    monarch_graph::hex(&hash[..6])
}
