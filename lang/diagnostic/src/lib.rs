//! Diagnostics: what a person reads when a program is wrong.
//!
//! Invariants
//! - The only crate that knows miette. It knows nothing of the language's grammar, of plans or of
//!   the runtime: it is handed spans, texts and codes.
//! - Nothing here reads a file, a clock or the environment, and nothing panics on any span: one
//!   that lies outside its text, or inside a character, is clamped.
//! - A title states the fact in the user's nouns. The first label says what to change, the second
//!   why. A help is an edit wherever possible. Never a Rust type, a grammar rule or a stack trace.
//!
//! # Adding a code
//! 1. Write `codes/M0123.md`: a paragraph of what it means, one failing program in a fenced block
//!    marked `mon`, and one fixed program in another. Both run as tests.
//! 2. Add one line to the table in `codes.rs` (kept in order).
//! 3. Use it: `Diagnostic::error("M0123", ..)`. A test fails for a code that has no page.
//!
//! Families: M00xx syntax, M01xx names, units and settings, M02xx shapes and sizes, M03xx plan and
//! mesh, M04xx memory, M05xx schedules, M06xx data and checkpoints, M07xx hooks, M09xx not yet.

mod codes;
mod diagnostic;
mod json;
mod render;
mod sources;
mod suggest;

pub use codes::{Page, page, pages};
pub use diagnostic::{Diagnostic, Edit, Help, Label, Report, Severity};
pub use json::json;
pub use monarch_graph::Span;
pub use render::{Style, render};
pub use sources::{Position, Source, Sources};
pub use suggest::suggest;
