//! The gate before a run: what the check accepts and a run cannot carry out yet.
//!
//! Such a setting is no mistake: `check`, `plan` and editors take it. A run that ignored it would
//! not be the run that was asked for, so whoever runs a program asks [`run_gate`] first and refuses
//! it with what is said there. Part of the checker marks a setting in one line, where it is read:
//!
//! ```ignore
//! self.not_run_yet(span, "object stores", "write to a folder that all machines share");
//! ```

use crate::hir::Program;
use crate::scope::Checker;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;

/// Errors for all that a run of `program` would have to ignore, in the order of the text; empty
/// for a program that can be run as it stands.
pub fn run_gate(program: &Program) -> Vec<Diagnostic> {
    program.not_run_yet.clone()
}

impl Checker<'_> {
    /// Marks what is checked and not carried out by a run yet. `what` completes "a run does not
    /// carry out .. yet"; `help` says how to do without it.
    pub(crate) fn not_run_yet(&mut self, at: Span, what: &str, help: &str) {
        let title = format!("a run does not carry out {what} yet");
        let d = Diagnostic::error("M0906", title).label(at, "checked and planned only");
        self.state.not_run_yet.push(d.help(help));
    }

    /// All marks, in the order of the text, one for a place.
    pub(crate) fn gate(&mut self) -> Vec<Diagnostic> {
        let mut all = std::mem::take(&mut self.state.not_run_yet);
        let place = |d: &Diagnostic| d.span().map(|s| (s.file, s.start, s.end));
        all.sort_by_key(place);
        all.dedup_by(|a, b| place(a) == place(b) && a.title == b.title);
        all
    }
}
