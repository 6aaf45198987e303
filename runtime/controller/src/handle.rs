use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Names one very process, whoever has its number later. Whether the number was already another
/// one's is for the caller to see, once it has this.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// None when no process has this number.
    pub fn open(pid: u32) -> Option<ProcessHandle> {
        // SAFETY: takes numbers alone; returns a descriptor of this process's own, or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: it was opened just now, and nobody else has it.
        Some(ProcessHandle(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn has_ended(&self) -> bool {
        self.poll(0) == 1
    }

    /// Returns when the process ends, whose child ever it is.
    pub fn wait(&self) {
        while self.poll(-1) < 0 && Error::last_os_error().kind() == ErrorKind::Interrupted {}
    }

    /// False when it has ended.
    pub fn send(&self, signal: i32) -> bool {
        let none = std::ptr::null::<libc::siginfo_t>();
        let fd = self.0.as_raw_fd();
        // SAFETY: the descriptor is open, and the kernel takes no information for null.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) == 0 }
    }

    fn poll(&self, milliseconds: i32) -> i32 {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        unsafe { libc::poll(&mut poll, 1, milliseconds) }
    }
}
