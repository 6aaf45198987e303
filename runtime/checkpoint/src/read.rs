//! Reading: find the last whole checkpoint, verify it, load its tensors.

use crate::file::{FileError, OwnedTensor, TensorFile, read_limited};
use crate::manifest::{self, Manifest, ManifestError};
use monarch_graph::hex;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A verified checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub dir: PathBuf,
    pub manifest: Manifest,
}

/// Why a directory is not a whole checkpoint.
#[derive(Debug)]
pub enum Damage {
    /// Never finished, or its manifest was deleted.
    NoManifest,
    Manifest(ManifestError),
    /// The manifest is of another step than the directory's name says.
    Step {
        found: u64,
    },
    Missing {
        file: String,
    },
    Size {
        file: String,
        bytes: u64,
        expected: u64,
    },
    Hash {
        file: String,
    },
    /// Its hash is right, and yet it does not hold what the manifest says.
    Content {
        file: String,
        what: String,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NoManifest => write!(f, "it was never finished: no {}", manifest::FILE_NAME),
            Damage::Manifest(error) => write!(f, "{error}"),
            Damage::Step { found } => write!(f, "its manifest is of step {found}"),
            Damage::Missing { file } => write!(f, "`{file}` is missing"),
            Damage::Size { file, bytes, expected } => {
                write!(f, "`{file}` has {bytes} bytes, not {expected}")
            }
            Damage::Hash { file } => {
                write!(f, "`{file}` was changed or damaged (its hash differs)")
            }
            Damage::Content { file, what } => write!(f, "`{file}`: {what}"),
            Damage::Io { path, error } => write!(f, "cannot read `{}`: {error}", path.display()),
        }
    }
}

impl std::error::Error for Damage {}

/// A directory that was passed over, and why.
#[derive(Debug)]
pub struct Skipped {
    pub path: PathBuf,
    pub why: Damage,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped `{}`: {}", self.path.display(), self.why)
    }
}

/// The checkpoint to resume from.
#[derive(Debug)]
pub struct Latest {
    /// None when there is no whole one.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that are not whole, newest first.
    pub skipped: Vec<Skipped>,
}

/// Why tensors cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The directory cannot be listed.
    List {
        path: PathBuf,
        error: io::Error,
    },
    /// Damaged since it was verified.
    Damage {
        dir: PathBuf,
        why: Damage,
    },
    NoTensor {
        dir: PathBuf,
        name: String,
    },
    File(FileError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::List { path, error } => {
                write!(f, "cannot list checkpoints in `{}`: {error}", path.display())
            }
            LoadError::Damage { dir, why } => {
                write!(f, "checkpoint `{}` is not whole: {why}", dir.display())
            }
            LoadError::NoTensor { dir, name } => {
                write!(f, "checkpoint `{}` has no tensor `{name}`", dir.display())
            }
            LoadError::File(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// `step-000000100`
pub(crate) fn dir_name(step: u64) -> String {
    format!("step-{step:09}")
}

/// Where the checkpoint of this step lies in `root`, if it is there.
pub fn directory(root: &Path, step: u64) -> PathBuf {
    root.join(dir_name(step))
}

/// The step in a directory's name, if it is one that [`dir_name`] writes.
pub(crate) fn step_of(name: &str) -> Option<u64> {
    let step: u64 = name.strip_prefix("step-")?.parse().ok()?;
    (dir_name(step) == name).then_some(step)
}

/// Directories named as checkpoints, whole or not, by ascending step; none when `root` does not
/// exist.
pub fn list(root: &Path) -> Result<Vec<(u64, PathBuf)>, LoadError> {
    let failed = |error| LoadError::List { path: root.to_path_buf(), error };
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let Some(step) = entry.file_name().to_str().and_then(step_of) {
            found.push((step, entry.path()));
        }
    }
    // By number: 10,000,000,000 comes after 9,999,999,999, though not by name.
    found.sort();
    Ok(found)
}

/// The newest whole checkpoint in `root`: sizes and hashes of all its files hold.
pub fn latest_whole(root: &Path) -> Result<Latest, LoadError> {
    let mut latest = Latest { checkpoint: None, skipped: Vec::new() };
    for (_, path) in list(root)?.into_iter().rev() {
        match open(&path) {
            Ok(checkpoint) => {
                latest.checkpoint = Some(checkpoint);
                break;
            }
            Err(why) => latest.skipped.push(Skipped { path, why }),
        }
    }
    Ok(latest)
}

/// The newest directory with a manifest that reads, files of the right sizes: for messages.
pub(crate) fn newest_committed(root: &Path) -> Option<PathBuf> {
    let all = list(root).ok()?;
    all.into_iter().rev().map(|(_, dir)| dir).find(|dir| glance(dir).is_ok())
}

/// Opens a checkpoint and verifies all of it.
pub fn open(dir: &Path) -> Result<Checkpoint, Damage> {
    let manifest = glance(dir)?;
    for file in &manifest.files {
        let path = dir.join(&file.name);
        let io = |error| Damage::Io { path: path.clone(), error };
        let sha256 = fs::File::open(&path).and_then(|f| crate::file::sha256_of(&f)).map_err(io)?;
        if hex(&sha256) != file.sha256 {
            return Err(Damage::Hash { file: file.name.clone() });
        }
    }
    Ok(Checkpoint { dir: dir.to_path_buf(), manifest })
}

/// The manifest of a directory whose files exist in the right sizes; hashes are not verified.
pub fn glance(dir: &Path) -> Result<Manifest, Damage> {
    let path = dir.join(manifest::FILE_NAME);
    let text = match read_limited(&path, manifest::MAX_BYTES) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Damage::NoManifest),
        Err(error) => return Err(Damage::Io { path, error }),
    };
    let manifest = Manifest::decode(&text).map_err(Damage::Manifest)?;
    let name = dir.file_name().and_then(|n| n.to_str()).and_then(step_of);
    if name.is_some_and(|step| step != manifest.step) {
        return Err(Damage::Step { found: manifest.step });
    }
    for file in &manifest.files {
        match fs::metadata(dir.join(&file.name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Damage::Missing { file: file.name.clone() });
            }
            Err(error) => return Err(Damage::Io { path: dir.join(&file.name), error }),
            Ok(meta) if meta.len() != file.bytes || !meta.is_file() => {
                let (file, expected) = (file.name.clone(), file.bytes);
                return Err(Damage::Size { file, bytes: meta.len(), expected });
            }
            Ok(_) => {}
        }
    }
    Ok(manifest)
}

impl Checkpoint {
    /// Loads tensors in the order of `names`, on any number of workers. Files that are read are
    /// verified again, since this may be another host and a later time.
    pub fn load(&self, names: &[&str]) -> Result<Vec<OwnedTensor>, LoadError> {
        let mut loaded: Vec<Option<OwnedTensor>> = vec![None; names.len()];
        for (i, entry) in self.manifest.files.iter().enumerate() {
            let mut file = None;
            for (slot, name) in loaded.iter_mut().zip(names) {
                let found = self.manifest.tensors.iter().find(|t| t.file == i && t.name == *name);
                let Some(wanted) = found else { continue };
                let damage = |why| LoadError::Damage { dir: self.dir.clone(), why };
                let file = match &file {
                    Some(file) => file,
                    None => file.insert(self.verified(entry).map_err(damage)?),
                };
                let tensor = file.read(name).map_err(LoadError::File)?;
                if tensor.shape != wanted.shape {
                    let what = format!("tensor `{name}` is {:?}", tensor.shape);
                    return Err(damage(Damage::Content { file: entry.name.clone(), what }));
                }
                *slot = Some(tensor);
            }
        }
        let tensors = loaded.into_iter().zip(names);
        let found = tensors.map(|(tensor, name)| {
            let (dir, name) = (self.dir.clone(), name.to_string());
            tensor.ok_or(LoadError::NoTensor { dir, name })
        });
        found.collect()
    }

    fn verified(&self, entry: &manifest::FileEntry) -> Result<TensorFile, Damage> {
        let path = self.dir.join(&entry.name);
        let content =
            |e: FileError| Damage::Content { file: entry.name.clone(), what: e.to_string() };
        let file = TensorFile::open(&path).map_err(content)?;
        let sha256 = file.sha256().map_err(|error| Damage::Io { path, error })?;
        if hex(&sha256) != entry.sha256 {
            return Err(Damage::Hash { file: entry.name.clone() });
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        for step in [0, 100, 999_999_999, 1_000_000_000, u64::MAX] {
            assert_eq!(step_of(&dir_name(step)), Some(step));
        }
        for name in ["step-100", "step-+00000100", "step-000000100.tmp-a-1", "step-", "best"] {
            assert_eq!(step_of(name), None, "{name}");
        }
    }
}
