//! The text form, against the twelve diagnostics that the language was designed with, and on
//! every kind of text that could spoil it.

use monarch_diagnostic::{Diagnostic, Sources, Span, Style, json, pages, render};

static TWELVE: &str = include_str!("golden/twelve.txt");

/// A rendered diagnostic, taken apart.
struct Parsed {
    code: &'static str,
    title: String,
    file: String,
    place: (usize, usize),
    /// Number and text.
    lines: Vec<(usize, String)>,
    /// Line, column from 0, width, text.
    labels: Vec<(usize, usize, usize, String)>,
    help: Vec<String>,
}

fn take_apart(text: &'static str) -> Parsed {
    let mut lines = text.lines();
    let (head, place) = lines.next().unwrap().split_once("   ╭ ").unwrap();
    let (code, title) = head.split_once(" × ").unwrap();
    let mut place = place.split(':');
    let file = place.next().unwrap().to_owned();
    let mut number = || place.next().unwrap().parse().unwrap();
    let place = (number(), number());
    let mut parsed = Parsed {
        code,
        title: title.to_owned(),
        file,
        place,
        lines: Vec::new(),
        labels: Vec::new(),
        help: Vec::new(),
    };
    for line in lines {
        if let Some(help) = line.trim_start().strip_prefix("╰ help: ") {
            parsed.help.push(help.to_owned());
        } else if let Some((number, source)) = line.split_once(" │ ") {
            parsed.lines.push((number.trim().parse().unwrap(), source.to_owned()));
        } else {
            let mark = line.trim_start().strip_prefix("· ").unwrap();
            let column = mark.chars().take_while(|c| *c == ' ').count();
            let width = mark.chars().filter(|c| *c == '─').count();
            let text: String = mark.chars().skip(column + width + 1).collect();
            parsed.labels.push((parsed.lines.last().unwrap().0, column, width, text));
        }
    }
    parsed
}

/// The twelve, built from spans again: the source lines at their numbers, labels by offset.
fn rebuild(parsed: &Parsed, sources: &mut Sources) -> Diagnostic {
    let last = parsed.lines.last().unwrap().0;
    let line = |n: usize| parsed.lines.iter().find(|line| line.0 == n).map_or("", |line| &line.1);
    let text: String = (1..=last).map(|n| format!("{}\n", line(n))).collect();
    let start = |n: usize| (1..n).map(|n| line(n).len() + 1).sum::<usize>();
    let file = sources.add(parsed.file.clone(), text);
    let mut labels = parsed.labels.clone();
    // The first label gives the place; the rest is reversed, so that their order matters.
    let first = labels.iter().position(|label| (label.0, label.1 + 1) == parsed.place).unwrap();
    let first = labels.remove(first);
    labels.reverse();
    let mut diagnostic = Diagnostic::error(parsed.code, parsed.title.clone());
    for (n, column, width, text) in std::iter::once(first).chain(labels) {
        let at = start(n) + column;
        diagnostic = diagnostic.label(Span::new(file, at, at + width), text);
    }
    parsed.help.iter().fold(diagnostic, |diagnostic, help| diagnostic.help(help.clone()))
}

#[test]
fn the_twelve() {
    let starts: Vec<usize> = TWELVE
        .lines()
        .map(|line| line.as_ptr() as usize - TWELVE.as_ptr() as usize)
        .filter(|at| TWELVE[*at..].starts_with('M'))
        .chain([TWELVE.len()])
        .collect();
    assert_eq!(starts.len(), 13);
    let mut sources = Sources::new();
    for pair in starts.windows(2) {
        let expected = &TWELVE[pair[0]..pair[1]];
        let diagnostic = rebuild(&take_apart(expected), &mut sources);
        assert_eq!(render(&diagnostic, &sources, Style::default()), expected);
    }
}

fn show(text: &str, width: usize, build: impl FnOnce(Diagnostic) -> Diagnostic) -> String {
    let mut sources = Sources::new();
    sources.add("a.mon", text);
    let diagnostic = build(Diagnostic::error("M0001", "title"));
    render(&diagnostic, &sources, Style { color: false, width })
}

fn at(start: usize, end: usize) -> Span {
    Span::new(0, start, end)
}

#[test]
fn tabs_wide_and_control_characters() {
    let text = "\tx = \"数据\x1b\" y";
    let y = text.find('y').unwrap();
    let shown = show(text, 80, |d| d.label(at(1, 2), "x").label(at(y, y + 1), "y"));
    // Tab stops are 4 apart, the two wide characters take two columns each.
    let marks = format!("  · {}─ y\n  · {}─ x\n  ╰\n", " ".repeat(16), " ".repeat(4));
    let source = "1 │     x = \"数据␛\" y\n";
    assert_eq!(shown, format!("M0001 × title   ╭ a.mon:1:2\n{source}{marks}"));
}

#[test]
fn end_of_file_and_past_it() {
    for (start, end) in [(4, 4), (5, 5), (100, 200), (4, 3)] {
        let shown = show("a = ", 80, |d| d.label(at(start, end), "a value"));
        assert_eq!(
            shown, "M0001 × title   ╭ a.mon:1:5\n1 │ a =\n  ·     ─ a value\n  ╰\n",
            "{start}..{end}"
        );
    }
    let shown = show("a\n", 80, |d| d.label(at(2, 2), "here"));
    assert_eq!(shown, "M0001 × title   ╭ a.mon:2:1\n2 │\n  · ─ here\n  ╰\n");
    let shown = show("", 80, |d| d.label(at(0, 0), ""));
    assert_eq!(shown, "M0001 × title   ╭ a.mon:1:1\n1 │\n  · ─\n  ╰\n");
}

#[test]
fn several_lines_several_files() {
    let mut sources = Sources::new();
    let a = sources.add("a.mon", "one {\r\n  two\r\n}\r\n");
    let b = sources.add("std.nn", "\n\nlayer L {}");
    let diagnostic = Diagnostic::warning("M0001", "over\nlines")
        .label(Span::new(a, 4, 15), "this block")
        .label(Span::new(b, 8, 9), "that layer")
        .help("first\nand more")
        .fix("second", Span::new(a, 0, 3), "x");
    assert_eq!(
        render(&diagnostic, &sources, Style::default()),
        "M0001 ⚠ over lines   ╭ a.mon:1:5\n\
         1 │ one {\n\
         \u{20} ·     ─ this block (to line 3)\n\
         \u{20} ╭ std.nn:3:7\n\
         3 │ layer L {}\n\
         \u{20} ·       ─ that layer\n\
         \u{20} ├ help: first\n\
         \u{20} │       and more\n\
         \u{20} ╰ help: second\n"
    );
}

#[test]
fn long_lines_are_clipped_around_their_labels() {
    let mut text = "x".repeat(100_000);
    text.insert_str(50_000, " here ");
    let shown = show(&text, 60, |d| d.label(at(50_001, 50_005), "a word").label(at(3, 5), "far"));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 6, "{shown}");
    for line in [lines[1], lines[3]] {
        assert!(line.chars().count() <= 66 && line.ends_with('…'), "{shown}");
    }
    let column = |line: &str, what: &str| line[..line.find(what).unwrap()].chars().count();
    assert_eq!(column(lines[3], "here"), column(lines[4], "────"), "{shown}");
    assert!(lines[2].ends_with("── far"), "{shown}");
}

#[test]
fn no_labels_and_unknown_files() {
    let d = Diagnostic::error("M0006", "empty").help("write one");
    let none = Sources::new();
    assert_eq!(render(&d, &none, Style::default()), "M0006 × empty\n  ╰ help: write one\n");
    let d = Diagnostic::note("M0006", "empty").label(Span::new(7, 1, 2), "where?");
    assert_eq!(render(&d, &none, Style::default()), "M0006 · empty\n  ╰\n");
}

#[test]
fn colour_only_when_asked() {
    let mut sources = Sources::new();
    sources.add("a.mon", "lr = 1");
    let d = Diagnostic::error("M0001", "title").label(at(0, 2), "this").help("h");
    let plain = render(&d, &sources, Style::default());
    let colored = render(&d, &sources, Style { color: true, width: 80 });
    assert!(!plain.contains('\x1b') && colored.contains("\x1b[1;31m── this\x1b[0m"));
    let mut stripped = colored;
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[1;31m"] {
        stripped = stripped.replace(code, "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn json_escapes() {
    let mut sources = Sources::new();
    sources.add("a\"b.mon", "é\n\tlr");
    let d = Diagnostic::error("M0001", "a \"q\" \\ \n\u{1}").label(at(4, 6), "l").fix(
        "f",
        at(4, 4),
        "x",
    );
    let place = |end: &str| {
        format!(
            "\"file\":\"a\\\"b.mon\",\"start\":{{\"line\":2,\"column\":2,\"byte\":4}},\
             \"end\":{{\"line\":2,\"column\":{end}}}"
        )
    };
    assert_eq!(
        json(&d, &sources),
        format!(
            "{{\"code\":\"M0001\",\"severity\":\"error\",\"title\":\"a \\\"q\\\" \\\\ \\n\\u0001\",\
             \"labels\":[{{{},\"text\":\"l\"}}],\"help\":[{{\"text\":\"f\",\"edits\":[{{{},\
             \"replacement\":\"x\"}}]}}]}}",
            place("4,\"byte\":6"),
            place("2,\"byte\":4"),
        )
    );
}

#[test]
fn pages_are_in_order_and_begin_with_their_title() {
    let codes: Vec<&str> = pages().iter().map(|page| page.code).collect();
    assert!(codes.is_sorted(), "{codes:?}");
    for page in pages() {
        assert!(page.text.starts_with(&format!("# {}: {}\n", page.code, page.title)), "{page:?}");
        assert!(page.text.contains("Fails:\n") && page.text.contains("Fixed:\n"), "{}", page.code);
    }
    assert_eq!(monarch_diagnostic::page("m0002").map(|page| page.code), Some("M0002"));
    assert_eq!(monarch_diagnostic::page("M9999"), None);
}

/// Any span into any text renders, however narrow the terminal, and places its mark under the text.
#[test]
fn no_span_panics() {
    let texts =
        ["", "\n", "a", "é\tb\r\n\u{1F600}c\n", "数据 = \"\u{200b}\"\n\n x", "\r\r\n\t\t\n"];
    for text in texts {
        let mut sources = Sources::new();
        sources.add("a.mon", text);
        for start in 0..text.len() + 3 {
            for end in 0..text.len() + 3 {
                let d = Diagnostic::error("M0001", "t")
                    .label(at(start, end), "x")
                    .label(at(end, end), "");
                for width in [0, 1, 45, 1000] {
                    let shown = render(&d, &sources, Style { color: false, width });
                    assert!(shown.contains("─ x"), "{text:?} {start}..{end}: {shown}");
                    assert!(shown.lines().count() >= 5, "{text:?} {start}..{end}: {shown}");
                }
                assert!(json(&d, &sources).ends_with("]}"));
            }
        }
    }
}

#[test]
fn miette_sees_the_same() {
    use miette::Diagnostic as _;

    let mut sources = Sources::new();
    let a = sources.add("a.mon", "lr = 1\nbatch = 2\n");
    let b = sources.add("b.mon", "x = 3\n");
    let d = Diagnostic::warning("M0101", "title")
        .label(Span::new(a, 7, 12), "this")
        .label(Span::new(b, 0, 1), "that")
        .help("one")
        .fix("two", Span::new(a, 0, 2), "x");
    let report = d.report(&sources);
    assert_eq!(report.to_string(), "title");
    assert_eq!(report.code().unwrap().to_string(), "M0101");
    assert_eq!(report.severity(), Some(miette::Severity::Warning));
    assert_eq!(report.help().unwrap().to_string(), "one\ntwo");
    let labels: Vec<_> = report.labels().unwrap().collect();
    assert_eq!((labels.len(), labels[0].label(), labels[0].offset()), (1, Some("this"), 7));
    let source = report.source_code().unwrap();
    let read = source.read_span(labels[0].inner(), 0, 0).unwrap();
    assert_eq!((read.data(), read.line(), read.name()), (&b"batch"[..], 1, Some("a.mon")));
    let related: Vec<_> = report.related().unwrap().collect();
    assert_eq!((related.len(), related[0].to_string()), (1, "that".to_owned()));
}

/// Names, strings and paths of a program stand in our own words too.
#[test]
fn what_a_title_repeats_cannot_move_the_cursor() {
    let mut sources = Sources::new();
    let file = sources.add("a\u{1b}[2Jb.mon", "x = 1\n");
    let long = "b".repeat(5000);
    let d = Diagnostic::error("M0101", format!("no `\u{1b}[31m{long}`, \u{202e}\r\nor"))
        .label(Span::new(file, 0, 1), "\u{7}here")
        .help("did you mean `\u{1b}[0m`?\nor \u{202e}");
    let shown = render(&d, &sources, Style::default());
    let first = shown.lines().next().unwrap();
    assert!(first.contains("no `␛[31mbbb") && first.contains("b… \u{fffd}  or"), "{first}");
    assert!(first.ends_with("╭ a␛[2Jb.mon:1:1"), "{first}");
    assert!(first.chars().count() < 300);
    assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}', '\r']), "{shown}");
}
