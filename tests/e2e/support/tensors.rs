//! Safetensors files, read and written by hand: the product's own code is what is tested.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Tensors of f32 by name.
#[derive(Debug, Default)]
pub struct Tensors(pub BTreeMap<String, Vec<f32>>);

impl Tensors {
    pub fn read(path: &Path) -> Tensors {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let header: Map<String, Value> =
            serde_json::from_slice(&bytes[8..8 + length]).expect("a header in JSON");
        let data = &bytes[8 + length..];
        let mut tensors = BTreeMap::new();
        for (name, about) in header.iter().filter(|(n, _)| *n != "__metadata__") {
            let [start, end] =
                [0, 1].map(|i| about["data_offsets"][i].as_u64().expect("an offset"));
            if about["dtype"] == "F32" {
                let values = data[start as usize..end as usize].chunks_exact(4);
                let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                tensors.insert(name.clone(), values.map(value).collect());
            }
        }
        Tensors(tensors)
    }

    /// All files of a checkpoint together.
    pub fn of_checkpoint(directory: &Path) -> Tensors {
        let mut all = Tensors::default();
        for entry in std::fs::read_dir(directory).expect("a checkpoint").flatten() {
            if entry.path().extension().is_some_and(|e| e == "safetensors") {
                all.0.extend(Tensors::read(&entry.path()).0);
            }
        }
        all
    }

    #[track_caller]
    pub fn get(&self, name: &str) -> &[f32] {
        self.0.get(name).unwrap_or_else(|| panic!("no `{name}` in {:?}", self.0.keys()))
    }
}

/// A column for a data file: name, dtype, shape, bytes.
pub type Column<'a> = (&'a str, &'a str, &'a [u64], Vec<u8>);

pub fn write(path: &Path, columns: &[Column<'_>]) {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in columns {
        let place = [data.len(), data.len() + bytes.len()];
        header.insert(
            (*name).to_string(),
            json!({ "dtype": dtype, "shape": shape, "data_offsets": place }),
        );
        data.extend_from_slice(bytes);
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    std::fs::write(path, file).expect("a file can be written");
}

pub fn bytes_of_i32(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

pub fn bytes_of_f32(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Largest distance between two tensors, as a share of the largest entry of `right`.
#[track_caller]
pub fn distance(ours: &[f64], right: &[f32]) -> f64 {
    assert_eq!(ours.len(), right.len());
    let largest = right.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
    assert!(largest > 0.0, "nothing to compare with");
    let off = ours.iter().zip(right).map(|(a, b)| (a - f64::from(*b)).abs());
    off.fold(0f64, |m, d| if d.is_finite() { m.max(d) } else { f64::INFINITY }) / largest
}
