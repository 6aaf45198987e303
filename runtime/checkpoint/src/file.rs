//! Safetensors files: written in one pass with their hash, read tensor by tensor.

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Elements converted at a time.
const BLOCK: usize = 1 << 14;

/// A tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedTensor {
    pub name: String,
    pub shape: Vec<u64>,
    /// Row-major.
    pub values: Vec<f32>,
}

/// What a file says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorHead {
    pub name: String,
    pub shape: Vec<u64>,
    /// As safetensors names it: `F32`.
    pub dtype: String,
}

/// Why a safetensors file cannot be read.
#[derive(Debug)]
pub enum FileError {
    Io {
        path: String,
        error: io::Error,
    },
    /// Not a safetensors file, or a damaged one.
    Damaged {
        path: String,
        what: String,
    },
    /// The file has no such tensor.
    NoTensor {
        path: String,
        name: String,
    },
    /// Weights are floating-point numbers of at most 64 bits and at least 16.
    NotFloat {
        path: String,
        name: String,
        dtype: String,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Io { path, error } => write!(f, "cannot read `{path}`: {error}"),
            FileError::Damaged { path, what } => {
                write!(f, "`{path}` is not a whole safetensors file: {what}")
            }
            FileError::NoTensor { path, name } => write!(f, "`{path}` has no tensor `{name}`"),
            FileError::NotFloat { path, name, dtype } => write!(
                f,
                "tensor `{name}` of `{path}` holds {dtype}; weights are F64, F32, BF16 or F16"
            ),
        }
    }
}

impl std::error::Error for FileError {}

/// Names, shapes and types in a safetensors file, sorted by name. Reads the header only.
pub fn tensor_heads(path: &Path) -> Result<Vec<TensorHead>, FileError> {
    Ok(TensorFile::open(path)?.heads)
}

/// Reads tensors of a safetensors file (F64, F32, BF16 or F16) as f32, in the order of `names`.
pub fn load_file_tensors(path: &Path, names: &[&str]) -> Result<Vec<OwnedTensor>, FileError> {
    let file = TensorFile::open(path)?;
    names.iter().map(|name| file.read(name)).collect()
}

/// An open file whose header describes it exactly.
pub(crate) struct TensorFile {
    path: String,
    file: File,
    pub heads: Vec<TensorHead>,
    metadata: Metadata,
    /// Where the data begin.
    data: u64,
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<TensorFile, FileError> {
        let shown = path.display().to_string();
        let io = |error| FileError::Io { path: shown.clone(), error };
        let bad = |what: String| FileError::Damaged { path: shown.clone(), what };
        let file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if !meta.is_file() {
            return Err(bad("not a regular file".into()));
        }
        let bytes = meta.len();
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
        let metadata = parse_header(&header, bytes - 8 - length).map_err(bad)?;
        let mut heads: Vec<TensorHead> = metadata
            .tensors()
            .into_iter()
            .map(|(name, info)| TensorHead {
                name,
                shape: info.shape.iter().map(|&n| n as u64).collect(),
                dtype: format!("{:?}", info.dtype),
            })
            .collect();
        heads.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(TensorFile { path: shown, file, heads, metadata, data: 8 + length })
    }

    pub(crate) fn read(&self, name: &str) -> Result<OwnedTensor, FileError> {
        let (path, name) = (|| self.path.clone(), name.to_string());
        let Some(info) = self.metadata.info(&name) else {
            return Err(FileError::NoTensor { path: path(), name });
        };
        let Some(size) = float_bytes(info.dtype) else {
            let dtype = format!("{:?}", info.dtype);
            return Err(FileError::NotFloat { path: path(), name, dtype });
        };
        let (start, end) = info.data_offsets;
        let mut values = vec![0.0; (end - start) / size];
        let mut offset = self.data + start as u64;
        let mut bytes = vec![0; size * BLOCK.min(values.len())];
        for block in values.chunks_mut(BLOCK) {
            let part = &mut bytes[..size * block.len()];
            self.file
                .read_exact_at(part, offset)
                .map_err(|error| FileError::Io { path: path(), error })?;
            to_f32(info.dtype, part, block);
            offset += part.len() as u64;
        }
        Ok(OwnedTensor { name, shape: info.shape.iter().map(|&n| n as u64).collect(), values })
    }

    /// Hash of the whole file.
    pub(crate) fn sha256(&self) -> io::Result<[u8; 32]> {
        sha256_of(&self.file)
    }
}

/// Bytes of an element that weights may have.
fn float_bytes(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::F64 => Some(8),
        Dtype::F32 => Some(4),
        Dtype::BF16 | Dtype::F16 => Some(2),
        _ => None,
    }
}

/// The nearest f32 of each element; exact but for F64.
fn to_f32(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F64 => {
            for (to, from) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *to = f64::from_le_bytes(*from) as f32;
            }
        }
        Dtype::F32 => {
            for (to, from) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *to = f32::from_le_bytes(*from);
            }
        }
        _ => {
            for (to, from) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                let bits = u16::from_le_bytes(*from);
                *to = match dtype {
                    Dtype::BF16 => f32::from_bits(u32::from(bits) << 16),
                    _ => from_f16(bits),
                };
            }
        }
    }
}

/// IEEE 754 binary16.
fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, mantissa) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    match exponent {
        0 => f32::from_bits(sign | (mantissa as f32 / 16_777_216.0).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | mantissa << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | mantissa << 13),
    }
}

/// Hash of a file from its beginning, by `pread`, in constant memory.
pub(crate) fn sha256_of(file: &File) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
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

/// Length and header of a file of float32 tensors, in the order given; None when a name repeats,
/// is the one that the format reserves, or sizes overflow.
pub(crate) fn header(tensors: &[(&str, &[u64])]) -> Option<Vec<u8>> {
    let mut names = BTreeSet::from(["__metadata__"]);
    let mut sharding = Map::new();
    let mut entries = Map::new();
    entries.insert("__metadata__".into(), Value::Null);
    let mut start = 0u64;
    for (name, shape) in tensors {
        if !names.insert(name) {
            return None;
        }
        let bytes = shape.iter().try_fold(4u64, |n, &length| n.checked_mul(length))?;
        let end = start.checked_add(bytes)?;
        let zeros = vec![0; shape.len()];
        sharding.insert(name.to_string(), json!({ "saved_offsets": zeros }));
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        entries.insert(name.to_string(), entry);
        start = end;
    }
    let metadata = json!({
        "DCP_SHARDING_INFO": Value::Object(sharding).to_string(),
        "DCP_VERSION": "1.0",
        "format": "pt",
    });
    entries.insert("__metadata__".into(), metadata);
    let mut text = Value::Object(entries).to_string().into_bytes();
    // Data aligned to 8 bytes, as the format asks; spaces are part of the header.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    Some(header)
}

/// Calls `take` with the values as little-endian bytes, block by block.
pub(crate) fn each_block<E>(
    values: &[f32],
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = vec![0; 4 * BLOCK.min(values.len())];
    for block in values.chunks(BLOCK) {
        let part = &mut bytes[..4 * block.len()];
        for (to, from) in part.as_chunks_mut::<4>().0.iter_mut().zip(block) {
            *to = from.to_le_bytes();
        }
        take(part)?;
    }
    Ok(())
}

/// A file that hashes what it writes.
pub(crate) struct HashingFile {
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl HashingFile {
    /// Makes a file that must not exist yet.
    pub(crate) fn create(path: &Path) -> io::Result<HashingFile> {
        let file = File::options().write(true).create_new(true).open(path)?;
        Ok(HashingFile { file, hasher: Sha256::new(), bytes: 0 })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Waits until the disk has it; size and hash.
    pub(crate) fn finish(self) -> io::Result<(u64, [u8; 32])> {
        self.file.sync_all()?;
        Ok((self.bytes, self.hasher.finalize().into()))
    }
}

/// Reads at most `limit` bytes of a file.
pub(crate) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("larger than {limit} bytes"),
        ));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_are_what_pytorch_expects() {
        let bytes = header(&[("a.w", &[2, 3]), ("b", &[])]).unwrap();
        assert_eq!(bytes.len() % 8, 0);
        let value: Value = serde_json::from_slice(&bytes[8..]).unwrap();
        assert_eq!(value["b"]["data_offsets"], json!([24, 28]));
        let info = value["__metadata__"]["DCP_SHARDING_INFO"].as_str().unwrap();
        let info: Value = serde_json::from_str(info).unwrap();
        assert_eq!(info["a.w"]["saved_offsets"], json!([0, 0]));
        assert_eq!(info["b"]["saved_offsets"], json!([]));
        assert!(parse_header(&bytes[8..], 28).is_ok());
        assert!(header(&[("a", &[1]), ("a", &[1])]).is_none());
        assert!(header(&[("__metadata__", &[1])]).is_none());
        assert!(header(&[("a", &[u64::MAX, 2])]).is_none());
        assert!(parse_header(&header(&[]).unwrap()[8..], 0).is_ok());
    }

    #[test]
    fn narrow_floats_are_read_exactly() {
        let f16 = [0x3c00, 0xc000, 0x0001, 0x8000, 0x7bff, 0x7c00, 0x2e66];
        let want = [1.0, -2.0, 5.960_464_5e-8, -0.0, 65_504.0, f32::INFINITY, 0.099_975_586];
        for (bits, want) in f16.into_iter().zip(want) {
            assert_eq!(from_f16(bits).to_bits(), f32::to_bits(want), "{bits:04x}");
        }
        assert!(from_f16(0x7e00).is_nan());
        let mut out = [0.0; 2];
        to_f32(Dtype::BF16, &[0xcd, 0xbd, 0x80, 0x3f], &mut out);
        assert_eq!(out, [f32::from_bits(0xbdcd_0000), 1.0]);
        to_f32(Dtype::F64, &0.1f64.to_le_bytes(), &mut out[..1]);
        assert_eq!(out[0], 0.1);
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(bytes: Vec<u8>, length in 0u64..100, raw: bool) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.safetensors");
            let mut content = if raw { Vec::new() } else { length.to_le_bytes().to_vec() };
            content.extend(&bytes);
            std::fs::write(&path, content).unwrap();
            let _ = tensor_heads(&path);
        }

        #[test]
        fn damaged_headers_never_panic(at in 0usize..200, byte: u8, n: u64) {
            let mut bytes = header(&[("a.w", &[2, 3]), ("b", &[n % 9])]).unwrap();
            bytes.extend(vec![0; 24 + 4 * (n % 9) as usize]);
            let at = at % bytes.len();
            bytes[at] = byte;
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.safetensors");
            std::fs::write(&path, bytes).unwrap();
            if let Ok(file) = TensorFile::open(&path) {
                for head in &file.heads {
                    let _ = file.read(&head.name);
                }
            }
        }
    }
}
