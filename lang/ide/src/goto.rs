//! From a use to its definition, and back.

use crate::analysis::Analysis;
use monarch_graph::Span;

/// Where a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name that was asked about.
    pub from: Span,
    /// The whole definition.
    pub whole: Span,
    /// Its name.
    pub name: Span,
}

/// Where the name at byte `offset` of the program is defined, maybe in another file.
pub fn definition(analysis: &Analysis, offset: usize) -> Option<Link> {
    let (id, from) = analysis.def_at(offset)?;
    let def = analysis.index.def(id)?;
    // From `as name` itself, and from where that name is used, to what it stands for.
    let def = analysis.index.def(analysis.index.follow(id)).unwrap_or(def);
    Some(Link { from, whole: def.whole, name: def.span })
}

/// Every place that names what the name at byte `offset` of the program names, in the order of
/// files and places; with its definition if `declaration`.
pub fn references(analysis: &Analysis, offset: usize, declaration: bool) -> Vec<Span> {
    let Some((id, _)) = analysis.def_at(offset) else { return Vec::new() };
    let id = analysis.index.follow(id);
    let home = analysis.index.def(id).map(|d| d.span);
    let same = analysis.index.refs.iter().filter(|r| analysis.index.follow(r.def) == id);
    let spans = same.map(|r| r.span).filter(|s| declaration || Some(*s) != home);
    let mut all: Vec<Span> = spans.collect();
    all.dedup();
    all
}
