//! What a controller that is killed leaves to the one that is started in its place.
//!
//! `journal` in the run's directory: lines, each with a hash over itself and all before it, only
//! ever appended to. It has the address, the key (so it is its owner's alone to read), the
//! workers' processes, and again and again the scheduler's facts. A line is written after the
//! records of the steps that it counts are with the operating system, so that a kill loses no
//! word of it; nothing waits for the disk. When the machine itself goes down, the last lines may
//! be missing: workers elsewhere then report steps that leave a gap, and the run goes on from
//! its checkpoint. No bit of a result hangs on any of this.
//!
//! A run that ends, in whatever way, removes its journal.

mod text;

use monarch_net::ClusterKey;
use monarch_sched::Facts;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file in a run's directory.
pub const JOURNAL: &str = "journal";
/// Of the lines below.
const VERSION: u64 = 1;
/// Beyond this, the journal is written anew with what counts of it.
const COMPACT_BYTES: u64 = 1 << 20;

/// What stays the same for all controllers of a run but their number.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    pub run_id: String,
    pub job_hash: [u8; 32],
    /// Counts the controllers of the run, from 1.
    pub incarnation: u64,
    /// Where workers reach it.
    pub address: Option<SocketAddr>,
    pub key: Option<ClusterKey>,
    /// The checkpoint that the run began with, if any, and its step.
    pub resume: Option<(PathBuf, u64)>,
}

/// A worker process on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildMark {
    pub slot: u32,
    pub pid: u32,
    /// When it was started, as the kernel counts: another process may get the number later.
    pub started: u64,
}

/// What records and checkpoints say, and no scheduler decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub metrics: BTreeMap<String, f64>,
    /// Value and step.
    pub best: BTreeMap<String, (f64, u64)>,
    /// Step and loss.
    pub loss: Option<(u64, f64)>,
    pub checkpoint: Option<(PathBuf, u64)>,
}

/// A journal as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Journaled {
    pub head: Head,
    pub children: Vec<ChildMark>,
    /// Members from elsewhere.
    pub guests: u32,
    pub facts: Facts,
    pub seen: Seen,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub enum JournalError {
    Io {
        path: PathBuf,
        error: io::Error,
    },
    /// A line in its middle is not what was written.
    Damaged {
        path: PathBuf,
        byte: usize,
        line: usize,
    },
    /// It does not say which run it is of: its first line was cut off, or is of another version.
    NoHead {
        path: PathBuf,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Io { path, error } => {
                write!(f, "cannot read the journal `{}`: {error}", path.display())
            }
            JournalError::Damaged { path, byte, line } => write!(
                f,
                "the journal `{}` is damaged in its line {line}, which begins at byte {byte}",
                path.display()
            ),
            JournalError::NoHead { path } => {
                write!(f, "the journal `{}` does not say which run it is of", path.display())
            }
        }
    }
}

impl std::error::Error for JournalError {}

type Hash = [u8; 8];

fn chain(before: &Hash, text: &[u8]) -> Hash {
    let whole = Sha256::new().chain_update(before).chain_update(text).finalize();
    let mut hash = Hash::default();
    hash.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    hash
}

/// The lines of a journal, and how many bytes of it they are. A last line that is not whole, or
/// not what was written, counts as cut off.
///
/// # Errors
/// Where the first line begins that is wrong and has others after it, and its number from 1.
fn lines(bytes: &[u8]) -> Result<(Vec<Value>, Hash, usize), (usize, usize)> {
    let (mut found, mut hash, mut at) = (Vec::new(), Hash::default(), 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(end) = rest.iter().position(|b| *b == b'\n') else { break };
        let line = rest.get(..end).unwrap_or_default();
        let Some((value, next)) = whole(&hash, line) else {
            if at + end + 1 == bytes.len() {
                break;
            }
            return Err((at, found.len() + 1));
        };
        found.push(value);
        hash = next;
        at += end + 1;
    }
    Ok((found, hash, at))
}

/// A line's content, if it is what was written after the ones before it.
fn whole(before: &Hash, line: &[u8]) -> Option<(Value, Hash)> {
    let (said, text) = (line.get(..16)?, line.get(17..)?);
    let hash = chain(before, text);
    let same = line.get(16) == Some(&b' ') && said == monarch_graph::hex(&hash).as_bytes();
    let value = same.then(|| serde_json::from_slice(text).ok()).flatten()?;
    Some((value, hash))
}

/// Reads the journal in this directory; None when there is none.
///
/// # Errors
/// [`JournalError`].
pub fn read(run_dir: &Path) -> Result<Option<Journaled>, JournalError> {
    let path = run_dir.join(JOURNAL);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(JournalError::Io { path, error }),
    };
    match lines(&bytes) {
        Ok((values, _, _)) => match text::gather(&values) {
            Some(journaled) => Ok(Some(journaled)),
            None => Err(JournalError::NoHead { path }),
        },
        Err((byte, line)) => Err(JournalError::Damaged { path, byte, line }),
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    hash: Hash,
    bytes: u64,
    /// The last line of each kind, from which a shorter journal is made.
    head: Value,
    who: Option<Value>,
    facts: Option<Value>,
}

impl Journal {
    /// Begins one, in place of any that is there.
    /// With what `before` says, of whose run this is another controller.
    pub(crate) fn create(
        run_dir: &Path,
        head: &Head,
        before: Option<&Journaled>,
    ) -> io::Result<Journal> {
        let path = run_dir.join(JOURNAL);
        let head = text::head(head);
        let who = before.map(|j| text::who(&j.children, j.guests));
        let facts = before.map(|j| text::facts(&j.facts, &j.seen));
        let all: Vec<&Value> =
            [Some(&head), who.as_ref(), facts.as_ref()].into_iter().flatten().collect();
        let (file, hash, bytes) = begin(&path, &all)?;
        Ok(Journal { path, file, hash, bytes, head, who, facts })
    }

    pub(crate) fn who(&mut self, children: &[ChildMark], guests: u32) -> io::Result<()> {
        let value = text::who(children, guests);
        if self.who.as_ref() == Some(&value) {
            return Ok(());
        }
        self.who = Some(value.clone());
        self.append(&value)
    }

    pub(crate) fn facts(&mut self, facts: &Facts, seen: &Seen) -> io::Result<()> {
        let value = text::facts(facts, seen);
        self.append(&value)?;
        self.facts = Some(value);
        Ok(())
    }

    fn append(&mut self, value: &Value) -> io::Result<()> {
        if self.bytes > COMPACT_BYTES {
            let kept = [Some(&self.head), self.who.as_ref(), self.facts.as_ref()];
            let kept: Vec<&Value> = kept.into_iter().flatten().collect();
            (self.file, self.hash, self.bytes) = begin(&self.path, &kept)?;
        }
        let (line, hash) = line(&self.hash, value);
        if let Err(error) = self.file.write_all(&line) {
            // Half a line would spoil those to come.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.hash = hash;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// The run is over: nobody is to go on with it.
    pub(crate) fn remove(&self) {
        // One that stays is found to be of a run that nobody works for.
        let _ = fs::remove_file(&self.path);
    }
}

fn line(before: &Hash, value: &Value) -> (Vec<u8>, Hash) {
    let text = value.to_string();
    let hash = chain(before, text.as_bytes());
    (format!("{} {text}\n", monarch_graph::hex(&hash)).into_bytes(), hash)
}

/// A new file with these lines in place of the old one, which stays until then.
fn begin(path: &Path, values: &[&Value]) -> io::Result<(File, Hash, u64)> {
    let part = path.with_extension("part");
    let _ = fs::remove_file(&part);
    let options = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&part);
    let mut file = options?;
    let (mut bytes, mut hash) = (Vec::new(), Hash::default());
    for value in values {
        let (next, after) = line(&hash, value);
        bytes.extend(next);
        hash = after;
    }
    let done = file.write_all(&bytes).and_then(|()| fs::rename(&part, path));
    if let Err(error) = done {
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    Ok((file, hash, bytes.len() as u64))
}

/// When a process was started, as the kernel counts; None when there is none of this number.
pub fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have blanks and brackets in it.
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(started)
}

impl ChildMark {
    /// Whether this very process still lives.
    pub fn lives(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monarch_sched::EndedBy;
    use proptest::prelude::*;

    fn journaled() -> Journaled {
        Journaled {
            head: Head {
                run_id: "images-1".into(),
                job_hash: [7; 32],
                incarnation: 3,
                address: Some(([127, 0, 0, 1], 4242).into()),
                key: Some(ClusterKey::generate().unwrap()),
                resume: Some((PathBuf::from("/runs/a/step-000000009"), 9)),
            },
            children: vec![ChildMark { slot: 1, pid: 77, started: 123 }],
            guests: 2,
            facts: Facts {
                begun: true,
                generation: 4,
                recorded: 1000,
                evaluated: Some((990, 1)),
                saving: Some(990),
                failed_save: Some((8, "no \"room\"\n".into())),
                best: Some(0.1 + 0.2),
                best_before: Some((990, Some(f64::NAN.copysign(-1.0)))),
                end: Some((1200, EndedBy::Rule { rule: 1, value: f64::INFINITY })),
                ..Facts::default()
            },
            seen: Seen {
                metrics: [("eval.loss".to_string(), 1.0 / 3.0)].into(),
                best: [("eval.loss".to_string(), (1e-300, 7))].into(),
                loss: Some((999, 0.25)),
                checkpoint: Some((PathBuf::from("/runs/a/step-000000009"), 9)),
            },
        }
    }

    fn written(dir: &Path) -> Journaled {
        let all = journaled();
        let mut journal = Journal::create(dir, &all.head, None).unwrap();
        journal.who(&[], 0).unwrap();
        journal.facts(&Facts::default(), &Seen::default()).unwrap();
        journal.who(&all.children, all.guests).unwrap();
        journal.facts(&all.facts, &all.seen).unwrap();
        all
    }

    fn same(a: &Journaled, b: &Journaled) -> bool {
        format!("{a:?}") == format!("{b:?}")
    }

    #[test]
    fn what_is_written_is_read_and_nobody_else_may() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_none());
        let all = written(dir.path());
        assert!(same(&read(dir.path()).unwrap().unwrap(), &all));
        let mode = fs::metadata(dir.path().join(JOURNAL)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Every bit of a number, also of one that equals nothing.
        let back = read(dir.path()).unwrap().unwrap().facts.best_before.unwrap().1.unwrap();
        assert_eq!(back.to_bits(), f64::NAN.copysign(-1.0).to_bits());
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let all = journaled();
        let mut journal = Journal::create(dir.path(), &all.head, None).unwrap();
        journal.who(&all.children, all.guests).unwrap();
        for recorded in 0..6_000 {
            let facts = Facts { recorded, ..all.facts.clone() };
            journal.facts(&facts, &all.seen).unwrap();
        }
        let bytes = fs::metadata(dir.path().join(JOURNAL)).unwrap().len();
        assert!(bytes < 2 * COMPACT_BYTES, "{bytes}");
        let found = read(dir.path()).unwrap().unwrap();
        assert_eq!((found.facts.recorded, found.guests), (5_999, 2));
    }

    #[test]
    fn a_torn_tail_is_cut_off_at_every_byte() {
        let dir = tempfile::tempdir().unwrap();
        let all = written(dir.path());
        let path = dir.path().join(JOURNAL);
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            match read(dir.path()) {
                Ok(Some(found)) => assert!(end >= first && found.head == all.head),
                Err(JournalError::NoHead { .. }) => assert!(end < first),
                other => panic!("{end}: {other:?}"),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, text in "[0-9a-f {}\":,\n]{0,300}") {
            for content in [&bytes[..], text.as_bytes()] {
                let (_, _, good) = lines(content).unwrap_or_default();
                prop_assert!(good <= content.len());
            }
        }

        /// Either it is noticed, or it was in the last line, which is then not used.
        #[test]
        fn a_flipped_bit_is_noticed(place: prop::sample::Index, bit in 0u32..8) {
            let dir = tempfile::tempdir().unwrap();
            written(dir.path());
            let path = dir.path().join(JOURNAL);
            let mut bytes = fs::read(&path).unwrap();
            let at = place.index(bytes.len());
            let ends: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i] == b'\n').collect();
            let (last, line) = (ends[ends.len() - 2], ends.iter().filter(|e| **e < at).count());
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            match read(dir.path()) {
                Err(JournalError::Damaged { byte, line: said, .. }) => {
                    prop_assert!(byte <= at && said == line + 1);
                }
                Ok(Some(found)) => {
                    prop_assert!(at >= last, "{at} of {last}");
                    prop_assert_eq!(found.facts.recorded, 0);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
