//! Places in a text as editors count them: lines and columns from 0, columns in UTF-16 code units.

use std::ops::Range;

/// A place as the language server protocol counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From 0.
    pub line: u32,
    /// In UTF-16 code units, from 0.
    pub column: u32,
}

/// The lines of a text. A line ends in LF, CR LF or CR.
#[derive(Clone, Debug)]
pub struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    /// Finds the lines of a text.
    pub fn new(text: &str) -> Lines {
        let bytes = text.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(at, byte)| match byte {
            b'\n' => true,
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        });
        Lines { starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    /// The place of byte `offset`; one inside a character is that character's.
    pub fn place(&self, text: &str, offset: usize) -> Place {
        let offset = text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let before = text.get(start..offset).unwrap_or("");
        Place { line: line as u32, column: before.encode_utf16().count() as u32 }
    }

    /// The byte offset of a place. One past the end of its line is that end; one past the last
    /// line is the end of the text; one inside a character is the start of it.
    pub fn offset(&self, text: &str, place: Place) -> usize {
        let line = place.line as usize;
        let Some(start) = self.starts.get(line).copied() else { return text.len() };
        let end = self.starts.get(line + 1).copied().unwrap_or(text.len());
        let content = text.get(start..end).unwrap_or("").trim_end_matches(['\n', '\r']);
        let mut units = 0;
        for (at, c) in content.char_indices() {
            if units + c.len_utf16() as u32 > place.column {
                return start + at;
            }
            units += c.len_utf16() as u32;
        }
        start + content.len()
    }

    /// The number of lines; an empty text has one.
    pub fn count(&self) -> usize {
        self.starts.len()
    }
}

/// The word that holds byte `offset` or ends there.
pub fn word_at(text: &str, offset: usize) -> Option<Range<usize>> {
    let offset = text.floor_char_boundary(offset);
    let letter = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..offset)?;
    let start = before.trim_end_matches(letter).len();
    let after = text.get(offset..)?;
    let end = offset + after.find(|c| !letter(c)).unwrap_or(after.len());
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let text = "ab\n\t😀x\r\nlast é\n";
        let lines = Lines::new(text);
        assert_eq!(lines.count(), 4);
        let x = text.find('x').unwrap_or(0);
        assert_eq!(lines.place(text, x), Place { line: 1, column: 3 });
        for (at, _) in text.char_indices().filter(|(_, c)| !matches!(c, '\r' | '\n')) {
            assert_eq!(lines.offset(text, lines.place(text, at)), at);
        }
        // Inside the emoji, past the end of a line, past the end of the text.
        assert_eq!(lines.offset(text, Place { line: 1, column: 2 }), 4);
        assert_eq!(lines.offset(text, Place { line: 1, column: 99 }), x + 1);
        assert_eq!(lines.offset(text, Place { line: 9, column: 0 }), text.len());
        assert_eq!(lines.place(text, 5), Place { line: 1, column: 1 });
        assert_eq!(lines.place(text, 999), Place { line: 3, column: 0 });
    }

    #[test]
    fn words() {
        assert_eq!(word_at("a lr_2 = 3", 4), Some(2..6));
        assert_eq!(word_at("a lr_2 = 3", 6), Some(2..6));
        assert_eq!(word_at("a  b", 2), None);
        assert_eq!(word_at("", 0), None);
    }
}
