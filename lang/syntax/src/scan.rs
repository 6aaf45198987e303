//! The pass before the grammar: finds comments, closes brackets, and cuts the file into chunks of
//! one item each, so that a mistake in one never reaches another.
//!
//! Brackets are trusted as long as they all close. Only when some do not is the layout believed
//! instead: a line that plainly begins an item ends whatever is open before it, and a `}` at the
//! beginning of a line closes what began at its depth.

use monarch_diagnostic::{Diagnostic, Span};

use crate::MAX_DIAGNOSTICS;
use crate::ast::{Comment, Doc};
use crate::lex::{self, Tok, Token};

/// Deepest nesting of brackets. The parser and every visitor of the tree recurse this deep.
pub const MAX_NESTING: usize = 128;

/// A piece of the text that holds one item (or several written on one line).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub start: usize,
    pub end: usize,
    /// Has a diagnostic already and cannot be parsed.
    pub broken: bool,
}

/// What one pass over the text finds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub chunks: Vec<Chunk>,
    pub comments: Vec<Comment>,
    /// `##` lines of their own.
    pub docs: Vec<Doc>,
    /// Where comments of any kind stand.
    pub comment_ranges: Vec<(usize, usize)>,
    pub diagnostics: Vec<Diagnostic>,
}

impl Scan {
    /// The text with a space for every byte of a comment, so that the grammar need not know them.
    pub fn without_comments(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for &(start, end) in &self.comment_ranges {
            out.push_str(text.get(at..start).unwrap_or(""));
            out.extend(std::iter::repeat_n(' ', end - start));
            at = end;
        }
        out.push_str(text.get(at..).unwrap_or(""));
        out
    }
}

/// Scans a whole file.
pub(crate) fn scan(file: u32, text: &str) -> Scan {
    let mut trusting = Scanner::new(file, text, false);
    if trusting.run() {
        return trusting.scan;
    }
    let mut strict = Scanner::new(file, text, true);
    strict.run();
    strict.scan
}

/// A bracket that is open.
#[derive(Clone, Copy)]
struct Open {
    kind: u8,
    at: usize,
    /// Indentation of the line it stands on.
    indent: usize,
}

struct Scanner<'t> {
    file: u32,
    text: &'t str,
    strict: bool,
    scan: Scan,
    open: Vec<Open>,
    /// Brackets open beyond the limit: only counted, so that no search is longer than the limit.
    excess: usize,
    /// Where the line of the current token starts, and how far its first token is indented.
    line: usize,
    indent: usize,
    /// The chunk being read.
    chunk: Chunk,
    any: bool,
    balanced: bool,
    /// A string or fence of this chunk is open: its brackets mean nothing.
    unsure: bool,
    /// So was one before: brackets may have been opened in it.
    lost: bool,
}

impl<'t> Scanner<'t> {
    fn new(file: u32, text: &'t str, strict: bool) -> Self {
        Scanner {
            file,
            text,
            strict,
            scan: Scan::default(),
            open: Vec::new(),
            excess: 0,
            line: 0,
            indent: 0,
            chunk: Chunk { start: 0, end: 0, broken: false },
            any: false,
            balanced: true,
            unsure: false,
            lost: false,
        }
    }

    /// Whether every bracket, string and fence is closed; stops at the first that is not unless
    /// strict.
    fn run(&mut self) -> bool {
        let mut at = if self.text.starts_with('\u{feff}') { 3 } else { 0 };
        self.line = at;
        let mut end = at;
        loop {
            let token = lex::next(self.text, at);
            let first = self.enter_line(at, token.start);
            if token.tok == Tok::End {
                break;
            }
            if token.tok == Tok::Comment {
                self.scan.comment_ranges.push((token.start, token.end));
                self.comment(token, first);
                at = token.end;
                continue;
            }
            if !self.any || (first && self.begins_chunk(token)) {
                self.end_chunk(end);
                self.chunk = Chunk { start: token.start, end: token.end, broken: false };
                self.any = true;
            }
            at = self.token(token, first);
            end = token.end.max(at);
            if !self.strict && !self.balanced {
                return false;
            }
        }
        self.end_chunk(end);
        self.balanced
    }

    /// Notes the line that `to` stands on; whether nothing but spaces stands before it.
    fn enter_line(&mut self, from: usize, to: usize) -> bool {
        let between = self.text.as_bytes().get(from..to).unwrap_or(&[]);
        if let Some(n) = between.iter().rposition(|byte| *byte == b'\n') {
            self.line = from + n + 1;
            self.indent = to - self.line;
            return true;
        }
        let first = from == self.line;
        if first {
            self.indent = to - self.line;
        }
        first
    }

    fn comment(&mut self, token: Token, own_line: bool) {
        let text = token.text(self.text);
        let span = |start, end| Span::new(self.file, start, end);
        if !own_line || !text.starts_with("##") {
            let text = text.trim_end().to_owned();
            let span = span(token.start, token.start + text.len());
            self.scan.comments.push(Comment { span, text, own_line });
            return;
        }
        // `## What it means.      # and a remark` documents with its first half only.
        let cut = text.find("  #").unwrap_or(text.len());
        let (doc, rest) = text.split_at(cut);
        let body = doc.trim_start_matches('#');
        let body = body.strip_prefix(' ').unwrap_or(body).trim_end();
        let end = token.start + doc.trim_end().len();
        self.scan.docs.push(Doc { span: span(token.start, end), text: body.to_owned() });
        let remark = rest.trim();
        if !remark.is_empty() {
            let start = token.start + cut + (rest.len() - rest.trim_start().len());
            let span = span(start, start + remark.len());
            self.scan.comments.push(Comment { span, text: remark.to_owned(), own_line: false });
        }
    }

    /// Whether a token that is the first of its line begins a new chunk.
    fn begins_chunk(&self, token: Token) -> bool {
        if token.tok != Tok::Word {
            return false;
        }
        let word = token.text(self.text);
        let keyword = matches!(word, "use" | "param" | "let" | "layer");
        let column0 = token.start == self.line;
        if self.open.is_empty() {
            let goes_on = matches!(word, "rejects" | "sha256")
                || (lex::RESERVED.contains(&word) && !keyword && word != "assert");
            return keyword || (column0 && !goes_on);
        }
        if !self.strict || !column0 {
            return false;
        }
        // `train images`, `test "..."`: words that only an item begins with.
        let end = lex::line_end(self.text.as_bytes(), token.end);
        let next = lex::next(self.text, token.end);
        let named = matches!(next.tok, Tok::Word | Tok::Str) && next.start < end;
        keyword || (named && !lex::RESERVED.contains(&word) && !is_infix(next.text(self.text)))
    }

    fn end_chunk(&mut self, end: usize) {
        self.unclosed(0, None);
        self.open.clear();
        self.excess = 0;
        self.unsure = false;
        if self.any {
            self.chunk.end = end.max(self.chunk.start);
            self.scan.chunks.push(self.chunk);
        }
    }

    /// Takes in one token; where to go on.
    fn token(&mut self, token: Token, first: bool) -> usize {
        match token.tok {
            Tok::Open(kind) => {
                if self.open.len() > MAX_NESTING {
                    self.excess += 1;
                    return token.end;
                }
                self.open.push(Open { kind, at: token.start, indent: self.indent });
                if self.open.len() > MAX_NESTING && !self.chunk.broken {
                    self.too_deep(token);
                }
            }
            Tok::Close(_) if self.excess > 0 => self.excess -= 1,
            Tok::Close(kind) => self.close(kind, token, first),
            Tok::OpenStr => self.open_string(token),
            Tok::OpenRhai | Tok::Fence => return self.open_fence(token),
            Tok::Sign if token.text(self.text) < " " => self.control(token),
            _ => {}
        }
        token.end
    }

    fn close(&mut self, kind: u8, token: Token, first: bool) {
        let opener = opener(kind);
        let depth = self.open.iter().rposition(|open| open.kind == opener);
        let Some(mut depth) = depth else {
            self.balanced = false;
            if let Some(top) = self.open.last().copied().filter(|top| top.at >= self.line) {
                self.open.pop();
                return self.mismatch(top, token);
            }
            if self.lost {
                self.chunk.broken = true;
                return;
            }
            return self.report(
                Diagnostic::error("M0002", format!("nothing is open for this `{}`", kind as char))
                    .label(self.span(token), "closes nothing")
                    .help(format!("remove it, or write its `{}`", opener as char)),
            );
        };
        if self.strict && first && kind == b'}' && self.open[depth].indent > self.indent {
            let level = |open: &Open| open.kind == b'{' && open.indent == self.indent;
            depth = self.open.iter().rposition(level).unwrap_or(depth);
        }
        if depth + 1 < self.open.len() {
            self.balanced = false;
            self.unclosed(depth + 1, Some(token));
        }
        self.open.truncate(depth);
    }

    /// `f(3]`
    fn mismatch(&mut self, top: Open, token: Token) {
        let (open, close) = (top.kind as char, closer(top.kind) as char);
        let title = format!("`{open}` is closed by `{}`", token.text(self.text));
        self.report(
            Diagnostic::error("M0002", title)
                .label(self.span(token), format!("expected `{close}`"))
                .label(Span::new(self.file, top.at, top.at + 1), "opened here")
                .fix(format!("write `{close}`"), self.span(token), close.to_string()),
        );
    }

    /// Reports the brackets above `depth`, which `before` (or the end of the item) leaves open.
    fn unclosed(&mut self, depth: usize, before: Option<Token>) {
        let Some(inner) = self.open.get(depth..).and_then(|open| open.first()).copied() else {
            return;
        };
        self.balanced = false;
        if self.unsure || self.scan.diagnostics.len() >= MAX_DIAGNOSTICS {
            self.chunk.broken = true;
            return;
        }
        let closer = closer(inner.kind) as char;
        let span = Span::new(self.file, inner.at, inner.at + 1);
        let mut diagnostic =
            Diagnostic::error("M0002", format!("this `{}` is never closed", inner.kind as char))
                .label(span, "opened here");
        if let Some(token) = before {
            let text = format!("this closes something else: `{closer}` is missing before it");
            diagnostic = diagnostic.label(self.span(token), text);
        }
        if inner.kind != b'{' {
            let end = self.line_content_end(inner.at);
            let at = before.map_or(end, |token| end.min(token.start));
            let place = Span::new(self.file, at, at);
            diagnostic = diagnostic.fix(format!("add `{closer}`"), place, closer.to_string());
        } else {
            diagnostic = diagnostic.help(format!("add `{closer}` where it ends"));
        }
        self.report(diagnostic);
    }

    /// The end of a line without its comment, its last comma and trailing spaces.
    fn line_content_end(&self, at: usize) -> usize {
        let line_end = lex::line_end(self.text.as_bytes(), at);
        let (mut end, mut from) = (at + 1, at);
        loop {
            let token = lex::next(self.text, from);
            if token.start >= line_end || matches!(token.tok, Tok::Comment | Tok::End) {
                return end;
            }
            from = token.end.max(from + 1);
            let last = lex::next(self.text, from);
            let comma = token.text(self.text) == "," && last.start >= line_end;
            end = if comma { end } else { token.end.min(line_end) };
        }
    }

    fn too_deep(&mut self, token: Token) {
        self.report(
            Diagnostic::error("M0004", format!("brackets are nested {} deep", MAX_NESTING + 1))
                .label(self.span(token), format!("at most {MAX_NESTING} may be open at once"))
                .help("give an inner part a name with `let`"),
        );
        // Not unbalanced, but not to be parsed.
        self.unsure = true;
    }

    /// The grammar takes these for spaces.
    fn control(&mut self, token: Token) {
        let code = token.text(self.text).bytes().next().unwrap_or(0);
        let broken = self.chunk.broken;
        self.report(
            Diagnostic::error("M0001", format!("a control character, 0x{code:02x}"))
                .label(self.span(token), "invisible, and means nothing here")
                .fix("remove it", self.span(token), ""),
        );
        self.chunk.broken = broken;
    }

    fn open_string(&mut self, token: Token) {
        self.balanced = false;
        let end = token.start + token.text(self.text).trim_end().len();
        let span = Span::new(self.file, token.start, end);
        let before = self.text.get(..token.start).unwrap_or("");
        self.report(match before.ends_with("\"\"") {
            true => Diagnostic::error("M0003", "`\"\"\"` opens no text of several lines")
                .label(Span { start: span.start - 2, ..span }, "a string ends on its line")
                .help("a line break inside is written `\\n`; a remark begins with `#`"),
            false => Diagnostic::error("M0003", "this string is never closed")
                .label(span, "a string ends on its line")
                .help("add `\"` where it ends; a line break inside is written `\\n`"),
        });
        self.unsure = true;
        self.lost |= token.text(self.text).contains(['{', '(', '[']);
        // What was opened on this line was most probably closed inside the string.
        let line = self.line;
        while self.open.last().is_some_and(|open| open.at >= line && open.kind != b'{') {
            self.open.pop();
        }
    }

    /// Skips a text that is no Rhai text, or has no second fence, to where it seems to end.
    fn open_fence(&mut self, token: Token) -> usize {
        self.balanced = false;
        let rest = self.text.get(token.end..).unwrap_or("");
        let (diagnostic, end) = if token.tok == Tok::Fence {
            let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
            let after = Span::new(self.file, token.end, token.end + word.len());
            let title = match word {
                "" => "this text does not say what language it is in".to_owned(),
                word => format!("`{word}` is not a language that hooks are written in"),
            };
            let diagnostic = Diagnostic::error("M0012", title)
                .label(self.span(token).to(after), "a hook's text begins with ```rhai")
                .fix("write it in Rhai", after, "rhai");
            (diagnostic, rest.find("```").map(|n| n + 3))
        } else {
            let diagnostic = Diagnostic::error("M0003", "this Rhai text is never closed")
                .label(self.span(token), "opened here")
                .help("add ``` on a line of its own where it ends");
            (diagnostic, None)
        };
        self.report(diagnostic);
        self.unsure = true;
        let next_item = rest
            .match_indices('\n')
            .find(|(n, _)| rest.as_bytes().get(n + 1).is_some_and(u8::is_ascii_alphabetic));
        token.end + end.or(next_item.map(|(n, _)| n)).unwrap_or(rest.len())
    }

    /// Gives a diagnostic unless this chunk is past believing, and marks the chunk as broken.
    fn report(&mut self, diagnostic: Diagnostic) {
        if !self.unsure && self.scan.diagnostics.len() < MAX_DIAGNOSTICS {
            self.scan.diagnostics.push(diagnostic);
        }
        self.chunk.broken = true;
    }

    fn span(&self, token: Token) -> Span {
        Span::new(self.file, token.start, token.end)
    }
}

fn is_infix(word: &str) -> bool {
    matches!(word, "then" | "and" | "or" | "in" | "as" | "else" | "if" | "not")
}

fn opener(closer: u8) -> u8 {
    match closer {
        b')' => b'(',
        b']' => b'[',
        _ => b'{',
    }
}

fn closer(opener: u8) -> u8 {
    match opener {
        b'(' => b')',
        b'[' => b']',
        _ => b'}',
    }
}
