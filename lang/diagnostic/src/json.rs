//! One JSON object per diagnostic, on one line.

use std::fmt::Write;

use monarch_graph::Span;

use crate::{Diagnostic, Sources};

/// ```json
/// {"code":"M0101","severity":"error","title":"..","labels":[{"file":"a.mon","start":{"line":1,
/// "column":3,"byte":2},"end":{..},"text":".."}],"help":[{"text":"..","edits":[{"file":..,
/// "start":..,"end":..,"replacement":".."}]}]}
/// ```
/// Without a line break, neither inside nor at the end. Lines and columns count from 1, columns in
/// characters; bytes count from 0.
pub fn json(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let mut out = String::from("{\"code\":");
    string(&mut out, diagnostic.code);
    out.push_str(",\"severity\":");
    string(&mut out, diagnostic.severity.name());
    out.push_str(",\"title\":");
    string(&mut out, &diagnostic.title);
    out.push_str(",\"labels\":[");
    for (n, label) in diagnostic.labels.iter().enumerate() {
        out.push_str(if n > 0 { ",{" } else { "{" });
        place(&mut out, label.span, sources);
        out.push_str(",\"text\":");
        string(&mut out, &label.text);
        out.push('}');
    }
    out.push_str("],\"help\":[");
    for (n, help) in diagnostic.help.iter().enumerate() {
        out.push_str(if n > 0 { ",{\"text\":" } else { "{\"text\":" });
        string(&mut out, &help.text);
        out.push_str(",\"edits\":[");
        for (m, edit) in help.edits.iter().enumerate() {
            out.push_str(if m > 0 { ",{" } else { "{" });
            place(&mut out, edit.span, sources);
            out.push_str(",\"replacement\":");
            string(&mut out, &edit.replacement);
            out.push('}');
        }
        out.push_str("]}");
    }
    out.push_str("]}");
    out
}

fn place(out: &mut String, span: Span, sources: &Sources) {
    out.push_str("\"file\":");
    let source = sources.get(span.file);
    string(out, source.map_or("", |source| source.name()));
    for (name, byte) in [("start", span.start), ("end", span.end)] {
        let (line, column) =
            source.map(|source| source.position(byte)).map_or((0, 0), |at| (at.line, at.column));
        let _ = write!(out, ",\"{name}\":{{\"line\":{line},\"column\":{column},\"byte\":{byte}}}");
    }
}

/// A JSON string: quotes, backslashes and control characters escaped.
fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // The two line breaks that some readers of JSON lines would split at.
            '\0'..='\x1f' | '\u{7f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}
