//! Data sets, tokenizers, order, batches: (seed, epoch, index) -> sample.
//! Invariant: a sample depends on nothing but the data set and these three numbers.
