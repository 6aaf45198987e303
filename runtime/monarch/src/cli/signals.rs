//! Ctrl-C, SIGTERM and a closed terminal become requests to the run.

use monarch_controller::{ControlHandle, ControlRequest};
use monarch_worker::Leave;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One stroke may reach this process twice, once by itself and once as a member of its group
/// (`timeout` does so). Nobody presses keys that fast.
const ECHO: Duration = Duration::from_millis(100);

/// A file that grows beyond the limit of sizes (`ulimit -f`) is an error like a full disk, which
/// is said and survived; the signal that comes first would kill. Workers inherit this.
pub fn survive_limits() {
    // SAFETY: ignores a signal; takes no pointers and runs before there are other threads.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// How long a worker that was told to end waits for its release: longer than a controller takes
/// to save.
const RELEASE: Duration = Duration::from_secs(40);

/// For a worker: from now on the first signal asks the controller for its release, and the second
/// ends the process.
pub fn leave(leave: Leave) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let name = |n: &str| std::thread::Builder::new().name(n.into()).stack_size(64 << 10);
    name("signals").spawn(move || {
        let mut strokes = Strokes::default();
        for signal in signals.forever() {
            match strokes.take(signal, Instant::now()) {
                Stroke::First => {}
                Stroke::Again => std::process::exit(130),
                Stroke::Echo => continue,
            }
            leave.ask();
            super::progress::eprint_line(
                "leaving the run after the steps at hand; once more to leave at once",
            );
            // Without this thread, whoever waits for this process to end has its own limit.
            let _ = name("release").spawn(|| {
                std::thread::sleep(RELEASE);
                super::progress::eprint_line("the controller has not let this worker go: leaving");
                std::process::exit(1);
            });
        }
    })?;
    Ok(())
}

/// Signals for runs one after another: each goes to the run at hand. The first saves and stops, and
/// the second stops now. That it is saving, and up to which step, says the run: it knows whether
/// there is anything to save.
pub struct Ears(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    run: Option<ControlHandle>,
    any: bool,
}

impl Ears {
    /// From now on signals no longer end the process.
    pub fn open() -> std::io::Result<Ears> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let shared = heard.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let mut strokes = Strokes::default();
            for signal in signals.forever() {
                match strokes.take(signal, Instant::now()) {
                    Stroke::First => {}
                    Stroke::Again => super::progress::eprint_line("stopping now"),
                    Stroke::Echo => continue,
                }
                let mut heard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                heard.any = true;
                if let Some(run) = &heard.run {
                    run.send(ControlRequest::Interrupt);
                }
            }
        })?;
        Ok(Ears(heard))
    }

    /// Signals go to this run from now on, if there is one; it gets those that came before it.
    pub fn turn_to(&self, run: Option<ControlHandle>) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(run)) = (heard.any, &run) {
            run.send(ControlRequest::Interrupt);
        }
        heard.run = run;
    }

    /// Whether there was any signal yet.
    pub fn heard(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).any
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    First,
    Again,
    Echo,
}

/// The last signal and when it came.
#[derive(Default)]
struct Strokes(Option<(i32, Instant)>);

impl Strokes {
    fn take(&mut self, signal: i32, now: Instant) -> Stroke {
        match self.0.replace((signal, now)) {
            None => Stroke::First,
            Some((last, at)) if last == signal && now.duration_since(at) < ECHO => Stroke::Echo,
            Some(_) => Stroke::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_the_limit_is_an_error() {
        survive_limits();
        let dir = tempfile::tempdir().unwrap();
        let script = "ulimit -f 1; exec head -c 100000 /dev/zero >file";
        let mut command = std::process::Command::new("sh");
        let ended = command.args(["-c", script]).current_dir(dir.path()).output().unwrap();
        // Not killed: the write has failed, and was told so.
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    }

    #[test]
    fn a_signal_that_arrives_twice_at_once_is_one() {
        let (mut strokes, start) = (Strokes::default(), Instant::now());
        let mut at = |ms, signal| strokes.take(signal, start + Duration::from_millis(ms));
        assert_eq!(at(0, SIGINT), Stroke::First);
        assert_eq!(at(1, SIGINT), Stroke::Echo);
        assert_eq!(at(2, SIGTERM), Stroke::Again);
        assert_eq!(at(500, SIGTERM), Stroke::Again);
    }
}
