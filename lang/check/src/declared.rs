//! A world of declared facts: what a plan must know of files that are elsewhere.

use crate::{RecordFacts, TensorFact, TextFacts, World, WorldError};
use monarch_graph::{DataFile, Source};
use std::collections::BTreeMap;

/// Files by path, each with as much as is known of it. Nothing is read: a program can be planned
/// for machines, weights and data that this machine does not have.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    files: BTreeMap<String, Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// What a text holds; empty for a file of which only facts are known.
    text: Vec<u8>,
    tensors: Vec<TensorFact>,
    records: Option<RecordFacts>,
    bytes: u64,
    sha256: [u8; 32],
}

impl Declared {
    pub fn new() -> Declared {
        Declared::default()
    }

    fn known(&mut self, path: &str) -> &mut Known {
        self.files.entry(path.to_owned()).or_default()
    }

    /// A file with this content: a program, a configuration.
    pub fn text(mut self, path: &str, text: impl Into<Vec<u8>>) -> Declared {
        let known = self.known(path);
        known.text = text.into();
        known.bytes = known.text.len() as u64;
        self
    }

    /// A safetensors file with these tensors.
    pub fn tensors(mut self, path: &str, tensors: Vec<TensorFact>) -> Declared {
        let known = self.known(path);
        known.bytes = tensors.iter().map(tensor_bytes).sum();
        known.tensors = tensors;
        self
    }

    /// A file of records. What the first file of a data set says holds for all of it.
    pub fn records(mut self, path: &str, facts: RecordFacts) -> Declared {
        self.known(path).records = Some(facts);
        self
    }

    /// A file of this size.
    pub fn size(mut self, path: &str, bytes: u64) -> Declared {
        self.known(path).bytes = bytes;
        self
    }

    /// The hash that a file has.
    pub fn sha256(mut self, path: &str, sha256: [u8; 32]) -> Declared {
        self.known(path).sha256 = sha256;
        self
    }

    fn get(&self, path: &str) -> Result<&Known, WorldError> {
        let found = self.files.get(path);
        found.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })
    }
}

fn tensor_bytes(tensor: &TensorFact) -> u64 {
    let each = match tensor.dtype.as_str() {
        "F64" | "I64" => 8,
        "BF16" | "F16" => 2,
        _ => 4,
    };
    tensor.shape.iter().product::<u64>().saturating_mul(each)
}

/// Whether a name fits a pattern of letters and `*`, part by part.
fn fits(pattern: &str, path: &str) -> bool {
    let (mut a, mut b) = (pattern.split('/'), path.split('/'));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if fits_part(x, y) => {}
            _ => return false,
        }
    }
}

fn fits_part(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(head) else { return false };
    let ends = rest.char_indices().map(|c| c.0).chain([rest.len()]);
    ends.into_iter().any(|i| fits_part(tail, &rest[i..]))
}

impl World for Declared {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        let known = self.get(path)?;
        if known.text.is_empty() {
            let why = "only facts of it are declared".to_owned();
            return Err(WorldError::Other { path: path.to_owned(), why });
        }
        match known.text.len() as u64 {
            bytes if bytes > limit_bytes => {
                Err(WorldError::TooLarge { path: path.to_owned(), bytes, limit_bytes })
            }
            _ => Ok(known.text.clone()),
        }
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        Ok(self.files.keys().filter(|path| fits(pattern, path)).cloned().collect())
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        let known = self.get(path)?;
        Ok(DataFile { path: path.to_owned(), bytes: known.bytes, sha256: known.sha256 })
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        self.get(path).map(|known| known.tensors.clone())
    }

    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError> {
        let mut all = String::new();
        for path in paths {
            all.push_str(&String::from_utf8_lossy(&self.read(path, u64::MAX)?));
        }
        let mut vocabulary: Vec<char> = all.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        Ok(TextFacts { chars: all.chars().count() as u64, vocabulary })
    }

    fn records(&self, source: &Source) -> Result<RecordFacts, WorldError> {
        let files = source.files();
        let found = files.iter().find_map(|f| self.get(&f.path).ok()?.records.clone());
        let path = files.first().map(|f| f.path.clone()).unwrap_or_default();
        let why = "nothing is declared of its records".to_owned();
        found.ok_or(WorldError::Other { path, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_matched_part_by_part() {
        assert!(fits("m/*.safetensors", "m/a-1.safetensors") && fits("a/b", "a/b"));
        assert!(!fits("m/*", "m/a/b") && !fits("m/*.bin", "m/x.bit") && !fits("*", "a/b"));
        assert!(fits("m/a*b*c", "m/a1b2bc"));
    }

    #[test]
    fn facts_are_handed_out() {
        let facts = RecordFacts { samples: 7, vocabulary: Some(9) };
        let tensor = TensorFact { name: "w".into(), dtype: "BF16".into(), shape: vec![2, 3] };
        let world = Declared::new()
            .text("a.mon", "x")
            .records("r.jsonl", facts)
            .tensors("w.safetensors", vec![tensor])
            .sha256("w.safetensors", [1; 32]);
        assert_eq!(world.read("a.mon", 10), Ok(b"x".to_vec()));
        assert!(matches!(world.read("a.mon", 0), Err(WorldError::TooLarge { .. })));
        assert!(matches!(world.read("r.jsonl", 10), Err(WorldError::Other { .. })));
        assert!(matches!(world.file("gone"), Err(WorldError::NotFound { .. })));
        let file = world.file("w.safetensors").map(|f| (f.bytes, f.sha256));
        assert_eq!(file, Ok((12, [1; 32])));
        assert_eq!(world.glob("*.jsonl"), Ok(vec!["r.jsonl".to_owned()]));
    }
}
