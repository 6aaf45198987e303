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

pub mod ast;
