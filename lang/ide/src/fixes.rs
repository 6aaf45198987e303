//! The edits that diagnostics offer.

use crate::analysis::Analysis;
use monarch_diagnostic::{Diagnostic, Edit};
use monarch_graph::Span;

/// One way out of one diagnostic.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    /// What the help says.
    pub title: String,
    /// Number of the diagnostic in the check's list.
    pub diagnostic: usize,
    /// To be applied together.
    pub edits: Vec<Edit>,
    /// The first way out that the diagnostic offers.
    pub preferred: bool,
}

/// The fixes of all diagnostics that touch a range of bytes of the program.
pub fn fixes(analysis: &Analysis, start: usize, end: usize) -> Vec<Fix> {
    let touches = |s: &Span| s.file == 0 && s.start as usize <= end && start <= s.end as usize;
    let all = analysis.inspected.checked.diagnostics.iter().enumerate();
    let near = all.filter(|(_, d)| d.span().is_some_and(|s| touches(&s)));
    near.flat_map(|(n, d)| of(analysis, n, d)).collect()
}

fn of(analysis: &Analysis, number: usize, diagnostic: &Diagnostic) -> Vec<Fix> {
    let mut out: Vec<Fix> = Vec::new();
    let ways = diagnostic.help.iter().filter(|h| !h.edits.is_empty());
    for help in ways.filter(|h| h.edits.iter().all(|e| !analysis.is_library(e.span.file))) {
        let title = title(analysis, &help.text, &help.edits);
        let (edits, preferred) = (help.edits.clone(), out.is_empty());
        out.push(Fix { title, diagnostic: number, edits, preferred });
    }
    out
}

/// `did you mean `lr`?` as something to do.
fn title(analysis: &Analysis, help: &str, edits: &[Edit]) -> String {
    match edits {
        [edit] => {
            let (old, new) = (analysis.slice(edit.span), edit.replacement.as_str());
            let line = |text: &str| !text.contains('\n') && text.len() <= 40;
            match (old.is_empty(), new.is_empty()) {
                (false, false) if line(old) && line(new) => format!("Change `{old}` to `{new}`"),
                (true, false) if line(new) => format!("Insert `{}`", new.trim()),
                (false, true) if line(old) => format!("Remove `{old}`"),
                _ => help.to_owned(),
            }
        }
        _ => help.to_owned(),
    }
}

/// The edits of every error and warning of the program that has exactly one way out, as far as they
/// do not overlap; in the order of their places.
pub fn fix_all(analysis: &Analysis) -> Vec<Edit> {
    let mut out: Vec<Edit> = Vec::new();
    let all = analysis.inspected.checked.diagnostics.iter().enumerate();
    for (number, diagnostic) in all {
        let mut ways = of(analysis, number, diagnostic);
        let Some(way) = ways.pop().filter(|_| ways.is_empty()) else { continue };
        let here = |e: &Edit| e.span.file == 0;
        let clear =
            |e: &Edit| out.iter().all(|o| e.span.end < o.span.start || o.span.end < e.span.start);
        if way.edits.iter().all(|e| here(e) && clear(e)) {
            out.extend(way.edits);
        }
    }
    out.sort_by_key(|e| e.span);
    out
}
