//! Layers before their functions are looked at: header, sizes, weights, sublayers, signature.

use crate::calls::{as_name, bare};
use crate::hir::{
    self, Axis, LayerId, LocalId, ParamDef, Poly, Static, SubDef, Sym, Symbol, TensorType,
};
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
    pub subs: Vec<Sub>,
    /// None: reported.
    pub signature: Option<Signature>,
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
        self.used.borrow_mut().insert(name.to_owned());
        self.sizes.borrow_mut().insert(name.to_owned());
    }

    pub fn get(&self, name: &str) -> Option<Option<Typed>> {
        let found = self.statics.get(name)?;
        self.used.borrow_mut().insert(name.to_owned());
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
    pub def: Option<SubDef>,
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

    fn unique<'n>(&mut self, seen: &mut HashMap<&'n str, Span>, name: &'n Ident, home: &str) {
        if let Some(old) = seen.insert(&name.name, name.span) {
            let title = format!("`{}` occurs twice in {home}", name.name);
            self.report(
                Diagnostic::error("M0105", title)
                    .label(name.span, "again here")
                    .label(old, "first here"),
            );
        }
    }

    fn layer_field(
        &mut self,
        file: u32,
        field: &ast::Field,
        state: &mut LayerState,
        names: &mut LayerNames,
    ) {
        let kind = self.field_kind(field);
        let ty = kind.map(|k| match k {
            ParamKind::Bool => Ty::Bool,
            ParamKind::Text => Ty::Text,
            _ => Ty::Number,
        });
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
        let words = ["int", "float", "bool", "string"];
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
                        .help(format!("write `{name}: int` (or float, bool, string)")),
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
        let all: Vec<&str> = names.statics.keys().map(String::as_str).collect();
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
        let mut statics = self.state.layers[id].names.statics.clone();
        let used = self.state.layers[id].names.used.borrow().clone();
        let mut names = LayerNames { used: RefCell::new(used), ..LayerNames::default() };
        std::mem::swap(&mut names.statics, &mut statics);
        let mut derived = Vec::new();
        for entry in &ast.body.entries {
            let Some(name) = self.layer_entry_name(entry) else { continue };
            self.unique(&mut seen, name, "this layer");
            let EntryKind::Assign(assign) = &entry.kind else { continue };
            if self.is_sublayer(file, &assign.value) {
                continue;
            }
            let all: Vec<&str> = names.statics.keys().map(String::as_str).collect();
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
        self.state.layers[id].weights = weights;
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

    pub fn dtype(&mut self, name: Option<&Ident>) -> Option<DType> {
        let Some(name) = name else { return Some(DType::F32) };
        match name.name.as_str() {
            "f32" => Some(DType::F32),
            "i32" => Some(DType::I32),
            "bf16" | "f16" | "f64" | "i64" | "fp8" => {
                self.report(
                    Diagnostic::error("M0906", format!("`{}` is not built yet", name.name))
                        .label(name.span, "f32 and i32 are"),
                );
                None
            }
            _ => {
                let title = format!("there is no element type `{}`", name.name);
                let d = Diagnostic::error("M0121", title).label(name.span, "unknown type");
                let all = ["f32", "i32"].into_iter();
                self.report(with_near(d, name, all, "element types"));
                None
            }
        }
    }

    fn layer_signature(&mut self, id: usize) {
        let In { file, ast, .. } = self.layers[id];
        let forward = ast.body.entries.iter().find_map(|e| match &e.kind {
            EntryKind::Func(f) if f.name.name == "forward" => Some(f),
            _ => None,
        });
        let Some(forward) = forward else {
            let broken = ast.body.entries.iter().any(|e| match &e.kind {
                EntryKind::Broken(_) => true,
                EntryKind::Func(f) => f.name.name != "forward",
                _ => false,
            });
            if !broken {
                let title = format!("`{}` has no `forward`", ast.name.name);
                self.report(
                    Diagnostic::error("M0217", title)
                        .label(ast.name.span, "what does it do?")
                        .help("add `forward(x: [B, D]) -> [B, D] = ..`"),
                );
            }
            return;
        };
        let mut symbols = self.state.layers[id].symbols.clone();
        let names = self.state.layers[id].names.clone();
        let params = self.function_params(file, &names, &mut symbols, forward);
        let result = self.function_result(file, &names, &symbols, forward);
        let fixed = self.state.layers[id].fixed;
        self.free_axes_occur_alone(&symbols[fixed..], fixed, params.as_deref());
        self.state.layers[id].symbols = symbols;
        if let (Some(params), Some((result, result_span))) = (params, result) {
            self.state.layers[id].signature = Some(Signature { params, result, result_span });
        }
    }

    fn free_axes_occur_alone(
        &mut self,
        free: &[Symbol],
        fixed: usize,
        params: Option<&[ParamDef]>,
    ) {
        let Some(params) = params else { return };
        for (i, symbol) in free.iter().enumerate() {
            let sym = Sym((fixed + i) as u32);
            let alone = params
                .iter()
                .flat_map(|p| &p.ty.axes)
                .any(|axis| axis.size.as_symbol() == Some(sym));
            if !alone {
                let title = format!("nothing says how long `{}` is", symbol.name);
                self.report(
                    Diagnostic::error("M0205", title)
                        .label(symbol.span, "only inside a larger size")
                        .help("let it be an axis by itself, or pass it in the header"),
                );
            }
        }
    }

    fn function_result(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        symbols: &[Symbol],
        func: &ast::Func,
    ) -> Option<(TensorType, Span)> {
        let Some(result) = &func.result else {
            self.report(
                Diagnostic::error("M0217", "`forward` does not say what it gives")
                    .label(func.name.span, "no `->`")
                    .help("write its shape: `forward(x: [B, D]) -> [B, D] = ..`"),
            );
            return None;
        };
        let mut known = symbols.to_vec();
        let before = known.len();
        let ty = self.tensor_type(file, names, &mut known, result);
        for new in known.get(before..).unwrap_or(&[]) {
            let title = format!("`{}` is no axis of the arguments or of the header", new.name);
            let all: Vec<&str> = symbols.iter().map(|s| s.name.as_str()).collect();
            let ident = Ident { name: new.name.clone(), span: new.span };
            let d = Diagnostic::error("M0205", title).label(new.span, "unknown axis");
            self.report(with_near(d, &ident, all.into_iter(), "axes"));
        }
        if known.len() > before {
            return None;
        }
        ty.map(|ty| (ty, result.span))
    }

    /// Tensor parameters of a function; names that are no axis yet become free ones.
    pub fn function_params(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        symbols: &mut Vec<Symbol>,
        func: &ast::Func,
    ) -> Option<Vec<ParamDef>> {
        let mut out = Some(Vec::new());
        let mut seen = HashMap::new();
        for (i, field) in func.fields.iter().enumerate() {
            self.unique(&mut seen, &field.name, "these arguments");
            if let Some(default) = &field.default {
                self.report(
                    Diagnostic::error("M0111", "a tensor has no default")
                        .label(default.span, "not here"),
                );
            }
            let ty = match &field.kind {
                Some(Kind::Tensor(t)) => self.tensor_type(file, names, symbols, t),
                other => {
                    let at = other.as_ref().map_or(field.name.span, Kind::span);
                    let name = &field.name.name;
                    self.report(
                        Diagnostic::error("M0121", format!("`{name}` has no shape"))
                            .label(at, "a tensor is needed")
                            .help(format!("write `{name}: [B, D]` or `{name}: i32[B]`")),
                    );
                    None
                }
            };
            match (ty, &mut out) {
                (Some(ty), Some(list)) => list.push(ParamDef {
                    name: field.name.name.clone(),
                    local: LocalId(i as u32),
                    ty,
                    span: field.name.span,
                }),
                _ => out = None,
            }
        }
        out
    }

    /// A tensor type as written. Bare names that are unknown become new symbols.
    pub fn tensor_type(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        symbols: &mut Vec<Symbol>,
        ast: &ast::TensorType,
    ) -> Option<TensorType> {
        let dtype = self.dtype(ast.dtype.as_ref());
        let mut axes = Some(Vec::new());
        let mut rest = false;
        for (i, axis) in ast.axes.iter().enumerate() {
            let found = match &axis.kind {
                AxisKind::Rest if i == 0 => {
                    rest = true;
                    continue;
                }
                AxisKind::Rest | AxisKind::Any => {
                    let title = "`..` stands first: it is any leading axes";
                    self.report(Diagnostic::error("M0205", title).label(axis.span, "not here"));
                    None
                }
                AxisKind::Size(expr) => self.signature_axis(file, names, symbols, expr),
            };
            match (found, &mut axes) {
                (Some(found), Some(list)) => list.push(found),
                _ => axes = None,
            }
        }
        Some(TensorType { dtype: dtype?, rest, axes: axes? })
    }

    fn signature_axis(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        symbols: &mut Vec<Symbol>,
        expr: &Expr,
    ) -> Option<Axis> {
        let free = |symbols: &[Symbol], name: &str| {
            let found = symbols.iter().position(|s| s.name == name)?;
            Some(Poly::symbol(Sym(found as u32)))
        };
        if let Some(name) = as_name(expr)
            && !names.statics.contains_key(&name.name)
        {
            let size = free(symbols, &name.name).unwrap_or_else(|| {
                symbols.push(symbol(name));
                Poly::symbol(Sym(symbols.len() as u32 - 1))
            });
            return Some(Axis { name: Some(name.name.clone()), size });
        }
        let known = symbols.clone();
        let local = |n: &str| {
            let typed = |p| Typed { value: Static::Size(p), ty: Ty::Number };
            names.get(n).or_else(|| free(&known, n).map(|p| Some(typed(p))))
        };
        let size = self.size_in_layer(file, &local, names, expr)?;
        Some(Axis { name: as_name(expr).map(|n| n.name.clone()), size })
    }

    fn layer_subs(&mut self, id: usize) {
        let In { file, ast, .. } = self.layers[id];
        let mut subs = Vec::new();
        for entry in &ast.body.entries {
            let EntryKind::Assign(assign) = &entry.kind else { continue };
            let Some(name) = assign.path.single() else { continue };
            if !self.is_sublayer(file, &assign.value) {
                continue;
            }
            let names = self.state.layers[id].names.clone();
            let (def, dim_spans) = match self.sublayer(file, &names, &assign.value, None) {
                Some((app, repeat, exists)) => {
                    let layer = LayerId(app.layer as u32);
                    let (dims, fields) = (app.dims, app.fields);
                    let (name, span) = (name.name.clone(), name.span);
                    let def = SubDef { name, span, layer, dims, fields, repeat, exists };
                    (Some(def), app.dim_spans)
                }
                None => (None, Vec::new()),
            };
            if let Some(def) = &def
                && def.repeat.is_some()
            {
                self.check_repeat(def, assign.value.span);
            }
            subs.push(Sub { name: name.name.clone(), span: name.span, def, dim_spans });
        }
        self.state.layers[id].subs = subs;
    }

    fn check_repeat(&mut self, def: &SubDef, at: Span) {
        let Some(signature) = self.state.layers[def.layer.0 as usize].signature.clone() else {
            return;
        };
        let fits = matches!(signature.params.as_slice(), [one] if one.ty == signature.result);
        if !fits {
            let name = self.layer_name(def.layer.0 as usize);
            let title = format!("`{name}` cannot be repeated: what goes in does not come out");
            self.report(
                Diagnostic::error("M0215", title)
                    .label(at, "each copy takes what the one before gives")
                    .label(signature.result_span, "its result is of another shape"),
            );
        }
    }
}

pub(crate) fn symbol(name: &Ident) -> Symbol {
    Symbol { name: name.name.clone(), span: name.span }
}

/// Every name in a size expression (not the names of functions or members).
fn walk_names(expr: &Expr, found: &mut dyn FnMut(&Ident)) {
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
