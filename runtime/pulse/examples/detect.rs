//! How soon death and freezing are seen, what that costs, and how often a healthy worker is
//! accused while twice as many threads want to run as there are processors.
//!
//! `cargo run --release -p monarch-pulse --example detect [minutes of load]`

use monarch_pulse::{Limits, Monitor, Options, Page, Phase, Pulse, Role, Sign, enter, tick};
use std::io::{BufRead, BufReader, Error, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Error>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [word, mib] if word == "worker" => worker(mib.parse().unwrap_or(0)),
        [minutes] => all(minutes.parse().map_err(Error::other)?),
        _ => all(1.0),
    }
}

fn all(minutes: f64) -> Outcome<()> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    println!("{processors} processors, load {}", load.trim());
    for (mib, times) in [(64, 60), (1024, 20), (4096, 5)] {
        kills(mib, times)?;
    }
    freezes(20)?;
    cost()?;
    alarms(minutes, processors)
}

/// A process that holds so much memory and shows a page until its standard input ends.
fn worker(mib: usize) -> Outcome<()> {
    let memory = vec![1u8; mib << 20];
    let pulse = Pulse::start(Options::default())?;
    println!("{}", pulse.fd());
    let stream = pulse.join(Role::Main);
    enter(Phase::Waiting);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop((stream, memory));
    Ok(())
}

struct Worker {
    child: Child,
    page: Page,
}

impl Worker {
    fn start(mib: usize) -> Outcome<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", &mib.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or_else(|| Error::other("no output"))?;
        BufReader::new(output).read_line(&mut line)?;
        let fd = line.trim().parse().map_err(Error::other)?;
        let page = Page::open(child.id(), fd)?;
        Ok(Worker { child, page })
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes no pointers; the child is not reaped yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn monitor() -> Outcome<(Monitor, Receiver<(Instant, Sign)>)> {
    let (say, signs) = channel();
    let monitor = Monitor::start(move |_, sign| {
        let _ = say.send((Instant::now(), sign));
    })?;
    Ok((monitor, signs))
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| {
        let place = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len().max(1));
        times.get(place - 1).map_or(f64::NAN, |t| t.as_secs_f64() * 1e3)
    };
    let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
    println!("{what}: p50 {p50:.2} ms, p99 {p99:.2}, largest {most:.2} ({} times)", times.len());
}

fn kills(mib: usize, times: usize) -> Outcome<()> {
    let (mut seen, mut reaped) = (Vec::new(), Vec::new());
    for number in 0..times {
        let mut worker = Worker::start(mib)?;
        let (monitor, signs) = monitor()?;
        monitor.watch(number as u64, worker.child.id(), worker.page.clone(), Limits::near(), true);
        let begun = Instant::now();
        worker.signal(libc::SIGKILL);
        let (at, sign) = signs.recv_timeout(LIMIT).map_err(Error::other)?;
        assert_eq!(sign, Sign::Died);
        seen.push(at - begun);
        worker.child.wait()?;
        reaped.push(begun.elapsed());
    }
    show(&format!("kill -9 seen, {mib} MiB"), seen);
    show(&format!("  its parent hears of it, {mib} MiB"), reaped);
    Ok(())
}

fn freezes(times: usize) -> Outcome<()> {
    let mut seen = Vec::new();
    for number in 0..times {
        let worker = Worker::start(64)?;
        let (monitor, signs) = monitor()?;
        monitor.watch(number as u64, worker.child.id(), worker.page.clone(), Limits::near(), true);
        // The first look must have seen a beat.
        let beats = worker.page.sample().beats;
        while worker.page.sample().beats < beats + 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        worker.signal(libc::SIGSTOP);
        let (at, _) = signs.recv_timeout(LIMIT).map_err(Error::other)?;
        seen.push(at - begun);
    }
    show("SIGSTOP seen", seen);
    Ok(())
}

/// Processor time of this process, or of those that it has reaped.
fn used(who: i32) -> Duration {
    // SAFETY: all zeros are a valid value of this plain struct, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn cost() -> Outcome<()> {
    const TICKS: u32 = 100_000_000;
    let pulse = Pulse::start(Options::default())?;
    let stream = pulse.join(Role::Main);
    enter(Phase::Compute);
    let begun = Instant::now();
    for _ in 0..TICKS {
        tick();
    }
    let ns = begun.elapsed().as_secs_f64() * 1e9 / f64::from(TICKS);
    println!("a tick of the progress counter: {ns:.2} ns");
    drop((stream, pulse));
    let before = used(libc::RUSAGE_CHILDREN);
    let mut worker = Worker::start(1)?;
    let (monitor, _signs) = monitor()?;
    monitor.watch(0, worker.child.id(), worker.page.clone(), Limits::near(), true);
    let own = used(libc::RUSAGE_SELF);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(5));
    let passed = begun.elapsed().as_secs_f64();
    let own = (used(libc::RUSAGE_SELF) - own).as_secs_f64() / passed * 100.0;
    drop(monitor);
    drop(worker.child.stdin.take());
    worker.child.wait()?;
    let heart = (used(libc::RUSAGE_CHILDREN) - before).as_secs_f64() / passed * 100.0;
    println!("monitor and canaries: {own:.2} % of a processor");
    println!("an idle worker, start and end included: {heart:.2} %");
    Ok(())
}

/// Four workers and twice as many busy threads as processors.
fn alarms(minutes: f64, processors: usize) -> Outcome<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let spinner = |_| {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut n = 0u64;
            while !stop.load(Ordering::Relaxed) {
                n = std::hint::black_box(n.wrapping_add(1));
            }
        })
    };
    let spinners: Vec<_> = (0..2 * processors).map(spinner).collect();
    let workers = (0..4).map(|_| Worker::start(16)).collect::<Outcome<Vec<_>>>()?;
    let (monitor, signs) = monitor()?;
    for (number, worker) in workers.iter().enumerate() {
        let page = worker.page.clone();
        monitor.watch(number as u64, worker.child.id(), page, Limits::near(), true);
    }
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    let mut seen: Vec<(u64, Instant)> =
        workers.iter().map(|w| (w.page.sample().beats, begun)).collect();
    while begun.elapsed().as_secs_f64() < minutes * 60.0 {
        std::thread::sleep(Duration::from_millis(2));
        for ((beats, since), worker) in seen.iter_mut().zip(&workers) {
            let now = worker.page.sample().beats;
            if now != *beats {
                longest = longest.max(since.elapsed());
                (*beats, *since) = (now, Instant::now());
            }
        }
    }
    let healthy = monitor.healthy_ns() as f64 * 1e-9 / begun.elapsed().as_secs_f64() * 100.0;
    let alarms = signs.try_iter().count();
    stop.store(true, Ordering::Relaxed);
    spinners.into_iter().for_each(|s| drop(s.join()));
    println!(
        "{alarms} false alarms of 4 healthy workers in {minutes} min with {} busy threads; longest \
         time without a beat {:.1} ms; {healthy:.0} % of it was healthy time",
        2 * processors,
        longest.as_secs_f64() * 1e3
    );
    Ok(())
}
