//! Cutting a data set into named parts.

use monarch_graph::Split;
use std::fmt;

/// A named share of a data set, as the program says it: `train = 80%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    pub name: String,
    /// In 0..=1.
    pub fraction: f64,
}

/// Why a data set cannot be cut as asked.
#[derive(Clone, Debug, PartialEq)]
pub enum CutError {
    /// A share is not a number above 0 and at most 1.
    Share {
        name: String,
        fraction: f64,
    },
    /// Shares must add up to the whole set: nothing is lost, nothing is used twice.
    Sum {
        sum: f64,
    },
    Duplicate {
        name: String,
    },
    NoTrain,
    /// The data set is too small for this share to get a sample.
    Empty {
        name: String,
        samples: u64,
    },
}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutError::Share { name, fraction } => write!(
                f,
                "split `{name}` takes {}% of the data; give it more than 0% and at most 100%",
                fraction * 100.0
            ),
            CutError::Sum { sum } => write!(
                f,
                "the splits take {:.4}% of the data together; they must take 100%",
                sum * 100.0
            ),
            CutError::Duplicate { name } => write!(f, "there are two splits named `{name}`"),
            CutError::NoTrain => write!(f, "no split is named `train`"),
            CutError::Empty { name, samples } => write!(
                f,
                "split `{name}` gets none of the {samples} samples; give it a larger share"
            ),
        }
    }
}

impl std::error::Error for CutError {}

/// Cuts `samples` samples into ranges in the order of `cuts`. Without cuts, all is `train`.
///
/// The boundary after the first k shares lies at `floor(samples * sum of their fractions)`; the
/// last one ends at `samples`, so nothing is lost: 80% + 20% of 1797 are 1437 + 360.
pub fn cut(samples: u64, cuts: &[Cut]) -> Result<Vec<Split>, CutError> {
    if cuts.is_empty() {
        let whole = Cut { name: "train".into(), fraction: 1.0 };
        return cut(samples, &[whole]);
    }
    check(cuts)?;
    let mut splits: Vec<Split> = Vec::with_capacity(cuts.len());
    let mut sum = 0.0;
    for (i, cut) in cuts.iter().enumerate() {
        sum += cut.fraction;
        let start = splits.last().map_or(0, |s| s.end);
        let last = i + 1 == cuts.len();
        // A share such as 0.29 is not exact in binary: 0.29 * 100 must still be 29.
        let end = if last { samples } else { (sum * samples as f64 + 1e-6).floor() as u64 };
        let end = end.min(samples);
        if end <= start {
            return Err(CutError::Empty { name: cut.name.clone(), samples });
        }
        splits.push(Split { name: cut.name.clone(), start, end });
    }
    Ok(splits)
}

fn check(cuts: &[Cut]) -> Result<(), CutError> {
    let mut sum = 0.0;
    for (i, cut) in cuts.iter().enumerate() {
        if !(cut.fraction > 0.0 && cut.fraction <= 1.0) {
            return Err(CutError::Share { name: cut.name.clone(), fraction: cut.fraction });
        }
        if cuts[..i].iter().any(|c| c.name == cut.name) {
            return Err(CutError::Duplicate { name: cut.name.clone() });
        }
        sum += cut.fraction;
    }
    if (sum - 1.0).abs() > 1e-9 {
        return Err(CutError::Sum { sum });
    }
    if cuts.iter().all(|c| c.name != "train") {
        return Err(CutError::NoTrain);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cuts(list: &[(&str, f64)]) -> Vec<Cut> {
        list.iter().map(|&(name, fraction)| Cut { name: name.into(), fraction }).collect()
    }

    #[test]
    fn digits_are_cut_as_documented() {
        let splits = cut(1797, &cuts(&[("train", 0.8), ("eval", 0.2)])).unwrap();
        assert_eq!((splits[0].start, splits[0].end), (0, 1437));
        assert_eq!((splits[1].start, splits[1].end), (1437, 1797));
        let splits = cut(100, &cuts(&[("train", 0.29), ("eval", 0.71)])).unwrap();
        assert_eq!(splits[0].end, 29);
        assert_eq!(cut(5, &[]).unwrap(), [Split { name: "train".into(), start: 0, end: 5 }]);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |list: &[(&str, f64)]| cut(10, &cuts(list)).unwrap_err();
        assert!(matches!(error(&[("train", 0.8), ("eval", 0.1)]), CutError::Sum { .. }));
        assert!(matches!(error(&[("train", 0.0), ("eval", 1.0)]), CutError::Share { .. }));
        assert!(matches!(error(&[("train", f64::NAN)]), CutError::Share { .. }));
        assert!(matches!(error(&[("a", 0.5), ("a", 0.5)]), CutError::Duplicate { .. }));
        assert!(matches!(error(&[("a", 0.5), ("b", 0.5)]), CutError::NoTrain));
        assert!(matches!(error(&[("train", 0.05), ("e", 0.95)]), CutError::Empty { .. }));
        assert!(matches!(cut(0, &[]), Err(CutError::Empty { .. })));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(samples in 1u64..1 << 40, share in 0.001f64..0.999) {
            let list = cuts(&[("train", share), ("eval", 1.0 - share)]);
            if let Ok(splits) = cut(samples, &list) {
                prop_assert_eq!(splits[0].start, 0);
                prop_assert_eq!(splits[0].end, splits[1].start);
                prop_assert_eq!(splits[1].end, samples);
            }
        }
    }
}
