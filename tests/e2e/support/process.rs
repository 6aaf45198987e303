//! Processes, as the kernel lists them.

use std::fs;
use std::time::{Duration, Instant};

/// Set in the environment of everything that a test starts, and inherited from there.
pub const MARK: &str = "MONARCH_E2E";

/// A process that carries a mark.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: i32,
    pub args: Vec<String>,
}

impl Process {
    pub fn is_worker(&self) -> bool {
        self.args.get(1).is_some_and(|a| a == "worker")
    }
}

/// All living processes with this mark, whoever their parent is by now.
pub fn marked(mark: &str) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        // A process that is gone, or a zombie, has no environment.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|b| *b == 0).any(|v| v == wanted.as_bytes()) {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
            found.push(Process { pid, args: line.split(|b| *b == 0).map(text).collect() });
        }
    }
    found
}

/// Waits until no process with this mark lives, at most `limit`; those that still do.
pub fn left_after(mark: &str, limit: Duration) -> Vec<Process> {
    let deadline = Instant::now() + limit;
    loop {
        let left = marked(mark);
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal; false when there is no such process any more.
pub fn send(pid: i32, signal: i32) -> bool {
    // SAFETY: takes no pointers; the pid is of a process that a test started.
    pid > 0 && unsafe { libc::kill(pid, signal) } == 0
}
