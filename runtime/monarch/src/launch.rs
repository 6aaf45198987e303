//! Worker processes of this machine: started, watched, reaped.
//!
//! A worker gets the cluster key through its standard input, never through its arguments or its
//! environment, and takes the end of that stream for the death of its controller: a second
//! signal beside the parent-death signal, so that no orphan is ever left.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Lines of a worker's standard error that are kept for a failure's message.
const TAIL_LINES: usize = 20;

/// A worker process of ours.
pub struct WorkerProcess {
    child: Child,
    /// Open as long as the worker shall live.
    stdin: Option<ChildStdin>,
    tail: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
    status: Option<ExitStatus>,
}

impl WorkerProcess {
    /// Starts `command` with `secret` as the first line of its standard input.
    pub fn spawn(mut command: Command, secret: &str) -> std::io::Result<WorkerProcess> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A process group of its own: Ctrl-C at a terminal reaches the controller alone, which
        // then stops its workers in good order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take();
        if let Some(pipe) = stdin.as_mut() {
            writeln!(pipe, "{secret}")?;
        }
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let reader = child.stderr.take().map(|stderr| {
            let tail = Arc::clone(&tail);
            std::thread::spawn(move || keep_tail(BufReader::new(stderr), &tail))
        });
        Ok(WorkerProcess { child, stdin, tail, reader, status: None })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, in words; None while it runs.
    pub fn try_wait(&mut self) -> Option<String> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
            if self.status.is_some() {
                self.join_reader();
            }
        }
        self.status.map(describe)
    }

    pub fn kill(&mut self) {
        if self.try_wait().is_none() {
            // Failing means that it has ended meanwhile.
            let _ = self.child.kill();
        }
    }

    /// Lets the worker know that it shall leave.
    pub fn release(&mut self) {
        self.stdin = None;
    }

    /// The last lines that it wrote to standard error.
    pub fn stderr_tail(&self) -> Vec<String> {
        match self.tail.lock() {
            Ok(tail) => tail.iter().cloned().collect(),
            Err(poisoned) => poisoned.into_inner().iter().cloned().collect(),
        }
    }

    fn join_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
        self.join_reader();
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

/// `signal 9 (SIGKILL)`, `exit code 3`.
pub fn describe(status: ExitStatus) -> String {
    if let Some(signal) = status.signal() {
        return format!("signal {signal}{}", signal_name(signal));
    }
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => " (SIGABRT: the process gave up)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGILL => " (SIGILL: an instruction that this processor lacks)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGKILL => " (SIGKILL: killed, by hand or by the kernel for lack of memory)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
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
            if let Some(text) = process.try_wait() {
                return text;
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
    fn dropping_reaps() {
        let process = WorkerProcess::spawn(shell("sleep 600"), "x").unwrap();
        let pid = process.pid();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
