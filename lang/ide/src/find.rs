//! What stands at a place of the tree: the setting, the block, the number.

use std::borrow::Cow;

use monarch_syntax::ast::{
    self, Block, Body, EntryKind, Expr, ExprKind, Ident, IndexKind, ItemKind, Number, RecordEntry,
    Script, Stmt,
};

/// A word of the registry at a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Word<'t> {
    /// What is set, with the kind of the block that it stands in.
    Setting { block: &'t str, path: Cow<'t, ast::Path> },
    /// The kind of a block, with that of the block around it.
    Block { kind: &'t Ident, around: Option<&'t str> },
    /// An event, as `eval.done`.
    Event(&'t ast::Path),
}

/// The word of the registry that holds byte `at`.
pub fn word(tree: &ast::File, at: u32) -> Option<Word<'_>> {
    let item = tree.items.iter().find(|i| holds(i.span, at))?;
    match &item.kind {
        ItemKind::Block(block) => in_block(block, None, at),
        _ => None,
    }
}

fn holds(span: monarch_graph::Span, at: u32) -> bool {
    span.start <= at && at <= span.end
}

fn in_block<'t>(block: &'t Block, around: Option<&'t str>, at: u32) -> Option<Word<'t>> {
    if holds(block.kind.span, at) {
        return Some(Word::Block { kind: &block.kind, around });
    }
    in_body(block.body.as_ref()?, &block.kind.name, at)
}

fn in_body<'t>(body: &'t Body, block: &'t str, at: u32) -> Option<Word<'t>> {
    let entry = body.entries.iter().find(|e| holds(e.span, at))?;
    match &entry.kind {
        EntryKind::Assign(a) => {
            let name = a.path.parts.first()?;
            match holds(a.path.span, at) {
                true => Some(Word::Setting { block, path: Cow::Borrowed(&a.path) }),
                false => in_body(a.body.as_ref()?, &name.name, at)
                    .or_else(|| in_record(&a.value, &name.name, at)),
            }
        }
        EntryKind::Block(b) => in_block(b, Some(block), at),
        EntryKind::Func(f) if holds(f.name.span, at) => {
            let path = ast::Path { span: f.name.span, parts: vec![f.name.clone()] };
            Some(Word::Setting { block, path: Cow::Owned(path) })
        }
        EntryKind::Hook(h) if holds(h.event.span, at) => Some(Word::Event(&h.event)),
        _ => None,
    }
}

fn in_record<'t>(value: &'t Expr, block: &'t str, at: u32) -> Option<Word<'t>> {
    let ExprKind::Record(record) = &value.kind else { return None };
    record.entries.iter().find_map(|entry| match entry {
        RecordEntry::Assign(a) if holds(a.path.span, at) => {
            Some(Word::Setting { block, path: Cow::Borrowed(&a.path) })
        }
        _ => None,
    })
}

/// Calls `found` with every expression of a file, outermost first.
pub fn expressions<'t>(tree: &'t ast::File, found: &mut dyn FnMut(&'t Expr)) {
    for item in &tree.items {
        match &item.kind {
            ItemKind::Param(p) => p.default.iter().chain(&p.range).for_each(|e| expr(e, found)),
            ItemKind::Let(b) => expr(&b.value, found),
            ItemKind::Layer(l) => {
                for field in l.dims.iter().chain(&l.fields).flatten() {
                    field.default.iter().for_each(|e| expr(e, found));
                }
                body(&l.body, found);
            }
            ItemKind::Test(t) => script(&t.script, found),
            ItemKind::Block(b) => block(b, found),
            ItemKind::Import(_) | ItemKind::Op(_) | ItemKind::Broken(_) => {}
        }
    }
}

fn block<'t>(b: &'t Block, found: &mut dyn FnMut(&'t Expr)) {
    b.value.iter().for_each(|e| expr(e, found));
    b.body.iter().for_each(|inner| body(inner, found));
}

fn body<'t>(b: &'t Body, found: &mut dyn FnMut(&'t Expr)) {
    for entry in &b.entries {
        match &entry.kind {
            EntryKind::Hook(h) => {
                h.args.iter().for_each(|a| expr(&a.value, found));
                expr(&h.action, found);
            }
            EntryKind::Weight(w) => expr(&w.init, found),
            EntryKind::Func(f) => script(&f.script, found),
            EntryKind::Rule(r) => expr(&r.to, found),
            EntryKind::Assign(a) => {
                expr(&a.value, found);
                a.body.iter().for_each(|inner| body(inner, found));
            }
            EntryKind::Block(inner) => block(inner, found),
            EntryKind::Broken(_) => {}
        }
    }
}

fn script<'t>(s: &'t Script, found: &mut dyn FnMut(&'t Expr)) {
    for stmt in &s.stmts {
        match stmt {
            Stmt::Let(bind) => expr(&bind.value, found),
            Stmt::Assert(assert) => expr(&assert.condition, found),
            Stmt::Broken(_) => {}
        }
    }
    s.value.iter().for_each(|e| expr(e, found));
}

fn expr<'t>(e: &'t Expr, found: &mut dyn FnMut(&'t Expr)) {
    found(e);
    match &e.kind {
        ExprKind::List(all) | ExprKind::Tuple(all) => all.iter().for_each(|e| expr(e, found)),
        ExprKind::Record(record) => {
            for entry in &record.entries {
                match entry {
                    RecordEntry::Assign(a) => expr(&a.value, found),
                    RecordEntry::Rule(r) => expr(&r.to, found),
                    RecordEntry::Broken(_) => {}
                }
            }
        }
        ExprKind::Paren(e) | ExprKind::Member(e, _) | ExprKind::Unary(_, _, e) => expr(e, found),
        ExprKind::Call(callee, args) => {
            expr(callee, found);
            args.iter().for_each(|a| expr(&a.value, found));
        }
        ExprKind::Index(base, index) => {
            expr(base, found);
            if let IndexKind::Axes(args) = &index.kind {
                for arg in args {
                    if let ast::AxisKind::Size(size) = &arg.axis.kind {
                        expr(size, found);
                    }
                }
            }
        }
        ExprKind::Binary(_, _, a, b) => {
            expr(a, found);
            expr(b, found);
        }
        ExprKind::If(c) => {
            expr(&c.condition, found);
            expr(&c.yes, found);
            expr(&c.no, found);
        }
        ExprKind::Number(_)
        | ExprKind::Str(_)
        | ExprKind::Rhai(_)
        | ExprKind::Name(_)
        | ExprKind::Broken => {}
    }
}

/// The number with a unit that holds byte `at`.
pub fn number(tree: &ast::File, at: u32) -> Option<(&Number, monarch_graph::Span)> {
    let mut best = None;
    expressions(tree, &mut |e| {
        if let ExprKind::Number(number) = &e.kind
            && holds(e.span, at)
        {
            best = Some((number, e.span));
        }
    });
    best
}
