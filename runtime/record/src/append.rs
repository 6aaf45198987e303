//! A file to which whole records are appended, or nothing.

use crate::RecordError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writes each record at the end of the last whole one, unbuffered: what was returned from is with
/// the operating system, and survives a kill of this process.
#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    file: File,
    /// Length of the whole records.
    good: u64,
    /// In the middle of a row of failures, the first of which was returned.
    failing: bool,
    lost: u64,
}

impl AppendFile {
    /// Makes a new, empty file.
    pub(crate) fn create(path: &Path) -> Result<AppendFile, RecordError> {
        let file = File::options().write(true).create_new(true).open(path);
        AppendFile::new(path, file.map_err(RecordError::io("create", path))?, 0)
    }

    /// Opens or makes a file, whole up to `good`.
    pub(crate) fn open(path: &Path, good: u64) -> Result<AppendFile, RecordError> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        AppendFile::new(path, file.map_err(RecordError::io("open", path))?, good)
    }

    fn new(path: &Path, file: File, good: u64) -> Result<AppendFile, RecordError> {
        file.set_len(good).map_err(RecordError::io("truncate", path))?;
        Ok(AppendFile { path: path.to_path_buf(), file, good, failing: false, lost: 0 })
    }

    /// Appends a record whole, or not at all. Only the first failure of a row is an error: a full
    /// disk is reported once, and again if it fills up again.
    pub(crate) fn write(&mut self, record: &[u8]) -> Result<(), RecordError> {
        match self.file.write_all_at(record, self.good) {
            Ok(()) => {
                self.good += record.len() as u64;
                self.failing = false;
                Ok(())
            }
            Err(error) => {
                // A half record is cut off; should that fail too, the next write covers it.
                let _ = self.file.set_len(self.good);
                self.lose("write", error)
            }
        }
    }

    fn lose(&mut self, doing: &'static str, error: io::Error) -> Result<(), RecordError> {
        self.lost += 1;
        if std::mem::replace(&mut self.failing, true) {
            return Ok(());
        }
        Err(RecordError::Io { doing, path: self.path.clone(), error })
    }

    /// Records that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits until the disk has everything.
    pub(crate) fn sync(&self) -> Result<(), RecordError> {
        self.file.sync_all().map_err(RecordError::io("sync", &self.path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(crate) fn of_file(path: &Path, file: File) -> AppendFile {
        AppendFile { path: path.to_path_buf(), file, good: 0, failing: false, lost: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_is_reported_once() {
        let path = Path::new("/dev/full");
        let mut full = AppendFile::of_file(path, File::options().write(true).open(path).unwrap());
        let error = full.write(b"a").unwrap_err().to_string();
        assert_eq!(error, "cannot write `/dev/full`: the disk is full; the run goes on without");
        for _ in 0..9 {
            assert!(full.write(b"b").is_ok());
        }
        assert_eq!(full.lost(), 10);
    }

    #[test]
    fn writing_goes_on_when_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut out = AppendFile::create(&path).unwrap();
        out.write(b"one\n").unwrap();
        let writable = std::mem::replace(&mut out.file, File::open("/dev/null").unwrap());
        assert!(out.write(b"two\n").is_err());
        assert!(out.write(b"three\n").is_ok());
        out.file = writable;
        out.write(b"four\n").unwrap();
        out.sync().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\nfour\n");
        assert_eq!(out.lost(), 2);
        out.file = File::open("/dev/null").unwrap();
        assert!(out.write(b"five\n").is_err(), "a second row is reported again");
    }
}
