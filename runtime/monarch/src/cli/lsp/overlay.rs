//! The world as an editor sees it: open texts before those on the disk, and what was once worked
//! out about files of data until something is saved.

use monarch::world::Disk;
use monarch_check::{TensorFact, TextFacts, World, WorldError};
use monarch_graph::DataFile;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Facts about files, by what was asked.
#[derive(Default)]
pub struct Facts {
    globs: RefCell<HashMap<String, Result<Vec<String>, WorldError>>>,
    files: RefCell<HashMap<String, Result<DataFile, WorldError>>>,
    tensors: RefCell<HashMap<String, Result<Vec<TensorFact>, WorldError>>>,
    texts: RefCell<HashMap<Vec<String>, Result<TextFacts, WorldError>>>,
}

impl Facts {
    /// Forgets everything: something on the disk has changed.
    pub fn forget(&mut self) {
        *self = Facts::default();
    }
}

/// Open texts, by clean path.
pub type Texts = BTreeMap<PathBuf, Arc<str>>;

/// The disk with open texts laid over it.
pub struct Overlay<'o> {
    pub texts: &'o Texts,
    pub facts: &'o Facts,
    pub disk: Disk,
}

impl<'o> Overlay<'o> {
    pub fn new(texts: &'o Texts, facts: &'o Facts) -> Overlay<'o> {
        Overlay { texts, facts, disk: Disk::here() }
    }
}

/// A path without `.` and `..`, so that one file has one name.
pub fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn cached<K: Hash + Eq + Clone, V: Clone>(
    cache: &RefCell<HashMap<K, V>>,
    key: K,
    find: impl FnOnce(&K) -> V,
) -> V {
    if let Some(found) = cache.borrow().get(&key) {
        return found.clone();
    }
    let found = find(&key);
    cache.borrow_mut().insert(key, found.clone());
    found
}

impl World for Overlay<'_> {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        if let Some(text) = monarch_check::library::module(path) {
            return Ok(text.as_bytes().to_vec());
        }
        let Some(text) = self.texts.get(&clean(Path::new(path))) else {
            return self.disk.read(path, limit_bytes);
        };
        match text.len() as u64 {
            bytes if bytes > limit_bytes => {
                Err(WorldError::TooLarge { path: path.to_owned(), bytes, limit_bytes })
            }
            _ => Ok(text.as_bytes().to_vec()),
        }
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        cached(&self.facts.globs, pattern.to_owned(), |p| self.disk.glob(p))
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        cached(&self.facts.files, path.to_owned(), |p| self.disk.file(p))
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        cached(&self.facts.tensors, path.to_owned(), |p| self.disk.tensors(p))
    }

    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError> {
        cached(&self.facts.texts, paths.to_vec(), |p| self.disk.text(p))
    }
}
