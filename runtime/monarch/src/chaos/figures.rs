//! What faults have cost.

use super::schedule::Kind;

/// One fault and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// From 0.
    pub number: u64,
    pub kind: Kind,
    /// From 0.
    pub run: u64,
    /// The last step done before it.
    pub step: Option<u64>,
    /// Seconds by which the next completed step came later than it would have; None when the run
    /// ended first.
    pub lost: Option<f64>,
    /// The same for the first step with all workers back in their places.
    pub whole: Option<f64>,
}

/// All of them, with what else is counted.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub faults: Vec<Measured>,
    pub runs: u64,
    /// Steps that were completed, and those among them that had been completed before.
    pub steps: u64,
    pub repeated: u64,
    /// Workers that the runs told of as lost.
    pub replaced: u64,
    /// Those among them beyond the number that was struck.
    pub unexplained: u64,
    /// Controllers that were started again.
    pub restarts: u64,
}

/// How values lie: in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub count: usize,
    pub p50: f64,
    pub p99: f64,
    pub most: f64,
}

impl Spread {
    /// None for no values.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let most = *values.last()?;
        // The smallest value that this share of all does not exceed.
        let rank = |share: f64| (share * values.len() as f64).ceil() as usize;
        let at = |share: f64| values.get(rank(share).saturating_sub(1)).copied().unwrap_or(most);
        Some(Spread { count: values.len(), p50: at(0.5), p99: at(0.99), most })
    }
}

impl Figures {
    /// Faults of a kind, or all: their number, and the two spreads of [`Measured`].
    pub fn of(&self, kind: Option<Kind>) -> (usize, Option<Spread>, Option<Spread>) {
        let these = || self.faults.iter().filter(|f| kind.is_none_or(|k| f.kind == k));
        let lost = these().filter_map(|f| f.lost).collect();
        let whole = these().filter_map(|f| f.whole).collect();
        (these().count(), Spread::of(lost), Spread::of(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect()).unwrap();
        assert_eq!(spread, Spread { count: 200, p50: 100.0, p99: 198.0, most: 200.0 });
        let one = Spread::of(vec![3.0]).unwrap();
        assert_eq!((one.p50, one.p99, one.most), (3.0, 3.0, 3.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_fault_that_the_end_of_the_run_cut_short_is_counted_and_has_no_time() {
        let fault = |number, kind, lost| {
            let whole = lost;
            Measured { number, kind, run: 0, step: Some(3), lost, whole }
        };
        let figures = Figures {
            faults: vec![
                fault(0, Kind::Kill, Some(0.5)),
                fault(1, Kind::Slow, Some(0.1)),
                fault(2, Kind::Kill, None),
            ],
            ..Figures::default()
        };
        let (count, lost, _) = figures.of(Some(Kind::Kill));
        assert_eq!((count, lost.map(|s| (s.count, s.most))), (2, Some((1, 0.5))));
        assert_eq!(figures.of(None).0, 3);
        assert_eq!(figures.of(Some(Kind::Freeze)), (0, None, None));
    }
}
