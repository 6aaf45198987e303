//! From documents to text: where lines break.
//!
//! Every choice looks at most one line ahead, so that time is linear in the text.

use super::WIDTH;
use super::doc::{Cells, Doc, Note, Rows, columns};
use super::rows::{Line, lines};

/// Comments to the right of code begin at this column (counted from 0), or `GAP` after the code.
const COMMENTS: usize = 43;
const GAP: usize = 3;

/// No line begins further in, so that deep nesting does not make long texts.
const DEEPEST: usize = 60;

enum Cmd<'d, 't> {
    Doc(&'d Doc<'t>, Place),
    Text(&'t str),
    Spaces(usize),
    /// A line break, after an empty line if so.
    Break(usize, bool),
    Note(&'t str),
    Right(&'t str),
    /// With whether what comes next begins a line, come what may.
    Lines(std::vec::IntoIter<Line<'d, 't>>, usize, bool),
}

/// How a document is printed: its base indentation, and whether on one line.
#[derive(Clone, Copy)]
struct Place {
    indent: usize,
    flat: bool,
}

pub(super) struct Printer<'d, 't> {
    out: String,
    eol: &'static str,
    column: usize,
    /// Nothing but indentation so far; the indentation is not written yet.
    empty: bool,
    /// A comment stands on this line, and nothing else.
    noted: bool,
    indent: usize,
    spaces: usize,
    /// A line must begin before the next text, this far in.
    pending: Option<usize>,
    rights: Vec<&'t str>,
    /// Where the code of the line that just ended ends, if a comment may still stand beside it.
    ended: Option<usize>,
    stack: Vec<Cmd<'d, 't>>,
}

/// Prints a whole file.
pub(super) fn print<'d, 't>(file: &'d Rows<'t>, eol: &'static str, capacity: usize) -> String {
    let mut printer = Printer {
        out: String::with_capacity(capacity + capacity / 8),
        eol,
        column: 0,
        empty: true,
        noted: false,
        indent: 0,
        spaces: 0,
        pending: None,
        rights: Vec::new(),
        ended: None,
        stack: Vec::new(),
    };
    printer.rows(file, 0, true);
    printer.run();
    printer.finish()
}

impl<'d, 't> Printer<'d, 't> {
    fn run(&mut self) {
        while let Some(cmd) = self.stack.pop() {
            match cmd {
                Cmd::Doc(doc, place) => self.doc(doc, place),
                Cmd::Text(text) => self.text(text),
                Cmd::Spaces(n) => self.spaces += n,
                Cmd::Break(indent, blank) => self.line_break(indent, blank),
                Cmd::Note(text) => self.note(text),
                Cmd::Right(text) => self.rights.push(text),
                Cmd::Lines(lines, indent, apart) => self.next_line(lines, indent, apart),
            }
        }
    }

    fn finish(mut self) -> String {
        if !self.empty || !self.rights.is_empty() {
            self.line_break(0, false);
        }
        self.out
    }

    fn push(&mut self, doc: &'d Doc<'t>, place: Place) {
        self.stack.push(Cmd::Doc(doc, place));
    }

    fn doc(&mut self, doc: &'d Doc<'t>, place: Place) {
        match doc {
            Doc::Text(text) => self.text(text),
            Doc::Space => self.spaces = self.spaces.max(1),
            Doc::Line if place.flat => self.spaces = self.spaces.max(1),
            Doc::Soft if place.flat => {}
            // A comment may have gone back to the line that ended.
            Doc::Fresh => {}
            Doc::Solid(inner) => {
                let flat = place.flat || inner.width().is_some();
                self.push(inner, Place { flat, ..place });
            }
            Doc::Line | Doc::Soft | Doc::Break if self.empty => self.indent = place.indent,
            Doc::Line | Doc::Soft | Doc::Break => self.line_break(place.indent, false),
            Doc::Many(parts, _) => parts.iter().rev().for_each(|part| self.push(part, place)),
            Doc::Indent(inner) => self.push(inner, Place { indent: place.indent + 2, ..place }),
            Doc::Group(inner) => {
                let flat = place.flat || self.fits(inner, 0);
                self.push(inner, Place { flat, ..place });
            }
            Doc::Fill(parts, _) => self.fill(parts, place),
            Doc::After { value, hug } => self.after(value, *hug, place),
            Doc::Right(text) => self.right(text, place),
            Doc::Own(text) => {
                if !self.empty || self.pending.is_some() {
                    let indent = self.pending.unwrap_or(place.indent + 2);
                    self.line_break(indent, false);
                }
                self.note(text);
                self.pending = Some(self.indent);
            }
            Doc::Verbatim(text) => {
                self.indent = 0;
                self.text(text);
            }
            Doc::Rows(rows) => {
                let flat = place.flat || self.fits(doc, 0);
                match flat {
                    true => self.flat_rows(rows, place),
                    false => {
                        self.stack.push(Cmd::Break(place.indent, false));
                        self.rows(rows, place.indent + 2, false);
                    }
                }
            }
        }
    }

    /// A comment to the right of the last token, whose line may have ended.
    fn right(&mut self, text: &'t str, place: Place) {
        if self.noted {
            self.line_break(self.indent, false);
            self.note(text);
            self.pending = Some(self.indent);
            return;
        }
        if !self.empty {
            self.rights.push(text);
            self.pending = Some(place.indent + 2);
            return;
        }
        match self.ended.take() {
            Some(column) => {
                self.out.truncate(self.out.len() - self.eol.len());
                self.beside(column, text);
                self.out.push_str(self.eol);
            }
            None => {
                self.note(text);
                self.pending = Some(self.indent);
            }
        }
    }

    /// Writes a comment to the right of code that ends at `column`.
    fn beside(&mut self, column: usize, text: &str) {
        let spaces = if column + 2 > COMMENTS { GAP } else { COMMENTS - column };
        self.out.extend(std::iter::repeat_n(' ', spaces));
        self.out.push_str(text);
    }

    /// As many to a line as fit, each with the comma behind it.
    fn fill(&mut self, parts: &'d [Doc<'t>], place: Place) {
        // From the last to the first, since the stack reverses them.
        let Some((first, rest)) = parts.split_first() else { return };
        if place.flat {
            for part in rest.iter().rev() {
                self.push(part, place);
                self.push(&Doc::Line, place);
            }
            return self.push(first, place);
        }
        let items: Vec<Line> =
            parts.iter().enumerate().map(|(n, part)| Line::item(part, n == 0)).collect();
        self.stack.push(Cmd::Lines(items.into_iter(), place.indent, false));
    }

    /// The next part of a fill, or the next line of rows.
    fn next_line(
        &mut self,
        mut lines: std::vec::IntoIter<Line<'d, 't>>,
        indent: usize,
        apart: bool,
    ) {
        let Some(line) = lines.next() else { return };
        let Line { cmds, item, first } = line;
        let Some(doc) = item else {
            self.stack.push(Cmd::Lines(lines, indent, false));
            let cmds: Vec<Cmd> = cmds.into_iter().map(|step| step.cmd(indent)).collect();
            self.stack.extend(cmds.into_iter().rev());
            return;
        };
        let more = lines.len() > 0;
        let fits = |this: &Self, space: usize| match more {
            // The rest may go onto the next line.
            true => doc.width().is_some_and(|width| this.now() + space + width <= WIDTH),
            false => this.fits(doc, space),
        };
        let space = usize::from(!first && !self.empty);
        let mut flat = fits(self, space);
        let fresh = matches!(doc, Doc::Many(parts, _) if matches!(parts.first(), Some(Doc::Fresh)));
        if !first && (apart || fresh || !flat || self.pending.is_some()) {
            self.line_break(indent, false);
            flat = fits(self, 0);
        } else {
            self.spaces = self.spaces.max(space);
        }
        if more {
            self.stack.push(Cmd::Lines(lines, indent, !flat));
        }
        self.push(doc, Place { indent, flat });
    }

    /// What follows a sign.
    fn after(&mut self, value: &'d Doc<'t>, hug: bool, place: Place) {
        let inner = Place { indent: place.indent + 2, ..place };
        if place.flat || self.fits(value, 1) {
            self.spaces = self.spaces.max(1);
            return self.push(value, Place { flat: true, ..place });
        }
        let width = value.width();
        let next = width.is_some_and(|width| width + inner.indent.min(DEEPEST) <= WIDTH);
        if next && !hug {
            self.line_break(inner.indent, false);
            return self.push(value, Place { flat: true, ..inner });
        }
        self.spaces = self.spaces.max(1);
        self.push(value, place);
    }

    fn flat_rows(&mut self, rows: &'d Rows<'t>, place: Place) {
        let place = Place { flat: true, ..place };
        if rows.rows.is_empty() {
            return;
        }
        self.stack.push(Cmd::Spaces(1));
        let entries: Vec<&Cells> = rows.rows.iter().flat_map(|row| &row.entries).collect();
        for (n, cells) in entries.iter().enumerate().rev() {
            for (k, cell) in cells.cells.iter().enumerate().rev() {
                self.push(cell, place);
                if k > 0 && !cell.is_empty() {
                    self.push(&Doc::Space, place);
                }
            }
            if n > 0 {
                self.stack.push(Cmd::Spaces(1));
                self.stack.push(Cmd::Text(","));
            }
        }
        self.stack.push(Cmd::Spaces(1));
    }

    /// All rows on lines of their own, from the line break before the first.
    fn rows(&mut self, rows: &'d Rows<'t>, indent: usize, whole_file: bool) {
        let mut all = Vec::new();
        if let Some(right) = rows.open {
            all.push(Line::step(Step::Right(right)));
        }
        lines(rows, indent.min(DEEPEST), whole_file, &mut all);
        self.stack.push(Cmd::Lines(all.into_iter(), indent, false));
    }

    /// The column at which the next text would begin.
    fn now(&self) -> usize {
        match self.empty {
            true => self.indent.min(DEEPEST),
            false => self.column + self.spaces,
        }
    }

    /// Whether `doc` after `space` columns fits with what must follow it on its line.
    fn fits(&self, doc: &Doc<'t>, space: usize) -> bool {
        let Some(width) = doc.width() else { return false };
        let used = self.now() + space + width;
        let Some(mut left) = WIDTH.checked_sub(used) else { return false };
        for cmd in self.stack.iter().rev() {
            let ends = match cmd {
                Cmd::Doc(doc, place) => lead(doc, place.flat, &mut left),
                Cmd::Text(text) => Some(columns(text)).and_then(|width| take(&mut left, width)),
                Cmd::Spaces(_) | Cmd::Right(_) | Cmd::Note(_) => Some(false),
                Cmd::Break(..) => return true,
                // The next part has its comma in front of it.
                Cmd::Lines(..) => return true,
            };
            match ends {
                None => return false,
                Some(true) => return true,
                Some(false) => {}
            }
        }
        true
    }

    fn text(&mut self, text: &str) {
        if let Some(at) = self.pending {
            self.line_break(at, false);
        }
        if text.is_empty() {
            return;
        }
        if self.empty {
            let indent = self.indent.min(DEEPEST);
            self.out.extend(std::iter::repeat_n(' ', indent));
            self.column = indent;
            self.empty = false;
        } else {
            self.out.extend(std::iter::repeat_n(' ', self.spaces));
            self.column += self.spaces;
        }
        self.spaces = 0;
        self.out.push_str(text);
        match text.rfind('\n') {
            Some(at) => self.column = columns(text.get(at + 1..).unwrap_or("")),
            None => self.column += columns(text),
        }
    }

    fn line_break(&mut self, indent: usize, blank: bool) {
        let rights = std::mem::take(&mut self.rights);
        let mut free = !self.empty && !self.noted;
        let column = self.column;
        self.spaces = 0;
        self.pending = None;
        for right in rights {
            if std::mem::take(&mut free) {
                self.beside(column, right);
                continue;
            }
            if !self.empty {
                self.end_line(indent);
            }
            self.note(right);
        }
        self.end_line(indent);
        self.ended = free.then_some(column);
        if blank {
            self.out.push_str(self.eol);
            self.ended = None;
        }
    }

    /// A comment on a line of its own, which is empty so far.
    fn note(&mut self, text: &str) {
        self.text(text);
        self.noted = true;
    }

    fn end_line(&mut self, indent: usize) {
        self.out.push_str(self.eol);
        self.column = 0;
        self.empty = true;
        self.noted = false;
        self.indent = indent;
        self.spaces = 0;
    }
}

/// Takes from `left` what a document must put on the line that it begins on: whether a line may
/// end in it, or nothing if it does not fit.
fn lead(doc: &Doc, flat: bool, left: &mut usize) -> Option<bool> {
    match doc {
        Doc::Text(text) => {
            let first = text.split('\n').next().unwrap_or("");
            take(left, columns(first))?;
            Some(first.len() < text.len())
        }
        Doc::Space => take(left, 1),
        Doc::Line | Doc::Soft if !flat => Some(true),
        Doc::Line => take(left, 1),
        Doc::Soft | Doc::Fresh => Some(false),
        Doc::Break => Some(true),
        Doc::Solid(inner) => lead(inner, flat || inner.width().is_some(), left),
        Doc::Many(parts, _) => {
            for part in parts {
                if lead(part, flat, left)? {
                    return Some(true);
                }
            }
            Some(false)
        }
        Doc::Indent(inner) | Doc::Group(inner) => lead(inner, flat, left),
        Doc::Fill(parts, _) => {
            for (n, part) in parts.iter().enumerate() {
                match n {
                    0 => {}
                    _ if !flat => return Some(true),
                    _ => _ = take(left, 1)?,
                }
                if lead(part, flat, left)? {
                    return Some(true);
                }
            }
            Some(false)
        }
        Doc::After { value, hug } => match hug {
            true => take(left, 1).and_then(|_| lead(value, flat, left)),
            false => Some(true),
        },
        Doc::Right(_) | Doc::Own(_) | Doc::Verbatim(_) => Some(true),
        Doc::Rows(rows) => Some(!flat && !rows.rows.is_empty()),
    }
}

fn take(left: &mut usize, width: usize) -> Option<bool> {
    *left = left.checked_sub(width)?;
    Some(false)
}

/// What a line of rows is made of.
pub(super) enum Step<'d, 't> {
    Doc(&'d Doc<'t>, bool),
    Text(&'t str),
    Spaces(usize),
    Break(usize, bool),
    Note(&'t str),
    Right(&'t str),
}

impl<'d, 't> Step<'d, 't> {
    fn cmd(self, indent: usize) -> Cmd<'d, 't> {
        match self {
            Step::Doc(doc, flat) => Cmd::Doc(doc, Place { indent, flat }),
            Step::Text(text) => Cmd::Text(text),
            Step::Spaces(n) => Cmd::Spaces(n),
            Step::Break(indent, blank) => Cmd::Break(indent, blank),
            Step::Note(text) => Cmd::Note(text),
            Step::Right(text) => Cmd::Right(text),
        }
    }
}

/// Line breaks and comments in front of a row.
pub(super) fn notes<'d, 't>(
    notes: &'d [Note<'t>],
    indent: usize,
    first: &mut Option<bool>,
    all: &mut Vec<Line<'d, 't>>,
) {
    for note in notes {
        begin(indent, note.blank, first, all);
        all.push(Line::step(Step::Note(note.text)));
    }
}

/// The line break before a row. `first`: nothing stands before it, and whether it is that of a
/// file, which begins without one.
pub(super) fn begin<'d, 't>(
    indent: usize,
    blank: bool,
    first: &mut Option<bool>,
    all: &mut Vec<Line<'d, 't>>,
) {
    match first.take() {
        Some(true) => {}
        Some(false) => all.push(Line::step(Step::Break(indent, false))),
        None => all.push(Line::step(Step::Break(indent, blank))),
    }
}

/// Whether entries of this width fit on one line at this indentation. A brace that closes the line
/// may stand just beyond the end.
pub(super) fn row_fits(entries: &[Cells], width: usize, indent: usize) -> bool {
    let last = entries.last().and_then(|cells| cells.cells.last());
    width + indent <= WIDTH + usize::from(last.is_some_and(ends_in_brace))
}

fn ends_in_brace(doc: &Doc) -> bool {
    match doc {
        Doc::Text(text) => *text == "}",
        Doc::Many(parts, _) => parts.last().is_some_and(ends_in_brace),
        Doc::After { value, .. } => ends_in_brace(value),
        _ => false,
    }
}
