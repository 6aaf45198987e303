//! Lines under each other: which entries share one, and which columns are aligned.

use super::doc::{Cells, Class, Doc, Row, Rows};
use super::print::{Step, begin, notes, row_fits};

/// One step of printing rows, or a part of a fill.
pub(super) struct Line<'d, 't> {
    pub cmds: Vec<Step<'d, 't>>,
    pub item: Option<&'d Doc<'t>>,
    pub first: bool,
}

impl<'d, 't> Line<'d, 't> {
    pub fn step(step: Step<'d, 't>) -> Line<'d, 't> {
        Line { cmds: vec![step], item: None, first: false }
    }

    pub fn item(doc: &'d Doc<'t>, first: bool) -> Line<'d, 't> {
        Line { cmds: Vec::new(), item: Some(doc), first }
    }
}

/// A line of the output: some entries of a row.
struct Share<'d, 't> {
    row: &'d Row<'t>,
    entries: &'d [Cells<'t>],
    first: bool,
    last: bool,
    /// Fits on one line.
    flat: bool,
    /// Column widths, if aligned.
    pads: Vec<usize>,
}

/// The steps that print all rows at an indentation.
pub(super) fn lines<'d, 't>(
    rows: &'d Rows<'t>,
    indent: usize,
    whole_file: bool,
    all: &mut Vec<Line<'d, 't>>,
) {
    let mut shares = Vec::with_capacity(rows.rows.len());
    for row in &rows.rows {
        share(row, indent, &mut shares);
    }
    align(&mut shares, indent);
    let mut first = Some(whole_file);
    for share in &shares {
        if share.first {
            notes(&share.row.lead, indent, &mut first, all);
        }
        begin(indent, share.first && share.row.blank, &mut first, all);
        all.push(Line { cmds: steps(share), item: None, first: false });
    }
    notes(&rows.tail, indent, &mut first, all);
}

/// Entries that the author wrote on one line stay there if they fit.
fn share<'d, 't>(row: &'d Row<'t>, indent: usize, shares: &mut Vec<Share<'d, 't>>) {
    let fits = |entries: &[Cells], width: Option<usize>| {
        width.is_some_and(|width| row_fits(entries, width, indent))
    };
    let flat = fits(&row.entries, row.width());
    if flat || row.entries.len() < 2 {
        let entries = row.entries.as_slice();
        shares.push(Share { row, entries, first: true, last: true, flat, pads: Vec::new() });
        return;
    }
    for (n, entry) in row.entries.chunks(1).enumerate() {
        let width = entry.iter().map(Cells::width).sum::<Option<usize>>();
        let flat = fits(entry, width);
        let (first, last) = (n == 0, n + 1 == row.entries.len());
        shares.push(Share { row, entries: entry, first, last, flat, pads: Vec::new() });
    }
}

fn steps<'d, 't>(share: &Share<'d, 't>) -> Vec<Step<'d, 't>> {
    let mut steps = Vec::new();
    for (n, cells) in share.entries.iter().enumerate() {
        if n > 0 {
            steps.push(Step::Text(","));
            steps.push(Step::Spaces(1));
        }
        let mut gap = 0;
        for (k, cell) in cells.cells.iter().enumerate() {
            let pad = if n == 0 { share.pads.get(k).copied() } else { None };
            if !cell.is_empty() {
                steps.push(Step::Spaces(if k > 0 { gap + 1 } else { 0 }));
                steps.push(Step::Doc(cell, share.flat));
                gap = 0;
            } else if pad.is_some_and(|pad| pad > 0) {
                gap += 1;
            }
            let width = cell.width().unwrap_or(0);
            gap += pad.map_or(0, |pad| pad.saturating_sub(width));
        }
    }
    if let (true, Some(right)) = (share.last, share.row.right) {
        steps.push(Step::Right(right));
    }
    steps
}

impl Share<'_, '_> {
    fn class(&self) -> Class {
        match self.entries.first() {
            Some(cells) if self.flat => cells.class,
            _ => Class::Other,
        }
    }

    /// Whether it goes on the run of the line above.
    fn goes_on(&self) -> bool {
        self.class() != Class::Other
            && !(self.first && (self.row.blank || !self.row.lead.is_empty()))
    }

    /// The width of a column, if another follows it.
    fn column(&self, n: usize) -> usize {
        let Some(cells) = self.entries.first().map(|entry| &entry.cells) else { return 0 };
        let later = cells.iter().skip(n + 1).any(|cell| !cell.is_empty());
        match cells.get(n) {
            Some(cell) if later => cell.width().unwrap_or(0),
            _ => 0,
        }
    }
}

/// Aligns runs of lines: those that follow each other without an empty line or a comment line
/// between them, and stand on one line each.
fn align(shares: &mut [Share], indent: usize) {
    let mut start = 0;
    while start < shares.len() {
        let more = shares.iter().skip(start + 1).take_while(|share| share.goes_on()).count();
        let end = start + 1 + more;
        if let Some(run) = shares.get_mut(start..end) {
            align_run(run, indent);
        }
        start = end;
    }
}

fn align_run(run: &mut [Share], indent: usize) {
    let width = |class: Class, n: usize| {
        let of_class = run.iter().filter(|share| share.class() == class);
        of_class.map(|share| share.column(n)).max().unwrap_or(0)
    };
    // Shorter kinds of entries fall in with longer ones, not the other way round.
    let weight = width(Class::Weight, 0);
    let assign = width(Class::Assign, 0).max(weight);
    let block = width(Class::Block, 0).max(assign);
    let pads = |class: Class| match class {
        Class::Weight => vec![weight, width(Class::Weight, 1)],
        Class::Assign => vec![assign],
        Class::Block => vec![block],
        Class::Rule | Class::Let => vec![width(class, 0)],
        Class::Param => (0..3).map(|n| width(class, n)).collect(),
        Class::Other => Vec::new(),
    };
    let all: Vec<Vec<usize>> = run.iter().map(|share| pads(share.class())).collect();
    let fits = |(share, pads): (&Share, &Vec<usize>)| {
        let columns = pads.iter().enumerate();
        let more: usize = columns.map(|(n, pad)| pad.saturating_sub(share.column(n))).sum();
        let entries: usize = share.entries.iter().filter_map(Cells::width).map(|w| w + 2).sum();
        row_fits(share.entries, entries.saturating_sub(2) + more, indent)
    };
    let flat = run.iter().zip(&all).filter(|(share, _)| share.class() != Class::Other);
    if flat.into_iter().all(fits) {
        run.iter_mut().zip(all).for_each(|(share, pads)| share.pads = pads);
    }
}
