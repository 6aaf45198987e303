use std::ops::Range;
use wincode::{SchemaRead, SchemaWrite};

/// Element types. `I32` holds token ids and labels; it is never differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum DType {
    F32,
    I32,
}

impl DType {
    pub fn size_bytes(self) -> u64 {
        4
    }

    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::I32 => "i32",
        }
    }
}

/// A length: `per`, or `per * B` where B is the number of samples in the shard at hand.
///
/// A graph is written once for all shard sizes; only this distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub struct Dim {
    pub per: u64,
    pub batch: bool,
}

impl Dim {
    pub fn fixed(per: u64) -> Dim {
        Dim { per, batch: false }
    }

    /// B samples.
    pub fn samples() -> Dim {
        Dim { per: 1, batch: true }
    }

    /// The length in a shard of `samples` samples.
    pub fn at(self, samples: u64) -> u64 {
        if self.batch { self.per * samples } else { self.per }
    }
}

/// Lengths of a tensor's axes, outermost first; row-major. Empty for a scalar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    pub fn scalar() -> Shape {
        Shape(Vec::new())
    }

    pub fn fixed(lengths: &[u64]) -> Shape {
        Shape(lengths.iter().map(|&n| Dim::fixed(n)).collect())
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Concrete lengths in a shard of `samples` samples.
    pub fn at(&self, samples: u64) -> Vec<usize> {
        self.0.iter().map(|d| d.at(samples) as usize).collect()
    }

    /// Number of elements in a shard of `samples` samples.
    pub fn elements(&self, samples: u64) -> u64 {
        self.0.iter().map(|d| d.at(samples)).product()
    }
}

/// Samples of the step's batch that shard `shard` of `shards` holds: ranges of floor or ceil
/// size, the longer ones first, so that every machine cuts a ragged batch in the same way.
pub fn shard_range(batch: u64, shards: u32, shard: u32) -> Range<u64> {
    let (n, i) = (u64::from(shards.max(1)), u64::from(shard));
    let (base, longer) = (batch / n, batch % n);
    let start = i * base + i.min(longer);
    start..start + base + u64::from(i < longer)
}

/// Shards that rank `rank` of `world` workers computes: contiguous, as even as can be.
pub fn rank_range(shards: u32, world: u32, rank: u32) -> Range<u32> {
    let r = shard_range(u64::from(shards), world, rank);
    r.start as u32..r.end as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tile_the_whole() {
        for batch in 0..40 {
            for shards in 1..12 {
                let mut at = 0;
                for i in 0..shards {
                    let r = shard_range(batch, shards, i);
                    assert_eq!(r.start, at);
                    let len = r.end - r.start;
                    let floor = batch / u64::from(shards);
                    assert!(len == floor || len == floor + 1);
                    at = r.end;
                }
                assert_eq!(at, batch);
            }
        }
    }
}
