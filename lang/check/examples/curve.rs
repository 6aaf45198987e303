//! How time grows with a program: `cargo run --release -p monarch-check --example curve`.
//!
//! Layers of `chargpt.mon` over and over, 1,000 to 100,000 lines, and expressions nested up to the
//! limit; for each the best of several rounds, and microseconds per line, which stay the same.

#[path = "../tests/common/mod.rs"]
mod common;

use common::Memory;
use std::time::Instant;

/// About `lines` lines: each block of layers uses those before it in the same block.
fn program(lines: usize) -> String {
    let text = include_str!("../../../examples/chargpt.mon");
    let start = text.find("layer Attention").unwrap_or(0);
    let end = text.find("model gpt").unwrap_or(text.len());
    let (head, layers, tail) = (&text[..start], &text[start..end], &text[end..]);
    let mut out = head.to_owned();
    let each = layers.lines().count();
    let count = lines.saturating_sub(head.lines().count() + tail.lines().count()) / each;
    for n in 0..count.max(1) {
        let mut block = layers.to_owned();
        for name in ["Attention", "Mlp", "Block", "Gpt"] {
            block = block.replace(&format!("{name}["), &format!("{name}{n}["));
        }
        out.push_str(&block);
    }
    out.push_str(&tail.replace("Gpt[", "Gpt0["));
    out
}

fn best(rounds: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best * 1e3
}

fn measure(name: &str, text: &str, rounds: usize) {
    let lines = text.lines().count().max(1);
    let world = Memory::with("long.mon", text);
    let errors = world.check("long.mon").diagnostics.iter().filter(|d| d.is_error()).count();
    let parse = best(rounds, || drop(monarch_syntax::parse(0, text)));
    let check = best(rounds, || drop(world.check("long.mon")));
    let format = best(rounds, || drop(monarch_syntax::format(0, text)));
    let each = |ms: f64| 1e3 * ms / lines as f64;
    println!(
        "{name}: {lines} lines, {:.2} MiB, {errors} errors: parse {parse:.1} ms ({:.2} us/line), \
         parse and check {check:.1} ms ({:.2}), format {format:.1} ms ({:.2})",
        text.len() as f64 / (1 << 20) as f64,
        each(parse),
        each(check),
        each(format),
    );
}

fn main() {
    for (lines, rounds) in [(1_000, 20), (10_000, 5), (100_000, 3)] {
        measure("layers", &program(lines), rounds);
    }
    for depth in [16, 32, 64, 126] {
        let line = format!("let a = {}1{}\n", "(1 + ".repeat(depth), ")".repeat(depth));
        let named = |n: usize| line.replacen("let a", &format!("let a{n}"), 1);
        measure(&format!("depth {depth}"), &(0..1_000).map(named).collect::<String>(), 3);
    }
}
