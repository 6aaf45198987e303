//! What all simulated clusters share: random numbers from a seed, and a small job.

use monarch_sched::{Config, EvalNames, Recovery, SlowAnswer, Timeouts, Transport};

pub const MS: u64 = 1_000_000;

/// SplitMix64 (Steele, Lea & Flood 2014).
pub struct Seeded(pub u64);

impl Seeded {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// A job on workers that are not replaced: a loss ends it.
pub fn config(world: u32, steps: u64) -> Config {
    Config {
        world,
        shards: 8,
        threads: None,
        transport: Transport::Auto,
        steps,
        first_step: 0,
        evals: vec![EvalNames { name: "eval".into(), metrics: vec!["accuracy".into()] }],
        eval_every: None,
        eval_after_save: false,
        save_every: None,
        saves: Default::default(),
        save_at_end: true,
        rules: Vec::new(),
        answers: Vec::new(),
        tried: Default::default(),
        points: Default::default(),
        recovery: Recovery { least: 0, ..Recovery::default() },
        slow: SlowAnswer::usual(),
        timeouts: Timeouts {
            join_ns: 2_000 * MS,
            ready_ns: 2_000 * MS,
            stall_ns: 5_000 * MS,
            grace_ns: 1_000 * MS,
            settle_ns: 200 * MS,
            halt_ns: 1_000 * MS,
            return_ns: 1_000 * MS,
        },
    }
}
