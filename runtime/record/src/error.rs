use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why something was not recorded. Training goes on.
#[derive(Debug)]
pub enum RecordError {
    Io { doing: &'static str, path: PathBuf, error: io::Error },
}

impl RecordError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
        let path = path.to_path_buf();
        move |error| RecordError::Io { doing, path, error }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordError::Io { doing, path, error } = self;
        let why = match error.kind() {
            io::ErrorKind::StorageFull => "the disk is full".to_string(),
            io::ErrorKind::QuotaExceeded => "the disk quota is used up".to_string(),
            io::ErrorKind::ReadOnlyFilesystem => "the disk is read-only".to_string(),
            _ => error.to_string(),
        };
        write!(f, "cannot {doing} `{}`: {why}; the run goes on without", path.display())
    }
}

impl std::error::Error for RecordError {}
