//! Where numbers that are not finite come from: the shard is run again, and each result is looked
//! at as it is made.

use crate::engine::EngineError;
use crate::run::Worker;
use crate::setup::Bench;
use crate::shard::{Lane, TRAIN};
use crate::update::{Bad, Sink};
use monarch_data::{Order, Position};
use monarch_device::Health;
use monarch_graph::{Count, Draw, Node, Op, Plan, shard_range};
use monarch_wire::{NotFinite, Origin};
use std::sync::{Arc, Mutex, PoisonError};

impl Worker {
    /// What is not finite, and where it comes from when a shard of this worker is to blame.
    pub(crate) fn explain(&mut self, step: u64, at: Position, bad: Bad) -> NotFinite {
        let Bad { what, span, sink, .. } = bad;
        let found = Arc::new(Mutex::new(None));
        let (bench, place) = (self.bench.clone(), found.clone());
        let job: crate::crew::Job = Arc::new(move |lane| {
            // A shard that ran a moment ago runs again; if not, there is nothing to be told.
            let origin = first(lane, &bench, step, at, sink).unwrap_or_default();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = origin;
            Ok(())
        });
        let _ = self.crew.run_alone(&job);
        let origin = found.lock().unwrap_or_else(PoisonError::into_inner).take();
        NotFinite { what, span, origin }
    }
}

/// The first shard held in which it shows.
fn first(
    lane: &mut Lane,
    bench: &Bench,
    step: u64,
    at: Position,
    sink: Sink,
) -> Result<Option<Origin>, EngineError> {
    let plan = &bench.plan;
    let model = bench.model.read();
    for &shard in bench.fold.layout().held() {
        let range = shard_range(at.count, plan.shards, shard);
        let samples = range.end - range.start;
        if samples == 0 || matches!(sink, Sink::Loss { flags } if flags >> (shard % 64) & 1 == 0) {
            continue;
        }
        let order = Order::Epoch(at.epoch);
        let positions = at.first + range.start..at.first + range.end;
        lane.train.draw(Draw { seed: plan.seed, step, first: range.start });
        lane.train.load(TRAIN, order, positions.clone())?;
        let health = lane.train.inspect(samples, &model.weights)?;
        let Some(node) = sinks(plan, sink).into_iter().find_map(|node| source(plan, &health, node))
        else {
            continue;
        };
        let Some(found) = plan.train.program.graph.nodes.get(node) else { continue };
        let state = health.get(node).copied().unwrap_or_default();
        let row = |place: usize, column: u32| {
            let name = &plan.train.program.columns.get(column as usize)?.name;
            let sample = (place / lane.train.per_sample(column as usize)?) as u64;
            let row = lane.train.row(TRAIN, order, positions.start + sample)?;
            Some(format!("the batch itself has {state} in column `{name}` of sample {row}"))
        };
        let what = match found.op {
            Op::Column(column) => state.first().and_then(|place| row(place, column)),
            Op::Weight(weight) => plan
                .weights
                .get(weight as usize)
                .map(|w| format!("the weight `{}` has {state} from an earlier update", w.name)),
            _ => None,
        };
        let what = what.unwrap_or_else(|| blame(plan, node, found, state));
        let span = (found.span.end > 0).then_some(found.span);
        let (first, end) = (positions.start, positions.end);
        return Ok(Some(Origin { shard, first, end, what, span }));
    }
    Ok(None)
}

/// The nodes whose numbers are not finite, as far as the sums tell.
fn sinks(plan: &Plan, sink: Sink) -> Vec<usize> {
    let loss = &plan.train.loss;
    match sink {
        Sink::Loss { .. } => match loss.denominator {
            Count::Sum(count) => vec![loss.numerator.index(), count.index()],
            Count::PerSample(_) => vec![loss.numerator.index()],
        },
        Sink::Gradient { weight } => {
            let gradient = plan.train.gradients.get(weight).copied().flatten();
            gradient.map(|node| node.index()).into_iter().collect()
        }
    }
}

/// From a node that is not finite back to the first one that it comes from; None for one that is.
///
/// Infinities that the program puts there on purpose, to mask something, are no source.
fn source(plan: &Plan, health: &[Health], sink: usize) -> Option<usize> {
    let nodes = &plan.train.program.graph.nodes;
    let state = |i: usize| health.get(i).copied().unwrap_or_default();
    let meant = |i: usize| match nodes.get(i).map(|n| &n.op) {
        Some(Op::Causal { fill } | Op::Unfold { fill, .. } | Op::Const(fill)) => !fill.is_finite(),
        _ => false,
    };
    if state(sink).is_finite() {
        return None;
    }
    let mut at = sink;
    loop {
        let inputs: Vec<usize> = nodes.get(at)?.inputs.iter().map(|i| i.index()).collect();
        let nan = inputs.iter().find(|i| state(**i).nan.is_some());
        let infinite = inputs.iter().find(|i| !state(**i).is_finite() && !meant(**i));
        match nan.or(infinite) {
            Some(&before) if before < at => at = before,
            _ => return Some(at),
        }
    }
}

/// `log of layer up gives NaN`
fn blame(plan: &Plan, number: usize, node: &Node, state: Health) -> String {
    let backward = number >= plan.train.forward as usize;
    let side = if backward { "backward of " } else { "" };
    let place = layer(plan, number).map(|name| format!(" {name}")).unwrap_or_default();
    format!("{side}`{}`{place} gives {state}", op_name(&node.op))
}

/// The layer of a node: of a weight that it takes or is the gradient of, else the last one on the
/// way to it.
fn layer(plan: &Plan, number: usize) -> Option<String> {
    let nodes = &plan.train.program.graph.nodes;
    let path = |weight: usize| {
        let name = &plan.weights.get(weight)?.name;
        Some(name.rsplit_once('.').map_or(name.as_str(), |(layer, _)| layer).to_string())
    };
    let weight_of = |mut at: usize| loop {
        match nodes.get(at)? {
            Node { op: Op::Weight(weight), .. } => return Some(*weight as usize),
            Node { inputs, .. } => match inputs.as_slice() {
                [one] if one.index() < at => at = one.index(),
                _ => return None,
            },
        }
    };
    let inputs = |at: usize| nodes.get(at).map(|n| n.inputs.as_slice()).unwrap_or_default();
    let own = inputs(number).iter().find_map(|i| weight_of(i.index()));
    let gradient = || {
        let is_it = |g: &Option<monarch_graph::NodeId>| g.is_some_and(|g| g.index() == number);
        plan.train.gradients.iter().position(is_it)
    };
    if let Some(weight) = own.or_else(gradient) {
        return Some(format!("in `{}`", path(weight)?));
    }
    let mut open: Vec<usize> = inputs(number).iter().map(|i| i.index()).collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(at) = open.iter().copied().max() {
        open.retain(|i| *i != at);
        let takes = inputs(at).iter().find_map(|i| weight_of(i.index()));
        if let Some(weight) = takes {
            return Some(format!("after `{}`", path(weight)?));
        }
        open.extend(inputs(at).iter().map(|i| i.index()).filter(|i| *i < at && seen.insert(*i)));
    }
    None
}

/// `log`, `cross_entropy`, `softmax_grad`
fn op_name(op: &Op) -> String {
    let debug = match op {
        Op::Unary(op) => format!("{op:?}"),
        Op::UnaryGrad(op) => format!("{op:?}Grad"),
        Op::Binary(op) => format!("{op:?}"),
        Op::Reduce { op, .. } => format!("{op:?}"),
        op => format!("{op:?}"),
    };
    let word: String = debug.chars().take_while(|c| c.is_alphanumeric()).collect();
    let mut out = String::new();
    for c in word.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use monarch_graph::{BinaryOp, UnaryOp};

    #[test]
    fn operations_have_the_names_of_the_language() {
        assert_eq!(op_name(&Op::Unary(UnaryOp::Log)), "log");
        assert_eq!(op_name(&Op::UnaryGrad(UnaryOp::Sqrt)), "sqrt_grad");
        assert_eq!(op_name(&Op::Binary(BinaryOp::Div)), "div");
        assert_eq!(op_name(&Op::CrossEntropy), "cross_entropy");
        assert_eq!(op_name(&Op::Softmax { axis: 1 }), "softmax");
    }
}
