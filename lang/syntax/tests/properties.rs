//! Whatever the text: no panic, spans within it and on character boundaries, children within their
//! parents, nothing of the grammar in a message, and the time of a long text is that of its parts.

use std::time::{Duration, Instant};

use monarch_diagnostic::{Sources, Style, json, render};
use monarch_syntax::parse;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const PROGRAMS: [&str; 4] = [
    include_str!("../../../examples/digits.mon"),
    include_str!("../../../examples/chargpt.mon"),
    include_str!("../../../examples/llama3d.mon"),
    include_str!("../../../examples/lora.mon"),
];

/// Seeded, so that a failure here is a failure everywhere; nothing is written to disk.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// A span in the `Debug` text of a tree: `Span { file: 0, start: 1, end: 2 }`.
fn span_at(text: &str) -> Option<(usize, usize, usize)> {
    let inner = text.strip_prefix("Span { ")?.split_once(" }")?.0;
    let mut numbers = inner.split(", ").filter_map(|field| field.split_once(": ")?.1.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next()?))
}

/// Checks all spans of a tree by way of its `Debug` text, in which every node begins with its span.
fn check_spans(text: &str, tree: &str) {
    // The span of each enclosing node, if it has given one yet.
    let mut nodes: Vec<Option<(usize, usize)>> = Vec::new();
    let mut at = 0;
    let mut string = false;
    while let Some(byte) = tree.as_bytes().get(at) {
        match byte {
            b'\\' if string => at += 1,
            b'"' => string = !string,
            _ if string => {}
            b'S' if tree[at..].starts_with("Span { ") => {
                let (file, start, end) = span_at(&tree[at..]).expect("a span");
                let near: String = tree[at..].chars().take(200).collect();
                let place = format!("{start}..{end} of {}\n{near}\n{text}", text.len());
                assert_eq!(file, 7, "{place}");
                assert!(start <= end && end <= text.len(), "{place}");
                assert!(text.is_char_boundary(start) && text.is_char_boundary(end), "{place}");
                if let Some(parent) = nodes.iter().rev().flatten().next() {
                    assert!(parent.0 <= start && end <= parent.1, "outside {parent:?}: {place}");
                }
                // A number's span is without its unit, which is its child.
                let number = tree[..at].ends_with("Number { span: ");
                if let Some(node) = nodes.last_mut().filter(|node| node.is_none() && !number) {
                    *node = Some((start, end));
                }
                at += tree[at..].find('}').expect("its end");
            }
            b'{' => nodes.push(None),
            b'}' => drop(nodes.pop()),
            _ => {}
        }
        at += 1;
    }
}

/// Parses, and checks all that must hold for any text.
fn check(text: &str) {
    let (file, diagnostics) = parse(7, text);
    check_spans(text, &format!("{file:?}"));
    let mut sources = Sources::new();
    (0..7).for_each(|n| assert_eq!(sources.add("other.mon", ""), n));
    sources.add("job.mon", text);
    let mut last = None;
    for diagnostic in &diagnostics {
        let labels = diagnostic.labels.iter().map(|label| label.span);
        let edits = diagnostic.help.iter().flat_map(|help| &help.edits).map(|edit| edit.span);
        for span in labels.chain(edits) {
            let (start, end) = (span.start as usize, span.end as usize);
            assert!(start <= end && end <= text.len(), "{diagnostic:#?}");
            assert!(text.is_char_boundary(start) && text.is_char_boundary(end), "{diagnostic:#?}");
        }
        assert!(diagnostic.span() >= last, "not in order: {diagnostics:#?}");
        last = diagnostic.span();
        assert_ne!(diagnostic.title, "this cannot be read", "the grammar is not total");
        assert!(monarch_diagnostic::page(diagnostic.code).is_some(), "{}", diagnostic.code);
        let shown = render(diagnostic, &sources, Style { color: false, width: 60 });
        assert!(shown.starts_with(diagnostic.code) && shown.ends_with('\n'));
        assert!(!json(diagnostic, &sources).contains('\n'));
    }
    // A tree without diagnostics has nothing broken in it.
    if diagnostics.is_empty() {
        assert!(!format!("{file:?}").contains("Broken"), "{text}");
    }
}

/// Words, numbers, spaces, and everything else a character at a time.
fn tokens(text: &str) -> Vec<&str> {
    let class = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => 1,
        ' ' => 2,
        _ => 0,
    };
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut last = 0;
    for (at, c) in text.char_indices() {
        if at > start && (class(c) == 0 || class(c) != last) {
            tokens.push(&text[start..at]);
            start = at;
        }
        last = class(c);
    }
    tokens.push(&text[start..]);
    tokens
}

const POOL: [&str; 44] = [
    "(", ")", "[", "]", "{", "}", "=", "==", ":", "~", "->", "=>", ",", "..", ".", "|>", "-", "@",
    "\"", "```", "```rhai", "#", "##", "\n", " ", "\t", "\r\n", "if", "else", "let", "on", "in",
    "not", "assert", "use", "layer", "1", "2 GiB", "é", "“", "\u{feff}", "\0", ";", "//",
];

fn mutate(program: &str, edits: &[(usize, usize, usize)]) -> String {
    let mut tokens = tokens(program);
    for (action, at, with) in edits {
        let at = at % tokens.len().max(1);
        match action % 5 {
            _ if tokens.is_empty() => {}
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[at]),
            2 => tokens.insert(at, POOL[with % POOL.len()]),
            3 => tokens[at] = POOL[with % POOL.len()],
            _ => {
                let other = with % tokens.len();
                tokens.swap(at, other);
            }
        }
    }
    tokens.concat()
}

#[test]
fn the_programs_and_every_prefix_of_them() {
    for program in PROGRAMS {
        check(program);
        check(&program.replace('\n', "\r\n"));
        check(&format!("\u{feff}{program}"));
        for (at, _) in program.char_indices().step_by(7) {
            check(&program[..at]);
        }
    }
}

#[test]
fn mutations_of_the_programs() {
    let edits = prop::collection::vec((0..5usize, 0..100_000usize, 0..100_000usize), 1..6);
    runner(1500)
        .run(&(0..4usize, edits), |(program, edits)| {
            check(&mutate(PROGRAMS[program], &edits));
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_text() {
    runner(1000)
        .run(&".*", |text| {
            check(&text);
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_tokens() {
    let words = ["train", "w", "x", "f", "B", "D", "param", "op", "test", "as", "then", "_", "*"];
    let all: Vec<&str> = POOL.into_iter().chain(words).collect();
    let count = all.len();
    runner(3000)
        .run(&prop::collection::vec(0..count, 0..40), |picks| {
            let tokens: Vec<&str> = picks.iter().map(|pick| all[*pick]).collect();
            check(&tokens.join(" "));
            check(&tokens.concat());
            Ok(())
        })
        .unwrap();
}

/// Line ends, and a mark at the beginning, change nothing but places.
#[test]
fn line_ends_do_not_matter() {
    for program in PROGRAMS {
        let shape = |text: &str| {
            let tree = format!("{:?}", parse(7, text).0);
            let mut out = String::new();
            let mut rest = tree.as_str();
            while let Some((before, after)) = rest.split_once("Span {") {
                out.push_str(before);
                rest = after.split_once('}').map_or("", |(_, after)| after);
            }
            out + rest
        };
        let plain = shape(program);
        assert_eq!(plain, shape(&program.replace('\n', "\r\n")).replace("\\r\\n", "\\n"));
        assert_eq!(plain, shape(&format!("\u{feff}{program}")));
    }
}

/// Texts that would be slow if anything were looked at more than a few times.
#[test]
fn time_is_linear() {
    let repeated: Vec<String> = [
        "a ",
        "a = ",
        "(",
        ")",
        "[[",
        "]{",
        "\"",
        "#\n",
        "## d\n",
        "```",
        "a.b",
        "f(",
        "{ a = = 1, ",
        "x: 1\n",
        "train x {\n a: 1\n}\n",
        "1 + ",
        "- ",
        "a[b ",
        "if a { ",
        "a -> b, ",
        "é",
        "'",
        "“",
        "let x = ",
        "let x\n",
        " \n",
        "\\",
        "\"\\u{",
        "a\n  b\n",
        "f(3]",
        "{}",
        "a = 1, ",
        "a b c ",
    ]
    .iter()
    .flat_map(|piece| {
        let body = piece.repeat(100_000 / piece.len());
        [body.clone(), format!("train t {{ {body} }}"), format!("let x = [{body}]")]
    })
    .collect();
    for text in &repeated {
        let start = Instant::now();
        check_fast(text);
        let elapsed = start.elapsed();
        let begin: String = text.chars().take(30).collect();
        assert!(elapsed < Duration::from_secs(3), "{begin}: {elapsed:?} for {}", text.len());
    }
}

fn check_fast(text: &str) {
    let (_, diagnostics) = parse(7, text);
    assert!(diagnostics.iter().all(|diagnostic| diagnostic.title != "this cannot be read"));
}

/// The checker itself finds what it is for.
#[test]
fn bad_spans_are_found() {
    let node =
        |inner: &str| format!("Item {{ span: Span {{ file: 7, start: 1, end: 4 }}, {inner} }}");
    let span = |start: usize, end: usize| {
        let span = format!("Span {{ file: 7, start: {start}, end: {end} }}");
        format!("name: Ident {{ name: \"}} Span {{\", span: {span} }}")
    };
    check_spans("aéaa", &node(&span(3, 4)));
    for (start, end) in [(0, 2), (3, 5), (2, 3), (4, 3), (3, 9)] {
        let tree = node(&span(start, end));
        let found = std::panic::catch_unwind(|| check_spans("aéaa", &tree));
        assert!(found.is_err(), "{start}..{end}");
    }
}
