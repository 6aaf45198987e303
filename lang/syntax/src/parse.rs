//! The way from text to tree: scan, grammar, build.

use monarch_diagnostic::{Diagnostic, Span};
use pest::Parser;

use crate::ast::{Broken, Comment, File, Ident, Item, ItemKind};
use crate::build::Builder;
use crate::lex::{self, Tok};
use crate::scan::{Chunk, scan};
use crate::{MAX_BYTES, MAX_DIAGNOSTICS};

#[derive(pest_derive::Parser)]
#[grammar = "mon.pest"]
pub(crate) struct Grammar;

/// Reads one file. The tree holds everything that could be read; there is a diagnostic for
/// everything that could not, in the order of their places, one per cause.
///
/// `file` is the number that all spans carry.
pub fn parse(file: u32, text: &str) -> (File, Vec<Diagnostic>) {
    if text.len() > MAX_BYTES {
        return (File::default(), vec![too_large(file, text.len() as u64)]);
    }
    let mut tree = File { span: Span::new(file, 0, text.len()), ..File::default() };
    if let Some(diagnostic) = old_line_breaks(file, text) {
        return (tree, vec![diagnostic]);
    }
    let scan = scan(file, text);
    let code = scan.without_comments(text);
    let mut builder = Builder::new(file, text, scan.docs);
    for chunk in &scan.chunks {
        match chunk.broken {
            true => tree.items.push(broken(file, text, *chunk)),
            false => parse_chunk(&mut builder, &code, *chunk, &mut tree.items),
        }
    }
    let (found, unattached) = builder.finish();
    let mut diagnostics = scan.diagnostics;
    diagnostics.extend(found);
    if scan.chunks.is_empty() {
        diagnostics.push(
            Diagnostic::error("M0006", "the program is empty")
                .label(Span::new(file, 0, 0), "nothing but spaces and comments")
                .help("name a `model`, its `data` and how to `train`: see `examples/digits.mon`"),
        );
    }
    diagnostics.sort_by_key(|diagnostic| diagnostic.span());
    diagnostics.truncate(MAX_DIAGNOSTICS);
    tree.comments = comments(scan.comments, unattached);
    (tree, diagnostics)
}

/// Lines that end in a carriage return alone would make one line, and one comment, of a program.
fn old_line_breaks(file: u32, text: &str) -> Option<Diagnostic> {
    let bytes = text.as_bytes();
    let mut returns = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\r');
    let (at, _) = returns.find(|(n, _)| bytes.get(n + 1) != Some(&b'\n'))?;
    Some(
        Diagnostic::error("M0001", "a line that ends in a carriage return alone")
            .label(Span::new(file, at, at + 1), "no line feed follows")
            .help("save the file with line feeds (LF, or CR LF) at the ends of its lines"),
    )
}

/// The diagnostic for a file of `bytes` bytes, more than [`MAX_BYTES`]; for readers, who need not
/// read such a file to refuse it.
pub fn too_large(file: u32, bytes: u64) -> Diagnostic {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let title = format!("the program has {} MiB; at most {} are read", mib(bytes), MAX_BYTES >> 20);
    Diagnostic::error("M0005", title)
        .label(Span::new(file, 0, 0), "this file")
        .help("data belongs into files that the program names, as in `jsonl(\"data.jsonl\")`")
}

/// Checks that bytes are UTF-8. The label points into the lossy text, which agrees with the bytes
/// up to there.
pub fn decode(file: u32, bytes: &[u8]) -> Result<&str, Diagnostic> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let diagnostic = Diagnostic::error("M0008", "the program is not UTF-8 text");
        match bytes {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => diagnostic
                .label(Span::new(file, 0, 3), "a mark of UTF-16")
                .help("save the file as UTF-8"),
            _ => {
                let byte = bytes.get(at).copied().unwrap_or(0);
                diagnostic
                    .label(Span::new(file, at, at + 3), format!("byte 0x{byte:02x}"))
                    .help("save the file as UTF-8; is it a text at all?")
            }
        }
    })
}

fn parse_chunk<'t>(builder: &mut Builder<'t>, code: &'t str, chunk: Chunk, items: &mut Vec<Item>) {
    let Some(text) = code.get(chunk.start..chunk.end) else { return };
    match Grammar::parse(Rule::chunk, text) {
        Ok(pairs) => builder.chunk(chunk.start, pairs, items),
        Err(error) => {
            let offset = match error.location {
                pest::error::InputLocation::Pos(at) => at,
                pest::error::InputLocation::Span((at, _)) => at,
            };
            let custom = matches!(error.variant, pest::error::ErrorVariant::CustomError { .. });
            builder.unreadable(chunk.start + offset, custom);
            items.push(broken(builder.file(), builder.text(), chunk));
        }
    }
}

/// An item that has its diagnostic already; its name is guessed, so that who uses it is not blamed.
pub(crate) fn broken(file: u32, text: &str, chunk: Chunk) -> Item {
    let span = Span::new(file, chunk.start, chunk.end);
    let word = |at| {
        let token = lex::next(text, at);
        let here = token.tok == Tok::Word && token.end <= chunk.end;
        let name = token.text(text).to_owned();
        here.then(|| Ident { name, span: Span::new(file, token.start, token.end) })
    };
    let keyword = word(chunk.start);
    let name = keyword.as_ref().and_then(|keyword| word(keyword.span.end as usize));
    Item { span, docs: Vec::new(), kind: ItemKind::Broken(Broken { span, keyword, name }) }
}

/// Both lists are in order; so is the result.
fn comments(mut comments: Vec<Comment>, unattached: Vec<Comment>) -> Vec<Comment> {
    if !unattached.is_empty() {
        comments.extend(unattached);
        comments.sort_by_key(|comment| comment.span);
    }
    comments
}
