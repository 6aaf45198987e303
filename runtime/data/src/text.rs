//! Windows of characters.

use crate::DataError;
use crate::file;
use monarch_graph::DataFile;
use std::collections::BTreeSet;
use std::path::Path;

/// Ids of a window must fit an i32 index many times over.
const MAX_WINDOW: u64 = 1 << 30;

/// Joined files as token ids, cut into windows of `window` + 1 characters, side by side. Sample i
/// is characters `i * (window + 1) ..`: disjoint, so no character of one split is seen by another.
/// What remains at the end is shorter than a window and belongs to no sample.
#[derive(Debug)]
pub(crate) struct Text {
    ids: Ids,
    window: u64,
}

/// Half the memory for every vocabulary that is not enormous.
#[derive(Debug)]
enum Ids {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

/// What the planner learns of a text.
#[derive(Debug)]
pub(crate) struct TextFacts {
    pub files: Vec<DataFile>,
    pub vocabulary: Vec<char>,
    pub characters: u64,
}

/// Number of full windows.
pub(crate) fn samples(characters: u64, window: u64) -> Result<u64, DataError> {
    if window == 0 || window > MAX_WINDOW {
        return Err(DataError::Window { window });
    }
    match characters / (window + 1) {
        0 => Err(DataError::ShortText { characters, window }),
        n => Ok(n),
    }
}

/// Reads all files: hashes, the sorted distinct characters, and how many characters there are.
pub(crate) fn facts(paths: &[impl AsRef<Path>]) -> Result<TextFacts, DataError> {
    if paths.is_empty() {
        return Err(DataError::NoFiles);
    }
    let mut seen = BTreeSet::new();
    let mut ascii = [false; 128];
    let mut found = TextFacts { files: Vec::new(), vocabulary: Vec::new(), characters: 0 };
    for path in paths {
        let (planned, content) = file::describe_and_read(path.as_ref())?;
        for c in decode(&planned.path, &content)?.chars() {
            found.characters += 1;
            match ascii.get_mut(c as usize) {
                Some(flag) => *flag = true,
                None => {
                    seen.insert(c);
                }
            }
        }
        found.files.push(planned);
    }
    let ascii = (0u8..128).zip(ascii).filter(|(_, seen)| *seen).map(|(b, _)| char::from(b));
    found.vocabulary = ascii.chain(seen).collect();
    Ok(found)
}

impl Text {
    /// Reads the planned files and verifies them; ids are places in `vocabulary`, which is sorted.
    pub(crate) fn open(
        files: &[DataFile],
        window: u64,
        vocabulary: &[char],
    ) -> Result<Text, DataError> {
        let mut ids = if vocabulary.len() <= 1 << 16 {
            Ids::Narrow(Vec::new())
        } else {
            Ids::Wide(Vec::new())
        };
        let id_of = |c: char| vocabulary.binary_search(&c).ok().map(|i| i as u32);
        let ascii: Vec<Option<u32>> = (0u8..128).map(|b| id_of(char::from(b))).collect();
        for planned in files {
            let content = file::read_planned(planned)?;
            let text = decode(&planned.path, &content)?;
            ids.reserve(text.len());
            for c in text.chars() {
                let id = ascii.get(c as usize).copied().unwrap_or_else(|| id_of(c));
                ids.push(id.ok_or_else(|| DataError::Vocabulary {
                    path: planned.path.clone(),
                    character: c,
                })?);
            }
        }
        ids.shrink();
        let text = Text { ids, window };
        samples(text.characters(), window)?;
        Ok(text)
    }

    fn characters(&self) -> u64 {
        match &self.ids {
            Ids::Narrow(ids) => ids.len() as u64,
            Ids::Wide(ids) => ids.len() as u64,
        }
    }

    pub(crate) fn samples(&self) -> u64 {
        self.characters() / (self.window + 1)
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Writes `window` ids of a sample, beginning at its character `shift` (0 ids, 1 next).
    pub(crate) fn fill(&self, sample: u64, shift: u64, out: &mut [i32]) {
        let start = (sample * (self.window + 1) + shift) as usize;
        let end = start + out.len();
        match &self.ids {
            Ids::Narrow(ids) => copy(ids.get(start..end), out),
            Ids::Wide(ids) => copy(ids.get(start..end), out),
        }
    }
}

fn copy<T: Copy + TryInto<i32>>(ids: Option<&[T]>, out: &mut [i32]) {
    for (to, &id) in out.iter_mut().zip(ids.unwrap_or_default()) {
        *to = id.try_into().unwrap_or(i32::MAX);
    }
}

impl Ids {
    fn push(&mut self, id: u32) {
        match self {
            Ids::Narrow(ids) => ids.push(id as u16),
            Ids::Wide(ids) => ids.push(id),
        }
    }

    fn reserve(&mut self, more: usize) {
        match self {
            Ids::Narrow(ids) => ids.reserve(more),
            Ids::Wide(ids) => ids.reserve(more),
        }
    }

    fn shrink(&mut self) {
        match self {
            Ids::Narrow(ids) => ids.shrink_to_fit(),
            Ids::Wide(ids) => ids.shrink_to_fit(),
        }
    }
}

fn decode<'a>(path: &str, content: &'a [u8]) -> Result<&'a str, DataError> {
    std::str::from_utf8(content).map_err(|error| DataError::NotUtf8 {
        path: path.to_string(),
        offset: error.valid_up_to() as u64,
    })
}
