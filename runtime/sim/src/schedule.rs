//! A job and what happens to it: all that a simulation starts from.

use crate::rng::Rng;
use monarch_graph::{Action, Every, Rule, Span};
use monarch_sched::{Config, EvalNames, Recovery, Saves, SlowAnswer, Timeouts, Transport};
use std::fmt;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// Silence after which either end takes a connection for lost.
pub const IDLE_NS: u64 = 50 * MS;
/// Longest wait for peers to connect.
pub const CONNECT_NS: u64 = 600 * MS;
/// A worker whose run is over ends itself after this long, whatever it is at.
pub const GRACE_NS: u64 = 300 * MS;

/// A small job. Times are a hundredth of those of real runs, in the same proportions.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub seed: u64,
    pub world: u32,
    /// Of these the first are started by the controller; the others come by themselves.
    pub own: u32,
    pub shards: u32,
    pub steps: u64,
    pub eval_every: Option<u64>,
    pub save_every: Option<u64>,
    pub save_ms: Option<u64>,
    pub eval_after_save: bool,
    pub save_after_eval: bool,
    pub save_waits: bool,
    pub stop_above: Option<f64>,
    pub recovery: Recovery,
    /// Forward and backward of one shard.
    pub shard_ns: u64,
    /// Least and most time on the way.
    pub delay_ns: (u64, u64),
    pub save_ns: u64,
}

impl Job {
    pub fn config(&self) -> Config {
        let steps = |n: Option<u64>| n.map(Every::Steps);
        let rule = |above: f64| Rule {
            metric: "eval.accuracy".into(),
            above: Some(above),
            below: None,
            action: Action::Stop,
            span: Span::default(),
        };
        Config {
            world: self.world,
            shards: self.shards,
            threads: None,
            transport: Transport::Quic,
            steps: self.steps,
            first_step: 0,
            evals: vec![EvalNames { name: "eval".into(), metrics: vec!["accuracy".into()] }],
            eval_every: steps(self.eval_every),
            eval_after_save: self.eval_after_save,
            save_every: self.save_ms.map(Every::Time).or(steps(self.save_every)),
            saves: Saves {
                after_eval: self.save_after_eval,
                waits: self.save_waits,
                ..Saves::default()
            },
            save_at_end: true,
            answers: Vec::new(),
            tried: Default::default(),
            points: Default::default(),
            rules: self.stop_above.map(rule).into_iter().collect(),
            recovery: self.recovery,
            slow: SlowAnswer::usual(),
            timeouts: Timeouts {
                join_ns: 300 * MS,
                ready_ns: 1_500 * MS,
                stall_ns: 6_000 * MS,
                grace_ns: 300 * MS,
                settle_ns: 10 * MS,
                halt_ns: 100 * MS,
                return_ns: 300 * MS,
            },
        }
    }

    /// Evaluations that are due whatever happens.
    pub fn evaluates_by_step(&self, edge: u64) -> bool {
        let every = |n: Option<u64>| n.is_some_and(|n| edge.is_multiple_of(n));
        let by_save = self.eval_after_save && self.save_ms.is_none() && every(self.save_every);
        edge > 0 && (edge == self.steps || every(self.eval_every) || by_save)
    }

    /// About how long it takes when nothing happens.
    pub fn length_ns(&self) -> u64 {
        let shards = u64::from(self.shards.div_ceil(self.world));
        10 * MS + self.steps * (shards * self.shard_ns + 3 * self.delay_ns.1)
    }

    fn random(random: &mut Rng) -> Job {
        let shards = random.within(1, 8) as u32;
        let world = random.within(1, u64::from(shards.min(6))) as u32;
        let steps = random.within(6, 20);
        let some =
            |random: &mut Rng, percent, n: u64| random.chance(percent).then(|| random.within(2, n));
        let eval_every = some(random, 60, 8);
        let save_ms = some(random, 10, 20);
        let save_every = if save_ms.is_none() { some(random, 60, 8) } else { None };
        let least = [1, 1, 1, 2, 0].get(random.below(5) as usize).copied().unwrap_or(1);
        let fastest = random.within(20, 200) * US;
        // Where a save by the clock or on request brings an evaluation with it, so does the end.
        let eval_after_save = random.chance(15);
        Job {
            seed: random.draw(),
            world,
            own: if random.chance(80) { world } else { random.below(u64::from(world) + 1) as u32 },
            shards,
            steps,
            eval_every,
            save_every,
            save_ms,
            eval_after_save,
            save_after_eval: random.chance(15),
            save_waits: random.chance(25),
            stop_above: random.chance(15).then_some(0.8).filter(|_| !eval_after_save),
            recovery: Recovery {
                least: least.min(world),
                replace: random.chance(70),
                attempts: random.within(1, 3) as u32,
            },
            shard_ns: random.within(100, 1_500) * US,
            delay_ns: (fastest, fastest + random.within(10, 600) * US),
            save_ns: random.within(100, 8_000) * US,
        }
    }
}

/// Something that goes wrong, or that a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at_ns: u64,
    pub what: What,
}

/// Workers are counted among those that live at that moment, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `kill -9`.
    Kill(u32),
    /// It finds something wrong with the job, says so and leaves.
    Fail(u32),
    /// It ends without a word, with an exit code.
    Exit(u32),
    /// SIGSTOP, and SIGCONT after that long.
    Freeze(u32, u64),
    /// Its computing thread is stuck for that long; the process answers.
    Stuck(u32, u64),
    /// So many times slower from now on.
    Slow(u32, u32),
    /// SIGTERM: it asks to be let go.
    Term(u32),
    /// Its connection to the controller breaks.
    Unlink(u32),
    /// What it says to the controller is lost for that long.
    Mute(u32, u64),
    /// What the controller says to it is lost for that long.
    Deaf(u32, u64),
    /// Nothing passes between two workers for that long.
    Apart(u32, u32, u64),
    /// The first so many workers see nobody but each other for that long.
    Island(u32, u64),
    /// Nothing can be written for that long.
    DiskFull(u64),
    /// Another worker comes by itself.
    Guest,
    /// Ctrl-C.
    Interrupt,
    /// The embedding program asks for an orderly end.
    Stop,
    /// The embedding program asks for a checkpoint.
    Checkpoint,
}

impl What {
    fn random(random: &mut Rng) -> What {
        let who = random.below(6) as u32;
        let long = |random: &mut Rng| match random.below(4) {
            0 => random.within(1, 20) * MS,
            1 => random.within(20, 120) * MS,
            2 => random.within(100, 900) * MS,
            _ => FOR_EVER,
        };
        match random.below(100) {
            0..30 => What::Kill(who),
            30..32 => What::Fail(who),
            32..36 => What::Exit(who),
            36..48 => What::Freeze(who, long(random)),
            48..54 => What::Stuck(who, long(random)),
            54..56 => What::Slow(who, random.within(2, 8) as u32),
            56..58 => What::Term(who),
            58..62 => What::Unlink(who),
            62..66 => What::Mute(who, long(random)),
            66..70 => What::Deaf(who, long(random)),
            70..74 => What::Apart(who, random.below(6) as u32, long(random)),
            74..77 => What::Island(random.within(1, 4) as u32, long(random)),
            77..82 => What::DiskFull(random.within(1, 40) * MS),
            82..92 => What::Guest,
            92..94 => What::Interrupt,
            94..95 => What::Stop,
            _ => What::Checkpoint,
        }
    }
}

/// Longer than any run.
pub const FOR_EVER: u64 = 1_000_000 * MS;

/// All that a simulation follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub seed: u64,
    pub job: Job,
    /// In order of time.
    pub faults: Vec<Fault>,
}

impl Schedule {
    /// The schedule with this number.
    pub fn random(seed: u64) -> Schedule {
        let mut random = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6d6f_6e61_7263_6800);
        let job = Job::random(&mut random);
        let span = job.length_ns() * 3 / 2;
        let count = random.below(7);
        let fault = |_| Fault { at_ns: random.below(span), what: What::random(&mut random) };
        let mut faults: Vec<Fault> = (0..count).map(fault).collect();
        faults.sort_by_key(|f| f.at_ns);
        Schedule { seed, job, faults }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Job { world, own, shards, steps, recovery, .. } = &self.job;
        writeln!(f, "seed {}: {world} workers ({own} started here)", self.seed)?;
        writeln!(f, "  {steps} steps of {shards} shards, {recovery:?}")?;
        let job = &self.job;
        writeln!(
            f,
            "  evaluations every {:?} steps, with a save {}; saves every {:?} steps, {:?} ms, with \
             an evaluation {}, waited for {}; stop above {:?}",
            job.eval_every,
            job.eval_after_save,
            job.save_every,
            job.save_ms,
            job.save_after_eval,
            job.save_waits,
            job.stop_above,
        )?;
        for Fault { at_ns, what } in &self.faults {
            writeln!(f, "  at {:9.3} ms: {what:?}", *at_ns as f64 / MS as f64)?;
        }
        Ok(())
    }
}
