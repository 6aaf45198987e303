//! Which tensors a checkpoint of a plan holds, and which rank writes each.

use monarch_graph::{Contents, Plan};
use std::collections::BTreeMap;

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The weight's name, or `optim.<slot>.<weight>`.
    pub name: String,
    pub shape: Vec<u64>,
    pub axes: Vec<String>,
    /// The rank that writes it.
    pub rank: u32,
    pub content: Content,
}

/// Where its values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Weight of this number in the plan.
    Weight(usize),
    /// State `slot` (a place in `OptimizerKind::slots`) of this weight.
    Slot { slot: usize, weight: usize },
}

/// All weights of the plan in order, then the optimizer's state slot by slot for those that are
/// trained; or the part of that which the job's `checkpoint { what = .. }` names; dealt to `world`
/// ranks: each in turn to the rank with the fewest bytes so far, so that ranks write about as much;
/// the same on every machine.
pub fn layout(plan: &Plan, world: u32) -> Vec<Stored> {
    let what = plan.checkpoint.as_ref().map_or(Contents::All, |c| c.what);
    let weights = plan.weights.iter().enumerate();
    let held = weights.clone().filter(|(_, w)| w.trainable || what != Contents::Adapters);
    let mut tensors: Vec<Stored> =
        held.map(|(i, w)| stored(w.name.clone(), w, Content::Weight(i))).collect();
    let kind = &plan.optimizer.kind;
    let slots = match what {
        Contents::Weights => &[],
        Contents::All | Contents::Adapters => kind.slots(),
    };
    for (slot, slot_name) in slots.iter().enumerate() {
        for (i, w) in weights.clone().filter(|(_, w)| w.trainable && kind.has_slot(slot, w)) {
            let name = format!("optim.{slot_name}.{}", w.name);
            tensors.push(stored(name, w, Content::Slot { slot, weight: i }));
        }
    }
    let mut load = vec![0u64; world.max(1) as usize];
    for tensor in &mut tensors {
        let lightest = (0u32..).zip(&load).min_by_key(|(_, bytes)| **bytes).map_or(0, |(r, _)| r);
        tensor.rank = lightest;
        if let Some(bytes) = load.get_mut(lightest as usize) {
            *bytes += tensor.shape.iter().product::<u64>();
        }
    }
    tensors
}

fn stored(name: String, weight: &monarch_graph::Weight, content: Content) -> Stored {
    Stored { name, shape: weight.shape.clone(), axes: weight.axes.clone(), rank: 0, content }
}

/// Symbolic axes by tensor name, for the manifest.
pub fn axes(tensors: &[Stored]) -> BTreeMap<String, Vec<String>> {
    tensors.iter().map(|t| (t.name.clone(), t.axes.clone())).collect()
}
