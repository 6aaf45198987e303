//! The syntax tree: plain data, a span on every node, nothing resolved.
//!
//! Names keep the user's words. What could not be parsed is there too, as `Broken`, after its
//! diagnostic was given: whoever reads the tree stays silent about it, and knows from
//! [`Broken::name`] which name the text would have defined, so that one mistake has one message.

mod expr;

use monarch_graph::Span;

pub use expr::*;

/// Upper bound of the depth of an [`Expr`], counted in nested `Expr` nodes, whatever the text.
pub const MAX_DEPTH: u32 = 512;

/// One source file.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct File {
    /// The whole text.
    pub span: Span,
    /// In the order written.
    pub items: Vec<Item>,
    /// All `#` comments, in order; `##` docs belong to the nodes they stand before, and are here
    /// too when they stand before nothing.
    pub comments: Vec<Comment>,
}

/// A `#` comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// From `#` to before the line break.
    pub span: Span,
    /// As written, with its `#`, without trailing spaces.
    pub text: String,
    /// Whether nothing but spaces stands before it on its line.
    pub own_line: bool,
}

/// One `##` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doc {
    /// From `##` to before the line break.
    pub span: Span,
    /// Without `##` and the space after it.
    pub text: String,
}

/// A name where it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ident {
    /// The word.
    pub name: String,
    /// Where.
    pub span: Span,
}

/// `a.b.*`: at least one part; a part named `*` is a glob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The whole path.
    pub span: Span,
    /// Never empty.
    pub parts: Vec<Ident>,
}

impl Path {
    /// `a.b.*` as one text.
    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        parts.join(".")
    }

    /// The only part of a path of one part.
    pub fn single(&self) -> Option<&Ident> {
        match self.parts.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// A string, without quotes and with its escapes resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Str {
    /// With the quotes.
    pub span: Span,
    /// Escapes resolved.
    pub value: String,
}

/// Something that did not parse. Its diagnostic has been given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What was skipped.
    pub span: Span,
    /// `layer` in `layer Mlp[...`, `lr` in `lr = = 3`: its first word, if it begins with one.
    pub keyword: Option<Ident>,
    /// The name it would have defined, as far as that can be told (`Mlp` above; for an entry of a
    /// body its first word).
    pub name: Option<Ident>,
}

/// What stands at the top level.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// From the first doc or word to the end.
    pub span: Span,
    /// The `##` lines before it.
    pub docs: Vec<Doc>,
    /// Which.
    pub kind: ItemKind,
}

/// The kinds of items.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemKind {
    /// `use std.nn.{a, b}`
    Import(Import),
    /// `param lr: float = 1e-3 in 0..1`
    Param(Param),
    /// `let x = 1`
    Let(Bind),
    /// `layer Mlp[D] { .. }`
    Layer(Layer),
    /// `op relu(x: f32[..]) -> f32[..]`
    Op(Op),
    /// `test "name" { .. }`
    Test(Test),
    /// `model net = ..`, `train images { .. }` and every other block.
    Block(Block),
    /// What did not parse.
    Broken(Broken),
}

/// `use path`, `use path.{names}`, `use "file" sha256 "..."`, each with `as name`.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// Without docs.
    pub span: Span,
    /// What is imported.
    pub from: ImportFrom,
    /// `as name`
    pub alias: Option<Ident>,
}

/// Where an import comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportFrom {
    /// `std.nn` with the names in braces, if there are braces.
    Path {
        /// `std.nn`
        path: Path,
        /// `{a, b}`
        names: Option<Vec<Ident>>,
    },
    /// A file with the hash it must have, if given.
    File {
        /// `"hooks/alerts.rhai"`
        file: Str,
        /// The text after `sha256`.
        pin: Option<Str>,
    },
}

/// `param name: kind = default in range`
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Without docs.
    pub span: Span,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub kind: Kind,
    /// Its value unless the command line gives another.
    pub default: Option<Expr>,
    /// What it may be.
    pub range: Option<Expr>,
}

/// `let pattern = value`
#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    /// All of it.
    pub span: Span,
    /// The name or names.
    pub pattern: Pattern,
    /// The value.
    pub value: Expr,
}

/// The left side of `let`.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// `x`
    One(Ident),
    /// `[a, b]`, with the span of the brackets.
    Many(Vec<Ident>, Span),
}

/// `layer Name[dims](fields) { .. }`
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Without docs.
    pub span: Span,
    /// Its name.
    pub name: Ident,
    /// `[D, H = 4]`
    pub dims: Option<Vec<Field>>,
    /// `(depth: int)`
    pub fields: Option<Vec<Field>>,
    /// What is in the braces.
    pub body: Body,
}

/// `op name[dims](fields) -> result`: a signature without a body, as the standard library has.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// Without docs.
    pub span: Span,
    /// Its name.
    pub name: Ident,
    /// `[pattern]`
    pub dims: Option<Vec<Field>>,
    /// `(x: f32[..])`
    pub fields: Vec<Field>,
    /// `-> f32[..]`
    pub result: Option<Kind>,
}

/// `test "name" rejects M0312 { .. }`
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Without docs.
    pub span: Span,
    /// What it says it shows.
    pub name: Str,
    /// The code it must be refused with.
    pub rejects: Option<Ident>,
    /// What is run.
    pub script: Script,
}

/// `kind name on path = value { body }`, at the top level or in a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Without docs.
    pub span: Span,
    /// `train`, `data`, `eval`, or a misspelling of one.
    pub kind: Ident,
    /// Its own name.
    pub name: Option<Ident>,
    /// `on lab`
    pub on: Option<Path>,
    /// `= value`; there is a value or a body, or both.
    pub value: Option<Expr>,
    /// `{ .. }`
    pub body: Option<Body>,
}

/// Entries in braces.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// With the braces.
    pub span: Span,
    /// In the order written.
    pub entries: Vec<Entry>,
}

/// One entry of a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// From the first doc or word to the end, without the comma.
    pub span: Span,
    /// The `##` lines before it.
    pub docs: Vec<Doc>,
    /// Which.
    pub kind: EntryKind,
}

/// The kinds of entries.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryKind {
    /// `on step(every = 50 steps) => note("x")`
    Hook(Hook),
    /// `w: [D, F] ~ normal(0.02)`
    Weight(Weight),
    /// `forward(x: [B, D]) -> [B, D] = x`
    Func(Func),
    /// `H -> tp`
    Rule(Rule),
    /// `lr = 1e-3`
    Assign(Assign),
    /// `eval { every = 1 epoch }`
    Block(Block),
    /// What did not parse.
    Broken(Broken),
}

/// `on event(args) => action`
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// Without docs.
    pub span: Span,
    /// `loss.spike`
    pub event: Path,
    /// `(every = 50 steps)`; empty without parentheses.
    pub args: Vec<Arg>,
    /// An expression or a Rhai text.
    pub action: Expr,
}

/// `name: shape ~ init`
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Without docs.
    pub span: Span,
    /// Its name.
    pub name: Ident,
    /// Its shape.
    pub shape: TensorType,
    /// How it begins.
    pub init: Expr,
}

/// `name(fields) -> result { script }` or `= expr`
#[derive(Clone, Debug, PartialEq)]
pub struct Func {
    /// Without docs.
    pub span: Span,
    /// `forward`, `loss`, `accuracy`
    pub name: Ident,
    /// Its inputs.
    pub fields: Vec<Field>,
    /// What it promises.
    pub result: Option<TensorType>,
    /// What it does. `= expr` is a script of that one value.
    pub script: Script,
    /// Whether it was written with `=`.
    pub short: bool,
}

/// `from -> to`
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Without docs.
    pub span: Span,
    /// An axis.
    pub from: Path,
    /// A mesh axis, or several.
    pub to: Expr,
}

/// `path = value { body }`
#[derive(Clone, Debug, PartialEq)]
pub struct Assign {
    /// Without docs.
    pub span: Span,
    /// What is set.
    pub path: Path,
    /// To what.
    pub value: Expr,
    /// Settings of the value.
    pub body: Option<Body>,
}

/// Statements and a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// With the braces, if it has them.
    pub span: Span,
    /// In order.
    pub stmts: Vec<Stmt>,
    /// The last expression, if there is one.
    pub value: Option<Box<Expr>>,
}

/// A statement of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// `let x = 1`
    Let(Bind),
    /// `assert x == 1`
    Assert(Assert),
    /// What did not parse.
    Broken(Broken),
}

/// `assert condition`
#[derive(Clone, Debug, PartialEq)]
pub struct Assert {
    /// All of it.
    pub span: Span,
    /// What must hold.
    pub condition: Expr,
}

/// A parameter of a function, a layer or an op: `name: kind = default`
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// All of it.
    pub span: Span,
    /// Its name.
    pub name: Ident,
    /// Its type, if given.
    pub kind: Option<Kind>,
    /// Its default, if given.
    pub default: Option<Expr>,
}

/// A type as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `int`, `tokens`, or a misspelling.
    Name(Ident),
    /// `i32[B, T]`
    Tensor(TensorType),
}

impl Kind {
    /// Where it is written.
    pub fn span(&self) -> Span {
        match self {
            Kind::Name(name) => name.span,
            Kind::Tensor(tensor) => tensor.span,
        }
    }
}

/// `bf16[B, T, D]`
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// All of it.
    pub span: Span,
    /// `bf16`, if given.
    pub dtype: Option<Ident>,
    /// The axes in order; empty for a scalar.
    pub axes: Vec<Axis>,
}

/// One axis of a shape or of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Where.
    pub span: Span,
    /// Which.
    pub kind: AxisKind,
}

/// The kinds of axes.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisKind {
    /// `..`: any number of axes.
    Rest,
    /// `_`: one axis whose size does not matter.
    Any,
    /// A size: `B`, `4 * D`, `64`.
    Size(Expr),
}
