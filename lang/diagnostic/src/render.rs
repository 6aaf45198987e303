//! The text form of a diagnostic.
//!
//! ```text
//! M0101 × `train` has no setting `lrr`   ╭ chargpt.mon:55:3
//! 55 │   lrr   = warmup(to = lr, 100 steps) then cosine(to = lr / 10)
//!    ·   ─── unknown setting
//!    ╰ help: did you mean `lr`? `monarch explain train` lists all 14
//! ```
//!
//! Only lines with labels are shown, in order, with nothing between them. Labels of one line stand
//! beneath it, the rightmost first. Lines of another file follow a line that names it.

use std::collections::BTreeMap;
use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

use crate::{Diagnostic, Label, Severity, Source, Sources};

/// How to render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Columns of the terminal: longer source lines are clipped around their labels. The text of
    /// labels and helps is never cut.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style { color: false, width: 160 }
    }
}

/// Source lines are never clipped to less than this.
const MIN_SOURCE: usize = 40;
/// Bytes of a line that are looked at on either side of a label.
const REACH: usize = 4096;
const TAB: usize = 4;

/// Renders one diagnostic, with a line break at the end.
pub fn render(diagnostic: &Diagnostic, sources: &Sources, style: Style) -> String {
    let mut out = String::new();
    let paint = Paint { color: style.color, severity: diagnostic.severity };
    let labels: Vec<&Label> =
        diagnostic.labels.iter().filter(|label| sources.get(label.span.file).is_some()).collect();
    let line_of = |label: &&Label| sources.position(label.span).map_or(1, |at| at.line);
    let gutter = labels.iter().map(line_of).max().unwrap_or(1).to_string().len();
    let pad = " ".repeat(gutter + 1);

    let head = format!("{} {}", diagnostic.code, symbol(diagnostic.severity));
    let _ = write!(out, "{} {}", paint.severity(&head), paint.bold(&one_line(&diagnostic.title)));
    if let Some(first) = labels.first() {
        let place = format!("╭ {}", harmless(&sources.place(first.span)));
        let _ = write!(out, "   {}", paint.dim(&place));
    }
    out.push('\n');

    for (n, file) in files(&labels).into_iter().enumerate() {
        let Some(source) = sources.get(file) else { continue };
        let here = labels.iter().filter(|label| label.span.file == file);
        if n > 0 {
            let place = here.clone().next().map(|label| sources.place(label.span));
            let place = format!("╭ {}", harmless(&place.unwrap_or_default()));
            let _ = writeln!(out, "{pad}{}", paint.dim(&place));
        }
        let mut lines: BTreeMap<u32, Vec<&Label>> = BTreeMap::new();
        for label in here {
            lines.entry(source.position(label.span.start).line).or_default().push(label);
        }
        for (line, labels) in lines {
            let room = style.width.saturating_sub(gutter + 3).max(MIN_SOURCE);
            for view in views(source, line, &labels, room) {
                let number = paint.dim(&format!("{line:>gutter$} │"));
                let _ = writeln!(out, "{}", format!("{number} {}", view.text).trim_end());
                for mark in view.marks {
                    let primary =
                        diagnostic.labels.first().is_some_and(|first| std::ptr::eq(first, mark.of));
                    mark_line(&mut out, &pad, &mark, primary, paint);
                }
            }
        }
    }
    helps(&mut out, diagnostic, &pad, paint);
    out
}

/// `×`, `⚠` or `·`.
fn symbol(severity: Severity) -> char {
    match severity {
        Severity::Error => '×',
        Severity::Warning => '⚠',
        Severity::Note => '·',
    }
}

/// A text of ours, in which a name or a string of the program may stand: on one line, without what
/// would move the cursor, and with very long words cut.
fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = 0;
    for c in text.chars() {
        word = if c.is_whitespace() { 0 } else { word + 1 };
        match c {
            '\n' | '\r' => out.push(' '),
            _ if word > MAX_WORD + 1 => {}
            _ if word > MAX_WORD => out.push('…'),
            _ => out.push(picture(c).unwrap_or(c)),
        }
    }
    out
}

/// The name of a file may hold anything.
fn harmless(text: &str) -> String {
    text.chars().map(|c| picture(c).unwrap_or(c)).collect()
}

/// Longest word of a program that a title repeats, in characters.
const MAX_WORD: usize = 200;

/// What stands for a character that would move the cursor or reorder the line.
fn picture(c: char) -> Option<char> {
    match c {
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32),
        '\x7f'..='\u{9f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// The files of the labels, in the order in which they come up.
fn files(labels: &[&Label]) -> Vec<u32> {
    let mut files = Vec::new();
    for label in labels {
        if !files.contains(&label.span.file) {
            files.push(label.span.file);
        }
    }
    files
}

fn helps(out: &mut String, diagnostic: &Diagnostic, pad: &str, paint: Paint) {
    let count = diagnostic.help.len();
    for (n, help) in diagnostic.help.iter().enumerate() {
        let last = n + 1 == count;
        let (corner, bar) = if last { ("╰", " ") } else { ("├", "│") };
        for (m, line) in help.text.lines().enumerate() {
            let line = one_line(line);
            let _ = match m {
                0 => writeln!(out, "{pad}{} {line}", paint.dim(&format!("{corner} help:"))),
                _ => writeln!(out, "{pad}{}       {line}", paint.dim(bar)),
            };
        }
    }
    if count == 0 && !diagnostic.labels.is_empty() {
        let _ = writeln!(out, "{pad}{}", paint.dim("╰"));
    }
}

fn mark_line(out: &mut String, pad: &str, mark: &Mark, primary: bool, paint: Paint) {
    let line = "─".repeat(mark.width);
    let text = one_line(&mark.text);
    let marked = if text.is_empty() { line } else { format!("{line} {text}") };
    let marked = if primary { paint.severity(&marked) } else { paint.second(&marked) };
    let space = " ".repeat(mark.column);
    let _ = writeln!(out, "{pad}{} {space}{marked}", paint.dim("·"));
}

/// A stretch of a line with the labels that fall into it.
struct View<'l> {
    text: String,
    marks: Vec<Mark<'l>>,
}

/// An underline: columns in the view, from 0.
struct Mark<'l> {
    column: usize,
    width: usize,
    text: String,
    of: &'l Label,
}

/// One character of a line as it is shown.
struct Cell {
    offset: usize,
    column: usize,
    shown: Shown,
}

enum Shown {
    Char(char),
    Spaces(usize),
}

/// A line as it is shown: once if it fits, else once for each group of labels that fit together.
fn views<'l>(source: &Source, line: u32, labels: &[&'l Label], room: usize) -> Vec<View<'l>> {
    let mut labels: Vec<&Label> = labels.to_vec();
    labels.sort_by_key(|label| label.span.start);
    let Some(range) = source.line_range(line) else { return Vec::new() };
    let mut views = Vec::new();
    let mut rest = labels.as_slice();
    while let Some(first) = rest.first() {
        let from = source.clamp(first.span.start).saturating_sub(REACH).max(range.start);
        let to = (source.clamp(first.span.start) + REACH).min(range.end);
        let (from, to) = (source.clamp(from as u32), source.clamp(to as u32));
        let (cells, width) = cells(source.text().get(from..to).unwrap_or(""), from);
        let cut = Cut { from, to, line: range.clone(), cells, width };
        let (taken, view) = cut.view(source, rest, room);
        views.push(view);
        rest = rest.get(taken.max(1)..).unwrap_or(&[]);
    }
    views
}

/// The part of a line within reach of a label.
struct Cut {
    from: usize,
    to: usize,
    line: std::ops::Range<usize>,
    cells: Vec<Cell>,
    width: usize,
}

impl Cut {
    /// Shows as many of `labels` as fit into `room` columns; how many those are.
    fn view<'l>(&self, source: &Source, labels: &[&'l Label], room: usize) -> (usize, View<'l>) {
        let whole = self.from == self.line.start && self.to == self.line.end;
        let places: Vec<(usize, usize)> =
            labels.iter().map(|label| self.columns(source, label)).collect();
        let begin = places.first().map_or(0, |place| place.0);
        let (taken, low, high) = if whole && self.width <= room {
            (labels.len(), 0, self.width)
        } else {
            let near = |place: &&(usize, usize)| place.1.saturating_sub(begin) <= room * 2 / 3;
            let within = |label: &&Label| source.clamp(label.span.start) <= self.to;
            let taken = places.iter().zip(labels);
            let taken = taken.take_while(|(place, label)| near(place) && within(label)).count();
            let taken = taken.max(1);
            let end = places.iter().take(taken).map(|place| place.1).max().unwrap_or(begin);
            let slack = room.saturating_sub(end.saturating_sub(begin).min(room)) / 2;
            let low = begin.saturating_sub(slack).min(self.width.saturating_sub(room));
            (taken, low, low + room)
        };
        let (text, shift) = self.text(low, high);
        let mut marks: Vec<Mark> = places
            .iter()
            .zip(labels)
            .take(taken)
            .map(|(place, label)| {
                let column = place.0.clamp(low, high);
                let end = place.1.clamp(column, high.max(column));
                Mark {
                    column: column + shift - low,
                    width: (end - column).max(1),
                    text: self.label_text(source, label),
                    of: label,
                }
            })
            .collect();
        // The rightmost first; what begins at one place keeps its order.
        marks.sort_by_key(|mark| std::cmp::Reverse(mark.column));
        (taken, View { text, marks })
    }

    /// The columns that a label covers in this line.
    fn columns(&self, source: &Source, label: &Label) -> (usize, usize) {
        let column = |offset: usize| {
            let n = self.cells.partition_point(|cell| cell.offset < offset);
            self.cells.get(n).map_or(self.width, |cell| cell.column)
        };
        let start = source.clamp(label.span.start);
        let end = source.clamp(label.span.end).min(self.line.end);
        let low = column(start);
        (low, column(end.max(start)).max(low))
    }

    /// A label over several lines is drawn in its first one and says where it ends.
    fn label_text(&self, source: &Source, label: &Label) -> String {
        let last = source.position(label.span.end.max(label.span.start + 1) - 1).line;
        let first = source.line_of(label.span.start);
        match (last > first, label.text.is_empty()) {
            (true, true) => format!("(to line {last})"),
            (true, false) => format!("{} (to line {last})", label.text),
            (false, _) => label.text.clone(),
        }
    }

    /// The text of columns `low..high` with `…` where it is cut, and by how much that shifts it.
    fn text(&self, low: usize, high: usize) -> (String, usize) {
        let mut text = String::new();
        let mut shift = 0;
        if low > 0 || self.from > self.line.start {
            text.push('…');
            shift = 1;
        }
        let mut at = low;
        for cell in self.cells.iter().filter(|cell| cell.column >= low && cell.column < high) {
            // A wide character cut in half leaves a space.
            (at..cell.column).for_each(|_| text.push(' '));
            match cell.shown {
                Shown::Char(c) => {
                    text.push(c);
                    at = cell.column + c.width().unwrap_or(0);
                }
                Shown::Spaces(count) => {
                    (0..count).for_each(|_| text.push(' '));
                    at = cell.column + count;
                }
            }
        }
        if high < self.width || self.to < self.line.end {
            text.push('…');
        }
        (text, shift)
    }
}

/// The characters of a text that begins at byte `from`, with their columns; and the width of all.
fn cells(text: &str, from: usize) -> (Vec<Cell>, usize) {
    let mut column = 0;
    let mut cells = Vec::with_capacity(text.len());
    for (offset, c) in text.char_indices() {
        let (shown, width) = match c {
            '\t' => {
                let count = TAB - column % TAB;
                (Shown::Spaces(count), count)
            }
            _ => match picture(c) {
                Some(instead) => (Shown::Char(instead), 1),
                None => (Shown::Char(c), c.width().unwrap_or(0)),
            },
        };
        cells.push(Cell { offset: from + offset, column, shown });
        column += width;
    }
    (cells, column)
}

/// Colours, if wanted.
#[derive(Clone, Copy)]
struct Paint {
    color: bool,
    severity: Severity,
}

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        match self.color {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    fn severity(self, text: &str) -> String {
        let code = match self.severity {
            Severity::Error => "1;31",
            Severity::Warning => "1;33",
            Severity::Note => "1;36",
        };
        self.with(code, text)
    }

    fn second(self, text: &str) -> String {
        self.with("36", text)
    }

    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }
}
