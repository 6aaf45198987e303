//! From the grammar's pairs to the tree; holes and junk become diagnostics.

mod body;
mod expr;
mod item;
mod record;
mod script;
mod shape;
mod token;

pub(crate) use expr::strength;

use monarch_diagnostic::{Diagnostic, Span};
use pest::iterators::{Pair, Pairs};

use crate::MAX_DIAGNOSTICS;
use crate::ast::{Broken, Comment, Doc, Ident, Item};
use crate::lex;
use crate::parse::Rule;
use crate::slip;

pub(crate) type P<'t> = Pair<'t, Rule>;

pub(crate) struct Builder<'t> {
    file: u32,
    text: &'t str,
    /// Where the chunk at hand begins: pairs count from there.
    base: usize,
    docs: Vec<Option<Doc>>,
    doc_ends: Vec<usize>,
    /// Docs before this one can belong to nothing that is still to come.
    next_doc: usize,
    diagnostics: Vec<Diagnostic>,
    /// The thing at hand has its diagnostic: what follows from it is not said.
    muted: bool,
    /// Depth of the deepest expression built since it was last reset.
    deep: u32,
}

/// Siblings in a row, of which one may have failed: what follows it on its line, or further in on
/// the next ones, is of the same cause. In a body, a comma ends that.
#[derive(Default)]
pub(crate) struct Siblings {
    comma_ends: bool,
    failed: Option<Failed>,
}

struct Failed {
    /// Indentation of the line of the one that failed.
    indent: usize,
    /// How far the text was looked at, and whether a line break was seen up to there.
    seen: usize,
    same_line: bool,
    /// Indentation of the line of `seen`.
    seen_indent: usize,
}

impl<'t> Builder<'t> {
    pub fn new(file: u32, text: &'t str, docs: Vec<Doc>) -> Self {
        Builder {
            file,
            text,
            base: 0,
            doc_ends: docs.iter().map(|doc| doc.span.end as usize).collect(),
            next_doc: 0,
            docs: docs.into_iter().map(Some).collect(),
            diagnostics: Vec::new(),
            muted: false,
            deep: 0,
        }
    }

    pub fn file(&self) -> u32 {
        self.file
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    /// The diagnostics, and the docs that document nothing as comments.
    pub fn finish(self) -> (Vec<Diagnostic>, Vec<Comment>) {
        let unattached = self.docs.into_iter().flatten().map(|doc| {
            let (start, end) = (doc.span.start as usize, doc.span.end as usize);
            let text = self.text.get(start..end).unwrap_or("").to_owned();
            Comment { span: doc.span, text, own_line: true }
        });
        let unattached = unattached.collect();
        (self.diagnostics, unattached)
    }

    /// Builds the items of one chunk that begins at byte `base`.
    pub fn chunk(&mut self, base: usize, pairs: Pairs<'t, Rule>, items: &mut Vec<Item>) {
        self.base = base;
        let mut siblings = Siblings::default();
        let chunk = pairs.into_iter().next().map(Pair::into_inner);
        for pair in chunk.into_iter().flatten().filter(|pair| pair.as_rule() != Rule::EOI) {
            self.sibling(&mut siblings, pair, |this, pair| this.item(pair, items));
        }
    }

    /// For a chunk that the grammar refused, which only a stack too small can cause.
    pub fn unreadable(&mut self, at: usize, stack: bool) {
        let span = Span::new(self.file, at, at);
        self.muted = false;
        self.error(match stack {
            true => Diagnostic::error("M0004", "nested too deep for this thread's stack")
                .label(span, "reading stopped here"),
            false => Diagnostic::error("M0001", "this cannot be read").label(span, "from here on"),
        });
        self.muted = false;
    }

    /// Gives a diagnostic, unless the thing at hand has one.
    fn error(&mut self, diagnostic: Diagnostic) {
        if !self.muted && self.diagnostics.len() < MAX_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        }
        self.muted = true;
    }

    /// Whether a further diagnostic would be dropped, so that it need not be thought out.
    fn silent(&self) -> bool {
        self.muted || self.diagnostics.len() >= MAX_DIAGNOSTICS
    }

    /// Builds one of several siblings: it has its own diagnostic, or that of the one before it.
    fn sibling<T>(
        &mut self,
        siblings: &mut Siblings,
        pair: P<'t>,
        build: impl FnOnce(&mut Self, P<'t>) -> T,
    ) -> T {
        let at = self.start(&pair);
        if pair.as_rule() == Rule::comma && siblings.comma_ends {
            siblings.failed = None;
        }
        let covered = siblings.failed.as_mut().is_some_and(|failed| self.covers(failed, at));
        let outer = std::mem::replace(&mut self.muted, covered);
        let built = build(self, pair);
        if !covered {
            let failed = self.muted && self.diagnostics.len() < MAX_DIAGNOSTICS;
            siblings.failed = failed.then(|| {
                let indent = self.indent(lex::line_start(self.text, at));
                Failed { indent, seen: at, same_line: true, seen_indent: indent }
            });
        }
        self.muted = outer;
        built
    }

    /// Looks only at the text between siblings, so that many on one line cost no more than few.
    fn covers(&self, failed: &mut Failed, at: usize) -> bool {
        let between = self.text.as_bytes().get(failed.seen..at).unwrap_or(&[]);
        if let Some(n) = between.iter().rposition(|byte| *byte == b'\n') {
            failed.same_line = false;
            failed.seen_indent = self.indent(failed.seen + n + 1);
        }
        failed.seen = at;
        failed.same_line || failed.seen_indent > failed.indent
    }

    /// Indentation of the line that begins at byte `line`.
    fn indent(&self, line: usize) -> usize {
        let rest = self.text.as_bytes().get(line..).unwrap_or(&[]);
        rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
    }

    /// The byte at which a pair begins, in the whole text.
    fn start(&self, pair: &P<'t>) -> usize {
        self.base + pair.as_span().start()
    }

    /// The place of a token or of a pair that ends with one.
    fn span(&self, pair: &P<'t>) -> Span {
        let span = pair.as_span();
        Span::new(self.file, self.base + span.start(), self.base + span.end())
    }

    fn ident(&self, pair: &P<'t>) -> Ident {
        Ident { name: pair.as_str().to_owned(), span: self.span(pair) }
    }

    /// A name that is not there, at the end of what stands before it.
    fn no_ident(&self, before: Span) -> Ident {
        let end = before.end as usize;
        Ident { name: String::new(), span: Span::new(self.file, end, end) }
    }

    /// `what` belongs at the hole, after the text `after`, which ends where `before` ends.
    fn missing(&mut self, hole: &P<'t>, before: Span, what: &str, after: &str) {
        if self.silent() {
            self.muted = true;
            return;
        }
        let at = self.start(hole);
        let token = lex::next(self.text, at);
        let end = self.last_end(before.end as usize, at);
        let between = self.text.get(end..token.start).unwrap_or("\n");
        let here = !between.contains('\n') && token.start < token.end;
        if here && token.text(self.text) < " " {
            // A control character, which has its diagnostic.
            self.muted = true;
            return;
        }
        if here && let Some(diagnostic) = slip::slip(self.file, self.text, at) {
            return self.error(diagnostic);
        }
        if here
            && what.contains("name")
            && let Some(diagnostic) = slip::reserved(self.file, self.text, token)
        {
            return self.error(diagnostic);
        }
        let found = match here || token.tok == lex::Tok::End {
            true => slip::found(self.text, token),
            false => "the end of the line".to_owned(),
        };
        let place = match here {
            true => Span::new(self.file, token.start, token.end),
            false => Span::new(self.file, end, end),
        };
        let label = if place.start == place.end { "missing here" } else { "missing before this" };
        let title = format!("expected {what} after `{}`, found {found}", slip::clip(after));
        self.error(Diagnostic::error("M0001", title).label(place, label));
    }

    /// The end of the last token between two places.
    fn last_end(&self, from: usize, to: usize) -> usize {
        let mut end = from;
        loop {
            let token = lex::next(self.text, end);
            if token.start >= to || matches!(token.tok, lex::Tok::Comment | lex::Tok::End) {
                return end;
            }
            end = token.end;
        }
    }

    fn is_first_of_line(&self, at: usize) -> bool {
        let line = lex::line_start(self.text, at);
        self.text.get(line..at).is_some_and(|text| text.trim().is_empty())
    }

    /// Something stands where nothing belongs; `hint` says what could.
    fn junk(&mut self, junk: &P<'t>, hint: &str) {
        if self.silent() {
            self.muted = true;
            return;
        }
        let at = self.start(junk);
        if let Some(diagnostic) = slip::slip(self.file, self.text, at) {
            return self.error(diagnostic);
        }
        let token = lex::next(self.text, at);
        let span = Span::new(self.file, token.start, token.end);
        if let Some(diagnostic) = self.habit(token, span) {
            return self.error(diagnostic);
        }
        let found = slip::found(self.text, token);
        let title = format!("unexpected {}", found.strip_prefix("a ").unwrap_or(&found));
        let mut diagnostic = Diagnostic::error("M0001", title).label(span, "not expected here");
        if !hint.is_empty() {
            diagnostic = diagnostic.help(hint);
        }
        self.error(diagnostic);
    }

    /// Habits that only show in what stands before.
    fn habit(&self, token: lex::Token, span: Span) -> Option<Diagnostic> {
        let before = self.text.get(..token.start).unwrap_or("");
        if token.text(self.text) == "if" && !self.is_first_of_line(token.start) {
            let title = "a choice is written `if a { b } else { c }`";
            return Some(Diagnostic::error("M0012", title).label(span, "`if` comes first"));
        }
        if token.text(self.text) == "." && before.ends_with('"') {
            let line = before.get(lex::line_start(self.text, token.start)..).unwrap_or("");
            if line.starts_with("use ") {
                let diagnostic = Diagnostic::error("M0001", "a file is imported as a whole");
                let help = "write `use \"file.mon\" as name`, and then `name.Layer`";
                return Some(diagnostic.label(span, "no names here").help(help));
            }
        }
        let prefixed = before.ends_with(|c: char| c.is_ascii_alphanumeric());
        if token.tok == lex::Tok::Str && prefixed {
            let title = "a string has no letters in front of it";
            let diagnostic = Diagnostic::error("M0012", title).label(span, "begins here");
            return Some(diagnostic.help("`{name}` in a string stands for a value as it is"));
        }
        None
    }

    /// The span of junk without the spaces at its end.
    fn junk_span(&self, junk: &P<'t>) -> Span {
        let start = self.start(junk);
        Span::new(self.file, start, start + junk.as_str().trim_end().len())
    }

    fn broken(&self, junk: &P<'t>) -> Broken {
        let span = self.junk_span(junk);
        let token = lex::next(self.text, span.start as usize);
        let word = token.tok == lex::Tok::Word && token.end <= span.end as usize;
        let keyword = word.then(|| Ident {
            name: token.text(self.text).to_owned(),
            span: Span::new(self.file, token.start, token.end),
        });
        Broken { span, name: keyword.clone(), keyword }
    }

    /// The `##` lines directly before byte `start`.
    fn docs_before(&mut self, start: usize) -> Vec<Doc> {
        let begin = self.next_doc;
        let mut last = begin;
        while self.doc_ends.get(last).is_some_and(|end| *end <= start) {
            last += 1;
        }
        self.next_doc = last;
        let mut first = last;
        let mut next = start;
        while first > begin && self.only_space(self.doc_ends[first - 1], next) {
            first -= 1;
            next = self.docs[first].as_ref().map_or(0, |doc| doc.span.start as usize);
        }
        self.docs[first..last].iter_mut().filter_map(Option::take).collect()
    }

    /// Whether nothing but spaces and comments stands between two places.
    fn only_space(&self, from: usize, to: usize) -> bool {
        let mut at = from;
        loop {
            let token = lex::next(self.text, at);
            if token.start >= to {
                return true;
            }
            if token.tok != lex::Tok::Comment {
                return false;
            }
            at = token.end;
        }
    }
}

/// From the first doc to the end.
fn with_docs(docs: &[Doc], span: Span) -> Span {
    docs.first().map_or(span, |doc| doc.span.to(span))
}
