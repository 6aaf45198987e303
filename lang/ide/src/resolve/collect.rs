//! First pass: what each file defines, and what it imports.

use super::{Resolver, docs, library_docs};
use crate::index::{DefId, Kind};
use monarch_check::inspect::{prelude, test_prelude};
use monarch_graph::Span;
use monarch_syntax::ast::{
    self, AxisKind, EntryKind, Expr, ExprKind, Ident, ImportFrom, ItemKind, Pattern, RecordEntry,
};
use std::collections::BTreeMap;

impl<'a> Resolver<'a> {
    pub(super) fn collect(&mut self) {
        let files = self.files;
        for (file, tree) in files.iter().enumerate() {
            self.index.scopes.push(BTreeMap::new());
            let start = Span::new(file as u32, 0, 0);
            let name = Ident { name: tree.key.clone(), span: start };
            let module = self.define(Kind::Module, &name, start, None);
            debug_assert!(module == file, "a file's module has the file's number");
            // Its name stands nowhere.
            self.index.refs.pop();
        }
        for (file, tree) in files.iter().enumerate() {
            for item in &tree.tree.items {
                self.collect_item(file as u32, item);
            }
        }
        self.collect_prelude();
    }

    fn collect_prelude(&mut self) {
        let files = self.files;
        let number = |key: &str| files.iter().position(|f| f.key == key);
        for (key, only) in prelude() {
            let scope = number(key).and_then(|n| self.index.scopes.get(n)).cloned();
            let wanted = scope.unwrap_or_default();
            let wanted = wanted.into_iter().filter(|(n, _)| only.is_none_or(|o| o.contains(&&**n)));
            self.index.prelude.extend(wanted);
        }
        let tests = number(test_prelude()).and_then(|n| self.index.scopes.get(n)).cloned();
        self.index.test_prelude = tests.unwrap_or_default();
    }

    /// A name of the top level; the first of two counts.
    fn top(&mut self, kind: Kind, name: &Ident, item: &ast::Item, header: Span) -> DefId {
        let id = self.define(kind, name, item.span, None);
        let file = self.files.get(name.span.file as usize);
        self.index.defs[id].docs = match file.is_some_and(|f| f.key.starts_with("std.")) {
            true => library_docs(&item.docs),
            false => docs(&item.docs),
        };
        self.index.defs[id].header = header;
        if let Some(scope) = self.index.scopes.get_mut(name.span.file as usize) {
            scope.entry(name.name.clone()).or_insert(id);
        }
        id
    }

    fn collect_item(&mut self, file: u32, item: &ast::Item) {
        let _ = file;
        match &item.kind {
            ItemKind::Param(p) => {
                self.top(Kind::Param, &p.name, item, p.span);
            }
            ItemKind::Let(b) => {
                if let Pattern::One(name) = &b.pattern {
                    self.top(Kind::Constant, name, item, b.span);
                }
            }
            ItemKind::Layer(l) => {
                let header = Span { end: l.body.span.start, ..l.span };
                let id = self.top(Kind::Layer, &l.name, item, header);
                self.collect_layer(id, l);
            }
            ItemKind::Op(o) => {
                let id = self.top(Kind::Op, &o.name, item, o.span);
                for field in &o.fields {
                    let arg = self.define(Kind::OpArg, &field.name, field.span, Some(id));
                    let axis = matches!(&field.kind, Some(ast::Kind::Name(k)) if k.name == "axis");
                    let members = self.members_mut(id);
                    members.fields.push(arg);
                    if axis {
                        members.axis_args.push(arg);
                    }
                }
            }
            ItemKind::Block(b) => self.collect_block(item, b),
            ItemKind::Import(_) | ItemKind::Test(_) | ItemKind::Broken(_) => {}
        }
    }

    fn collect_block(&mut self, item: &ast::Item, block: &ast::Block) {
        let kind = match block.kind.name.as_str() {
            "model" => Kind::Model,
            "data" => Kind::Data,
            "train" => Kind::Train,
            "cluster" => Kind::Cluster,
            "plan" => Kind::Plan,
            "sweep" => Kind::Sweep,
            _ => return,
        };
        let Some(name) = &block.name else { return };
        let header = match &block.body {
            Some(body) => Span { end: body.span.start, ..block.span },
            None => block.span,
        };
        let id = self.top(kind, name, item, header);
        for entry in block.body.iter().flat_map(|b| &b.entries) {
            match &entry.kind {
                EntryKind::Assign(a) if kind == Kind::Plan => self.mesh(id, a),
                EntryKind::Block(b) if kind == Kind::Train && b.kind.name == "eval" => {
                    self.metrics(id, b);
                }
                _ => {}
            }
        }
    }

    fn mesh(&mut self, plan: DefId, assign: &ast::Assign) {
        let is_mesh = assign.path.single().is_some_and(|n| n.name == "mesh");
        let ExprKind::Record(record) = &assign.value.kind else { return };
        for entry in record.entries.iter().filter(|_| is_mesh) {
            if let RecordEntry::Assign(a) = entry
                && let Some(name) = a.path.single()
            {
                let axis = self.define(Kind::MeshAxis, name, a.span, Some(plan));
                self.members_mut(plan).values.entry(name.name.clone()).or_insert(axis);
            }
        }
    }

    fn metrics(&mut self, train: DefId, eval: &ast::Block) {
        for entry in eval.body.iter().flat_map(|b| &b.entries) {
            if let EntryKind::Func(f) = &entry.kind {
                let metric = self.define(Kind::Metric, &f.name, f.span, Some(train));
                self.members_mut(train).values.entry(f.name.name.clone()).or_insert(metric);
            }
        }
    }

    fn collect_layer(&mut self, id: DefId, layer: &ast::Layer) {
        self.members_mut(id);
        for dim in layer.dims.iter().flatten() {
            let axis = self.define(Kind::Axis, &dim.name, dim.span, Some(id));
            let members = self.members_mut(id);
            members.dims.push(axis);
            members.statics.entry(dim.name.name.clone()).or_insert(axis);
        }
        for field in layer.fields.iter().flatten() {
            let value = self.define(Kind::Field, &field.name, field.span, Some(id));
            let members = self.members_mut(id);
            members.fields.push(value);
            members.statics.entry(field.name.name.clone()).or_insert(value);
        }
        for entry in &layer.body.entries {
            let (kind, name, whole) = match &entry.kind {
                EntryKind::Weight(w) => (Kind::Weight, &w.name, w.span),
                EntryKind::Assign(a) => match a.path.single() {
                    Some(name) if self.is_sublayer(name.span.file, &a.value) => {
                        (Kind::Sublayer, name, a.span)
                    }
                    Some(name) => (Kind::Size, name, a.span),
                    None => continue,
                },
                _ => continue,
            };
            let def = self.define(kind, name, whole, Some(id));
            self.index.defs[def].docs = docs(&entry.docs);
            let members = self.members_mut(id);
            let names = match kind {
                Kind::Size => &mut members.statics,
                _ => &mut members.values,
            };
            names.entry(name.name.clone()).or_insert(def);
        }
        let forward = layer.body.entries.iter().find_map(|e| match &e.kind {
            EntryKind::Func(f) => Some(f),
            _ => None,
        });
        if let Some(forward) = forward {
            self.collect_forward(id, forward);
        }
    }

    fn collect_forward(&mut self, layer: DefId, forward: &ast::Func) {
        for field in &forward.fields {
            let input = self.define(Kind::Argument, &field.name, field.span, Some(layer));
            self.members_mut(layer).inputs.push(input);
            let Some(ast::Kind::Tensor(shape)) = &field.kind else { continue };
            for axis in &shape.axes {
                let AxisKind::Size(Expr { kind: ExprKind::Name(name), .. }) = &axis.kind else {
                    continue;
                };
                self.free_axis(layer, name);
            }
        }
    }

    /// A name of a shape that the header does not know.
    pub(super) fn free_axis(&mut self, layer: DefId, name: &Ident) {
        let members = self.members_mut(layer);
        if !members.statics.contains_key(&name.name) && !members.free.contains_key(&name.name) {
            let axis = self.define(Kind::FreeAxis, name, name.span, Some(layer));
            self.members_mut(layer).free.insert(name.name.clone(), axis);
        }
    }

    /// Whether a value of a layer's body is a sublayer, by its looks: a size has none of them.
    fn is_sublayer(&self, file: u32, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Paren(inner) => self.is_sublayer(file, inner),
            ExprKind::Index(..) => true,
            ExprKind::Call(callee, _) => match &callee.kind {
                ExprKind::Name(name) => {
                    name.name == "repeat" || self.looks_like_a_layer(file, &name.name)
                }
                _ => self.is_sublayer(file, callee),
            },
            ExprKind::Name(name) => self.looks_like_a_layer(file, &name.name),
            ExprKind::Member(_, member) => member.name.starts_with(|c: char| c.is_uppercase()),
            ExprKind::If(c) => self.is_sublayer(file, &c.yes) || self.is_sublayer(file, &c.no),
            _ => false,
        }
    }

    /// A layer of any file read so far, or an import that a layer may come by.
    fn looks_like_a_layer(&self, file: u32, name: &str) -> bool {
        let items = self.files.get(file as usize).map(|f| f.tree.items.as_slice());
        items.unwrap_or_default().iter().any(|item| match &item.kind {
            ItemKind::Layer(l) => l.name.name == name,
            ItemKind::Import(i) => imports(i, name) && name.starts_with(char::is_uppercase),
            _ => false,
        })
    }

    /// Second pass: names from other files.
    pub(super) fn imports(&mut self) {
        let files = self.files;
        for (file, tree) in files.iter().enumerate() {
            for item in &tree.tree.items {
                if let ItemKind::Import(import) = &item.kind {
                    self.import(file, import);
                }
            }
        }
    }

    fn import(&mut self, file: usize, import: &ast::Import) {
        let target = self.files[file].imports.get(&import.span).cloned();
        let Some((module, member)) = target else { return };
        // The definitions of the files come first, in order.
        let module = module as DefId;
        match (&import.from, member) {
            (ImportFrom::Path { path, .. }, Some(name)) => {
                let Some(found) = self.member_named(module, &name) else { return };
                if let Some((last, before)) = path.parts.split_last() {
                    self.note(last.span, found);
                    if let (Some(a), Some(b)) = (before.first(), before.last()) {
                        self.note(a.span.to(b.span), module);
                    }
                    self.bring(file, import.alias.as_ref().unwrap_or(last), found, import);
                }
            }
            (ImportFrom::Path { path, names: Some(names) }, None) => {
                self.note(path.span, module);
                for name in names {
                    if let Some(found) = self.member_named(module, &name.name) {
                        self.note(name.span, found);
                        self.bring(file, name, found, import);
                    }
                }
            }
            (ImportFrom::Path { path, names: None }, None) => {
                self.note(path.span, module);
                if let Some(name) = import.alias.as_ref().or(path.parts.last()) {
                    self.bring(file, name, module, import);
                }
            }
            (ImportFrom::File { file: text, .. }, _) => {
                self.note(text.span, module);
                let name = file_name(text);
                self.bring(file, import.alias.as_ref().unwrap_or(&name), module, import);
            }
        }
    }

    /// Makes a name of another file one of this file.
    fn bring(&mut self, file: usize, name: &Ident, found: DefId, import: &ast::Import) {
        let mut id = found;
        if import.alias.as_ref().is_some_and(|alias| alias.span == name.span) {
            id = self.define(Kind::Alias, name, import.span, None);
            self.index.defs[id].target = Some(found);
        }
        if let Some(scope) = self.index.scopes.get_mut(file) {
            scope.entry(name.name.clone()).or_insert(id);
        }
    }
}

fn imports(import: &ast::Import, name: &str) -> bool {
    if let Some(alias) = &import.alias {
        return alias.name == name;
    }
    match &import.from {
        ImportFrom::Path { names: Some(names), .. } => names.iter().any(|n| n.name == name),
        ImportFrom::Path { path, names: None } => path.parts.last().is_some_and(|p| p.name == name),
        ImportFrom::File { .. } => false,
    }
}

/// The name that a file is known by: `hooks/my-alerts.mon` is `my_alerts`.
fn file_name(file: &ast::Str) -> Ident {
    let name = file.value.rsplit('/').next().unwrap_or(&file.value);
    let name = name.split('.').next().unwrap_or(name).replace('-', "_");
    Ident { name, span: file.span }
}
