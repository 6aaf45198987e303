//! Whatever the text, the check answers: no panic, no overflow of the stack, a program only
//! without errors, and never silence without a program.

mod common;

use common::{Memory, shown};

fn example(name: &str) -> String {
    let path = format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the example is there")
}

fn answers(text: &str) {
    let checked = Memory::with("job.mon", text).check("job.mon");
    let errors = checked.diagnostics.iter().any(|d| d.is_error());
    assert_eq!(checked.program.is_none(), errors, "{}", shown(&checked));
    let fault = checked.diagnostics.iter().any(|d| d.code == "M0000");
    assert!(!fault, "a silent end for:\n{text}");
}

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Texts with words exchanged, taken out and doubled.
#[test]
fn mangled_programs() {
    let mut random = Random(7);
    for name in ["digits.mon", "chargpt.mon", "llama3d.mon", "lora.mon"] {
        let text = example(name);
        let words: Vec<&str> = text.split_inclusive([' ', '\n', '(', '[', ',', ')', ']']).collect();
        for _ in 0..100 {
            let mut mangled = words.clone();
            for _ in 0..=random.below(3) {
                let (a, b) = (random.below(mangled.len()), random.below(mangled.len()));
                match random.below(4) {
                    0 => mangled.swap(a, b),
                    1 => {
                        mangled.remove(a);
                    }
                    2 => mangled.insert(a, words[b.min(words.len() - 1)]),
                    _ => mangled[a] = words[b.min(words.len() - 1)],
                }
            }
            answers(&mangled.concat());
        }
    }
}

/// Numbers that grow without bound, layers that grow without bound.
#[test]
fn things_that_explode() {
    answers("let a = 9999999999 * 9999999999 * 9999999999\n");
    answers("let a = 2 ^ 1000 ^ 1000\nlet b = -9223372036854775807 - 5\n");
    let layer =
        "layer A[D] {\n  w: [D ^ 8 * D ^ 8] ~ ones\n  forward(x: [B, D]) -> [B, D] = x\n}\n";
    answers(&format!("{layer}model a = A[D = 1000]\n"));
    let sum: Vec<String> = (0..80).map(|i| format!("D{i}")).collect();
    let (dims, sum) = (sum.join(", "), sum.join(" + "));
    let size = format!("({sum}) * ({sum})");
    let body = format!("  w: [{size}] ~ ones\n  forward(x: [B, D0]) -> [B, D0] = x\n");
    answers(&format!("layer A[{dims}] {{\n{body}}}\n"));
    let mut chain =
        String::from("layer L0[D] {\n  w: [D] ~ ones\n  forward(x: [B, D]) -> [B, D] = x * w\n}\n");
    for i in 1..2000 {
        let inner = i - 1;
        chain.push_str(&format!(
            "layer L{i}[D] {{\n  a = L{inner}[D], b = L{inner}[D]\n  \
             forward(x: [B, D]) -> [B, D] = b(a(x))\n}}\n"
        ));
    }
    answers(&format!("{chain}model a = L30[D = 4]\n"));
    answers(&format!("{chain}model a = L1999[D = 4]\n"));
    let copies = "layer B[D] {\n  a = repeat(A[D], 1000000000)\n  \
                  forward(x: [B, D]) -> [B, D] = a(x)\n}\nmodel b = B[D = 3]\n";
    let layer = "layer A[D] {\n  w: [D] ~ ones\n  forward(x: [B, D]) -> [B, D] = x * w\n}\n";
    answers(&format!("{layer}{copies}"));
}

/// As deep as the parser allows, in every kind of place, on the stack of a test thread.
#[test]
fn deep_expressions() {
    let deep = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(240), close.repeat(240))
    };
    answers(&format!("let a = {}\n", deep("(1 + ", "1", ")")));
    answers(&format!("let a = {}\n", deep("sqrt(", "1", ")")));
    answers(&format!("let a = {}\n", deep("[", "1", "]")));
    answers(&format!("let a = 1{}\n", " + 1".repeat(500)));
    let body = |e: &str| format!("layer A[D] {{\n  forward(x: [B, D]) -> [B, D] = {e}\n}}\n");
    answers(&body(&deep("(x + ", "x", ")")));
    answers(&body(&deep("exp(", "x", ")")));
    answers(&body(&deep("-", "x", "")));
    answers(&body(&format!("x{}", " |> exp".repeat(500))));
    answers(&body(&deep("if true { ", "x", " } else { x }")));
    answers(&format!("test \"t\" {{\n  assert {}\n}}\n", deep("(1 + ", "1", ")")));
}

/// A hundred mistakes are shown, and that there are more.
#[test]
fn very_many_mistakes() {
    let text: String = (0..500).map(|i| format!("let a{i} = b{i}\n")).collect();
    let checked = Memory::with("job.mon", &text).check("job.mon");
    assert_eq!(checked.diagnostics.len(), 101);
    let last = checked.diagnostics.last().expect("a remark");
    assert_eq!((last.code, last.title.as_str()), ("M0099", "and 400 more"));
}

/// Files that are not there, are empty, are no text, or are far too large.
#[test]
fn odd_files() {
    let said = |world: &Memory, path: &str| {
        let checked = world.check(path);
        assert!(checked.program.is_none());
        let all: Vec<&str> = checked.diagnostics.iter().map(|d| d.code).collect();
        all.join(" ")
    };
    let mut world = Memory::default();
    assert_eq!(said(&world, "gone.mon"), "M0122");
    world.files.insert("empty.mon".into(), Vec::new());
    assert_eq!(said(&world, "empty.mon"), "M0006");
    world.files.insert("binary.mon".into(), vec![0xff, 0xfe, 0, 1, 2]);
    assert_eq!(said(&world, "binary.mon"), "M0008");
    world.files.insert("large.mon".into(), vec![b' '; 100 << 20]);
    assert_eq!(said(&world, "large.mon"), "M0005");
}
