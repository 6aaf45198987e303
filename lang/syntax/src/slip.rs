//! Habits from other languages, and the words for what was found.

use monarch_diagnostic::{Diagnostic, Span};

use crate::lex::{self, Tok, Token};

/// What stands at a token, for "expected .., found ..".
pub(crate) fn found(text: &str, token: Token) -> String {
    let word = token.text(text);
    match token.tok {
        Tok::End => "the end of the file".to_owned(),
        Tok::Str | Tok::OpenStr => "a string".to_owned(),
        Tok::Rhai | Tok::OpenRhai | Tok::Fence => "a Rhai text".to_owned(),
        Tok::Comment => "a comment".to_owned(),
        _ => format!("`{}`", clip(word)),
    }
}

/// A long word is shown by its beginning.
pub(crate) fn clip(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", word.get(..end).unwrap_or("")),
        None => word.to_owned(),
    }
}

/// A diagnostic for what a person used to another language writes at byte `at`, if it is that.
pub(crate) fn slip(file: u32, text: &str, at: usize) -> Option<Diagnostic> {
    let mut token = lex::next(text, at);
    if token.tok == Tok::Word && !token.text(text).is_ascii() {
        // The grammar may have taken the first letters of `café` for a name.
        let before = text.get(..token.start).unwrap_or("");
        let word = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        token.start = word.len();
    }
    let span = Span::new(file, token.start, token.end);
    match token.tok {
        Tok::Word => word(token.text(text), span),
        Tok::Sign => sign(text, token, span),
        _ => None,
    }
}

fn foreign(title: impl Into<String>, span: Span, label: impl Into<String>) -> Diagnostic {
    Diagnostic::error("M0012", title).label(span, label)
}

fn sign(text: &str, token: Token, span: Span) -> Option<Diagnostic> {
    let sign = token.text(text);
    let instead = |with: &str| {
        foreign(format!("`{sign}` is written `{with}`"), span, format!("`{with}`")).fix(
            format!("write `{with}`"),
            span,
            with,
        )
    };
    Some(match sign {
        "//" => foreign("comments begin with `#`", span, "not a comment here").fix(
            "write `#`",
            span,
            "#",
        ),
        "/*" => foreign("comments begin with `#`, each line its own", span, "not a comment here"),
        ";" => foreign("a line break ends a line: there are no semicolons", span, "not needed")
            .fix("remove it", span, ""),
        "&&" => instead("and"),
        "||" => instead("or"),
        "!" => instead("not "),
        "**" => instead("^"),
        "::" => instead("."),
        "?" => foreign("a choice is written `if a { b } else { c }`", span, "no `? :` here"),
        "%" => foreign("there is no remainder operator", span, "`%` is a unit: `10%`"),
        "\\" => {
            foreign("a line goes on without a mark", span, "not needed").fix("remove it", span, "")
        }
        "$" => foreign("the environment is read with `env(\"NAME\")`", span, "no `$` here")
            .help("only a `cluster` reads the environment; other values are `param`s"),
        "." if digit_after(text, token) => foreign(
            "a number begins with a digit",
            span,
            "write `0.`",
        )
        .fix("add a zero", span, "0."),
        _ if let Some(with) = twin(sign) => foreign(
            format!("`{sign}` looks like `{with}` and is another character"),
            span,
            format!("not `{with}`"),
        )
        .fix(format!("write `{with}`"), span, with),
        _ if let Some(code) = invisible(sign) => {
            let title = format!("an invisible character, U+{code:04X}");
            let fix = if code == 0xa0 { ("write a space", " ") } else { ("remove it", "") };
            foreign(title, span, "not a plain space").fix(fix.0, span, fix.1)
        }
        "'" => quoted(text, span, "'")?,
        "“" | "”" | "„" => quoted(text, span, "”“\"")?,
        "‘" | "’" => quoted(text, span, "’‘'")?,
        "«" | "»" => quoted(text, span, "»«")?,
        _ => return None,
    })
}

/// The sign of the language that a sign from elsewhere looks like.
fn twin(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "−" | "–" | "—" | "‐" | "‑" | "－" => "-",
        "×" | "·" | "∗" | "＊" => "*",
        "÷" | "∕" | "／" => "/",
        "→" | "⟶" => "->",
        "⇒" => "=>",
        "▷" | "⊳" => "|>",
        "≤" => "<=",
        "≥" => ">=",
        "≠" => "!=",
        "＝" => "=",
        "：" => ":",
        "，" | "、" => ",",
        "．" => ".",
        "＋" => "+",
        "％" => "%",
        "～" | "∼" | "˜" => "~",
        "（" => "(",
        "）" => ")",
        "［" => "[",
        "］" => "]",
        "｛" => "{",
        "｝" => "}",
        "…" => "..",
        _ => return None,
    })
}

/// The code of a character that shows nothing or changes the order in which others show.
fn invisible(sign: &str) -> Option<u32> {
    let first = sign.chars().next()?;
    let hidden = matches!(first,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{feff}');
    ((first.is_whitespace() || hidden) && !first.is_ascii()).then_some(u32::from(first))
}

fn digit_after(text: &str, token: Token) -> bool {
    text.as_bytes().get(token.end).is_some_and(u8::is_ascii_digit)
}

/// A string in other quotes, as far as its end on the same line.
fn quoted(text: &str, quote: Span, ends: &str) -> Option<Diagnostic> {
    let (start, end) = (quote.start as usize, quote.end as usize);
    let rest = text.get(end..lex::line_end(text.as_bytes(), start))?;
    let title = format!("strings stand in `\"`, not in `{}`", text.get(start..end)?);
    let Some((length, close)) = rest.char_indices().find(|(_, c)| ends.contains(*c)) else {
        return Some(foreign(title, quote, "not a quote here"));
    };
    let whole = Span::new(quote.file, start, end + length + close.len_utf8());
    let inner = rest.get(..length)?;
    Some(foreign(title, whole, "a string?").fix("use `\"`", whole, format!("\"{inner}\"")))
}

/// Words that begin a construct elsewhere and have another form here.
fn word(word: &str, span: Span) -> Option<Diagnostic> {
    let (title, help) = match word {
        "import" | "from" | "include" | "require" => {
            ("imports begin with `use`", "`use std.nn.{Linear, relu}`")
        }
        "def" | "fn" | "func" | "function" | "fun" | "lambda" => (
            "there are no functions of one's own",
            "a layer computes in its `forward(x: [B, D]) -> [B, D] = ..`",
        ),
        "class" | "struct" | "module" => {
            ("a part of a model is a `layer`", "`layer Mlp[D, F] { .. }`")
        }
        "return" => ("there is no `return`", "the last expression of a script is its value"),
        "for" | "while" | "loop" => (
            "there are no loops",
            "`repeat(Block[D], depth)` stacks layers; a `sweep` tries values",
        ),
        "var" | "const" | "mut" | "val" | "set" => {
            ("a value gets its name with `let`", "`let k = D / H`")
        }
        "elif" | "switch" | "match" | "case" => (
            "a choice is written `if a { b } else { c }`",
            "inside `else { .. }` another `if` may stand",
        ),
        _ if !word.is_ascii() => {
            let title = format!("`{}` is not a name", clip(word));
            let why = "names are made of the letters a to z, digits and `_`";
            return Some(Diagnostic::error("M0001", title).label(span, why));
        }
        _ => return None,
    };
    Some(foreign(title, span, "not a word of this language").help(help))
}

/// A reserved word where a name belongs.
pub(crate) fn reserved(file: u32, text: &str, token: Token) -> Option<Diagnostic> {
    let word = token.text(text);
    if token.tok != Tok::Word || !lex::RESERVED.contains(&word) {
        return None;
    }
    let span = Span::new(file, token.start, token.end);
    Some(
        Diagnostic::error("M0009", format!("`{word}` cannot be a name"))
            .label(span, "a word of the language")
            .fix(format!("call it `{word}_`"), span, format!("{word}_")),
    )
}
