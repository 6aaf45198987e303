//! What may be typed at the cursor.

mod names;
mod settings;

use crate::analysis::Analysis;
use crate::context::{Context, context};
use crate::index::{DefId, Kind};
use monarch_check::inspect::{multiples, param_kinds, units};
use monarch_graph::Span;

/// What a completion is, for its icon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    Keyword,
    Setting,
    Block,
    Unit,
    /// One of a few words that a setting takes.
    Choice,
    Argument,
    /// A name of the program or of the library.
    Name(Kind),
}

/// One thing that may be typed.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    pub label: String,
    pub kind: CompletionKind,
    /// One line: a type, a value, what a setting takes.
    pub detail: String,
    /// Markdown.
    pub docs: String,
    /// Takes the place of the word at the cursor; `$0` is where the cursor goes, if it is in it.
    pub insert: String,
    /// Lower comes first.
    pub rank: u8,
}

impl Completion {
    fn new(label: impl Into<String>, kind: CompletionKind, rank: u8) -> Completion {
        let label = label.into();
        let insert = label.clone();
        Completion { label, kind, detail: String::new(), docs: String::new(), insert, rank }
    }

    fn detail(self, detail: impl Into<String>) -> Completion {
        Completion { detail: detail.into(), ..self }
    }

    fn docs(self, docs: impl Into<String>) -> Completion {
        Completion { docs: docs.into(), ..self }
    }

    fn insert(self, insert: impl Into<String>) -> Completion {
        Completion { insert: insert.into(), ..self }
    }
}

/// What may be typed at byte `offset` of the program, and the word that it takes the place of.
pub fn complete(analysis: &Analysis, offset: usize) -> (Span, Vec<Completion>) {
    let text = analysis.text();
    let context = context(text, offset);
    let span = Span::new(0, context.word.start, context.word.end);
    if context.inert {
        return (span, Vec::new());
    }
    let mut found = candidates(analysis, &context, offset);
    // What is being typed may be a definition that has no name yet.
    found.retain(|c| !c.label.is_empty());
    found.sort_by(|a, b| (a.rank, &a.label).cmp(&(b.rank, &b.label)));
    found.dedup_by(|a, b| a.label == b.label);
    (span, found)
}

fn candidates(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    if context.after_number {
        return unit_names(context);
    }
    if let Some(found) = imports(analysis, context) {
        return found;
    }
    if context.last() == Some(".") {
        return names::members(analysis, context, offset);
    }
    match context.frame().map(|f| f.open) {
        None => top(analysis, context, offset),
        Some(b'{') => settings::in_braces(analysis, context, offset),
        Some(b'[') => names::in_brackets(analysis, context, offset),
        Some(_) => names::in_call(analysis, context, offset),
    }
}

/// `use std.`, `use std.nn.`, `use std.nn.{`
fn imports(analysis: &Analysis, context: &Context) -> Option<Vec<Completion>> {
    let (tokens, braces) = match context.frame() {
        None => (&context.entry, false),
        Some(frame) => (&frame.head, true),
    };
    if tokens.first().is_none_or(|t| t != "use") || context.frames.len() > 1 {
        return None;
    }
    let typed: String = tokens.iter().skip(1).map(String::as_str).collect();
    if tokens.len() > 1 && !typed.ends_with('.') {
        return Some(vec![Completion::new("as", CompletionKind::Keyword, 0)]);
    }
    let module = typed.trim_end_matches('.');
    let given = context.frame().map(|f| f.given.as_slice()).unwrap_or_default();
    let mut out: Vec<Completion> = names::of_module(analysis, module);
    out.retain(|c| !given.contains(&c.label));
    if !braces {
        for (name, text) in monarch_check::library::MODULES {
            let rest = match typed.is_empty() {
                true => Some(*name),
                false => name.strip_prefix(&typed),
            };
            let docs = text.lines().next().unwrap_or("").trim_start_matches(['#', ' ']);
            if let Some(rest) = rest {
                let module = Completion::new(rest, CompletionKind::Name(Kind::Module), 0);
                out.push(module.detail(*name).docs(docs));
            }
        }
    }
    Some(out)
}

/// Units after a number.
fn unit_names(context: &Context) -> Vec<Completion> {
    let number = context.last().unwrap_or("");
    let gap = if context.word.is_empty() && !number.is_empty() { "" } else { " " };
    let mut out = Vec::new();
    for (name, unit, _) in units() {
        let singular = name.len() > 2 && !name.ends_with('s') && !name.contains(['/', 'B']);
        // `1 step`, `5 steps`.
        let plural = number != "1";
        let counts =
            units().iter().any(|u| u.0 == format!("{name}s") || u.0 == format!("{name}es"));
        if singular && plural && counts {
            continue;
        }
        let doc = format!("{}, as in `{}`", unit.label(), unit.example());
        out.push(Completion::new(*name, CompletionKind::Unit, 0).detail(unit.noun()).docs(doc));
    }
    for (multiple, scale) in multiples() {
        for noun in ["tokens", "steps"] {
            let label = format!("{multiple} {noun}");
            let doc = format!("{scale:e} {noun}");
            out.push(Completion::new(label, CompletionKind::Unit, 1).detail(doc));
        }
    }
    let _ = gap;
    out
}

/// The start of an item, or a value at the top level.
fn top(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let entry: Vec<&str> = context.entry.iter().map(String::as_str).collect();
    match entry.as_slice() {
        [] => items(),
        ["param", _, ":"] => kinds(),
        ["model", _, "="] => names::layers(analysis, context, offset),
        ["data", _, "="] => names::ops(analysis, context, offset, "data"),
        [kind, _] if monarch_check::registry::block_doc(kind).is_some() || *kind == "plan" => {
            vec![Completion::new("on", CompletionKind::Keyword, 1)]
        }
        ["train" | "sweep" | "plan", _, "on"] => {
            names::of_kinds(analysis, &[Kind::Plan, Kind::Cluster, Kind::Train])
        }
        _ if entry.contains(&"=") => names::values(analysis, context, offset),
        _ => Vec::new(),
    }
}

fn kinds() -> Vec<Completion> {
    let kind = |(name, unit): (&'static str, Option<monarch_check::hir::Unit>)| {
        let docs = match (name, unit) {
            (_, Some(unit)) => format!("{}, as in `{}`", unit.label(), unit.example()),
            ("int", _) => "a whole number".to_owned(),
            ("dim", _) => "a size: a whole number from 1".to_owned(),
            ("float", _) => "a number".to_owned(),
            ("bool", _) => "`true` or `false`".to_owned(),
            ("path", _) => "a file, or a pattern of files".to_owned(),
            _ => "a text".to_owned(),
        };
        Completion::new(name, CompletionKind::Choice, 0).detail(docs)
    };
    param_kinds().into_iter().map(kind).collect()
}

/// What an item can begin with.
fn items() -> Vec<Completion> {
    const WORDS: &[(&str, &str, &str)] = &[
        ("use", "a name of the library or of a file", "use std.$0"),
        ("param", "a value that the command line may change", "param $0"),
        ("let", "a constant", "let $0"),
        ("layer", "sizes, weights and a function", "layer $0"),
        ("test", "something that must hold", "test \"$0\" {\n}"),
    ];
    let word = |(label, detail, insert): &(&str, &str, &str)| {
        Completion::new(*label, CompletionKind::Keyword, 0).detail(*detail).insert(*insert)
    };
    let mut out: Vec<Completion> = WORDS.iter().map(word).collect();
    let tops = ["cluster", "data", "model", "plan", "sweep", "train"];
    for name in tops {
        let doc = monarch_check::registry::block_doc(name).map_or("", |b| b.doc);
        let block = Completion::new(name, CompletionKind::Block, 0);
        out.push(block.detail(doc).insert(format!("{name} $0")));
    }
    out
}

/// What a name means where the cursor is.
pub(crate) fn named(
    analysis: &Analysis,
    context: &Context,
    offset: usize,
    name: &str,
) -> Option<DefId> {
    let index = &analysis.index;
    let layer = index.layer_around(0, offset as u32);
    let members = layer.and_then(|l| index.members.get(&l));
    let inner = members.and_then(|m| m.values.get(name).or_else(|| m.statics.get(name)));
    let top = || index.scopes.first().and_then(|s| s.get(name));
    let _ = context;
    let tests = || index.test_prelude.get(name);
    inner.or_else(top).or_else(|| index.prelude.get(name)).or_else(tests).copied()
}
