//! What tests share: noise with a seed, bits to compare, the instruction sets at hand.

use crate::Isa;
use monarch_graph::philox::{Purpose, random4};

/// Random numbers for tests.
pub(crate) struct Noise {
    seed: u64,
    at: u64,
}

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise { seed, at: 0 }
    }

    fn word(&mut self) -> u32 {
        self.at += 1;
        random4(self.seed, Purpose::Test, 0, self.at)[0]
    }

    /// 0..limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.word() as usize % limit.max(1)
    }

    /// Uniform in [-2, 2).
    pub(crate) fn float(&mut self) -> f32 {
        (f64::from(self.word()) / f64::from(1u32 << 30) - 2.0) as f32
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    /// Any bit pattern: NaN, infinities, denormals and all.
    pub(crate) fn wild(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| match self.below(8) {
                0 => [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-42, -3e-40, 1.0]
                    [self.below(8)],
                1 => f32::from_bits(self.word()),
                _ => self.float() * 30.0,
            })
            .collect()
    }
}

/// Bits, with one pattern for every NaN: which bits a NaN carries is nobody's promise.
pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

/// Every instruction set of this machine.
pub(crate) fn isas() -> Vec<Isa> {
    Isa::available()
}
