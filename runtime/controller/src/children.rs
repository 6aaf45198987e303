use crate::config::RunConfig;
use crate::handle::ProcessHandle;
use crate::journal::{self, ChildMark};
use crate::link::{Door, Input};
use crate::oom::OomWatch;
use monarch_net::ClusterKey;
use monarch_sched::{Event, Exit};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Starts workers: processes, or threads of this one.
pub trait Launcher {
    /// Starts worker number `seat.slot`, which then connects and says that number in `Hello`.
    fn launch(&mut self, seat: &Seat) -> std::io::Result<Box<dyn Child>>;

    /// Takes over a worker process that a controller before this one has started; None when it
    /// does not live any more.
    fn adopt(&mut self, mark: &ChildMark) -> Option<Box<dyn Child>> {
        let _ = mark;
        None
    }

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
    /// Its number, if it is a process: its end is then noticed at once.
    fn pid(&self) -> Option<u32> {
        None
    }
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
pub(crate) struct Children<'a> {
    launcher: &'a mut dyn Launcher,
    inbox: Sender<Input>,
    address: Option<SocketAddr>,
    key: Option<ClusterKey>,
    job_hash: [u8; 32],
    /// Workers started so far: no two have one number.
    started: u64,
    seats: Vec<Slot>,
}

struct Slot {
    child: Box<dyn Child>,
    exit: Option<ChildExit>,
    oom: Option<OomWatch>,
    /// The kernel took its life for its memory.
    is_out_of_memory: bool,
    /// Process and last words of the one that was here before.
    before: Option<(u32, Vec<String>)>,
}

impl Slot {
    fn new(child: Box<dyn Child>, before: Option<(u32, Vec<String>)>) -> Slot {
        let oom = child.pid().map(OomWatch::of);
        Slot { child, exit: None, oom, is_out_of_memory: false, before }
    }

    /// Whether its end was its own doing, and may come again.
    fn has_crashed(&self) -> bool {
        let Some(exit) = &self.exit else { return false };
        match exit.signal {
            Some(libc::SIGKILL) => self.is_out_of_memory,
            Some(libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT) => false,
            Some(_) => true,
            None => !exit.clean,
        }
    }

    /// How it ended, if it has.
    fn look(&mut self) -> Option<&ChildExit> {
        if self.exit.is_none()
            && let Some(mut exit) = self.child.try_wait()
        {
            if exit.signal == Some(libc::SIGKILL) {
                self.is_out_of_memory = self.oom.as_ref().is_some_and(OomWatch::has_struck);
                exit.text.push_str(if self.is_out_of_memory {
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

impl<'a> Children<'a> {
    pub fn new(
        config: &RunConfig,
        launcher: &'a mut dyn Launcher,
        inbox: Sender<Input>,
        address: Option<SocketAddr>,
    ) -> Children<'a> {
        Children {
            launcher,
            inbox,
            address,
            key: config.network.as_ref().map(|n| n.key.clone()),
            job_hash: config.job_hash,
            started: 0,
            seats: Vec::new(),
        }
    }

    /// Starts all that the launcher is asked for, but for those that live; the number of the one
    /// that failed. Returns the slots of those that were taken over.
    pub fn start_all(&mut self, living: &[ChildMark]) -> Result<Vec<u32>, (u32, std::io::Error)> {
        let mut adopted = Vec::new();
        for slot in 0..self.launcher.count() {
            let before = living.iter().find(|mark| mark.slot == slot);
            let child = match before.and_then(|mark| self.launcher.adopt(mark)) {
                Some(child) => {
                    adopted.push(slot);
                    child.pid().inspect(|pid| watch(*pid, self.inbox.clone()));
                    child
                }
                None => self.launch(slot).map_err(|error| (slot, error))?,
            };
            self.seats.push(Slot::new(child, None));
        }
        Ok(adopted)
    }

    /// The processes of this moment, for a controller that takes them over.
    pub fn marks(&self) -> Vec<ChildMark> {
        let mark = |(slot, seat): (u32, &Slot)| {
            let pid = seat.child.pid().filter(|_| seat.exit.is_none())?;
            Some(ChildMark { slot, pid, started: journal::started(pid)? })
        };
        (0..).zip(&self.seats).filter_map(mark).collect()
    }

    /// Starts another worker in the place of one that has ended.
    pub fn replace(&mut self, slot: u32) -> std::io::Result<()> {
        let child = self.launch(slot)?;
        if let Some(seat) = self.seats.get_mut(slot as usize) {
            let before = seat.child.pid().map(|pid| (pid, seat.child.stderr_tail()));
            *seat = Slot::new(child, before);
        }
        Ok(())
    }

    fn launch(&mut self, slot: u32) -> std::io::Result<Box<dyn Child>> {
        let door = Door::numbered(self.inbox.clone(), self.started);
        self.started += 1;
        let (key, job_hash) = (self.key.clone(), self.job_hash);
        let child =
            self.launcher.launch(&Seat { slot, address: self.address, key, job_hash, door })?;
        if let Some(pid) = child.pid() {
            watch(pid, self.inbox.clone());
        }
        Ok(child)
    }

    /// Ends this process, which is not counted on any more, unless another one is in its slot.
    pub fn kill(&mut self, slot: u32, pid: u32) {
        let seat = self.seats.get_mut(slot as usize);
        if let Some(seat) = seat.filter(|s| s.child.pid().is_none_or(|p| p == pid)) {
            seat.child.kill();
        }
    }

    /// Those that ended since the last look.
    pub fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (slot, seat) in self.seats.iter_mut().enumerate() {
            if seat.exit.is_none()
                && let Some(exit) = seat.look()
            {
                let (by_signal, clean) = (exit.signal.is_some(), exit.clean);
                let exit = Exit { text: exit.text.clone(), by_signal, clean };
                if seat.has_crashed() {
                    events.push(Event::Crashed { slot: slot as u32 });
                }
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

    /// The same of this very process, whoever is in its slot by now.
    pub fn story_of(&self, slot: u32, pid: u32) -> (Option<String>, Vec<String>) {
        let Some(seat) = self.seats.get(slot as usize) else { return (None, Vec::new()) };
        if seat.child.pid().is_none_or(|p| p == pid) {
            return self.story(slot);
        }
        let before = seat.before.as_ref().filter(|(p, _)| *p == pid);
        (None, before.map(|(_, words)| words.clone()).unwrap_or_default())
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
            seat.look();
        }
        self.seats.iter().all(|s| s.exit.is_some())
    }
}

/// Wakes the event loop when a process ends, which it then looks at itself.
fn watch(pid: u32, inbox: Sender<Input>) {
    let wait = move || {
        // SAFETY: all zeros are a valid value of this plain struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let how = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` outlives the call, which leaves the process to be reaped by its owner.
        while unsafe { libc::waitid(libc::P_PID, pid, &mut info, how) } != 0 {
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                // Not a child of this process.
                ProcessHandle::open(pid).inspect(ProcessHandle::wait);
                break;
            }
        }
        // Nobody listens any more once the run is over.
        let _ = inbox.send(Input::ChildEnded);
    };
    let thread = std::thread::Builder::new().name("watch".into()).stack_size(64 << 10);
    // Without it, the end is noticed at the next tick.
    let _ = thread.spawn(wait);
}

impl Drop for Children<'_> {
    fn drop(&mut self) {
        if !self.all_gone() {
            self.shutdown(Duration::ZERO, &mut || {});
        }
    }
}
