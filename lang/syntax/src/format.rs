//! The one way to write a program down: `monarch fmt`.
//!
//! Invariants
//! - Formatting twice gives what formatting once gives.
//! - Only spaces, line breaks and commas that mean nothing are changed. Every token and every
//!   comment stays, in order; a doc stays with what it documents. This is checked before the
//!   result is handed out.
//! - An item that does not parse, and a hook's text in Rhai, stay byte for byte as they are.
//! - Time and memory are linear in the text.
//!
//! Rules
//! - 100 columns, two spaces for each brace. A body that the author began on a new line has its
//!   entries on lines; others are on one line if they fit. Entries that the author wrote on one
//!   line share it if they fit; the same holds for lists in brackets. At most one empty line is
//!   kept between two things.
//! - Lines that follow each other have their names, `=`, `:`, `~` and `in` under each other, unless
//!   an empty line, a comment line or something of several lines stands between them.
//! - Comments to the right of code begin at column 44, or three spaces after longer code.

mod cursor;
mod doc;
mod exprs;
mod items;
mod print;
mod rows;
mod verify;

use monarch_diagnostic::Diagnostic;

use crate::MAX_BYTES;
use crate::ast::{Item, ItemKind};
use crate::lex::{self, Tok};
use crate::parse::parse;
use crate::scan::{Chunk, scan};
use cursor::{Cursor, Remark, remark};
use doc::{Cells, Doc, Row, Rows};

/// Columns of a line.
const WIDTH: usize = 100;

/// Most rounds until a layout must stay as it is.
const ROUNDS: usize = 4;

/// What [`format`] gives.
#[derive(Clone, Debug)]
pub struct Formatted {
    /// The program as it should be written.
    pub text: String,
    /// What is wrong with it; items with mistakes are as they were.
    pub diagnostics: Vec<Diagnostic>,
    /// How many items were left as they are: those with mistakes, and those with docs in places
    /// where nothing can be documented.
    pub kept: usize,
}

/// Formats a program. Never fails: what cannot be read stays as it is.
///
/// `file` is the number that the spans of the diagnostics carry.
pub fn format(file: u32, text: &str) -> Formatted {
    let (tree, diagnostics) = parse(file, text);
    let unchanged = |diagnostics| {
        let kept = tree.items.len().max(1);
        Formatted { text: text.to_owned(), diagnostics, kept }
    };
    if text.len() > MAX_BYTES || old_line_breaks(text) {
        return unchanged(diagnostics);
    }
    let (mut out, mut kept) = laid_out(file, text, &tree.items, &diagnostics);
    // A mistake of ours must not become one of the program; and comments in odd places may need
    // another round to find theirs.
    for _ in 0..ROUNDS {
        let (tree, again) = parse(file, &out);
        if !verify::same(text, &out) || !same_mistakes(&diagnostics, &again) {
            break;
        }
        let next = laid_out(file, &out, &tree.items, &again);
        if next.0 == out {
            return Formatted { text: out, diagnostics, kept };
        }
        (out, kept) = next;
    }
    unchanged(diagnostics)
}

fn same_mistakes(before: &[Diagnostic], after: &[Diagnostic]) -> bool {
    let titles = |all: &[Diagnostic]| -> Vec<String> {
        all.iter().map(|diagnostic| diagnostic.title.clone()).collect()
    };
    titles(before) == titles(after)
}

/// The text of a tree, and how many items stay as they are.
fn laid_out(file: u32, text: &str, items: &[Item], mistakes: &[Diagnostic]) -> (String, usize) {
    let mut layout = Layout { text, rows: Rows::default(), at: 0, kept: 0 };
    layout.at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut items = items;
    for chunk in scan(file, text).chunks {
        let of_chunk = items.iter().take_while(|item| item.span.end as usize <= chunk.end).count();
        let (mine, rest) = items.split_at_checked(of_chunk).unwrap_or((items, &[]));
        items = rest;
        layout.chunk(chunk, mine, chunk.broken || has_mistake(mistakes, chunk));
    }
    let gap = layout.comments(text.len());
    layout.add(gap, None);
    let eol = if only_returns(text) { "\r\n" } else { "\n" };
    (print::print(&layout.rows, eol, text.len()), layout.kept)
}

/// Whether every line ends in CR LF.
fn only_returns(text: &str) -> bool {
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).peekable();
    lines.peek().is_some() && lines.all(|line| line.ends_with("\r\n"))
}

fn old_line_breaks(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut returns = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\r');
    returns.any(|(n, _)| bytes.get(n + 1) != Some(&b'\n'))
}

/// Whether one of the diagnostics, which are in order, begins within a chunk.
fn has_mistake(diagnostics: &[Diagnostic], chunk: Chunk) -> bool {
    let start = |d: &Diagnostic| d.span().map_or(0, |span| span.start as usize);
    let first = diagnostics.partition_point(|d| start(d) < chunk.start);
    diagnostics.get(first).is_some_and(|d| start(d) <= chunk.end)
}

struct Layout<'t> {
    text: &'t str,
    rows: Rows<'t>,
    /// How far the text is laid out.
    at: usize,
    kept: usize,
}

impl<'t> Layout<'t> {
    fn chunk(&mut self, chunk: Chunk, items: &[Item], mistaken: bool) {
        let from = self.at;
        let gap = self.comments(chunk.start);
        let lines = self.text.get(self.at..chunk.start).unwrap_or("");
        let blank = lines.matches('\n').count() > 1;
        let broken = |item: &Item| matches!(item.kind, ItemKind::Broken(_));
        if !mistaken && !items.iter().any(broken) {
            let mut cursor = Cursor::new(self.text, chunk.start, chunk.end);
            let mut rows = Rows::default();
            cursor.rows(&mut rows, items.len(), false, |cursor, n| match items.get(n) {
                Some(item) => cursor.item(item),
                None => cursor.no_entry(),
            });
            if cursor.done() {
                let mut rows = rows.rows.into_iter();
                self.add(gap, rows.next().map(|row| Row { blank, ..row }));
                self.rows.rows.extend(rows);
                self.at = chunk.end;
                return;
            }
        }
        self.kept += 1;
        self.keep(chunk, from, gap, blank);
    }

    /// Leaves a chunk as it is, with what stands on its lines.
    fn keep(&mut self, chunk: Chunk, from: usize, gap: Vec<Remark<'t>>, blank: bool) {
        let line = lex::line_start(self.text, chunk.start).max(from);
        let start = match self.text.get(line..chunk.start) {
            Some(before) if before.trim().is_empty() => line,
            _ => chunk.start,
        };
        let after = lex::next(self.text, chunk.end);
        let between = self.text.get(chunk.end..after.start).unwrap_or("\n");
        let beside = after.tok == Tok::Comment && !between.contains('\n');
        let end = if beside { after.end } else { chunk.end };
        let text = self.text.get(start..end).unwrap_or("").trim_end();
        let entries = vec![Cells::other(Doc::Verbatim(text))];
        self.add(gap, Some(Row { lead: Vec::new(), blank, entries, right: None }));
        self.at = end;
    }

    /// The comments from here to `end`.
    fn comments(&mut self, end: usize) -> Vec<Remark<'t>> {
        let mut gap = Vec::new();
        loop {
            let token = lex::next(self.text, self.at);
            if token.start >= end || token.tok != Tok::Comment {
                return gap;
            }
            gap.push(remark(self.text, token, self.at));
            self.at = token.end;
        }
    }

    /// Adds comments and the row that follows them.
    fn add(&mut self, gap: Vec<Remark<'t>>, row: Option<Row<'t>>) {
        let mut lead = Vec::new();
        for remark in gap {
            if let (true, true, Some(last)) =
                (remark.right, lead.is_empty(), self.rows.rows.last_mut())
                && last.right.is_none()
            {
                last.right = Some(remark.text);
                continue;
            }
            lead.push(doc::Note { text: remark.text, blank: remark.blank });
        }
        match row {
            Some(row) => self.rows.rows.push(Row { lead, ..row }),
            None => self.rows.tail = lead,
        }
    }
}
