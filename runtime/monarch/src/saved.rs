//! Saved plans: what a program came to when somebody looked at it, to be held against what it
//! comes to when it is run.
//!
//! A file is JSON that a person can read. Its `facts` are all that decides what a run does, each
//! under a name; `plan_hash` is their hash, so that a file which was changed by hand is found.
//! Where a program stands on a disk and how its text is laid out are no facts, nor is the number
//! of workers: it changes no bit of a result.

mod facts;

use monarch_check::hir;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Plan;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Version of the files.
pub const VERSION: u64 = 1;
/// A saved plan is text; more than this is something else.
const LIMIT_BYTES: u64 = 64 << 20;
/// Differences that are shown.
const MOST_SHOWN: usize = 20;

/// A plan as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPlan {
    /// `monarch 0.1.0`
    pub made_by: String,
    /// The program's file, for people.
    pub program: String,
    /// Name of the `train` block.
    pub job: String,
    /// Hash of the job as workers are sent it; None for machines that are declared only.
    pub job_hash: Option<String>,
    /// Name and value of all that decides what a run does.
    pub facts: BTreeMap<String, String>,
    /// The report, for people.
    pub report: Value,
}

/// One thing that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `param lr`, `steps`, `plan.mesh`, `file corpus.txt`
    pub what: String,
    /// None if it was not there.
    pub saved: Option<String>,
    /// None if it is not there.
    pub now: Option<String>,
}

/// Why there is no saved plan.
#[derive(Debug)]
pub enum SavedError {
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
    Write {
        path: PathBuf,
        error: std::io::Error,
    },
    /// A file that is something else stands where a plan is to be saved.
    InTheWay {
        path: PathBuf,
    },
    /// The text ends too early, or is no JSON.
    NotJson {
        path: PathBuf,
        why: String,
    },
    /// JSON of something else.
    NotAPlan {
        path: PathBuf,
        why: String,
    },
    /// Made by a later version of this program.
    Newer {
        path: PathBuf,
        version: u64,
    },
    /// Its facts are not those that its hash was made of.
    Changed {
        path: PathBuf,
    },
}

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = "write it anew with `monarch plan JOB.mon --save FILE`";
        match self {
            SavedError::Read { path, error } => {
                write!(f, "cannot read the plan {}: {}", path.display(), plain(error))
            }
            SavedError::Write { path, error } => {
                write!(f, "cannot save the plan {}: {}", path.display(), plain(error))
            }
            SavedError::InTheWay { path } => write!(
                f,
                "{} exists and is no saved plan, so it stays as it is; name another file",
                path.display()
            ),
            SavedError::NotJson { path, why } => {
                write!(f, "{} is no whole plan: {why}; {again}", path.display())
            }
            SavedError::NotAPlan { path, why } => {
                write!(f, "{} is no saved plan: {why}; {again}", path.display())
            }
            SavedError::Newer { path, version } => write!(
                f,
                "{} is a plan of version {version}, and this monarch knows {VERSION}: use the \
                 monarch that made it, or {again}",
                path.display()
            ),
            SavedError::Changed { path } => write!(
                f,
                "the plan {} was changed after it was saved: its facts are not those of its \
                 hash; {again}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SavedError {}

/// `Permission denied (os error 13)` without its number, which says nothing more.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl SavedPlan {
    /// What a program comes to. `plan` is its graph, for machines that are here or declared.
    pub fn new(
        program: &hir::Program,
        plan: Option<&Plan>,
        job_hash: Option<&[u8; 32]>,
        report: Value,
    ) -> SavedPlan {
        let file = program.sources.get(0).map_or(String::new(), |s| s.name().to_owned());
        let file = file.rsplit('/').next().unwrap_or(&file).to_owned();
        SavedPlan {
            made_by: format!("monarch {}", env!("CARGO_PKG_VERSION")),
            program: file,
            job: program.job.as_ref().map_or(String::new(), |j| j.name.clone()),
            job_hash: job_hash.map(|h| monarch_graph::hex(h)),
            facts: facts::facts(program, plan),
            report,
        }
    }

    /// Hash of the facts: 64 hex digits.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(VERSION.to_le_bytes());
        for (name, value) in &self.facts {
            // Lengths, so that no two lists give the same bytes.
            for text in [name, value] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            }
        }
        monarch_graph::hex(&hash.finalize())
    }

    /// The text of a file.
    pub fn text(&self) -> String {
        let facts: Map<String, Value> =
            self.facts.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let whole = json!({
            "monarch_plan": VERSION,
            "made_by": self.made_by,
            "program": self.program,
            "job": self.job,
            "job_hash": self.job_hash,
            "plan_hash": self.hash(),
            "facts": facts,
            "report": self.report,
        });
        format!("{whole:#}\n")
    }

    /// Saves the plan; a plan that is there already is replaced, as a whole or not at all.
    ///
    /// # Errors
    /// [`SavedError::InTheWay`] for another file, [`SavedError::Write`].
    pub fn write(&self, path: &Path) -> Result<(), SavedError> {
        match SavedPlan::read(path) {
            Ok(_) | Err(SavedError::Newer { .. } | SavedError::Changed { .. }) => {}
            Err(SavedError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => {}
            Err(SavedError::Read { path, error }) => return Err(SavedError::Write { path, error }),
            Err(_) => return Err(SavedError::InTheWay { path: path.to_path_buf() }),
        }
        let failed = |error| SavedError::Write { path: path.to_path_buf(), error };
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let whole = || {
            let mut file = std::fs::File::create(&beside)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        };
        whole().map_err(|error| {
            // What is left of it is of no use; that it cannot be removed changes nothing.
            let _ = std::fs::remove_file(&beside);
            failed(error)
        })
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`SavedError`]: no file, no plan, a later version, or one that was changed by hand.
    pub fn read(path: &Path) -> Result<SavedPlan, SavedError> {
        let failed = |error| SavedError::Read { path: path.to_path_buf(), error };
        let not = |why: &str| SavedError::NotAPlan { path: path.to_path_buf(), why: why.into() };
        let meta = std::fs::metadata(path).map_err(failed)?;
        if !meta.is_file() {
            return Err(not("it is no file"));
        }
        if meta.len() > LIMIT_BYTES {
            return Err(not("it is too large"));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(LIMIT_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let whole: Value = serde_json::from_slice(&bytes).map_err(|e| {
            let why = if e.is_eof() { "it ends too early".into() } else { format!("no JSON: {e}") };
            SavedError::NotJson { path: path.to_path_buf(), why }
        })?;
        match whole.get("monarch_plan").and_then(Value::as_u64) {
            None => return Err(not("it has no `monarch_plan`")),
            Some(version) if version > VERSION => {
                return Err(SavedError::Newer { path: path.to_path_buf(), version });
            }
            Some(_) => {}
        }
        let text = |name: &str| {
            let found = whole.get(name).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| not(&format!("it has no `{name}`")))
        };
        let facts = whole.get("facts").and_then(Value::as_object);
        let facts = facts.ok_or_else(|| not("it has no `facts`"))?;
        let fact = |(name, value): (&String, &Value)| {
            let value = value.as_str().ok_or_else(|| not(&format!("`{name}` is no text")))?;
            Ok((name.clone(), value.to_owned()))
        };
        let saved = SavedPlan {
            made_by: text("made_by")?,
            program: text("program")?,
            job: text("job")?,
            job_hash: whole.get("job_hash").and_then(Value::as_str).map(str::to_owned),
            facts: facts.iter().map(fact).collect::<Result<_, SavedError>>()?,
            report: whole.get("report").cloned().unwrap_or_default(),
        };
        match saved.hash() == text("plan_hash")? {
            true => Ok(saved),
            false => Err(SavedError::Changed { path: path.to_path_buf() }),
        }
    }

    /// What is not now as it was when this was saved.
    pub fn differences(&self, now: &SavedPlan) -> Vec<Difference> {
        let mut names: Vec<&String> = self.facts.keys().chain(now.facts.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let pairs = names.into_iter().map(|n| (n, self.facts.get(n), now.facts.get(n)));
        let of = |(what, saved, now): (&String, Option<&String>, Option<&String>)| Difference {
            what: what.clone(),
            saved: saved.cloned(),
            now: now.cloned(),
        };
        pairs.filter(|(_, saved, now)| saved != now).map(of).collect()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.saved, &self.now) {
            (Some(saved), Some(now)) => write!(f, "{}: {now}; saved: {saved}", self.what),
            (Some(saved), None) => write!(f, "{}: gone; saved: {saved}", self.what),
            (None, Some(now)) => write!(f, "{}: {now}; not in the saved plan", self.what),
            (None, None) => write!(f, "{}", self.what),
        }
    }
}

impl Difference {
    /// For programs that read.
    pub fn json(&self) -> Value {
        json!({ "what": self.what, "saved": self.saved, "now": self.now })
    }
}

/// What a person is told about a plan that is not the saved one.
pub fn differs(path: &Path, differences: &[Difference]) -> Diagnostic {
    let n = differences.len();
    let things = if n == 1 { "thing" } else { "things" };
    let title = format!("the plan is not the one in {}: {n} {things} differ", path.display());
    let title = if n == 1 { title.replace("differ", "differs") } else { title };
    let mut d = Diagnostic::error("M0850", title);
    for difference in differences.iter().take(MOST_SHOWN) {
        d = d.help(difference.to_string());
    }
    if n > MOST_SHOWN {
        d = d.help(format!("and {} more", n - MOST_SHOWN));
    }
    d.help("undo what has changed, or save the plan anew: `monarch plan JOB.mon --save FILE`")
}
