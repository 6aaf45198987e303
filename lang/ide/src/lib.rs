//! What an editor shows of a program: diagnostics with quick fixes, hover, completion, places of
//! definition and use, rename, inlay hints, symbols.
//!
//! Invariants
//! - Plain data in, plain data out: places are byte offsets and [`monarch_graph::Span`]s; nothing
//!   here knows of a protocol, a socket or a clock. Files come in through
//!   [`monarch_check::World`] alone.
//! - Every feature answers for every text and every offset, and never panics: half-typed programs
//!   are the usual case.
//! - A program is checked once for each text ([`Analysis`]); names are found in the syntax tree,
//!   types and values are the check's own.
//! - An edit that is offered keeps the meaning that it promises: a rename is checked again before
//!   it is handed out, and refused with a reason otherwise.

pub mod analysis;
pub mod complete;
pub mod context;
pub mod cost;
pub mod find;
pub mod fixes;
pub mod goto;
pub mod hints;
pub mod hover;
pub mod index;
pub mod rename;
mod resolve;
pub mod signature;
pub mod symbols;
pub mod text;

pub use analysis::Analysis;
pub use complete::{Completion, CompletionKind, complete};
pub use fixes::{Fix, fix_all, fixes};
pub use goto::{definition, references};
pub use hints::{Hint, hints};
pub use hover::{Hover, hover};
pub use rename::{Refused, prepare, rename};
pub use signature::{Signature, signature};
pub use symbols::{Symbol, symbols};
