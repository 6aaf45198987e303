//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
//! random numbers that are a function of a key and a counter, so no generator has a state that
//! a checkpoint could miss.

/// Factors of the rounds.
pub const MUL: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What the key grows by from round to round.
pub const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// What a stream of random numbers is for; streams of different purposes never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Initial value of a weight; `a` is a hash of its name, `b` the element's index / 4.
    Init = 1,
    /// Permutation of an epoch; `a` the epoch, `b` the round.
    Order = 2,
    /// Dropout; `a` operation and step, `b` sample and element: see [`Draw::dropout`].
    Dropout = 3,
    /// `random(..)` in tests of the language.
    Test = 4,
}

/// Four random words for (seed, purpose, a, b).
///
/// The key is the seed folded with the purpose; the counter is (a, b). 64 bits each.
pub fn random4(seed: u64, purpose: Purpose, a: u64, b: u64) -> [u32; 4] {
    block(counter(a, b), key(seed, purpose))
}

fn key(seed: u64, purpose: Purpose) -> [u32; 2] {
    [seed as u32, ((seed >> 32) as u32) ^ ((purpose as u32) << 24)]
}

fn counter(a: u64, b: u64) -> [u32; 4] {
    [b as u32, (b >> 32) as u32, a as u32, (a >> 32) as u32]
}

/// What the random numbers of a shard's work depend on, besides operation and element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Of the job.
    pub seed: u64,
    /// Optimizer step, counted from 0.
    pub step: u64,
    /// Position in the step's batch of the shard's first sample.
    pub first: u64,
}

impl Draw {
    /// Key and counter of dropout `number` for elements `4 * block..` of the sample at `position`
    /// of the shard: they do not depend on how the batch is cut. (16 bits tell dropouts apart, 48
    /// steps; a sample's elements and a batch's samples have 32 bits each.)
    pub fn dropout(self, number: u32, position: u64, block: u32) -> ([u32; 4], [u32; 2]) {
        let stream = u64::from(number) << 48 | self.step & 0xffff_ffff_ffff;
        let sample = self.first.wrapping_add(position);
        let place = sample << 32 | u64::from(block);
        (counter(stream, place), key(self.seed, Purpose::Dropout))
    }
}

/// Words below this drop their element.
pub fn dropout_threshold(p: f64) -> u32 {
    (p * 4_294_967_296.0) as u32
}

/// The bijection itself: ten rounds.
pub fn block(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let p0 = u64::from(MUL[0]) * u64::from(counter[0]);
        let p1 = u64::from(MUL[1]) * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
    }
    counter
}

/// A number in [0, 1) with 24 random bits.
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// FNV-1a of a name: the stream number of a weight.
pub fn name_hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the reference implementation (Random123 `kat_vectors`).
    #[test]
    fn known_answers() {
        let zero = block([0; 4], [0; 2]);
        assert_eq!(zero, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = block([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
