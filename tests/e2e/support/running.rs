//! A process whose words are read while it runs.

use super::{Outcome, process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A started process. Dropped, it is killed.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    words: Option<JoinHandle<String>>,
    begun: Instant,
    limit: Duration,
}

impl Running {
    pub fn start(mut command: Command, limit: Duration) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().expect("it starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().expect("piped");
        let words = Some(std::thread::spawn(move || {
            let mut text = Vec::new();
            // What was read before an error still counts.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }));
        Running { child, lines, seen: Vec::new(), words, begun, limit }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        process::send(self.pid(), signal);
    }

    /// Reads on until an event that `wanted` accepts; None when the output ends before.
    pub fn wait_for(&mut self, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        loop {
            let line = self.next_line()?;
            if let Ok(event) = serde_json::from_str::<Value>(&line)
                && wanted(&event)
            {
                return Some(event);
            }
        }
    }

    /// As [`wait_for`](Self::wait_for), where the event must come.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        match self.wait_for(wanted) {
            Some(event) => event,
            None => {
                let words = self.stop();
                panic!("no {what} came:\n{}\n{words}", self.seen.join("\n"));
            }
        }
    }

    /// Reads on until the event of this kind.
    pub fn until_event(&mut self, kind: &str) -> Value {
        self.until(kind, |e| e["event"] == kind)
    }

    /// Reads on until step number `step` is reported, unless it was.
    pub fn until_step(&mut self, step: u64) {
        let wanted = |e: &Value| e["event"] == "step" && e["step"] == step;
        let said = |l: &String| serde_json::from_str(l).is_ok_and(|e: Value| wanted(&e));
        if !self.seen.iter().any(said) {
            self.until("step", wanted);
        }
    }

    fn next_line(&mut self) -> Option<String> {
        let left = self.limit.saturating_sub(self.begun.elapsed());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let words = self.stop();
                panic!("not over after {:?}:\n{}\n{words}", self.limit, self.tail());
            }
        }
    }

    fn tail(&self) -> String {
        let from = self.seen.len().saturating_sub(20);
        self.seen[from..].join("\n")
    }

    /// Kills it; what it said on standard error.
    fn stop(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.words.take().and_then(|w| w.join().ok()).unwrap_or_default()
    }

    /// Waits for its end and takes everything that it said.
    pub fn finish(mut self) -> Outcome {
        while self.next_line().is_some() {}
        let deadline = self.begun + self.limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                break status;
            }
            if Instant::now() >= deadline {
                let words = self.stop();
                panic!("closed its output and lives on:\n{}\n{words}", self.tail());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let took = self.begun.elapsed();
        let stderr = self.stop();
        Outcome::new(status, std::mem::take(&mut self.seen), stderr, took)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
