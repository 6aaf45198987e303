//! Where the cursor stands, judged by the tokens before it: this works in the middle of half a
//! word, in a file that does not parse.

use monarch_syntax::lex::{Tok, next};
use std::ops::Range;

/// A bracket that is open at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `(`, `[` or `{`.
    pub open: u8,
    /// Tokens before it in the entry that it stands in: `train x`, `Mlp`, `precision =`.
    pub head: Vec<String>,
    /// Entries that are closed already, by their first tokens: settings that are given.
    pub given: Vec<String>,
    /// Commas so far.
    pub commas: usize,
}

/// What stands before the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The word at the cursor, which may be empty.
    pub word: Range<usize>,
    /// Open brackets, outermost first.
    pub frames: Vec<Frame>,
    /// Tokens of the entry at hand, up to the word.
    pub entry: Vec<String>,
    /// The item at the top level that holds the cursor begins here.
    pub item: usize,
    /// Whether a number stands right before the word, a space at most between.
    pub after_number: bool,
    /// In a comment, a string or a hook's text, where nothing of the language follows.
    pub inert: bool,
}

impl Context {
    /// The last open bracket.
    pub fn frame(&self) -> Option<&Frame> {
        self.frames.last()
    }

    /// The last token of the entry.
    pub fn last(&self) -> Option<&str> {
        self.entry.last().map(String::as_str)
    }
}

/// Tokens after which an entry goes on in the next line.
const GOES_ON: &[&str] = &[
    "=", "|>", "+", "-", "*", "/", "@", "^", "then", "and", "or", "in", "->", "=>", "~", ":", ".",
    "==", "!=", "<", ">", "<=", ">=", ",",
];

/// The context at byte `offset` of a text.
pub fn context(text: &str, offset: usize) -> Context {
    let offset = text.floor_char_boundary(offset);
    let mut context = Context { word: offset..offset, ..Context::default() };
    let (mut at, mut line) = (0, 0);
    loop {
        let token = next(text, at);
        if token.tok == Tok::End || token.start >= offset {
            break;
        }
        if text.get(line..token.start).is_some_and(|gap| gap.contains('\n')) {
            context.new_line(token.start);
        }
        if offset <= token.end && context.holds(text, offset, token.tok, token.start..token.end) {
            return context;
        }
        context.push(token.tok, token.text(text), token.start);
        at = token.end;
        line = token.end;
    }
    if text.get(line..offset).is_some_and(|gap| gap.contains('\n')) {
        context.new_line(offset);
    }
    let gap = text.get(line..offset).unwrap_or("");
    context.after_number = gap.len() <= 1 && !gap.contains('\n') && context.ends_in_number();
    context
}

/// First words of the entries that follow byte `from` in the body that holds it.
pub fn entries_after(text: &str, from: usize) -> Vec<String> {
    let mut out = Vec::new();
    let (mut at, mut depth, mut fresh) = (text.floor_char_boundary(from), 0usize, false);
    loop {
        let token = next(text, at);
        let line = text.get(at..token.start).is_some_and(|gap| gap.contains('\n'));
        match token.tok {
            Tok::End => return out,
            Tok::Close(_) if depth == 0 => return out,
            Tok::Close(_) => depth -= 1,
            Tok::Word if depth == 0 && (fresh || line) => {
                out.push(token.text(text).to_owned());
            }
            Tok::Open(_) => depth += 1,
            _ => {}
        }
        fresh = token.tok == Tok::Sign && token.text(text) == ",";
        at = token.end;
    }
}

impl Context {
    /// Takes the token that the cursor is in or at the end of; true if that is all.
    fn holds(&mut self, text: &str, offset: usize, tok: Tok, at: Range<usize>) -> bool {
        match tok {
            Tok::Word => {
                let before = text.get(..at.start).unwrap_or("");
                let close = before.trim_end_matches(' ').len() + 1 >= at.start;
                self.after_number = close && self.ends_in_number();
                self.word = at;
                true
            }
            Tok::Comment => {
                self.inert = true;
                true
            }
            Tok::Str | Tok::OpenStr | Tok::Rhai => {
                self.inert = offset < at.end || tok == Tok::OpenStr;
                self.inert
            }
            Tok::OpenRhai | Tok::Fence => {
                self.inert = true;
                true
            }
            Tok::Number => {
                // `100st` is one token: the unit begins after the digits.
                let word = text.get(at.start..offset).unwrap_or("");
                let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
                self.word = at.start + digits..at.end;
                self.after_number = true;
                self.inert = word.len() == digits && offset < at.end;
                true
            }
            _ => false,
        }
    }

    fn ends_in_number(&self) -> bool {
        self.last().is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()))
    }

    fn new_line(&mut self, at: usize) {
        let goes_on = self.last().is_some_and(|t| GOES_ON.contains(&t));
        match self.frame().map(|f| f.open) {
            Some(b'{') | None if !goes_on => self.end_entry(),
            _ => {}
        }
        if self.frames.is_empty() && self.entry.is_empty() {
            self.item = at;
        }
    }

    fn end_entry(&mut self) {
        let first = self.entry.first().cloned();
        self.entry.clear();
        if let (Some(first), Some(frame)) = (first, self.frames.last_mut()) {
            frame.given.push(first);
        }
    }

    fn push(&mut self, tok: Tok, text: &str, start: usize) {
        match tok {
            Tok::Open(open) => {
                let head = std::mem::take(&mut self.entry);
                self.frames.push(Frame { open, head, given: Vec::new(), commas: 0 });
            }
            Tok::Close(_) => {
                let Some(frame) = self.frames.pop() else { return };
                self.entry = frame.head;
                // What was in the brackets is of no matter; that there were some is.
                self.entry.push(text.to_owned());
            }
            Tok::Comment => {}
            Tok::Sign if text == "," => {
                self.end_entry();
                if let Some(frame) = self.frames.last_mut() {
                    frame.commas += 1;
                }
            }
            _ => {
                if self.frames.is_empty() && self.entry.is_empty() {
                    self.item = start;
                }
                self.entry.push(text.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Context {
        let offset = text.find('$').unwrap_or(0);
        context(&text.replacen('$', "", 1), offset)
    }

    #[test]
    fn settings_and_values() {
        let c = at("train x {\n  model = net\n  ev$\n}");
        assert_eq!(c.frames.len(), 1);
        assert_eq!(c.frames[0].head, ["train", "x"]);
        assert_eq!(c.frames[0].given, ["model"]);
        assert!(c.entry.is_empty() && c.word == (26..28));
        let c = at("train x {\n  optim = $");
        assert_eq!(c.entry, ["optim", "="]);
        let c = at("train x { eval { every = 5 $ } }");
        assert_eq!(c.frames[1].head, ["eval"]);
        assert!(c.after_number && c.word.is_empty());
        let c = at("train x { eval { every = 5 ep$ } }");
        assert!(c.after_number && c.word.len() == 2);
        let c = at("train x { batch = 5st$ }");
        assert!(c.after_number && c.word.len() == 2);
    }

    #[test]
    fn calls_and_items() {
        let c = at("param a: int = 1\nmodel m = Mlp[I = 64, H$](x");
        assert_eq!((c.item, c.frames[0].open, c.frames[0].commas), (17, b'[', 1));
        assert_eq!(c.frames[0].head, ["model", "m", "=", "Mlp"]);
        assert_eq!(c.frames[0].given, ["I"]);
        let c = at("use std.nn.{Linear, re$");
        assert_eq!(c.frames[0].head, ["use", "std", ".", "nn", "."]);
        assert!(at("lr = 1 # com$").inert && at("p = \"a$").inert && at("p = \"a$\"").inert);
        assert!(!at("p = \"a\"$").inert);
        assert_eq!(at("x = a(1) + $").entry, ["x", "=", "a", ")", "+"]);
        assert!(at("x = 1\n$").entry.is_empty());
        assert_eq!(at("x = a |>\n  $").entry.last().map(String::as_str), Some("|>"));
    }
}
