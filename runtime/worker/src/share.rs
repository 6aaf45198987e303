//! The state of one rank for others: how a newcomer, or one that was a step behind, comes to have
//! the weights and the optimizer's state.

use crate::WorkerError;
use crate::setup::Bench;
use monarch_collective::{CollectiveError, Piece, Transport};
use monarch_device::Weights;
use monarch_wire::Form;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const TASK: &str = "copy the weights from another worker";

/// A copy that is still to be made. It may run under the shards of a step: nothing changes the
/// weights before its update.
#[derive(Clone)]
pub(crate) struct Owed {
    donor: u32,
    /// Ranks that receive.
    to: Arc<Vec<bool>>,
    /// Steps that the weights have seen.
    step: u64,
    made: Arc<AtomicBool>,
}

impl Owed {
    /// None when all members have the weights, or nobody has.
    pub(crate) fn of(form: &Form) -> Option<Owed> {
        if !form.is_shared() {
            return None;
        }
        let donor = form.holders.iter().position(|h| *h)? as u32;
        let to = Arc::new(form.holders.iter().map(|h| !h).collect());
        Some(Owed { donor, to, step: form.base, made: Arc::default() })
    }

    pub(crate) fn is_made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }
}

/// Copies weights and slots, bucket by bucket, whatever the transport; weights that are never
/// trained are in no bucket, and are everybody's own.
pub(crate) fn share(
    transport: &mut dyn Transport,
    bench: &Bench,
    owed: &Owed,
) -> Result<(), WorkerError> {
    let step = Some(owed.step);
    let failed = |source| WorkerError::Collective { step, task: TASK.into(), source };
    let rank = bench.fold.layout().rank();
    let kinds = 1 + bench.plan.optimizer.kind.slots().len();
    for kind in 0..kinds {
        for bucket in 0..bench.plan.buckets.len() {
            bench.stop.check().map_err(failed)?;
            let room = || CollectiveError::Layout(format!("no room for bucket {bucket}"));
            let mut values = bench.fold.pool().take(bucket).ok_or_else(room).map_err(failed)?;
            let mut one = || -> Result<(), CollectiveError> {
                if rank == owed.donor {
                    put(bench, kind, bucket, &mut values)?;
                }
                transport.copy(owed.step, bucket, (owed.donor, &owed.to), &mut values)?;
                match owed.to.get(rank as usize) {
                    Some(true) => get(bench, kind, bucket, &values),
                    _ => Ok(()),
                }
            };
            let done = one();
            bench.fold.pool().give(values);
            done.map_err(failed)?;
        }
    }
    owed.made.store(true, Ordering::Release);
    Ok(())
}

/// Places of the tensors of a bucket that are there: weight, and range within the bucket. Not every
/// weight has every kind of state.
fn places(bench: &Bench, bucket: usize, tensors: &Weights) -> Vec<(usize, std::ops::Range<usize>)> {
    let start = bench.fold.layout().start(bucket);
    let parts = bench.plan.buckets.get(bucket).map_or(&[][..], |b| &b.parts);
    let there = |weight: usize| weight < tensors.len() && !tensors.get(weight).is_empty();
    let place = |part: &monarch_graph::Part| {
        let at = (part.start as usize).saturating_sub(start);
        (part.weight.index(), at..at + part.elements as usize)
    };
    parts.iter().map(place).filter(|(weight, _)| there(*weight)).collect()
}

fn wrong(bucket: usize) -> CollectiveError {
    CollectiveError::Layout(format!("bucket {bucket} does not fit the weights"))
}

fn put(
    bench: &Bench,
    kind: usize,
    bucket: usize,
    values: &mut Piece,
) -> Result<(), CollectiveError> {
    let state = bench.model.read();
    let tensors = state.kind(kind).ok_or_else(|| wrong(bucket))?;
    for (weight, range) in places(bench, bucket, tensors) {
        let from = tensors.get(weight);
        let place = values.region_mut().get_mut(range).filter(|p| p.len() == from.len());
        place.ok_or_else(|| wrong(bucket))?.copy_from_slice(from);
    }
    Ok(())
}

fn get(bench: &Bench, kind: usize, bucket: usize, values: &Piece) -> Result<(), CollectiveError> {
    let mut state = bench.model.write();
    let tensors = state.kind_mut(kind).ok_or_else(|| wrong(bucket))?;
    for (weight, range) in places(bench, bucket, tensors) {
        let place = tensors.get_mut(weight);
        let from = values.region().get(range).filter(|v| v.len() == place.len());
        place.copy_from_slice(from.ok_or_else(|| wrong(bucket))?);
    }
    Ok(())
}
