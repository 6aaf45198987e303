//! What a run does when it is left alone: its weights, its losses, and how long each step takes.

use serde_json::Value;
use std::time::Instant;

/// A run without faults, as it is heard.
#[derive(Debug, Default)]
pub struct Recording {
    last: Option<Instant>,
    /// Something else than a step has taken time since the last one.
    between: bool,
    seconds: Vec<(f64, bool)>,
    numbers: Vec<[u64; 2]>,
    fingerprint: Option<String>,
}

/// The same once it has ended.
#[derive(Debug)]
pub struct Quiet {
    pub fingerprint: String,
    /// Seconds from the end of one step to the end of the next.
    pub usual: f64,
    /// Loss and norm of the gradient of each step, bit by bit.
    numbers: Vec<[u64; 2]>,
    /// Seconds until the end of each step as they should be, summed up.
    sums: Vec<f64>,
}

/// Bits of a step's loss and of its gradient's norm.
pub fn numbers(event: &Value) -> [u64; 2] {
    ["loss", "grad_norm"].map(|name| event[name].as_f64().unwrap_or(f64::NAN).to_bits())
}

impl Recording {
    pub fn hear(&mut self, at: Instant, event: &Value) {
        match event["event"].as_str() {
            Some("step") => {
                let since = self.last.replace(at).map(|last| at.duration_since(last));
                self.seconds.push((since.unwrap_or_default().as_secs_f64(), self.between));
                self.numbers.push(numbers(event));
                self.between = false;
            }
            Some("eval" | "checkpoint") => self.between = true,
            Some("finished") => self.fingerprint = event["fingerprint"].as_str().map(String::from),
            _ => {}
        }
    }

    pub fn steps(&self) -> usize {
        self.numbers.len()
    }

    /// None when the run did not come to its end.
    pub fn end(self) -> Option<Quiet> {
        let mut plain: Vec<f64> =
            self.seconds.iter().skip(1).filter(|s| !s.1).map(|s| s.0).collect();
        plain.sort_by(f64::total_cmp);
        let usual = plain.get(plain.len() / 2).copied().unwrap_or_default();
        let mut sums = Vec::with_capacity(self.seconds.len());
        let mut sum = 0.0;
        for (seconds, between) in &self.seconds {
            // Single steps jitter; what stands between them does not.
            sum += if *between { *seconds } else { usual };
            sums.push(sum);
        }
        Some(Quiet { fingerprint: self.fingerprint?, usual, numbers: self.numbers, sums })
    }
}

impl Quiet {
    pub fn steps(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Seconds of all its steps.
    pub fn seconds(&self) -> f64 {
        self.sums.last().copied().unwrap_or_default()
    }

    /// Seconds from the end of step `from` (None: from the first step's beginning) to that of `to`.
    pub fn between(&self, from: Option<u64>, to: u64) -> f64 {
        let until = |step: u64| {
            let at = usize::try_from(step).unwrap_or(usize::MAX);
            self.sums.get(at).copied().unwrap_or_else(|| self.seconds())
        };
        until(to) - from.map_or(0.0, until)
    }

    /// Whether this step of another run has the same numbers.
    pub fn agrees(&self, step: u64, event: &Value) -> bool {
        let at = usize::try_from(step).unwrap_or(usize::MAX);
        self.numbers.get(at).is_some_and(|known| *known == numbers(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn steps_are_usual_and_what_stands_between_them_counts() {
        let mut recording = Recording::default();
        let start = Instant::now();
        let step = |n: u64| json!({"event": "step", "step": n, "loss": n as f64, "grad_norm": 1});
        for (ms, event) in [
            (100, step(0)),
            (110, step(1)),
            (120, step(2)),
            (150, json!({"event": "eval"})),
            (160, step(3)),
            (200, step(4)),
            (210, step(5)),
            (211, json!({"event": "finished", "fingerprint": "ab"})),
        ] {
            recording.hear(start + Duration::from_millis(ms), &event);
        }
        let quiet = recording.end().unwrap();
        assert_eq!((quiet.fingerprint.as_str(), quiet.steps()), ("ab", 6));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(quiet.usual, 0.010));
        assert!(near(quiet.between(Some(1), 3), 0.050));
        assert!(near(quiet.between(Some(3), 5), 0.020));
        assert!(near(quiet.between(None, 99), 0.090));
        assert!(
            quiet.agrees(2, &step(2)) && !quiet.agrees(2, &step(3)) && !quiet.agrees(9, &step(9))
        );
    }

    #[test]
    fn a_run_that_did_not_end_is_no_measure() {
        assert!(Recording::default().end().is_none());
    }
}
