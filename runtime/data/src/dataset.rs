//! An open data set and the samples of a shard.

use crate::chat::Packs;
use crate::digits::PIXELS;
use crate::records::{self, Table, Values};
use crate::tensors::{self, Stripe, TensorFile};
use crate::text::Text;
use crate::tokens::Tokens;
use crate::{DataError, Digits, FillError, Permutation};
use monarch_graph::{self as graph, Column, DType, Field, FieldKind, Source, Split};
use std::ops::Range;
use std::sync::Arc;

pub(crate) const DIGITS_X: &str = "x";
pub(crate) const DIGITS_Y: &str = "y";

/// Seed of the one permutation that separates neighbours in the digits file.
const DIGITS_SEED: u64 = 1797;

/// A data set as planned: files opened and verified.
#[derive(Debug)]
pub struct Dataset {
    store: Store,
    splits: Vec<Split>,
    order: graph::Order,
    seed: u64,
    samples: u64,
}

#[derive(Debug)]
enum Store {
    Digits { digits: Digits, mixed: Permutation },
    Tensors(TensorFile),
    Text(Text),
    Tokens(Tokens),
    Packs(Packs),
    Records { table: Table, fields: Vec<Field> },
}

/// Which of a split's samples stands at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As training takes them in this epoch: the data set's own order, shuffled or not.
    Epoch(u64),
    /// As they stand in the split: for evaluation.
    Stored,
}

/// Where a column's values go: `count * elements per sample` of them, row-major.
#[derive(Debug)]
pub enum ColumnMut<'a> {
    F32(&'a mut [f32]),
    I32(&'a mut [i32]),
}

/// A column's values, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffer {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Dataset {
    /// Opens the data set of a plan: all workers see the bytes that the planner saw, or an error.
    /// `seed` is the plan's.
    pub fn open(data: &graph::Data, seed: u64) -> Result<Dataset, DataError> {
        let store = match &data.source {
            Source::Digits => {
                let digits = Digits::bundled().map_err(DataError::Digits)?;
                let mixed = Permutation::epoch(digits.samples(), DIGITS_SEED, 0);
                Store::Digits { digits, mixed }
            }
            Source::Tensors { file } => Store::Tensors(TensorFile::open_planned(file)?),
            Source::Text { files, window, vocabulary } => {
                if files.is_empty() {
                    return Err(DataError::NoFiles);
                }
                Store::Text(Text::open(files, *window, vocabulary)?)
            }
            Source::Tokens { files, window, width, mix } => {
                Store::Tokens(Tokens::open(files, *window, *width, mix)?)
            }
            Source::Records { files, format, fields, chat: Some(chat) } => {
                Store::Packs(Packs::open(files, *format, fields, chat)?)
            }
            Source::Records { files, format, fields, chat: None } => {
                let table = records::read(files, *format, fields)?;
                Store::Records { table, fields: fields.clone() }
            }
        };
        let samples = match &store {
            Store::Digits { digits, .. } => digits.samples(),
            Store::Tensors(file) => file.rows,
            Store::Text(text) => text.samples(),
            Store::Tokens(tokens) => tokens.samples(),
            Store::Packs(packs) => packs.samples(),
            Store::Records { table, .. } => table.rows,
        };
        for Split { name, start, end } in &data.splits {
            if start >= end || *end > samples {
                let (name, start, end) = (name.clone(), *start, *end);
                return Err(DataError::Split { name, start, end, samples });
            }
        }
        Ok(Dataset { store, splits: data.splits.clone(), order: data.order, seed, samples })
    }

    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub fn split(&self, name: &str) -> Option<&Split> {
        self.splits.iter().find(|s| s.name == name)
    }

    /// The sample of the set at `position` of the split.
    pub fn sample(&self, split: &Split, order: Order, position: u64) -> u64 {
        split.start + self.permutation(split, order).map_or(position, |p| p.at(position))
    }

    fn permutation(&self, split: &Split, order: Order) -> Option<Permutation> {
        match (order, self.order) {
            (Order::Epoch(epoch), graph::Order::Shuffled) => {
                let samples = split.end.saturating_sub(split.start);
                Some(Permutation::epoch(samples, self.seed, epoch))
            }
            _ => None,
        }
    }

    fn names(&self) -> Vec<String> {
        let fixed = |names: [&str; 2]| names.map(str::to_string).to_vec();
        match &self.store {
            Store::Digits { .. } => fixed([DIGITS_X, DIGITS_Y]),
            Store::Text(_) | Store::Tokens(_) => fixed(["ids", "next"]),
            Store::Packs(_) => vec!["ids".into(), "next".into(), "weight".into()],
            Store::Records { fields, .. } => fields.iter().map(|f| f.name.clone()).collect(),
            Store::Tensors(file) => file.columns.iter().map(|c| c.name.clone()).collect(),
        }
    }

    fn find(&self, name: &str) -> Result<(From, DType, Vec<u64>), DataError> {
        let found = match (&self.store, name) {
            (Store::Digits { .. }, DIGITS_X) => {
                Some((From::DigitsX, DType::F32, vec![PIXELS as u64]))
            }
            (Store::Digits { .. }, DIGITS_Y) => Some((From::DigitsY, DType::I32, Vec::new())),
            (Store::Text(t), "ids") => Some((From::Ids(0), DType::I32, vec![t.window()])),
            (Store::Text(t), "next") => Some((From::Ids(1), DType::I32, vec![t.window()])),
            (Store::Tokens(t), "ids") => Some((From::Ids(0), DType::I32, vec![t.window()])),
            (Store::Tokens(t), "next") => Some((From::Ids(1), DType::I32, vec![t.window()])),
            (Store::Packs(p), "ids") => Some((From::Ids(0), DType::I32, vec![p.pack])),
            (Store::Packs(p), "next") => Some((From::Ids(1), DType::I32, vec![p.pack])),
            (Store::Packs(p), "weight") => Some((From::Weights, DType::F32, vec![p.pack])),
            (Store::Records { fields, .. }, _) => {
                let place = fields.iter().position(|f| f.name == name);
                place.and_then(|i| match &fields[i].kind {
                    FieldKind::Float(n) => Some((From::Field(i), DType::F32, n.clone())),
                    FieldKind::Int(n) => Some((From::Field(i), DType::I32, n.clone())),
                    FieldKind::Text => None,
                })
            }
            (Store::Tensors(file), _) => {
                if let Some((_, dtype)) = file.unsupported.iter().find(|(n, _)| n == name) {
                    let column = name.to_string();
                    return Err(DataError::Unsupported { column, dtype: dtype.clone() });
                }
                let stripe = file.columns.iter().find(|c| c.name == name);
                stripe.map(|s| (From::Stripe(s.clone()), s.stored.dtype(), s.shape.clone()))
            }
            _ => None,
        };
        found.ok_or_else(|| DataError::NoColumn {
            column: name.to_string(),
            available: self.names(),
        })
    }
}

/// The columns that one program reads, found in the data set once.
#[derive(Clone, Debug)]
pub struct Reader {
    data: Arc<Dataset>,
    columns: Vec<Bound>,
}

#[derive(Clone, Debug)]
struct Bound {
    name: String,
    from: From,
    dtype: DType,
    elements: usize,
    below: Option<u64>,
}

#[derive(Clone, Debug)]
enum From {
    DigitsX,
    DigitsY,
    /// Ids from this one of the sample on.
    Ids(u64),
    /// Weights of the ids to come.
    Weights,
    /// A field of records.
    Field(usize),
    Stripe(Stripe),
}

impl Reader {
    /// Binds a program's columns; name, type and shape must be the data set's.
    pub fn new(data: Arc<Dataset>, columns: &[Column]) -> Result<Reader, DataError> {
        let mut bound = Vec::with_capacity(columns.len());
        for column in columns {
            let (from, dtype, shape) = data.find(&column.name)?;
            if dtype != column.dtype || shape != column.shape {
                return Err(DataError::Mismatch {
                    column: column.name.clone(),
                    wanted: signature(column.dtype, &column.shape),
                    found: signature(dtype, &shape),
                });
            }
            bound.push(Bound {
                name: column.name.clone(),
                from,
                dtype,
                elements: shape.iter().product::<u64>() as usize,
                below: column.below,
            });
        }
        Ok(Reader { data, columns: bound })
    }

    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.data
    }

    /// Empty buffers of the columns' types, in order, for [`Reader::fill_buffers`].
    pub fn buffers(&self) -> Vec<Buffer> {
        let buffer = |c: &Bound| match c.dtype {
            DType::F32 => Buffer::F32(Vec::new()),
            DType::I32 => Buffer::I32(Vec::new()),
        };
        self.columns.iter().map(buffer).collect()
    }

    /// As [`Reader::fill`], resizing the buffers first. Allocates only when they grow.
    pub fn fill_buffers(
        &self,
        split: &str,
        order: Order,
        positions: Range<u64>,
        out: &mut [Buffer],
    ) -> Result<(), FillError> {
        let count = positions.end.saturating_sub(positions.start) as usize;
        let mut views = Vec::with_capacity(out.len());
        self.positions(split, &positions)?;
        for (column, buffer) in self.columns.iter().zip(out) {
            views.push(match buffer {
                Buffer::F32(values) => {
                    values.resize(count * column.elements, 0.0);
                    ColumnMut::F32(values)
                }
                Buffer::I32(values) => {
                    values.resize(count * column.elements, 0);
                    ColumnMut::I32(values)
                }
            });
        }
        self.fill(split, order, positions, &mut views)
    }

    /// Writes the samples at `positions` of a split, one after another, into one buffer per
    /// column, in the order of the columns. Buffers may be larger: only their first
    /// `count * elements` values are written.
    pub fn fill(
        &self,
        split: &str,
        order: Order,
        positions: Range<u64>,
        out: &mut [ColumnMut],
    ) -> Result<(), FillError> {
        let split = self.positions(split, &positions)?;
        let permutation = self.data.permutation(split, order);
        let samples: Vec<u64> = positions
            .map(|at| split.start + permutation.as_ref().map_or(at, |p| p.at(at)))
            .collect();
        for (i, column) in self.columns.iter().enumerate() {
            let needed = samples.len() * column.elements;
            let (elements, view) = match (column.dtype, out.get_mut(i)) {
                (DType::F32, Some(ColumnMut::F32(values))) => {
                    (values.len(), values.get_mut(..needed).map(ColumnMut::F32))
                }
                (DType::I32, Some(ColumnMut::I32(values))) => {
                    (values.len(), values.get_mut(..needed).map(ColumnMut::I32))
                }
                _ => (0, None),
            };
            let wrong = || FillError::Buffer { column: column.name.clone(), elements, needed };
            self.data.store.fill(column, &samples, view.ok_or_else(wrong)?)?;
        }
        Ok(())
    }

    fn positions(&self, split: &str, positions: &Range<u64>) -> Result<&Split, FillError> {
        let found = self.data.split(split);
        let found = found.ok_or_else(|| FillError::NoSplit { split: split.to_string() })?;
        let samples = found.end - found.start;
        if positions.end > samples {
            let end = positions.end;
            return Err(FillError::Positions { split: split.to_string(), end, samples });
        }
        Ok(found)
    }
}

impl Store {
    fn fill(&self, column: &Bound, samples: &[u64], out: ColumnMut) -> Result<(), FillError> {
        let width = column.elements;
        match (self, &column.from, out) {
            (Store::Digits { digits, mixed }, From::DigitsX, ColumnMut::F32(out)) => {
                for (to, &sample) in out.chunks_exact_mut(width).zip(samples) {
                    let row = mixed.at(sample) as usize * PIXELS;
                    to.copy_from_slice(digits.x.get(row..row + PIXELS).unwrap_or_default());
                }
                Ok(())
            }
            (Store::Digits { digits, mixed }, From::DigitsY, ColumnMut::I32(out)) => {
                for (to, &sample) in out.iter_mut().zip(samples) {
                    *to = digits.y.get(mixed.at(sample) as usize).copied().unwrap_or_default();
                }
                check(column, samples, out)
            }
            (Store::Text(text), From::Ids(shift), ColumnMut::I32(out)) => {
                for (to, &sample) in out.chunks_exact_mut(width).zip(samples) {
                    text.fill(sample, *shift, to);
                }
                check(column, samples, out)
            }
            (Store::Tokens(tokens), From::Ids(shift), ColumnMut::I32(out)) => {
                for (to, &sample) in out.chunks_exact_mut(width).zip(samples) {
                    tokens.fill(sample, *shift, to)?;
                }
                check(column, samples, out)
            }
            (Store::Packs(packs), From::Ids(shift), ColumnMut::I32(out)) => {
                for (to, &sample) in out.chunks_exact_mut(width).zip(samples) {
                    packs.fill_ids(sample, *shift as usize, to);
                }
                check(column, samples, out)
            }
            (Store::Packs(packs), From::Weights, ColumnMut::F32(out)) => {
                for (to, &sample) in out.chunks_exact_mut(width).zip(samples) {
                    packs.fill_weights(sample, to);
                }
                Ok(())
            }
            (Store::Records { table, .. }, From::Field(i), out) => {
                match (table.columns.get(*i), out) {
                    (Some(Values::Float(all)), ColumnMut::F32(out)) => {
                        copy(all, samples, width, out)
                    }
                    (Some(Values::Int(all)), ColumnMut::I32(out)) => {
                        copy(all, samples, width, out);
                        check(column, samples, out)?;
                    }
                    _ => {}
                }
                Ok(())
            }
            (Store::Tensors(file), From::Stripe(stripe), out) => {
                fill_stripe(file, stripe, column, samples, out)
            }
            // A reader is bound to its own data set, and `fill` has checked the type.
            (_, _, out) => Err(FillError::Buffer {
                column: column.name.clone(),
                elements: match out {
                    ColumnMut::F32(values) => values.len(),
                    ColumnMut::I32(values) => values.len(),
                },
                needed: samples.len() * width,
            }),
        }
    }
}

/// Rows of a column in memory.
fn copy<T: Copy>(all: &[T], samples: &[u64], width: usize, out: &mut [T]) {
    for (to, &sample) in out.chunks_exact_mut(width.max(1)).zip(samples) {
        let start = sample as usize * width;
        if let Some(row) = all.get(start..start + width) {
            to.copy_from_slice(row);
        }
    }
}

/// Samples that lie side by side in the file are read together.
fn fill_stripe(
    file: &TensorFile,
    stripe: &Stripe,
    column: &Bound,
    samples: &[u64],
    mut out: ColumnMut,
) -> Result<(), FillError> {
    let mut bytes = Vec::new();
    let mut done = 0;
    while let Some(&start) = samples.get(done) {
        let run = samples[done..].iter().zip(start..).take_while(|(s, want)| *s == want).count();
        file.read(stripe, start, run as u64, &mut bytes)
            .map_err(|error| FillError::Io { path: file.path.clone(), error })?;
        let part = done * column.elements..(done + run) * column.elements;
        match &mut out {
            ColumnMut::F32(out) => {
                tensors::floats(&bytes, out.get_mut(part).unwrap_or_default());
            }
            ColumnMut::I32(out) => {
                let accept = |v: i64| column.below.is_none_or(|b| in_range(v, b));
                let out = out.get_mut(part).unwrap_or_default();
                tensors::integers(stripe.stored, &bytes, out, accept)
                    .map_err(|(i, value)| refusal(column, &samples[done..], i, value))?;
            }
        }
        done += run;
    }
    Ok(())
}

fn check(column: &Bound, samples: &[u64], values: &[i32]) -> Result<(), FillError> {
    let Some(below) = column.below else { return Ok(()) };
    let bad = values.iter().position(|&v| !in_range(i64::from(v), below));
    bad.map_or(Ok(()), |i| Err(refusal(column, samples, i, i64::from(values[i]))))
}

fn in_range(value: i64, below: u64) -> bool {
    u64::try_from(value).is_ok_and(|v| v < below)
}

fn refusal(column: &Bound, samples: &[u64], at: usize, value: i64) -> FillError {
    let sample = samples.get(at / column.elements.max(1)).copied().unwrap_or_default();
    let column_name = column.name.clone();
    match column.below {
        Some(below) => FillError::Limit { column: column_name, sample, value, below },
        None => FillError::OutOfRange { column: column_name, sample, value },
    }
}

/// `f32[B, 64]`
fn signature(dtype: DType, shape: &[u64]) -> String {
    let axes: String = shape.iter().map(|n| format!(", {n}")).collect();
    format!("{}[B{axes}]", dtype.name())
}
