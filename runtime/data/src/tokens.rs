//! Files of token ids, read with `pread` a window at a time: they may be far larger than memory.

use crate::{DataError, FillError, file};
use monarch_graph::mix::Mix;
use monarch_graph::{DataFile, MixPart, TokenWidth};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Ids of a window must fit an i32 index many times over.
const MAX_WINDOW: u64 = 1 << 30;

/// Files of nothing but ids. Sample i of a file is ids `i * (window + 1) ..`: disjoint, so no id
/// of one split is seen by another. What remains at the end of a file belongs to no sample.
#[derive(Debug)]
pub(crate) struct Tokens {
    files: Vec<Ids>,
    window: u64,
    width: TokenWidth,
    order: Parts,
    samples: u64,
}

#[derive(Debug)]
struct Ids {
    path: String,
    file: File,
}

/// Which window of which file a sample is.
#[derive(Debug)]
enum Parts {
    /// One file after another.
    Joined(Windows),
    /// Parts in turn, each one file after another.
    Mixed { mix: Mix, parts: Vec<Windows> },
}

/// Windows of some files, in order.
#[derive(Debug, Default)]
struct Windows {
    /// File, and how many windows there are up to its end.
    ends: Vec<(usize, u64)>,
}

impl Windows {
    fn add(&mut self, file: usize, windows: u64) {
        let before = self.count();
        self.ends.push((file, before + windows));
    }

    fn count(&self) -> u64 {
        self.ends.last().map_or(0, |e| e.1)
    }

    /// File and window in it of sample `i`.
    fn at(&self, i: u64) -> Option<(usize, u64)> {
        let place = self.ends.partition_point(|e| e.1 <= i);
        let start = place.checked_sub(1).map_or(0, |p| self.ends[p].1);
        self.ends.get(place).map(|e| (e.0, i - start))
    }
}

impl Tokens {
    /// Opens the planned files and verifies them.
    pub(crate) fn open(
        files: &[DataFile],
        window: u64,
        width: TokenWidth,
        mix: &[MixPart],
    ) -> Result<Tokens, DataError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(DataError::Window { window });
        }
        let mut opened = Vec::new();
        let mut windows = Vec::new();
        for planned in files {
            if planned.bytes % width.bytes() != 0 {
                let (path, bytes) = (planned.path.clone(), width.bytes());
                let what = format!("{} bytes are no whole number of ids of {bytes}", planned.bytes);
                return Err(DataError::Tokens { path, what });
            }
            let (path, file) = (planned.path.clone(), file::open_planned(planned)?);
            opened.push(Ids { path, file });
            windows.push(planned.bytes / width.bytes() / (window + 1));
        }
        let gather = |list: &mut dyn Iterator<Item = usize>| {
            let mut out = Windows::default();
            list.for_each(|i| out.add(i, windows.get(i).copied().unwrap_or(0)));
            out
        };
        let (order, samples) = match mix {
            [] => {
                let all = gather(&mut (0..windows.len()));
                let count = all.count();
                (Parts::Joined(all), count)
            }
            parts => {
                let shares: Vec<u32> = parts.iter().map(|p| p.share).collect();
                let mix = Mix::new(&shares);
                let part = |p: &MixPart| gather(&mut p.files.iter().map(|f| *f as usize));
                let parts: Vec<Windows> = parts.iter().map(part).collect();
                let have: Vec<u64> = parts.iter().map(Windows::count).collect();
                let samples = mix.samples(&have);
                (Parts::Mixed { mix, parts }, samples)
            }
        };
        if samples == 0 {
            let path = files.first().map(|f| f.path.clone()).unwrap_or_default();
            return Err(DataError::NoSamples { path });
        }
        Ok(Tokens { files: opened, window, width, order, samples })
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Writes `window` ids of a sample, beginning at its id `shift` (0 ids, 1 next).
    pub(crate) fn fill(&self, sample: u64, shift: u64, out: &mut [i32]) -> Result<(), FillError> {
        let place = match &self.order {
            Parts::Joined(windows) => windows.at(sample),
            Parts::Mixed { mix, parts } => {
                let (part, index) = mix.at(sample);
                parts.get(part).and_then(|p| p.at(index))
            }
        };
        let found = place.and_then(|(file, window)| Some((self.files.get(file)?, window)));
        let Some((ids, window)) = found else {
            let column = if shift == 0 { "ids" } else { "next" };
            return Err(FillError::OutOfRange { column: column.into(), sample, value: -1 });
        };
        let each = self.width.bytes();
        let mut bytes = vec![0; out.len() * each as usize];
        let start = (window * (self.window + 1) + shift) * each;
        ids.file
            .read_exact_at(&mut bytes, start)
            .map_err(|error| FillError::Io { path: ids.path.clone(), error })?;
        match self.width {
            TokenWidth::U16 => {
                for (to, from) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *to = i32::from(u16::from_le_bytes(*from));
                }
            }
            TokenWidth::U32 => {
                for (to, from) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    let id = u32::from_le_bytes(*from);
                    *to = i32::try_from(id).map_err(|_| FillError::OutOfRange {
                        column: "ids".into(),
                        sample,
                        value: i64::from(id),
                    })?;
                }
            }
        }
        Ok(())
    }
}
