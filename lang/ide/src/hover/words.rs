//! What is said about words of the language: settings, blocks, units, codes.

use super::{bytes, grouped};
use crate::analysis::Analysis;
use crate::find::Word;
use monarch_check::events::{EVENTS, find};
use monarch_check::hir::Unit;
use monarch_check::inspect::{multiples, units};
use monarch_check::reference;
use monarch_check::registry::{Form, SettingDoc, block_doc};
use monarch_graph::Span;
use monarch_syntax::ast::Number;

/// A number with a unit in the base unit, and in steps where the job says how.
pub(super) fn quantity(analysis: &Analysis, number: &Number) -> Option<String> {
    let written = number.unit.as_ref()?;
    let (amount, unit) = amount_of(number, &written.name)?;
    let text = match unit {
        Unit::Bytes => format!("{}, {} bytes", bytes(amount as u64), grouped(amount as u64)),
        Unit::Share => format!("{amount} of the whole"),
        Unit::BytesPerSecond => format!("{} per second", bytes(amount as u64)),
        Unit::Seconds => format!("{amount} seconds"),
        _ => format!("{} {}", grouped(amount as u64), unit.noun()),
    };
    let written = analysis.slice(number.span.to(written.span));
    let mut out = format!("**{written}**: {}\n", unit.label());
    out.push_str(&format!("\n{text}\n"));
    if let Some(steps) = steps(analysis, amount, unit) {
        out.push_str(&format!("\n{steps}\n"));
    }
    Some(out)
}

/// A number with a unit, in the base unit.
pub(crate) fn amount_of(number: &Number, written: &str) -> Option<(f64, Unit)> {
    let (multiple, word) = match written.split_once(' ') {
        Some((multiple, word)) => (multiples().iter().find(|m| m.0 == multiple)?.1, word),
        None => (1.0, written),
    };
    let (_, unit, scale) = *units().iter().find(|u| u.0 == word)?;
    Some((number.value * multiple * scale, unit))
}

/// What an amount of training is in optimizer steps.
pub(crate) fn steps(analysis: &Analysis, amount: f64, unit: Unit) -> Option<String> {
    let job = analysis.inspected.checked.program.as_ref()?.job.as_ref()?;
    let sample = match unit {
        Unit::Tokens => job.tokens_per_sample as f64,
        Unit::Samples => 1.0,
        _ => return None,
    };
    let samples = amount / sample.max(1.0);
    let steps = samples / job.batch as f64;
    let whole = |x: f64| match x.fract() == 0.0 {
        true => grouped(x as u64),
        false => {
            let cents = format!("{:.2}", x.fract());
            format!("{}{}", grouped(x as u64), cents.trim_start_matches('0'))
        }
    };
    match steps >= 1.0 {
        true => Some(format!("= {} steps", whole(steps))),
        false => Some(format!("= {} samples", whole(samples))),
    }
}

/// A setting, a block or an event.
pub(super) fn registry(word: Word) -> Option<(Span, String)> {
    match word {
        Word::Setting { block, path } => {
            let block_doc = block_doc(block)?;
            let first = path.parts.first()?;
            // `worker.lost` is a name of its own.
            let (span, doc) = match block_doc.setting(&path.text()) {
                Some(doc) => (path.span, doc),
                None => (first.span, block_doc.setting(&first.name)?),
            };
            Some((span, setting(block, doc)))
        }
        Word::Block { kind, around } => {
            let inner = around.and_then(|a| block_doc(a)?.setting(&kind.name));
            let doc = block_doc(&kind.name).map(|b| block(b.name, b.doc));
            let text = doc.or_else(|| Some(setting(around?, inner?)))?;
            Some((kind.span, text))
        }
        Word::Event(path) => {
            let text = path.text();
            let event = find(EVENTS, &text)?;
            let said =
                format!("**{}**\n\n{}\n\n`monarch explain events`\n", event.signature(), event.doc);
            Some((path.span, said))
        }
    }
}

fn block(name: &str, doc: &str) -> String {
    let settings = block_doc(name).map(|b| b.settings).unwrap_or_default();
    let names: Vec<String> = settings.iter().map(|s| format!("`{}`", s.name)).collect();
    format!("**{name}**\n\n{doc}\n\nsettings: {}\n", names.join(", "))
}

/// A setting with what it takes and its default.
pub(crate) fn setting(block: &str, doc: &SettingDoc) -> String {
    let takes = match doc.form {
        Form::Value => format!("`{} = ` {}", doc.name, doc.takes),
        Form::Block => format!("`{} {{ .. }}`", doc.name),
        Form::Function => format!("`{}({}) = ..`", doc.name, doc.takes),
    };
    let mut out = format!("**{block}.{}**\n\n{}\n\n{takes}\n", doc.name, doc.doc);
    if let Some(default) = doc.default {
        out.push_str(&format!("\ndefault `{default}`\n"));
    }
    if doc.later {
        out.push_str("\nnot built yet\n");
    }
    out
}

/// A code of a diagnostic, or a word that `explain` knows.
pub(super) fn word(word: &str) -> Option<String> {
    if let Some(page) = monarch_diagnostic::page(word) {
        return Some(page.text.to_owned());
    }
    if matches!(word, "einsum" | "rearrange") {
        return Some(pattern_op(word).to_owned());
    }
    if word == "repeat" {
        return Some(
            "**repeat**\n\nCopies of a layer, one after another:\n\
                     ```mon\nblocks = repeat(Block[D, H], depth)\n```\n"
                .to_owned(),
        );
    }
    let unit = units().iter().find(|u| u.0 == word);
    if let Some((name, unit, _)) = unit {
        return Some(format!("**{name}**: {}, as in `{}`\n", unit.noun(), unit.example()));
    }
    // Words of the library that are not in scope: what they would be.
    let known = word.len() > 2 && reference::words().iter().any(|w| w == word);
    known.then(|| reference::about(word).map(|t| format!("```text\n{}\n```\n", t.trim_end())))?
}

/// What the two operations with a pattern do.
pub(crate) fn pattern_op(name: &str) -> &'static str {
    match name {
        "einsum" => {
            "**einsum**\n\nProducts summed over the axes that the result does not list:\n\
             ```mon\neinsum[B T D, V D -> B T V](x, tok)\n```\n"
        }
        _ => {
            "**rearrange**\n\nSplits, orders and joins axes, as einops does:\n\
             ```mon\nrearrange[B T (H K) -> B H T K](x)\n```\n"
        }
    }
}
