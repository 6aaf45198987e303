//! The tokens of a chunk in the order written, with the comments between them.
//!
//! The tree says what belongs together, the cursor says what is there: whatever the tree does not
//! account for makes the chunk fail, which leaves it as it is.

use crate::ast::{Ident, Path};
use crate::lex::{self, Tok, Token};
use monarch_graph::Span;

use super::doc::{Doc, Note, Row, Rows};

/// A comment of any kind.
#[derive(Clone, Copy)]
pub(super) struct Remark<'t> {
    pub text: &'t str,
    /// Code or another comment ends on the line on which it begins.
    pub right: bool,
    /// An empty line stands before it.
    pub blank: bool,
}

struct Placed {
    token: Token,
    /// A line break, or an empty line, between what stands before it and it.
    newline: bool,
    blank: bool,
    /// How many comments of the chunk stand before it.
    remarks: usize,
}

pub(super) struct Cursor<'t> {
    text: &'t str,
    tokens: Vec<Placed>,
    remarks: Vec<Remark<'t>>,
    at: usize,
    /// The first comment that was not taken yet.
    remark: usize,
    pub failed: bool,
}

/// The comment at a token, and where what follows it begins to count lines.
pub(super) fn remark<'t>(text: &'t str, token: Token, before: usize) -> Remark<'t> {
    let lines = breaks(text, before, token.start);
    Remark { text: token.text(text).trim_end(), right: lines == 0, blank: lines > 1 }
}

fn breaks(text: &str, from: usize, to: usize) -> usize {
    let between = text.as_bytes().get(from..to).unwrap_or(&[]);
    between.iter().filter(|byte| **byte == b'\n').count()
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str, start: usize, end: usize) -> Cursor<'t> {
        let mut cursor = Cursor {
            text,
            tokens: Vec::new(),
            remarks: Vec::new(),
            at: 0,
            remark: 0,
            failed: false,
        };
        let (mut at, mut code) = (start, start);
        loop {
            let token = lex::next(text, at);
            if token.tok == Tok::End || token.start >= end {
                return cursor;
            }
            if token.tok == Tok::Comment {
                let mut remark = remark(text, token, at);
                remark.right &= code > start;
                cursor.remarks.push(remark);
            } else {
                let newline = breaks(text, code, token.start) > 0;
                let blank = breaks(text, at, token.start) > 1;
                let remarks = cursor.remarks.len();
                cursor.tokens.push(Placed { token, newline, blank, remarks });
                code = token.end;
            }
            at = token.end.max(at + 1);
        }
    }

    pub fn done(&self) -> bool {
        self.at == self.tokens.len() && !self.failed
    }

    fn next(&self) -> Option<&Placed> {
        self.tokens.get(self.at)
    }

    pub fn is_next(&self, text: &str) -> bool {
        self.next().is_some_and(|next| next.token.text(self.text) == text)
    }

    /// Whether a line break stands between the last token and the next.
    pub fn newline(&self) -> bool {
        self.next().is_some_and(|next| next.newline)
    }

    pub fn blank(&self) -> bool {
        self.next().is_some_and(|next| next.blank)
    }

    /// The comments before the next token that nobody took.
    pub fn gap(&mut self) -> Vec<Remark<'t>> {
        let end = self.next().map_or(self.remarks.len(), |next| next.remarks);
        let gap = self.remarks.get(self.remark..end).unwrap_or(&[]).to_vec();
        self.remark = end.max(self.remark);
        gap
    }

    /// The same, where they stand inside a line.
    pub fn gap_docs(&mut self, parts: &mut Vec<Doc<'t>>) {
        let end = self.next().map_or(self.remarks.len(), |next| next.remarks);
        if end <= self.remark {
            return;
        }
        for remark in self.gap() {
            parts.push(match remark.right {
                true => Doc::Right(remark.text),
                false => Doc::Own(remark.text),
            });
        }
    }

    /// Passes the next token, which must be this one.
    pub fn pass(&mut self, text: &str) {
        self.failed |= !self.is_next(text);
        self.at += 1;
    }

    /// The next token, which must be this one, with the comments before it.
    pub fn token(&mut self, text: &'static str) -> Doc<'t> {
        let mut parts = Vec::new();
        self.gap_docs(&mut parts);
        self.pass(text);
        with(parts, Doc::Text(text))
    }

    /// Several tokens as they are written.
    pub fn slice(&mut self, span: Span) -> Doc<'t> {
        let mut parts = Vec::new();
        self.gap_docs(&mut parts);
        let (start, end) = (span.start as usize, span.end as usize);
        self.failed |= self.next().is_none_or(|next| next.token.start != start);
        let mut last = start;
        while let Some(next) = self.next().filter(|next| next.token.start < end) {
            last = next.token.end;
            self.at += 1;
        }
        self.gap_inside(start);
        self.failed |= last != end;
        with(parts, Doc::Text(self.text.get(start..end).unwrap_or("")))
    }

    /// No comment may stand inside a slice.
    fn gap_inside(&mut self, start: usize) {
        let last = self.tokens.get(self.at.wrapping_sub(1));
        self.failed |=
            last.is_some_and(|last| last.token.start > start && last.remarks > self.remark);
    }

    pub fn ident(&mut self, ident: &Ident) -> Doc<'t> {
        self.slice(ident.span)
    }

    pub fn path(&mut self, path: &Path) -> Doc<'t> {
        self.slice(path.span)
    }

    /// Puts the comments before the next row where they belong: to the right of the row before, or
    /// above this one.
    pub fn lead(&mut self, gap: Vec<Remark<'t>>, rows: &mut Rows<'t>, lead: &mut Vec<Note<'t>>) {
        for remark in gap {
            if remark.right && lead.is_empty() && set_right(rows, remark.text) {
                continue;
            }
            // It would become the doc of what follows.
            self.failed |= remark.right && remark.text.starts_with("##");
            lead.push(Note { text: remark.text, blank: remark.blank });
        }
    }
}

/// Puts a comment to the right of the last row, if it has none.
pub(super) fn set_right<'t>(rows: &mut Rows<'t>, text: &'t str) -> bool {
    let place = match rows.rows.last_mut() {
        Some(Row { right, .. }) => right,
        None => &mut rows.open,
    };
    let free = place.is_none();
    if free {
        *place = Some(text);
    }
    free
}

fn with<'t>(mut parts: Vec<Doc<'t>>, doc: Doc<'t>) -> Doc<'t> {
    if parts.is_empty() {
        return doc;
    }
    parts.push(doc);
    Doc::many(parts)
}
