//! The one door to the outside.

use monarch_graph::{DataFile, Source};
use std::fmt;

/// Largest program text that is read.
pub const MAX_PROGRAM_BYTES: u64 = 16 << 20;

/// What a check may ask of the outside.
///
/// Paths have `/` between parts. A path in a program is relative to the file that holds it; the
/// check has joined the two before it asks, so the world sees paths as good as the program's own.
pub trait World {
    /// The whole file; an error when it is longer than `limit_bytes`.
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError>;
    /// Files that match `pattern` (`*`, `**`, `?`, `[..]`, `{a,b}`, leading `../`), sorted by path
    /// (byte order). A pattern without a match gives an empty list. Hidden files and folders and
    /// build outputs (`target`) do not match a wildcard.
    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError>;
    /// Size and hash of a file.
    fn file(&self, path: &str) -> Result<DataFile, WorldError>;
    /// The tensors that a safetensors file says it holds, by name.
    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError>;
    /// Characters and vocabulary of these files, joined in order.
    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError>;

    /// Size of a file, without reading it.
    fn size(&self, path: &str) -> Result<u64, WorldError> {
        self.file(path).map(|file| file.bytes)
    }

    /// Reads all records of a [`Source::Records`] once, its tokenizer included.
    fn records(&self, source: &Source) -> Result<RecordFacts, WorldError> {
        let path = source.files().first().map(|f| f.path.clone()).unwrap_or_default();
        Err(WorldError::Other { path, why: "no records are read here".into() })
    }
}

/// What there is to know about records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFacts {
    /// Samples: records, or packs of conversations.
    pub samples: u64,
    /// Ids lie below this; None for records that are no text.
    pub vocabulary: Option<u64>,
}

/// A tensor in a safetensors file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorFact {
    pub name: String,
    /// As in the file: `F32`, `I32`, `BF16`.
    pub dtype: String,
    pub shape: Vec<u64>,
}

/// What there is to know about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFacts {
    /// Characters (Unicode scalar values) in all files.
    pub chars: u64,
    /// The distinct characters, ascending: the number of a character is its position.
    pub vocabulary: Vec<char>,
}

/// Why the outside did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorldError {
    NotFound {
        path: String,
    },
    /// The file is longer than what is allowed.
    TooLarge {
        path: String,
        bytes: u64,
        limit_bytes: u64,
    },
    /// The file is there, but is not what it should be (not UTF-8, not safetensors).
    Malformed {
        path: String,
        why: String,
    },
    /// Anything else: permissions, a folder instead of a file, a broken disk.
    Other {
        path: String,
        why: String,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorldError::NotFound { path } if path.contains("://") => {
                write!(f, "there is no file `{path}`; only files of this machine are read yet")
            }
            WorldError::NotFound { path } => write!(f, "there is no file `{path}`"),
            WorldError::TooLarge { path, bytes, limit_bytes } => {
                write!(f, "`{path}` has {bytes} bytes; at most {limit_bytes} are read")
            }
            WorldError::Malformed { path, why } => write!(f, "`{path}`: {why}"),
            WorldError::Other { path, why } => write!(f, "`{path}`: {why}"),
        }
    }
}

impl std::error::Error for WorldError {}
