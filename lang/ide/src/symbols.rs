//! The outline of a program.

use crate::index::Kind;
use monarch_graph::Span;
use monarch_syntax::ast::{Block, Body, EntryKind, File, ItemKind, Pattern};

/// One line of the outline.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    pub name: String,
    /// `[3, D, H, K]`, `train`
    pub detail: String,
    pub kind: Kind,
    pub whole: Span,
    /// Of its name, within `whole`.
    pub name_span: Span,
    pub children: Vec<Symbol>,
}

/// The outline of a file; `slice` gives the text under a span.
pub fn symbols<'t>(tree: &File, slice: &dyn Fn(Span) -> &'t str) -> Vec<Symbol> {
    let mut out = Vec::new();
    for item in &tree.items {
        let whole = item.span;
        let symbol = match &item.kind {
            ItemKind::Param(p) => {
                let detail = slice(p.kind.span()).to_owned();
                leaf(&p.name.name, detail, Kind::Param, whole, p.name.span)
            }
            ItemKind::Let(b) => match &b.pattern {
                Pattern::One(name) => {
                    leaf(&name.name, String::new(), Kind::Constant, whole, name.span)
                }
                Pattern::Many(..) => continue,
            },
            ItemKind::Layer(l) => {
                let header = Span { start: l.name.span.end, end: l.body.span.start, ..l.span };
                let detail = slice(header).trim().to_owned();
                let mut symbol = leaf(&l.name.name, detail, Kind::Layer, whole, l.name.span);
                symbol.children = entries(&l.body, slice);
                symbol
            }
            ItemKind::Op(o) => leaf(&o.name.name, String::new(), Kind::Op, whole, o.name.span),
            ItemKind::Test(t) => {
                let name = format!("test {}", slice(t.name.span));
                leaf(&name, String::new(), Kind::Local, whole, t.name.span)
            }
            ItemKind::Block(b) => block(b, whole, slice),
            ItemKind::Import(_) | ItemKind::Broken(_) => continue,
        };
        out.push(symbol);
    }
    out
}

fn leaf(name: &str, detail: String, kind: Kind, whole: Span, name_span: Span) -> Symbol {
    // A name that is not there yet still needs a word in the outline.
    let name = if name.is_empty() { "?".to_owned() } else { name.to_owned() };
    Symbol { name, detail, kind, whole, name_span, children: Vec::new() }
}

fn block<'t>(b: &Block, whole: Span, slice: &dyn Fn(Span) -> &'t str) -> Symbol {
    let kind = match b.kind.name.as_str() {
        "model" => Kind::Model,
        "data" => Kind::Data,
        "cluster" => Kind::Cluster,
        "plan" => Kind::Plan,
        "sweep" => Kind::Sweep,
        _ => Kind::Train,
    };
    let mut symbol = match &b.name {
        Some(name) => leaf(&name.name, b.kind.name.clone(), kind, whole, name.span),
        None => leaf(&b.kind.name, String::new(), kind, whole, b.kind.span),
    };
    symbol.children = b.body.iter().flat_map(|body| entries(body, slice)).collect();
    symbol
}

fn entries<'t>(body: &Body, slice: &dyn Fn(Span) -> &'t str) -> Vec<Symbol> {
    let mut out = Vec::new();
    for entry in &body.entries {
        out.push(match &entry.kind {
            EntryKind::Weight(w) => {
                let detail = slice(w.shape.span).to_owned();
                leaf(&w.name.name, detail, Kind::Weight, entry.span, w.name.span)
            }
            EntryKind::Func(f) => {
                leaf(&f.name.name, String::new(), Kind::Op, entry.span, f.name.span)
            }
            EntryKind::Assign(a) => {
                let value = slice(a.value.span).lines().next().unwrap_or("").to_owned();
                leaf(&a.path.text(), value, Kind::Field, entry.span, a.path.span)
            }
            EntryKind::Block(b) => block(b, entry.span, slice),
            EntryKind::Hook(h) => {
                let name = format!("on {}", h.event.text());
                leaf(&name, String::new(), Kind::Metric, entry.span, h.event.span)
            }
            EntryKind::Rule(_) | EntryKind::Broken(_) => continue,
        });
    }
    out
}
