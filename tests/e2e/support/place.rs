//! A folder for one test, and the proof that nothing outlives it.

use super::process::{self, MARK};
use super::{LIMIT, Outcome, Running, root};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Runs are started here, with this folder as the current one.
pub struct Place {
    folder: TempDir,
    mark: String,
    /// Half-written checkpoints may stay: a process was killed on purpose.
    pub killed: bool,
}

impl Place {
    pub fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("temporary")).expect("a folder for temporary files");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        Place { folder, mark, killed: false }
    }

    /// A place with `job.mon` in it.
    pub fn with(program: &str) -> Place {
        let place = Place::new();
        place.write("job.mon", program);
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content).expect("a file can be written");
        path
    }

    /// Copies files of the repository.
    pub fn copy(&self, from: &str, name: &str) {
        let from = root().join(from);
        fs::copy(&from, self.file(name)).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Any program, started here and marked.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env(MARK, &self.mark).env("NO_COLOR", "1");
        command.env("TMPDIR", self.file("temporary")).env_remove("MONARCH_ISA");
        command.stdin(Stdio::null());
        command
    }

    /// The binary.
    pub fn monarch(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_monarch"));
        command.args(args);
        command
    }

    /// Runs the binary to its end.
    pub fn run(&self, args: &[&str]) -> Outcome {
        self.start(args).finish()
    }

    pub fn start(&self, args: &[&str]) -> Running {
        Running::start(self.monarch(args), LIMIT)
    }

    /// `monarch run job.mon --json` and more.
    pub fn train(&self, args: &[&str]) -> Outcome {
        self.begin(args).finish()
    }

    pub fn begin(&self, args: &[&str]) -> Running {
        self.start(&[&["run", "job.mon", "--json"], args].concat())
    }

    pub fn workers(&self) -> Vec<i32> {
        let all = process::marked(&self.mark);
        all.iter().filter(|p| p.is_worker()).map(|p| p.pid).collect()
    }

    /// Directories of the runs that were made here.
    pub fn run_dirs(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(self.file("runs"))
            .map(|list| list.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        found.sort();
        found
    }

    /// The one run that was made here.
    pub fn run_dir(&self) -> PathBuf {
        let found = self.run_dirs();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    /// Files of this place below a folder, by name.
    fn names(&self, below: &Path) -> Vec<String> {
        let entries = fs::read_dir(below).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }

    /// No process lives, no temporary file and no half-written thing lies about.
    pub fn check_clean(&self) {
        let left = process::left_after(&self.mark, Duration::from_secs(2));
        assert!(left.is_empty(), "processes left behind: {left:?}");
        let temporary = self.names(&self.file("temporary"));
        assert!(temporary.is_empty(), "temporary files left behind: {temporary:?}");
        for run in self.run_dirs() {
            let half = |n: &String| n.contains(".tmp-") || n.contains(".part-");
            let names: Vec<String> = self.names(&run).into_iter().filter(half).collect();
            assert!(self.killed || names.is_empty(), "left in {}: {names:?}", run.display());
        }
    }

    /// Nothing was made beside what the test wrote.
    pub fn check_untouched(&self, written: &[&str]) {
        self.check_clean();
        let known = |n: &String| n == "temporary" || written.contains(&n.as_str());
        let more: Vec<String> = self.names(self.path()).into_iter().filter(|n| !known(n)).collect();
        assert!(more.is_empty(), "left behind: {more:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_clean();
        }
        for process in process::marked(&self.mark) {
            process::send(process.pid, libc::SIGKILL);
        }
    }
}
