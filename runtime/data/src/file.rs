//! Files whose bytes are the ones that were planned.

use crate::DataError;
use monarch_graph::DataFile;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file that is not empty.
pub(crate) fn open(path: &Path) -> Result<(File, u64), DataError> {
    let shown = || path.display().to_string();
    let file = File::open(path).map_err(|error| DataError::Io { path: shown(), error })?;
    let meta = file.metadata().map_err(|error| DataError::Io { path: shown(), error })?;
    if !meta.is_file() {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        return Err(DataError::Io { path: shown(), error });
    }
    if meta.len() == 0 {
        return Err(DataError::EmptyFile { path: shown() });
    }
    Ok((file, meta.len()))
}

/// The plan's record of a file: its size and SHA-256, read in one pass of constant memory.
pub fn describe(path: &Path) -> Result<DataFile, DataError> {
    let name =
        path.to_str().ok_or_else(|| DataError::PathNotUtf8 { path: path.display().to_string() })?;
    let (file, _) = open(path)?;
    let (bytes, sha256) =
        hash(file).map_err(|error| DataError::Io { path: name.to_string(), error })?;
    Ok(DataFile { path: name.to_string(), bytes, sha256 })
}

/// The record and the bytes of a file that is read whole.
pub(crate) fn describe_and_read(path: &Path) -> Result<(DataFile, Vec<u8>), DataError> {
    let name =
        path.to_str().ok_or_else(|| DataError::PathNotUtf8 { path: path.display().to_string() })?;
    let (mut file, bytes) = open(path)?;
    let mut content = Vec::with_capacity(bytes as usize);
    file.read_to_end(&mut content)
        .map_err(|error| DataError::Io { path: name.to_string(), error })?;
    let sha256 = Sha256::digest(&content).into();
    let planned = DataFile { path: name.to_string(), bytes: content.len() as u64, sha256 };
    Ok((planned, content))
}

/// Opens a planned file and verifies size and hash.
pub(crate) fn open_planned(planned: &DataFile) -> Result<File, DataError> {
    let io = |error| DataError::Io { path: planned.path.clone(), error };
    let (file, bytes) = open(Path::new(&planned.path))?;
    check_size(planned, bytes)?;
    let (bytes, sha256) = hash(&file).map_err(io)?;
    check_size(planned, bytes)?;
    check_hash(planned, &sha256)?;
    Ok(file)
}

/// Reads a planned file whole and verifies the bytes that are returned.
pub(crate) fn read_planned(planned: &DataFile) -> Result<Vec<u8>, DataError> {
    let (file, bytes) = open(Path::new(&planned.path))?;
    check_size(planned, bytes)?;
    let mut content = Vec::new();
    file.take(planned.bytes.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(|error| DataError::Io { path: planned.path.clone(), error })?;
    check_size(planned, content.len() as u64)?;
    check_hash(planned, &Sha256::digest(&content).into())?;
    Ok(content)
}

fn check_size(planned: &DataFile, bytes: u64) -> Result<(), DataError> {
    if bytes == planned.bytes {
        return Ok(());
    }
    let what = format!("{bytes} bytes, not {}", planned.bytes);
    Err(DataError::Changed { path: planned.path.clone(), what })
}

fn check_hash(planned: &DataFile, sha256: &[u8; 32]) -> Result<(), DataError> {
    if sha256 == &planned.sha256 {
        return Ok(());
    }
    let short = |hash: &[u8; 32]| monarch_graph::hex(&hash[..4]);
    let what = format!("sha256 {}.., not {}..", short(sha256), short(&planned.sha256));
    Err(DataError::Changed { path: planned.path.clone(), what })
}

fn hash(mut reader: impl Read) -> io::Result<(u64, [u8; 32])> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((bytes, hasher.finalize().into())),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
