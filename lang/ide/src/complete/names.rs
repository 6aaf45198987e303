//! Names: of the file, of the item at hand, of the library.

use super::{Completion, CompletionKind, named};
use crate::analysis::Analysis;
use crate::context::Context;
use crate::index::{DefId, Kind};
use monarch_syntax::lex::{Tok, next};

/// A definition as a completion.
pub(super) fn of_def(analysis: &Analysis, id: DefId, name: &str, rank: u8) -> Completion {
    let index = &analysis.index;
    let target = index.follow(id);
    let Some(def) = index.def(target) else {
        return Completion::new(name, CompletionKind::Name(Kind::Local), rank);
    };
    let detail = match def.kind {
        Kind::Module => analysis.file_key(def.span.file).unwrap_or("").to_owned(),
        Kind::Local | Kind::Argument | Kind::Weight => {
            analysis.type_of(def.span).map_or(String::new(), |t| t.text.clone())
        }
        Kind::Param | Kind::Constant | Kind::Size | Kind::Axis | Kind::Field => {
            let fact = analysis.inspected.values.get(&def.span);
            let number = fact.and_then(|f| f.number).map(|n| n.to_string());
            let text = number.or_else(|| fact.map(|f| f.text.clone())).filter(|t| !t.is_empty());
            text.map_or(def.kind.noun().to_owned(), |t| format!("{} = {t}", def.kind.noun()))
        }
        _ => {
            let header = analysis.slice(def.header).split_whitespace().collect::<Vec<_>>();
            header.join(" ")
        }
    };
    Completion::new(name, CompletionKind::Name(def.kind), rank).detail(detail).docs(&*def.docs)
}

/// Names that a module defines.
pub(super) fn of_module(analysis: &Analysis, module: &str) -> Vec<Completion> {
    let files = &analysis.inspected.files;
    if let Some(file) = files.iter().position(|f| f.key == module) {
        let scope = analysis.index.scopes.get(file);
        let own = scope.into_iter().flatten().filter(|(_, id)| {
            let def = analysis.index.def(**id);
            def.is_some_and(|d| d.span.file == file as u32 && d.kind != Kind::Module)
        });
        return own.map(|(name, id)| of_def(analysis, *id, name, 1)).collect();
    }
    // Not read yet, since nothing imports it.
    let Some(text) = monarch_check::library::module(module) else { return Vec::new() };
    let (tree, _) = monarch_syntax::parse(u32::MAX, text);
    let slice =
        |span: monarch_graph::Span| text.get(span.start as usize..span.end as usize).unwrap_or("");
    let mut out = Vec::new();
    for item in &tree.items {
        let (name, header) = match &item.kind {
            monarch_syntax::ast::ItemKind::Layer(l) => {
                (&l.name, monarch_graph::Span { end: l.body.span.start, ..l.span })
            }
            monarch_syntax::ast::ItemKind::Op(o) => (&o.name, o.span),
            _ => continue,
        };
        let kind = match &item.kind {
            monarch_syntax::ast::ItemKind::Layer(_) => Kind::Layer,
            _ => Kind::Op,
        };
        let detail = slice(header).split_whitespace().collect::<Vec<_>>().join(" ");
        let found = Completion::new(&name.name, CompletionKind::Name(kind), 1);
        out.push(found.detail(detail).docs(crate::resolve::library_docs(&item.docs)));
    }
    out
}

/// Names of the top level, those known everywhere, and in tests those of tests.
fn visible<'a>(
    analysis: &'a Analysis,
    context: &Context,
) -> impl Iterator<Item = (&'a String, DefId, u8)> {
    let index = &analysis.index;
    let own = index.scopes.first().into_iter().flatten().map(|(n, id)| (n, *id, 3));
    let test = context.frames.first().is_some_and(|f| f.head.first().is_some_and(|t| t == "test"));
    let tests = index.test_prelude.iter().filter(move |_| test).map(|(n, id)| (n, *id, 4));
    own.chain(tests).chain(index.prelude.iter().map(|(n, id)| (n, *id, 5)))
}

fn filtered(
    analysis: &Analysis,
    context: &Context,
    keep: &dyn Fn(&crate::index::Def) -> bool,
) -> Vec<Completion> {
    let all = visible(analysis, context);
    let kept =
        all.filter(|(_, id, _)| analysis.index.def(analysis.index.follow(*id)).is_some_and(keep));
    kept.map(|(name, id, rank)| of_def(analysis, id, name, rank)).collect()
}

pub(super) fn of_kinds(analysis: &Analysis, kinds: &[Kind]) -> Vec<Completion> {
    filtered(analysis, &Context::default(), &|d| kinds.contains(&d.kind))
}

/// Layers, and the modules that have some.
pub(super) fn layers(analysis: &Analysis, context: &Context, _: usize) -> Vec<Completion> {
    let mut out = filtered(analysis, context, &|d| {
        matches!(d.kind, Kind::Layer | Kind::Module | Kind::Model)
    });
    if context.frames.iter().any(|f| f.head.first().is_some_and(|t| t == "layer")) {
        let repeat = Completion::new("repeat", CompletionKind::Keyword, 2);
        out.push(repeat.detail("copies of a layer, one after another").insert("repeat($0)"));
    }
    out
}

/// Functions of the library that give this: `optimizer`, `schedule`, `init`, `data`. Those that
/// are not imported yet come last and say where they are.
pub(super) fn ops(
    analysis: &Analysis,
    context: &Context,
    _: usize,
    result: &str,
) -> Vec<Completion> {
    let gives = |text: &str| text.trim_end().ends_with(&format!("-> {result}"));
    let mut out =
        filtered(analysis, context, &|d| d.kind == Kind::Op && gives(analysis.slice(d.header)));
    for (module, _) in monarch_check::library::MODULES {
        for mut other in of_module(analysis, module).into_iter().filter(|c| gives(&c.detail)) {
            if !out.iter().any(|c| c.label == other.label) {
                other.detail = format!("{}   (use {module}.{})", other.detail, other.label);
                other.rank = 7;
                out.push(other);
            }
        }
    }
    out
}

/// Values: names of the item at hand, of the file, and functions.
pub(super) fn values(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let mut out = local(analysis, context, offset);
    let layer = context.frames.first().and_then(|f| f.head.first()).is_some_and(|t| t == "layer");
    let usable = |kind: Kind| match layer {
        true => {
            matches!(kind, Kind::Op | Kind::Module | Kind::Param | Kind::Constant | Kind::Layer)
        }
        false => true,
    };
    out.extend(filtered(analysis, context, &|d| usable(d.kind)));
    for name in ["einsum", "rearrange"].iter().filter(|_| !context.frames.is_empty()) {
        let op = Completion::new(*name, CompletionKind::Name(Kind::Op), 4);
        out.push(op.docs(crate::hover::words::pattern_op(name)).insert(format!("{name}[$0]()")));
    }
    for word in ["true", "false"] {
        out.push(Completion::new(word, CompletionKind::Choice, 8));
    }
    out
}

/// Names of the item at hand: by the index where the item parses, and by its words where not.
fn local(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let index = &analysis.index;
    let mut out = Vec::new();
    if !in_function(context) {
        return out;
    }
    if let Some(members) = index.layer_around(0, offset as u32).and_then(|l| index.members.get(&l))
    {
        let names = members.values.iter().chain(&members.statics);
        out.extend(names.map(|(name, id)| of_def(analysis, *id, name, 2)));
    }
    let inner = index.defs.iter().enumerate().filter(|(_, d)| {
        matches!(d.kind, Kind::Local | Kind::Argument)
            && d.span.file == 0
            && context.item <= d.span.start as usize
            && (d.span.end as usize) < context.word.start
    });
    out.extend(inner.map(|(id, d)| of_def(analysis, id, &d.name, 1)));
    for name in typed_names(analysis.text(), context) {
        if !out.iter().any(|c| c.label == name) {
            out.push(Completion::new(name, CompletionKind::Name(Kind::Local), 1));
        }
    }
    out
}

/// Whether the names of an item are meant: in a layer, a test, a loss or a metric. Elsewhere what
/// stands before `=` is a setting.
fn in_function(context: &Context) -> bool {
    let heads =
        || context.frames.iter().map(|f| f.head.as_slice()).chain([context.entry.as_slice()]);
    let first = context.frames.first().and_then(|f| f.head.first());
    let item = first.is_some_and(|t| t == "layer" || t == "test");
    // `loss(..) = ..`, `accuracy(..) {`
    let function = |head: &[String]| {
        matches!(head, [_, close, rest @ ..]
        if close == ")" && rest.first().is_none_or(|t| t == "="))
    };
    item || heads().any(function)
}

/// Names that the item defines before the cursor, by the looks of its tokens: `let x`, `w: [..]`,
/// `attn = ..`.
fn typed_names(text: &str, context: &Context) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let (mut at, mut before) = (context.item, String::new());
    let mut depth = 0usize;
    loop {
        let token = next(text, at);
        if token.tok == Tok::End || token.start >= context.word.start {
            return out;
        }
        let word = token.text(text);
        let defines = match next(text, token.end) {
            after if after.start >= context.word.start => false,
            after => match after.text(text) {
                ":" => true,
                "=" => depth == 1,
                _ => false,
            },
        };
        if token.tok == Tok::Word && (before == "let" || defines) && word != "let" {
            out.push(word.to_owned());
        }
        match token.tok {
            Tok::Open(_) => depth += 1,
            Tok::Close(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = word.to_owned();
        at = token.end;
    }
}

/// Axes of the layer at hand.
pub(super) fn axes(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let index = &analysis.index;
    let mut out = Vec::new();
    if let Some(members) = index.layer_around(0, offset as u32).and_then(|l| index.members.get(&l))
    {
        let all = members.statics.iter().chain(&members.free);
        out.extend(all.map(|(name, id)| of_def(analysis, *id, name, 1)));
    }
    for name in typed_axes(analysis.text(), context) {
        if !out.iter().any(|c| c.label == name) {
            out.push(Completion::new(name, CompletionKind::Name(Kind::Axis), 1).detail("axis"));
        }
    }
    out
}

/// Words in square brackets of the item, before the cursor.
fn typed_axes(text: &str, context: &Context) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let (mut at, mut open) = (context.item, Vec::new());
    loop {
        let token = next(text, at);
        if token.tok == Tok::End || token.start >= context.word.start {
            return out;
        }
        let word = token.text(text);
        match token.tok {
            Tok::Open(bracket) => open.push(bracket),
            Tok::Close(_) => {
                open.pop();
            }
            Tok::Word if open.contains(&b'[') => {
                let known = out.iter().any(|name| name == word);
                if word.starts_with(|c: char| c.is_ascii_uppercase()) && !known {
                    out.push(word.to_owned());
                }
            }
            _ => {}
        }
        at = token.end;
    }
}

/// After a dot.
pub(super) fn members(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let index = &analysis.index;
    let mut path: Vec<&str> = Vec::new();
    let mut tokens = context.entry.iter().rev().map(String::as_str);
    while tokens.next() == Some(".") {
        match tokens.next() {
            Some(name) => path.push(name),
            None => return Vec::new(),
        }
    }
    let Some(mut at) = path.pop().and_then(|name| named(analysis, context, offset, name)) else {
        return Vec::new();
    };
    while let Some(name) = path.pop() {
        let layer = index.layer_of(at).and_then(|l| index.members.get(&l));
        match layer.and_then(|m| m.values.get(name)) {
            Some(inner) => at = *inner,
            None if name == "*" => {}
            None => return Vec::new(),
        }
    }
    let at = index.follow(at);
    let Some(def) = index.def(at) else { return Vec::new() };
    match def.kind {
        Kind::Module => {
            let key = analysis.file_key(def.span.file).unwrap_or("");
            of_module(analysis, key)
        }
        Kind::Data => {
            let member = |(name, doc): &(&str, &str)| {
                Completion::new(*name, CompletionKind::Name(Kind::Field), 0).detail(*doc)
            };
            [("V", "words of the vocabulary"), ("rows", "samples")].iter().map(member).collect()
        }
        Kind::Op => {
            let split = Completion::new("split", CompletionKind::Name(Kind::Op), 0);
            vec![split.detail("parts of the set").insert("split(train = 90%, eval = 10%)")]
        }
        Kind::Layer => {
            let load = Completion::new("load", CompletionKind::Name(Kind::Op), 0);
            vec![load.detail("weights from a file").insert("load(\"$0\")")]
        }
        Kind::Model | Kind::Sublayer => {
            let layer = def.target.and_then(|l| index.members.get(&l));
            let all = layer.into_iter().flat_map(|m| &m.values);
            all.map(|(name, id)| of_def(analysis, *id, name, 1)).collect()
        }
        _ => Vec::new(),
    }
}

/// In `(..)`: the arguments of what is called, and values.
pub(super) fn in_call(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let Some(frame) = context.frame() else { return Vec::new() };
    let callee = frame.head.iter().rev().find(|t| !matches!(t.as_str(), "]" | ")"));
    // `forward(x: `, `layer Name[D](depth: `
    if context.entry.iter().any(|t| t == ":") {
        return match frame.head.first().map(String::as_str) {
            Some("layer") => ["int", "float", "bool", "string"]
                .iter()
                .map(|k| Completion::new(*k, CompletionKind::Choice, 0))
                .collect(),
            _ => dtypes(),
        };
    }
    let def = callee.and_then(|name| named(analysis, context, offset, name));
    let def = def.map(|d| analysis.index.follow(d));
    let members = def.and_then(|d| analysis.index.members.get(&d));
    let argument = match context.entry.as_slice() {
        [name, equals] if equals == "=" => Some(name.as_str()),
        _ => None,
    };
    if let (Some(name), Some(members)) = (argument, members) {
        let axis = members
            .axis_args
            .iter()
            .any(|a| analysis.index.def(*a).is_some_and(|d| d.name == name));
        if axis {
            return axes(analysis, context, offset);
        }
    }
    let mut out = values(analysis, context, offset);
    if context.entry.is_empty() {
        for field in members.into_iter().flat_map(|m| &m.fields) {
            let Some(def) = analysis.index.def(*field) else { continue };
            if frame.given.contains(&def.name) {
                continue;
            }
            let text = analysis.slice(def.whole).to_owned();
            let argument = Completion::new(&def.name, CompletionKind::Argument, 0);
            out.push(argument.detail(text).insert(format!("{} = ", def.name)));
        }
    }
    if callee.is_some_and(|c| c == "repeat") {
        out.extend(layers(analysis, context, offset));
    }
    out
}

pub(super) fn dtypes() -> Vec<Completion> {
    let dtype = |(name, doc): &(&str, &str)| {
        let dtype = Completion::new(*name, CompletionKind::Choice, 0).detail(*doc);
        dtype.insert(format!("{name}[$0]"))
    };
    let all = [("f32", "floats of 32 bits"), ("i32", "whole numbers of 32 bits")];
    all.iter().map(dtype).collect()
}

/// In `[..]`: axes; for a layer also the names of its own.
pub(super) fn in_brackets(
    analysis: &Analysis,
    context: &Context,
    offset: usize,
) -> Vec<Completion> {
    let Some(frame) = context.frame() else { return Vec::new() };
    let mut out = axes(analysis, context, offset);
    let callee = frame.head.last().and_then(|name| named(analysis, context, offset, name));
    let callee = callee.map(|d| analysis.index.follow(d));
    let dims = callee.and_then(|d| analysis.index.members.get(&d)).map(|m| m.dims.as_slice());
    if context.entry.is_empty() {
        for dim in dims.unwrap_or_default() {
            let Some(def) = analysis.index.def(*dim) else { continue };
            if !frame.given.contains(&def.name) {
                let label = format!("{} = ", def.name);
                let axis = Completion::new(label, CompletionKind::Argument, 0);
                out.push(axis.detail(format!(
                    "axis {} of {}",
                    def.name,
                    frame.head.last().map_or("", |t| t)
                )));
            }
        }
    }
    let in_layer =
        context.frames.first().is_some_and(|f| f.head.first().is_some_and(|t| t == "layer"));
    if !in_layer {
        out.extend(values(analysis, context, offset));
    }
    out
}
