//! Random numbers from a seed (splitmix64), and the hash that stands for arithmetic.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// In `0..n`; 0 if `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high half of a product: no division, and no bias that matters here.
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// In `from..=to`.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn scramble(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Of both, in this order.
pub fn mix(a: u64, b: u64) -> u64 {
    scramble(a.rotate_left(23) ^ scramble(b.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}
