//! What a process has said and how it ended.

use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

pub struct Outcome {
    /// None when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<String>,
    /// Lines of standard output that are JSON.
    pub events: Vec<Value>,
    pub stderr: String,
    pub took: Duration,
}

impl Outcome {
    pub fn new(status: ExitStatus, stdout: Vec<String>, stderr: String, took: Duration) -> Outcome {
        let events = stdout.iter().filter_map(|l| serde_json::from_str(l).ok()).collect();
        let (code, signal) = (status.code(), status.signal());
        Outcome { code, signal, stdout, events, stderr, took }
    }

    /// Everything, for a person who looks at a failed test.
    pub fn story(&self) -> String {
        let lines = &self.stdout;
        let skipped = lines.len().saturating_sub(30);
        let end = lines[skipped..].join("\n");
        let Outcome { code, signal, stderr, took, .. } = self;
        format!("code {code:?} signal {signal:?} after {took:?}\n..{skipped}\n{end}\n{stderr}")
    }

    #[track_caller]
    pub fn expect_code(self, code: i32) -> Outcome {
        assert_eq!(self.code, Some(code), "{}", self.story());
        self
    }

    #[track_caller]
    pub fn ok(self) -> Outcome {
        self.expect_code(0)
    }

    /// Standard error says all of these, and nothing that only a programmer understands.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Outcome {
        for word in words {
            assert!(self.stderr.contains(word), "does not say `{word}`: {}", self.story());
        }
        for alien in ["panicked", "RUST_BACKTRACE", "called `Option", "called `Result"] {
            assert!(!self.stderr.contains(alien), "{}", self.story());
        }
        self
    }

    /// Events of one kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |e| e["event"] == kind)
    }

    /// The last event of one kind.
    #[track_caller]
    pub fn last(&self, kind: &str) -> &Value {
        self.of(kind).last().unwrap_or_else(|| panic!("no `{kind}`: {}", self.story()))
    }

    /// Warnings, as one text.
    pub fn warnings(&self) -> String {
        let texts: Vec<&str> = self.of("warning").filter_map(|e| e["text"].as_str()).collect();
        texts.join("\n")
    }

    /// Diagnostics that are errors.
    pub fn errors(&self) -> Vec<&Value> {
        self.events.iter().filter(|e| e["severity"] == "error").collect()
    }

    /// Fingerprint of the weights at the end.
    #[track_caller]
    pub fn fingerprint(&self) -> String {
        let print = self.last("finished")["fingerprint"].as_str();
        print.unwrap_or_else(|| panic!("no fingerprint: {}", self.story())).to_string()
    }

    /// The last whole checkpoint.
    #[track_caller]
    pub fn checkpoint(&self) -> PathBuf {
        let path = self.last("finished")["checkpoint"].as_str();
        PathBuf::from(path.unwrap_or_else(|| panic!("no checkpoint: {}", self.story())))
    }

    /// Steps done at the end.
    #[track_caller]
    pub fn steps(&self) -> u64 {
        self.last("finished")["steps"].as_u64().expect("a number of steps")
    }

    /// All numbers of all steps and evaluations, every digit of them.
    pub fn numbers(&self) -> Vec<String> {
        let line = |e: &Value| match e["event"].as_str() {
            Some("step") => Some(format!(
                "step {} epoch {} loss {} lr {} norm {}",
                e["step"], e["epoch"], e["loss"], e["lr"], e["grad_norm"]
            )),
            Some("eval") => Some(format!("eval after {}: {}", e["step"], e["values"])),
            _ => None,
        };
        self.events.iter().filter_map(line).collect()
    }
}
