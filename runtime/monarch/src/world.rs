//! The real outside: files below and beside the program.

use monarch_check::{RecordFacts, TensorFact, TextFacts, World, WorldError};
use monarch_checkpoint::{FileError, TensorHead};
use monarch_data::{DataError, SourceSpec};
use monarch_graph::{DataFile, Source};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Files on this machine. Relative paths start at a folder: the current one for a command line.
pub struct Disk {
    base: PathBuf,
}

impl Disk {
    /// Relative paths start at the current folder.
    pub fn here() -> Disk {
        Disk::at_folder(Path::new("."))
    }

    /// Relative paths start at `folder`.
    pub fn at_folder(folder: &Path) -> Disk {
        // Workers may stand in another folder, so paths in a plan are absolute.
        Disk { base: std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf()) }
    }

    fn at(&self, path: &str) -> PathBuf {
        clean(&self.base.join(path))
    }
}

/// Takes `a/../` out of a path, so that one file has one name.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn from_io(path: &str, error: &std::io::Error) -> WorldError {
    let path = path.to_string();
    match error.kind() {
        ErrorKind::NotFound => WorldError::NotFound { path },
        _ => {
            // `Permission denied (os error 13)`: the number says nothing more.
            let why = error.to_string();
            let why = why.split(" (os error").next().unwrap_or(&why).to_string();
            WorldError::Other { path, why }
        }
    }
}

/// Programs and data are files: opening a pipe could wait for ever, and a device has no end.
fn only_a_file(path: &str, at: &Path) -> Result<(), WorldError> {
    let found = std::fs::metadata(at).map_err(|e| from_io(path, &e))?;
    let why = match found.is_dir() {
        _ if found.is_file() => return Ok(()),
        true => "it is a folder",
        false => "it is no file but a pipe or a device",
    };
    Err(WorldError::Other { path: path.to_string(), why: why.to_string() })
}

fn from_data(path: &str, error: DataError) -> WorldError {
    match error {
        DataError::Io { path: at, error } => {
            from_io(if at.is_empty() { path } else { &at }, &error)
        }
        DataError::Record { path, line, what } => {
            WorldError::Malformed { path, why: format!("line {line}: {what}") }
        }
        DataError::Tokenizer { path, what } => WorldError::Malformed { path, why: what },
        other => {
            // Some name the file themselves.
            let why = other.to_string();
            let own = why.strip_prefix(&format!("`{path}` ")).map(|rest| format!("it {rest}"));
            let why = own.unwrap_or(why);
            WorldError::Malformed { path: path.to_string(), why }
        }
    }
}

impl World for Disk {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        let io = |e: std::io::Error| from_io(path, &e);
        let at = self.at(path);
        if path.is_empty() {
            let why = "a file needs a name".to_string();
            return Err(WorldError::Other { path: String::new(), why });
        }
        only_a_file(path, &at)?;
        let file = File::open(&at).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let too_large = |bytes| WorldError::TooLarge { path: path.to_string(), bytes, limit_bytes };
        if bytes > limit_bytes {
            return Err(too_large(bytes));
        }
        let mut content = Vec::new();
        file.take(limit_bytes + 1).read_to_end(&mut content).map_err(io)?;
        if content.len() as u64 > limit_bytes {
            return Err(too_large(content.len() as u64));
        }
        Ok(content)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        let malformed = |why: String| WorldError::Malformed { path: pattern.to_string(), why };
        let found =
            monarch_data::glob(&self.base, pattern).map_err(|e| malformed(e.to_string()))?;
        let mut paths = Vec::with_capacity(found.len());
        for path in found {
            let path = clean(&path);
            let text =
                path.to_str().ok_or_else(|| malformed("a file with a name not in UTF-8".into()))?;
            paths.push(text.to_string());
        }
        Ok(paths)
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        only_a_file(path, &self.at(path))?;
        monarch_data::describe(&self.at(path)).map_err(|e| from_data(path, e))
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        only_a_file(path, &self.at(path))?;
        let heads = monarch_checkpoint::tensor_heads(&self.at(path)).map_err(|e| match e {
            FileError::Io { error, .. } => from_io(path, &error),
            FileError::Damaged { what, .. } => {
                let why = format!("not a whole safetensors file: {what}");
                WorldError::Malformed { path: path.to_string(), why }
            }
            other => WorldError::Malformed { path: path.to_string(), why: other.to_string() },
        })?;
        let fact = |h: TensorHead| TensorFact { name: h.name, dtype: h.dtype, shape: h.shape };
        Ok(heads.into_iter().map(fact).collect())
    }

    fn size(&self, path: &str) -> Result<u64, WorldError> {
        only_a_file(path, &self.at(path))?;
        std::fs::metadata(self.at(path)).map(|m| m.len()).map_err(|e| from_io(path, &e))
    }

    fn records(&self, source: &Source) -> Result<RecordFacts, WorldError> {
        let first = source.files().first().map(|f| f.path.clone()).unwrap_or_default();
        let found = monarch_data::record_facts(source).map_err(|e| from_data(&first, e))?;
        Ok(RecordFacts { samples: found.samples, vocabulary: found.vocabulary })
    }

    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError> {
        let first = paths.first().map_or("", String::as_str);
        let spec =
            SourceSpec::Text { paths: paths.iter().map(|p| self.at(p)).collect(), window: 1 };
        let facts = monarch_data::facts(&spec, &[]).map_err(|e| from_data(first, e))?;
        // Windows of two characters lie side by side.
        let chars = facts.samples * 2 + facts.left_over;
        match facts.source {
            Source::Text { vocabulary, .. } => Ok(TextFacts { chars, vocabulary }),
            _ => {
                Err(WorldError::Malformed { path: first.to_string(), why: "it is no text".into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_name() {
        assert_eq!(clean(Path::new("/a/b/../c/./d")), Path::new("/a/c/d"));
        assert_eq!(clean(Path::new("/../a")), Path::new("/../a"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::at_folder(folder.path());
        assert_eq!(
            disk.read("nothing.mon", 10),
            Err(WorldError::NotFound { path: "nothing.mon".into() })
        );
        std::fs::write(folder.path().join("long.mon"), "0123456789ab").expect("written");
        assert!(matches!(disk.read("long.mon", 10), Err(WorldError::TooLarge { .. })));
        assert!(matches!(disk.tensors("long.mon"), Err(WorldError::Malformed { .. })));
        for nothing in ["/dev/zero", "", "."] {
            let read = disk.read(nothing, 10);
            assert!(matches!(read, Err(WorldError::Other { .. })), "{nothing}: {read:?}");
        }
        assert_eq!(disk.glob("*.mon").map(|f| f.len()), Ok(1));
    }
}
