//! What a person sees while a run goes on: one line that changes on a terminal, a line now and
//! then on a pipe. All of it on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use monarch_controller::{EvalEvent, Observer, RunEvent, StartedEvent, StepEvent};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two lines on a pipe.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Draws the events of a run.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    metric: String,
    last_line: Instant,
    /// Smoothed, since single steps jitter. For the eye alone.
    rate: Option<f64>,
    wait: Option<f64>,
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template("{bar:12.cyan} {wide_msg}") {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar
        });
        let (last_line, metric) = (Instant::now(), String::new());
        Progress { bar, quiet, metric, last_line, rate: None, wait: None }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprint_line(line)),
            None => eprint_line(line),
        }
    }

    fn started(&mut self, started: &StartedEvent) {
        if let Some(bar) = &self.bar {
            bar.set_length(started.steps);
            bar.set_position(started.first_step);
        }
        if !self.quiet {
            for line in describe(started) {
                self.say(&line);
            }
        }
    }

    fn step(&mut self, step: &StepEvent) {
        let rate = step.tokens_per_second.unwrap_or(step.samples_per_second);
        self.rate = Some(smooth(self.rate, rate));
        self.wait = Some(smooth(self.wait, step.wait_share));
        if let Some(bar) = &self.bar {
            bar.set_position(step.step + 1);
            bar.set_message(self.brief(step));
        } else if !self.quiet && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprint_line(&self.line(step));
        }
    }

    /// For 80 columns, of which the bar has 13: a terminal cuts off what is longer.
    fn brief(&self, step: &StepEvent) -> String {
        let unit = if step.tokens_per_second.is_some() { "tokens/s" } else { "samples/s" };
        let metric = self.metric.trim_start().trim_start_matches("eval.").to_string();
        let metric = match metric.split_once(' ') {
            // `loss` is the training loss.
            Some(("loss", value)) => format!("eval {value} "),
            Some(_) => format!("{metric} "),
            None => String::new(),
        };
        format!(
            "{}/{} loss {:.4} {metric}{} {unit} wait {:.0} %",
            step.step + 1,
            step.steps,
            step.loss,
            count(self.rate.unwrap_or_default()),
            self.wait.unwrap_or_default() * 100.0
        )
    }

    fn line(&self, step: &StepEvent) -> String {
        let unit = if step.tokens_per_second.is_some() { "tokens/s" } else { "samples/s" };
        let mut line = format!(
            "step {}/{}  epoch {}  loss {:.4}",
            step.step + 1,
            step.steps,
            step.epoch + 1,
            step.loss
        );
        line.push_str(&self.metric);
        line.push_str(&format!("  {} {unit}", count(self.rate.unwrap_or_default())));
        line.push_str(&format!("  waiting {:.0} %", self.wait.unwrap_or_default() * 100.0));
        line
    }

    fn evaluated(&mut self, eval: &EvalEvent) {
        let shown: Vec<String> = eval.values.iter().map(|(n, v)| metric(n, *v)).collect();
        let accuracy = eval.values.iter().find(|(n, _)| !n.ends_with(".loss"));
        let kept = accuracy.or(eval.values.first());
        self.metric = kept.map_or(String::new(), |(n, v)| format!("  {}", metric(n, *v)));
        if !self.quiet {
            self.say(&format!("after step {:>6}: {}", eval.step, shown.join("  ")));
        }
    }

    /// Takes the bar away, so that what follows stands on a clean line.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Started(started) => self.started(started),
            RunEvent::Step(step) => self.step(step),
            RunEvent::Evaluated(eval) => self.evaluated(eval),
            // At the end the run itself says it.
            RunEvent::NotFinite(e) if e.answer == "stop" => {}
            RunEvent::NotFinite(e) => self.say(&format!("warning: {}\n  {}", e.what, e.follows)),
            RunEvent::Warning { text } => self.say(&format!("warning: {text}")),
            RunEvent::WorkerLost { rank, host, why, step } => {
                self.say(&format!("worker {rank} on {host} is lost in step {step}: {why}"));
            }
            RunEvent::WorkerSlow(slow) => self.say(&slow.text()),
            RunEvent::WorkerRecovered { rank, host } => {
                self.say(&format!("worker {rank} on {host} is as fast as the others again"));
            }
            RunEvent::WorkerLeft { rank, host, pid, step } => {
                self.say(&format!(
                    "worker {rank} on {host} (process {pid}) has left after step {step}, as it was \
                     told"
                ));
            }
            RunEvent::Regrouped { step, workers, seconds, .. } => {
                let ms = seconds * 1e3;
                self.say(&format!("{workers} workers go on with step {step} ({ms:.0} ms)"));
            }
            RunEvent::Restarted { step, steps, workers, seconds, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(*steps);
                    bar.set_position(*step);
                }
                let ms = seconds * 1e3;
                self.say(&format!("{workers} workers are back at step {step} ({ms:.0} ms)"));
            }
            RunEvent::Finished(_) => self.clear(),
            RunEvent::Listening { .. } | RunEvent::Joined { .. } | RunEvent::CheckpointSaved(_) => {
            }
        }
    }
}

/// Standard error may be closed; that is no reason to stop a run.
pub fn eprint_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn describe(started: &StartedEvent) -> Vec<String> {
    let n = started.workers.len();
    let threads: u32 = started.workers.iter().map(|w| w.threads).sum();
    let isa = started.workers.first().map_or("", |w| w.isa.as_str());
    let transport = match started.transport {
        "none" => String::new(),
        name => format!(", gradients over {name}"),
    };
    let mut lines = vec![format!(
        "{}: {n} worker{} ({threads} thread{}, {isa}){transport}, ready after {:.0} ms",
        started.job,
        if n == 1 { "" } else { "s" },
        if threads == 1 { "" } else { "s" },
        started.ready_ns as f64 * 1e-6,
    )];
    if started.first_step > 0 {
        lines.push(format!("resumed at step {} of {}", started.first_step, started.steps));
    }
    lines
}

fn smooth(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| old + 0.1 * (new - old))
}

/// `eval.accuracy 97.8 %`, `eval.loss 0.0712`.
pub fn metric(name: &str, value: f64) -> String {
    match name.ends_with("accuracy") {
        true => format!("{name} {:.2} %", value * 100.0),
        false => format!("{name} {value:.4}"),
    }
}

/// `12,345`, `1.2`.
pub fn count(x: f64) -> String {
    if x < 100.0 {
        return format!("{x:.1}");
    }
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(0.5), "0.5");
        assert_eq!(count(999.6), "1,000");
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(metric("eval.accuracy", 0.9781), "eval.accuracy 97.81 %");
    }
}
