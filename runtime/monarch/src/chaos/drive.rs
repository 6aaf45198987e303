//! One run under fire.

use super::figures::{Figures, Measured};
use super::incident::Incident;
use super::process::{self, Target, pick};
use super::quiet::Quiet;
use super::schedule::{Fault, Kind, Schedule};
use super::watch::{Guest, Launch, Watched};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// A run that has nothing to say for so long, and [`PATIENCE_STEPS`] usual steps, is stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const PATIENCE_STEPS: f64 = 100.0;
/// Whether the caller wants to stop is looked at this often.
const LOOK: Duration = Duration::from_millis(50);
/// The longest pause between two faults.
const PAUSE: [f64; 2] = [0.002, 0.2];
/// Workers beyond the first ones, at most.
const GUESTS: u32 = 2;
/// The longest that a controller is away.
const AWAY: Duration = Duration::from_millis(300);
/// Events that are kept for a message.
const WORDS: usize = 12;

/// Why a run under fire is not what it should be.
#[derive(Debug)]
pub enum Trouble {
    Interrupted,
    /// It could not be started.
    Start(std::io::Error),
    /// It ended without having done its work.
    Failed {
        code: Option<i32>,
        words: Vec<String>,
    },
    /// Nothing happened any more.
    Stuck {
        seconds: f64,
        words: Vec<String>,
    },
    /// The first step with other numbers than in the quiet run.
    Differs {
        step: u64,
        words: Vec<String>,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Trouble::Interrupted => return f.write_str("interrupted"),
            Trouble::Start(error) => return write!(f, "the run cannot be started: {error}"),
            Trouble::Failed { code: Some(code), words } => {
                write!(f, "the run under fire failed with code {code}")?;
                words
            }
            Trouble::Failed { code: None, words } => {
                write!(f, "the run under fire was killed by somebody else")?;
                words
            }
            Trouble::Stuck { seconds, words } => {
                write!(f, "the run under fire stood still for {seconds:.0} s")?;
                words
            }
            Trouble::Differs { step, words } => {
                write!(f, "step {step} has another loss or norm than in the quiet run")?;
                words
            }
        };
        words.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// How a run ended that did its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub fingerprint: String,
    /// Faults that have struck it.
    pub faults: u64,
}

/// A run and what happens to it.
pub struct Drive<'a> {
    launch: &'a Launch,
    quiet: &'a Quiet,
    schedule: &'a Schedule,
    /// Faults there shall be in all.
    limit: u64,
    stop: &'a AtomicBool,
    figures: &'a mut Figures,
    run: Watched,
    /// The furthest step, and when.
    step: Option<(u64, Instant)>,
    /// The controller was killed, and is to stay away for this share of the longest time. What it
    /// had said before may still be under way.
    shot: Option<f64>,
    generation: u64,
    members: u32,
    /// Members there are to be, and that there were at first.
    full: u32,
    first: u32,
    /// Where the controller listens.
    address: String,
    guests: Vec<Guest>,
    /// Processes that are known to have the weights.
    known: BTreeSet<i32>,
    /// Processes that have left as they were told, and may still be ending: they hold nothing.
    left: Vec<i32>,
    incident: Option<Incident>,
    /// When the next fault strikes.
    due: Option<Instant>,
    heard: Instant,
    faults: u64,
    struck: u64,
    lost: u64,
    words: VecDeque<String>,
    fingerprint: Option<String>,
}

impl<'a> Drive<'a> {
    /// Starts a run.
    ///
    /// # Errors
    /// [`Trouble::Start`].
    pub fn start(
        launch: &'a Launch,
        quiet: &'a Quiet,
        schedule: &'a Schedule,
        limit: u64,
        stop: &'a AtomicBool,
        figures: &'a mut Figures,
    ) -> Result<Drive<'a>, Trouble> {
        let run = launch.start(false).map_err(Trouble::Start)?;
        Ok(Drive {
            launch,
            quiet,
            schedule,
            limit,
            stop,
            figures,
            run,
            step: None,
            shot: None,
            generation: 0,
            members: 0,
            full: 0,
            first: 0,
            address: String::new(),
            guests: Vec::new(),
            known: BTreeSet::new(),
            left: Vec::new(),
            incident: None,
            due: None,
            heard: Instant::now(),
            faults: 0,
            struck: 0,
            lost: 0,
            words: VecDeque::new(),
            fingerprint: None,
        })
    }

    /// Until its end. `tell` gets each fault once the run is over it.
    ///
    /// # Errors
    /// [`Trouble`]; then no process of the run is left either.
    pub fn to_its_end(mut self, tell: &mut dyn FnMut(&Measured)) -> Result<Ended, Trouble> {
        let ended = self.go(tell);
        if ended.is_err() {
            self.run.kill();
        }
        // Whoever would not go is told of by the run's own tests; here it would hide the trouble.
        let _ = process::sweep(&self.launch.mark);
        self.run.end();
        ended
    }

    fn go(&mut self, tell: &mut dyn FnMut(&Measured)) -> Result<Ended, Trouble> {
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(Trouble::Interrupted);
            }
            let now = Instant::now();
            let due = self.incident.as_ref().and_then(Incident::due).or(self.due);
            let wait = due.map_or(LOOK, |due| due.saturating_duration_since(now).min(LOOK));
            match self.run.said.recv_timeout(wait) {
                Ok((at, event)) => self.hear(at, &event, tell)?,
                Err(RecvTimeoutError::Timeout) => self.look(now)?,
                Err(RecvTimeoutError::Disconnected) => {
                    if let Some(ended) = self.ended(tell)? {
                        return Ok(ended);
                    }
                }
            }
            self.act(tell)?;
        }
    }

    /// Nothing was said: for too long?
    fn look(&self, now: Instant) -> Result<(), Trouble> {
        let since = self.incident.as_ref().map_or(self.heard, |i| i.at.min(self.heard));
        let seconds = now.duration_since(since).as_secs_f64();
        if seconds < PATIENCE.as_secs_f64() + PATIENCE_STEPS * self.quiet.usual {
            return Ok(());
        }
        Err(Trouble::Stuck { seconds, words: self.words() })
    }

    fn words(&self) -> Vec<String> {
        let fault = |i: &Incident| format!("fault {}: {}", i.fault.number, i.fault.kind.title());
        let tail = self.run.tail();
        self.words.iter().cloned().chain(self.incident.as_ref().map(fault)).chain(tail).collect()
    }

    fn hear(
        &mut self,
        at: Instant,
        event: &Value,
        tell: &mut dyn FnMut(&Measured),
    ) -> Result<(), Trouble> {
        self.heard = at;
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        let count = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
        let kind = event["event"].as_str().unwrap_or_default();
        if !matches!(kind, "step" | "eval" | "") {
            if self.words.len() == WORDS {
                self.words.pop_front();
            }
            self.words.push_back(event.to_string());
        }
        match kind {
            "listening" => {
                self.address = event["address"].as_str().unwrap_or_default().to_string();
            }
            "started" => {
                self.members = count("workers");
                self.full = self.members;
                self.first = if self.first == 0 { self.full } else { self.first };
                self.know_all();
                match self.incident.as_mut() {
                    Some(incident) => {
                        incident.beyond = None;
                        incident.regrouped = true;
                    }
                    None => self.plan_next(at),
                }
            }
            "regrouped" => {
                self.generation = number("generation");
                self.members = count("workers");
                if self.members >= self.full {
                    self.know_all();
                }
                if let Some(incident) = self.incident.as_mut() {
                    incident.regrouped = true;
                }
            }
            "lost" => self.lost += 1,
            "left" => {
                let pid = event["pid"].as_u64().and_then(|p| i32::try_from(p).ok());
                self.left.extend(pid);
                self.known.retain(|known| Some(*known) != pid);
            }
            "step" => self.stepped(number("step"), at, event, tell)?,
            "finished" => self.fingerprint = event["fingerprint"].as_str().map(String::from),
            _ => {}
        }
        Ok(())
    }

    fn know_all(&mut self) {
        let there = process::workers(&self.launch.mark).into_iter().map(|p| p.pid);
        self.known = there.filter(|pid| !self.left.contains(pid)).collect();
    }

    fn stepped(
        &mut self,
        step: u64,
        at: Instant,
        event: &Value,
        tell: &mut dyn FnMut(&Measured),
    ) -> Result<(), Trouble> {
        if !self.quiet.agrees(step, event) {
            return Err(Trouble::Differs { step, words: self.words() });
        }
        self.figures.steps += 1;
        if self.step.is_some_and(|(furthest, _)| step <= furthest) {
            self.figures.repeated += 1;
            return Ok(());
        }
        self.step = Some((step, at));
        let Some(incident) = self.incident.as_mut() else { return Ok(()) };
        let counts = self.shot.is_none() && incident.beyond.is_none_or(|old| self.generation > old);
        if counts && incident.step(step, at, self.quiet, self.members, self.full) {
            self.close(tell);
            self.plan_next(at);
        }
        Ok(())
    }

    /// The next fault, if there shall be one.
    fn plan_next(&mut self, now: Instant) {
        let next = self.figures.faults.len() as u64;
        let longest = (self.quiet.seconds() / 8.0).clamp(PAUSE[0], PAUSE[1]);
        let pause = longest * self.schedule.fault(next).pause;
        self.due = (next < self.limit).then(|| now + Duration::from_secs_f64(pause));
    }

    /// Over with the fault at hand, as far as it was measured.
    fn close(&mut self, tell: &mut dyn FnMut(&Measured)) {
        let Some(incident) = self.incident.take() else { return };
        let measured = Measured {
            number: incident.fault.number,
            kind: incident.fault.kind,
            run: self.figures.runs,
            step: incident.step_before(),
            lost: incident.lost,
            whole: incident.whole,
        };
        tell(&measured);
        self.figures.faults.push(measured);
        if incident.fault.kind == Kind::Hang {
            // One that nobody could kill wakes up, and has to find itself replaced.
            for victim in &incident.victims {
                victim.send(libc::SIGCONT);
            }
        }
        self.guests.retain_mut(|guest| !guest.is_gone());
    }

    /// Does what is due.
    fn act(&mut self, tell: &mut dyn FnMut(&Measured)) -> Result<(), Trouble> {
        let now = Instant::now();
        if let Some(incident) = self.incident.as_mut() {
            while let Some(due) = incident.signals.first().copied().filter(|d| d.at <= now) {
                incident.signals.remove(0);
                if let Some(victim) = incident.victims.get(due.victim) {
                    victim.send(due.signal);
                }
            }
            if incident.second.is_some_and(|at| at <= now) {
                self.strike_again();
            }
            return Ok(());
        }
        match self.due {
            Some(due) if due <= now => {
                self.due = None;
                self.strike(tell)
            }
            _ => Ok(()),
        }
    }

    fn strike(&mut self, tell: &mut dyn FnMut(&Measured)) -> Result<(), Trouble> {
        let mut fault = self.schedule.fault(self.figures.faults.len() as u64);
        fault.kind = self.fitting(fault.kind);
        let mut victims = self.victims(&fault);
        let struck = |kind| !matches!(kind, Kind::Join | Kind::Controller);
        if victims.is_empty() && struck(fault.kind) && fault.kind != Kind::Freeze {
            // It would leave nobody with the weights.
            fault.kind = Kind::Freeze;
            victims = self.victims(&fault);
        }
        // What was said while processes were looked for is about the time before.
        while let Ok((at, event)) = self.run.said.try_recv() {
            self.hear(at, &event, tell)?;
        }
        if self.fingerprint.is_some() || (victims.is_empty() && struck(fault.kind)) {
            // The run is at its end: no worker is left.
            self.due = Some(Instant::now() + LOOK).filter(|_| self.fingerprint.is_none());
            return Ok(());
        }
        self.faults += 1;
        self.struck += victims.len() as u64;
        let member = victims.iter().any(|v| self.known.contains(&v.process.pid));
        let halted = matches!(fault.kind, Kind::Freeze | Kind::Slow);
        let guests = victims.iter().filter(|v| v.process.slot.is_none()).count();
        let mut incident = Incident::new(fault, Instant::now(), self.step, victims);
        incident.beyond =
            (!halted && (member || fault.kind == Kind::Join)).then_some(self.generation);
        self.incident = Some(incident);
        match fault.kind {
            Kind::Join => {
                self.full += 1;
                let guest = self.launch.guest(&self.address).map_err(Trouble::Start)?;
                self.guests.push(guest);
            }
            Kind::Controller => {
                self.shot = Some(fault.span);
                self.run.kill();
            }
            // Nobody is started in its place.
            Kind::Drain => self.full -= 1,
            Kind::Freeze | Kind::Slow => {}
            // Nor in that of one that came by itself.
            _ => self.full -= guests as u32,
        }
        self.act(tell)
    }

    /// Workers come and go in turn, so that there are about as many as at first.
    fn fitting(&self, kind: Kind) -> Kind {
        match kind {
            Kind::Join if self.full >= self.first + GUESTS => Kind::Drain,
            Kind::Drain if self.full < self.first.max(2) => Kind::Join,
            kind => kind,
        }
    }

    /// Kills another one while the run recovers.
    fn strike_again(&mut self) {
        let workers = process::workers(&self.launch.mark);
        let Some(incident) = self.incident.as_mut() else { return };
        incident.second = None;
        let share = incident.fault.victims[1];
        let victim = pick(workers, &[share], Some(&self.known)).pop();
        let Some(victim) = victim.and_then(|p| Target::open(p, &self.launch.mark)) else { return };
        let member = self.known.contains(&victim.process.pid);
        if victim.send(libc::SIGKILL) {
            self.struck += 1;
            if victim.process.slot.is_none() {
                self.full -= 1;
            }
            if member {
                incident.beyond = Some(self.generation);
            }
        }
    }

    fn victims(&self, fault: &Fault) -> Vec<Target> {
        let workers = process::workers(&self.launch.mark);
        let [first, second] = fault.victims;
        let holders = Some(&self.known);
        let victims = match fault.kind {
            Kind::Kill | Kind::Again => pick(workers, &[first], holders),
            Kind::Hang | Kind::Drain => pick(workers, &[first], holders),
            Kind::Join | Kind::Controller => Vec::new(),
            Kind::Two => pick(workers, &[first, second], holders),
            Kind::Freeze | Kind::Slow => pick(workers, &[first], None),
            Kind::All => workers,
        };
        victims.into_iter().filter_map(|p| Target::open(p, &self.launch.mark)).collect()
    }

    /// Its output has ended: with its work, or because a fault was meant to leave nothing of it.
    fn ended(&mut self, tell: &mut dyn FnMut(&Measured)) -> Result<Option<Ended>, Trouble> {
        let code = self.run.end();
        if let (Some(0), Some(fingerprint)) = (code, self.fingerprint.take()) {
            self.close(tell);
            self.figures.replaced += self.lost;
            self.figures.unexplained += self.lost.saturating_sub(self.struck);
            self.figures.runs += 1;
            return Ok(Some(Ended { fingerprint, faults: self.faults }));
        }
        let kind = self.incident.as_ref().map(|i| i.fault.kind);
        match (kind, self.shot.take()) {
            (Some(Kind::All), _) => {
                // Whatever the old one has left would be in the way of the new one.
                process::sweep(&self.launch.mark).map_err(Trouble::Start)?;
                self.guests.clear();
            }
            (_, Some(span)) => {
                std::thread::sleep(AWAY.mul_f64(span));
            }
            _ => return Err(Trouble::Failed { code, words: self.words() }),
        }
        self.run = self.launch.start(true).map_err(Trouble::Start)?;
        self.figures.restarts += 1;
        self.generation = 0;
        self.heard = Instant::now();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::quiet::Recording;
    use serde_json::json;

    /// A run that is a script of a shell, which has what a run is given as its arguments.
    fn of(script: &str, stop: bool) -> Result<Ended, Trouble> {
        let mut recording = Recording::default();
        let step = |n: u64| json!({"event": "step", "step": n, "loss": 1, "grad_norm": 2});
        (0..3).for_each(|n| recording.hear(Instant::now(), &step(n)));
        recording.hear(Instant::now(), &json!({"event": "finished", "fingerprint": "ab"}));
        let quiet = recording.end().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let launch = Launch {
            binary: "sh".into(),
            args: vec!["-c".into(), script.into()],
            directory: folder.path().join("run"),
            run_id: "run".into(),
            mark: format!("drive-{}-{}", std::process::id(), folder.path().display()),
            key: folder.path().join("key"),
        };
        let (schedule, stop) = (Schedule::new(1, vec![Kind::Kill]), AtomicBool::new(stop));
        let mut figures = Figures::default();
        let drive = Drive::start(&launch, &quiet, &schedule, 0, &stop, &mut figures)?;
        let ended = drive.to_its_end(&mut |_| {});
        assert!(process::marked(&launch.mark).is_empty());
        ended
    }

    const STARTED: &str = r#"echo '{"event":"started","workers":1}'"#;
    const STEPS: &str = r#"
        for n in 0 1 2; do echo "{\"event\":\"step\",\"step\":$n,\"loss\":1,\"grad_norm\":2}"; done
        echo '{"event":"finished","fingerprint":"ab"}'"#;

    #[test]
    fn a_run_that_does_its_work() {
        let ended = of(&format!("{STARTED}{STEPS}"), false).unwrap();
        assert_eq!(ended, Ended { fingerprint: "ab".into(), faults: 0 });
    }

    #[test]
    fn other_numbers_are_found_at_their_step() {
        let other = STEPS.replace(":2}", ":2.0000000000000004}");
        let trouble = of(&format!("{STARTED}{other}; sleep 600"), false).unwrap_err();
        assert!(matches!(trouble, Trouble::Differs { step: 0, .. }), "{trouble}");
    }

    #[test]
    fn a_run_that_fails_says_why() {
        let trouble = of(&format!("{STARTED}; echo oh no >&2; exit 3"), false).unwrap_err();
        assert!(matches!(trouble, Trouble::Failed { code: Some(3), .. }), "{trouble}");
        assert!(trouble.to_string().contains("oh no"), "{trouble}");
    }

    #[test]
    fn whoever_wants_to_stop_need_not_wait() {
        let trouble = of("sleep 600", true).unwrap_err();
        assert!(matches!(trouble, Trouble::Interrupted), "{trouble}");
    }
}
