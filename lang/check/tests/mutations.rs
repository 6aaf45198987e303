//! Nothing is silently ignored: each token of valid programs is in turn misspelt, taken out,
//! doubled, moved and replaced by one of another type.
//!
//! Each such program is wrong, and then something is said in the right place; or it provably
//! means the same (equal but for places); or it is another valid program, so that the token
//! counted. Other programs are few; so are those whose mistake shows only where a changed value or
//! weight is used, lines away: both are bounded below. The right place is: a label on the
//! line of the change, or on the lines of the entry that holds it; or words that name what was
//! changed; or, for a bracket or a quote, any message about what is not closed.
//!
//! A sample runs by default; `MUTATIONS=all cargo test -p monarch-check --test mutations` runs all.

mod common;
#[path = "../../syntax/tests/common/generate.rs"]
#[allow(dead_code)]
mod generate;

use common::{Memory, shown};
use generate::Random;
use monarch_check::{Checked, hir};
use monarch_diagnostic::{Diagnostic, Sources};
use monarch_syntax::lex::{Tok, next};
use std::fmt::Write;
use std::ops::Range;

const PROGRAMS: &[&str] = &[
    "examples/digits.mon",
    "examples/chargpt.mon",
    "examples/llama3d.mon",
    "examples/lora.mon",
    "tests/fixtures/mlp_adamw.mon",
    "tests/fixtures/mlp_sgd.mon",
];

fn text_of(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the program is there")
}

fn world(path: &str, text: &str) -> Memory {
    let mut world = Memory::with(path, text);
    for fact in ["mlp_adamw", "mlp_sgd"] {
        for part in ["init", "data"] {
            let name = format!("tests/fixtures/{fact}.{part}.safetensors");
            let known = world.tensors.get(&name).cloned().unwrap_or_default();
            world.tensors.entry(name).or_insert(known);
        }
    }
    world
}

/// The places of all tokens but comments.
fn tokens(text: &str) -> Vec<(Tok, Range<usize>)> {
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let token = next(text, at);
        match token.tok {
            Tok::End => return out,
            Tok::Comment => {}
            tok => out.push((tok, token.start..token.end)),
        }
        at = token.end;
    }
}

/// A changed program.
struct Mutant {
    what: &'static str,
    text: String,
    /// What was changed, in the changed text.
    place: Range<usize>,
    /// The words that were there, and those that are there now.
    words: [String; 2],
}

fn mutants(text: &str, n: usize, all: &[(Tok, Range<usize>)]) -> Vec<Mutant> {
    let (tok, range) = &all[n];
    let word = &text[range.clone()];
    let change = |what, range: &Range<usize>, with: String| Mutant {
        what,
        text: format!("{}{with}{}", &text[..range.start], &text[range.end..]),
        place: range.start..range.start + with.len(),
        words: [text[range.clone()].to_owned(), with],
    };
    let mut out = vec![
        change("delete", range, String::new()),
        change("double", range, format!("{word} {word}")),
        change("retype", range, retyped(*tok, word)),
    ];
    if *tok == Tok::Word {
        let mut letters: Vec<char> = word.chars().collect();
        let middle = letters.len() / 2;
        letters[middle] = if letters[middle] == 'q' { 'z' } else { 'q' };
        out.push(change("misspell", range, letters.into_iter().collect()));
        out.push(change("misspell", range, format!("{word}x")));
    }
    if let Some((_, after)) = all.get(n + 1) {
        let both = range.start..after.end;
        let swapped = format!("{} {}{}", &text[after.clone()], word, &text[range.end..after.start]);
        out.push(change("move", &both, swapped));
    }
    out.retain(|mutant| mutant.text != text);
    out
}

fn retyped(tok: Tok, word: &str) -> String {
    let with = match tok {
        Tok::Word => "\"text\"",
        Tok::Number => "\"text\"",
        Tok::Str | Tok::Rhai => "7",
        Tok::Sign if word == "=" => ":",
        Tok::Sign => "=",
        _ => "word",
    };
    with.to_owned()
}

/// The resolved program without places.
fn meaning(program: &hir::Program) -> String {
    let plain = hir::Program { sources: Sources::new(), ..program.clone() };
    let tree = format!("{plain:?}");
    let mut out = String::with_capacity(tree.len());
    let mut rest = tree.as_str();
    while let Some((before, after)) = rest.split_once("Span {") {
        let _ = out.write_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    out + rest
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// Whether a diagnostic is about the change.
fn about(d: &Diagnostic, mutant: &Mutant, checked: &Checked) -> bool {
    let text = &mutant.text;
    let lines = line(text, mutant.place.start)..=line(text, mutant.place.end);
    let near = |span: monarch_graph::Span| {
        let (from, to) = (line(text, span.start as usize), line(text, span.end as usize));
        // What is missing may be missed at the beginning of what follows.
        span.file == 0 && from <= lines.end() + 1 && to + 1 >= *lines.start()
    };
    let names = |said: &str| {
        mutant.words.iter().any(|word| !word.is_empty() && said.contains(&format!("`{word}`")))
    };
    let words = || {
        let helps = d.help.iter().map(|help| help.text.as_str());
        d.labels.iter().map(|label| label.text.as_str()).chain(helps).chain([d.title.as_str()])
    };
    let bracket = mutant.words.iter().any(|w| w.contains(['{', '}', '(', ')', '[', ']', '"', '`']));
    d.labels.iter().any(|label| {
        near(label.span) || mutant.words.contains(&checked.sources.slice(label.span).to_owned())
    }) || words().any(names)
        || (bracket && d.code.starts_with("M00"))
}

/// What is valid and another program: the change counted, so it was not ignored.
fn another_program(mutant: &Mutant) -> bool {
    let number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let [before, after] = mutant.words.each_ref().map(String::as_str);
    match mutant.what {
        // Without a sign or a share of it, a number is another number; without an argument that may
        // be left out, a call has its default.
        "delete" => {
            let word = before.starts_with(|c: char| c.is_alphabetic() || c == '"');
            matches!(before, "-" | "%") || number(before) || word
        }
        // Names that are used nowhere else, texts that mean nothing to the check; another order
        // of values or labels.
        "misspell" | "retype" | "double" | "move" => true,
        _ => after.is_empty(),
    }
}

#[derive(Default)]
struct Tally {
    tried: usize,
    reported: usize,
    same: usize,
    other: Vec<String>,
    /// Reported where what was changed is used.
    far: Vec<String>,
    missed: String,
}

fn try_all(path: &str, every: usize, seed: u64, tally: &mut Tally) {
    let text = text_of(path);
    let base = world(path, &text).check(path);
    let Some(program) = &base.program else { return };
    let original = meaning(program);
    let mut random = Random(seed);
    let all = tokens(&text);
    for n in 0..all.len() {
        for mutant in mutants(&text, n, &all) {
            if !random.once(every) {
                continue;
            }
            tally.tried += 1;
            let checked = world(path, &mutant.text).check(path);
            let said = |d: &&Diagnostic| d.severity.name() != "note";
            if checked.diagnostics.iter().filter(said).any(|d| about(d, &mutant, &checked)) {
                tally.reported += 1;
                continue;
            }
            let place = format!(
                "{path}:{}: {} `{}` to `{}`",
                line(&mutant.text, mutant.place.start) + 1,
                mutant.what,
                mutant.words[0].trim(),
                mutant.words[1].trim(),
            );
            match &checked.program {
                Some(program) if meaning(program) == original => tally.same += 1,
                Some(_) if another_program(&mutant) => tally.other.push(place),
                None if checked.diagnostics.iter().any(Diagnostic::is_error) => {
                    tally.far.push(place);
                }
                _ => tally.missed.push_str(&format!("{place}\n{}", shown(&checked))),
            }
        }
    }
}

#[test]
fn no_change_of_a_token_is_ignored() {
    let everything = std::env::var("MUTATIONS").is_ok_and(|value| value == "all");
    let every = if everything { 1 } else { 12 };
    let mut tally = Tally::default();
    for (n, path) in PROGRAMS.iter().enumerate() {
        try_all(path, every, 31 + n as u64, &mut tally);
    }
    println!(
        "{} changes: {} reported, {} where it is used, {} mean the same, {} other programs",
        tally.tried,
        tally.reported,
        tally.far.len(),
        tally.same,
        tally.other.len()
    );
    tally.other.iter().for_each(|other| println!("  other: {other}"));
    tally.far.iter().for_each(|far| println!("  where it is used: {far}"));
    assert!(tally.missed.is_empty(), "\n{}", tally.missed);
    assert!(tally.tried > 300, "{}", tally.tried);
    assert!(tally.far.len() * 100 < tally.tried, "{:#?}", tally.far);
    assert!(tally.other.len() * 25 < tally.tried, "{} of {}", tally.other.len(), tally.tried);
}
