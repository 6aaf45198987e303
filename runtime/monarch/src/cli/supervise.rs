//! `monarch run --supervise`: a thin parent that starts the controller again when it is killed.
//!
//! It knows nothing of the run but its name. A controller that ends by itself, well or not, is not
//! started again: it has said why. Signals of a person are the controller's.

use super::{Failure, program, text};
use clap::ArgMatches;
use monarch::run_id;
use monarch_check::ParamHelp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// A controller that lives shorter than this has not got anywhere.
const SHORT: Duration = Duration::from_secs(10);
/// So many of those in a row are enough.
const ATTEMPTS: u32 = 10;

pub fn supervise(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let job = program::load_to_run(matches, params)?;
    let named = text(matches, "resume").or(text(matches, "run-id")).filter(|id| !id.is_empty());
    let fresh = named.is_none() && text(matches, "resume").is_none();
    let (id, claim) = match named {
        Some(id) => (id.to_string(), Default::default()),
        None => run_id::fresh(&job.plan.name, |id| job.run_dir(id)),
    };
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--supervise").collect();
    let name = if fresh { vec!["--run-id".to_string(), id.clone()] } else { Vec::new() };
    // It is for the run to make its directory, or to leave none.
    drop(claim);
    let heard = listen()?;
    let mut child = start(&[&args[..], &name].concat())?;
    let mut short = 0;
    loop {
        let since = Instant::now();
        heard.turn_to(&child);
        let status = child.wait().map_err(|e| Failure::run(format!("cannot wait: {e}")))?;
        heard.turn_away();
        let Some(signal) = status.signal() else {
            std::process::exit(status.code().unwrap_or(1));
        };
        short = if since.elapsed() < SHORT { short + 1 } else { 0 };
        let text = format!("the controller was ended by signal {signal}");
        if heard.any() || short >= ATTEMPTS {
            let why = if heard.any() { "as asked" } else { "again and again, and is given up" };
            return Err(Failure::run(format!("{text}, {why}")));
        }
        super::progress::eprint_line(&format!("{text}: it is started again"));
        // One that has left nothing has not begun.
        let left = |name: &str| job.run_dir(&id).join(name).exists();
        let begun = !fresh || left(monarch_controller::JOURNAL) || left("job.json");
        child = match begun {
            true => start(&again(&args, &id, fresh || named.is_some()))?,
            false => start(&[&args[..], &name].concat())?,
        };
    }
}

/// The same command, to go on with the run of this name.
fn again(args: &[String], id: &str, named: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = args.iter().peekable();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--run-id" => drop(rest.next()),
            "--resume" => drop(rest.next_if(|next| !next.starts_with('-'))),
            one if one.starts_with("--run-id=") || one.starts_with("--resume=") => {}
            "--from-checkpoint" => {}
            _ => out.push(arg.clone()),
        }
    }
    out.push("--resume".to_string());
    if named {
        out.push(id.to_string());
    }
    out
}

fn start(args: &[String]) -> Result<Child, Failure> {
    let failed = |e: std::io::Error| Failure::run(format!("cannot start the controller: {e}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(args);
    // A group of its own: a stroke at the terminal comes here, and goes on from here, once.
    command.process_group(0);
    let parent = std::process::id();
    // SAFETY: sets an attribute of the new process, and compares two numbers.
    unsafe {
        command.pre_exec(move || {
            // Without its parent the run is saved, and stops in good order.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            match std::os::unix::process::parent_id() == parent {
                true => Ok(()),
                false => Err(std::io::Error::other("the supervisor is gone")),
            }
        });
    }
    command.spawn().map_err(failed)
}

/// Signals, which go on to the controller at hand.
struct Heard {
    child: Arc<AtomicI32>,
    any: Arc<AtomicBool>,
}

impl Heard {
    fn turn_to(&self, child: &Child) {
        let pid = i32::try_from(child.id()).unwrap_or(0);
        self.child.store(pid, Ordering::SeqCst);
    }

    fn turn_away(&self) {
        self.child.store(0, Ordering::SeqCst);
    }

    fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }
}

fn listen() -> Result<Heard, Failure> {
    let unheard = |e: std::io::Error| Failure::run(format!("cannot listen to signals: {e}"));
    let heard = Heard { child: Arc::default(), any: Arc::default() };
    let (child, any) = (heard.child.clone(), heard.any.clone());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(unheard)?;
    let thread = std::thread::Builder::new().name("signals".into());
    let pass_on = move || {
        for signal in signals.forever() {
            any.store(true, Ordering::SeqCst);
            let pid = child.load(Ordering::SeqCst);
            if pid > 0 {
                // SAFETY: sends a signal to a child that is not reaped yet; takes no pointers.
                unsafe { libc::kill(pid, signal) };
            }
        }
    };
    thread.spawn(pass_on).map_err(unheard)?;
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_command_goes_on() {
        let of = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(String::from).collect();
            again(&args, "x-1", true).join(" ")
        };
        assert_eq!(of("run a.mon --lr 1"), "run a.mon --lr 1 --resume x-1");
        assert_eq!(of("run a.mon --run-id b --json"), "run a.mon --json --resume x-1");
        assert_eq!(of("run a.mon --resume --json"), "run a.mon --json --resume x-1");
        assert_eq!(of("run a.mon --resume=b"), "run a.mon --resume x-1");
    }
}
