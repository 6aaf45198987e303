//! Half-typed programs are the usual case: no text and no place is too strange.

mod common;

use common::{Memory, RESERVED, programs};
use monarch_ide::*;
use proptest::prelude::*;

/// Every feature at one place.
fn everything(world: &Memory, analysis: &Analysis, at: usize) {
    let text = analysis.text();
    let inside = |span: monarch_graph::Span| {
        let text = analysis.sources().get(span.file).map_or("", |s| s.text());
        let (start, end) = (span.start as usize, span.end as usize);
        assert!(text.get(start..end).is_some(), "{span:?} of {}", text.len());
    };
    hover(analysis, at).iter().for_each(|h| inside(h.span));
    let (span, all) = complete(analysis, at);
    inside(span);
    assert!(all.iter().all(|c| !c.label.is_empty()));
    definition(analysis, at).iter().for_each(|l| {
        inside(l.name);
        inside(l.whole);
    });
    references(analysis, at, true).into_iter().for_each(inside);
    signature(analysis, at).iter().for_each(|s| {
        assert!(s.arguments.iter().all(|a| s.label.get(a.clone()).is_some()));
    });
    for fix in fixes(analysis, at, at) {
        fix.edits.iter().for_each(|e| inside(e.span));
    }
    if let Ok(edits) = rename(world, analysis, RESERVED, at, "zq_new") {
        edits.iter().for_each(|e| inside(e.span));
    }
    assert!(hints(analysis, 0, text.len()).iter().all(|h| text.is_char_boundary(h.offset)));
    fix_all(analysis).iter().for_each(|e| inside(e.span));
    let tree = &analysis.inspected.files[0].tree;
    symbols(tree, &|span| analysis.slice(span));
}

/// Pieces that break things.
const PIECES: &[&str] = &[
    "",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\"",
    "```rhai",
    "```",
    "=",
    "->",
    "|>",
    ".",
    ",",
    "..",
    ":",
    "~",
    "@",
    "#",
    "##",
    "\n",
    "\r\n",
    "\t",
    "\u{1f600}",
    "\u{e9}",
    "layer A[D] {",
    "let x = ",
    "use std.",
    "on ",
    "5 ",
    "5 GiB",
    "einsum[B T -> T B](",
    " as ",
    "over = ",
    "param ",
    "T",
    "D",
    "if ",
];

fn mutated(text: &str, edits: &[(usize, usize, usize)]) -> String {
    let mut text = text.to_owned();
    for (at, length, piece) in edits {
        let start = text.floor_char_boundary(at % (text.len() + 1));
        let end = text.floor_char_boundary((start + length).min(text.len()));
        text.replace_range(start..end.max(start), PIECES[piece % PIECES.len()]);
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn random_edits(
        program in 0usize..4,
        edits in prop::collection::vec((any::<usize>(), 0usize..40, any::<usize>()), 1..6),
        places in prop::collection::vec(any::<usize>(), 4),
    ) {
        let (name, text) = programs()[program];
        let text = mutated(text, &edits);
        let world = Memory::with(name, &text);
        let analysis = world.analysis(name);
        let near = edits.first().map_or(0, |e| e.0 % (text.len() + 1));
        for at in places.iter().map(|p| p % (text.len() + 2)).chain([near, near + 1]) {
            everything(&world, &analysis, at);
        }
    }
}

/// Every offset of every example cut off there: what typing it from the start shows.
#[test]
fn programs_typed_from_the_start() {
    for (name, text) in programs() {
        for at in (0..text.len()).step_by(7) {
            let at = text.floor_char_boundary(at);
            let world = Memory::with(name, &text[..at]);
            let analysis = world.analysis(name);
            everything(&world, &analysis, at);
        }
    }
}

#[test]
fn strange_texts() {
    let deep = format!("let x = {}1", "(".repeat(3000));
    let wide = "layer A[D] { w: [D] ~ ones }\n".repeat(300);
    for text in
        ["", "\u{feff}", "\r", "}", "]", "\"", "use", "use std.", "param", "# x", &deep, &wide]
    {
        let world = Memory::with("job.mon", text);
        let analysis = world.analysis("job.mon");
        for at in [0, 1, text.len() / 2, text.len(), text.len() + 5] {
            everything(&world, &analysis, at);
        }
    }
    // An alias of itself, files that import each other, and one that is not there.
    let world =
        Memory::with("a.mon", "use \"b.mon\" as b\nuse b as c\nuse \"no.mon\"\nmodel m = b.X[c]\n")
            .and("b.mon", "use \"a.mon\" as a\nmodel X = a.m\n");
    let analysis = world.analysis("a.mon");
    (0..60).for_each(|at| everything(&world, &analysis, at));
}
