//! What the planner must know of a data set before a run exists.

use crate::chat::Packs;
use crate::dataset::{DIGITS_X, DIGITS_Y};
use crate::tensors::TensorFile;
use crate::{Cut, DataError, Digits, cut, file, records, text};
use monarch_graph::{DType, Source, Split};
use std::path::PathBuf;

/// A source as the program names it, its paths resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSpec {
    Digits,
    /// A safetensors file.
    Tensors {
        path: PathBuf,
    },
    /// UTF-8 files joined in this order, cut into windows of `window` + 1 characters.
    Text {
        paths: Vec<PathBuf>,
        window: u64,
    },
}

/// A column that a program may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFact {
    pub name: String,
    /// I64 and U8 tensors are read as i32.
    pub dtype: DType,
    /// Lengths after the sample axis.
    pub shape: Vec<u64>,
    /// Smallest and largest value of a column of whole numbers, over all samples: ids beyond a
    /// vocabulary are found before a run.
    pub range: Option<(i32, i32)>,
}

/// A tensor of the file that cannot be a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    pub name: String,
    /// Its element type, as safetensors names it.
    pub dtype: String,
}

/// All that the planner learns.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// With sizes and hashes of the files: goes into the plan as it is.
    pub source: Source,
    pub samples: u64,
    pub columns: Vec<ColumnFact>,
    pub unused: Vec<Unused>,
    /// Sorted distinct characters of a text; its length is V. Empty for other sources.
    pub vocabulary: Vec<char>,
    pub splits: Vec<Split>,
    /// Characters at the end of a text that fill no window.
    pub left_over: u64,
}

/// Reads a source whole, once, and says what is in it. Depends on nothing but the bytes.
pub fn facts(spec: &SourceSpec, cuts: &[Cut]) -> Result<Facts, DataError> {
    match spec {
        SourceSpec::Digits => digits(cuts),
        SourceSpec::Tensors { path } => {
            // Hashed before it is read: a file that changes in between differs at the workers.
            let planned = file::describe(path)?;
            let tensors = TensorFile::open(path)?;
            let mut columns = Vec::new();
            for stripe in &tensors.columns {
                columns.push(ColumnFact {
                    name: stripe.name.clone(),
                    dtype: stripe.stored.dtype(),
                    shape: stripe.shape.clone(),
                    range: tensors.range(stripe)?,
                });
            }
            let unused = tensors.unsupported.iter();
            let unused = unused.map(|(n, d)| Unused { name: n.clone(), dtype: d.clone() });
            Ok(Facts {
                source: Source::Tensors { file: planned },
                samples: tensors.rows,
                columns,
                unused: unused.collect(),
                vocabulary: Vec::new(),
                splits: cut(tensors.rows, cuts)?,
                left_over: 0,
            })
        }
        SourceSpec::Text { paths, window } => of_text(paths, *window, cuts),
    }
}

fn digits(cuts: &[Cut]) -> Result<Facts, DataError> {
    let digits = Digits::bundled().map_err(DataError::Digits)?;
    let column = |name: &str, dtype, shape, range| ColumnFact {
        name: name.to_string(),
        dtype,
        shape,
        range,
    };
    Ok(Facts {
        source: Source::Digits,
        samples: digits.samples(),
        columns: vec![
            column(DIGITS_X, DType::F32, vec![64], None),
            column(DIGITS_Y, DType::I32, Vec::new(), Some((0, 9))),
        ],
        unused: Vec::new(),
        vocabulary: Vec::new(),
        splits: cut(digits.samples(), cuts)?,
        left_over: 0,
    })
}

fn of_text(paths: &[PathBuf], window: u64, cuts: &[Cut]) -> Result<Facts, DataError> {
    let found = text::facts(paths)?;
    let samples = text::samples(found.characters, window)?;
    let range = Some((0, found.vocabulary.len().saturating_sub(1) as i32));
    let column = |name: &str| ColumnFact {
        name: name.to_string(),
        dtype: DType::I32,
        shape: vec![window],
        range,
    };
    Ok(Facts {
        source: Source::Text { files: found.files, window, vocabulary: found.vocabulary.clone() },
        samples,
        columns: vec![column("ids"), column("next")],
        unused: Vec::new(),
        vocabulary: found.vocabulary,
        splits: cut(samples, cuts)?,
        left_over: found.characters - samples * (window + 1),
    })
}

/// What there is to know about records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFacts {
    /// Samples: records, or packs of conversations.
    pub samples: u64,
    /// Ids lie below this; None for records that are no text.
    pub vocabulary: Option<u64>,
}

/// Reads the files of a [`Source::Records`], which must be the planned ones, and counts.
pub fn record_facts(source: &Source) -> Result<RecordFacts, DataError> {
    let Source::Records { files, format, fields, chat } = source else {
        return Err(DataError::NoFiles);
    };
    match chat {
        Some(chat) => {
            let packs = Packs::open(files, *format, fields, chat)?;
            let vocabulary = Some(packs.vocabulary);
            Ok(RecordFacts { samples: packs.samples(), vocabulary })
        }
        None => {
            let samples = records::read(files, *format, fields)?.rows;
            Ok(RecordFacts { samples, vocabulary: None })
        }
    }
}

/// "`a`, `b` and `c`"
pub(crate) fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_string(),
        [one] => format!("`{one}`"),
        [head @ .., last] => {
            let head: Vec<_> = head.iter().map(|n| format!("`{n}`")).collect();
            format!("{} and `{last}`", head.join(", "))
        }
    }
}
