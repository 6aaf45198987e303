//! One program as an editor has it open: checked once, asked many times.

use crate::cost::Costs;
use crate::index::{DefId, Index};
use monarch_check::World;
use monarch_check::inspect::{Inspected, TypeFact, inspect};
use monarch_diagnostic::{Source, Sources};
use monarch_graph::Span;
use std::cell::OnceCell;

/// A program, with everything that the features need.
pub struct Analysis {
    pub inspected: Inspected,
    pub index: Index,
    costs: OnceCell<Option<Costs>>,
}

impl Analysis {
    /// Reads and checks the program at `path`; `reserved` are names that a param may not take.
    pub fn new(world: &dyn World, path: &str, reserved: &[&str]) -> Analysis {
        let inspected = inspect(world, path, reserved);
        let index = Index::new(&inspected);
        Analysis { inspected, index, costs: OnceCell::new() }
    }

    /// The text of the program itself.
    pub fn text(&self) -> &str {
        self.sources().get(0).map_or("", Source::text)
    }

    /// All texts.
    pub fn sources(&self) -> &Sources {
        &self.inspected.checked.sources
    }

    /// The text under a span.
    pub fn slice(&self, span: Span) -> &str {
        self.sources().slice(span)
    }

    /// `std.nn`, or the path of a file.
    pub fn file_key(&self, file: u32) -> Option<&str> {
        self.inspected.files.get(file as usize).map(|f| f.key.as_str())
    }

    /// Whether a file belongs to the library, and cannot be changed.
    pub fn is_library(&self, file: u32) -> bool {
        self.file_key(file).is_some_and(|key| key.starts_with("std."))
    }

    /// The definition that a name at `offset` of the program stands for, and where that name is.
    pub fn def_at(&self, offset: usize) -> Option<(DefId, Span)> {
        let found = self.index.at(0, offset as u32)?;
        Some((found.def, found.span))
    }

    /// The type of exactly this expression or name.
    pub fn type_of(&self, span: Span) -> Option<&TypeFact> {
        let types = &self.inspected.types;
        let first = types.partition_point(|t| t.span < span);
        types.get(first).filter(|t| t.span == span)
    }

    /// The type of the smallest expression around `offset` of the program.
    pub fn type_at(&self, offset: usize) -> Option<&TypeFact> {
        let at = offset as u32;
        let holds = |t: &&TypeFact| t.span.file == 0 && t.span.start <= at && at <= t.span.end;
        let all = self.inspected.types.iter().filter(holds);
        all.min_by_key(|t| t.span.end - t.span.start)
    }

    /// What the planned program costs, where it can be planned. Worked out when first asked for.
    pub fn costs(&self) -> Option<&Costs> {
        let program = self.inspected.checked.program.as_ref()?;
        self.costs.get_or_init(|| Costs::of(program)).as_ref()
    }
}
