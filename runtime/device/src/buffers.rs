//! What lanes share: weights (or tensors laid out like them) and the columns of a shard.

use crate::memory::{OutOfMemory, Words};
use monarch_graph::{Column, DType};
use std::ops::Range;

/// One f32 tensor per weight of the plan: the weights themselves, or a slot of the optimizer.
#[derive(Debug)]
pub struct Weights {
    words: Words,
    ranges: Vec<Range<usize>>,
}

impl Weights {
    /// Zeroed tensors of these numbers of elements.
    pub fn new(elements: impl IntoIterator<Item = u64>) -> Result<Weights, OutOfMemory> {
        let mut end = 0usize;
        let mut ranges = Vec::new();
        for n in elements {
            let start = end.next_multiple_of(crate::simd::LANES);
            end = usize::try_from(n)
                .ok()
                .and_then(|n| start.checked_add(n))
                .ok_or(OutOfMemory { bytes: usize::MAX })?;
            ranges.push(start..end);
        }
        Ok(Weights { words: Words::new(end)?, ranges })
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Elements of weight `index`, row-major.
    ///
    /// # Panics
    /// When there is no such weight.
    pub fn get(&self, index: usize) -> &[f32] {
        &self.words.f32()[self.ranges[index].clone()]
    }

    /// # Panics
    /// When there is no such weight.
    pub fn get_mut(&mut self, index: usize) -> &mut [f32] {
        let range = self.ranges[index].clone();
        &mut self.words.f32_mut()[range]
    }

    /// All of them at once, so that several threads may update different ones.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let mut rest = self.words.f32_mut();
        let mut at = 0;
        self.ranges.iter().map(move |range| {
            let (tensor, after) =
                std::mem::take(&mut rest)[range.start - at..].split_at_mut(range.len());
            at = range.end;
            rest = after;
            tensor
        })
    }

    /// Number of elements of weight `index`, or 0 where there is none.
    pub(crate) fn elements(&self, index: usize) -> usize {
        self.ranges.get(index).map_or(0, Range::len)
    }
}

/// The columns of one shard, with room for the largest shard.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<(DType, usize, Words)>,
}

impl Columns {
    /// Room for `max_samples` samples of each column.
    pub fn new(columns: &[Column], max_samples: u64) -> Result<Columns, OutOfMemory> {
        let mut all = Vec::new();
        for column in columns {
            let per = column.shape.iter().try_fold(1u64, |n, &x| n.checked_mul(x));
            let total = per.and_then(|n| n.checked_mul(max_samples));
            let (Some(per), Some(total)) = (per, total) else {
                return Err(OutOfMemory { bytes: usize::MAX });
            };
            all.push((column.dtype, per as usize, Words::new(total as usize)?));
        }
        Ok(Columns { columns: all })
    }

    pub fn len(&self) -> usize {
        self.columns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub fn dtype(&self, column: usize) -> Option<DType> {
        self.columns.get(column).map(|c| c.0)
    }

    /// Elements of one sample of a column.
    pub fn per_sample(&self, column: usize) -> Option<usize> {
        self.columns.get(column).map(|c| c.1)
    }

    /// Room for all samples of an f32 column; None for a column of another dtype.
    pub fn f32_mut(&mut self, column: usize) -> Option<&mut [f32]> {
        match self.columns.get_mut(column) {
            Some((DType::F32, _, words)) => Some(words.f32_mut()),
            _ => None,
        }
    }

    /// Room for all samples of an i32 column; None for a column of another dtype.
    pub fn i32_mut(&mut self, column: usize) -> Option<&mut [i32]> {
        match self.columns.get_mut(column) {
            Some((DType::I32, _, words)) => Some(words.i32_mut()),
            _ => None,
        }
    }

    pub(crate) fn words(&self, column: usize) -> &[f32] {
        self.columns[column].2.f32()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_apart() {
        let mut weights = Weights::new([3, 0, 17, 1]).unwrap();
        for (i, tensor) in weights.iter_mut().enumerate() {
            tensor.fill(i as f32 + 1.0);
        }
        weights.get_mut(0)[1] = 9.0;
        assert_eq!(weights.get(0), [1.0, 9.0, 1.0]);
        assert!(weights.get(1).is_empty());
        assert_eq!(weights.get(2), [3.0; 17]);
        assert_eq!(weights.get(3), [4.0]);
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        let error = Weights::new([u64::MAX / 2]).unwrap_err().to_string();
        assert!(error.contains("no memory"), "{error}");
    }
}
