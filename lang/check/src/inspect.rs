//! What an editor asks for: trees, types and values of all that could be worked out, also when
//! the program has errors.

use crate::function::{FnCx, Val};
use crate::hir::{Axis, Static, TensorType};
use crate::layers::{LayerNames, LayerState};
use crate::load::{self, Loaded, Target};
use crate::scope::{Checker, Lazy};
use crate::statics::show;
use crate::{Causes, Checked, World, finish, hir, params};
use monarch_diagnostic::{Diagnostic, Severity};
use monarch_graph::Span;
use monarch_syntax::ast;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The answer to [`inspect`].
pub struct Inspected {
    /// What [`crate::check`] says.
    pub checked: Checked,
    /// Every file that was read, by its number in the sources; the program itself is the first.
    pub files: Vec<FileTree>,
    /// Types of tensor expressions, named values and weights, in the order of their spans. An
    /// expression that was not understood has none.
    pub types: Vec<TypeFact>,
    /// Values of params, constants and sizes, by the span of the name that defines each.
    pub values: BTreeMap<Span, ValueFact>,
}

/// One file of a program.
pub struct FileTree {
    /// `std.nn`, or the path of a file.
    pub key: String,
    pub tree: ast::File,
    /// For each import (by its span) the number of the file that it reads, and the one name that it
    /// takes from there if it names only one.
    pub imports: BTreeMap<Span, (u32, Option<String>)>,
}

/// The type of something, with numbers as far as an instance of its layer is known.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeFact {
    pub span: Span,
    /// `[B, T, F]`
    pub text: String,
    /// What is known of each axis beyond its name: `F = 4 * D = 1536`.
    pub notes: Vec<String>,
    /// Lengths of the axes; None for one that is known only when samples flow.
    pub lengths: Vec<Option<u64>>,
    /// Bytes of one element.
    pub element_bytes: u64,
}

/// The value of a name.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueFact {
    /// As a person writes it: `128`, `D / H`.
    pub text: String,
    /// The number that a size has in the first instance of its layer.
    pub number: Option<u64>,
    /// For a param: the text that the command line gave, if it did.
    pub given: Option<String>,
}

/// Checks the program at `path` as [`crate::check`] does, and keeps what an editor shows.
pub fn inspect(world: &dyn World, path: &str, reserved: &[&str]) -> Inspected {
    run(world, path, &[], reserved, true)
}

/// A check; `watch` keeps types and values.
pub(crate) fn run(
    world: &dyn World,
    path: &str,
    overrides: &[(String, String)],
    reserved: &[&str],
    watch: bool,
) -> Inspected {
    let mut loaded = load::load(world, path);
    let places = params::command_line(&mut loaded, overrides);
    let mut checker = Checker::new(world, &loaded);
    checker.state.watched = watch.then(Vec::new);
    let program = checker.run(overrides, &places, reserved);
    let values = if watch { checker.values() } else { BTreeMap::new() };
    let mut types = checker.state.watched.take().unwrap_or_default();
    types.sort_by_key(|t| t.span);
    let mut diagnostics = std::mem::take(&mut checker.diagnostics);
    let mut absent = std::mem::take(&mut checker.state.absent);
    absent.sort_by_key(|d| d.span().map(|s| (s.file, s.start)));
    drop(checker);
    let note = |d: &Diagnostic| Diagnostic { severity: Severity::Note, ..d.clone() };
    diagnostics.extend(absent.iter().map(note));
    let causes = Causes::of(&loaded);
    diagnostics.retain(|d| !causes.explain(d, &loaded.sources));
    diagnostics.splice(0..0, loaded.diagnostics.iter().cloned());
    let program = finish(&mut diagnostics, program, absent.is_empty());
    let files = if watch { trees(&mut loaded) } else { Vec::new() };
    let sources = loaded.sources;
    let program = program.map(|p| hir::Program { sources: sources.clone(), ..p });
    Inspected { checked: Checked { program, diagnostics, absent, sources }, files, types, values }
}

fn trees(loaded: &mut Loaded) -> Vec<FileTree> {
    let files = std::mem::take(&mut loaded.files);
    let tree = |file: load::LoadedFile| {
        let target = |target: &Target| match target {
            Target::Module(id) => Some((*id, None)),
            Target::Member(id, name) => Some((*id, Some(name.name.clone()))),
            Target::Script(_) | Target::Nothing => None,
        };
        let imports = file.imports.iter().filter_map(|(span, t)| Some((*span, target(t)?)));
        FileTree { imports: imports.collect(), key: file.key, tree: file.ast }
    };
    files.into_iter().map(tree).collect()
}

impl Checker<'_> {
    /// Keeps the type of an expression, for whoever watches.
    pub(crate) fn observe(&mut self, cx: &FnCx, span: Span, value: Option<&Val>) {
        if self.state.watched.is_none() {
            return;
        }
        let ty = match value {
            Some(Val::Tensor(e)) => &e.ty,
            Some(Val::Mean { elements, .. }) => &elements.ty,
            Some(Val::Static(..)) | None => return,
        };
        let fact = fact(cx, span, ty);
        self.state.watched.iter_mut().for_each(|all| all.push(fact.clone()));
    }

    /// Keeps the types of a function's named values.
    pub(crate) fn observe_locals(&mut self, cx: &FnCx) {
        let Some(all) = &mut self.state.watched else { return };
        all.extend(cx.locals.iter().map(|local| fact(cx, local.span, &local.ty)));
    }

    /// Values of all names that have one. Weights are watched on the way.
    fn values(&mut self) -> BTreeMap<Span, ValueFact> {
        let mut out = BTreeMap::new();
        for (id, item) in self.params.iter().enumerate() {
            if let Some(Lazy::Done(Some(value))) = self.state.params.get(id) {
                let given = self.state.overrides.get(&id).map(|o| o.text.clone());
                let fact = ValueFact { text: show(value), number: None, given };
                out.insert(item.ast.name.span, fact);
            }
        }
        for (id, item) in self.lets.iter().enumerate() {
            if let (Some(Lazy::Done(Some(typed))), ast::Pattern::One(name)) =
                (self.state.lets.get(id), &item.ast.pattern)
                && let Static::Value(value) = &typed.value
            {
                let fact = ValueFact { text: show(value), number: None, given: None };
                out.insert(name.span, fact);
            }
        }
        for id in 0..self.layers.len() {
            self.layer_values(id, &mut out);
        }
        out
    }

    fn layer_values(&mut self, id: usize, out: &mut BTreeMap<Span, ValueFact>) {
        let Some(state) = self.state.layers.get(id).cloned() else { return };
        let file = self.layers[id].file;
        let cx = self.example_cx(file, &state);
        let sized = |number: Option<u64>, text: String| ValueFact { text, number, given: None };
        for (i, symbol) in state.symbols.iter().take(state.fixed).enumerate() {
            let text = cx.texts.get(i).cloned().flatten().unwrap_or_default();
            out.insert(symbol.span, sized(cx.numbers.get(i).copied(), text));
        }
        for derived in &state.derived {
            let Some(typed) = &derived.value else { continue };
            let size = crate::statics::as_size(&typed.value);
            let number =
                size.as_ref().and_then(|p| p.eval(&|s| cx.numbers.get(s.index()).copied()));
            let text = match (&size, &typed.value) {
                (Some(size), _) => cx.size_text(size),
                (None, Static::Value(value)) => show(value),
                _ => self.loaded.sources.slice(derived.span).to_owned(),
            };
            out.insert(derived.name_span, sized(number, text));
        }
        let Some(all) = &mut self.state.watched else { return };
        for weight in &state.weights {
            if let Some(axes) = &weight.axes {
                let ty = TensorType {
                    dtype: monarch_graph::DType::F32,
                    rest: false,
                    axes: axes.clone(),
                };
                all.push(fact(&cx, weight.span, &ty));
            }
        }
    }

    /// A context that knows a layer's names and the numbers of its first instance.
    fn example_cx(&self, file: u32, state: &LayerState) -> FnCx {
        let names: Rc<LayerNames> = Rc::default();
        let mut cx = self.function_cx(file, names, state.symbols.clone(), state.fixed, &[]);
        if let Some(example) = &state.example {
            cx.numbers = example.sizes.clone();
            cx.texts = example.texts.clone();
        }
        cx
    }
}

fn fact(cx: &FnCx, span: Span, ty: &TensorType) -> TypeFact {
    let length = |axis: &Axis| axis.size.eval(&|s| cx.numbers.get(s.index()).copied());
    TypeFact {
        span,
        text: cx.type_text(ty),
        notes: ty.axes.iter().filter_map(|axis| cx.size_note(axis)).collect(),
        lengths: ty.axes.iter().map(length).collect(),
        element_bytes: ty.dtype.size_bytes(),
    }
}

/// Every unit as written, with what it counts and how much of the base unit it is.
pub fn units() -> &'static [(&'static str, hir::Unit, f64)] {
    crate::units::UNITS
}

/// Multipliers that may stand before `tokens`, `samples` and `steps`: `2B tokens`.
pub fn multiples() -> &'static [(&'static str, f64)] {
    crate::units::MULTIPLES
}

/// The types that a param may have, with the unit of those that count something.
pub fn param_kinds() -> Vec<(&'static str, Option<hir::Unit>)> {
    let unit = |kind| match kind {
        params::ParamKind::Quantity(unit) => Some(unit),
        _ => None,
    };
    params::KINDS.iter().map(|(name, kind)| (*name, unit(*kind))).collect()
}

/// Modules whose names are known without an import, with those names unless it is all of them.
pub fn prelude() -> &'static [(&'static str, Option<&'static [&'static str]>)] {
    crate::library::PRELUDE
}

/// The module whose names are known in `test` blocks on top of the prelude.
pub fn test_prelude() -> &'static str {
    crate::library::TEST_PRELUDE
}
