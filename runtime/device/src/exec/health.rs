//! Looking at each result as it is made, for numbers that are not finite.

use super::{ExecError, Lane};
use crate::buffers::{Columns, Weights};
use crate::memory::Area;
use monarch_graph::DType;
use std::fmt;

/// Where a result is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// First element that is not a number.
    pub nan: Option<usize>,
    /// First element that is infinite.
    pub infinite: Option<usize>,
}

impl Health {
    fn of(values: &[f32]) -> Health {
        let first = |is: fn(&f32) -> bool| values.iter().position(is);
        if values.iter().all(|v| v.is_finite()) {
            return Health::default();
        }
        Health { nan: first(|v| v.is_nan()), infinite: first(|v| v.is_infinite()) }
    }

    pub fn is_finite(&self) -> bool {
        self.first().is_none()
    }

    /// The element to look at.
    pub fn first(&self) -> Option<usize> {
        self.nan.or(self.infinite)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.nan, self.infinite) {
            (Some(_), _) => "NaN",
            (None, Some(_)) => "inf",
            (None, None) => "finite numbers",
        })
    }
}

impl Lane {
    /// Runs the whole program for a shard, node by node: which results are finite, of each node
    /// before its memory is given to a later one.
    ///
    /// # Errors
    /// As [`Lane::run`].
    pub fn inspect(
        &mut self,
        samples: u64,
        weights: &Weights,
        columns: &Columns,
        slab: &mut [f32],
    ) -> Result<Vec<Health>, ExecError> {
        let nodes = self.program.graph.nodes.len();
        let mut out = Vec::with_capacity(nodes);
        for node in 0..nodes {
            self.run(node..node + 1, samples, weights, columns, slab)?;
            out.push(self.health(node, samples, weights, columns, slab));
        }
        Ok(out)
    }

    fn health(
        &self,
        node: usize,
        samples: u64,
        weights: &Weights,
        columns: &Columns,
        slab: &[f32],
    ) -> Health {
        let floats = self.program.graph.nodes.get(node).is_some_and(|n| n.dtype == DType::F32);
        let prepared = self.prepared.iter().find(|p| p.samples == samples);
        let step = prepared.and_then(|p| p.steps.get(node));
        let Some(step) = step.filter(|s| floats && !s.is_none()) else { return Health::default() };
        let all = match step.out.area {
            Area::Arena => self.arena.f32(),
            Area::Slab => slab,
            Area::Weight(w) if w < weights.len() => weights.get(w),
            Area::Column(c) if c < columns.len() => columns.words(c),
            _ => &[],
        };
        all.get(step.out.start..step.out.end()).map(Health::of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Health;

    #[test]
    fn the_first_of_each_kind_is_told() {
        let health = Health::of(&[1.0, f32::NEG_INFINITY, f32::NAN, f32::NAN]);
        assert_eq!(health, Health { nan: Some(2), infinite: Some(1) });
        assert_eq!(health.to_string(), "NaN");
        assert_eq!(Health::of(&[0.0, f32::INFINITY]).to_string(), "inf");
        assert!(Health::of(&[f32::MAX, f32::MIN_POSITIVE]).is_finite());
    }
}
