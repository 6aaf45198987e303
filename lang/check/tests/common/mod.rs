//! A world in memory, and what several tests ask of it.
#![allow(dead_code)]

use monarch_check::{Checked, TensorFact, TextFacts, World, WorldError};
use monarch_graph::DataFile;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Memory {
    pub files: BTreeMap<String, Vec<u8>>,
    pub tensors: BTreeMap<String, Vec<TensorFact>>,
}

impl Memory {
    /// One program, a text that matches any pattern which ends in `.txt`, and some tensors.
    pub fn with(path: &str, program: &str) -> Memory {
        let mut world = Memory::default();
        world.files.insert(path.to_owned(), program.as_bytes().to_vec());
        world.files.insert("corpus.txt".to_owned(), b"to be or not to be ".repeat(3000));
        let fact = |name: &str, dtype: &str, shape: &[u64]| TensorFact {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
        };
        let columns = vec![
            fact("ids", "I32", &[96, 16]),
            fact("next", "I32", &[96, 16]),
            fact("x", "F32", &[96, 8]),
            fact("y", "I32", &[96]),
        ];
        world.tensors.insert("columns.safetensors".to_owned(), columns);
        let weights = vec![fact("model.w", "F32", &[8, 3]), fact("model.b", "F32", &[3])];
        world.tensors.insert("prefixed.safetensors".to_owned(), weights);
        let weights = vec![fact("w", "F32", &[8, 4]), fact("c", "F32", &[3])];
        world.tensors.insert("other.safetensors".to_owned(), weights);
        world
    }

    pub fn check(&self, path: &str) -> Checked {
        monarch_check::check(self, path, &[], &["workers", "resume"])
    }
}

impl World for Memory {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        let found = self.files.get(path);
        let bytes = found.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })?;
        match bytes.len() as u64 {
            n if n > limit_bytes => {
                Err(WorldError::TooLarge { path: path.to_owned(), bytes: n, limit_bytes })
            }
            _ => Ok(bytes.clone()),
        }
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        let wanted = pattern.rsplit('.').next().unwrap_or("").trim_end_matches('}');
        let fits = |p: &&String| match pattern.contains('*') {
            true => p.ends_with(&format!(".{wanted}")) || p.ends_with(".txt"),
            false => *p == pattern,
        };
        Ok(self.files.keys().filter(fits).cloned().collect())
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        let known = self.files.get(path).map(Vec::len);
        let known = known.or_else(|| self.tensors.get(path).map(Vec::len));
        let bytes = known.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })? as u64;
        Ok(DataFile { path: path.to_owned(), bytes, sha256: [7; 32] })
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        let found = self.tensors.get(path).cloned();
        found.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })
    }

    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError> {
        let mut all = String::new();
        for path in paths {
            let bytes = self.read(path, u64::MAX)?;
            all.push_str(&String::from_utf8_lossy(&bytes));
        }
        let mut vocabulary: Vec<char> = all.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        Ok(TextFacts { chars: all.chars().count() as u64, vocabulary })
    }
}

/// All diagnostics as text, the way a person reads them.
pub fn shown(checked: &Checked) -> String {
    let mut out = String::new();
    for d in &checked.diagnostics {
        let place = d.span().map(|s| checked.sources.place(s)).unwrap_or_default();
        let severity = d.severity.name();
        out.push_str(&format!("{severity} {} {place} {}\n", d.code, d.title));
        for label in &d.labels {
            let place = checked.sources.place(label.span);
            let slice = checked.sources.slice(label.span).replace('\n', " ");
            out.push_str(&format!("    {place} `{slice}`: {}\n", label.text));
        }
        for help in &d.help {
            out.push_str(&format!("    help: {}\n", help.text));
        }
    }
    out
}
