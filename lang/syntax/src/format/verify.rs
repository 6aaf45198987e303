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
        if glue(&x, before) != glue(&y, after) {
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
}

impl<'t> Tokens<'t> {
    fn new(text: &'t str) -> Tokens<'t> {
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Tokens { text, at, last: Last::Other }
    }

    /// The next token that is no comma and no comment; comments go to `notes`.
    fn next(&mut self, notes: &mut Vec<&'t str>) -> Found {
        loop {
            let token = lex::next(self.text, self.at);
            let found = Found { token, from: self.at, last: self.last };
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

/// How a token is joined to the one before it, where that makes a difference: an opening bracket
/// and a dot belong to what they touch, and a word on the line of a number may be its unit.
fn glue(found: &Found, text: &str) -> u8 {
    let between = text.get(found.from..found.token.start).unwrap_or("");
    let word = found.token.text(text);
    match found.token.tok {
        Tok::Open(b'(' | b'[') => u8::from(between.is_empty() && found.last != Last::Other),
        Tok::Sign if word == "." => u8::from(between.is_empty()),
        Tok::Word if found.last == Last::Number => match between {
            "" => 1,
            " " if !lex::RESERVED.contains(&word) => 2,
            _ => 0,
        },
        _ => 0,
    }
}
