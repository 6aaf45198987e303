//! How long a program takes to parse: `cargo run --release -p monarch-syntax --example speed`.
//! Without arguments, programs of growing length made of the ones in `examples/`.

use std::time::Instant;

use monarch_syntax::parse;

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if !files.is_empty() {
        for name in files {
            match std::fs::read_to_string(&name) {
                Ok(text) => measure(&name, &text),
                Err(error) => eprintln!("{name}: {error}"),
            }
        }
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
    let names = ["digits.mon", "chargpt.mon", "llama3d.mon", "lora.mon"];
    let texts = names.map(|name| std::fs::read_to_string(format!("{root}{name}")));
    let all: String = texts.into_iter().flatten().collect();
    for times in [1, 10, 100, 1000] {
        measure("programs", &all.repeat(times));
    }
    let layer = "layer L[D] {\n  w: [D, D] ~ normal(0.02 / sqrt(2 * D))\n  forward(x: [B, T, D]) \
                 -> [B, T, D] {\n    let h = x @ w + x\n    h |> relu\n  }\n}\n";
    measure("layers", &layer.repeat(17_000 / 7));
    measure("wrong", &all.replace(" = ", " = = ").repeat(90));
}

fn measure(name: &str, text: &str) {
    let mut best = f64::INFINITY;
    let mut counts = (0, 0);
    for _ in 0..5 {
        let start = Instant::now();
        let (file, diagnostics) = parse(0, text);
        best = best.min(start.elapsed().as_secs_f64());
        counts = (file.items.len(), diagnostics.len());
    }
    let lines = text.lines().count();
    let mib = text.len() as f64 / (1 << 20) as f64;
    println!(
        "{name}: {lines} lines, {mib:.2} MiB: {:.1} ms, {:.1} MiB/s ({} items, {} diagnostics)",
        best * 1e3,
        mib / best,
        counts.0,
        counts.1
    );
}
