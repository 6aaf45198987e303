//! Several parts taken evenly: which part, and which of its samples, is sample i of a mix.

use crate::MIX_WHOLE;

/// Parts with their shares. The order repeats after a period in which every part has exactly its
/// share; within it, the part that is furthest behind its share comes next (the first of equals).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// For each place of a period its part, and how many of that part came before.
    places: Vec<(u32, u32)>,
    /// Samples of each part in a period.
    counts: Vec<u64>,
}

impl Mix {
    /// `shares` add up to [`MIX_WHOLE`].
    pub fn new(shares: &[u32]) -> Mix {
        let divisor = shares.iter().fold(MIX_WHOLE, |a, b| gcd(a, *b)).max(1);
        let period = MIX_WHOLE / divisor;
        let wanted: Vec<u64> = shares.iter().map(|s| u64::from(s / divisor)).collect();
        let mut taken = vec![0u64; shares.len()];
        let mut places = Vec::with_capacity(period as usize);
        for at in 1..=u64::from(period) {
            // Behind by (wanted * at - taken * period) / period samples.
            let behind =
                |i: usize| (wanted[i] * at) as i128 - i128::from(taken[i]) * i128::from(period);
            let next = (0..wanted.len()).max_by_key(|i| (behind(*i), std::cmp::Reverse(*i)));
            let Some(next) = next else { break };
            places.push((next as u32, taken[next] as u32));
            taken[next] += 1;
        }
        Mix { places, counts: taken }
    }

    /// Part and sample of the part at place `index`.
    pub fn at(&self, index: u64) -> (usize, u64) {
        let period = (self.places.len() as u64).max(1);
        let (round, place) = (index / period, index % period);
        let (part, before) = self.places.get(place as usize).copied().unwrap_or_default();
        let each = self.counts.get(part as usize).copied().unwrap_or_default();
        (part as usize, round * each + u64::from(before))
    }

    /// Samples of a part among the first `samples`.
    pub fn count(&self, part: usize, samples: u64) -> u64 {
        let period = (self.places.len() as u64).max(1);
        let each = self.counts.get(part).copied().unwrap_or_default();
        let rest = self.places.iter().take((samples % period) as usize);
        samples / period * each + rest.filter(|p| p.0 as usize == part).count() as u64
    }

    /// The longest mix of parts of these many samples in which none occurs twice.
    pub fn samples(&self, have: &[u64]) -> u64 {
        let rounds = self.counts.iter().zip(have).filter(|(c, _)| **c > 0).map(|(c, n)| n / c);
        let rounds = rounds.min().unwrap_or(0);
        let whole = rounds * self.places.len() as u64;
        let fits = |place: &(u32, u32)| {
            let part = place.0 as usize;
            let each = self.counts.get(part).copied().unwrap_or_default();
            let n = have.get(part).copied().unwrap_or_default();
            rounds * each + u64::from(place.1) < n
        };
        whole + self.places.iter().take_while(|p| fits(p)).count() as u64
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(percent: &[u32]) -> Vec<u32> {
        percent.iter().map(|p| p * (MIX_WHOLE / 100)).collect()
    }

    #[test]
    fn parts_are_even_and_nothing_repeats() {
        for percent in [vec![85, 15], vec![100], vec![1, 2, 97], vec![33, 33, 34]] {
            let mix = Mix::new(&shares(&percent));
            let mut next = vec![0u64; percent.len()];
            for i in 0..1000u64 {
                let (part, sample) = mix.at(i);
                assert_eq!(sample, next[part], "{percent:?} at {i}");
                next[part] += 1;
                for (p, n) in next.iter().enumerate() {
                    assert_eq!(mix.count(p, i + 1), *n);
                    let share = (i + 1) as f64 * f64::from(percent[p]) / 100.0;
                    assert!((*n as f64 - share).abs() < percent.len() as f64, "{percent:?}");
                }
            }
        }
    }

    #[test]
    fn a_mix_ends_where_a_part_runs_out() {
        let mix = Mix::new(&shares(&[85, 15]));
        for have in [[85, 15], [1000, 7], [3, 900], [0, 5], [86, 15]] {
            let n = mix.samples(&have);
            assert!((0..2).all(|p| mix.count(p, n) <= have[p]), "{have:?}");
            let (part, sample) = mix.at(n);
            assert!(sample >= have[part], "{have:?}: one more would fit");
        }
    }
}
