//! Dropout: elements are kept or dropped by counter-based random numbers.

use crate::simd::{Isa, Kernel, Lanes};
use monarch_graph::Draw;
use monarch_graph::philox::{MUL, WEYL, dropout_threshold};

/// Blocks of four random words that are drawn together.
const BLOCKS: usize = 16;

/// A dropout of known shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dropout {
    threshold: u32,
    scale: f32,
    number: u32,
    samples: usize,
    /// Elements of one sample that lie together.
    run: usize,
}

impl Dropout {
    /// `samples` of the shard, of each of which `run` elements lie together.
    pub(crate) fn new(p: f64, number: u32, samples: usize, run: usize) -> Dropout {
        let scale = (1.0 / (1.0 - p)) as f32;
        Dropout { threshold: dropout_threshold(p), scale, number, samples, run }
    }

    pub(crate) fn run(&self, isa: Isa, draw: Draw, x: &[f32], out: &mut [f32]) {
        if self.run == 0 || self.samples == 0 {
            return;
        }
        isa.call(Job { plan: self, draw, x, out });
    }
}

struct Job<'a> {
    plan: &'a Dropout,
    draw: Draw,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Job { plan, draw, x, out } = self;
        let pieces = x.chunks_exact(plan.run).zip(out.chunks_exact_mut(plan.run));
        for (i, (x, out)) in pieces.enumerate() {
            let (outer, sample) = (i / plan.samples, i % plan.samples);
            piece(plan, draw, sample as u64, outer * plan.run, x, out);
        }
    }
}

/// Elements `first..` of a sample.
#[inline(always)]
fn piece(plan: &Dropout, draw: Draw, sample: u64, first: usize, x: &[f32], out: &mut [f32]) {
    let (mut at, mut skip, mut done) = (first / 4, first % 4, 0);
    while done < x.len() {
        let words = words(draw.dropout(plan.number, sample, at as u32));
        let n = (words.len() - skip).min(x.len() - done);
        let some = x[done..done + n].iter().zip(&mut out[done..done + n]);
        for ((x, out), word) in some.zip(&words[skip..]) {
            *out = if *word < plan.threshold { 0.0 } else { x * plan.scale };
        }
        (at, skip, done) = (at + BLOCKS, 0, done + n);
    }
}

/// The words of sixteen blocks from this counter on: `philox::block` with sixteen counters at once.
#[inline(always)]
fn words((counter, key): ([u32; 4], [u32; 2])) -> [u32; 4 * BLOCKS] {
    let mut lanes = counter.map(|c| [c; BLOCKS]);
    for (i, lane) in lanes[0].iter_mut().enumerate() {
        *lane = lane.wrapping_add(i as u32);
    }
    let mut key = key;
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let mut next = [[0; BLOCKS]; 4];
        for i in 0..BLOCKS {
            let p0 = u64::from(MUL[0]) * u64::from(lanes[0][i]);
            let p1 = u64::from(MUL[1]) * u64::from(lanes[2][i]);
            next[0][i] = (p1 >> 32) as u32 ^ lanes[1][i] ^ key[0];
            next[1][i] = p1 as u32;
            next[2][i] = (p0 >> 32) as u32 ^ lanes[3][i] ^ key[1];
            next[3][i] = p0 as u32;
        }
        lanes = next;
    }
    let mut out = [0; 4 * BLOCKS];
    for (i, out) in out.chunks_exact_mut(4).enumerate() {
        for (out, lane) in out.iter_mut().zip(&lanes) {
            *out = lane[i];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::isas;

    #[test]
    fn sixteen_blocks_at_once_are_sixteen_blocks() {
        let draw = Draw { seed: 77, step: 1 << 33, first: 12 };
        let all = words(draw.dropout(3, 5, 40));
        for (i, words) in all.chunks(4).enumerate() {
            let (counter, key) = draw.dropout(3, 5, 40 + i as u32);
            assert_eq!(words, monarch_graph::philox::block(counter, key));
        }
    }

    fn kept(p: f64, number: u32, draw: Draw, samples: usize, run: usize) -> Vec<bool> {
        let plan = Dropout::new(p, number, samples, run);
        let x = vec![1.0; 3 * samples * run];
        let mut first: Option<Vec<f32>> = None;
        for isa in isas() {
            let mut out = vec![f32::NAN; x.len()];
            plan.run(isa, draw, &x, &mut out);
            assert_eq!(*first.get_or_insert(out.clone()), out, "{}", isa.name());
        }
        let out = first.unwrap_or_default();
        let scale = (1.0 / (1.0 - p)) as f32;
        assert!(out.iter().all(|&y| y == 0.0 || y == scale));
        out.iter().map(|&y| y != 0.0).collect()
    }

    #[test]
    fn the_share_that_is_dropped_is_p_and_draws_are_independent() {
        for (p, step) in [(0.1, 0), (0.5, 9), (0.9, 1 << 40)] {
            let draw = Draw { seed: 1, step, first: 0 };
            let a = kept(p, 0, draw, 7, 4801);
            let n = a.len() as f64;
            let share = |v: &[bool]| v.iter().filter(|&&k| k).count() as f64 / v.len() as f64;
            let deviation = (p * (1.0 - p) / n).sqrt();
            assert!((share(&a) - (1.0 - p)).abs() < 4.0 * deviation, "{p}: {}", share(&a));
            // Another step, another dropout, another seed: both keep as often as by chance.
            let others = [
                kept(p, 0, Draw { step: step + 1, ..draw }, 7, 4801),
                kept(p, 1, draw, 7, 4801),
                kept(p, 0, Draw { seed: 2, ..draw }, 7, 4801),
            ];
            let q = (1.0 - p) * (1.0 - p);
            for other in others {
                let both: Vec<bool> = a.iter().zip(&other).map(|(a, b)| *a && *b).collect();
                assert!((share(&both) - q).abs() < 4.0 * (q * (1.0 - q) / n).sqrt(), "{p}");
            }
            // Neighbours are independent as well.
            let pairs: Vec<bool> = a.windows(2).map(|w| w[0] && w[1]).collect();
            assert!((share(&pairs) - q).abs() < 6.0 * (q * (1.0 - q) / n).sqrt(), "{p}");
        }
    }

    #[test]
    fn how_a_batch_is_cut_changes_nothing() {
        let draw = Draw { seed: 5, step: 3, first: 0 };
        for run in [1, 3, 4, 63, 65, 130] {
            let all = kept(0.4, 2, draw, 5, run);
            for (first, samples) in [(0, 2), (2, 3), (4, 1)] {
                let part = kept(0.4, 2, Draw { first, ..draw }, samples, run);
                for outer in 0..3 {
                    let at = (outer * 5 + first as usize) * run;
                    let want = &all[at..at + samples * run];
                    assert_eq!(&part[outer * samples * run..][..samples * run], want, "{run}");
                }
            }
        }
    }
}
