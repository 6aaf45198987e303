//! What is said about the thing under the cursor.

mod define;
pub(crate) mod words;

use crate::analysis::Analysis;
use crate::find;
use crate::text::word_at;
use monarch_check::inspect::TypeFact;
use monarch_graph::Span;
use monarch_syntax::ast::Number;

/// Something to say, as Markdown.
#[derive(Clone, Debug, PartialEq)]
pub struct Hover {
    /// What it is about.
    pub span: Span,
    pub markdown: String,
}

/// What there is to say about the thing at byte `offset` of the program.
pub fn hover(analysis: &Analysis, offset: usize) -> Option<Hover> {
    let said = thing(analysis, offset);
    let Some((span, page)) = mistake(analysis, offset) else { return said };
    Some(match said {
        Some(said) => Hover { markdown: format!("{}\n---\n{page}", said.markdown), ..said },
        None => Hover { span, markdown: page },
    })
}

/// What the page of a diagnostic says that is shown at this place: its first paragraph.
fn mistake(analysis: &Analysis, offset: usize) -> Option<(Span, String)> {
    let at = offset as u32;
    let holds = |s: &Span| s.file == 0 && s.start <= at && at <= s.end;
    let all = analysis.inspected.checked.diagnostics.iter();
    let found = all.filter_map(|d| Some((d, d.span().filter(holds)?)));
    let (d, span) = found.min_by_key(|(_, s)| s.end - s.start)?;
    let page = monarch_diagnostic::page(d.code)?;
    let text = page.text.split("```").next().unwrap_or("");
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let first = paragraphs.find(|p| !p.is_empty() && !p.starts_with('#')).unwrap_or("");
    Some((span, format!("**{}** {}\n\n{first}\n\n`monarch explain {0}`\n", d.code, page.title)))
}

fn thing(analysis: &Analysis, offset: usize) -> Option<Hover> {
    let tree = &analysis.inspected.files.first()?.tree;
    let at = offset as u32;
    if let Some((number, span)) = find::number(tree, at)
        && let Some(markdown) = words::quantity(analysis, number)
    {
        return Some(Hover { span, markdown });
    }
    if let Some((def, span)) = analysis.def_at(offset)
        && let Some(markdown) = define::definition(analysis, def, span)
    {
        return Some(Hover { span, markdown });
    }
    if let Some((span, markdown)) = find::word(tree, at).and_then(words::registry) {
        return Some(Hover { span, markdown });
    }
    let text = analysis.text();
    let word = word_at(text, offset).map(|r| (Span::new(0, r.start, r.end), r));
    if let Some((span, range)) = word
        && let Some(markdown) = text.get(range).and_then(words::word)
    {
        return Some(Hover { span, markdown });
    }
    let ty = analysis.type_at(offset)?;
    Some(Hover { span: ty.span, markdown: expression(analysis, ty) })
}

/// The type of an expression, and what it costs.
fn expression(analysis: &Analysis, ty: &TypeFact) -> String {
    let mut out = code(analysis.slice(ty.span).lines().next().unwrap_or(""));
    out.push_str(&shape_lines(analysis, ty, ty.span));
    out
}

/// Shape with symbols, with numbers, in bytes; and the work of the expression at `span`.
fn shape_lines(analysis: &Analysis, ty: &TypeFact, span: Span) -> String {
    let mut out = format!("\n**shape** `{}`", ty.text);
    if let Some(numbers) = numbers(analysis, ty, span) {
        out.push_str(&format!(" = `{numbers}`"));
    }
    out.push('\n');
    for note in &ty.notes {
        out.push_str(&format!("\n`{note}`\n"));
    }
    let known: Option<u64> = ty.lengths.iter().try_fold(1u64, |n, l| n.checked_mul((*l)?));
    let sample = analysis.costs().and_then(|c| c.shape(span)).map(|s| s.elements(1));
    match (known, sample) {
        (Some(elements), _) => {
            out.push_str(&format!("\n{}\n", amount(elements, ty.element_bytes)));
        }
        (None, Some(elements)) => {
            out.push_str(&format!("\n{} for each sample\n", amount(elements, ty.element_bytes)));
        }
        (None, None) => {}
    }
    let flops = analysis.costs().map_or(0.0, |c| c.flops_within(span));
    if flops > 0.0 {
        out.push_str(&format!("\n{} forward, for each sample\n", count(flops, "FLOP")));
    }
    out
}

/// `[B, 256, 384]`: lengths of the planned program where it has this place, else those of the
/// layer's first instance.
fn numbers(analysis: &Analysis, ty: &TypeFact, span: Span) -> Option<String> {
    let planned = analysis.costs().and_then(|c| c.shape(span));
    let planned = planned.filter(|s| s.rank() == ty.lengths.len());
    let length = |i: usize, known: &Option<u64>| match planned.and_then(|s| s.0.get(i)) {
        Some(dim) if dim.batch && dim.per == 1 => "B".to_owned(),
        Some(dim) if dim.batch => format!("{} B", dim.per),
        Some(dim) => dim.per.to_string(),
        None => known.map_or("?".to_owned(), |n| n.to_string()),
    };
    let parts: Vec<String> = ty.lengths.iter().enumerate().map(|(i, l)| length(i, l)).collect();
    let says = parts.iter().any(|p| p != "?" && p != "B");
    let text = format!("[{}]", parts.join(", "));
    (says && !ty.text.ends_with(&text)).then_some(text)
}

/// An amount with this unit in optimizer steps of the job: `= 1,250 steps`.
pub(crate) fn in_steps(analysis: &Analysis, number: &Number, unit: &str) -> Option<String> {
    let (amount, unit) = words::amount_of(number, unit)?;
    words::steps(analysis, amount, unit)
}

/// A fenced block of the language.
fn code(text: &str) -> String {
    format!("```mon\n{}\n```\n", text.trim_end())
}

/// `442,368 elements, 1.69 MiB`
fn amount(elements: u64, element_bytes: u64) -> String {
    let noun = if elements == 1 { "element" } else { "elements" };
    format!("{} {noun}, {}", grouped(elements), bytes(elements.saturating_mul(element_bytes)))
}

/// `1,234,567`
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1.69 MiB`
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} bytes"),
        _ => format!("{} {}", short(value), UNITS[unit]),
    }
}

/// `1.2 GFLOP`
fn count(n: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = n;
    let mut prefix = 0;
    while value >= 1000.0 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    format!("{} {}{unit}", short(value), PREFIXES[prefix])
}

/// Three digits.
fn short(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        assert_eq!(amount(442_368, 4), "442,368 elements, 1.69 MiB");
        assert_eq!(amount(1, 4), "1 element, 4 bytes");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(100 << 20), "100 MiB");
        assert_eq!(count(2.5e9, "FLOP"), "2.5 GFLOP");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }
}
