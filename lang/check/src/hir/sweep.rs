//! `sweep` blocks: a product of params, each combination an ordinary run.

use super::{Quantity, Value};
use monarch_graph::Span;

/// `sweep name on job { .. }`
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    pub name: String,
    /// Of the block's header.
    pub span: Span,
    /// In the order written; the last one changes fastest.
    pub params: Vec<Swept>,
    pub pick: Pick,
    pub limit: Limit,
}

/// `lr = [3e-4, 1e-3]`
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    pub name: String,
    /// At least one.
    pub values: Vec<SweptValue>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SweptValue {
    pub value: Value,
    /// As `--name` takes it on the command line.
    pub text: String,
    pub span: Span,
}

/// `pick = min(eval.loss)`: by what the trials are ranked, with its value at the end of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    pub largest: bool,
    /// `loss`, `eval.loss`, `eval.accuracy`
    pub metric: String,
    /// None: the default, since nothing is written.
    pub span: Option<Span>,
}

/// `limit = { trials = 6, time = 2 h, each = 2000 steps }`
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limit {
    /// With more combinations than this, so many are drawn.
    pub trials: Option<u64>,
    /// Seconds after which no further trial begins.
    pub seconds: Option<f64>,
    /// Length of a trial at most: steps, epochs, samples or tokens.
    pub each: Option<Quantity>,
}

impl Sweep {
    /// Number of combinations; None beyond 64 bits.
    pub fn combinations(&self) -> Option<u64> {
        self.params.iter().try_fold(1u64, |n, p| n.checked_mul(p.values.len() as u64))
    }

    /// A combination by its number: for each param the index of its value.
    pub fn combination(&self, mut number: u64) -> Vec<usize> {
        let mut out = Vec::with_capacity(self.params.len());
        for param in self.params.iter().rev() {
            let n = (param.values.len() as u64).max(1);
            out.push((number % n) as usize);
            number /= n;
        }
        out.reverse();
        out
    }
}
