//! The state of one rank for all: how a newcomer, or one that was a step behind, comes to have the
//! weights and the optimizer's state of the others.

use crate::WorkerError;
use crate::setup::Bench;
use monarch_collective::{CollectiveError, Piece, Transport};
use monarch_device::Weights;

/// Adding it to a number changes no bit of that number, also not of a zero.
const NOTHING: f32 = -0.0;

const TASK: &str = "copy the weights from another worker";

/// Sums the state over all ranks, of which `donor` alone has something to add. It travels like a
/// gradient, bucket by bucket, whatever the transport; weights that are never trained have none,
/// and are everybody's own.
pub(crate) fn share(
    transport: &mut dyn Transport,
    bench: &Bench,
    donor: u32,
    step: u64,
) -> Result<(), WorkerError> {
    let failed = |source| WorkerError::Collective { step: Some(step), task: TASK.into(), source };
    let mut state = bench.model.write();
    let state = &mut *state;
    for tensors in std::iter::once(&mut state.weights).chain(&mut state.slots) {
        for bucket in 0..bench.plan.buckets.len() {
            bench.stop.check().map_err(failed)?;
            one(transport, bench, donor, step, bucket, tensors).map_err(failed)?;
        }
    }
    Ok(())
}

fn one(
    transport: &mut dyn Transport,
    bench: &Bench,
    donor: u32,
    step: u64,
    bucket: usize,
    tensors: &mut Weights,
) -> Result<(), CollectiveError> {
    let layout = bench.fold.layout();
    let nodes = layout.nodes(layout.rank()).len();
    let room = || CollectiveError::Layout(format!("no room for bucket {bucket}"));
    let mut sum = bench.fold.pool().take(bucket).ok_or_else(room)?;
    let pieces = (0..nodes).map(|_| bench.fold.pool().take(bucket).ok_or_else(room));
    let mut pieces: Vec<Piece> = pieces.collect::<Result<_, _>>()?;
    for piece in &mut pieces {
        piece.region_mut().fill(NOTHING);
    }
    let parts = bench.plan.buckets.get(bucket).map_or(&[][..], |b| &b.parts);
    let start = layout.start(bucket);
    let places = parts.iter().map(|part| {
        let at = (part.start as usize).saturating_sub(start);
        (part.weight.index(), at..at + part.elements as usize)
    });
    // Not every weight has every kind of state.
    let there = |weight: usize| weight < tensors.len() && !tensors.get(weight).is_empty();
    let places: Vec<_> = places.filter(|(weight, _)| there(*weight)).collect();
    let wrong = || CollectiveError::Layout(format!("bucket {bucket} does not fit the weights"));
    if donor == layout.rank() {
        let mine = pieces.first_mut().ok_or_else(room)?;
        for (weight, range) in &places {
            let values = tensors.get(*weight);
            let place =
                mine.region_mut().get_mut(range.clone()).filter(|p| p.len() == values.len());
            place.ok_or_else(wrong)?.copy_from_slice(values);
        }
    }
    transport.all_reduce(step, bucket, &pieces, &mut sum)?;
    for (weight, range) in &places {
        let place = tensors.get_mut(*weight);
        let values = sum.region().get(range.clone()).filter(|v| v.len() == place.len());
        place.copy_from_slice(values.ok_or_else(wrong)?);
    }
    for piece in pieces.into_iter().chain([sum]) {
        bench.fold.pool().give(piece);
    }
    Ok(())
}
