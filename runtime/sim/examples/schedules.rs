//! Random schedules by the million: `schedules --count 1000000 --seed 1 [--trace] [--threads N]`.

use monarch_sim::{Schedule, run, shrink};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

struct Options {
    count: u64,
    seed: u64,
    threads: u64,
    trace: bool,
}

fn options() -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut options = Options { count: 100_000, seed: 1, threads, trace: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().unwrap_or_default();
            value.parse::<u64>().map_err(|_| format!("`{word}` wants a number, not `{value}`"))
        };
        match word.as_str() {
            "--count" => options.count = number()?,
            "--seed" => options.seed = number()?,
            "--threads" => options.threads = number()?.max(1),
            "--trace" => options.trace = true,
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok(options)
}

#[derive(Default)]
struct Totals {
    events: AtomicU64,
    generations: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    violations: AtomicU64,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}; known: --count N, --seed N, --threads N, --trace");
            return ExitCode::from(2);
        }
    };
    if options.trace {
        let schedule = Schedule::random(options.seed);
        let report = run(&schedule, true);
        report.trace.iter().for_each(|line| println!("{line}"));
        print!("{schedule}");
        println!("{:?}\n{:?}", report.outcome, report.violation);
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let (totals, next) = (Totals::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| work(&options, &totals, &next));
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
    println!(
        "{} schedules ({} events, {} generations formed anew) in {seconds:.1} s, {:.0} a second \
         and thread: {} came to their end, {} failed as they may, {} violations",
        options.count,
        get(&totals.events),
        get(&totals.generations),
        options.count as f64 / seconds / options.threads as f64,
        get(&totals.completed),
        get(&totals.failed),
        get(&totals.violations),
    );
    ExitCode::from(u8::from(get(&totals.violations) > 0))
}

fn work(options: &Options, totals: &Totals, next: &AtomicU64) {
    loop {
        let from = next.fetch_add(64, Ordering::Relaxed);
        if from >= options.count {
            return;
        }
        for number in from..(from + 64).min(options.count) {
            one(options.seed.wrapping_add(number), totals);
        }
    }
}

fn one(seed: u64, totals: &Totals) {
    let add = |n: &AtomicU64, by: u64| n.fetch_add(by, Ordering::Relaxed);
    let schedule = Schedule::random(seed);
    let report = run(&schedule, false);
    add(&totals.events, report.events);
    add(&totals.generations, report.generations);
    let ended = report.outcome.map(|o| o.ended);
    match ended {
        Some(monarch_sched::Ended::Failed(_)) => add(&totals.failed, 1),
        _ => add(&totals.completed, 1),
    };
    let Some(what) = report.violation else { return };
    if add(&totals.violations, 1) >= 3 {
        println!("seed {seed}: {what:.300}");
    } else {
        let (least, report) = shrink(&schedule);
        let mut text = format!("seed {seed}: {what}\nshrunk:\n{least}");
        for line in report.trace.iter().rev().take(200).rev() {
            text.push_str(&format!("{line}\n"));
        }
        println!("{text}");
    }
}
