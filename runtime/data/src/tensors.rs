//! Columns of a safetensors file, read with `pread`: pages are shared by all workers of a host,
//! and a file that shrinks meanwhile is an error rather than a SIGBUS.

use crate::DataError;
use crate::file;
use monarch_graph::{DType, DataFile};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Read at a time when a whole column is scanned.
const SCAN_BYTES: u64 = 1 << 20;

/// How elements are stored; all are read as the type of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    F32,
    I32,
    /// Read as i32, with a check.
    I64,
    /// Read as i32.
    U8,
}

impl Stored {
    fn of(dtype: Dtype) -> Option<Stored> {
        match dtype {
            Dtype::F32 => Some(Stored::F32),
            Dtype::I32 => Some(Stored::I32),
            Dtype::I64 => Some(Stored::I64),
            Dtype::U8 => Some(Stored::U8),
            _ => None,
        }
    }

    pub(crate) fn dtype(self) -> DType {
        if self == Stored::F32 { DType::F32 } else { DType::I32 }
    }

    fn size(self) -> u64 {
        match self {
            Stored::F32 | Stored::I32 => 4,
            Stored::I64 => 8,
            Stored::U8 => 1,
        }
    }

    /// The whole numbers in `bytes`; empty for F32.
    fn integers(self, bytes: &[u8]) -> impl Iterator<Item = i64> {
        let size = if self == Stored::F32 { usize::MAX } else { self.size() as usize };
        bytes.chunks_exact(size).map(move |b| match (self, b) {
            (Stored::I32, &[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])),
            (Stored::I64, b) => b.try_into().map_or(0, i64::from_le_bytes),
            (_, b) => b.first().map_or(0, |&b| i64::from(b)),
        })
    }
}

/// Where a column lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    pub name: String,
    pub stored: Stored,
    /// Lengths after the sample axis.
    pub shape: Vec<u64>,
    /// Of the first sample, from the start of the file.
    offset: u64,
    /// Elements of a sample.
    pub elements: u64,
}

/// An open file of columns.
#[derive(Debug)]
pub(crate) struct TensorFile {
    pub path: String,
    file: File,
    pub rows: u64,
    /// In the order of their names.
    pub columns: Vec<Stripe>,
    /// Tensors of other element types: name and type.
    pub unsupported: Vec<(String, String)>,
}

impl TensorFile {
    /// Opens the file for the planner.
    pub(crate) fn open(path: &Path) -> Result<TensorFile, DataError> {
        let (file, bytes) = file::open(path)?;
        TensorFile::parse(path.display().to_string(), file, bytes)
    }

    /// Opens the file at a worker: its bytes must be the planned ones.
    pub(crate) fn open_planned(planned: &DataFile) -> Result<TensorFile, DataError> {
        let file = file::open_planned(planned)?;
        TensorFile::parse(planned.path.clone(), file, planned.bytes)
    }

    fn parse(path: String, file: File, bytes: u64) -> Result<TensorFile, DataError> {
        let bad = |what: String| DataError::Safetensors { path: path.clone(), what };
        let io = |error| DataError::Io { path: path.clone(), error };
        if bytes < 8 {
            return Err(bad(format!("{bytes} bytes, and the length of its header takes 8")));
        }
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(io)?;
        let length = u64::from_le_bytes(length);
        if length > bytes - 8 || length > MAX_HEADER_BYTES {
            return Err(bad(format!("a header of {length} bytes in a file of {bytes}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact_at(&mut header, 8).map_err(io)?;
        let data_bytes = bytes - 8 - length;
        let metadata = parse_header(&header, data_bytes).map_err(bad)?;
        let mut this =
            TensorFile { path, file, rows: 0, columns: Vec::new(), unsupported: Vec::new() };
        this.add_columns(&metadata, 8 + length)?;
        Ok(this)
    }

    fn add_columns(&mut self, metadata: &Metadata, data: u64) -> Result<(), DataError> {
        let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        let mut first: Option<(String, u64)> = None;
        for (name, info) in tensors {
            let Some((&rows, shape)) = info.shape.split_first() else {
                return Err(DataError::Scalar { path: self.path.clone(), column: name });
            };
            let rows = rows as u64;
            let (first, first_rows) = first.get_or_insert_with(|| (name.clone(), rows));
            if *first_rows != rows {
                return Err(DataError::Rows {
                    path: self.path.clone(),
                    column: name,
                    rows,
                    first: first.clone(),
                    first_rows: *first_rows,
                });
            }
            // Before lengths are multiplied: behind a zero any product is valid.
            if rows == 0 {
                return Err(DataError::NoSamples { path: self.path.clone() });
            }
            self.rows = rows;
            match Stored::of(info.dtype) {
                None => self.unsupported.push((name, format!("{:?}", info.dtype))),
                Some(stored) => self.columns.push(Stripe {
                    name,
                    stored,
                    elements: shape.iter().map(|&n| n as u64).product(),
                    shape: shape.iter().map(|&n| n as u64).collect(),
                    offset: data + info.data_offsets.0 as u64,
                }),
            }
        }
        if self.rows == 0 {
            return Err(DataError::NoSamples { path: self.path.clone() });
        }
        Ok(())
    }

    /// Reads samples `start..start + count` of a column into `bytes` (resized to fit).
    pub(crate) fn read(
        &self,
        stripe: &Stripe,
        start: u64,
        count: u64,
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        let row = stripe.elements * stripe.stored.size();
        bytes.resize((count * row) as usize, 0);
        self.file.read_exact_at(bytes, stripe.offset + start * row)
    }

    /// Smallest and largest value of a column of whole numbers; None for f32 or no elements.
    pub(crate) fn range(&self, stripe: &Stripe) -> Result<Option<(i32, i32)>, DataError> {
        if stripe.stored == Stored::F32 || stripe.elements == 0 {
            return Ok(None);
        }
        let row = stripe.elements * stripe.stored.size();
        let block = (SCAN_BYTES / row).max(1);
        let (mut low, mut high) = (i32::MAX, i32::MIN);
        let mut bytes = Vec::new();
        let mut start = 0;
        while start < self.rows {
            let count = block.min(self.rows - start);
            self.read(stripe, start, count, &mut bytes)
                .map_err(|error| DataError::Io { path: self.path.clone(), error })?;
            for (i, value) in stripe.stored.integers(&bytes).enumerate() {
                let value = i32::try_from(value).map_err(|_| DataError::OutOfRange {
                    path: self.path.clone(),
                    column: stripe.name.clone(),
                    sample: start + i as u64 / stripe.elements,
                    value,
                })?;
                (low, high) = (low.min(value), high.max(value));
            }
            start += count;
        }
        Ok(Some((low, high)))
    }
}

/// Copies F32 bytes.
pub(crate) fn floats(bytes: &[u8], out: &mut [f32]) {
    for (to, from) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *to = f32::from_le_bytes(*from);
    }
}

/// Copies whole numbers; the index and value of the first that `accept` refuses.
pub(crate) fn integers(
    stored: Stored,
    bytes: &[u8],
    out: &mut [i32],
    accept: impl Fn(i64) -> bool,
) -> Result<(), (usize, i64)> {
    for (i, (to, value)) in out.iter_mut().zip(stored.integers(bytes)).enumerate() {
        match i32::try_from(value) {
            Ok(small) if accept(value) => *to = small,
            _ => return Err((i, value)),
        }
    }
    Ok(())
}

/// Parses a header; its tensors must tile the `data_bytes` that follow it.
fn parse_header(header: &[u8], data_bytes: u64) -> Result<Metadata, String> {
    let text = std::str::from_utf8(header)
        .map_err(|e| format!("its header is not UTF-8 at byte {}", e.valid_up_to()))?;
    let metadata: Metadata =
        serde_json::from_str(text).map_err(|e| format!("its header cannot be read: {e}"))?;
    let described = metadata.data_len() as u64;
    if described != data_bytes {
        return Err(format!(
            "its header describes {described} bytes of data, {data_bytes} follow (truncated?)"
        ));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holes_and_overlaps_are_refused() {
        let tensor = |a: u64, b: u64| {
            format!(r#"{{"x":{{"dtype":"U8","shape":[{}],"data_offsets":[{a},{b}]}}}}"#, b - a)
        };
        assert!(parse_header(tensor(0, 4).as_bytes(), 4).is_ok());
        assert!(parse_header(tensor(0, 4).as_bytes(), 5).unwrap_err().contains("truncated"));
        assert!(parse_header(tensor(1, 4).as_bytes(), 4).is_err());
        let huge = r#"{"x":{"dtype":"F32","shape":[18446744073709551615,9],"data_offsets":[0,4]}}"#;
        assert!(parse_header(huge.as_bytes(), 4).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic(
            bytes: Vec<u8>,
            a: u64, b: u64, n: u64,
            dtype in "F32|I32|I64|U8|F4|X",
        ) {
            let _ = parse_header(&bytes, a);
            let text = format!(
                r#"{{"x":{{"dtype":"{dtype}","shape":[{n},{a}],"data_offsets":[{a},{b}]}}}}"#
            );
            let _ = parse_header(text.as_bytes(), b);
        }

        #[test]
        fn arbitrary_files_never_panic(bytes: Vec<u8>, length in 0u64..100, raw: bool) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.safetensors");
            let mut content = if raw { Vec::new() } else { length.to_le_bytes().to_vec() };
            content.extend(&bytes);
            std::fs::write(&path, content).unwrap();
            let _ = TensorFile::open(&path);
        }
    }
}
