//! What is to be printed, before it is known where its lines break.

/// A piece of the output.
pub(super) enum Doc<'t> {
    /// A text without line breaks, unless it is a Rhai text.
    Text(&'t str),
    /// A space, which a line break swallows.
    Space,
    /// A space, or a line break where the group breaks.
    Line,
    /// Nothing, or a line break where the group breaks.
    Soft,
    /// A line break that the author wished for.
    Break,
    /// The same, in front of a part of a fill.
    Fresh,
    /// On one line, come what may.
    Solid(Box<Doc<'t>>),
    /// One after the other, with the width on one line.
    Many(Vec<Doc<'t>>, Option<usize>),
    /// Lines that begin inside stand further in.
    Indent(Box<Doc<'t>>),
    /// On one line if that fits.
    Group(Box<Doc<'t>>),
    /// As many to a line as fit, with the width of all on one line.
    Fill(Vec<Doc<'t>>, Option<usize>),
    /// What follows `=`: on the same line if it fits or if it breaks well (`hug`), otherwise on the
    /// next.
    After { value: Box<Doc<'t>>, hug: bool },
    /// A comment to the right of what stands before it.
    Right(&'t str),
    /// A comment on a line of its own.
    Own(&'t str),
    /// Lines as they are in the source, from the beginning of the first.
    Verbatim(&'t str),
    /// What stands in braces, or a whole file.
    Rows(Rows<'t>),
}

/// Entries, statements or items: on one line if all fit and nobody broke them, otherwise on many.
#[derive(Default)]
pub(super) struct Rows<'t> {
    pub rows: Vec<Row<'t>>,
    /// To the right of the opening brace.
    pub open: Option<&'t str>,
    /// Comments after the last row.
    pub tail: Vec<Note<'t>>,
    /// The author began a line after the brace.
    pub broken: bool,
    /// A comma separates those on one line.
    pub commas: bool,
}

/// One line, at first: entries that the author wrote on one.
pub(super) struct Row<'t> {
    pub lead: Vec<Note<'t>>,
    /// An empty line stands before it.
    pub blank: bool,
    pub entries: Vec<Cells<'t>>,
    pub right: Option<&'t str>,
}

/// A comment on a line of its own.
pub(super) struct Note<'t> {
    pub text: &'t str,
    pub blank: bool,
}

/// An entry in the columns in which it may be aligned.
pub(super) struct Cells<'t> {
    pub class: Class,
    pub cells: Vec<Doc<'t>>,
}

/// Which lines are aligned with which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `name: | shape | ~ init`
    Weight,
    /// `path | = value`
    Assign,
    /// `kind | { .. }`
    Block,
    /// `axis | -> value`
    Rule,
    /// `let name | = value`
    Let,
    /// `param name: | kind | = default | in range`
    Param,
    /// With nothing.
    Other,
}

impl<'t> Doc<'t> {
    pub fn empty() -> Doc<'t> {
        Doc::Many(Vec::new(), Some(0))
    }

    pub fn many(parts: Vec<Doc<'t>>) -> Doc<'t> {
        let width = parts.iter().map(Doc::width).sum();
        Doc::Many(parts, width)
    }

    pub fn fill(parts: Vec<Doc<'t>>) -> Doc<'t> {
        let inner: Option<usize> = parts.iter().map(Doc::width).sum();
        let width = inner.map(|width| width + parts.len().saturating_sub(1));
        Doc::Fill(parts, width)
    }

    pub fn group(self) -> Doc<'t> {
        Doc::Group(Box::new(self))
    }

    pub fn indent(self) -> Doc<'t> {
        Doc::Indent(Box::new(self))
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Doc::Many(parts, _) if parts.is_empty())
    }

    /// Columns on one line; `None` if it has to break.
    pub fn width(&self) -> Option<usize> {
        match self {
            Doc::Text(text) => (!text.contains('\n')).then(|| columns(text)),
            Doc::Space | Doc::Line => Some(1),
            Doc::Soft | Doc::Fresh => Some(0),
            Doc::Break => None,
            Doc::Solid(inner) => inner.width(),
            Doc::Many(_, width) | Doc::Fill(_, width) => *width,
            Doc::Indent(inner) | Doc::Group(inner) => inner.width(),
            Doc::After { value, .. } => Some(value.width()? + 1),
            Doc::Right(_) | Doc::Own(_) | Doc::Verbatim(_) => None,
            Doc::Rows(rows) => rows.width(),
        }
    }
}

impl Rows<'_> {
    /// With the spaces inside the braces.
    fn width(&self) -> Option<usize> {
        let several = !self.commas && self.rows.len() > 1;
        if self.broken || several || self.open.is_some() || !self.tail.is_empty() {
            return None;
        }
        let mut width = 0;
        for row in &self.rows {
            if !row.lead.is_empty() || row.right.is_some() {
                return None;
            }
            width += row.width()? + 2;
        }
        Some(width)
    }
}

impl Row<'_> {
    /// Of all its entries, without its comment.
    pub fn width(&self) -> Option<usize> {
        let entries: Option<usize> = self.entries.iter().map(Cells::width).sum();
        Some(entries? + 2 * self.entries.len().saturating_sub(1))
    }
}

impl Cells<'_> {
    pub fn width(&self) -> Option<usize> {
        let mut width = 0;
        for cell in self.cells.iter().filter(|cell| !cell.is_empty()) {
            width += cell.width()? + usize::from(width > 0);
        }
        Some(width)
    }
}

pub(super) fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}
