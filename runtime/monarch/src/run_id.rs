//! Names of runs. The clock names a run and decides nothing else.

use std::time::{SystemTime, UNIX_EPOCH};

/// `images-20260131-142501`, with a number behind it when that is taken.
pub fn fresh(job: &str, taken: impl Fn(&str) -> bool) -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let base = format!("{job}-{}", stamp(seconds));
    if !taken(&base) {
        return base;
    }
    let numbered = |n: u32| format!("{base}-{n}");
    (2..).map(numbered).find(|id| !taken(id)).unwrap_or(base)
}

/// `20260131-142501` (UTC) for seconds since 1970; days to a date by Howard Hinnant's
/// `civil_from_days`.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Whether a person may name a run so: it becomes a directory.
pub fn is_valid(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !id.is_empty() && id.len() <= 100 && id.chars().all(allowed) && !id.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_769_869_501), "20260131-142501");
    }

    #[test]
    fn taken_names_get_a_number() {
        let first = std::cell::Cell::new(true);
        let id = fresh("job", |_| first.replace(false));
        assert!(id.ends_with("-2"), "{id}");
    }

    #[test]
    fn names_are_directories() {
        assert!(is_valid("lr-3e-4.b"));
        assert!(!is_valid("../x") && !is_valid("") && !is_valid(".hidden"));
    }
}
