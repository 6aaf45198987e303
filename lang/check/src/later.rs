//! Names that must mean something of a kind, and things that nobody uses.

use crate::scope::{Checker, Entity};
use monarch_diagnostic::Diagnostic;
use monarch_syntax::ast::Ident;

impl<'a> Checker<'a> {
    pub fn needs_entity(
        &mut self,
        file: u32,
        name: &Ident,
        needed: &str,
        fits: fn(Entity) -> bool,
    ) -> Option<Entity> {
        match self.lookup(file, &name.name) {
            Some(entity) if fits(entity) => Some(entity),
            Some(other) => {
                self.wrong_entity(name, other, needed);
                None
            }
            None => {
                self.unknown_name(file, name, &[]);
                None
            }
        }
    }

    /// Things that nobody uses.
    pub fn unused(&mut self) {
        if self.has_errors() {
            // What is wrong may hide a use.
            return;
        }
        let has_train = !self.trains.is_empty();
        let mut found = Vec::new();
        for (file, scope) in self.scopes.iter().enumerate() {
            if !self.loaded.is_own(file as u32) {
                continue;
            }
            for (name, named) in &scope.names {
                let counts = match named.entity {
                    Entity::Broken | Entity::Train(_) | Entity::Cluster(_) => false,
                    Entity::Sweep(_) => false,
                    Entity::Plan(_) => has_train,
                    Entity::Param(_) => true,
                    _ if named.imported => true,
                    // A file of layers is used by whoever imports it.
                    _ => has_train && file == 0,
                };
                if counts && !named.used.get() {
                    let what = if named.imported { "imported" } else { named.entity.noun() };
                    let title = format!("`{name}` is not used");
                    found.push(Diagnostic::warning("M0116", title).label(named.span, what));
                }
            }
        }
        for (id, item) in self.layers.iter().enumerate() {
            let state = &self.state.layers[id];
            if !self.loaded.is_own(item.file) || state.done.is_none() {
                continue;
            }
            let used = state.names.used.borrow();
            let header = state.symbols[..state.dims].iter().map(|s| (&s.name, s.span, "an axis"));
            let fields = state.fields.iter().map(|f| (&f.name, f.span, "a field"));
            let derived = state.derived.iter().map(|d| (&d.name, d.name_span, "a size"));
            let weights = state.weights.iter().map(|w| (&w.name, w.span, "a weight"));
            let subs = state.subs.iter().map(|s| (&s.name, s.span, "a sublayer"));
            for (name, span, what) in header.chain(fields).chain(derived).chain(weights).chain(subs)
            {
                if !used.contains(name) {
                    let title = format!("`{name}` is not used");
                    found.push(Diagnostic::warning("M0116", title).label(span, what));
                }
            }
        }
        self.diagnostics.extend(found);
    }
}
