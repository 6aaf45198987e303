//! One slip of the pen anywhere in the two examples is never swallowed: something is said that
//! touches the word, names it, or points at a place that asks for what the word was.

mod common;

use common::{Memory, llama3d, shown};
use std::ops::Range;

fn example(name: &str) -> String {
    let path = format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the example is there")
}

/// Every word of a program outside comments and strings.
fn words(program: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let bytes = program.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'#' => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1;
                }
                at += 1;
            }
            c if c.is_ascii_alphabetic() || c == b'_' => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
                out.push(start..at);
            }
            // Numbers with what sticks to them: `1e-3`, `100`.
            c if c.is_ascii_digit() => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'.') {
                    at += 1;
                }
            }
            _ => at += 1,
        }
    }
    out
}

/// Slips: a letter too many, one too few, two swapped, one wrong.
fn slips(word: &str) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    let n = chars.len();
    let mut out = vec![format!("{word}{}", chars[n - 1]), format!("{word}q")];
    if n > 2 {
        out.push(chars[..n - 1].iter().collect());
        let mut swapped = chars.clone();
        swapped.swap(n - 2, n - 1);
        out.push(swapped.iter().collect());
    }
    let mut other = chars;
    other[n / 2] = 'q';
    out.push(other.iter().collect());
    out.retain(|s| s != word);
    out
}

/// One of many needs no `s`, and nothing refers to the name of a sweep.
fn same_meaning(word: &str, slip: &str) -> bool {
    word == "widths" || matches!((word, slip), ("epochs", "epoch") | ("steps", "step"))
}

/// Of the words in this part of the program.
fn every_slip_is_found(name: &str, program: &str, part: Range<usize>) {
    let mut missed = String::new();
    let mut tried = 0;
    for range in words(program).into_iter().filter(|r| part.contains(&r.start)) {
        let word = &program[range.clone()];
        for slip in slips(word) {
            let text = format!("{}{slip}{}", &program[..range.start], &program[range.end..]);
            let checked = Memory::with(name, &text).check(name);
            tried += 1;
            let found = range.start as u32..range.start as u32 + slip.len() as u32;
            if same_meaning(word, &slip) && checked.program.is_some() {
                continue;
            }
            let line = |at: usize| text[..at.min(text.len())].matches('\n').count();
            let caught = checked.diagnostics.iter().any(|d| {
                if d.severity.name() == "note" {
                    return false;
                }
                let touches = |s: monarch_graph::Span| {
                    s.file == 0 && s.start < found.end && found.start < s.end
                };
                let asks = |s: monarch_graph::Span| checked.sources.slice(s) == word;
                // What does not parse is reported where the grammar gave up, on the same line.
                let syntax = d.code.starts_with("M00");
                let near = |s: monarch_graph::Span| line(s.start as usize) == line(range.start);
                let names = |t: &String| t.contains(&format!("`{slip}`")) || t.contains(&slip);
                d.labels.iter().any(|l| touches(l.span) || asks(l.span))
                    || (syntax && d.span().is_some_and(near))
                    || names(&d.title)
                    || d.help.iter().any(|h| names(&h.text))
            });
            if !caught {
                let at = checked.sources.position(monarch_graph::Span::new(0, range.start, 0));
                missed.push_str(&format!("{word} -> {slip} at {at:?}\n{}", shown(&checked)));
            }
        }
    }
    println!("{name}: {tried} slips");
    assert!(tried > 200, "{tried} slips tried");
    assert!(missed.is_empty(), "\n{missed}");
}

#[test]
fn digits() {
    every_slip_is_found("digits.mon", &example("digits.mon"), 0..usize::MAX);
}

#[test]
fn chargpt() {
    every_slip_is_found("chargpt.mon", &example("chargpt.mon"), 0..usize::MAX);
}

/// Every word of a cluster and a layout.
#[test]
fn llama3d_laid_out() {
    let program = llama3d();
    let at = |word: &str| program.find(word).expect("the block is there");
    every_slip_is_found("llama3d.mon", &program, at("cluster lab")..at("train pretrain"));
}
