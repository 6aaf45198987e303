//! Worker processes of this machine: started, watched, reaped.
//!
//! A worker gets the cluster key through its standard input, never through its arguments or its
//! environment. A second word there tells it to leave; the end of that stream without one means
//! that its controller was killed: then it waits for another one, within a bound, and no longer.

use monarch_controller::{Child, ChildExit, ChildMark, Launcher, ProcessHandle, Seat};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines of a worker's standard error that are kept for a failure's message.
const TAIL_LINES: usize = 20;
/// How long a worker's last lines are waited for once it has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Starts `monarch worker` processes of the running binary.
pub struct Processes {
    pub count: u32,
    /// How long they wait for a controller that was killed to be started again.
    pub patience: Duration,
}

impl Processes {
    /// Workers of a run that nobody goes on with.
    pub fn hasty(count: u32) -> Processes {
        Processes { count, patience: Duration::ZERO }
    }
}

/// Ends workers of a controller that is gone, for whom nobody comes back: without this they would
/// wait for another one as long as they have patience. Waits until they have ended.
pub fn end_left(marks: &[ChildMark]) {
    let mut left: Vec<Adopted> = marks.iter().filter_map(Adopted::of).collect();
    left.iter_mut().for_each(Child::kill);
    let deadline = Instant::now() + LEFT;
    while !left.iter().all(|one| one.handle.has_ended()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Launcher for Processes {
    fn launch(&mut self, seat: &Seat) -> std::io::Result<Box<dyn Child>> {
        let missing = |what: &str| std::io::Error::other(format!("the controller has no {what}"));
        let address = seat.address.ok_or_else(|| missing("address"))?;
        let key = seat.key.as_ref().ok_or_else(|| missing("key"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--join", &address.to_string()]);
        command.args(["--slot", &seat.slot.to_string()]);
        command.args(["--patience", &format!("{}ms", self.patience.as_millis())]);
        let job = monarch_graph::hex(&seat.job_hash);
        let secret = format!("{} {job}", key.to_hex());
        Ok(Box::new(WorkerProcess::spawn(command, &secret)?))
    }

    fn adopt(&mut self, mark: &ChildMark) -> Option<Box<dyn Child>> {
        Some(Box::new(Adopted::of(mark)?))
    }

    fn count(&self) -> u32 {
        self.count
    }
}

/// Longest wait for processes that were killed.
const LEFT: Duration = Duration::from_secs(5);

/// A worker process of ours.
pub struct WorkerProcess {
    child: std::process::Child,
    /// Open as long as the worker shall live.
    stdin: Option<ChildStdin>,
    tail: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
    exit: Option<ChildExit>,
}

impl WorkerProcess {
    /// Starts `command` with `secret` as the first line of its standard input.
    pub fn spawn(mut command: Command, secret: &str) -> std::io::Result<WorkerProcess> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A process group of its own: Ctrl-C at a terminal reaches the controller alone, which
        // then stops its workers in good order.
        command.process_group(0);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take();
        if let Some(pipe) = stdin.as_mut() {
            // One that is gone already says more by how it ended.
            let _ = writeln!(pipe, "{secret}");
        }
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let reader = child.stderr.take().map(|stderr| {
            let tail = Arc::clone(&tail);
            std::thread::spawn(move || keep_tail(BufReader::new(stderr), &tail))
        });
        Ok(WorkerProcess { child, stdin, tail, reader, exit: None })
    }

    /// Waits for the last words. A process that it has started may hold the other end open, so
    /// the wait is bounded.
    fn join_reader(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        let deadline = Instant::now() + LAST_WORDS;
        while !reader.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if reader.is_finished() {
            // It has only kept lines; a panic there has nothing to add.
            let _ = reader.join();
        }
    }

    /// Ends it and what it has started: they are a process group of their own.
    fn kill_group(&mut self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: sends a signal; takes no pointers. The group's number is not reused before
            // the child is reaped.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }
}

impl Child for WorkerProcess {
    fn try_wait(&mut self) -> Option<ChildExit> {
        if self.exit.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.join_reader();
            self.exit = Some(ChildExit::from(status));
        }
        self.exit.clone()
    }

    fn release(&mut self) {
        if let Some(mut pipe) = self.stdin.take() {
            // One that is gone needs no word.
            let _ = pipe.write_all(b"leave\n");
        }
    }

    fn kill(&mut self) {
        if self.try_wait().is_none() {
            self.kill_group();
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }

    fn stderr_tail(&self) -> Vec<String> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.iter().cloned().collect()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
        self.join_reader();
    }
}

/// A worker process that a controller before this one has started. How it ends is told to nobody:
/// only that it does is seen.
struct Adopted {
    pid: u32,
    handle: ProcessHandle,
}

impl Adopted {
    fn of(mark: &ChildMark) -> Option<Adopted> {
        let handle = ProcessHandle::open(mark.pid)?;
        // Only now: the process of this number can be no other one any more.
        mark.lives().then_some(Adopted { pid: mark.pid, handle })
    }
}

impl Child for Adopted {
    fn try_wait(&mut self) -> Option<ChildExit> {
        let text = "its process ended, which a controller before this one had started".to_string();
        self.handle.has_ended().then_some(ChildExit { text, signal: None, clean: false })
    }

    fn kill(&mut self) {
        if let (false, Ok(group)) = (self.handle.has_ended(), i32::try_from(self.pid)) {
            // SAFETY: sends a signal; takes no pointers. Each worker leads a group of its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn stderr_tail(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        self.kill();
    }
}

fn keep_tail(stderr: impl BufRead, tail: &Mutex<VecDeque<String>>) {
    for line in stderr.split(b'\n').map_while(Result::ok) {
        let text: String = String::from_utf8_lossy(&line).chars().take(500).collect();
        if let Ok(mut tail) = tail.lock() {
            if tail.len() == TAIL_LINES {
                tail.pop_front();
            }
            tail.push_back(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn ended(process: &mut WorkerProcess) -> String {
        loop {
            if let Some(exit) = process.try_wait() {
                return exit.text;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_secret_arrives_and_the_tail_is_kept() {
        let script = "read key; echo \"got $key\" >&2; exit 3";
        let mut process = WorkerProcess::spawn(shell(script), "abc").unwrap();
        assert_eq!(ended(&mut process), "exit code 3");
        assert_eq!(process.stderr_tail(), ["got abc"]);
    }

    #[test]
    fn a_signal_is_named() {
        let mut process = WorkerProcess::spawn(shell("read k; kill -SEGV $$"), "x").unwrap();
        assert_eq!(ended(&mut process), "signal 11 (SIGSEGV)");
    }

    #[test]
    fn closing_its_input_tells_it_to_leave() {
        let mut process = WorkerProcess::spawn(shell("read k; cat; exit 0"), "x").unwrap();
        process.release();
        assert_eq!(ended(&mut process), "exit code 0");
    }

    #[test]
    fn what_a_worker_left_behind_holds_nobody_up() {
        let script = "read k; sleep 600 & echo gone >&2; exit 0";
        let mut process = WorkerProcess::spawn(shell(script), "x").unwrap();
        let start = Instant::now();
        assert_eq!(ended(&mut process), "exit code 0");
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(process.stderr_tail(), ["gone"]);
        process.kill_group();
    }

    #[test]
    fn dropping_reaps() {
        let process = WorkerProcess::spawn(shell("sleep 600"), "x").unwrap();
        let pid = process.pid().unwrap();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
