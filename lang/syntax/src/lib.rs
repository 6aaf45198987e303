//! Text to syntax tree.
//!
//! Invariants
//! - Parsing never fails: `text -> (File, Vec<Diagnostic>)`. It never panics, never overflows the
//!   stack, and takes time linear in the text.
//! - It knows no block, setting, unit or type names: a misspelling parses, and is found by those
//!   who know what exists.
//! - Every node has a span within the text, on character boundaries; a parent's span holds its
//!   children's. Comments are kept beside the tree, so that nothing of the text is lost.
//! - No expression is deeper than [`ast::MAX_DEPTH`], so that a recursive visitor is safe.
//! - No I/O.
//!
//! Three passes, each linear: `scan` closes brackets and cuts the file into items; the grammar
//! `mon.pest`, which is total, reads each item; `build` makes the tree and turns the grammar's
//! holes and junk into diagnostics.

pub mod ast;
mod build;
mod format;
pub mod lex;
mod parse;
mod scan;
mod slip;

pub use format::{Formatted, format};
pub use parse::{decode, parse, too_large};
pub use scan::MAX_NESTING;

/// Largest program that is read, in bytes: about 100,000 lines. It bounds the memory that the worst
/// text can take (some 300 bytes for each of its own) and the time (a few seconds).
pub const MAX_BYTES: usize = 4 << 20;

/// Most diagnostics given for one file: whoever has more needs another look, not more lines.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Words that cannot be names.
pub fn reserved_words() -> &'static [&'static str] {
    &lex::RESERVED
}
