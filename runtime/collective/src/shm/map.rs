use crate::CollectiveError;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Page size that offsets into files are rounded to.
pub(super) const PAGE: usize = 4096;
/// Mappings from this size on ask for huge pages.
const HUGE_BYTES: usize = 4 << 20;

/// A mapping of zeros, private or shared; unmapped when dropped.
pub(super) struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Map` is an address range; what is done with it is bounded by the types below, each of
// which says how it avoids or orders concurrent access.
unsafe impl Send for Map {}
// SAFETY: as above: `&Map` gives out nothing but atomics and methods that order access.
unsafe impl Sync for Map {}

impl Map {
    /// Private zeros.
    fn anonymous(bytes: usize) -> io::Result<Map> {
        Map::obtain(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Bytes `offset..offset + bytes` of a file that all ranks map; `offset` in whole pages.
    pub(super) fn shared(file: &File, offset: u64, bytes: usize) -> io::Result<Map> {
        let end = offset.checked_add(bytes as u64);
        if end.is_none_or(|end| end > file.metadata().map_or(0, |m| m.len())) {
            // Touching pages beyond the end of a file would be a bus error.
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is too short"));
        }
        Map::obtain(bytes, libc::MAP_SHARED, file.as_raw_fd(), offset as i64)
    }

    fn obtain(bytes: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Map> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if bytes >= HUGE_BYTES {
            // SAFETY: advice about the range just mapped; it may be refused, which is harmless.
            unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Map { base, bytes })
    }

    /// The 4-byte word at byte `at`; None beyond the mapping or when misaligned.
    pub(super) fn word32(&self, at: usize) -> Option<&AtomicU32> {
        if !at.is_multiple_of(4) || at.checked_add(4)? > self.bytes {
            return None;
        }
        // SAFETY: in bounds and aligned (the base is page-aligned); the mapping lives as long as
        // `self`, every bit pattern is valid, and all parties use atomics on these words.
        Some(unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) })
    }

    /// The 8-byte word at byte `at`; None beyond the mapping or when misaligned.
    pub(super) fn word64(&self, at: usize) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) || at.checked_add(8)? > self.bytes {
            return None;
        }
        // SAFETY: as for `word32`.
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `obtain` got; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The arena of a peer, as this rank sees it: floats that change hands at barriers.
pub(super) struct PeerArena(pub(super) Arc<Map>);

impl PeerArena {
    /// Elements that lie in the mapping.
    fn holds(&self, start: usize, length: usize) -> bool {
        start.checked_add(length).is_some_and(|end| end <= self.0.bytes / 4)
    }

    /// Elements `start..start + length`; None beyond the arena.
    ///
    /// To be called after the first barrier of a collective: for the chunk that this rank owns,
    /// until the second, or for a copy that was staged for this collective. Nobody writes those.
    pub(super) fn read(&self, start: usize, length: usize) -> Option<&[f32]> {
        if !self.holds(start, length) {
            return None;
        }
        // SAFETY: in bounds and aligned; every bit pattern is an f32. By the protocol of
        // `SharedMemory::all_reduce` these elements are this rank's alone between two barriers,
        // or not written before all ranks have met again; the barriers' atomics order the reads
        // with the peer's writes before and after.
        Some(unsafe {
            std::slice::from_raw_parts(self.0.base.as_ptr().cast::<f32>().add(start), length)
        })
    }

    /// Stores `values` from element `start` on; false beyond the arena. To be called between the
    /// two barriers of a collective, for the chunk that this rank owns.
    #[must_use]
    pub(super) fn write(&self, start: usize, values: &[f32]) -> bool {
        if !self.holds(start, values.len()) {
            return false;
        }
        // SAFETY: in bounds, aligned, and this rank's alone for now (see `read`); `values` is this
        // process's own memory, apart from the peer's arena.
        unsafe {
            let to = self.0.base.as_ptr().cast::<f32>().add(start);
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
        }
        true
    }
}

/// A part of an arena of f32, owned like a `Box<[f32]>`: regions never overlap.
pub struct Region {
    map: Arc<Map>,
    /// Elements before the mapping in its arena.
    origin: usize,
    start: usize,
    length: usize,
}

impl Region {
    /// Zeros of this process alone.
    pub fn private(elements: usize) -> Result<Region, CollectiveError> {
        let what = || format!("cannot reserve {elements} f32 for gradients");
        let bytes = elements.checked_mul(4).unwrap_or(usize::MAX / 2);
        let map = Map::anonymous(bytes)
            .map_err(|source| CollectiveError::Memory { what: what(), source })?;
        Ok(Region::of(map, 0, elements))
    }

    /// The one region of a mapping, from which all others are split. It begins `origin` elements
    /// into its arena.
    pub(super) fn of(map: Map, origin: usize, elements: usize) -> Region {
        let length = elements.min(map.bytes / 4);
        Region { map: Arc::new(map), origin, start: 0, length }
    }

    /// Elements before this region in its arena.
    pub(crate) fn offset(&self) -> usize {
        self.origin + self.start
    }

    /// Cuts off the first `elements` (all, if there are fewer).
    #[must_use]
    pub fn split_front(&mut self, elements: usize) -> Region {
        let length = elements.min(self.length);
        let front =
            Region { map: self.map.clone(), origin: self.origin, start: self.start, length };
        self.start += length;
        self.length -= length;
        front
    }
}

impl Deref for Region {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: in bounds by construction (`of` bounds it, `split_front` keeps it).
        // Regions of a mapping are disjoint: `of` takes the mapping by value and makes one, and
        // the others are split from it. Peers write a shared region only while it is lent to
        // `all_reduce` as `&mut`, between its barriers.
        unsafe {
            let base = self.map.base.as_ptr().cast::<f32>();
            std::slice::from_raw_parts(base.add(self.start), self.length)
        }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as for `deref`, and `&mut self` makes the borrow unique.
        unsafe {
            let base = self.map.base.as_ptr().cast::<f32>();
            std::slice::from_raw_parts_mut(base.add(self.start), self.length)
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({}..{})", self.start, self.start + self.length)
    }
}

/// The bytes of floats in this machine's order (little-endian on every machine we run on).
pub fn as_bytes(values: &[f32]) -> &[u8] {
    // SAFETY: f32 has no padding, u8 any alignment; the length in bytes is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

/// The bytes of floats, to be overwritten by those of other floats.
pub fn as_bytes_mut(values: &mut [f32]) -> &mut [u8] {
    let bytes = std::mem::size_of_val(values);
    // SAFETY: as for `as_bytes`; any bytes are valid floats, and the borrow is unique.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes) }
}

/// Sleeps while `*word == seen`, at most `limit`. May wake early.
pub(super) fn futex_wait(word: &AtomicU32, seen: u32, limit: Duration) {
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
pub(super) fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the word is a live, aligned 4-byte atomic.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// Extends the file to `end` bytes and reserves them, so that no later store can fail.
pub(super) fn reserve(file: &File, start: u64, bytes: u64) -> io::Result<()> {
    let (start, bytes) = (start as libc::off_t, bytes as libc::off_t);
    // SAFETY: a plain system call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), start, bytes) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// An anonymous file in memory, gone with its last user.
pub(super) fn memfd(name: &std::ffi::CStr) -> io::Result<File> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: `name` is a valid C string; the call returns a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that nobody else owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
