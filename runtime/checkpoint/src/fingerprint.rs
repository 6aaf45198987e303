//! A short name for the exact value of all weights.

use crate::file::each_block;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// First 64 bits of a SHA-256 over names and values; shown as `7f3a-91c2-04be-d115`. Enough to
/// compare runs at a glance, not a proof against a forger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        let part = |shift: u32| (v >> shift) as u16;
        write!(f, "{:04x}-{:04x}-{:04x}-{:04x}", part(48), part(32), part(16), part(0))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let wrong = || format!("`{text}` is no fingerprint; one looks like 7f3a-91c2-04be-d115");
        let parts: Vec<&str> = text.split('-').collect();
        let hex = |p: &&str| p.len() == 4 && p.bytes().all(|b| b.is_ascii_hexdigit());
        if parts.len() != 4 || !parts.iter().all(hex) {
            return Err(wrong());
        }
        u64::from_str_radix(&parts.concat(), 16).map(Fingerprint).map_err(|_| wrong())
    }
}

/// Fingerprint of weights that are met one after another.
///
/// Hashed per weight: length of the name (u64), the name, number of elements (u64), the elements;
/// all little-endian. The order of weights counts: the plan's.
#[derive(Clone, Debug, Default)]
pub struct Fingerprinter {
    hasher: Sha256,
}

impl Fingerprinter {
    pub fn new() -> Fingerprinter {
        Fingerprinter::default()
    }

    pub fn add(&mut self, name: &str, values: &[f32]) {
        self.hasher.update((name.len() as u64).to_le_bytes());
        self.hasher.update(name.as_bytes());
        self.hasher.update((values.len() as u64).to_le_bytes());
        let done: Result<(), std::convert::Infallible> = each_block(values, |bytes| {
            self.hasher.update(bytes);
            Ok(())
        });
        let Ok(()) = done;
    }

    pub fn finish(self) -> Fingerprint {
        let digest = self.hasher.finalize();
        let first = digest.iter().take(8).fold(0, |v, &b| v << 8 | u64::from(b));
        Fingerprint(first)
    }
}

/// Fingerprint of weights in the plan's order.
pub fn fingerprint<'a>(weights: impl IntoIterator<Item = (&'a str, &'a [f32])>) -> Fingerprint {
    let mut hasher = Fingerprinter::new();
    for (name, values) in weights {
        hasher.add(name, values);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_and_read_back() {
        let print = Fingerprint(0x7f3a_91c2_04be_0005);
        assert_eq!(print.to_string(), "7f3a-91c2-04be-0005");
        assert_eq!("7f3a-91c2-04be-0005".parse(), Ok(print));
        for bad in ["", "7f3a", "7f3a-91c2-04be-+005", "7f3a91c2-04be-0005-1", "0-0-0-0"] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }

    /// Pinned, and computed apart, in Python: SHA-256 of
    /// `struct.pack("<Q", 1) + b"w" + struct.pack("<Q2f", 2, 1, -2)`.
    #[test]
    fn golden() {
        assert_eq!(fingerprint([("w", &[1.0, -2.0][..])]).to_string(), "140a-c6d6-2c1f-b8fd");
    }

    #[test]
    fn every_bit_counts() {
        let base = fingerprint([("a", &[0.0, 1.0][..]), ("b", &[2.0][..])]);
        assert_ne!(base, fingerprint([("a", &[-0.0, 1.0][..]), ("b", &[2.0][..])]));
        assert_ne!(base, fingerprint([("b", &[2.0][..]), ("a", &[0.0, 1.0][..])]));
        assert_ne!(base, fingerprint([("a", &[0.0][..]), ("b", &[1.0, 2.0][..])]));
        let long = vec![1.5; 100_000];
        let mut changed = long.clone();
        changed[77_777] = f32::from_bits(1.5f32.to_bits() + 1);
        assert_ne!(fingerprint([("w", &long[..])]), fingerprint([("w", &changed[..])]));
    }
}
