//! What ties a worker process to its controller, and what happens when that is killed.
//!
//! A worker outlives its controller by its patience at most. The end of a pipe, which the kernel
//! closes with the controller, is the sign; the kernel also wakes a worker that somebody has
//! stopped, so that it can see it. From then on a timer of the kernel runs, which kills this
//! process when no other controller has come: stopped again, stuck in a kernel or swapped out,
//! it is never left behind.

use monarch_net::{ConnectError, Identity, Lost, Options};
use monarch_worker::{ControlLink, Cut, NoWay, Way};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Which signal the kernel sends for a descriptor that is watched; `libc` does not name it.
const F_SETSIG: i32 = 10;

/// Of this worker's current link, to be ended when its lifeline does.
type Current = Arc<Mutex<Option<Cut>>>;

/// The way from a controller to the next one at the same address.
pub struct Lifeline {
    pub address: String,
    pub identity: Identity,
    pub options: Options,
    pub patience: Duration,
    /// Beyond the patience, for what cannot be interrupted.
    pub grace: Duration,
    /// Silence alone tells that the controller is gone, soon enough.
    pub is_guest: bool,
    current: Current,
    timer: Option<Timer>,
}

impl Lifeline {
    pub fn new(address: &str, identity: Identity, options: Options) -> Lifeline {
        Lifeline {
            address: address.to_string(),
            identity,
            options,
            patience: Duration::ZERO,
            grace: Duration::ZERO,
            is_guest: true,
            current: Current::default(),
            timer: None,
        }
    }

    /// Connects for the first time.
    pub fn first(&mut self, limit: Duration) -> Result<ControlLink, ConnectError> {
        let Lifeline { address, identity, options, .. } = self;
        let (link, cut) = monarch_worker::connect_cut(address, identity, options, limit)?;
        *lock(&self.current) = Some(cut);
        Ok(link)
    }

    /// Whether it has reached a controller, whose end it has not seen.
    pub fn is_connected(&self) -> impl Fn() -> bool + Send + 'static {
        let current = self.current.clone();
        move || lock(&current).is_some()
    }

    /// Called at the end of the pipe that the controller holds.
    pub fn ended(&self) -> impl Fn() + Send + 'static {
        let current = self.current.clone();
        move || {
            if let Some(cut) = lock(&current).take() {
                cut.cut("the controller's process has ended");
            }
        }
    }
}

fn lock(current: &Current) -> std::sync::MutexGuard<'_, Option<Cut>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Way for Lifeline {
    fn lost(&mut self) {
        if self.timer.is_none() {
            self.timer = Timer::kill_after(self.patience + self.grace).ok();
        }
    }

    fn connect(&mut self, limit: Duration) -> Result<ControlLink, NoWay> {
        self.first(limit).map_err(|error| {
            let text = error.to_string();
            match error {
                ConnectError::WrongKey { .. }
                | ConnectError::WrongRole { .. }
                | ConnectError::OtherVersion { .. }
                | ConnectError::Refused { .. }
                | ConnectError::Failed { lost: Lost::ClosedByPeer { .. }, .. } => {
                    NoWay::Never(text)
                }
                _ => NoWay::Nobody(text),
            }
        })
    }

    fn found(&mut self, lifeline: Option<&str>) -> Result<(), String> {
        match lifeline.map(|path| self.hold(path)) {
            Some(Err(why)) if !self.is_guest => return Err(why),
            None if !self.is_guest => {
                return Err("the controller has nothing by which its end is seen".to_string());
            }
            _ => {}
        }
        self.timer = None;
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

impl Lifeline {
    /// Watches a pipe of another process.
    fn hold(&self, path: &str) -> Result<(), String> {
        let why = |e: std::io::Error| format!("cannot watch the controller by `{path}`: {e}");
        // Not to wait for a writer, should there be none any more.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let pipe = open.map_err(why)?;
        wake_on_end(&pipe).map_err(why)?;
        let ended = self.ended();
        let thread = std::thread::Builder::new().name("lifeline".into()).stack_size(64 << 10);
        let watch = move || {
            until_end(&pipe);
            ended();
        };
        thread.spawn(watch).map(drop).map_err(why)
    }
}

/// Returns when nobody can write into the pipe any more.
fn until_end(mut pipe: &File) {
    let mut rest = [0; 64];
    loop {
        let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        unsafe { libc::poll(&mut poll, 1, -1) };
        match pipe.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Asks the kernel to continue this process, should it be stopped, when the pipe ends.
pub fn wake_on_end(pipe: &impl AsRawFd) -> std::io::Result<()> {
    // The signal for "go on" does nothing to a process that is not stopped.
    for (what, value) in [
        (libc::F_SETOWN, std::process::id() as i32),
        (F_SETSIG, libc::SIGCONT),
        (libc::F_SETFL, flags(pipe)? | libc::O_ASYNC),
    ] {
        // SAFETY: these commands take a number; the descriptor is open.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), what, value) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

fn flags(pipe: &impl AsRawFd) -> std::io::Result<i32> {
    // SAFETY: takes no argument; the descriptor is open.
    let flags = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 { Err(std::io::Error::last_os_error()) } else { Ok(flags) }
}

/// A timer of the kernel that kills this process, also when it is stopped. Dropped, it is off.
struct Timer(libc::timer_t);

// SAFETY: a number that names the timer; it may be used from any thread of the process.
unsafe impl Send for Timer {}

impl Timer {
    fn kill_after(limit: Duration) -> std::io::Result<Timer> {
        // SAFETY: all zeros are a valid value of this plain struct.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers are to locals that outlive the call.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut id) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let timer = Timer(id);
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            // A timer of nothing would be off.
            tv_nsec: (limit.subsec_nanos() as libc::c_long).max(1),
        };
        let once = libc::itimerspec { it_interval: zero, it_value: at };
        // SAFETY: the timer exists, and `once` outlives the call.
        if unsafe { libc::timer_settime(timer.0, 0, &once, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer exists; it is not used after this.
        unsafe { libc::timer_delete(self.0) };
    }
}
