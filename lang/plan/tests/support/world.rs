//! A world of files in memory.
#![allow(dead_code)] // Each test file uses its part.

use monarch_check::{TensorFact, TextFacts, World, WorldError};
use monarch_graph::DataFile;
use std::collections::BTreeMap;

/// Files by path. A glob gives all files whose names end in `.txt`; their text counts as one
/// million characters of a vocabulary of 96.
#[derive(Default)]
pub struct Files {
    pub texts: BTreeMap<String, String>,
    pub tensors: Vec<TensorFact>,
}

impl Files {
    pub fn with(path: &str, text: &str) -> Files {
        let mut files = Files::default();
        files.texts.insert(path.into(), text.into());
        files.texts.insert("corpus.txt".into(), "abc".into());
        files
    }
}

impl World for Files {
    fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, WorldError> {
        match self.texts.get(path) {
            Some(text) => Ok(text.clone().into_bytes()),
            None => Err(WorldError::NotFound { path: path.into() }),
        }
    }

    fn glob(&self, _: &str) -> Result<Vec<String>, WorldError> {
        Ok(self.texts.keys().filter(|k| k.ends_with(".txt")).cloned().collect())
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        Ok(DataFile { path: path.into(), bytes: 1_000_000, sha256: [7; 32] })
    }

    fn tensors(&self, _: &str) -> Result<Vec<TensorFact>, WorldError> {
        Ok(self.tensors.clone())
    }

    fn text(&self, _: &[String]) -> Result<TextFacts, WorldError> {
        let vocabulary = (32..128).map(|c| char::from(c as u8)).collect();
        Ok(TextFacts { chars: 1_000_000, vocabulary })
    }
}
