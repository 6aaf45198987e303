use crate::link::Door;
use crate::oom::OomWatch;
use monarch_net::ClusterKey;
use monarch_sched::{Event, Exit};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Starts workers: processes, or threads of this one.
pub trait Launcher {
    /// Starts worker number `seat.slot`, which then connects and says that number in `Hello`.
    fn launch(&mut self, seat: &Seat) -> std::io::Result<Box<dyn Child>>;

    /// How many are to be started; the rest of the run's workers come by themselves.
    fn count(&self) -> u32;
}

/// What a worker must know to come in.
#[derive(Clone)]
pub struct Seat {
    pub slot: u32,
    /// Where the controller listens, when it does.
    pub address: Option<SocketAddr>,
    pub key: Option<ClusterKey>,
    pub job_hash: [u8; 32],
    /// For a worker that is a thread of this process.
    pub door: Door,
}

/// A worker that was started here.
pub trait Child {
    /// How it ended; None while it runs. Must not wait.
    fn try_wait(&mut self) -> Option<ChildExit>;
    /// Lets it know that it shall leave, where there is a way beside its connection.
    fn release(&mut self) {}
    /// Ends it now. A thread cannot be killed: it leaves when its connection is closed.
    fn kill(&mut self);
    /// The last lines that it wrote to standard error.
    fn stderr_tail(&self) -> Vec<String>;
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildExit {
    /// `exit code 3`, `signal 9 (SIGKILL)`, `panicked: ...`.
    pub text: String,
    pub signal: Option<i32>,
    /// Code 0.
    pub clean: bool,
}

impl From<ExitStatus> for ChildExit {
    fn from(status: ExitStatus) -> ChildExit {
        let signal = status.signal();
        let text = match (signal, status.code()) {
            (Some(signal), _) => match signal_name(signal) {
                "" => format!("signal {signal}"),
                name => format!("signal {signal} ({name})"),
            },
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => status.to_string(),
        };
        ChildExit { text, signal, clean: status.success() }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT: it gave up",
        libc::SIGBUS => "SIGBUS: memory that is not there, or a full /dev/shm",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL: an instruction that this processor lacks",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU: the limit of processor time",
        libc::SIGXFSZ => "SIGXFSZ: the limit of file sizes",
        _ => "",
    }
}

/// The workers that were started here. Dropped, they are killed.
pub(crate) struct Children {
    seats: Vec<Slot>,
    oom: OomWatch,
}

struct Slot {
    child: Box<dyn Child>,
    exit: Option<ChildExit>,
}

impl Slot {
    /// How it ended, if it has.
    fn look(&mut self, oom: &OomWatch) -> Option<&ChildExit> {
        if self.exit.is_none()
            && let Some(mut exit) = self.child.try_wait()
        {
            if exit.signal == Some(libc::SIGKILL) {
                exit.text.push_str(if oom.has_struck() {
                    "; the kernel has just killed for lack of memory"
                } else {
                    "; somebody killed it"
                });
            }
            self.exit = Some(exit);
        }
        self.exit.as_ref()
    }
}

impl Children {
    pub fn new() -> Children {
        Children { seats: Vec::new(), oom: OomWatch::new() }
    }

    pub fn add(&mut self, child: Box<dyn Child>) {
        self.seats.push(Slot { child, exit: None });
    }

    /// Those that ended since the last look.
    pub fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (slot, seat) in self.seats.iter_mut().enumerate() {
            if seat.exit.is_none()
                && let Some(exit) = seat.look(&self.oom)
            {
                let (by_signal, clean) = (exit.signal.is_some(), exit.clean);
                let exit = Exit { text: exit.text.clone(), by_signal, clean };
                events.push(Event::Exited { slot: slot as u32, exit });
            }
        }
        events
    }

    /// How the worker of this slot ended, and its last words.
    pub fn story(&self, slot: u32) -> (Option<String>, Vec<String>) {
        let Some(seat) = self.seats.get(slot as usize) else { return (None, Vec::new()) };
        (seat.exit.as_ref().map(|e| e.text.clone()), seat.child.stderr_tail())
    }

    /// Lets all leave, then kills and reaps those that do not within `grace`. `meanwhile` is
    /// called again and again.
    pub fn shutdown(&mut self, grace: Duration, meanwhile: &mut dyn FnMut()) {
        self.seats.iter_mut().for_each(|s| s.child.release());
        self.wait(grace, meanwhile);
        for seat in self.seats.iter_mut().filter(|s| s.exit.is_none()) {
            seat.child.kill();
        }
        // A killed process is gone as soon as the kernel has freed its memory.
        self.wait(Duration::from_secs(5), meanwhile);
    }

    fn wait(&mut self, limit: Duration, meanwhile: &mut dyn FnMut()) {
        let deadline = Instant::now() + limit;
        meanwhile();
        while !self.all_gone() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            meanwhile();
        }
    }

    fn all_gone(&mut self) -> bool {
        for seat in &mut self.seats {
            seat.look(&self.oom);
        }
        self.seats.iter().all(|s| s.exit.is_some())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        if !self.all_gone() {
            self.shutdown(Duration::ZERO, &mut || {});
        }
    }
}
