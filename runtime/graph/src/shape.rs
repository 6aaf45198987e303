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

/// How the elements of a weight are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, SchemaWrite, SchemaRead)]
pub enum Float {
    #[default]
    F32,
    /// The upper half of an f32.
    Bf16,
    /// IEEE 754 binary16.
    F16,
}

impl Float {
    pub fn bytes(self) -> u64 {
        match self {
            Float::F32 => 4,
            Float::Bf16 | Float::F16 => 2,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Float::F32 => "f32",
            Float::Bf16 => "bf16",
            Float::F16 => "f16",
        }
    }

    /// The nearest number of this type, ties to even; beyond its range infinity.
    pub fn round(self, x: f32) -> f32 {
        match self {
            Float::F32 => x,
            _ if !x.is_finite() => x,
            Float::Bf16 => drop_bits(x, 16),
            // Below 2^-14 binary16 has fixed steps of 2^-24, both exact in f32.
            Float::F16 if x.abs() < 6.103_515_6e-5 => {
                (x * 16_777_216.0).round_ties_even() / 16_777_216.0
            }
            Float::F16 => match drop_bits(x, 13) {
                y if y.abs() > 65_504.0 => f32::INFINITY.copysign(x),
                y => y,
            },
        }
    }
}

/// Rounds the last `n` bits of the mantissa away, ties to even; a carry goes into the exponent.
fn drop_bits(x: f32, n: u32) -> f32 {
    let bits = x.to_bits();
    let half = (1u32 << (n - 1)) - 1 + ((bits >> n) & 1);
    f32::from_bits(bits.wrapping_add(half) >> n << n)
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

/// For each shard the rank that computes it, when every rank has its [`rank_range`].
pub fn even_deal(shards: u32, world: u32) -> Vec<u32> {
    (0..world).flat_map(|rank| rank_range(shards, world, rank).map(move |_| rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_the_nearest_even() {
        let bf16 = |x| Float::Bf16.round(x);
        assert_eq!(bf16(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(bf16(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(bf16(-0.1).to_bits(), 0xbdcd_0000);
        assert_eq!(bf16(f32::MAX), f32::INFINITY);
        let f16 = |x| Float::F16.round(x);
        assert_eq!(f16(0.1), 0.099_975_586);
        assert_eq!((f16(65_519.0), f16(65_520.0)), (65_504.0, f32::INFINITY));
        assert_eq!(f16(-70_000.0), f32::NEG_INFINITY);
        assert_eq!((f16(3e-8), f16(2e-8)), (5.960_464_5e-8, 0.0));
        assert!(bf16(f32::NAN).is_nan() && Float::F32.round(0.1) == 0.1);
        for i in 0..2048u32 {
            // Every number of the type stays what it is.
            let x = f32::from_bits(i << 21 | 0x8000_0000);
            assert_eq!(bf16(x).to_bits(), x.to_bits());
        }
    }

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
