//! The formatter: what it does to a text, and that it does nothing else, on all programs of the
//! repository and on ten thousand generated ones.

#[path = "common/generate.rs"]
mod generate;

use monarch_syntax::ast::File;
use monarch_syntax::{format, parse};

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All programs below a folder of the repository.
fn programs(folder: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "mon") {
                let text = std::fs::read_to_string(&path).expect("a text");
                out.push((path.display().to_string(), text));
            }
        }
    }
    assert!(!out.is_empty(), "{folder}");
    out.sort();
    out
}

/// The tree without places. Comments are a list of their own.
fn meaning(text: &str) -> (String, Vec<String>, usize) {
    let (file, diagnostics) = parse(7, text);
    let comments = file.comments.iter().map(|comment| comment.text.clone()).collect();
    let tree = format!("{:?}", File { comments: Vec::new(), ..file });
    let mut out = String::with_capacity(tree.len());
    let mut rest = tree.as_str();
    while let Some((before, after)) = rest.split_once("Span {") {
        out.push_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    (out, comments, diagnostics.len())
}

/// Formats, and checks what must hold for any text: nothing is lost, and twice is once.
fn formatted(text: &str) -> monarch_syntax::Formatted {
    let once = format(7, text);
    let twice = format(7, &once.text);
    let differing = once.text.lines().zip(twice.text.lines()).find(|(a, b)| a != b);
    let lines = [once.text.lines().count(), twice.text.lines().count()];
    let same = once.text == twice.text;
    assert!(
        same,
        "twice is not once: {lines:?} {differing:#?}\nfor\n{text}\n--- once\n{}",
        once.text
    );
    let (tree, comments, wrong) = meaning(text);
    let (tree2, comments2, wrong2) = meaning(&once.text);
    assert!(tree == tree2, "another meaning for\n{text}\n--- formatted\n{}", once.text);
    assert_eq!(comments, comments2, "comments of\n{text}\n--- formatted\n{}", once.text);
    assert_eq!(wrong, wrong2, "{text}");
    once
}

/// A text that is laid out as it should be.
fn stays(text: &str) {
    assert_eq!(formatted(text).text, text);
}

/// A text and how it should be laid out.
fn becomes(text: &str, expected: &str) {
    assert_eq!(formatted(text).text, expected);
}

#[test]
fn the_programs_of_the_repository_are_formatted() {
    let mut wrong = Vec::new();
    for folder in ["examples", "stdlib", "tests/fixtures"] {
        for (name, text) in programs(folder) {
            let result = formatted(&text);
            assert_eq!(result.kept, 0, "{name}");
            if result.text != text {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "`monarch fmt` would change {wrong:#?}");
}

/// Programs with mistakes, and pieces that are nothing but mistakes.
#[test]
fn wrong_programs() {
    for (_, text) in programs("tests/suite") {
        formatted(&text);
    }
    for (_, text) in programs("lang/syntax/tests/golden") {
        text.split("#---\n").for_each(|piece| drop(formatted(piece)));
    }
}

#[test]
fn ten_thousand_generated_programs() {
    let (mut kept, mut long, mut lines) = (0, 0, 0);
    for seed in 0..10_000 {
        let program = generate::program(seed);
        let (_, diagnostics) = parse(7, &program.text);
        assert!(diagnostics.is_empty(), "seed {seed}: {diagnostics:#?}\n{}", program.text);
        let result = formatted(&program.text);
        assert!(result.kept == 0 || program.odd_docs, "seed {seed} was kept:\n{}", program.text);
        kept += result.kept;
        lines += result.text.lines().count();
        let code = |line: &&str| !line.contains(['#', '"']) && line.chars().count() > 101;
        long += result.text.lines().filter(code).count();
    }
    println!("{kept} items kept for docs in odd places, {long} of {lines} lines too long");
    assert!(kept < 300, "{kept}");
    assert!(long * 500 < lines, "{long} of {lines} lines");
}

/// Cut anywhere, with anything missing: the good items are formatted, nothing is lost.
#[test]
fn mutations() {
    let mut random = generate::Random(5);
    let texts: Vec<String> = programs("examples").into_iter().map(|(_, text)| text).collect();
    for n in 0..2_000 {
        let mut text = match n % 2 {
            0 => texts[random.below(texts.len())].clone(),
            _ => generate::program(n).text,
        };
        for _ in 0..1 + random.below(3) {
            let mut at = random.below(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random.below(3) {
                0 => drop(text.remove(at)),
                1 => text.insert_str(at, random.pick(&["{", "}", "(", "]", "\"", "=", ",", " x "])),
                _ => text.truncate(at),
            }
            if text.is_empty() {
                break;
            }
        }
        formatted(&text);
    }
}

#[test]
fn runs_are_aligned() {
    becomes(
        "layer A[D]{\nK=D\nqkv:[3,D,D]~zeros\nb:[D]   ~ ones\nforward(x:[B,D])->[B,D]=x@b\n}\n",
        "layer A[D] {\n  K    = D\n  qkv: [3, D, D] ~ zeros\n  b:   [D]       ~ ones\n  \
         forward(x: [B, D]) -> [B, D] = x @ b\n}\n",
    );
    becomes(
        "train t {\n  optim=AdamW(lr)\n  lr = 1\n\n  x = 2\n  # apart\n  yy = 3\n  \
         eval{every=1 epoch}\n}\n",
        "train t {\n  optim = AdamW(lr)\n  lr    = 1\n\n  x = 2\n  # apart\n  yy = 3\n  \
         eval { every = 1 epoch }\n}\n",
    );
    becomes(
        "param a:int=1 in 0..9\nparam long:float=1e-3 in 0..1\nparam b: tokens\n",
        "param a:    int   = 1    in 0..9\nparam long: float = 1e-3 in 0..1\nparam b:    tokens\n",
    );
}

#[test]
fn comments_stay_where_they_are() {
    stays("# first\n\n# second\nlet a = 1                                  # beside\n# last\n");
    becomes(
        "let x = f(a, # one\n # two\n b # three\n)\n",
        "let x = f(\n  a,                                       # one\n  # two\n  \
         b                                        # three\n)\n",
    );
    becomes(
        "train t { # why\n a = 1 # what\n , b = 2 # then\n # end\n}\n",
        "train t {                                  # why\n\
         \x20 a = 1                                    # what\n\
         \x20 b = 2                                    # then\n\
         \x20 # end\n}\n",
    );
}

#[test]
fn long_lines_break() {
    let names: Vec<String> = (0..30).map(|n| format!("name{n}")).collect();
    let text = format!("use std.nn.{{{}}}\n", names.join(","));
    let lines: Vec<String> = formatted(&text).text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines.iter().all(|line| line.len() <= 100), "{lines:#?}");
    let steps = ["warmup(to = 1e-3, 100 steps)"; 5].join(" then ");
    becomes(
        &format!("train t {{\n  lr = {steps}\n}}\n"),
        &format!("train t {{\n  lr = {}\n}}\n", steps.replace(" then", "\n    then")),
    );
    becomes(
        "train t { a = 1, b = 2 }\ntrain u {\n a = 1, b = 2 }\n",
        "train t { a = 1, b = 2 }\ntrain u {\n  a = 1, b = 2\n}\n",
    );
}

/// Lists that the author began on a new line keep the author's lines.
#[test]
fn lists_on_lines_stay_there() {
    stays("let names = [\n  \"a\",\n  \"b\", \"c\"\n]\n");
    becomes("let names = [\n\"a\",\n\"b\" ]\n", "let names = [\n  \"a\",\n  \"b\"\n]\n");
    becomes("let names = [ \"a\",\n\"b\" ]\n", "let names = [\"a\", \"b\"]\n");
    let fields = "x: f32[.., Y, X, C], size: int, stride: int = none, padding: padding = 0";
    becomes(
        &format!("op pool({fields}) -> f32[.., rows, columns, C, D]\n"),
        &format!("op pool(\n  {fields}\n) -> f32[.., rows, columns, C, D]\n"),
    );
}

#[test]
fn broken_items_are_left_alone() {
    let broken = "train  t   {\n   lr ==  3   # here\n }   # there\n";
    let text = format!("let  a=1\n\n\n\n{broken}let  b =[1,2,]\n");
    let result = formatted(&text);
    assert_eq!(result.text, format!("let a = 1\n\n{broken}let b = [1, 2]\n"));
    assert_eq!((result.kept, result.diagnostics.len()), (1, 1));
    stays("let a = = 1\r\nlet b = 2\r\n");
    stays("let a = 1\rlet b  = 2");
}

#[test]
fn hooks_in_rhai_are_left_alone() {
    stays("train t {\n  on step(every = 50 steps) => ```rhai\n      note( \"x\" )  \n\n\n```\n}\n");
}

#[test]
fn line_ends_are_kept_and_marks_dropped() {
    becomes("\u{feff}let a=1\r\nlet b=2", "let a = 1\r\nlet b = 2\r\n");
    becomes("\n\n", "");
    becomes("# only this  ", "# only this\n");
}
