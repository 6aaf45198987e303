//! What one event loop has to do for 1,000, 10,000 and 100,000 workers: the state machine alone,
//! one thread, no network. `cargo run --release -p monarch-sim --example scale [-- WORKERS..]`.

use monarch_sched::{
    Command, Config, EvalNames, Event, Exit, Joined, Recovery, Saves, Scheduler, SlowAnswer,
    StepNumbers, Timeouts, Times, Transport, WorkerId,
};
use std::collections::BTreeMap;
use std::time::Instant;

const STEPS: u64 = 8;

fn config(world: u32) -> Config {
    Config {
        world,
        shards: world,
        threads: Some(1),
        transport: Transport::Quic,
        steps: 1_000,
        first_step: 0,
        evals: vec![EvalNames { name: "eval".into(), metrics: vec!["accuracy".into()] }],
        eval_every: None,
        eval_after_save: false,
        save_every: None,
        saves: Saves::default(),
        save_at_end: false,
        rules: Vec::new(),
        answers: Vec::new(),
        tried: Default::default(),
        points: BTreeMap::new(),
        recovery: Recovery { least: 1, replace: false, attempts: 1 },
        slow: SlowAnswer::usual(),
        timeouts: Timeouts::default(),
    }
}

/// One event after the other, and the time that they take.
struct Loop {
    scheduler: Scheduler,
    now_ns: u64,
    generation: u64,
    /// Workers that are told something by the commands so far.
    messages: u64,
    world: u64,
}

impl Loop {
    fn tell(&mut self, event: Event) {
        self.now_ns += 1_000;
        for command in self.scheduler.step(self.now_ns, event) {
            match command {
                Command::Halt { generation, workers } => {
                    self.generation = generation;
                    self.messages += workers.len() as u64;
                }
                Command::Start { placements, .. } => self.messages += placements.len() as u64,
                Command::Form(forming) => {
                    self.world = forming.placements.len() as u64;
                    self.messages += self.world;
                }
                Command::Window { .. } => self.messages += self.world,
                _ => {}
            }
        }
    }

    /// Time per event, and all of it in ms.
    fn timed(&mut self, name: &str, events: u64, work: impl FnOnce(&mut Loop)) {
        let (began, messages) = (Instant::now(), self.messages);
        work(self);
        let ns = began.elapsed().as_nanos() as f64;
        let sent = self.messages - messages;
        let (ms, each) = (ns * 1e-6, ns / events as f64);
        println!("  {name:32} {ms:10.2} ms  {each:8.0} ns an event  {sent:9} messages out");
    }
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0 / (1024.0 * 1024.0)
}

fn numbers(step: u64) -> StepNumbers {
    StepNumbers {
        step,
        epoch: 0,
        samples: 64,
        loss: 0.5,
        grad_norm: 1.0,
        lr: 1e-3,
        total_ns: 100_000_000,
        times: Times::default(),
        finite: true,
    }
}

fn measure(world: u32) {
    let all = u64::from(world);
    let before = resident_mib();
    let Ok(scheduler) = Scheduler::new(config(world), 0) else { return };
    let mut run = Loop { scheduler, now_ns: 0, generation: 0, messages: 0, world: all };
    println!("{world} workers");
    run.timed("all join", all, |run| {
        for n in 0..all {
            run.tell(Event::Joined(Joined {
                worker: WorkerId(n),
                host: format!("host{}", n / 8),
                shm_domain: format!("host{}", n / 8),
                cores: 8,
                peer_address: format!("10.0.{}.{}:7000", n / 250 % 250, n % 250),
                slot: None,
                objection: None,
            }));
        }
    });
    let ready = |run: &mut Loop, from: u64| {
        for n in from..all {
            let generation = run.generation;
            let fingerprint = "0123456789abcdef".to_string();
            run.tell(Event::Ready { worker: WorkerId(n), generation, fingerprint });
        }
    };
    run.timed("all get ready", all, |run| ready(run, 0));
    let steps = |run: &mut Loop, workers: std::ops::Range<u64>, steps: std::ops::Range<u64>| {
        for step in steps {
            for n in workers.clone() {
                run.tell(Event::Step { worker: WorkerId(n), numbers: numbers(step) });
            }
        }
    };
    run.timed("8 steps, reports in order", all * STEPS, |run| steps(run, 0..all, 0..STEPS));
    run.timed("1 step", all, |run| steps(run, 0..all, STEPS..STEPS + 1));
    run.timed("worker 0 is lost: until formed", all * 2, |run| {
        run.tell(Event::Lost { worker: WorkerId(0), why: "gone".into() });
        for n in 1..all {
            let (generation, done) = (run.generation, Some(STEPS + 1));
            let peer_address = format!("10.0.{}.{}:7001", n / 250 % 250, n % 250);
            run.tell(Event::Halted { worker: WorkerId(n), generation, done, peer_address });
        }
        ready(run, 1);
    });
    run.timed("1 step", all, |run| steps(run, 1..all, STEPS + 1..STEPS + 2));
    let exit = Exit { text: "exit code 0".into(), by_signal: false, clean: true };
    run.tell(Event::Exited { slot: 0, exit });
    println!("  resident: {:.1} MiB more than before", resident_mib() - before);
    assert_eq!(run.scheduler.done(), STEPS + 2, "all steps are done");
}

fn main() {
    let asked: Vec<u32> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1_000, 10_000, 100_000] } else { asked };
    sizes.into_iter().for_each(measure);
}
