//! From syntax trees to an [`Index`]. It follows the same rules of scope as the check does, and
//! is silent about what it cannot find.

mod blocks;
mod collect;
mod walk;

use crate::index::{Def, DefId, Index, Kind, Members, Ref};
use monarch_check::inspect::{FileTree, Inspected};
use monarch_graph::Span;
use monarch_syntax::ast::{Doc, Ident};
use std::collections::BTreeMap;

pub(crate) fn resolve(inspected: &Inspected) -> Index {
    let mut resolver = Resolver { files: &inspected.files, index: Index::default() };
    resolver.collect();
    resolver.imports();
    resolver.targets();
    for file in 0..inspected.files.len() {
        resolver.walk_file(file as u32);
    }
    let mut index = resolver.index;
    index.refs.sort_unstable();
    index.refs.dedup();
    index
}

pub(crate) struct Resolver<'a> {
    files: &'a [FileTree],
    index: Index,
}

/// Where a name stands.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    file: u32,
    /// The layer around.
    layer: Option<DefId>,
    /// Inputs and `let`s of the function around.
    locals: BTreeMap<String, DefId>,
    /// Free axes of a function that is no layer's.
    free: BTreeMap<String, DefId>,
    /// Whether it is in a test.
    test: bool,
    /// Whether names are sizes first.
    sizes: bool,
    /// A layer whose axes may be named: that of the model at hand.
    hint: Option<DefId>,
    /// The plan whose mesh is spoken of.
    plan: Option<DefId>,
    /// Names are words of a setting, not names of the file.
    words: bool,
}

impl Scope {
    fn of(file: u32) -> Scope {
        Scope { file, ..Scope::default() }
    }
}

/// The docs of an item of the library, whose first item follows the docs of its file.
pub(crate) fn library_docs(all: &[Doc]) -> String {
    let gap = |pair: &[Doc]| matches!(pair, [a, b] if b.span.start > a.span.end + 1);
    let start = all.windows(2).rposition(gap).map_or(0, |at| at + 1);
    docs(all.get(start..).unwrap_or_default())
}

pub(crate) fn docs(docs: &[Doc]) -> String {
    let lines: Vec<&str> = docs.iter().map(|d| d.text.as_str()).collect();
    lines.join("\n")
}

impl Resolver<'_> {
    /// Adds a definition, and the use that it is of its own name.
    fn define(&mut self, kind: Kind, name: &Ident, whole: Span, owner: Option<DefId>) -> DefId {
        let id = self.index.defs.len();
        self.index.defs.push(Def {
            name: name.name.clone(),
            kind,
            span: name.span,
            whole,
            header: whole,
            docs: String::new(),
            owner,
            target: None,
        });
        // A name that is not there yet stands nowhere.
        if !name.name.is_empty() {
            self.note(name.span, id);
        }
        id
    }

    /// Notes that a name stands here.
    fn note(&mut self, span: Span, def: DefId) {
        self.index.refs.push(Ref { span, def });
    }

    fn members(&self, def: DefId) -> Option<&Members> {
        self.index.members.get(&def)
    }

    fn members_mut(&mut self, def: DefId) -> &mut Members {
        self.index.members.entry(def).or_default()
    }

    /// What a name means as a value.
    fn value_named(&self, scope: &Scope, name: &str) -> Option<DefId> {
        if let Some(found) = scope.locals.get(name) {
            return Some(*found);
        }
        let members = scope.layer.and_then(|layer| self.members(layer));
        let inner = members.and_then(|m| m.values.get(name).or_else(|| m.statics.get(name)));
        inner.copied().or_else(|| self.top_named(scope, name))
    }

    /// What a name means at the top level of its file.
    fn top_named(&self, scope: &Scope, name: &str) -> Option<DefId> {
        let file = self.index.scopes.get(scope.file as usize)?;
        let test = || scope.test.then(|| self.index.test_prelude.get(name)).flatten();
        let mesh = || self.members(scope.plan?)?.values.get(name);
        let found = file.get(name).or_else(test).or_else(|| self.index.prelude.get(name));
        found.or_else(mesh).copied()
    }

    /// What a name means as an axis.
    fn axis_named(&self, scope: &Scope, name: &str) -> Option<DefId> {
        if let Some(found) = scope.free.get(name) {
            return Some(*found);
        }
        let members = self.members(scope.layer?)?;
        members.statics.get(name).or_else(|| members.free.get(name)).copied()
    }

    /// An axis of the layer that a scope hints at.
    fn hinted_axis(&self, scope: &Scope, name: &str) -> Option<DefId> {
        let members = self.members(scope.hint?)?;
        members.statics.get(name).or_else(|| members.free.get(name)).copied()
    }

    /// A member of a definition: of a module, a model, a sublayer.
    fn member_named(&self, of: DefId, name: &str) -> Option<DefId> {
        let of = self.index.follow(of);
        let def = self.index.def(of)?;
        match def.kind {
            Kind::Module => {
                let scope = self.index.scopes.get(def.span.file as usize)?;
                let found = *scope.get(name)?;
                (self.index.def(found)?.span.file == def.span.file).then_some(found)
            }
            Kind::Model | Kind::Sublayer => self.members(def.target?)?.values.get(name).copied(),
            _ => None,
        }
    }
}
