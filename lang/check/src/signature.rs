//! The types of functions, and the sublayers of layers.

use crate::calls::as_name;
use crate::hir::{Axis, LayerId, LocalId, ParamDef, Poly, Static, SubDef, Sym, Symbol, TensorType};
use crate::layers::{LayerNames, Signature, Sub, symbol};
use crate::scope::{Checker, In, with_near};
use crate::statics::{Ty, Typed};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};
use monarch_syntax::ast::{self, AxisKind, EntryKind, Expr, Ident, Kind};
use std::collections::HashMap;
use std::rc::Rc;

impl<'a> Checker<'a> {
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

    pub fn layer_signature(&mut self, id: usize) {
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
            let signature = Signature { params, result, result_span };
            self.state.layers[id].signature = Some(Rc::new(signature));
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
            if !self.unique(&mut seen, &field.name, "these arguments") {
                continue;
            }
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

    pub fn layer_subs(&mut self, id: usize) {
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
            let def = def.map(Rc::new);
            if let Some(def) = &def
                && def.repeat.is_some()
            {
                self.check_repeat(def, assign.value.span);
            }
            subs.push(Sub { name: name.name.clone(), span: name.span, def, dim_spans });
        }
        let index = subs.iter().enumerate().map(|(i, s)| (s.name.clone(), i)).collect();
        self.state.layers[id].subs = subs;
        self.state.layers[id].sub_index = index;
    }

    fn check_repeat(&mut self, def: &SubDef, at: Span) {
        let Some(signature) = self.state.layers[def.layer.0 as usize].signature.clone() else {
            return;
        };
        // Sizes in the words of the outer layer; the inner one's own symbols get numbers that
        // no outer symbol has.
        let outer = |p: &Poly| {
            p.substitute(&|s| {
                let own = || Poly::symbol(Sym(s.0.saturating_add(1 << 20)));
                Some(def.dims.get(s.index()).cloned().unwrap_or_else(own))
            })
        };
        let same = |a: &TensorType, b: &TensorType| {
            let mut pairs = a.axes.iter().zip(&b.axes);
            a.dtype == b.dtype
                && a.rest == b.rest
                && a.axes.len() == b.axes.len()
                && pairs.all(|(x, y)| outer(&x.size) == outer(&y.size))
        };
        let fits = matches!(signature.params.as_slice(), [one] if same(&one.ty, &signature.result));
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
