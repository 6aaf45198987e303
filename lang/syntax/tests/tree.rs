//! The shape of the tree: precedence, units, docs and comments, and the four programs as goldens.

mod common;

use common::{show_expr, show_file};
use monarch_syntax::ast::*;
use monarch_syntax::parse;

fn expr(text: &str) -> Expr {
    let (file, diagnostics) = parse(0, &format!("let x = {text}\n"));
    assert!(diagnostics.is_empty(), "{text}: {diagnostics:#?}");
    match file.items.into_iter().next().map(|item| item.kind) {
        Some(ItemKind::Let(bind)) => bind.value,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn precedence() {
    for (text, tree) in [
        ("x |> up |> relu", "((x |> up) |> relu)"),
        ("tok[ids] + pos |> blocks |> norm", "(((tok[ids] + pos) |> blocks) |> norm)"),
        ("0.02 / sqrt(2 * depth)", "(0.02 / sqrt((2 * depth)))"),
        ("{ train = 90%, eval = 10% }", "{train = 90 %, eval = 10 %}"),
        ("replace(x) then shrink(y) then stop", "((replace(x) then shrink(y)) then stop)"),
        ("a |> f then b |> g", "((a |> f) then (b |> g))"),
        ("a or b and not c == d", "(a or (b and (not (c == d))))"),
        ("a in 1..2 + 3", "(a in (1 .. (2 + 3)))"),
        ("not a in b", "(not (a in b))"),
        ("1e-5..1", "(1e-5 .. 1)"),
        ("a - b - c", "((a - b) - c)"),
        ("a - -b", "(a - (- b))"),
        ("a * b @ c / d", "(((a * b) @ c) / d)"),
        ("a + b * c ^ d ^ e", "(a + (b * (c ^ (d ^ e))))"),
        ("-a ^ 2", "(- (a ^ 2))"),
        ("2 ^ -a * b", "((2 ^ (- a)) * b)"),
        ("-a * b", "((- a) * b)"),
        ("--a", "(- (- a))"),
        ("a == b and c != d", "((a == b) and (c != d))"),
        ("a <= b or c >= d", "((a <= b) or (c >= d))"),
        ("(a then b)", "paren((a then b))"),
        ("gelu(x @ up) @ down", "(gelu((x @ up)) @ down)"),
        ("gpt(ids).at(T = 0) == y", "(gpt(ids).at(T = 0) == y)"),
        ("90% * lab.device.memory", "(90 % * lab.device.memory)"),
        ("if a == b { c } else { d |> e }", "if (a == b) {c} else {(d |> e)}"),
        ("if a { if b { 1 } else { 2 } } else { 3 }", "if a {if b {1} else {2}} else {3}"),
    ] {
        assert_eq!(show_expr(&expr(text)), tree, "{text}");
    }
}

#[test]
fn operands() {
    for (text, tree) in [
        ("Llama[V = 128_256, D = 4096](depth = 32)", "Llama[V = 128_256, D = 4096](depth = 32)"),
        ("random(i32[1, T], below = plays.V)", "random(i32[1, T], below = plays.V)"),
        ("f32[..]", "f32[..]"),
        ("f32[.., _, 4 * D]", "f32[.., _, (4 * D)]"),
        ("einsum[B T D, N D H K -> N B T H K](x, y)", "einsum[B T D, N D H K -> N B T H K](x, y)"),
        ("rearrange[B T (H 2) .. -> B (H 2 ..)](x)", "rearrange[B T (H 2) .. -> B (H 2 ..)](x)"),
        ("reduce[B T -> ](x)", "reduce[B T -> ](x)"),
        ("blocks.*.attn", "blocks.*.attn"),
        ("loss.last(100)", "loss.last(100)"),
        ("a[0][1](2).b", "a[0][1](2).b"),
        ("[a, b,]", "[a, b]"),
        ("[]", "[]"),
        ("f()", "f()"),
        ("a[]", "a[]"),
        ("(a, b)", "(a, b)"),
        ("(a,)", "(a)"),
        ("{}", "{}"),
        ("{ ..base, a = 1, B -> dp }", "{..base, a = 1, B -> dp}"),
        ("{ B -> dp, H -> tp }", "{B -> dp, H -> tp}"),
        ("{\n  a = 1\n  b = 2,\n}", "{a = 1, b = 2}"),
        ("then_x + in_ + notable", "((then_x + in_) + notable)"),
        ("_", "_"),
    ] {
        assert_eq!(show_expr(&expr(text)), tree, "{text}");
    }
}

#[test]
fn numbers_and_units() {
    type Expected<'e> = (&'e str, f64, Option<i64>, Option<&'e str>);
    let cases: [Expected; 18] = [
        ("0", 0.0, Some(0), None),
        ("128_256", 128256.0, Some(128256), None),
        ("3e-4", 3e-4, None, None),
        ("1E3", 1e3, None, None),
        ("2.5", 2.5, None, None),
        ("4 GiB", 4.0, Some(4), Some("GiB")),
        ("4GiB", 4.0, Some(4), Some("GiB")),
        ("500us", 500.0, Some(500), Some("us")),
        ("2B tokens", 2.0, Some(2), Some("B tokens")),
        ("4M tokens", 4.0, Some(4), Some("M tokens")),
        ("5000 steps", 5000.0, Some(5000), Some("steps")),
        ("448 GB/s", 448.0, Some(448), Some("GB/s")),
        ("10%", 10.0, Some(10), Some("%")),
        ("0.5 %", 0.5, None, Some("%")),
        ("7quux8", 7.0, Some(7), Some("quux8")),
        ("9223372036854775807", 9223372036854775807.0, Some(i64::MAX), None),
        ("9223372036854775808", 9223372036854775808.0, None, None),
        ("1e999", f64::INFINITY, None, None),
    ];
    for (text, value, integer, unit) in cases {
        let ExprKind::Number(number) = expr(text).kind else { panic!("{text}") };
        assert_eq!((number.value, number.integer), (value, integer), "{text}");
        assert_eq!(number.unit.as_ref().map(|unit| unit.name.as_str()), unit, "{text}");
        let span = number.span;
        assert_eq!(number.raw.len() as u32, span.end - span.start, "{text}");
    }
    // Only one space, and none of the language's words, stand before a unit.
    assert_eq!(show_expr(&expr("1 in 2")), "(1 in 2)");
    assert_eq!(show_expr(&expr("1 then 2")), "(1 then 2)");
}

#[test]
fn strings() {
    let cases = [
        (r#""a\n\t\"\\\u{1F600}b""#, "a\n\t\"\\\u{1F600}b"),
        ("\"runs/{run.id} # no comment\"", "runs/{run.id} # no comment"),
        ("\"\"", ""),
    ];
    for (text, value) in cases {
        let ExprKind::Str(string) = expr(text).kind else { panic!("{text}") };
        assert_eq!(string.value, value);
    }
    let ExprKind::Rhai(rhai) = expr("```rhai\n  x # y\n```").kind else { panic!() };
    assert_eq!((rhai.source.as_str(), rhai.span.start), ("\n  x # y\n", 15));
}

#[test]
fn a_param_ends_its_default_before_in() {
    let text = "param width: int = 128 in 16..4096\nparam m: str = \"a\" in [\"a\", \"b\"]\n\
                param x: bool = (1 in [1])\n";
    let (file, diagnostics) = parse(0, text);
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    let params: Vec<String> = file
        .items
        .iter()
        .map(|item| match &item.kind {
            ItemKind::Param(param) => {
                let show = |expr: &Option<Expr>| expr.as_ref().map_or("-".into(), show_expr);
                format!("{} {} {}", param.name.name, show(&param.default), show(&param.range))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let x = "x paren((1 in [1])) -";
    assert_eq!(params, ["width 128 (16 .. 4096)", "m \"a\" [\"a\", \"b\"]", x]);
}

#[test]
fn docs_belong_to_what_follows_and_comments_are_kept() {
    let text = "\
## Of the file.
# a remark
## And more.   # a remark in a doc
use std.nn  # behind

## Lost, for a setting follows in the middle.
train t {  # open
  ## The rate.
  lr = 1, ## not of its own line
  batch = [ # in a list
    1, # one
    ## not a doc here
    2
  ]
  ## Nothing follows.
}
# the end";
    let (file, diagnostics) = parse(0, text);
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    let docs = |docs: &[Doc]| docs.iter().map(|doc| doc.text.clone()).collect::<Vec<_>>();
    assert_eq!(docs(&file.items[0].docs), ["Of the file.", "And more."]);
    assert_eq!(file.items[0].span.start, 0);
    let ItemKind::Block(block) = &file.items[1].kind else { panic!() };
    assert_eq!(docs(&file.items[1].docs), ["Lost, for a setting follows in the middle."]);
    let entries = &block.body.as_ref().unwrap().entries;
    assert_eq!(docs(&entries[0].docs), ["The rate."]);
    assert_eq!(docs(&entries[1].docs), [""; 0]);
    let comments: Vec<(&str, bool)> =
        file.comments.iter().map(|c| (c.text.as_str(), c.own_line)).collect();
    assert_eq!(
        comments,
        [
            ("# a remark", true),
            ("# a remark in a doc", false),
            ("# behind", false),
            ("# open", false),
            ("## not of its own line", false),
            ("# in a list", false),
            ("# one", false),
            ("## not a doc here", true),
            ("## Nothing follows.", true),
            ("# the end", true),
        ]
    );
    for comment in &file.comments {
        let (start, end) = (comment.span.start as usize, comment.span.end as usize);
        assert_eq!(&text[start..end], comment.text);
    }
}

#[test]
fn imports_and_ops() {
    let text = "use std.nn\nuse std.nn.{a, b,} as c\nuse \"x.mon\"\n\
                use \"y.rhai\" sha256 \"9f\" as y\n\
                ## Largest of zero and x.\nop relu(x: f32[..]) -> f32[..]\n\
                op sum[A, B = 2](x: f32[..], over: axis = _, keep: bool = false) -> float\n\
                op no()\n";
    let (file, diagnostics) = parse(0, text);
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    assert_eq!(
        show_file(&file, text),
        "use std.nn\nuse std.nn.{a, b} as c\nuse \"x.mon\"\nuse \"y.rhai\" sha256 \"9f\" as y\n\
         ## Largest of zero and x.\nop relu(x: f32[..]) -> f32[..]\n\
         op sum[A, B = 2](x: f32[..], over: axis = _, keep: bool = false) -> float\n\
         op no()\n"
    );
}

/// What a broken item would have defined is known, so that nobody is blamed for using it.
#[test]
fn broken_things_have_names() {
    let text = "layer Mlp[D] {\n  a = f(1\n}\nmodel net = Mlp[3\ntrain t {\n  foo\n  x y z\n}\n";
    let (file, _) = parse(0, text);
    let name = |broken: &Broken| broken.name.as_ref().map(|name| name.name.clone());
    let mut names = Vec::new();
    for item in &file.items {
        match &item.kind {
            ItemKind::Broken(broken) => names.push(name(broken)),
            ItemKind::Block(block) => {
                for entry in &block.body.as_ref().unwrap().entries {
                    let EntryKind::Broken(broken) = &entry.kind else { panic!("{entry:?}") };
                    names.push(name(broken));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    assert_eq!(names, ["Mlp", "net", "foo", "x", "y", "z"]);
}

/// Items may be written in any layout that brackets and operators make clear.
#[test]
fn layout() {
    let text = "model net = a\n  |> b\n  |> c\nlet y = f(\n1,\n2\n)\ntrain t on\n p\n\
                {\na = 1\nb { c = 2 }\n}\n\
                  let z = 1\n  param w: int\n  = 3\nlet p = a\nthen b\n";
    let (file, diagnostics) = parse(0, text);
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    assert_eq!(
        show_file(&file, text),
        "model net = ((a |> b) |> c)\nlet y = f(1, 2)\ntrain t on p {\n  a = 1\n\
         \x20 b {\n    c = 2\n  }\n}\n\
         let z = 1\nparam w: int = 3\nlet p = (a then b)\n"
    );
}

#[test]
fn golden_trees() {
    for name in ["digits", "chargpt", "llama3d", "lora"] {
        let root = env!("CARGO_MANIFEST_DIR");
        let text = std::fs::read_to_string(format!("{root}/../../examples/{name}.mon")).unwrap();
        let (file, diagnostics) = parse(0, &text);
        assert!(diagnostics.is_empty(), "{name}: {diagnostics:#?}");
        let shown = show_file(&file, &text);
        let path = format!("{root}/tests/golden/{name}.tree");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &shown).expect("a writable golden file");
        }
        let expected = std::fs::read_to_string(&path).expect("the golden file");
        assert!(shown == expected, "{name}: differs; UPDATE=1 shows how\n{shown}");
        // What is shown is a program again, and means the same.
        let (again, diagnostics) = parse(0, &shown);
        assert!(diagnostics.is_empty(), "{diagnostics:#?}");
        let strip = |text: String| text.replace("paren", "").replace(['(', ')'], "");
        assert_eq!(strip(show_file(&again, &shown)), strip(shown));
    }
}
