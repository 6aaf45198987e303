//! Frequencies of rotary positions.

use wincode::{SchemaRead, SchemaWrite};

/// How fast pair i of K / 2 turns: base^(-2i/K) for each position, slower where it is stretched.
#[derive(Clone, Copy, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct RopeAngles {
    pub base: f64,
    pub stretch: Option<RopeStretch>,
}

/// Slow turns made slower, so that a model reads longer texts than it was first trained on
/// (Grattafiori et al. 2024, "The Llama 3 Herd of Models"; `rope_scaling` of type `llama3`):
/// waves longer than `context / low` positions are `factor` times as long, those shorter than
/// `context / high` stay, and those between are in between.
#[derive(Clone, Copy, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub struct RopeStretch {
    pub factor: f64,
    pub low: f64,
    pub high: f64,
    /// Positions that the model was first trained on.
    pub context: f64,
}

impl From<f64> for RopeAngles {
    fn from(base: f64) -> RopeAngles {
        RopeAngles { base, stretch: None }
    }
}

impl RopeAngles {
    /// The frequency of a pair whose plain one is `plain`, in radians a position. Only sums,
    /// products and comparisons: the same on every machine.
    pub fn frequency(&self, plain: f64) -> f64 {
        self.stretch.map_or(plain, |s| s.frequency(plain))
    }
}

impl RopeStretch {
    fn frequency(&self, plain: f64) -> f64 {
        // Waves in the first context.
        let waves = self.context * plain / std::f64::consts::TAU;
        if waves < self.low {
            plain / self.factor
        } else if waves > self.high {
            plain
        } else {
            let smooth = (waves - self.low) / (self.high - self.low);
            (1.0 - smooth) * plain / self.factor + smooth * plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3.2 1B: heads of 64, base 500000, factor 32, 1, 4, 8192; the values that
    /// `_compute_llama3_parameters` of Transformers gives in float64.
    #[test]
    fn frequencies_of_llama_3_2() {
        let stretch = RopeStretch { factor: 32.0, low: 1.0, high: 4.0, context: 8192.0 };
        let angles = RopeAngles { base: 500_000.0, stretch: Some(stretch) };
        let found = |i: i32| angles.frequency(500_000f64.powf(-f64::from(i) / 32.0));
        for (i, want) in WANTED {
            assert!((found(*i) - want).abs() <= 1e-12 * want, "{i}: {} not {want}", found(*i));
        }
        assert_eq!(RopeAngles::from(10_000.0).frequency(0.3), 0.3);
    }

    const WANTED: &[(i32, f64)] = &[
        (0, 1.0),
        (5, 0.12868737343265052),
        (14, 0.003211445994752591),
        (15, 0.001290547928209264),
        (16, 0.00042955679655936815),
        (17, 9.70828780262767e-05),
        (18, 1.9461638184831125e-05),
        (20, 8.570255489881478e-06),
        (31, 9.41830672543491e-08),
    ];
}
