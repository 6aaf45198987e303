//! Memory of four-byte words: mapped, zeroed, on huge pages where it is large; and the views of
//! it that a kernel gets.

use std::fmt;
use std::ptr::NonNull;

/// From this size on, huge pages are asked for (they are read two to three times faster).
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// The system has no memory left to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        write!(f, "no memory for {mib:.1} MiB: use a smaller batch or more shards")
    }
}

impl std::error::Error for OutOfMemory {}

/// Words that are read as f32 or as i32; zero at first.
#[derive(Debug)]
pub(crate) struct Words {
    at: NonNull<u32>,
    length: usize,
    /// Bytes mapped; 0 for no memory at all.
    mapped: usize,
}

// SAFETY: the mapping belongs to this value alone, and words are plain data.
unsafe impl Send for Words {}
// SAFETY: shared access only reads.
unsafe impl Sync for Words {}

impl Words {
    pub(crate) fn new(length: usize) -> Result<Words, OutOfMemory> {
        if length == 0 {
            return Ok(Words { at: NonNull::dangling(), length, mapped: 0 });
        }
        let bytes = length.checked_mul(4).ok_or(OutOfMemory { bytes: usize::MAX })?;
        let unit = if bytes >= HUGE { HUGE } else { PAGE };
        let mapped = bytes.checked_next_multiple_of(unit).ok_or(OutOfMemory { bytes })?;
        // SAFETY: an anonymous private mapping at an address of the system's choice; its result
        // is checked.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(OutOfMemory { bytes });
        }
        #[cfg(target_os = "linux")]
        if bytes >= HUGE {
            // SAFETY: advice about the mapping just made; a refusal changes nothing.
            unsafe { libc::madvise(at, mapped, libc::MADV_HUGEPAGE) };
        }
        let at = NonNull::new(at.cast()).ok_or(OutOfMemory { bytes })?;
        Ok(Words { at, length, mapped })
    }

    pub(crate) fn f32(&self) -> &[f32] {
        // SAFETY: `length` words are mapped and initialised; any bits are an f32.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.length) }
    }

    pub(crate) fn f32_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.length) }
    }

    pub(crate) fn i32_mut(&mut self) -> &mut [i32] {
        // SAFETY: as above; any bits are an i32.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.length) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: mapped by `new` with this length, and not used any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), self.mapped) };
        }
    }
}

/// A piece of memory that a node reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub area: Area,
    pub start: usize,
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Arena,
    Slab,
    Weight(usize),
    Column(usize),
}

impl Place {
    pub(crate) fn end(self) -> usize {
        self.start + self.length
    }

    pub(crate) fn overlaps(self, other: Place) -> bool {
        self.area == other.area && self.start < other.end() && other.start < self.end()
    }
}

/// All memory of a running lane.
pub(crate) struct Memory<'a> {
    pub arena: &'a mut [f32],
    pub slab: &'a mut [f32],
    pub weights: &'a super::Weights,
    pub columns: &'a super::Columns,
}

/// The result of a node.
pub(crate) struct Output<'m>(&'m mut [f32]);

/// The inputs of a node, none of which overlaps its result.
pub(crate) struct Inputs<'m> {
    arena: (*const f32, usize),
    slab: (*const f32, usize),
    weights: &'m super::Weights,
    columns: &'m super::Columns,
    places: &'m [Place],
}

impl Memory<'_> {
    /// Views of a node's result and inputs.
    ///
    /// # Panics
    /// When the result overlaps an input, lies outside the memory or in read-only memory:
    /// preparing a program refuses that.
    pub(crate) fn open<'m>(
        &'m mut self,
        out: Place,
        places: &'m [Place],
    ) -> (Output<'m>, Inputs<'m>) {
        assert!(places.iter().all(|p| !p.overlaps(out)), "a result on top of its input");
        let (arena, slab) = (self.arena.as_mut_ptr(), self.slab.as_mut_ptr());
        let (base, length) = match out.area {
            Area::Arena => (arena, self.arena.len()),
            Area::Slab => (slab, self.slab.len()),
            Area::Weight(_) | Area::Column(_) => unreachable!("a result in read-only memory"),
        };
        assert!(out.end() <= length, "a result outside its memory");
        // SAFETY: within the area, which `self` borrows exclusively for 'm; the views that
        // `Inputs` gives of the same area do not overlap it, as was checked above.
        let result = unsafe { std::slice::from_raw_parts_mut(base.add(out.start), out.length) };
        let inputs = Inputs {
            arena: (arena, self.arena.len()),
            slab: (slab, self.slab.len()),
            weights: self.weights,
            columns: self.columns,
            places,
        };
        (Output(result), inputs)
    }
}

impl<'m> Output<'m> {
    pub(crate) fn f32(self) -> &'m mut [f32] {
        self.0
    }

    pub(crate) fn i32(self) -> &'m mut [i32] {
        // SAFETY: the same words; any bits are an i32.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len()) }
    }
}

impl<'m> Inputs<'m> {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// # Panics
    /// When the input is not there: preparing a program has counted and measured them.
    pub(crate) fn f32(&self, input: usize) -> &'m [f32] {
        let place = self.places[input];
        let (base, length) = match place.area {
            Area::Arena => self.arena,
            Area::Slab => self.slab,
            Area::Weight(w) => return &self.weights.get(w)[place.start..place.end()],
            Area::Column(c) => return &self.columns.words(c)[place.start..place.end()],
        };
        assert!(place.end() <= length, "an input outside its memory");
        // SAFETY: within the area, which is borrowed for 'm; it does not overlap the only
        // exclusive view, the node's result.
        unsafe { std::slice::from_raw_parts(base.add(place.start), place.length) }
    }

    pub(crate) fn i32(&self, input: usize) -> &'m [i32] {
        let words = self.f32(input);
        // SAFETY: the same words; any bits are an i32.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }
}
