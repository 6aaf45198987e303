//! What is said about wrong programs: golden files show source and message together, and the pages
//! of the codes are run.

use std::collections::BTreeMap;
use std::fmt::Write;

use monarch_diagnostic::{Severity, Sources, Style, pages, render};
use monarch_syntax::{MAX_BYTES, MAX_DIAGNOSTICS, MAX_NESTING, decode, parse, too_large};

/// All diagnostics of a program, rendered.
fn report(text: &str) -> String {
    let mut sources = Sources::new();
    let file = sources.add("job.mon", text);
    let (_, diagnostics) = parse(file, text);
    diagnostics.iter().map(|d| render(d, &sources, Style::default())).collect()
}

fn codes(text: &str) -> Vec<&'static str> {
    parse(0, text).1.iter().map(|diagnostic| diagnostic.code).collect()
}

/// The cases of `golden/NAME.mon` stand between lines of `#---`; `golden/NAME.txt` holds what is
/// said about each. `UPDATE=1 cargo test` writes it.
fn golden(name: &str) {
    let root = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let cases = std::fs::read_to_string(format!("{root}.mon")).expect("the cases");
    let mut out = String::new();
    for case in cases.split("#---\n").filter(|case| !case.is_empty()) {
        let said = report(case);
        assert!(!said.is_empty(), "nothing is said about:\n{case}");
        let _ = writeln!(out, "{case}---\n{said}");
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(format!("{root}.txt"), &out).expect("a writable golden file");
    }
    let expected = std::fs::read_to_string(format!("{root}.txt")).expect("the golden file");
    assert!(out == expected, "{name}: differs; UPDATE=1 shows how\n{out}");
}

#[test]
fn golden_items() {
    golden("items");
}

#[test]
fn golden_entries() {
    golden("entries");
}

#[test]
fn golden_expressions() {
    golden("expressions");
}

#[test]
fn golden_brackets() {
    golden("brackets");
}

#[test]
fn pages_run() {
    let mut seen = 0;
    for page in pages().iter().filter(|page| page.code < "M0020") {
        let programs = page.programs();
        if let (Some(first), Some(last)) = (programs.first(), programs.last()) {
            assert_eq!(codes(first), [page.code], "{}:\n{}", page.code, report(first));
            assert_eq!(codes(last), [""; 0], "{}:\n{}", page.code, report(last));
            seen += 1;
        }
    }
    assert_eq!(seen, 14, "the other pages show `text`");
}

/// Whatever the grammar calls things stays inside.
#[test]
fn no_rule_names_reach_a_person() {
    for name in ["items", "entries", "expressions", "brackets"] {
        let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("the golden file");
        for rule in ["junk", "no_", "_part", "_slip", "_slot", "Rule::", "EOI", "chunk"] {
            assert!(!text.contains(rule), "{name}: {rule}");
        }
    }
}

#[test]
fn one_mistake_in_each_item_gives_one_diagnostic_each() {
    let mut text = String::new();
    for n in 0..20 {
        let _ = writeln!(text, "layer L{n}[D] {{\n  w: [D, D] = zeros\n}}\nlet x{n} = {n}");
    }
    assert_eq!(codes(&text), ["M0010"; 20]);
}

#[test]
fn all_mistakes_of_one_block_are_told() {
    let text =
        "train t {\n  a = = 1\n  b: 2\n  c = 3\n  d == 4\n  e {\n    f = [1 2]\n  }\n  g = \n}";
    let lines: Vec<_> =
        parse(0, text).1.iter().map(|d| line(text, d.span().unwrap().start)).collect();
    assert_eq!(lines, [2, 3, 5, 7, 9]);
}

fn line(text: &str, at: u32) -> usize {
    text[..at as usize].matches('\n').count() + 1
}

#[test]
fn unclosed_brackets_stay_in_their_item() {
    for open in ["(", "[", "{"] {
        let text = format!("let a = f{open}1, 2\n\ntrain t {{\n  b: 2\n}}\nlet c = = 3\n");
        assert_eq!(codes(&text), ["M0002", "M0010", "M0001"], "{}", report(&text));
    }
}

#[test]
fn empty_programs() {
    for text in ["", "\n \t\r\n", "# only a comment", "## a doc\n# and more\n", "\u{feff}"] {
        assert_eq!(codes(text), ["M0006"], "{text:?}");
    }
}

#[test]
fn limits() {
    let nest = |depth: usize| format!("let x = {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(codes(&nest(MAX_NESTING)), [""; 0]);
    for depth in [MAX_NESTING + 1, 1000, 1_000_000] {
        assert_eq!(codes(&nest(depth)), ["M0004"], "{depth}");
        assert_eq!(codes(&format!("let x = {}", "[".repeat(depth))), ["M0004"], "{depth}");
        assert_eq!(codes(&format!("let x = {}", "a{".repeat(depth))), ["M0004"], "{depth}");
    }
    let sum = |terms: usize| format!("let x = 1{}", " + 1".repeat(terms - 1));
    assert_eq!(codes(&sum(500)), [""; 0]);
    for text in [sum(100_000), format!("let x = {}1", "- ".repeat(100_000))] {
        assert_eq!(codes(&text), ["M0007"]);
    }
    for op in ["^", "then", "|>"] {
        assert_eq!(codes(&format!("let x = a{}", format!(" {op} a").repeat(9999))), ["M0007"]);
    }
    for tail in [".b", "(1)", "[1]"] {
        assert_eq!(codes(&format!("let x = a{}", tail.repeat(9999))), ["M0007"]);
    }
    // Long chains inside brackets inside long chains: depth adds up, and is caught.
    let inner = format!("({})", sum(300).trim_start_matches("let x = "));
    assert_eq!(codes(&format!("let x = {inner}")), [""; 0]);
    let chain = format!("let x = ({inner}{})", " + 1".repeat(300));
    assert_eq!(codes(&chain), ["M0007"]);
}

#[test]
fn nesting_fits_into_a_small_stack() {
    let deep = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(MAX_NESTING), close.repeat(MAX_NESTING))
    };
    let texts = [
        format!("let x = {}", deep("(", "1", ")")),
        format!("let x = {}", deep("[", "1", "]")),
        format!("let x = a{}", deep("[", "1", "]")),
        format!("let x = {}", deep("f(", "1", ")")),
        format!("train x {}", deep("{ a = 1 b ", "", "}").replacen("b ", "", MAX_NESTING)),
        format!("let x = {}", deep("{ a = ", "1", "}")),
        format!("let x = {}", deep("if a { ", "1", " } else { 2 }")),
    ];
    let parse_all = move || texts.iter().map(|text| codes(text).len()).sum::<usize>();
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(parse_all).unwrap();
    thread.join().expect("no overflow");
}

#[test]
fn size() {
    let text = " ".repeat(MAX_BYTES + 1);
    assert_eq!(codes(&text), ["M0005"]);
    assert_eq!(too_large(3, 100 << 20).title, "the program has 100 MiB; at most 4 are read");
}

#[test]
fn garbage_gives_a_bounded_number_of_diagnostics() {
    let garbage =
        ["= ) \n", "let ]\n", "\"\n", "train x {\n a: 1\n}\n", "f(((\n", "```py\n", "é\n"];
    for text in garbage {
        let count = codes(&text.repeat(5000)).len();
        assert!((1..=MAX_DIAGNOSTICS).contains(&count), "{text:?}: {count}");
    }
}

#[test]
fn not_utf8() {
    assert_eq!(decode(0, "é".as_bytes()).ok(), Some("é"));
    let wrong = decode(0, b"lr = \xff").unwrap_err();
    assert_eq!((wrong.code, wrong.labels[0].span.start), ("M0008", 5));
    let utf16 = decode(0, &[0xff, 0xfe, b'a', 0]).unwrap_err();
    assert_eq!(utf16.labels[0].text, "a mark of UTF-16");
}

/// Every edit that is offered leaves a program without that mistake.
#[test]
fn fixes_fix() {
    let mut by_code: BTreeMap<&str, usize> = BTreeMap::new();
    for name in ["items", "entries", "expressions", "brackets"] {
        let path = format!("{}/tests/golden/{name}.mon", env!("CARGO_MANIFEST_DIR"));
        let cases = std::fs::read_to_string(path).expect("the cases");
        for case in cases.split("#---\n").filter(|case| !case.is_empty()) {
            let before = parse(0, case).1;
            for diagnostic in &before {
                assert_eq!(diagnostic.severity, Severity::Error);
                for help in diagnostic.help.iter().filter(|help| !help.edits.is_empty()) {
                    let mut text = case.to_owned();
                    for edit in &help.edits {
                        let range = edit.span.start as usize..edit.span.end as usize;
                        text.replace_range(range, &edit.replacement);
                    }
                    let after = parse(0, &text).1;
                    assert!(
                        after.len() < before.len() || after[0].title != before[0].title,
                        "{}: `{}` does not help:\n{text}\n{}",
                        diagnostic.code,
                        help.text,
                        report(&text)
                    );
                    *by_code.entry(diagnostic.code).or_default() += 1;
                }
            }
        }
    }
    assert!(by_code.len() >= 8, "{by_code:?}");
}
