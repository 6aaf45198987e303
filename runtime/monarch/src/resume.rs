//! Finding the checkpoint to go on from, and saying how job and checkpoint differ.

use monarch_checkpoint::{Checkpoint, compare, latest_whole, layout, list, open};
use monarch_controller::{JOURNAL, JournalError, Journaled, Resume, read_journal};
use monarch_graph::Plan;
use std::fmt;
use std::path::{Path, PathBuf};

/// A run that can go on.
#[derive(Clone, Debug)]
pub struct Found {
    pub run_id: String,
    pub run_dir: PathBuf,
    pub resume: Resume,
    /// What a person should know: checkpoints that were skipped, how the job has changed.
    pub remarks: Vec<String>,
}

/// Why there is nothing to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumeError {
    /// No run of this job lies here.
    NoRun { job: String, runs: PathBuf },
    /// What was named is neither a run nor a checkpoint.
    NotARun { named: String, tried: Vec<PathBuf> },
    /// The run has no whole checkpoint; what is wrong with those there are.
    NoCheckpoint { run: PathBuf, skipped: Vec<String> },
    /// The checkpoint cannot be read.
    Damaged { path: PathBuf, why: String },
    /// The journal of a killed controller cannot be used.
    Journal { why: String },
    /// The run whose controller was killed is of another program.
    OtherProgram { run: PathBuf, now: String, then: String },
    /// Weights or optimizer of the job are not those of the checkpoint.
    Differs { path: PathBuf, difference: String },
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResumeError::NoRun { job, runs } => write!(
                f,
                "there is no run of `{job}` with a checkpoint in {}; run without --resume, or name \
                 a run: --resume RUN",
                runs.display()
            ),
            ResumeError::NotARun { named, tried } => {
                let tried: Vec<String> = tried.iter().map(|p| p.display().to_string()).collect();
                write!(f, "`{named}` is no run and no checkpoint; tried {}", tried.join(", "))
            }
            ResumeError::NoCheckpoint { run, skipped } => {
                write!(f, "{} has no whole checkpoint", run.display())?;
                skipped.iter().try_for_each(|s| write!(f, "\n  skipped {s}"))
            }
            ResumeError::Damaged { path, why } => {
                write!(f, "the checkpoint {} is damaged: {why}", path.display())
            }
            ResumeError::Journal { why } => {
                write!(f, "{why}\n  go on from the last checkpoint: --resume --from-checkpoint")
            }
            ResumeError::OtherProgram { run, now, then } => write!(
                f,
                "the controller of the run {} was killed, and its workers may wait for it; but \
                 that run was of another program, or of other params:\n  plan then {then}\n  plan \
                 now  {now}\n  run the same program, or go on from the last checkpoint: --resume \
                 --from-checkpoint",
                run.display()
            ),
            ResumeError::Differs { path, difference } => write!(
                f,
                "the job is not the one that was saved in {}:\n{difference}\n  run without \
                 --resume to begin anew",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ResumeError {}

/// Looks for a run to go on with. `wanted`: empty for the newest run of the job, else a run's id,
/// a run's directory or a checkpoint's directory. `runs` holds the runs of the job.
pub fn find(plan: &Plan, runs: &Path, wanted: &str) -> Result<Found, ResumeError> {
    let run_dir = if wanted.is_empty() {
        let none = || ResumeError::NoRun { job: plan.name.clone(), runs: runs.to_path_buf() };
        newest(plan, runs).ok_or_else(none)?
    } else {
        let tried = vec![runs.join(wanted), PathBuf::from(wanted)];
        let missing = || ResumeError::NotARun { named: wanted.into(), tried: tried.clone() };
        let found = tried.iter().find(|p| p.is_dir()).cloned().ok_or_else(missing)?;
        if found.join("manifest.json").exists() {
            return from_checkpoint(plan, &found);
        }
        found
    };
    from_run(plan, &run_dir)
}

/// A run whose controller was killed.
#[derive(Clone, Debug)]
pub struct Killed {
    pub run_dir: PathBuf,
    pub journaled: Journaled,
    /// Workers that may still wait for another controller.
    pub waiting: u32,
}

/// Looks for a run that ended without an end: it has a journal. `wanted` and `runs` as for
/// [`find`]; of several, the one that was at work last, unless another run has saved a checkpoint
/// since then.
///
/// # Errors
/// The journal cannot be used, or is of another program.
pub fn killed(
    plan: &Plan,
    hash: &[u8; 32],
    runs: &Path,
    wanted: &str,
) -> Result<Option<Killed>, ResumeError> {
    let Some(run_dir) = with_journal(plan, runs, wanted) else { return Ok(None) };
    let why = |e: JournalError| ResumeError::Journal { why: e.to_string() };
    let journaled = match read_journal(&run_dir) {
        Ok(Some(journaled)) => journaled,
        // Nothing of it was written yet: there is no more to lose.
        Ok(None) | Err(JournalError::NoHead { .. }) => return Ok(None),
        Err(error) => return Err(why(error)),
    };
    if journaled.head.job_hash != *hash {
        let (now, then) = (monarch_graph::hex(hash), monarch_graph::hex(&journaled.head.job_hash));
        return Err(ResumeError::OtherProgram { run: run_dir, now, then });
    }
    let living = journaled.children.iter().filter(|c| c.lives()).count() as u32;
    let waiting = living + journaled.guests;
    Ok(Some(Killed { run_dir, journaled, waiting }))
}

/// The directory with a journal that is meant.
fn with_journal(plan: &Plan, runs: &Path, wanted: &str) -> Option<PathBuf> {
    let has = |dir: &PathBuf| dir.join(JOURNAL).is_file();
    if !wanted.is_empty() {
        return [runs.join(wanted), PathBuf::from(wanted)].into_iter().find(has);
    }
    let below = std::fs::read_dir(runs).ok().into_iter().flatten().flatten();
    let all = below.map(|entry| entry.path()).chain([runs.to_path_buf()]);
    let when = |path: PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let of_job = |dir: &PathBuf| {
        let job = dir.join("job.json");
        job_of(&job).is_none_or(|job| job == plan.name)
    };
    let found = all.filter(has).filter(of_job).map(|dir| (when(dir.join(JOURNAL)), dir)).max()?;
    let saved = newest(plan, runs).filter(|dir| *dir != found.1);
    let later = saved.and_then(|dir| {
        let (_, checkpoint) = list(&dir).ok()?.pop()?;
        when(checkpoint.join("manifest.json"))
    });
    (later <= found.0).then_some(found.1)
}

/// Goes on from the last whole checkpoint in this directory; None when there is none.
pub fn last_checkpoint(plan: &Plan, run_dir: &Path) -> Result<Option<Found>, ResumeError> {
    match from_run(plan, run_dir) {
        Ok(found) => Ok(Some(found)),
        Err(ResumeError::NoCheckpoint { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn from_run(plan: &Plan, run_dir: &Path) -> Result<Found, ResumeError> {
    let damaged = |why: String| ResumeError::Damaged { path: run_dir.to_path_buf(), why };
    let latest = latest_whole(run_dir).map_err(|e| damaged(e.to_string()))?;
    let skipped: Vec<String> = latest.skipped.iter().map(ToString::to_string).collect();
    let Some(checkpoint) = latest.checkpoint else {
        return Err(ResumeError::NoCheckpoint { run: run_dir.to_path_buf(), skipped });
    };
    let mut found = accept(plan, checkpoint, run_dir)?;
    found.remarks.splice(0..0, skipped.into_iter().map(|s| format!("skipped {s}")));
    Ok(found)
}

fn from_checkpoint(plan: &Plan, dir: &Path) -> Result<Found, ResumeError> {
    let damaged = |why: String| ResumeError::Damaged { path: dir.to_path_buf(), why };
    let checkpoint = open(dir).map_err(|e| damaged(e.to_string()))?;
    let dir = dir.canonicalize().map_err(|e| damaged(e.to_string()))?;
    let run_dir = dir.parent().map_or_else(|| dir.clone(), Path::to_path_buf);
    accept(plan, checkpoint, &run_dir)
}

/// The run of this job that saved a checkpoint last. Files are verified only once it is chosen.
fn newest(plan: &Plan, runs: &Path) -> Option<PathBuf> {
    let mut found = Vec::new();
    let below = std::fs::read_dir(runs).ok()?.flatten().map(|entry| entry.path());
    // A program may name one directory for all its runs, which then holds the checkpoints.
    for dir in below.chain([runs.to_path_buf()]) {
        let Some((_, checkpoint)) = list(&dir).ok().and_then(|mut c| c.pop()) else { continue };
        let manifest = checkpoint.join("manifest.json");
        if job_of(&manifest).is_none_or(|job| job == plan.name) {
            let saved = std::fs::metadata(&manifest).or_else(|_| std::fs::metadata(&checkpoint));
            found.push((saved.and_then(|m| m.modified()).ok(), dir));
        }
    }
    found.sort();
    found.pop().map(|(_, dir)| dir)
}

/// The job that a manifest names; None when it cannot be read, which a closer look will explain.
fn job_of(manifest: &Path) -> Option<String> {
    let text = std::fs::read(manifest).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
    value.get("job")?.as_str().map(String::from)
}

fn accept(plan: &Plan, checkpoint: Checkpoint, run_dir: &Path) -> Result<Found, ResumeError> {
    let manifest = &checkpoint.manifest;
    let stored = layout(plan, 1);
    let wanted = stored.iter().map(|s| (s.name.as_str(), s.shape.as_slice()));
    let there = manifest.tensors.iter().map(|t| (t.name.as_str(), t.shape.as_slice()));
    let difference = compare(wanted, there);
    if !difference.is_empty() {
        let difference = difference.to_string();
        return Err(ResumeError::Differs { path: checkpoint.dir.clone(), difference });
    }
    let mut remarks = Vec::new();
    for (what, now, then) in [
        ("seed", plan.seed.to_string(), manifest.seed.to_string()),
        ("shards", plan.shards.to_string(), manifest.shards.to_string()),
    ] {
        if now != then {
            let text = format!("`{what}` is {now} and was {then}: other bits will follow");
            remarks.push(text);
        }
    }
    let program = monarch_wire::job_hash(plan).ok().map(|hash| monarch_graph::hex(&hash));
    if remarks.is_empty() && program.is_some_and(|now| now != manifest.program) {
        remarks.push("the program has changed since this checkpoint; weights still fit".into());
    }
    let name = run_dir.file_name().and_then(|n| n.to_str()).unwrap_or("run");
    let number = |(name, value): (&String, &Option<f64>)| (name.clone(), value.unwrap_or(f64::NAN));
    let metrics = manifest.metrics.iter().map(number).collect();
    let resume = Resume { directory: checkpoint.dir.clone(), step: manifest.step, metrics };
    Ok(Found { run_id: name.to_string(), run_dir: run_dir.to_path_buf(), resume, remarks })
}
