//! A world in memory, and cursors in texts.
#![allow(dead_code)]

use monarch_check::{TensorFact, TextFacts, World, WorldError};
use monarch_graph::DataFile;
use monarch_ide::Analysis;
use std::collections::BTreeMap;

pub const RESERVED: &[&str] = &["workers", "resume"];

/// Files by path; any pattern of text files matches `corpus.txt`.
#[derive(Default, Clone)]
pub struct Memory(pub BTreeMap<String, String>);

impl Memory {
    pub fn with(path: &str, text: &str) -> Memory {
        let mut world = Memory::default();
        world.0.insert(path.to_owned(), text.to_owned());
        world.0.insert("corpus.txt".to_owned(), "to be or not to be ".repeat(3000));
        world
    }

    pub fn and(mut self, path: &str, text: &str) -> Memory {
        self.0.insert(path.to_owned(), text.to_owned());
        self
    }

    pub fn analysis(&self, path: &str) -> Analysis {
        Analysis::new(self, path, RESERVED)
    }
}

impl World for Memory {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        let found = self.0.get(path);
        let text = found.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })?;
        assert!(text.len() as u64 <= limit_bytes);
        Ok(text.clone().into_bytes())
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        let fits = |p: &&String| match pattern.contains('*') {
            true => p.ends_with(".txt"),
            false => *p == pattern,
        };
        Ok(self.0.keys().filter(fits).cloned().collect())
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        let text = self.read(path, u64::MAX)?;
        Ok(DataFile { path: path.to_owned(), bytes: text.len() as u64, sha256: [7; 32] })
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        Err(WorldError::NotFound { path: path.to_owned() })
    }

    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError> {
        let mut all = String::new();
        for path in paths {
            all.push_str(self.0.get(path).map_or("", String::as_str));
        }
        let mut vocabulary: Vec<char> = all.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        Ok(TextFacts { chars: all.chars().count() as u64, vocabulary })
    }
}

/// The text without its `$`, and where that was.
pub fn cursor(text: &str) -> (String, usize) {
    let at = text.find('$').expect("a cursor");
    (text.replacen('$', "", 1), at)
}

/// The analysis of a text with a cursor, and where the cursor is.
pub fn opened(text: &str) -> (Analysis, usize) {
    let (text, at) = cursor(text);
    (Memory::with("job.mon", &text).analysis("job.mon"), at)
}

/// The programs that every build has.
pub fn programs() -> Vec<(&'static str, &'static str)> {
    vec![
        ("digits.mon", include_str!("../../../../examples/digits.mon")),
        ("chargpt.mon", include_str!("../../../../examples/chargpt.mon")),
        ("llama3d.mon", include_str!("../../../../examples/llama3d.mon")),
        ("lora.mon", include_str!("../../../../examples/lora.mon")),
    ]
}

/// The byte of the `n`th (from 0) occurrence of `what`, `inside` bytes into it.
pub fn place(text: &str, what: &str, n: usize, inside: usize) -> usize {
    let found = text.match_indices(what).nth(n);
    found.unwrap_or_else(|| panic!("{what} #{n}")).0 + inside
}
