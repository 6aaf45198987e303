//! System calls that the standard library does not have.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `*word == seen`, at most `limit`. May wake early. Works across processes, also
/// through a mapping for reading only.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
    };
    // SAFETY: the word is a live, aligned 4-byte atomic and `limit` outlives the call. Every
    // result (woken, changed, timed out, interrupted) means: look again.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const limit);
    }
}

/// Wakes all who sleep on the word, in every process.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the word is a live, aligned 4-byte atomic.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// The kernel's number for the calling thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no pointers and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// An anonymous file of so many zeros that can neither shrink nor grow any more: whoever maps it
/// can rely on its length.
pub(crate) fn sealed_memory(name: &std::ffi::CStr, bytes: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a valid C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that nobody else owns.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain system call on an open descriptor.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Whether the file's length is fixed for good.
pub(crate) fn is_sealed(file: &File) -> bool {
    // SAFETY: a plain system call on an open descriptor.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Processors that this thread may run on; empty when the kernel does not say.
pub(crate) fn own_processors() -> Vec<usize> {
    // SAFETY: all zeros are a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: the call writes at most `bytes` bytes into the set.
    if unsafe { libc::sched_getaffinity(0, bytes, &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: reads a set of `CPU_SETSIZE` bits at a place below that.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Keeps the calling thread on one processor; it runs anywhere when that is refused.
pub(crate) fn stay_on(cpu: usize) {
    if cpu >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: all zeros are a valid, empty set, and `cpu` is a place within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
    }
}

/// One mapping of a file from its start; unmapped when dropped.
pub(crate) struct Map {
    base: std::ptr::NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range of which nothing but atomics is given out.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// `file` must be at least `bytes` long for as long as the mapping lives.
    pub(crate) fn of(file: &File, bytes: usize, writable: bool) -> io::Result<Map> {
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = std::ptr::NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Map { base, bytes })
    }

    /// Address of byte `at`, for a word of `size` bytes; None beyond the mapping or misaligned.
    pub(crate) fn at(&self, at: usize, size: usize) -> Option<*mut u8> {
        let fits = at.is_multiple_of(size) && at.checked_add(size)? <= self.bytes;
        // SAFETY: within the mapping.
        fits.then(|| unsafe { self.base.as_ptr().add(at) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `of` got; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Equal for processes that find each other's files under /proc and may open them: same boot,
/// user and space of process numbers.
pub fn domain() -> String {
    use std::os::unix::fs::MetadataExt;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = std::fs::metadata("/proc/self").map_or(u32::MAX, |m| m.uid());
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{user}/{}", boot.trim(), space.display())
}
