//! Layers before their functions are looked at: header, sizes, weights, sublayers, signature.

use crate::calls::{as_name, bare};
use crate::hir::{self, Axis, ParamDef, Poly, Static, SubDef, Sym, Symbol, TensorType};
use crate::params::ParamKind;
use crate::scope::{Checker, Entity, In, with_near};
use crate::statics::{Names, Ty, Typed};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{DType, Span};
use monarch_syntax::ast::{self, AxisKind, EntryKind, Expr, ExprKind, Ident, Kind};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// What is known of a layer.
#[derive(Clone, Default)]
pub(crate) struct LayerState {
    /// Header axes, whole-number fields, then free axes of the signature.
    pub symbols: Vec<Symbol>,
    pub fixed: usize,
    /// Number of header axes.
    pub dims: usize,
    pub dim_defaults: Vec<Option<Poly>>,
    pub fields: Vec<Field>,
    pub names: Rc<LayerNames>,
    pub derived: Vec<Derived>,
    pub weights: Vec<Weight>,
    pub weight_index: HashMap<String, usize>,
    pub subs: Vec<Sub>,
    pub sub_index: HashMap<String, usize>,
    /// None: reported.
    pub signature: Option<Rc<Signature>>,
    /// Numbers of the first instance, for messages.
    pub example: Option<Example>,
    /// Free axes along which elements meet; no samples may.
    pub mixed: Vec<(Sym, Span)>,
    pub done: Option<hir::Function>,
}

/// Names with a static value in a layer, and which of all its names were used.
#[derive(Default)]
pub(crate) struct LayerNames {
    /// None: reported.
    pub statics: HashMap<String, Option<Typed>>,
    pub used: RefCell<HashSet<String>>,
    /// Those that were used as the size of an axis, and so must be whole.
    pub sizes: RefCell<HashSet<String>>,
}

impl LayerNames {
    /// Notes that this name is the size of an axis.
    pub fn as_size(&self, name: &str) {
        self.note(name);
        if !self.sizes.borrow().contains(name) {
            self.sizes.borrow_mut().insert(name.to_owned());
        }
    }

    /// Notes that this name was used.
    pub fn note(&self, name: &str) {
        if !self.used.borrow().contains(name) {
            self.used.borrow_mut().insert(name.to_owned());
        }
    }

    /// All names with a static value, sorted.
    pub fn words(&self) -> Vec<String> {
        let mut all: Vec<String> = self.statics.keys().cloned().collect();
        all.sort_unstable();
        all
    }

    pub fn get(&self, name: &str) -> Option<Option<Typed>> {
        let found = self.statics.get(name)?;
        self.note(name);
        Some(found.clone())
    }
}

#[derive(Clone)]
pub(crate) struct Field {
    pub name: String,
    pub span: Span,
    pub kind: Option<ParamKind>,
    pub default: Option<Static>,
    pub has_default: bool,
    pub symbol: Option<Sym>,
}

/// `K = D / H`
#[derive(Clone)]
pub(crate) struct Derived {
    pub name: String,
    pub name_span: Span,
    pub span: Span,
    pub value: Option<Typed>,
}

#[derive(Clone)]
pub(crate) struct Weight {
    pub name: String,
    pub span: Span,
    pub shape_span: Span,
    /// None: reported.
    pub axes: Option<Vec<Axis>>,
    pub init: Option<crate::init::InitSpec>,
    pub exists: Option<Static>,
}

#[derive(Clone)]
pub(crate) struct Sub {
    pub name: String,
    pub span: Span,
    /// None: reported.
    pub def: Option<Rc<SubDef>>,
    /// Of each header argument.
    pub dim_spans: Vec<Span>,
}

#[derive(Clone)]
pub(crate) struct Signature {
    pub params: Vec<ParamDef>,
    pub result: TensorType,
    pub result_span: Span,
}

/// Numbers of one instance, and what each size was in the words of the layer around it.
#[derive(Clone)]
pub(crate) struct Example {
    pub sizes: Vec<u64>,
    pub texts: Vec<Option<String>>,
}

impl<'a> Checker<'a> {
    /// Everything about layers but the bodies of their functions.
    pub fn check_layers(&mut self) {
        self.state.layers = self.layers.iter().map(|_| LayerState::default()).collect();
        for id in 0..self.layers.len() {
            self.layer_header(id);
        }
        for id in 0..self.layers.len() {
            self.layer_derived(id);
            self.layer_weights(id);
            self.layer_signature(id);
        }
        for id in 0..self.layers.len() {
            self.layer_subs(id);
        }
    }

    fn layer_header(&mut self, id: usize) {
        let In { file, ast, .. } = self.layers[id];
        let mut state = LayerState::default();
        let mut names = LayerNames::default();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for dim in ast.dims.iter().flatten() {
            self.unique(&mut seen, &dim.name, "this layer's header");
            let sym = Sym(state.symbols.len() as u32);
            state.symbols.push(symbol(&dim.name));
            if let Some(kind) = &dim.kind {
                self.report(
                    Diagnostic::error("M0121", "an axis has no type")
                        .label(kind.span(), "not needed")
                        .help("axes stand in `[..]`, values with types in `(..)`"),
                );
            }
            let default = dim.default.as_ref().map(|e| {
                let local = |n: &str| names.get(n);
                self.size_in_layer(file, &local, &names, e)
            });
            state.dim_defaults.push(default.flatten());
            let typed = Typed { value: Static::Size(Poly::symbol(sym)), ty: Ty::Number };
            names.statics.insert(dim.name.name.clone(), Some(typed));
        }
        state.dims = state.symbols.len();
        for field in ast.fields.iter().flatten() {
            self.unique(&mut seen, &field.name, "this layer's header");
            self.layer_field(file, field, &mut state, &mut names);
        }
        state.fixed = state.symbols.len();
        state.names = Rc::new(names);
        self.state.layers[id] = state;
    }

    /// Reports a name that was seen before; false for one.
    pub fn unique<'n>(
        &mut self,
        seen: &mut HashMap<&'n str, Span>,
        name: &'n Ident,
        home: &str,
    ) -> bool {
        if let Some(old) = seen.insert(&name.name, name.span) {
            let title = format!("`{}` occurs twice in {home}", name.name);
            self.report(
                Diagnostic::error("M0105", title)
                    .label(name.span, "again here")
                    .label(old, "first here"),
            );
            return false;
        }
        true
    }

    fn layer_field(
        &mut self,
        file: u32,
        field: &ast::Field,
        state: &mut LayerState,
        names: &mut LayerNames,
    ) {
        let kind = self.field_kind(field);
        let ty = kind.map(ParamKind::ty);
        let index = state.fields.len() as u32;
        let whole = matches!(kind, Some(ParamKind::Int | ParamKind::Dim));
        let symbol_id = whole.then(|| {
            state.symbols.push(symbol(&field.name));
            Sym(state.symbols.len() as u32 - 1)
        });
        let default = field.default.as_ref().and_then(|e| {
            let value = self.plain_value(file, e)?;
            let kind = kind?;
            match kind.accept(value) {
                Ok(v) => Some(Static::Value(v)),
                Err(v) => {
                    let ty = crate::statics::type_of(&v);
                    self.wrong_type(e.span, &format!("`{}`", field.name.name), ty);
                    None
                }
            }
        });
        let value = match symbol_id {
            Some(sym) => Static::Size(Poly::symbol(sym)),
            None => Static::Field(index),
        };
        names.statics.insert(field.name.name.clone(), ty.map(|ty| Typed { value, ty }));
        state.fields.push(Field {
            name: field.name.name.clone(),
            span: field.name.span,
            kind,
            default,
            has_default: field.default.is_some(),
            symbol: symbol_id,
        });
    }

    fn field_kind(&mut self, field: &ast::Field) -> Option<ParamKind> {
        let words = ["int", "float", "bool", "string", "share"];
        match &field.kind {
            Some(Kind::Name(kind)) if words.contains(&kind.name.as_str()) => {
                ParamKind::of(&kind.name)
            }
            Some(Kind::Name(kind)) => {
                let d = Diagnostic::error("M0121", format!("a layer takes no `{}`", kind.name))
                    .label(kind.span, "unknown type");
                self.report(with_near(d, kind, words.into_iter(), "types"));
                None
            }
            Some(Kind::Tensor(t)) => {
                self.report(
                    Diagnostic::error("M0121", "tensors are arguments of `forward`")
                        .label(t.span, "not a plain value"),
                );
                None
            }
            None => {
                let name = &field.name.name;
                self.report(
                    Diagnostic::error("M0121", format!("`{name}` has no type"))
                        .label(field.name.span, "which?")
                        .help(format!("write `{name}: int` (or float, bool, string, share)")),
                );
                None
            }
        }
    }

    /// A size in a layer: only its own axes and whole-number fields have a part in it.
    pub fn size_in_layer(
        &mut self,
        file: u32,
        local: &dyn Fn(&str) -> Option<Option<Typed>>,
        names: &LayerNames,
        expr: &Expr,
    ) -> Option<Poly> {
        let mut strangers = Vec::new();
        walk_names(expr, &mut |name| {
            if local(&name.name).is_none() {
                strangers.push(name.clone());
            }
        });
        for name in &strangers {
            self.stranger_axis(file, names, name);
        }
        if !strangers.is_empty() {
            return None;
        }
        let all = || names.words();
        walk_names(expr, &mut |name| names.as_size(&name.name));
        let typed = self.fixed_of(&Names { file, local, all: &all }, expr, Ty::Number)?;
        match crate::statics::as_size(&typed.value) {
            Some(size) => Some(size),
            None => {
                self.report(
                    Diagnostic::error("M0211", "this is not a size")
                        .label(expr.span, "sizes are sums and products of axes")
                        .help("divide by an axis, a number, or a product of them"),
                );
                None
            }
        }
    }

    fn stranger_axis(&mut self, file: u32, names: &LayerNames, name: &Ident) {
        let mut all: Vec<&str> = names.statics.keys().map(String::as_str).collect();
        all.sort_unstable();
        let title = format!("`{}` is no axis of this layer", name.name);
        let d = Diagnostic::error("M0205", title).label(name.span, "unknown axis");
        let exists = self.lookup(file, &name.name).is_some();
        let d = match suggest(&name.name, all.iter().copied()) {
            Some(near) if !exists => d.fix(format!("did you mean `{near}`?"), name.span, near),
            _ => d.help(format!("pass it in the header: `layer Name[.., {}]`", name.name)),
        };
        self.report(d);
    }

    fn layer_derived(&mut self, id: usize) {
        let In { file, ast, .. } = self.layers[id];
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for field in ast.dims.iter().flatten().chain(ast.fields.iter().flatten()) {
            seen.insert(&field.name.name, field.name.span);
        }
        let shared = std::mem::take(&mut self.state.layers[id].names);
        let mut names = Rc::try_unwrap(shared).unwrap_or_default();
        let mut derived = Vec::new();
        for entry in &ast.body.entries {
            let Some(name) = self.layer_entry_name(entry) else { continue };
            self.unique(&mut seen, name, "this layer");
            let EntryKind::Assign(assign) = &entry.kind else { continue };
            if self.is_sublayer(file, &assign.value) {
                continue;
            }
            let all = || names.words();
            let local = |n: &str| names.get(n);
            let value = self.fixed(&Names { file, local: &local, all: &all }, &assign.value);
            derived.push(Derived {
                name: name.name.clone(),
                name_span: name.span,
                span: assign.value.span,
                value: value.clone(),
            });
            names.statics.insert(name.name.clone(), value);
        }
        self.state.layers[id].names = Rc::new(names);
        self.state.layers[id].derived = derived;
    }

    /// The name that an entry of a layer defines; reports what does not belong there.
    fn layer_entry_name(&mut self, entry: &'a ast::Entry) -> Option<&'a Ident> {
        let (at, what) = match &entry.kind {
            EntryKind::Weight(w) => return Some(&w.name),
            EntryKind::Assign(a) => match (a.path.single(), &a.body) {
                (Some(name), None) => return Some(name),
                (Some(_), Some(body)) => (body.span, "settings"),
                (None, _) => (a.path.span, "a path"),
            },
            EntryKind::Func(f) if f.name.name == "forward" => return Some(&f.name),
            EntryKind::Func(f) => {
                let d = Diagnostic::error("M0101", format!("a layer has no `{}`", f.name.name))
                    .label(f.name.span, "unknown function");
                self.report(with_near(d, &f.name, ["forward"].into_iter(), "a layer has"));
                return None;
            }
            EntryKind::Hook(h) => (h.span, "a hook"),
            EntryKind::Rule(r) => (r.span, "a mesh rule"),
            EntryKind::Block(b) => (b.kind.span, "a block"),
            EntryKind::Broken(_) => return None,
        };
        self.report(
            Diagnostic::error("M0101", format!("{what} does not belong in a layer"))
                .label(at, "not here")
                .help(
                    "a layer has sizes `K = D / H`, weights `w: [D] ~ ones`, sublayers and forward",
                ),
        );
        None
    }

    /// Whether a value of a layer's body is a sublayer: `RmsNorm[D]`, `repeat(..)`.
    pub fn is_sublayer(&self, file: u32, expr: &Expr) -> bool {
        match &bare(expr).kind {
            ExprKind::Index(..) => true,
            ExprKind::Call(callee, _) => match as_name(callee) {
                Some(name) if name.name == "repeat" => true,
                _ => self.is_sublayer(file, callee),
            },
            ExprKind::Name(name) => {
                matches!(self.lookup(file, &name.name), Some(Entity::Layer(_)))
            }
            ExprKind::Member(base, _) => as_name(base)
                .is_some_and(|n| matches!(self.lookup(file, &n.name), Some(Entity::Module(_)))),
            ExprKind::If(c) => self.is_sublayer(file, &c.yes) || self.is_sublayer(file, &c.no),
            _ => false,
        }
    }

    fn layer_weights(&mut self, id: usize) {
        let In { file, ast, .. } = self.layers[id];
        let mut weights = Vec::new();
        for entry in &ast.body.entries {
            let EntryKind::Weight(w) = &entry.kind else { continue };
            let names = self.state.layers[id].names.clone();
            let local = |n: &str| names.get(n);
            if let Some(dtype) = &w.shape.dtype
                && self.dtype(Some(dtype)) == Some(DType::I32)
            {
                self.report(
                    Diagnostic::error("M0210", "a weight is f32: whole numbers cannot be trained")
                        .label(dtype.span, "i32"),
                );
            }
            let mut axes = Some(Vec::new());
            for axis in &w.shape.axes {
                let found = self.plain_axis(file, &local, &names, axis);
                match (found, &mut axes) {
                    (Some(found), Some(list)) => list.push(found),
                    _ => axes = None,
                }
            }
            let init = self.init_spec(file, &names, &w.init);
            let exists = init.as_ref().and_then(crate::init::InitSpec::exists);
            weights.push(Weight {
                name: w.name.name.clone(),
                span: w.name.span,
                shape_span: w.name.span.to(w.shape.span),
                axes,
                init,
                exists,
            });
        }
        let index = weights.iter().enumerate().map(|(i, w)| (w.name.clone(), i)).collect();
        self.state.layers[id].weights = weights;
        self.state.layers[id].weight_index = index;
    }

    /// An axis of a weight: a size.
    fn plain_axis(
        &mut self,
        file: u32,
        local: &dyn Fn(&str) -> Option<Option<Typed>>,
        names: &LayerNames,
        axis: &ast::Axis,
    ) -> Option<Axis> {
        match &axis.kind {
            AxisKind::Size(expr) => {
                let size = self.size_in_layer(file, local, names, expr)?;
                Some(Axis { name: as_name(expr).map(|n| n.name.clone()), size })
            }
            AxisKind::Rest | AxisKind::Any => {
                self.report(
                    Diagnostic::error("M0205", "a weight says all of its sizes")
                        .label(axis.span, "no size"),
                );
                None
            }
        }
    }
}

pub(crate) fn symbol(name: &Ident) -> Symbol {
    Symbol { name: name.name.clone(), span: name.span }
}

/// Every name in a size expression (not the names of functions or members).
pub(crate) fn walk_names(expr: &Expr, found: &mut dyn FnMut(&Ident)) {
    match &expr.kind {
        ExprKind::Name(name) => found(name),
        ExprKind::Paren(e) | ExprKind::Unary(_, _, e) => walk_names(e, found),
        ExprKind::Binary(_, _, a, b) => {
            walk_names(a, found);
            walk_names(b, found);
        }
        ExprKind::If(c) => {
            walk_names(&c.condition, found);
            walk_names(&c.yes, found);
            walk_names(&c.no, found);
        }
        ExprKind::Call(_, args) => args.iter().for_each(|a| walk_names(&a.value, found)),
        _ => {}
    }
}
