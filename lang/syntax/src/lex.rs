//! Words, brackets, strings and comments: what must be known before the grammar runs (are brackets
//! closed?) and after it, to name what was found where something else belonged.

/// The kinds of tokens. Operators keep their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tok {
    /// A run of letters, digits and `_` that begins with no digit; letters of any script.
    Word,
    /// A run that begins with a digit, with its unit if that is glued to it.
    Number,
    /// `"..."`
    Str,
    /// A string whose line ends before it does.
    OpenStr,
    /// A Rhai text with both fences.
    Rhai,
    /// A Rhai text without its second fence.
    OpenRhai,
    /// Three backticks that do not open a Rhai text.
    Fence,
    /// `# ...`
    Comment,
    /// `(`, `[` or `{`
    Open(u8),
    /// `)`, `]` or `}`
    Close(u8),
    /// Any other character, or several that make one operator.
    Sign,
    /// Nothing is left.
    End,
}

/// A token and its place, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub tok: Tok,
    pub start: usize,
    pub end: usize,
}

impl Token {
    /// The token's text.
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.end).unwrap_or("")
    }
}

/// Operators of more than one character, of this language and of others.
const SIGNS: [&str; 16] = [
    "|>", "==", "!=", "<=", ">=", "..", "->", "=>", ":=", "+=", "&&", "||", "**", "//", "/*", "::",
];

/// Words that cannot be names.
pub(crate) const RESERVED: [&str; 14] = [
    "then", "else", "and", "or", "in", "if", "not", "on", "let", "assert", "as", "use", "param",
    "layer",
];

/// The first token at or after byte `at`.
pub fn next(text: &str, at: usize) -> Token {
    let bytes = text.as_bytes();
    let mut start = at.min(bytes.len());
    while matches!(bytes.get(start), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        start += 1;
    }
    let Some(first) = bytes.get(start) else {
        return Token { tok: Tok::End, start, end: start };
    };
    let (tok, end) = match first {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => (Tok::Word, word(text, start)),
        b'0'..=b'9' => (Tok::Number, number(text, start)),
        b'"' => string(bytes, start),
        b'#' => (Tok::Comment, line_end(bytes, start)),
        b'(' | b'[' | b'{' => (Tok::Open(*first), start + 1),
        b')' | b']' | b'}' => (Tok::Close(*first), start + 1),
        b'`' if bytes[start..].starts_with(b"```") => fence(text, start),
        0x80.. => other(text, start),
        _ => (Tok::Sign, start + sign(bytes, start)),
    };
    Token { tok, start, end }
}

/// The end of the line that holds byte `at`, before its line break.
pub(crate) fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let end = rest.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |n| at + n);
    match end > at && bytes.get(end.wrapping_sub(1)) == Some(&b'\r') {
        true => end - 1,
        false => end,
    }
}

/// The start of the line that holds byte `at`.
pub(crate) fn line_start(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(&[]);
    before.iter().rposition(|byte| *byte == b'\n').map_or(0, |n| n + 1)
}

fn word(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut end = start;
    while bytes.get(end).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        end += 1;
    }
    match bytes.get(end) {
        Some(0x80..) => wide_word(text, end),
        _ => end,
    }
}

/// A word goes on over letters of other scripts, so that `café` is named as one.
fn wide_word(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or("");
    let letter = |c: char| c.is_alphanumeric() || c == '_';
    from + rest.find(|c| !letter(c)).unwrap_or(rest.len())
}

fn number(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut end = word(text, start);
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = word(text, end + 1);
    }
    end
}

fn string(bytes: &[u8], start: usize) -> (Tok, usize) {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return (Tok::Str, at + 1),
            Some(b'\\') if !matches!(bytes.get(at + 1), None | Some(b'\n')) => at += 2,
            None | Some(b'\n') => return (Tok::OpenStr, line_end(bytes, start)),
            Some(_) => at += 1,
        }
    }
}

fn fence(text: &str, start: usize) -> (Tok, usize) {
    let rest = text.get(start..).unwrap_or("");
    if !rest.starts_with("```rhai") {
        return (Tok::Fence, start + 3);
    }
    match rest.get(7..).and_then(|inner| inner.find("```")) {
        Some(n) => (Tok::Rhai, start + 7 + n + 3),
        None => (Tok::OpenRhai, start + 7),
    }
}

fn other(text: &str, start: usize) -> (Tok, usize) {
    let first = text.get(start..).and_then(|rest| rest.chars().next()).unwrap_or(' ');
    match first.is_alphanumeric() {
        true => (Tok::Word, wide_word(text, start)),
        false => (Tok::Sign, start + first.len_utf8()),
    }
}

fn sign(bytes: &[u8], start: usize) -> usize {
    let rest = &bytes[start..];
    match SIGNS.iter().any(|sign| rest.starts_with(sign.as_bytes())) {
        true => 2,
        false => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(Tok, &str)> {
        let mut at = 0;
        let mut out = Vec::new();
        loop {
            let token = next(text, at);
            if token.tok == Tok::End {
                return out;
            }
            out.push((token.tok, token.text(text)));
            at = token.end;
        }
    }

    #[test]
    fn kinds() {
        use Tok::*;
        assert_eq!(
            all("lr = 2.5e3 |> \"a\\\"b\" # c\r\n[4GiB)"),
            [
                (Word, "lr"),
                (Sign, "="),
                (Number, "2.5e3"),
                (Sign, "|>"),
                (Str, "\"a\\\"b\""),
                (Comment, "# c"),
                (Open(b'['), "["),
                (Number, "4GiB"),
                (Close(b')'), ")"),
            ]
        );
        assert_eq!(all("\"abc\r\nx"), [(OpenStr, "\"abc"), (Word, "x")]);
        assert_eq!(all("```rhai x ``` y"), [(Rhai, "```rhai x ```"), (Word, "y")]);
        assert_eq!(all("```rhai x"), [(OpenRhai, "```rhai"), (Word, "x")]);
        assert_eq!(all("```py"), [(Fence, "```"), (Word, "py")]);
        assert_eq!(all("café “a”"), [(Word, "café"), (Sign, "“"), (Word, "a"), (Sign, "”")]);
    }

    #[test]
    fn strings_that_end_in_a_backslash() {
        assert_eq!(all("\"a\\")[0], (Tok::OpenStr, "\"a\\"));
        assert_eq!(all("\"a\\\nb")[0], (Tok::OpenStr, "\"a\\"));
    }
}
