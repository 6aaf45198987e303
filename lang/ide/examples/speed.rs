//! How long an editor waits: `cargo run --release -p monarch-ide --example speed`.

use monarch_check::{TensorFact, TextFacts, World, WorldError};
use monarch_graph::DataFile;
use monarch_ide::{Analysis, complete, hints, hover, rename};
use std::time::{Duration, Instant};

/// One program in memory.
struct One(String);

impl World for One {
    fn read(&self, _: &str, _: u64) -> Result<Vec<u8>, WorldError> {
        Ok(self.0.clone().into_bytes())
    }

    fn glob(&self, _: &str) -> Result<Vec<String>, WorldError> {
        Ok(vec!["corpus.txt".to_owned()])
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        Ok(DataFile { path: path.to_owned(), bytes: 1 << 20, sha256: [0; 32] })
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        Err(WorldError::NotFound { path: path.to_owned() })
    }

    fn text(&self, _: &[String]) -> Result<TextFacts, WorldError> {
        Ok(TextFacts { chars: 1 << 20, vocabulary: ('a'..='z').collect() })
    }
}

/// `chargpt`, with as many more layers as make `lines` lines.
fn program(lines: usize) -> String {
    let mut text = include_str!("../../../examples/chargpt.mon").to_owned();
    let start = text.find("layer Mlp").unwrap_or(0);
    let end = text.find("layer Block").unwrap_or(0);
    let mlp = text.get(start..end).unwrap_or("").to_owned();
    let mut n = 0;
    while text.lines().count() < lines {
        text.push_str(&mlp.replace("Mlp", &format!("Mlp{n}")));
        n += 1;
    }
    text
}

fn time(what: &str, mut work: impl FnMut()) {
    let mut all: Vec<Duration> = (0..50)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    all.sort_unstable();
    println!("{what:<44} p50 {:>9.2?}   p99 {:>9.2?}", all[all.len() / 2], all[all.len() - 1]);
}

fn main() {
    for lines in [70, 2_000, 20_000] {
        let text = program(lines);
        let world = One(text.clone());
        println!("{} lines", text.lines().count());
        time("  parse, check, index (all diagnostics)", || {
            Analysis::new(&world, "job.mon", &[]);
        });
        let broken = One(text.replacen("x @ up", "x @ ", 1));
        time("  the same with an error", || {
            Analysis::new(&broken, "job.mon", &[]);
        });
        let analysis = Analysis::new(&world, "job.mon", &[]);
        let at = text.find("gelu(x @ up)").unwrap_or(0) + 7;
        let start = Instant::now();
        hover(&analysis, at);
        println!("  first hover, which plans the program         {:.2?}", start.elapsed());
        time("  hover", || drop(hover(&analysis, at)));
        time("  completion", || drop(complete(&analysis, at)));
        time("  hints of the whole file", || drop(hints(&analysis, 0, text.len())));
        let axis = text.find("layer Mlp[D, F]").unwrap_or(0) + 13;
        time("  rename of an axis, checked again", || {
            drop(rename(&world, &analysis, &[], axis, "Hidden"));
        });
    }
}
