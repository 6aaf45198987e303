//! Open documents: their texts, changes to them, and what they are called.

use super::overlay::clean;
use monarch_ide::text::{Lines, Place};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The scheme under which the library's files are shown by clients that can.
pub const LIBRARY_SCHEME: &str = "monarch-std";

/// An open document.
pub struct Doc {
    pub uri: String,
    /// Under which a check asks for it: an absolute path, or `std.nn`.
    pub key: String,
    pub text: String,
    pub lines: Lines,
    pub version: Value,
}

impl Doc {
    pub fn new(uri: String, key: String, text: String, version: Value) -> Doc {
        let lines = Lines::new(&text);
        Doc { uri, key, text, lines, version }
    }

    /// Applies a change of the protocol: a range with its new text, or all of the text.
    pub fn change(&mut self, change: &Value) {
        let new = change["text"].as_str().unwrap_or_default();
        match range(&change["range"]) {
            Some((start, end)) => {
                let start = self.lines.offset(&self.text, start);
                let end = self.lines.offset(&self.text, end).max(start);
                self.text.replace_range(start..end, new);
            }
            None => self.text = new.to_owned(),
        }
        self.lines = Lines::new(&self.text);
    }

    pub fn offset(&self, place: Place) -> usize {
        self.lines.offset(&self.text, place)
    }
}

/// A place of the protocol.
pub fn place(value: &Value) -> Option<Place> {
    let number = |n: &Value| n.as_u64().map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Some(Place { line: number(&value["line"])?, column: number(&value["character"])? })
}

/// A range of the protocol.
pub fn range(value: &Value) -> Option<(Place, Place)> {
    Some((place(&value["start"])?, place(&value["end"])?))
}

/// The key of a URI, as a check asks for it. A text that is no file yet stands in `folder`.
pub fn key_of(uri: &str, folder: &Path) -> String {
    if let Some(rest) = uri.strip_prefix("file://") {
        let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or(rest);
        let path = clean(Path::new(&decode(path)));
        return path.to_string_lossy().into_owned();
    }
    if let Some(module) = uri.strip_prefix(LIBRARY_SCHEME).and_then(|r| r.strip_prefix(':'))
        && let Some(module) = module.trim_start_matches('/').strip_suffix(".mon")
    {
        return decode(module).replace('/', ".");
    }
    let name: String =
        uri.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let path: PathBuf = folder.join(format!("{name}.mon"));
    path.to_string_lossy().into_owned()
}

/// The URI of a file.
pub fn file_uri(path: &Path) -> String {
    let mut out = "file://".to_owned();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Resolves `%20`.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names() {
        let folder = Path::new("/folder");
        let key = |uri: &str| key_of(uri, folder);
        assert_eq!(key("file:///a/b%20c/../d%C3%A9.mon"), "/a/dé.mon");
        assert_eq!(key("file://localhost/a.mon"), "/a.mon");
        assert_eq!(key("monarch-std:/std/models/llama.mon"), "std.models.llama");
        assert_eq!(key("untitled:Untitled-1"), "/folder/untitled-Untitled-1.mon");
        assert_eq!(file_uri(Path::new("/a b/é#.mon")), "file:///a%20b/%C3%A9%23.mon");
        assert_eq!(key(&file_uri(Path::new("/a b/é#.mon"))), "/a b/é#.mon");
    }

    #[test]
    fn changes_count_in_utf16() {
        let mut doc = Doc::new(String::new(), String::new(), "a😀b\r\nc\n".into(), json!(1));
        let at = |l: u32, a: u32, b: u32, text: &str| {
            json!({"range": {"start": {"line": l, "character": a},
                             "end": {"line": l, "character": b}}, "text": text})
        };
        doc.change(&at(0, 3, 4, "x\n"));
        assert_eq!(doc.text, "a😀x\n\r\nc\n");
        doc.change(&at(0, 1, 3, ""));
        assert_eq!(doc.text, "ax\n\r\nc\n");
        doc.change(&at(99, 0, 0, "end"));
        assert_eq!(doc.text, "ax\n\r\nc\nend");
        doc.change(&json!({"text": "all"}));
        assert_eq!(doc.text, "all");
        doc.change(&json!({}));
        assert_eq!(doc.text, "");
    }
}
