//! What the checker has worked out so far.

use crate::data::DataFacts;
use crate::hir::{self, Setting, Value};
use crate::layers::LayerState;
use crate::scope::Lazy;
use crate::statics::Typed;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use std::collections::{BTreeSet, HashMap};

/// Tables beside those of the syntax tree, with the same indices.
#[derive(Default)]
pub(crate) struct State {
    pub params: Vec<Lazy<Value>>,
    pub lets: Vec<Lazy<Typed>>,
    pub datas: Vec<Lazy<DataFacts>>,
    pub models: Vec<Lazy<hir::Model>>,
    pub clusters: Vec<Lazy<hir::Cluster>>,
    /// By `plan` block; None: reported.
    pub layouts: Vec<Option<hir::Layout>>,
    pub layers: Vec<LayerState>,
    /// Values from the command line, by param.
    pub overrides: HashMap<usize, Override>,
    pub settings: Vec<Setting>,
    /// Imported files of hooks that were read, by their number.
    pub hook_files: HashMap<u32, crate::hooks::HookFile>,
    /// See [`crate::run_gate`].
    pub not_run_yet: Vec<Diagnostic>,
    /// See [`crate::Checked::absent`].
    pub absent: Vec<Diagnostic>,
    pub pins: Vec<hir::Pin>,
    /// Models from files, by number.
    pub outlines: HashMap<usize, crate::pretrained::Outline>,
    pub settled: crate::models::Settled,
    /// Params that were read since someone last emptied this.
    pub read: BTreeSet<usize>,
    /// Types for an editor, if one watches.
    pub watched: Option<Vec<crate::inspect::TypeFact>>,
}

/// `--lr 1e-3`
#[derive(Clone, Debug)]
pub(crate) struct Override {
    pub text: String,
    /// Of the value, in the text `command line`.
    pub span: Span,
}
