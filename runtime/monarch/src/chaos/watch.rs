//! A `monarch run` of this binary, whose events are stamped as they come.

use super::process::MARK;
use monarch_controller::JOURNAL;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Lines of standard error that are kept for a message.
const TAIL_LINES: usize = 20;

/// How a run is started, and started again.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The binary.
    pub binary: PathBuf,
    /// `run job.mon --workers 3 --lr 1e-3`, without what is added here.
    pub args: Vec<String>,
    /// Directory of this run, to be made.
    pub directory: PathBuf,
    pub run_id: String,
    /// What all its processes are known by.
    pub mark: String,
    /// File with the cluster's key, for workers that join.
    pub key: PathBuf,
}

impl Launch {
    /// Whether a journal or a checkpoint is there to go on from.
    pub fn can_resume(&self) -> bool {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        self.directory.join(JOURNAL).exists()
            || entries.map(|e| e.path()).any(|p| p.join("manifest.json").exists())
    }

    /// Begins the run, or goes on with it.
    ///
    /// # Errors
    /// When the process cannot be started, or what is left of a run without a checkpoint cannot
    /// be removed.
    pub fn start(&self, again: bool) -> io::Result<Watched> {
        let mut command = Command::new(&self.binary);
        command.args(&self.args).arg("--json").arg("--run-dir").arg(&self.directory);
        command.arg("--key").arg(&self.key);
        if again && self.can_resume() {
            command.arg("--resume").arg(&self.directory);
        } else {
            if self.directory.exists() {
                std::fs::remove_dir_all(&self.directory)?;
            }
            command.args(["--run-id", &self.run_id]);
        }
        command.env(MARK, &self.mark);
        Watched::start(command)
    }

    /// Starts a worker that joins as one from another machine would.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn guest(&self, address: &str) -> io::Result<Guest> {
        let mut command = Command::new(&self.binary);
        command.args(["worker", "--join", address, "--key"]).arg(&self.key);
        command.env(MARK, &self.mark).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        leave_with_parent(&mut command);
        Ok(Guest(command.spawn()?))
    }
}

/// A worker that nobody but us has started; it ends with this value.
pub struct Guest(Child);

impl Guest {
    /// Whether it has ended by itself.
    pub fn is_gone(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process whose lines of JSON are read as they come.
pub struct Watched {
    child: Child,
    /// Events and when they came; the end of this is the end of its output.
    pub said: Receiver<(Instant, Value)>,
    tail: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Watched {
    fn start(mut command: Command) -> io::Result<Watched> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at a terminal reaches the caller alone, who ends what it has started.
        command.process_group(0);
        leave_with_parent(&mut command);
        let mut child = command.spawn()?;
        let (tell, said) = channel();
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let at = Instant::now();
                    if let Ok(event) = serde_json::from_str(&line)
                        && tell.send((at, event)).is_err()
                    {
                        return;
                    }
                }
            }));
        }
        if let Some(stderr) = child.stderr.take() {
            let tail = Arc::clone(&tail);
            readers.push(std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                    if tail.len() == TAIL_LINES {
                        tail.pop_front();
                    }
                    tail.push_back(line);
                }
            }));
        }
        Ok(Watched { child, said, tail, readers })
    }

    /// Its last lines on standard error.
    pub fn tail(&self) -> Vec<String> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub fn kill(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
    }

    /// Waits for its end, which is near: its output has ended, or it was killed.
    pub fn end(&mut self) -> Option<i32> {
        let code = self.child.wait().ok().and_then(|status| status.code());
        for reader in self.readers.drain(..) {
            // It has only passed on lines; a panic there has nothing to add.
            let _ = reader.join();
        }
        code
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// The process ends with the one that starts it, however that ends.
fn leave_with_parent(command: &mut Command) {
    let ask = || {
        // SAFETY: sets an attribute of the calling process; takes no pointers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: the closure calls nothing but `prctl`, which may be called between fork and exec.
    unsafe { command.pre_exec(ask) };
}
