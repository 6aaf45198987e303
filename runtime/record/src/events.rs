//! TensorBoard event files.

use crate::append::AppendFile;
use crate::{RecordError, proto, tfrecord};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "events.out.tfevents.";
/// In the names of our files: those of other programs are never changed.
const OURS: &str = ".monarch.";

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    /// The optimizer step it belongs to.
    pub step: u64,
    /// Seconds since 1970.
    pub wall_time: f64,
}

/// Writes one event file. TensorBoard takes all files of a directory for one run.
#[derive(Debug)]
pub struct Events {
    out: AppendFile,
    buffer: Vec<u8>,
}

impl Events {
    /// Begins a new file in `dir`, which is made if need be; `wall_time` is now, and with `writer`
    /// (such as the process number) makes the file's name.
    pub fn create(dir: &Path, wall_time: f64, writer: u32) -> Result<Events, RecordError> {
        fs::create_dir_all(dir).map_err(RecordError::io("create", dir))?;
        // Files are read in the order of their names: never before one that is there already.
        let newest = event_files(dir)?.last().and_then(|p| seconds(p)).unwrap_or(0);
        let begun = (wall_time.max(0.0) as u64).max(newest.saturating_add(1));
        let path = dir.join(format!("{PREFIX}{begun:010}{OURS}{writer}"));
        let mut this = Events { out: AppendFile::create(&path)?, buffer: Vec::new() };
        this.record(&proto::file_version(wall_time))?;
        Ok(this)
    }

    /// Goes on after a resume: events of step `first_step` and later, which will be recorded
    /// again, and what a kill left half-written are taken out of the files in `dir`; then begins a
    /// new file. A file that need not change is not touched. Events of `first_step` itself stay
    /// where `stays` says so of their first tag.
    pub fn resume(
        dir: &Path,
        first_step: u64,
        wall_time: f64,
        writer: u32,
        stays: impl Fn(&str) -> bool,
    ) -> Result<Events, RecordError> {
        let keep = |step, tag: &str| step < first_step || (step == first_step && stays(tag));
        Events::keep(dir, wall_time, writer, keep)
    }

    /// The same for a record of which `keep` says by step and first tag which events stay, in
    /// their order.
    pub fn keep(
        dir: &Path,
        wall_time: f64,
        writer: u32,
        mut keep: impl FnMut(u64, &str) -> bool,
    ) -> Result<Events, RecordError> {
        for path in event_files(dir)? {
            if path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.contains(OURS)) {
                cut(&path, &mut keep)?;
            }
        }
        Events::create(dir, wall_time, writer)
    }

    /// Scalars of one step, as one record. Values are stored in single precision; NaN and
    /// infinities are shown as such.
    pub fn scalars(&mut self, at: Stamp, values: &[(&str, f64)]) -> Result<(), RecordError> {
        let event = proto::scalars(at.wall_time, at.step, values);
        self.record(&event)
    }

    /// A text, in Markdown.
    pub fn text(&mut self, at: Stamp, tag: &str, text: &str) -> Result<(), RecordError> {
        let event = proto::text(at.wall_time, at.step, tag, text);
        self.record(&event)
    }

    fn record(&mut self, event: &[u8]) -> Result<(), RecordError> {
        self.buffer.clear();
        tfrecord::frame(event, &mut self.buffer);
        self.out.write(&self.buffer)
    }

    /// Records that could not be written.
    pub fn lost(&self) -> u64 {
        self.out.lost()
    }

    /// Waits until the disk has everything.
    pub fn sync(&self) -> Result<(), RecordError> {
        self.out.sync()
    }

    pub fn path(&self) -> &Path {
        self.out.path()
    }
}

/// Event files in a directory, in the order in which TensorBoard reads them.
fn event_files(dir: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if ours && entry.file_type()?.is_file() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    };
    match list() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(RecordError::io("list", dir)),
    }
}

/// The time in a file's name.
fn seconds(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}

/// Takes events out of a file.
fn cut(path: &Path, keep: &mut dyn FnMut(u64, &str) -> bool) -> Result<(), RecordError> {
    let content = fs::read(path).map_err(RecordError::io("read", path))?;
    let mut kept = Vec::new();
    let mut rest = &content[..];
    while let Some((event, record)) = tfrecord::next(rest) {
        if proto::summary_of(event).is_none_or(|(step, tag)| keep(step, tag)) {
            kept.extend(record);
        }
        rest = &rest[record.len()..];
    }
    if kept.len() == content.len() {
        return Ok(());
    }
    replace(path, &kept)
}

/// Replaces a file's content whole, or leaves it.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), RecordError> {
    // Not a name that a reader of the directory would take for a file of records.
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("record");
    let part = path.with_file_name(format!(".part-{}-{name}", std::process::id()));
    let write = || {
        let mut file = fs::File::create(&part)?;
        io::Write::write_all(&mut file, content)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&part);
        RecordError::Io { doing: "rewrite", path: path.to_path_buf(), error }
    })
}
