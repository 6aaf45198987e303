//! Looks for texts on which the parser, the formatter or the checker fails:
//! `cargo run --release -p monarch-check --example fuzz -- checker --minutes 10 [--seed N]`, and
//! `-- checker --replay FILE` for one text.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/fuzz.rs"]
mod fuzz;
#[path = "../../syntax/tests/common/generate.rs"]
#[allow(dead_code)]
mod generate;

use common::Memory;
use fuzz::{Counting, Target, campaign, corpus, run, watch};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(String::as_str)
    };
    let Some(target) = args.first().and_then(|name| Target::named(name)) else {
        eprintln!("fuzz parser|formatter|checker [--minutes N] [--seed N] [--replay FILE]");
        return ExitCode::from(2);
    };
    watch();
    if let Some(file) = value("--replay") {
        let text = std::fs::read(file).unwrap_or_default();
        let answer = run(target, &String::from_utf8_lossy(&text));
        println!("{answer:?}");
        return ExitCode::from(u8::from(answer.is_err()));
    }
    // A panic is told by its input, not by its trace.
    std::panic::set_hook(Box::new(|_| {}));
    let minutes: f64 = value("--minutes").and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let seed = value("--seed").and_then(|text| text.parse().ok()).unwrap_or(1);
    let (start, limit) = (Instant::now(), Duration::from_secs_f64(60.0 * minutes));
    let done = campaign(target, seed, corpus(), |_| start.elapsed() < limit);
    println!(
        "{target:?}, seed {seed}: {} executions in {:.0} s, {} kinds of answers, {} failures",
        done.executions,
        start.elapsed().as_secs_f64(),
        done.kinds,
        done.failures.len()
    );
    for (what, text) in &done.failures {
        println!("--- {what}\n{text}\n{:?}", text);
    }
    ExitCode::from(u8::from(!done.failures.is_empty()))
}
