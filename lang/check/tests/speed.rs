//! A program of 17,000 lines is checked in linear time. `cargo test --release -p monarch-check
//! --test speed -- --nocapture` prints the figure.

mod common;

use common::{Memory, shown};
use std::time::{Duration, Instant};

/// About `lines` lines: chargpt's layers over and over, each block using those before it.
fn program(lines: usize) -> String {
    let path = format!("{}/../../examples/chargpt.mon", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example is there");
    let start = text.find("layer Attention").expect("a layer");
    let end = text.find("model gpt").expect("a model");
    let (head, layers, tail) = (&text[..start], &text[start..end], &text[end..]);
    let mut out = head.to_owned();
    let mut n = 0;
    while out.lines().count() + tail.lines().count() < lines {
        for line in layers.lines() {
            let mut line = line.to_owned();
            for name in ["Attention", "Mlp", "Block", "Gpt"] {
                line = line.replace(&format!("{name}["), &format!("{name}{n}["));
            }
            out.push_str(&line);
            out.push('\n');
        }
        n += 1;
    }
    out.push_str(&tail.replace("Gpt[", "Gpt0["));
    out
}

/// Time that this thread had a processor: other work on the machine is not our slowness.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|n| n.parse().ok());
    ns.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Where there is no such file, the wall clock.
static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

fn measure(lines: usize) -> Duration {
    let text = program(lines);
    let world = Memory::with("long.mon", &text);
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = busy();
        let checked = world.check("long.mon");
        best = best.min(busy() - start);
        assert!(checked.program.is_some(), "{}", shown(&checked));
    }
    let start = busy();
    let parsed = monarch_syntax::parse(0, &text);
    let parse = busy() - start;
    assert!(parsed.1.is_empty());
    println!("{} lines: {best:?}, of which {parse:?} to parse", text.lines().count());
    best
}

#[test]
fn seventeen_thousand_lines() {
    let short = measure(4_250);
    let long = measure(17_000);
    // Four times the text; a quadratic step would make it sixteen.
    let factor = long.as_secs_f64() / short.as_secs_f64();
    assert!(factor < 8.0, "{short:?} for a quarter, {long:?} for all: {factor:.1} times");
    if !cfg!(debug_assertions) {
        assert!(long < Duration::from_millis(600), "{long:?}");
    }
}

/// One layer with very many weights, and a file with very many unknown names.
#[test]
fn wide_programs() {
    let layer = |n: usize| {
        let weights: String = (0..n).map(|i| format!("  w{i}: [D] ~ ones\n")).collect();
        let lets: String = (0..n).map(|i| format!("    let x{} = x{i} * w{i}\n", i + 1)).collect();
        format!(
            "layer A[D] {{\n{weights}  forward(x0: [B, D]) -> [B, D] {{\n{lets}    x{n}\n  }}\n}}\n"
        )
    };
    let unknown = |n: usize| -> String { (0..n).map(|i| format!("let a{i} = b{i}\n")).collect() };
    let time = |text: String| {
        let world = Memory::with("wide.mon", &text);
        let start = busy();
        let checked = world.check("wide.mon");
        assert!(checked.diagnostics.len() <= 101);
        busy() - start
    };
    for make in [&layer as &dyn Fn(usize) -> String, &unknown] {
        let (short, long) = (time(make(1_500)), time(make(6_000)));
        println!("{short:?}, four times as wide {long:?}");
        assert!(long < short * 9, "{short:?} for a quarter, {long:?} for all");
    }
}
