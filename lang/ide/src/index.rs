//! Who defines a name, and who uses it: found in the syntax trees alone, so that it is there for
//! a program with errors too.

use monarch_check::inspect::Inspected;
use monarch_graph::Span;
use std::collections::{BTreeMap, HashMap};

/// Number of a definition in an [`Index`].
pub type DefId = usize;

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Param,
    Constant,
    Layer,
    Op,
    Model,
    Data,
    Train,
    Cluster,
    Plan,
    Sweep,
    /// A file of the library or of the user.
    Module,
    /// `as name`
    Alias,
    /// An axis in a layer's header.
    Axis,
    /// `K = D / H`
    Size,
    /// A value in a layer's header: `depth: int`.
    Field,
    Weight,
    Sublayer,
    /// An axis that is whatever comes in, or a label of a pattern.
    FreeAxis,
    /// A tensor that a function takes.
    Argument,
    /// `let x = ..` in a function or a test.
    Local,
    /// An argument of a function of the library.
    OpArg,
    /// `mesh = { dp = 2 }`
    MeshAxis,
    /// A metric of `eval`.
    Metric,
}

impl Kind {
    /// What it is, to people.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Param => "param",
            Kind::Constant => "constant",
            Kind::Layer => "layer",
            Kind::Op => "function",
            Kind::Model => "model",
            Kind::Data => "data set",
            Kind::Train => "train block",
            Kind::Cluster => "cluster",
            Kind::Plan => "plan",
            Kind::Sweep => "sweep",
            Kind::Module => "module",
            Kind::Alias => "import",
            Kind::Axis => "axis",
            Kind::Size => "size",
            Kind::Field => "field",
            Kind::Weight => "weight",
            Kind::Sublayer => "sublayer",
            Kind::FreeAxis => "free axis",
            Kind::Argument => "input",
            Kind::Local => "value",
            Kind::OpArg => "argument",
            Kind::MeshAxis => "mesh axis",
            Kind::Metric => "metric",
        }
    }
}

/// A definition.
#[derive(Clone, Debug)]
pub struct Def {
    pub name: String,
    pub kind: Kind,
    /// Of its name.
    pub span: Span,
    /// Of the whole definition.
    pub whole: Span,
    /// As much of it as says what it is: a layer's header, a weight's line.
    pub header: Span,
    /// Its `##` lines, joined.
    pub docs: String,
    /// The layer, function or block that it belongs to.
    pub owner: Option<DefId>,
    /// For an alias what it stands for; for a model or a sublayer its layer.
    pub target: Option<DefId>,
}

/// A place where a name stands, its definition among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ref {
    pub span: Span,
    pub def: DefId,
}

/// The names within a layer, a function of the library or a block.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Axes of the header, in order.
    pub dims: Vec<DefId>,
    /// Values of the header, or arguments of a function of the library, in order.
    pub fields: Vec<DefId>,
    /// Arguments that name an axis.
    pub axis_args: Vec<DefId>,
    /// Header axes, fields and sizes.
    pub statics: BTreeMap<String, DefId>,
    /// Weights and sublayers; metrics of a train block; axes of a plan's mesh.
    pub values: BTreeMap<String, DefId>,
    /// Free axes and labels.
    pub free: BTreeMap<String, DefId>,
    /// What `forward` takes, in order.
    pub inputs: Vec<DefId>,
}

/// All definitions and uses in the files of a program.
#[derive(Debug, Default)]
pub struct Index {
    pub defs: Vec<Def>,
    /// In the order of their spans.
    pub refs: Vec<Ref>,
    pub members: HashMap<DefId, Members>,
    /// Names at the top level of each file.
    pub scopes: Vec<BTreeMap<String, DefId>>,
    /// Names known everywhere.
    pub prelude: BTreeMap<String, DefId>,
    /// Names known in tests.
    pub test_prelude: BTreeMap<String, DefId>,
    /// Axes that a plan shards, by name.
    pub sharded: Vec<(String, Span)>,
}

impl Index {
    /// Finds all names of a program.
    pub fn new(inspected: &Inspected) -> Index {
        crate::resolve::resolve(inspected)
    }

    /// The name that holds byte `offset` of a file, or ends there.
    pub fn at(&self, file: u32, offset: u32) -> Option<Ref> {
        let after = self.refs.partition_point(|r| (r.span.file, r.span.start) <= (file, offset));
        let near = self.refs.get(after.saturating_sub(8)..after)?;
        let holds =
            |r: &&Ref| r.span.file == file && offset <= r.span.end && r.span.start <= offset;
        near.iter().rev().find(holds).copied()
    }

    /// What a definition stands for, through `as`.
    pub fn follow(&self, def: DefId) -> DefId {
        let mut at = def;
        // An alias of an alias of itself would go round for ever.
        for _ in 0..8 {
            match self.defs.get(at) {
                Some(Def { kind: Kind::Alias, target: Some(next), .. }) => at = *next,
                _ => break,
            }
        }
        at
    }

    /// The layer that a definition is an application of, or is.
    pub fn layer_of(&self, def: DefId) -> Option<DefId> {
        let def = self.follow(def);
        let found = self.defs.get(def)?;
        match found.kind {
            Kind::Layer => Some(def),
            Kind::Model | Kind::Sublayer => found.target,
            _ => None,
        }
    }

    /// Every place where a definition's name stands.
    pub fn uses(&self, def: DefId) -> impl Iterator<Item = Span> {
        self.refs.iter().filter(move |r| r.def == def).map(|r| r.span)
    }

    /// A definition by its number.
    pub fn def(&self, id: DefId) -> Option<&Def> {
        self.defs.get(id)
    }

    /// The layer whose text holds byte `offset`.
    pub fn layer_around(&self, file: u32, offset: u32) -> Option<DefId> {
        let holds = |d: &Def| {
            d.kind == Kind::Layer
                && d.whole.file == file
                && d.whole.start <= offset
                && offset <= d.whole.end
        };
        self.defs.iter().position(holds)
    }
}
