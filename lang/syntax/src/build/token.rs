//! Paths, strings and numbers.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P};
use crate::ast::{Ident, Number, Path, Str};
use crate::parse::Rule;

impl<'t> Builder<'t> {
    pub(super) fn path(&self, pair: &P<'t>) -> Path {
        let span = self.span(pair);
        let mut at = span.start;
        let parts = pair.as_str().split('.').map(|part| {
            let start = at;
            at += part.len() as u32 + 1;
            let span = Span { start, end: start + part.len() as u32, ..span };
            Ident { name: part.to_owned(), span }
        });
        Path { parts: parts.collect(), span }
    }

    /// A path that is not there.
    pub(super) fn no_path(&self, before: Span) -> Path {
        let ident = self.no_ident(before);
        Path { span: ident.span, parts: vec![ident] }
    }

    pub(super) fn string(&mut self, pair: &P<'t>) -> Str {
        let span = self.span(pair);
        let raw = pair.as_str();
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or("");
        let value = match inner.contains('\\') {
            true => self.unescape(inner, span.start as usize + 1),
            false => inner.to_owned(),
        };
        Str { span, value }
    }

    /// A string that is not there.
    pub(super) fn no_string(&self, before: Span) -> Str {
        Str { span: Span { start: before.end, ..before }, value: String::new() }
    }

    fn unescape(&mut self, inner: &str, at: usize) -> String {
        let mut out = String::with_capacity(inner.len());
        let mut chars = inner.char_indices();
        while let Some((start, c)) = chars.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            let Some((n, escape)) = chars.next() else { break };
            match escape {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                '0' => out.push('\0'),
                '\\' | '"' => out.push(escape),
                'u' => {
                    let rest = inner.get(n + 1..).unwrap_or("");
                    match unicode(rest) {
                        Some((length, c)) => {
                            out.push(c);
                            chars.by_ref().take(length).for_each(drop);
                        }
                        None => self.bad_escape(at + start, "\\u"),
                    }
                }
                other => {
                    self.bad_escape(at + start, &format!("\\{other}"));
                    out.push(other);
                }
            }
        }
        out
    }

    fn bad_escape(&mut self, at: usize, escape: &str) {
        if self.silent() {
            self.muted = true;
            return;
        }
        let span = Span::new(self.file, at, at + escape.len());
        let help = "known are \\n \\t \\r \\0 \\\" \\\\ and \\u{1F600}";
        let diagnostic =
            Diagnostic::error("M0014", format!("`{escape}` means nothing in a string"))
                .label(span, "unknown escape");
        self.error(match escape {
            "\\u" => diagnostic.help(help),
            _ => diagnostic.fix(format!("for a backslash write `\\\\`; {help}"), span, {
                format!("\\{escape}")
            }),
        });
    }

    pub(super) fn number(&mut self, pair: P<'t>) -> Number {
        let mut inner = pair.into_inner();
        let number = inner.next();
        let span = number.as_ref().map_or(Span::default(), |number| self.span(number));
        let raw = number.map_or("", |number| number.as_str()).to_owned();
        let digits: String = raw.chars().filter(|c| *c != '_').collect();
        let unit = inner.find(|pair| pair.as_rule() == Rule::unit);
        Number {
            span,
            value: digits.parse().unwrap_or(f64::INFINITY),
            integer: digits.parse().ok(),
            raw,
            unit: unit.map(|unit| self.ident(&unit)),
        }
    }
}

/// `{1F600}` at the beginning of a text: how many characters, and which one it means.
fn unicode(rest: &str) -> Option<(usize, char)> {
    let inner = rest.strip_prefix('{')?;
    let end = inner.bytes().take(7).position(|byte| byte == b'}')?;
    let digits = inner.get(..end)?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let code = u32::from_str_radix(digits, 16).ok()?;
    Some((digits.len() + 2, char::from_u32(code)?))
}
