//! Models: layers with numbers.

use super::{LayerId, Value};
use monarch_graph as graph;
use monarch_graph::Span;

/// `model net = Mlp[I = 64, H = 128, C = 10]`
#[derive(Clone, Debug)]
pub struct Model {
    pub name: String,
    pub span: Span,
    pub root: Instance,
    /// All weights of the tree in the order of the program (weights of a layer in the order of
    /// its body, before the weights of its sublayers; copies in order).
    pub weights: Vec<graph::Weight>,
}

/// A layer with numbers: one of a model's tree.
#[derive(Clone, Debug)]
pub struct Instance {
    pub layer: LayerId,
    /// `blocks.0.attn`; empty for the root.
    pub path: String,
    /// Numbers for the first `LayerDef::fixed` symbols.
    pub sizes: Vec<u64>,
    /// Values of the fields, in order.
    pub fields: Vec<Value>,
    /// For each weight of the layer, its number in [`Model::weights`]; None if it does not exist.
    pub weights: Vec<Option<u32>>,
    /// Adapters on weights of the layer.
    pub adapters: Vec<Adapter>,
    /// For each sublayer, its copies: one unless repeated, none if it does not exist.
    pub subs: Vec<Vec<Instance>>,
}

/// An adapter of low rank on a weight W: where the layer says `x @ W`, its value is
/// `x @ W + scale * (drop(x) @ A) @ B` (Hu et al. 2021, "LoRA").
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Index into the layer's weights: W [I, O].
    pub weight: u32,
    /// Number in [`Model::weights`] of A [I, rank].
    pub down: u32,
    /// Number in [`Model::weights`] of B [rank, O].
    pub up: u32,
    /// `alpha / rank`
    pub scale: f64,
    /// Share of x that is dropped while training.
    pub dropout: f64,
}
