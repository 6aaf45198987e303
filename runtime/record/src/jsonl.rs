//! JSON lines: one event a line.

use crate::append::AppendFile;
use crate::events::replace;
use crate::{RecordError, error};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::Path;

/// Appends lines to a file; each is with the operating system when `write` returns.
#[derive(Debug)]
pub struct JsonLines {
    out: AppendFile,
    buffer: Vec<u8>,
}

/// All that a resume must know of a line.
#[derive(Deserialize)]
struct Line<'a> {
    step: Option<u64>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
}

impl JsonLines {
    /// Opens `path`, or makes it and its directory; appends to what is there, but for a last line
    /// that was cut off.
    pub fn open(path: &Path) -> Result<JsonLines, RecordError> {
        JsonLines::resume(path, u64::MAX, |_| true)
    }

    /// Goes on after a resume: takes out lines whose `"step"` is `first_step` or later, which will
    /// be recorded again. Lines without a step stay, and those of `first_step` itself of whose
    /// `"event"` `stays` says so.
    pub fn resume(
        path: &Path,
        first_step: u64,
        stays: impl Fn(&str) -> bool,
    ) -> Result<JsonLines, RecordError> {
        JsonLines::keep(path, |step, event| {
            step < first_step || (step == first_step && stays(event))
        })
    }

    /// The same for a record of which `keep` says by step and event which lines stay, in their
    /// order; lines without a step do.
    pub fn keep(
        path: &Path,
        mut keep: impl FnMut(u64, &str) -> bool,
    ) -> Result<JsonLines, RecordError> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(RecordError::io("create", dir))?;
        }
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(RecordError::io("read", path)(error)),
        };
        let whole = content.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let mut kept = Vec::new();
        for line in content[..whole].split_inclusive(|&b| b == b'\n') {
            let line_of = serde_json::from_slice::<Line>(line).ok();
            let stays = line_of.is_none_or(|Line { step, event }| {
                step.is_none_or(|step| keep(step, event.as_deref().unwrap_or_default()))
            });
            if stays {
                kept.extend(line);
            }
        }
        if kept.len() < whole {
            replace(path, &kept)?;
        }
        let out = AppendFile::open(path, kept.len() as u64)?;
        Ok(JsonLines { out, buffer: Vec::new() })
    }

    /// Writes a line. Keys keep their order.
    pub fn write(&mut self, line: &Value) -> Result<(), RecordError> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)
            .map_err(|e| error::RecordError::io("write", self.out.path())(e.into()))?;
        self.buffer.push(b'\n');
        self.out.write(&self.buffer)
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.out.lost()
    }

    /// Waits until the disk has everything.
    pub fn sync(&self) -> Result<(), RecordError> {
        self.out.sync()
    }
}

/// A number as JSON; what JSON has no number for becomes "NaN", "Infinity" or "-Infinity" rather
/// than null, so that a broken loss is seen.
pub fn number(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => Value::from("NaN"),
        None if value > 0.0 => Value::from("Infinity"),
        None => Value::from("-Infinity"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn lines_are_appended_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/run.jsonl");
        let mut lines = JsonLines::open(&path).unwrap();
        lines.write(&json!({ "event": "step", "step": 1, "loss": number(f64::NAN) })).unwrap();
        drop(lines);
        let mut lines = JsonLines::open(&path).unwrap();
        lines.write(&json!({ "event": "note", "text": "two\nlines" })).unwrap();
        lines.sync().unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"event\":\"step\",\"step\":1,\"loss\":\"NaN\"}\n\
             {\"event\":\"note\",\"text\":\"two\\nlines\"}\n"
        );
        assert_eq!(number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(number(0.5), json!(0.5));
    }

    #[test]
    fn a_resume_takes_back_what_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        let before = "{\"step\":1}\n{\"event\":\"lost\"}\nnot json\n{\"step\":2}\n{\"step\":3}\n\
                      {\"event\":\"save\",\"step\":3}\n{\"event\":\"save\",\"step\":4}\n";
        fs::write(&path, format!("{before}{{\"event\":\"eval\",\"step\":2}}\n{{\"step\":4,\"lo"))
            .unwrap();
        let mut lines = JsonLines::resume(&path, 3, |event| event == "save").unwrap();
        lines.write(&json!({ "step": 3 })).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"step\":1}\n{\"event\":\"lost\"}\nnot json\n{\"step\":2}\n\
             {\"event\":\"save\",\"step\":3}\n{\"event\":\"eval\",\"step\":2}\n{\"step\":3}\n"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn places_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(JsonLines::open(&file.join("run.jsonl")).is_err());
        assert!(JsonLines::open(dir.path()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(
            bytes: Vec<u8>,
            lines in "[{}a-z\":0-9\n]{0,200}",
            step: u64,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("run.jsonl");
            for content in [&bytes[..], lines.as_bytes()] {
                fs::write(&path, content).unwrap();
                JsonLines::resume(&path, step, |_| false).unwrap().write(&json!(1)).unwrap();
                prop_assert!(fs::read(&path).unwrap().ends_with(b"1\n"));
            }
        }
    }
}
