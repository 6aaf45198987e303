//! What `monarch explain WORD` says: the settings of a block, the events, a name of the library.

mod markdown;

use crate::events::{ACTIONS, CallDoc, EVENTS, FAULTS, METRICS, RESPONSES, RHAI, SCRIPT, find};
use crate::library::MODULES;
use crate::registry::{BLOCKS, BlockDoc, Form, block_doc};
pub use markdown::markdown;
use std::fmt::Write;

/// What there is to know about a block (`train`), one of its settings (`train.batch`), `events`,
/// a module (`std.nn`) or a name in one (`Linear`, `std.nn.Linear`); a setting's name alone finds
/// all of that name.
pub fn about(word: &str) -> Option<String> {
    if word == "events" {
        return Some(events());
    }
    if word == "units" {
        return Some(crate::units::page());
    }
    if word == "hooks" {
        return Some(hooks());
    }
    if let Some(block) = block_doc(word) {
        return Some(block_page(block));
    }
    if let Some((block, setting)) = word.split_once('.')
        && let Some(block) = block_doc(block)
        && block.setting(setting).is_some()
    {
        return Some(rows(block, &|name| name == setting));
    }
    let with: Vec<&BlockDoc> = BLOCKS.iter().filter(|b| b.setting(word).is_some()).collect();
    if !with.is_empty() {
        let page = |b: &&BlockDoc| format!("in `{}`:\n{}", b.name, rows(b, &|n| n == word));
        let mut pages: Vec<String> = with.iter().map(page).collect();
        pages.extend(is_event(word).then(events));
        return Some(pages.join("\n"));
    }
    let is = |module: &str, word: &str| module == word || module.strip_prefix("std.") == Some(word);
    if let Some((module, text)) = MODULES.iter().find(|m| is(m.0, word)) {
        return Some(module_page(module, text));
    }
    let (module, name) = match word.rsplit_once('.') {
        Some((module, name)) => (Some(module), name),
        None => (None, word),
    };
    let wanted = MODULES.iter().filter(|m| module.is_none_or(|wanted| is(m.0, wanted)));
    let all = wanted.flat_map(|m| entries(m.1).into_iter().map(move |e| (m.0, e)));
    let mut found: Vec<String> = all
        .filter(|(_, e)| e.name == name)
        .map(|(home, e)| {
            format!("{}\n{}\nimport it with `use {home}.{}`\n", e.signature, e.doc(), e.name)
        })
        .collect();
    if !found.is_empty() {
        // `tokens` is a source of data and a unit.
        found.extend(crate::units::is_unit(word).then(crate::units::page));
        return Some(found.join("\n"));
    }
    if is_event(word) || find(ACTIONS, word).is_some() || word.starts_with("eval.") {
        return Some(events());
    }
    if find(RESPONSES, word).is_some() {
        return block_doc("fault").map(block_page);
    }
    if SCRIPT.iter().any(|f| f.name == word) || METRICS.iter().any(|m| m.0 == word) {
        return Some(hooks());
    }
    crate::units::is_unit(word).then(crate::units::page)
}

fn is_event(word: &str) -> bool {
    find(EVENTS, word).is_some()
}

/// What there is to read about, in groups: their titles and words.
pub fn topics() -> Vec<(&'static str, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let mut blocks: Vec<&str> = BLOCKS.iter().map(|b| b.name).collect();
    blocks.sort_unstable();
    let mut out = vec![
        ("Blocks and their settings", owned(&blocks)),
        ("Words of the language", owned(&["events", "hooks", "units"])),
    ];
    for (module, text) in MODULES {
        let names = entries(text).into_iter().map(|e| e.name.to_owned());
        out.push((module, names.collect()));
    }
    out
}

/// All words that [`about`] knows, for suggestions.
pub fn words() -> Vec<String> {
    let mut out = vec!["events".to_owned(), "hooks".to_owned(), "units".to_owned()];
    for block in BLOCKS {
        out.push(block.name.to_owned());
        out.extend(block.settings.iter().map(|s| format!("{}.{}", block.name, s.name)));
    }
    for (module, text) in MODULES {
        out.push((*module).to_owned());
        out.extend(entries(text).into_iter().map(|e| e.name.to_owned()));
    }
    out
}

fn events() -> String {
    let mut out = String::from(
        "`on EVENT(..) => ACTION` stands in a `train` block. ACTION is one of those below, a text\n\
         in Rhai between ```rhai and ```, or `name.function` of an imported file of hooks.\n\n\
         metrics: loss, eval.loss, and eval.NAME for each metric that `eval` defines; they take\n\
         `above` or `below`: `on eval.accuracy(above = 98%) => stop`\n\nevents\n",
    );
    calls(&mut out, EVENTS);
    out.push_str("\nactions\n");
    calls(&mut out, ACTIONS);
    out.push_str(
        "\nA run carries out `stop` and `checkpoint` on metrics so far. Every `on` takes\n\
         `required = true`: the run fails with this hook, which is switched off otherwise.\n\
         Functions for Rhai: `monarch explain hooks`\n",
    );
    out
}

/// What a hook in Rhai may call.
fn hooks() -> String {
    let mut out = String::from(
        "A hook is a text in Rhai that the controller runs between steps. It may call\n\n",
    );
    let width = SCRIPT.iter().map(|f| f.usage.len()).max().unwrap_or(0);
    for f in SCRIPT {
        let _ = writeln!(out, "{:width$}  {}", f.usage, f.doc);
    }
    out.push_str("\nmetrics: loss, eval.loss and those of `eval`, and\n");
    let width = METRICS.iter().map(|m| m.0.len()).max().unwrap_or(0);
    for (name, doc) in METRICS {
        let _ = writeln!(out, "{name:width$}  {doc}");
    }
    out.push_str("\nof Rhai itself: ");
    let names: Vec<&str> = RHAI.iter().map(|f| f.0).collect();
    for chunk in names.chunks(9) {
        let _ = writeln!(out, "{}", chunk.join(" "));
    }
    out
}

fn responses() -> String {
    let mut out = String::from("\nresponses, joined by `then`\n");
    calls(&mut out, RESPONSES);
    out.push('\n');
    for (fault, fitting) in FAULTS {
        let _ = writeln!(out, "{fault:12}{}", fitting.join(", "));
    }
    out
}

fn calls(out: &mut String, table: &[CallDoc]) {
    for call in table {
        let _ = writeln!(out, "{}\n    {}", call.signature(), call.doc);
    }
}

fn block_page(block: &BlockDoc) -> String {
    format!("{}\n\n{}{}", block.doc, rows(block, &|_| true), block_extra(block))
}

/// What a block may hold beside its settings.
fn block_extra(block: &BlockDoc) -> String {
    let mut out = String::new();
    if block.functions {
        out.push_str("\nMetrics are defined in it: `name(x: f32[B, 64], ..) = mean(..)`\n");
    }
    if block.name == "fault" {
        out.push_str(&responses());
    }
    if block.hooks {
        out.push_str("\nRules stand at its end: see `monarch explain events`\n");
    }
    out
}

fn rows(block: &BlockDoc, wanted: &dyn Fn(&str) -> bool) -> String {
    let shown = || block.settings.iter().filter(|s| wanted(s.name));
    let width = shown().map(|s| s.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for s in shown() {
        let form = match s.form {
            _ if s.later => "not built yet".to_owned(),
            Form::Value => format!("= {}", s.takes),
            Form::Block => "{ .. }".to_owned(),
            Form::Function => format!("({}) = ..", s.takes),
        };
        let default = s.default.map_or(String::new(), |d| format!(" [default: {d}]"));
        let _ = writeln!(out, "{:width$}  {form}{default}\n{:width$}  {}", s.name, "", s.doc);
    }
    out
}

fn module_page(module: &str, text: &str) -> String {
    let mut out = String::new();
    for e in entries(text) {
        let _ = writeln!(out, "{}\n  {}", e.signature, e.docs.first().copied().unwrap_or(""));
    }
    let _ = writeln!(out, "\nimport with `use {module}.NAME` or `use {module}.{{A, B}}`");
    out
}

/// A layer or a function in a text of the library.
struct Entry<'t> {
    name: &'t str,
    signature: String,
    /// Its `##` lines.
    docs: Vec<&'t str>,
}

impl Entry<'_> {
    fn doc(&self) -> String {
        self.docs.join("\n")
    }
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut out = Vec::new();
    let mut docs = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(doc) = line.strip_prefix("##") {
            docs.push(doc.strip_prefix(' ').unwrap_or(doc));
            continue;
        }
        let rest = line.strip_prefix("op ").or_else(|| line.strip_prefix("layer "));
        if rest.is_some() {
            let name = names(line).next().unwrap_or("");
            let mut signature = line.to_owned();
            while open_brackets(&signature) {
                let Some(more) = lines.next() else { break };
                signature.push('\n');
                signature.push_str(more);
            }
            let signature = signature.trim_end_matches([' ', '{']).to_owned();
            out.push(Entry { name, signature, docs: std::mem::take(&mut docs) });
        }
        docs.clear();
    }
    out
}

/// The names that a text of the library defines.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.strip_prefix("op ").or_else(|| line.strip_prefix("layer "))?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest.get(..end.unwrap_or(rest.len()))
    })
}

/// Whether a signature goes on on the next line.
fn open_brackets(text: &str) -> bool {
    text.matches('(').count() > text.matches(')').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_promised_is_explained() {
        for word in words() {
            let said = about(&word).unwrap_or_default();
            assert!(!said.trim().is_empty(), "nothing about {word}");
            for line in said.lines() {
                assert!(line.chars().count() <= 100, "{word}: {line}");
            }
        }
        let train = about("train").unwrap_or_default();
        for setting in block_doc("train").map_or(&[][..], |b| b.settings) {
            assert!(train.contains(setting.name), "{}", setting.name);
        }
        let adam = about("AdamW").unwrap_or_default();
        assert!(adam.contains("clip: float = none\n) -> optimizer"), "{adam}");
        assert!(adam.contains("decoupled") && adam.contains("use std.optim.AdamW"), "{adam}");
        let linear = about("std.nn.Linear").unwrap_or_default();
        assert!(linear.starts_with("layer Linear[I, O](bias: bool = false)\n"), "{linear}");
        let every = about("every").unwrap_or_default();
        assert!(every.contains("in `eval`:") && every.contains("in `checkpoint`:"), "{every}");
        assert_eq!(about("nn.Linear"), about("std.nn.Linear"));
        assert_eq!(about("token"), about("units"));
        let tokens = about("tokens").unwrap_or_default();
        assert!(
            tokens.contains("op tokens(") && tokens.contains(&crate::units::page()),
            "{tokens}"
        );
        let lost = about("worker.lost").unwrap_or_default();
        assert!(lost.starts_with("in `fault`:") && lost.contains("on EVENT"), "{lost}");
        assert_eq!(about("eval.done"), about("events"));
        assert_eq!(about("shrink"), about("fault"));
        assert_eq!(about("Lineal"), None);
        assert_eq!(about("std.loss.Linear"), None);
    }
}
