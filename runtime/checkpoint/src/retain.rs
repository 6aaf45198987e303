//! Which checkpoints stay.

use crate::read::{self, LoadError, Skipped};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

/// What makes a checkpoint the best: this metric of its manifest (`loss`, `eval.loss`, ..).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    pub metric: String,
    /// The smallest is the best, otherwise the largest.
    pub smallest: bool,
}

impl Best {
    fn value(&self, manifest: &crate::Manifest) -> Option<f64> {
        match self.metric.as_str() {
            "loss" => manifest.loss,
            name => manifest.metrics.get(name).copied().flatten(),
        }
    }

    /// Greater is better. None for weights that no evaluation has seen, though one of earlier
    /// weights is on record.
    fn rank(&self, manifest: &crate::Manifest) -> Option<f64> {
        let own = manifest.evaluated.is_none_or(|step| step == manifest.step);
        self.value(manifest)
            .filter(|_| own || self.metric == "loss")
            .map(|v| if self.smallest { -v } else { v })
    }
}

/// The best value among the whole checkpoints in `root` of at most `step` steps; None without one.
pub fn best_so_far(root: &Path, best: &Best, step: u64) -> Option<f64> {
    let found = read::list(root).ok()?;
    let earlier = found.into_iter().filter(|(s, _)| *s <= step);
    let manifests = earlier.filter_map(|(_, path)| read::glance(&path).ok());
    let ranked = manifests.filter_map(|m| best.rank(&m));
    let top = ranked.max_by(f64::total_cmp)?;
    Some(if best.smallest { -top } else { top })
}

/// Steps of the whole checkpoints in `root` up to `step`, and whether they are finite. Files are
/// not read.
pub fn points(root: &Path, step: u64) -> BTreeMap<u64, bool> {
    let found = read::list(root).unwrap_or_default();
    let earlier = found.into_iter().filter(|(s, _)| *s <= step);
    earlier.filter_map(|(s, path)| Some((s, read::glance(&path).ok()?.finite))).collect()
}

/// The newest whole checkpoint in `root` whose numbers are all finite, and its step.
pub fn last_finite(root: &Path) -> Option<(u64, PathBuf)> {
    let found = read::list(root).ok()?;
    found.into_iter().rev().find(|(_, path)| read::glance(path).is_ok_and(|m| m.finite))
}

/// Which checkpoints stay beside the newest one and the last finite one.
#[derive(Clone, Copy, Default)]
pub struct Keep<'a> {
    /// So many of the newest.
    pub newest: u64,
    /// The best; the first of equals.
    pub best: Option<&'a Best>,
    /// Those after a multiple of so many steps.
    pub also: Option<u64>,
    /// The last finite one of these steps: what a run may have to go back to.
    pub point: Option<&'a dyn Fn(u64) -> bool>,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Pruned {
    /// By ascending step.
    pub kept: Vec<PathBuf>,
    pub removed: Vec<PathBuf>,
    /// Not whole: neither counted nor touched.
    pub damaged: Vec<Skipped>,
    /// Could not be deleted, and why.
    pub failed: Vec<(PathBuf, io::Error)>,
}

/// Deletes all whole checkpoints in `root` but the newest, the last finite one, and what `keep`
/// asks for.
///
/// Wholeness is judged by manifest and sizes, without reading every file again; one that is not
/// whole is left for a person to look at.
pub fn prune(root: &Path, keep: Keep<'_>) -> Result<Pruned, LoadError> {
    let Keep { newest, best, also, point } = keep;
    let mut pruned = Pruned::default();
    let mut whole = Vec::new();
    for (step, path) in read::list(root)? {
        match read::glance(&path) {
            Ok(manifest) => whole.push((step, path, manifest)),
            Err(why) => pruned.damaged.push(Skipped { path, why }),
        }
    }
    let newest = newest.max(1);
    let mut stay: BTreeSet<u64> =
        whole.iter().rev().map(|w| w.0).take(newest.try_into().unwrap_or(usize::MAX)).collect();
    stay.extend(whole.iter().rev().find(|w| w.2.finite).map(|w| w.0));
    if let Some(point) = point {
        stay.extend(whole.iter().rev().find(|w| w.2.finite && point(w.0)).map(|w| w.0));
    }
    if let Some(best) = best {
        let ranked = whole.iter().filter_map(|w| Some((best.rank(&w.2)?, w.0)));
        stay.extend(ranked.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|b| b.1));
    }
    if let Some(also) = also.filter(|n| *n > 0) {
        stay.extend(whole.iter().map(|w| w.0).filter(|step| *step > 0 && step % also == 0));
    }
    for (step, path, _) in whole {
        if stay.contains(&step) {
            pruned.kept.push(path);
            continue;
        }
        match remove_checkpoint(&path) {
            Ok(()) => pruned.removed.push(path),
            Err(error) => pruned.failed.push((path, error)),
        }
    }
    Ok(pruned)
}

/// Takes its name away first, so that a half-deleted one is not met as a damaged checkpoint.
pub(crate) fn remove_checkpoint(path: &Path) -> io::Result<()> {
    let aside = aside(path);
    fs::rename(path, &aside)?;
    fs::remove_dir_all(&aside)
}

/// Gives `new` the name `path`, which another checkpoint has: that one is deleted only when the
/// new one is in place, and put back if that fails.
pub(crate) fn replace_checkpoint(path: &Path, new: &Path) -> io::Result<()> {
    let aside = aside(path);
    fs::rename(path, &aside)?;
    if let Err(error) = fs::rename(new, path) {
        let _ = fs::rename(&aside, path);
        return Err(error);
    }
    fs::remove_dir_all(&aside)
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(temporary_suffix());
    name.push("-old");
    PathBuf::from(name)
}

/// `.tmp-<host>-<pid>`; something that tells apart several of one process may follow.
pub(crate) fn temporary_suffix() -> String {
    format!(".tmp-{}-{}", host(), process::id())
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.trim().chars().filter(char::is_ascii_alphanumeric).collect();
    if plain.is_empty() { "host".to_string() } else { plain }
}

/// Removes temporary directories of this host whose process is gone: what a killed run left. Those
/// of other hosts and of other living processes stay. To be called before this process begins a
/// checkpoint in `root`: what bears its own number was left by a predecessor (in a container,
/// numbers repeat). Returns what was removed.
pub fn remove_stale(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let ours = format!(".tmp-{}-", host());
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.split_once(&ours));
        let owner = parts.filter(|(step, _)| read::step_of(step).is_some()).map(|(_, o)| o);
        let Some(owner) = owner else { continue };
        let pid = owner.split('-').next().unwrap_or(owner);
        let Ok(pid) = pid.parse::<u32>() else { continue };
        let alive = Path::new("/proc").join(pid.to_string()).exists() && pid != process::id();
        if !alive && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
            removed.push(entry.path());
        }
    }
    removed.sort();
    Ok(removed)
}
