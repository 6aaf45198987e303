//! In braces: settings of a block, entries of a layer, statements of a function.

use super::names::{axes, layers, of_kinds, of_module, ops, values};
use super::{Completion, CompletionKind};
use crate::analysis::Analysis;
use crate::context::{Context, entries_after};
use crate::hover::words::setting as setting_doc;
use crate::index::Kind;
use monarch_check::events::{ACTIONS, CallDoc, EVENTS, FAULTS, RESPONSES};
use monarch_check::registry::{BlockDoc, Form, SettingDoc, block_doc};

pub(super) fn in_braces(analysis: &Analysis, context: &Context, offset: usize) -> Vec<Completion> {
    let Some(frame) = context.frame() else { return Vec::new() };
    let word = frame.head.first().map(String::as_str).unwrap_or("");
    let entry: Vec<&str> = context.entry.iter().map(String::as_str).collect();
    let depth = context.frames.len();
    let function = frame.head.iter().any(|t| t == ")") && word != "model" && word != "data";
    match (word, depth) {
        ("layer", 1) => return in_layer(analysis, context, offset, &entry),
        ("test", 1) => return statements(analysis, context, offset, &entry, true),
        _ if function || matches!(word, "forward" | "if" | "else" | "let") => {
            return statements(analysis, context, offset, &entry, false);
        }
        _ => {}
    }
    if word == "shard" {
        return shards(analysis, &entry);
    }
    let Some(block) = block_doc(word) else {
        return match entry.contains(&"=") || entry.contains(&"->") {
            true => words_of(analysis, context, offset, None),
            false => Vec::new(),
        };
    };
    match entry.as_slice() {
        [] => {
            let mut given = frame.given.clone();
            given.extend(entries_after(analysis.text(), context.word.end));
            settings(block, &given)
        }
        ["on"] => events(analysis),
        ["on", .., "=>"] => calls(ACTIONS),
        _ if block.name == "fault" && entry.contains(&"=") => responses(&entry),
        [name, "=", ..] => value(analysis, context, offset, block, name),
        _ => values(analysis, context, offset),
    }
}

fn settings(block: &BlockDoc, given: &[String]) -> Vec<Completion> {
    let open = block.settings.iter().filter(|s| !given.iter().any(|g| g == s.name));
    let mut out: Vec<Completion> = open.map(|s| setting(block, s)).collect();
    if block.hooks {
        let on = Completion::new("on", CompletionKind::Keyword, 5);
        out.push(on.detail("a rule: `on event => action`").insert("on $0"));
    }
    out
}

fn setting(block: &BlockDoc, doc: &SettingDoc) -> Completion {
    let (kind, insert) = match doc.form {
        Form::Value => (CompletionKind::Setting, format!("{} = ", doc.name)),
        Form::Block => (CompletionKind::Block, format!("{} {{ $0 }}", doc.name)),
        Form::Function => (CompletionKind::Setting, format!("{}($0) = ", doc.name)),
    };
    let rank = if doc.later { 6 } else { 0 };
    let mut detail = doc.takes.to_owned();
    if let Some(default) = doc.default {
        detail.push_str(&format!(" [default: {default}]"));
    }
    let item = Completion::new(doc.name, kind, rank).detail(detail);
    item.docs(setting_doc(block.name, doc)).insert(insert)
}

fn events(analysis: &Analysis) -> Vec<Completion> {
    let mut out = calls(EVENTS);
    out.extend(choices(&["loss", "eval.loss"], "a metric"));
    let metrics = analysis.index.defs.iter().filter(|d| d.kind == Kind::Metric);
    for metric in metrics {
        let label = format!("eval.{}", metric.name);
        out.push(Completion::new(label, CompletionKind::Choice, 0).detail("a metric"));
    }
    out
}

/// Events, actions or responses, with what they take.
fn calls(table: &'static [CallDoc]) -> Vec<Completion> {
    let call = |c: &CallDoc| {
        let call = Completion::new(c.name, CompletionKind::Choice, 0);
        call.detail(c.signature()).docs(c.doc)
    };
    table.iter().map(call).collect()
}

/// What may follow the fault that an entry names.
fn responses(entry: &[&str]) -> Vec<Completion> {
    let fault: String = entry.iter().take_while(|t| **t != "=").copied().collect();
    let fits = FAULTS.iter().find(|f| f.0 == fault).map(|f| f.1);
    let mut out = calls(RESPONSES);
    out.retain(|c| fits.is_none_or(|fits| fits.contains(&c.label.as_str())));
    if entry.last().is_some_and(|t| *t != "=" && *t != "then") {
        out.push(Completion::new("then", CompletionKind::Keyword, 0).detail("if that fails"));
    }
    out
}

fn choices(words: &[&str], detail: &str) -> Vec<Completion> {
    let choice = |word: &&str| Completion::new(*word, CompletionKind::Choice, 0).detail(detail);
    words.iter().map(choice).collect()
}

/// The value of a setting, judged by what it takes.
fn value(
    analysis: &Analysis,
    context: &Context,
    offset: usize,
    block: &BlockDoc,
    name: &str,
) -> Vec<Completion> {
    let takes = block.setting(name).map_or("", |s| s.takes);
    if takes == "true or false" {
        return choices(&["true", "false"], "");
    }
    match (block.name, name) {
        ("train", "model") => of_kinds(analysis, &[Kind::Model]),
        ("train", "data") => {
            let mut out = of_kinds(analysis, &[Kind::Data]);
            out.extend(ops(analysis, context, offset, "data"));
            out
        }
        ("train", "optim") => ops(analysis, context, offset, "optimizer"),
        ("train", "lr") => {
            let mut out = ops(analysis, context, offset, "schedule");
            out.extend(of_kinds(analysis, &[Kind::Param, Kind::Constant]));
            if context.entry.len() > 2 {
                out.push(
                    Completion::new("then", CompletionKind::Keyword, 0).detail("what follows"),
                );
            }
            out
        }
        _ => words_of(analysis, context, offset, Some((block, name))),
    }
}

/// Words that a setting takes, if it takes words, and values.
fn words_of(
    analysis: &Analysis,
    context: &Context,
    offset: usize,
    setting: Option<(&BlockDoc, &str)>,
) -> Vec<Completion> {
    let doc = setting.and_then(|(block, name)| block.setting(name));
    let mut out = Vec::new();
    // `chars`, `"safetensors" or "bin"`, `replace, shrink, stop`: single words are choices.
    if let Some(doc) = doc {
        let parts = doc.takes.split([',', '|']).flat_map(|part| part.split(" or "));
        for part in parts.map(str::trim) {
            let word = part.trim_matches('`');
            let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '"'));
            let choice = plain && !word.is_empty() && !NOUNS.contains(&word);
            if choice {
                out.push(Completion::new(word, CompletionKind::Choice, 0).docs(doc.doc));
            }
        }
    }
    let _ = (context, offset);
    let kinds = [Kind::Param, Kind::Constant, Kind::Model, Kind::Data, Kind::Module];
    out.extend(of_kinds(analysis, &kinds));
    out
}

/// Axes of all layers, and of the mesh: what `shard { H -> tp }` speaks of.
fn shards(analysis: &Analysis, entry: &[&str]) -> Vec<Completion> {
    let wanted = match entry.contains(&"->") {
        true => &[Kind::MeshAxis][..],
        false => &[Kind::Axis, Kind::FreeAxis, Kind::Size],
    };
    let defs = analysis.index.defs.iter().filter(|d| wanted.contains(&d.kind));
    let axis = |d: &crate::index::Def| {
        let owner = d.owner.and_then(|o| analysis.index.def(o)).map_or("", |o| o.name.as_str());
        let axis = Completion::new(&d.name, CompletionKind::Name(d.kind), 0);
        axis.detail(format!("{} of {owner}", d.kind.noun()))
    };
    defs.filter(|d| !d.name.is_empty()).map(axis).collect()
}

/// Words of `takes` that say what is needed, and are not to be typed.
const NOUNS: &[&str] = &[
    "steps", "epochs", "time", "samples", "tokens", "shares", "settings", "columns", "trials",
    "each", "bytes", "names",
];

fn in_layer(
    analysis: &Analysis,
    context: &Context,
    offset: usize,
    entry: &[&str],
) -> Vec<Completion> {
    match entry {
        [] => {
            let forward = Completion::new("forward", CompletionKind::Setting, 0);
            let forward = forward.detail("what the layer does");
            vec![forward.insert("forward(x: [B, $0]) -> [B, ] = ")]
        }
        [.., "~"] => {
            let mut out = ops(analysis, context, offset, "init");
            out.retain(|c| c.rank < 7);
            out
        }
        [_, "=", ..] => {
            let mut out = layers(analysis, context, offset);
            out.extend(axes(analysis, context, offset));
            out
        }
        _ => values(analysis, context, offset),
    }
}

fn statements(
    analysis: &Analysis,
    context: &Context,
    offset: usize,
    entry: &[&str],
    test: bool,
) -> Vec<Completion> {
    if matches!(entry, ["let"] | ["let", _]) {
        return Vec::new();
    }
    let mut out = values(analysis, context, offset);
    if entry.is_empty() {
        out.push(Completion::new("let", CompletionKind::Keyword, 6).insert("let $0"));
        if test {
            out.push(Completion::new("assert", CompletionKind::Keyword, 6).insert("assert $0"));
        }
    }
    if test {
        out.extend(of_module(analysis, monarch_check::inspect::test_prelude()));
    }
    out
}
