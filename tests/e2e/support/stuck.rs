//! A thread that is stopped while the others of its process run on: what a kernel that never ends
//! looks like from outside.

use monarch_pulse::{Page, Phase, Role};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Holds the main thread of a worker in the middle of its work, by the means of debuggers.
pub struct Stuck {
    over: Sender<()>,
    /// The one thread that the kernel obeys in this.
    holder: JoinHandle<()>,
}

impl Stuck {
    /// Stops the main thread of worker process `pid` while it computes; None where that is not
    /// allowed.
    pub fn begin(pid: i32) -> Option<Stuck> {
        let page = page_of(pid)?;
        let (over, is_over) = channel();
        let (begun, has_begun) = channel();
        let holder = std::thread::spawn(move || hold(pid, &page, &begun, &is_over));
        has_begun.recv().ok()?.then_some(Stuck { over, holder })
    }

    /// After the end of the process.
    pub fn end(self) {
        let _ = self.over.send(());
        self.holder.join().expect("no panic");
    }
}

/// The page that a worker shows, by its name among the open files.
pub fn page_of(pid: i32) -> Option<Page> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is_page = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        target.to_string_lossy().starts_with("/memfd:monarch-pulse")
    };
    let entry = files.flatten().find(is_page)?;
    Page::open(pid as u32, entry.file_name().to_str()?.parse().ok()?).ok()
}

fn works(page: &Page) -> bool {
    let streams = page.sample().streams;
    let main = streams.iter().find(|s| s.role == Role::Main);
    main.is_some_and(|s| matches!(s.phase, Phase::Compute | Phase::Update))
}

fn hold(pid: i32, page: &Page, begun: &Sender<bool>, over: &Receiver<()>) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: numbers alone; the process is a worker that the test has started.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, nothing, nothing) } == 0;
    let mut held = false;
    while seized && !held {
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, nothing, nothing) };
        if !stopped(pid) {
            break;
        }
        held = works(page);
        if !held {
            // SAFETY: as above; the thread is stopped.
            unsafe { libc::ptrace(libc::PTRACE_CONT, pid, nothing, nothing) };
            std::thread::yield_now();
        }
    }
    let _ = begun.send(held);
    // Its parent hears of its end once this thread has.
    while held && stopped(pid) {}
    let _ = over.recv();
}

/// Waits until the thread stops (true) or is no more.
fn stopped(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: writes the one number that it is given.
    let found = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    found == pid && libc::WIFSTOPPED(status)
}
