//! What can go wrong with a data set.

use crate::{CsvError, CutError};
use std::fmt;
use std::io;

/// Why a source cannot be described or opened.
#[derive(Debug)]
pub enum DataError {
    Io {
        path: String,
        error: io::Error,
    },
    /// Plans hold paths as text.
    PathNotUtf8 {
        path: String,
    },
    /// No bytes at all.
    EmptyFile {
        path: String,
    },
    /// `text` was given no file.
    NoFiles,
    /// The size or the hash is not the one in the plan.
    Changed {
        path: String,
        what: String,
    },
    /// Not a safetensors file, or a damaged one.
    Safetensors {
        path: String,
        what: String,
    },
    /// A tensor without axes has no samples.
    Scalar {
        path: String,
        column: String,
    },
    /// Columns of one file must have the same number of samples.
    Rows {
        path: String,
        column: String,
        rows: u64,
        first: String,
        first_rows: u64,
    },
    /// The file holds no tensor, or tensors of no samples.
    NoSamples {
        path: String,
    },
    /// A whole number that does not fit i32.
    OutOfRange {
        path: String,
        column: String,
        sample: u64,
        value: i64,
    },
    NotUtf8 {
        path: String,
        offset: u64,
    },
    /// The text has no full window.
    ShortText {
        characters: u64,
        window: u64,
    },
    /// A window must have at least one character, and ids must fit in memory.
    Window {
        window: u64,
    },
    /// A character that the plan's vocabulary lacks.
    Vocabulary {
        path: String,
        character: char,
    },
    /// A column that the program reads does not exist.
    NoColumn {
        column: String,
        available: Vec<String>,
    },
    /// A column has another type or shape than the program reads.
    Mismatch {
        column: String,
        wanted: String,
        found: String,
    },
    /// A tensor's element type is none of F32, I32, I64, U8.
    Unsupported {
        column: String,
        dtype: String,
    },
    /// A split of the plan lies outside the data set, or is empty.
    Split {
        name: String,
        start: u64,
        end: u64,
        samples: u64,
    },
    /// A line of a file of records is not what it should be; counted from 1.
    Record {
        path: String,
        line: u64,
        what: String,
    },
    /// A tokenizer that cannot be used, or a text that it cannot encode.
    Tokenizer {
        path: String,
        what: String,
    },
    /// A file that does not hold token ids.
    Tokens {
        path: String,
        what: String,
    },
    Digits(CsvError),
    Cut(CutError),
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use DataError::*;
        match self {
            Io { path, error } => write!(f, "cannot read `{path}`: {error}"),
            PathNotUtf8 { path } => write!(f, "the name of `{path}` is not UTF-8; rename the file"),
            EmptyFile { path } => write!(f, "`{path}` is empty"),
            NoFiles => write!(f, "no file to read text from"),
            Changed { path, what } => write!(
                f,
                "`{path}` changed since it was planned ({what}); plan again, or give every worker \
                 the file that was planned"
            ),
            Safetensors { path, what } => {
                write!(f, "`{path}` is not a whole safetensors file: {what}")
            }
            Scalar { path, column } => write!(
                f,
                "tensor `{column}` of `{path}` has no axes; the first axis of a column counts \
                 samples"
            ),
            Rows { path, column, rows, first, first_rows } => write!(
                f,
                "column `{column}` of `{path}` has {rows} samples, `{first}` has {first_rows}; \
                 the first axis of every column counts the same samples"
            ),
            NoSamples { path } => write!(f, "`{path}` holds no samples"),
            OutOfRange { path, column, sample, value } => write!(
                f,
                "column `{column}` of `{path}`, sample {sample}: {value} does not fit i32"
            ),
            NotUtf8 { path, offset } => {
                write!(f, "`{path}` is not UTF-8: bad byte at offset {offset}")
            }
            ShortText { characters, window } => write!(
                f,
                "the text has {characters} characters; a window of {window} needs {}",
                window.saturating_add(1)
            ),
            Window { window } => write!(f, "a window of {window} characters cannot be cut"),
            Vocabulary { path, character } => write!(
                f,
                "`{path}` holds {character:?}, which the planned vocabulary lacks; plan again"
            ),
            NoColumn { column, available } => write!(
                f,
                "the data set has no column `{column}`; it has {}",
                crate::facts::list(available)
            ),
            Mismatch { column, wanted, found } => {
                write!(f, "column `{column}` is {found}; the program reads {wanted}")
            }
            Unsupported { column, dtype } => {
                write!(f, "column `{column}` holds {dtype}; columns may hold F32, I32, I64 or U8")
            }
            Split { name, start, end, samples } => write!(
                f,
                "split `{name}` is samples {start}..{end}, but the data set has {samples}"
            ),
            Record { path, line, what } => write!(f, "`{path}`, line {line}: {what}"),
            Tokenizer { path, what } => write!(f, "the tokenizer `{path}`: {what}"),
            Tokens { path, what } => write!(f, "`{path}`: {what}"),
            Digits(error) => write!(f, "{error}"),
            Cut(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for DataError {}

impl From<CutError> for DataError {
    fn from(error: CutError) -> DataError {
        DataError::Cut(error)
    }
}

/// Why samples cannot be handed out.
#[derive(Debug)]
pub enum FillError {
    Io {
        path: String,
        error: io::Error,
    },
    /// A token id or a label that the model has no place for.
    Limit {
        column: String,
        sample: u64,
        value: i64,
        below: u64,
    },
    /// I64 that does not fit i32.
    OutOfRange {
        column: String,
        sample: u64,
        value: i64,
    },
    /// Positions outside the split.
    Positions {
        split: String,
        end: u64,
        samples: u64,
    },
    /// The caller's buffers do not match the columns.
    Buffer {
        column: String,
        elements: usize,
        needed: usize,
    },
    NoSplit {
        split: String,
    },
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FillError::Io { path, error } => write!(f, "cannot read `{path}`: {error}"),
            FillError::Limit { column, sample, value, below } => write!(
                f,
                "column `{column}`, sample {sample}: {value} is outside 0..{below}, the ids that \
                 the model has a place for"
            ),
            FillError::OutOfRange { column, sample, value } => {
                write!(f, "column `{column}`, sample {sample}: {value} does not fit i32")
            }
            FillError::Positions { split, end, samples } => {
                write!(f, "position {end} of split `{split}`, which has {samples} samples")
            }
            FillError::Buffer { column, elements, needed } => write!(
                f,
                "the buffer for column `{column}` has {elements} elements, not {needed} of its type"
            ),
            FillError::NoSplit { split } => write!(f, "the data set has no split `{split}`"),
        }
    }
}

impl std::error::Error for FillError {}
