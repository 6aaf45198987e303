//! The table of source texts, and the way from a byte offset to a line and a column.

use std::sync::Arc;

use monarch_graph::Span;

/// One source text with a name that a person knows it by.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: Arc<str>,
    lines: Vec<u32>,
}

/// A place as a person counts: both from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Source {
    fn new(name: String, text: Arc<str>) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(starts.map(|(at, _)| at as u32 + 1)).collect();
        Source { name, text, lines }
    }

    /// The name: a path as the user wrote it, or `std.nn`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of lines; an empty text has one.
    pub fn line_count(&self) -> u32 {
        self.lines.len() as u32
    }

    /// The line (from 1) that holds byte `offset`; offsets past the end belong to the last one.
    pub fn line_of(&self, offset: u32) -> u32 {
        self.lines.partition_point(|start| *start <= offset) as u32
    }

    /// The byte range of a line (from 1), without its line break; `None` past the last line.
    pub fn line_range(&self, line: u32) -> Option<std::ops::Range<usize>> {
        let index = (line as usize).checked_sub(1)?;
        let start = *self.lines.get(index)? as usize;
        let end = match self.lines.get(index + 1) {
            Some(next) => *next as usize - 1,
            None => self.text.len(),
        };
        let line = self.text.get(start..end)?;
        Some(start..start + line.strip_suffix('\r').unwrap_or(line).len())
    }

    /// The text of a line (from 1), without its line break.
    pub fn line(&self, line: u32) -> &str {
        self.line_range(line).and_then(|range| self.text.get(range)).unwrap_or("")
    }

    /// Line and column of byte `offset`, clamped to the text and to a character's first byte.
    pub fn position(&self, offset: u32) -> Position {
        let offset = self.clamp(offset);
        let line = self.line_of(offset as u32);
        let start = self.line_range(line).map_or(0, |range| range.start);
        let before = self.text.get(start..offset).unwrap_or("");
        Position { line, column: before.chars().count() as u32 + 1 }
    }

    /// The text under a span, clamped.
    pub fn slice(&self, span: Span) -> &str {
        let (start, end) = (self.clamp(span.start), self.clamp(span.end));
        self.text.get(start..end).unwrap_or("")
    }

    /// The largest character boundary that is neither past `offset` nor past the end.
    pub(crate) fn clamp(&self, offset: u32) -> usize {
        self.text.floor_char_boundary(offset as usize)
    }
}

/// All source texts of one program, numbered in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text and returns the id that spans into it carry as `file`.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> u32 {
        self.files.push(Source::new(name.into(), text.into()));
        self.files.len() as u32 - 1
    }

    /// The source with this id.
    pub fn get(&self, file: u32) -> Option<&Source> {
        self.files.get(file as usize)
    }

    /// All sources, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.files.iter()
    }

    /// Line and column of a span's start, if its file is known.
    pub fn position(&self, span: Span) -> Option<Position> {
        self.get(span.file).map(|source| source.position(span.start))
    }

    /// `chargpt.mon:30:53`, or an empty text if the file is unknown.
    pub fn place(&self, span: Span) -> String {
        match (self.get(span.file), self.position(span)) {
            (Some(source), Some(at)) => format!("{}:{}:{}", source.name, at.line, at.column),
            _ => String::new(),
        }
    }

    /// The text under a span; empty if the file is unknown.
    pub fn slice(&self, span: Span) -> &str {
        self.get(span.file).map_or("", |source| source.slice(span))
    }
}
