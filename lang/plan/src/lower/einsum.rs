//! `einsum` of any number of operands, as contractions of two.

use super::{Lowerer, Result, internal};
use monarch_check::hir::Labels;
use monarch_graph::{Einsum, NodeId, ReduceOp, Span};

/// An operand with the labels of its axes.
#[derive(Clone, Debug)]
struct Operand {
    node: NodeId,
    labels: Vec<u8>,
}

impl Lowerer<'_> {
    /// Contracts from left to right, which the program can see and order as it likes.
    pub(super) fn einsum(
        &mut self,
        inputs: &[Labels],
        output: &Labels,
        names: usize,
        args: &[NodeId],
        span: Span,
    ) -> Result<NodeId> {
        let mut operands = Vec::with_capacity(args.len());
        let mut leading = 0;
        for (labels, &node) in inputs.iter().zip(args) {
            let rank = self.b.shape(node).rank();
            let lead = rank.checked_sub(labels.axes.len()).filter(|&n| n == 0 || labels.rest);
            let lead = lead.ok_or_else(|| internal(span, "an operand has too few axes"))?;
            leading = leading.max(lead);
            operands.push(Operand { node, labels: with_rest(labels, lead, lead, names) });
        }
        // Leading axes are counted from the end, so that a shorter `..` is a suffix.
        for (operand, labels) in operands.iter_mut().zip(inputs) {
            let lead = operand.labels.len() - labels.axes.len();
            operand.labels = with_rest(labels, lead, leading, names);
        }
        let out = with_rest(output, if output.rest { leading } else { 0 }, leading, names);
        self.contract(operands, &out, span)
    }

    fn contract(&mut self, mut operands: Vec<Operand>, out: &[u8], span: Span) -> Result<NodeId> {
        for i in 0..operands.len() {
            let others: Vec<u8> = operands
                .iter()
                .enumerate()
                .filter(|(j, _)| *j != i)
                .flat_map(|(_, o)| o.labels.iter().copied())
                .chain(out.iter().copied())
                .collect();
            operands[i] = self.drop_lonely(operands[i].clone(), &others)?;
        }
        let mut rest = operands.into_iter();
        let mut acc = rest.next().ok_or_else(|| internal(span, "einsum of nothing"))?;
        let rest: Vec<Operand> = rest.collect();
        for (i, next) in rest.iter().enumerate() {
            let later = rest.get(i + 1..).unwrap_or(&[]);
            let wanted = |l: &u8| out.contains(l) || later.iter().any(|o| o.labels.contains(l));
            let mut kept: Vec<u8> = Vec::new();
            for label in acc.labels.iter().chain(&next.labels) {
                if wanted(label) && !kept.contains(label) {
                    kept.push(*label);
                }
            }
            if let Some(following) = later.first() {
                in_good_order(&mut kept, out, &following.labels);
            } else {
                kept = out.to_vec();
            }
            let e = Einsum { a: acc.labels, b: next.labels.clone(), out: kept.clone() };
            acc = Operand { node: self.b.einsum(e, acc.node, next.node)?, labels: kept };
        }
        // What is left differs from the result in order at most.
        let order: Option<Vec<u8>> =
            out.iter().map(|l| acc.labels.iter().position(|m| m == l).map(|p| p as u8)).collect();
        let order = order.ok_or_else(|| internal(span, "a label of the result has no source"))?;
        Ok(self.b.permute(acc.node, &order)?)
    }

    /// Sums the axes away whose labels occur nowhere else.
    fn drop_lonely(&mut self, operand: Operand, others: &[u8]) -> Result<Operand> {
        let lonely = |l: &u8| !others.contains(l);
        let axes: Vec<u8> = operand
            .labels
            .iter()
            .enumerate()
            .filter(|(_, l)| lonely(l))
            .map(|(i, _)| i as u8)
            .collect();
        let node = self.b.reduce(ReduceOp::Sum, operand.node, &axes)?;
        let labels = operand.labels.into_iter().filter(|l| !lonely(l)).collect();
        Ok(Operand { node, labels })
    }

    /// `a @ b`: the last axis of a with the first of b.
    pub(super) fn matmul(&mut self, a: NodeId, b: NodeId, span: Span) -> Result<NodeId> {
        let (left, right) = (self.b.shape(a).rank() as u8, self.b.shape(b).rank() as u8);
        if left == 0 || right == 0 {
            return Err(internal(span, "`@` needs an axis on both sides"));
        }
        let joined = left - 1;
        let e = Einsum {
            a: (0..left).collect(),
            b: (joined..joined + right).collect(),
            out: (0..joined).chain(joined + 1..joined + right).collect(),
        };
        Ok(self.b.einsum(e, a, b)?)
    }
}

/// Labels of all axes: `lead` of the `leading` axes behind `..` (numbered after the names), then
/// the named ones.
fn with_rest(labels: &Labels, lead: usize, leading: usize, names: usize) -> Vec<u8> {
    let first = names + (leading - lead);
    let rest = (first..first + lead).map(|n| n as u8);
    rest.chain(labels.axes.iter().copied()).collect()
}

/// Axes that stay come first, in the order of the result; then those that the next operand
/// contracts, in its order: that contraction is then a plain matrix product.
fn in_good_order(kept: &mut [u8], out: &[u8], following: &[u8]) {
    let rank = |l: &u8| match out.iter().position(|o| o == l) {
        Some(p) => (0, p),
        None => match following.iter().position(|o| o == l) {
            Some(p) => (1, p),
            None => (2, usize::from(*l)),
        },
    };
    kept.sort_by_key(rank);
}
