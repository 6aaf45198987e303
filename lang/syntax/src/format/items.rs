//! Items, entries and statements: what makes up rows.

use crate::ast::{
    Assign, Bind, Block, Body, Entry, EntryKind, ExprKind, Func, Hook, Import, ImportFrom, Item,
    ItemKind, Layer, Op, Param, Pattern, Rule, Script, Stmt, Test, Weight,
};

use super::cursor::{Cursor, Remark, set_right};
use super::doc::{Cells, Class, Doc, Note, Row, Rows};
use super::exprs::{after, hugs};

impl<'t> Cursor<'t> {
    pub fn item(&mut self, item: &Item) -> Cells<'t> {
        match &item.kind {
            ItemKind::Import(import) => Cells::other(self.import(import)),
            ItemKind::Param(param) => self.param(param),
            ItemKind::Let(bind) => self.bind(bind),
            ItemKind::Layer(layer) => Cells::other(self.layer(layer)),
            ItemKind::Op(op) => Cells::other(self.op(op)),
            ItemKind::Test(test) => Cells::other(self.test(test)),
            ItemKind::Block(block) => Cells::other(self.block(block)),
            ItemKind::Broken(_) => self.no_entry(),
        }
    }

    fn import(&mut self, import: &Import) -> Doc<'t> {
        let mut parts = vec![self.token("use"), Doc::Space];
        match &import.from {
            ImportFrom::Path { path, names } => {
                parts.push(self.path(path));
                if let Some(names) = names {
                    parts.push(self.token("."));
                    parts.push(self.list("{", names, "}", false, Self::ident));
                }
            }
            ImportFrom::File { file, pin } => {
                parts.push(self.string(file.span));
                if let Some(pin) = pin {
                    parts.extend([Doc::Space, self.token("sha256"), Doc::Space]);
                    parts.push(self.string(pin.span));
                }
            }
        }
        if let Some(alias) = &import.alias {
            parts.extend([Doc::Space, self.token("as"), Doc::Space, self.ident(alias)]);
        }
        Doc::many(parts)
    }

    fn param(&mut self, param: &Param) -> Cells<'t> {
        let keyword = self.token("param");
        let name = self.ident(&param.name);
        let name = Doc::many(vec![keyword, Doc::Space, name, self.token(":")]);
        let mut cells = vec![name, self.kind(&param.kind)];
        cells.push(match &param.default {
            Some(value) => {
                let sign = self.token("=");
                self.set(vec![sign], value, hugs(value))
            }
            None => Doc::empty(),
        });
        cells.push(match &param.range {
            Some(range) => {
                let word = self.token("in");
                self.set(vec![word], range, true)
            }
            None => Doc::empty(),
        });
        Cells { class: Class::Param, cells }
    }

    fn bind(&mut self, bind: &Bind) -> Cells<'t> {
        let keyword = self.token("let");
        let pattern = match &bind.pattern {
            Pattern::One(name) => self.ident(name),
            Pattern::Many(names, _) => self.list("[", names, "]", false, Self::ident),
        };
        let name = Doc::many(vec![keyword, Doc::Space, pattern]);
        let sign = self.token("=");
        let value = self.set(vec![sign], &bind.value, hugs(&bind.value));
        match &bind.pattern {
            Pattern::One(_) => Cells { class: Class::Let, cells: vec![name, value] },
            Pattern::Many(..) => Cells { class: Class::Other, cells: vec![name, value] },
        }
    }

    fn layer(&mut self, layer: &Layer) -> Doc<'t> {
        let mut parts = vec![self.token("layer"), Doc::Space, self.ident(&layer.name)];
        if let Some(dims) = &layer.dims {
            parts.push(self.fields("[", dims, "]"));
        }
        if let Some(fields) = &layer.fields {
            parts.push(self.fields("(", fields, ")"));
        }
        parts.extend([Doc::Space, self.body(&layer.body)]);
        Doc::many(parts)
    }

    fn op(&mut self, op: &Op) -> Doc<'t> {
        let mut parts = vec![self.token("op"), Doc::Space, self.ident(&op.name)];
        if let Some(dims) = &op.dims {
            parts.push(self.fields("[", dims, "]"));
        }
        parts.push(self.fields("(", &op.fields, ")"));
        if let Some(result) = &op.result {
            parts.extend([Doc::Space, self.token("->"), Doc::Space]);
            parts.push(Self::result(self.kind(result)));
        }
        Doc::many(parts)
    }

    fn test(&mut self, test: &Test) -> Doc<'t> {
        let mut parts = vec![self.token("test"), Doc::Space, self.string(test.name.span)];
        if let Some(code) = &test.rejects {
            parts.extend([Doc::Space, self.token("rejects"), Doc::Space, self.ident(code)]);
        }
        parts.extend([Doc::Space, self.script(&test.script)]);
        Doc::many(parts)
    }

    fn block(&mut self, block: &Block) -> Doc<'t> {
        let mut parts = vec![self.ident(&block.kind)];
        if let Some(name) = &block.name {
            parts.extend([Doc::Space, self.ident(name)]);
        }
        if let Some(on) = &block.on {
            parts.extend([Doc::Space, self.token("on"), Doc::Space, self.path(on)]);
        }
        if let Some(value) = &block.value {
            parts.extend([Doc::Space, self.token("=")]);
            let value_doc = self.expr(value);
            parts.push(after(value_doc, hugs(value)));
        }
        if let Some(body) = &block.body {
            parts.extend([Doc::Space, self.body(body)]);
        }
        Doc::many(parts)
    }

    fn body(&mut self, body: &Body) -> Doc<'t> {
        self.braces(body.entries.len(), true, |this, n| match body.entries.get(n) {
            Some(entry) => this.entry(entry),
            None => this.no_entry(),
        })
    }

    fn entry(&mut self, entry: &Entry) -> Cells<'t> {
        match &entry.kind {
            EntryKind::Hook(hook) => Cells::other(self.hook(hook)),
            EntryKind::Weight(weight) => self.weight(weight),
            EntryKind::Func(func) => Cells::other(self.func(func)),
            EntryKind::Rule(rule) => self.rule(rule),
            EntryKind::Assign(assign) => self.assign(assign),
            EntryKind::Block(Block { kind, name: None, on: None, value: None, body, .. }) => {
                let kind = self.ident(kind);
                let body = body.as_ref().map_or_else(Doc::empty, |body| self.body(body));
                Cells { class: Class::Block, cells: vec![kind, body] }
            }
            EntryKind::Block(block) => Cells::other(self.block(block)),
            EntryKind::Broken(_) => self.no_entry(),
        }
    }

    fn hook(&mut self, hook: &Hook) -> Doc<'t> {
        let mut parts = vec![self.token("on"), Doc::Space, self.path(&hook.event)];
        if self.is_next("(") {
            parts.push(self.args(&hook.args));
        }
        parts.extend([Doc::Space, self.token("=>")]);
        self.set(parts, &hook.action, hugs(&hook.action))
    }

    fn weight(&mut self, weight: &Weight) -> Cells<'t> {
        let name = self.ident(&weight.name);
        let name = Doc::many(vec![name, self.token(":")]);
        let shape = self.tensor(&weight.shape);
        let sign = self.token("~");
        let init = self.set(vec![sign], &weight.init, hugs(&weight.init));
        Cells { class: Class::Weight, cells: vec![name, shape, init] }
    }

    fn func(&mut self, func: &Func) -> Doc<'t> {
        let mut parts = vec![self.ident(&func.name), self.fields("(", &func.fields, ")")];
        if let Some(result) = &func.result {
            parts.extend([Doc::Space, self.token("->"), Doc::Space]);
            parts.push(Self::result(self.tensor(result)));
        }
        parts.push(Doc::Space);
        match (&func.script.value, func.short) {
            (Some(value), true) => {
                parts.push(self.token("="));
                let chosen = matches!(value.kind, ExprKind::If(_) | ExprKind::Rhai(_));
                self.set(parts, value, chosen)
            }
            _ => {
                parts.push(self.script(&func.script));
                Doc::many(parts)
            }
        }
    }

    pub fn rule(&mut self, rule: &Rule) -> Cells<'t> {
        let from = self.path(&rule.from);
        let sign = self.token("->");
        let to = self.set(vec![sign], &rule.to, hugs(&rule.to));
        Cells { class: Class::Rule, cells: vec![from, to] }
    }

    pub fn assign(&mut self, assign: &Assign) -> Cells<'t> {
        let path = self.path(&assign.path);
        let sign = self.token("=");
        let value = self.expr(&assign.value);
        let mut parts = vec![sign, after(value, hugs(&assign.value))];
        if let Some(body) = &assign.body {
            parts.extend([Doc::Space, self.body(body)]);
        }
        Cells { class: Class::Assign, cells: vec![path, Doc::many(parts)] }
    }

    fn script(&mut self, script: &Script) -> Doc<'t> {
        let count = script.stmts.len() + usize::from(script.value.is_some());
        self.braces(count, false, |this, n| match (script.stmts.get(n), &script.value) {
            (Some(Stmt::Let(bind)), _) => this.bind(bind),
            (Some(Stmt::Assert(assert)), _) => {
                let word = this.token("assert");
                let condition = this.expr(&assert.condition);
                Cells::other(Doc::many(vec![word, Doc::Space, condition]))
            }
            (None, Some(value)) => Cells::other(this.expr(value)),
            _ => this.no_entry(),
        })
    }

    /// `count` rows in braces; with `commas`, entries that the author wrote on one line share it.
    pub fn braces(
        &mut self,
        count: usize,
        commas: bool,
        each: impl FnMut(&mut Self, usize) -> Cells<'t>,
    ) -> Doc<'t> {
        let open = self.token("{");
        let mut rows = Rows { commas, broken: count > 0 && self.newline(), ..Rows::default() };
        let carried = self.rows(&mut rows, count, commas, each);
        let gap = self.gap();
        let mut tail = Vec::new();
        self.lead(carried.into_iter().chain(gap).collect(), &mut rows, &mut tail);
        rows.tail = tail;
        let close = self.token("}");
        Doc::many(vec![open, Doc::Rows(rows), close])
    }

    /// Rows until the last; the comments that stand before its comma, if it has one.
    pub fn rows(
        &mut self,
        rows: &mut Rows<'t>,
        count: usize,
        commas: bool,
        mut each: impl FnMut(&mut Self, usize) -> Cells<'t>,
    ) -> Vec<Remark<'t>> {
        let mut carried = Vec::new();
        let mut alone = true;
        for n in 0..count {
            let mut lead: Vec<Note> = Vec::new();
            let gap = self.gap();
            let own_line = alone || !commas || self.newline();
            let blank = self.blank();
            let all = std::mem::take(&mut carried).into_iter().chain(gap).collect();
            self.lead(all, rows, &mut lead);
            let cells = each(self, n);
            match rows.rows.last_mut() {
                Some(row) if !own_line && lead.is_empty() && row.right.is_none() => {
                    row.entries.push(cells);
                }
                _ => rows.rows.push(Row { lead, blank, entries: vec![cells], right: None }),
            }
            alone = n + 1 == count;
            if commas && self.is_next(",") {
                // The next entry is on this line only if its comma is.
                alone = self.newline();
                for remark in self.gap() {
                    // A doc would go over to the next entry.
                    self.failed |= !remark.right && remark.text.starts_with("##");
                    if !(remark.right && carried.is_empty() && set_right(rows, remark.text)) {
                        carried.push(Remark { right: false, ..remark });
                    }
                }
                self.pass(",");
            }
        }
        carried
    }
}
