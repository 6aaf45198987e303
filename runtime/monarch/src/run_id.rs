//! Names of runs and their directories. The clock names a run and decides nothing else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A directory that was made for one run. One that is still empty when this is dropped goes again.
#[derive(Debug, Default)]
pub struct Claim {
    /// The deepest first.
    made: Vec<PathBuf>,
}

impl Claim {
    /// Makes `dir`, which must not be there yet: of several processes that try, one succeeds.
    fn make(dir: &Path) -> io::Result<Claim> {
        let dir = std::path::absolute(dir)?;
        let mut claim = Claim::default();
        let parents: Vec<&Path> = dir.ancestors().skip(1).take_while(|p| !p.exists()).collect();
        for parent in parents.into_iter().rev() {
            match fs::create_dir(parent) {
                Ok(()) => claim.made.insert(0, parent.to_path_buf()),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        fs::create_dir(&dir)?;
        claim.made.insert(0, dir);
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for dir in &self.made {
            // Not empty: the run has begun, and it stays.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// `images-20260131-142501`, with a number behind it when that is taken; its directory is made.
/// Where all runs share one directory, or where none can be made, whoever uses it will say so.
pub fn fresh(job: &str, dir_of: impl Fn(&str) -> PathBuf) -> (String, Claim) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let base = format!("{job}-{}", stamp(seconds));
    let mut id = base.clone();
    let mut number = 1;
    loop {
        match Claim::make(&dir_of(&id)) {
            Ok(claim) => return (id, claim),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return (id, Claim::default()),
        }
        number += 1;
        let next = format!("{base}-{number}");
        if dir_of(&next) == dir_of(&id) {
            return (base, Claim::default());
        }
        id = next;
    }
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
    fn a_directory_for_each_and_none_for_those_that_never_began() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("deep/runs");
        // One name for both, whatever the clock says meanwhile.
        let dir = |id: &str| runs.join(if id.ends_with("-2") { "second" } else { "first" });
        let (first, claim) = fresh("job", dir);
        let (second, other) = fresh("job", dir);
        assert!(!first.ends_with("-2") && second.ends_with("-2"), "{first} {second}");
        std::fs::write(runs.join("second/job.json"), "").unwrap();
        drop((claim, other));
        assert!(!runs.join("first").exists() && runs.join("second").exists());
        drop(fresh("job", |_| folder.path().join("other/run")));
        assert!(!folder.path().join("other").exists());
    }

    #[test]
    fn one_directory_for_all_runs_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let (id, claim) = fresh("job", |_| folder.path().to_path_buf());
        assert!(id.starts_with("job-") && claim.made.is_empty(), "{id}");
        drop(claim);
        assert!(folder.path().exists());
    }

    #[test]
    fn names_are_directories() {
        assert!(is_valid("lr-3e-4.b"));
        assert!(!is_valid("../x") && !is_valid("") && !is_valid(".hidden"));
    }
}
