//! A fault that has struck, until the run has got over it.

use super::process::Target;
use super::quiet::Quiet;
use super::schedule::{Fault, Kind};
use std::time::{Duration, Instant};

/// The longest that a frozen worker stands still.
const FREEZE: Duration = Duration::from_millis(100);
/// A slowed worker is slow for between these.
const SLOW: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// Between the beginnings of two of its halts.
const PERIOD: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(20)];
/// The longest from a death to the next one in its recovery.
const AGAIN: Duration = Duration::from_millis(40);

/// A signal that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub at: Instant,
    /// Place among the victims.
    pub victim: usize,
    pub signal: i32,
}

#[derive(Debug)]
pub struct Incident {
    pub fault: Fault,
    pub at: Instant,
    /// The last step done before it, and when.
    before: Option<(u64, Instant)>,
    pub victims: Vec<Target>,
    /// What is still to come, in the order of time.
    pub signals: Vec<Due>,
    /// When another one is to be killed.
    pub second: Option<Instant>,
    /// Steps count once a later generation than this has begun.
    pub beyond: Option<u64>,
    /// Members have changed since it struck.
    pub regrouped: bool,
    steps: u32,
    pub lost: Option<f64>,
    pub whole: Option<f64>,
}

impl Incident {
    pub fn new(
        fault: Fault,
        at: Instant,
        before: Option<(u64, Instant)>,
        victims: Vec<Target>,
    ) -> Incident {
        let signals = signals(&fault, at, victims.len());
        let again = (fault.kind == Kind::Again).then(|| at + AGAIN.mul_f64(fault.span));
        Incident {
            fault,
            at,
            before,
            victims,
            signals,
            second: again,
            beyond: None,
            regrouped: false,
            steps: 0,
            lost: None,
            whole: None,
        }
    }

    pub fn step_before(&self) -> Option<u64> {
        self.before.map(|(step, _)| step)
    }

    /// When something is to be done next.
    pub fn due(&self) -> Option<Instant> {
        self.signals.first().map(|d| d.at).into_iter().chain(self.second).min()
    }

    /// A step was completed; `members` of `full` workers took part. True when the run is over it.
    pub fn step(&mut self, step: u64, at: Instant, quiet: &Quiet, members: u32, full: u32) -> bool {
        if self.due().is_some() || self.before.is_some_and(|(before, _)| step <= before) {
            return false;
        }
        let (from, since) = match self.before {
            Some((before, since)) => (Some(before), since),
            None => (None, self.at),
        };
        let took = at.duration_since(since).as_secs_f64();
        let late = took - quiet.between(from, step);
        self.steps += 1;
        let lost = *self.lost.get_or_insert(late);
        // One that was only halted may be taken for dead in the moment in which it wakes up: the
        // second step shows that it was not.
        let over = self.regrouped || self.steps > 1;
        if members < full || !over {
            return false;
        }
        self.whole = Some(if self.regrouped { late } else { lost });
        true
    }
}

fn signals(fault: &Fault, at: Instant, victims: usize) -> Vec<Due> {
    let all = |signal| (0..victims).map(move |victim| Due { at, victim, signal });
    let one = |after, signal| Due { at: at + after, victim: 0, signal };
    let between = |[least, most]: [Duration; 2], share: f64| least + (most - least).mul_f64(share);
    match fault.kind {
        Kind::Kill | Kind::Two | Kind::Again | Kind::All => all(libc::SIGKILL).collect(),
        Kind::Hang => all(libc::SIGSTOP).collect(),
        Kind::Drain => all(libc::SIGTERM).collect(),
        // Nothing is sent to a worker.
        Kind::Join | Kind::Controller => Vec::new(),
        Kind::Freeze => {
            let thaw = FREEZE.mul_f64(fault.span);
            vec![one(Duration::ZERO, libc::SIGSTOP), one(thaw, libc::SIGCONT)]
        }
        Kind::Slow => {
            let whole = between(SLOW, fault.span);
            let period = between(PERIOD, fault.duty[1]);
            // A fifth to four fifths of it.
            let halt = period.mul_f64(0.2 + 0.6 * fault.duty[0]);
            let starts = (0u32..).map(|n| period * n).take_while(|start| *start < whole);
            let pair = |start| [one(start, libc::SIGSTOP), one(start + halt, libc::SIGCONT)];
            starts.flat_map(pair).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::quiet::Recording;
    use serde_json::json;

    fn fault(kind: Kind) -> Fault {
        Fault { number: 0, kind, pause: 0.5, victims: [0.1, 0.9], span: 0.5, duty: [0.5, 0.5] }
    }

    fn quiet(start: Instant) -> Quiet {
        let mut recording = Recording::default();
        for n in 0..100u64 {
            let event = json!({"event": "step", "step": n, "loss": 1, "grad_norm": 1});
            recording.hear(start + Duration::from_millis(10 * n), &event);
        }
        recording.hear(start, &json!({"event": "finished", "fingerprint": "ab"}));
        recording.end().unwrap()
    }

    #[test]
    fn whoever_is_halted_goes_on() {
        let at = Instant::now();
        for kind in [Kind::Freeze, Kind::Slow] {
            let all = signals(&fault(kind), at, 1);
            let halts = all.iter().filter(|d| d.signal == libc::SIGSTOP).count();
            assert_eq!((halts * 2, all.is_sorted_by_key(|d| d.at)), (all.len(), true));
            assert_eq!(all.last().map(|d| d.signal), Some(libc::SIGCONT));
        }
        let two = signals(&fault(Kind::Two), at, 2);
        assert!(two.iter().all(|d| d.at == at && d.signal == libc::SIGKILL) && two.len() == 2);
    }

    #[test]
    fn time_lost_is_what_came_later_than_it_would_have() {
        let start = Instant::now();
        let quiet = quiet(start);
        let ms = |n| start + Duration::from_millis(n);
        let mut kill = Incident::new(fault(Kind::Kill), ms(5), Some((7, ms(0))), Vec::new());
        kill.signals.clear();
        assert!(!kill.step(7, ms(20), &quiet, 2, 3));
        kill.regrouped = true;
        assert!(!kill.step(8, ms(30), &quiet, 2, 3));
        assert!(!kill.step(9, ms(40), &quiet, 2, 3));
        assert!(kill.step(10, ms(80), &quiet, 3, 3));
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(near(kill.lost, 0.020) && near(kill.whole, 0.050), "{kill:?}");
        let mut freeze = Incident::new(fault(Kind::Freeze), ms(5), Some((7, ms(0))), Vec::new());
        assert!(!freeze.step(8, ms(6), &quiet, 3, 3));
        freeze.signals.clear();
        assert!(!freeze.step(9, ms(60), &quiet, 3, 3));
        assert!(freeze.step(10, ms(70), &quiet, 3, 3));
        assert!(near(freeze.lost, 0.040) && freeze.lost == freeze.whole, "{freeze:?}");
    }
}
