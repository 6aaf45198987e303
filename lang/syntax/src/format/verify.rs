//! Whether two texts are the same but for spaces, line breaks and commas.

use crate::lex::{self, Tok, Token};

/// Whether both hold the same tokens and comments, in order, glued where that means something.
///
/// Commas may come and go (one that separates nothing ends a list or a line); those that are
/// missed would make the text unreadable, which the tests of the formatter would show.
pub(super) fn same(before: &str, after: &str) -> bool {
    let (mut a, mut b) = (Tokens::new(before), Tokens::new(after));
    let (mut notes_a, mut notes_b) = (Vec::new(), Vec::new());
    loop {
        let (x, y) = (a.next(&mut notes_a), b.next(&mut notes_b));
        let end = x.token.tok == Tok::End;
        if x.token.text(before) != y.token.text(after) || end != (y.token.tok == Tok::End) {
            return false;
        }
        let (x, y) = (glue(&x, before), glue(&y, after));
        // A parameter list may stand apart from its name, and is joined to it.
        if x != y && !(x == APART && y == JOINED) {
            return false;
        }
        if end {
            break;
        }
    }
    notes_a == notes_b
}

struct Tokens<'t> {
    text: &'t str,
    at: usize,
    last: Last,
    /// Brackets that are open.
    open: Vec<u8>,
}

/// What stands before a token.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Operand,
    Number,
    Other,
}

struct Found {
    token: Token,
    /// Where the token or comment before it ends, and what it is.
    from: usize,
    last: Last,
    /// In brackets, where a number has no unit unless it is glued to it: `[B 2 T -> B T]`.
    einops: bool,
}

impl<'t> Tokens<'t> {
    fn new(text: &'t str) -> Tokens<'t> {
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Tokens { text, at, last: Last::Other, open: Vec::new() }
    }

    /// The next token that is no comma and no comment; comments go to `notes`.
    fn next(&mut self, notes: &mut Vec<&'t str>) -> Found {
        loop {
            let token = lex::next(self.text, self.at);
            let einops = self.open.last() == Some(&b'[');
            let found = Found { token, from: self.at, last: self.last, einops };
            match token.tok {
                Tok::Open(kind) => self.open.push(kind),
                Tok::Close(_) => drop(self.open.pop()),
                _ => {}
            }
            self.at = token.end.max(self.at + 1);
            self.last = match token.tok {
                Tok::Number => Last::Number,
                Tok::Word if lex::RESERVED.contains(&token.text(self.text)) => Last::Other,
                Tok::Word | Tok::Str | Tok::Close(_) | Tok::Rhai => Last::Operand,
                _ => Last::Other,
            };
            match token.tok {
                Tok::Comment => notes.push(token.text(self.text).trim_end()),
                Tok::Sign if token.text(self.text) == "," => {}
                _ => return found,
            }
        }
    }
}

const APART: u8 = 1;
const JOINED: u8 = 2;

/// How a token is joined to the one before it, where that makes a difference: an opening bracket
/// and a dot belong to what they touch, and a word on the line of a number may be its unit.
fn glue(found: &Found, text: &str) -> u8 {
    let between = text.get(found.from..found.token.start).unwrap_or("");
    let word = found.token.text(text);
    match found.token.tok {
        Tok::Open(b'(' | b'[') if found.last != Last::Other => {
            if between.is_empty() {
                JOINED
            } else {
                APART
            }
        }
        Tok::Sign if word == "." => {
            let mut after = lex::next(text, found.token.end);
            while after.tok == Tok::Comment {
                after = lex::next(text, after.end);
            }
            u8::from(after.tok != Tok::Open(b'{') && between.is_empty())
        }
        Tok::Word if found.last == Last::Number => match between {
            "" => 3,
            " " if !found.einops && !lex::RESERVED.contains(&word) => 4,
            _ => 0,
        },
        _ => 0,
    }
}
