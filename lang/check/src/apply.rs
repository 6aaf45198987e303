//! Layers with arguments: `Linear[I, H](bias = true)`, `repeat(Block[D, H], depth)`.

use crate::calls::{Declared, as_name, bare};
use crate::hir::{Poly, Static, Value};
use crate::layers::LayerNames;
use crate::scope::{Checker, Entity, with_near};
use crate::statics::{Names, Ty, as_size};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{self, Arg, AxisArg, AxisKind, Expr, ExprKind, Index, IndexKind};
use std::rc::Rc;

/// A layer with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    pub layer: usize,
    /// Sizes of the header axes, in order; plain numbers at the top level.
    pub dims: Vec<Poly>,
    pub dim_spans: Vec<Span>,
    /// For each header axis the param it was written as, at the top level.
    pub dim_params: Vec<Option<usize>>,
    pub fields: Vec<Static>,
}

/// Where a layer is applied.
pub(crate) struct Place<'p> {
    pub file: u32,
    /// The layer around it; None at the top level.
    pub layer: Option<&'p Rc<LayerNames>>,
}

impl<'a> Checker<'a> {
    /// A sublayer, with the number of copies if it is repeated.
    pub fn sublayer(
        &mut self,
        file: u32,
        names: &Rc<LayerNames>,
        expr: &Expr,
        _outer: Option<()>,
    ) -> Option<(Application, Option<Static>, Option<Static>)> {
        let place = Place { file, layer: Some(names) };
        match &bare(expr).kind {
            ExprKind::Call(callee, args) if as_name(callee).is_some_and(|n| n.name == "repeat") => {
                let declared = [
                    Declared { name: "layer", required: true },
                    Declared { name: "times", required: true },
                ];
                let matched = self.match_args("repeat", expr.span, &declared, args, 0)?;
                let [Some(layer), Some(times)] = matched.as_slice() else { return None };
                let app = self.application(&place, &layer.value);
                let times = self.layer_static(file, names, &times.value, Ty::Number);
                Some((app?, Some(times?), None))
            }
            ExprKind::If(c) => {
                self.report(
                    Diagnostic::error("M0906", "a sublayer that may be missing is not built yet")
                        .label(c.condition.span, "not here")
                        .help("choose inside the layer: `if bias { x @ w + b } else { x @ w }`"),
                );
                None
            }
            _ => self.application(&place, expr).map(|app| (app, None, None)),
        }
    }

    /// A layer with its arguments. None if reported.
    pub fn application(&mut self, place: &Place, expr: &Expr) -> Option<Application> {
        let expr = bare(expr);
        match &expr.kind {
            ExprKind::Call(callee, args) => {
                if let ExprKind::Member(base, member) = &callee.kind
                    && !self.is_module(place.file, base)
                {
                    self.report(
                        Diagnostic::error("M0124", "weights are loaded for a whole model")
                            .label(member.span, "not in a layer")
                            .help(
                                "load where the model is made: `model m = Name[..].load(\"file\")`",
                            ),
                    );
                    return None;
                }
                let mut app = self.applied_dims(place, callee, expr.span)?;
                app.fields = self.applied_fields(place, app.layer, args, expr.span)?;
                Some(app)
            }
            _ => {
                let mut app = self.applied_dims(place, expr, expr.span)?;
                app.fields = self.applied_fields(place, app.layer, &[], expr.span)?;
                Some(app)
            }
        }
    }

    pub fn is_module(&self, file: u32, expr: &Expr) -> bool {
        as_name(expr).is_some_and(|n| matches!(self.lookup(file, &n.name), Some(Entity::Module(_))))
    }

    /// The layer that a name or `module.Name` means.
    pub fn layer_of(&mut self, file: u32, expr: &Expr) -> Option<usize> {
        let (name, entity) = match &bare(expr).kind {
            ExprKind::Name(name) => match self.lookup(file, &name.name) {
                Some(entity) => (name, entity),
                None => {
                    self.unknown_name(file, name, &["repeat"]);
                    return None;
                }
            },
            ExprKind::Member(base, member) => match as_name(base) {
                Some(module) => match self.lookup(file, &module.name) {
                    Some(Entity::Module(id)) => (member, self.member_of(id, member)),
                    Some(other) => {
                        self.wrong_entity(module, other, "a module");
                        return None;
                    }
                    None => {
                        self.unknown_name(file, module, &[]);
                        return None;
                    }
                },
                None => return self.no_layer(expr),
            },
            ExprKind::Broken => return None,
            _ => return self.no_layer(expr),
        };
        match entity {
            Entity::Layer(layer) => Some(layer),
            other => {
                self.wrong_entity(name, other, "a layer");
                None
            }
        }
    }

    fn no_layer(&mut self, expr: &Expr) -> Option<usize> {
        self.report(
            Diagnostic::error("M0124", "a layer is needed here")
                .label(expr.span, "something else")
                .help("write `Name[sizes](values)`"),
        );
        None
    }

    fn applied_dims(&mut self, place: &Place, expr: &Expr, at: Span) -> Option<Application> {
        let (head, index): (&Expr, Option<&Index>) = match &bare(expr).kind {
            ExprKind::Index(head, index) => (head, Some(index)),
            _ => (expr, None),
        };
        let layer = self.layer_of(place.file, head)?;
        let args: &[AxisArg] = match index {
            None => &[],
            Some(Index { kind: IndexKind::Axes(args), .. }) => args,
            Some(Index { kind: IndexKind::Einops(_), span }) => {
                self.report(
                    Diagnostic::error("M0117", "a layer takes sizes, not a pattern")
                        .label(*span, "a pattern of einsum"),
                );
                return None;
            }
        };
        let chosen = self.match_dims(layer, args, at, false)?;
        let mut app = Application {
            layer,
            dims: Vec::new(),
            dim_spans: Vec::new(),
            dim_params: Vec::new(),
            fields: Vec::new(),
        };
        let mut fine = true;
        for (i, arg) in chosen.iter().enumerate() {
            match arg {
                Some(arg) => match self.size_arg(place, arg) {
                    Some((size, param)) => app.push(size, arg.axis.span, param),
                    None => fine = false,
                },
                None => match self.state.layers[layer].dim_defaults[i].clone() {
                    Some(default) => {
                        let given = app.dims.clone();
                        let size = default.substitute(&|s| given.get(s.index()).cloned());
                        app.push(size?, at, None);
                    }
                    None => return None,
                },
            }
        }
        fine.then_some(app)
    }

    /// For each header axis the argument for it, None for its default, or, in a `partial` list,
    /// for what is left open.
    pub fn match_dims<'x>(
        &mut self,
        layer: usize,
        args: &'x [AxisArg],
        at: Span,
        partial: bool,
    ) -> Option<Vec<Option<&'x AxisArg>>> {
        let ast: &'a ast::Layer = self.layers[layer].ast;
        let dims: Vec<&'a ast::Field> = ast.dims.iter().flatten().collect();
        let names: Vec<&str> = dims.iter().map(|d| d.name.name.as_str()).collect();
        let callee = &ast.name.name;
        let mut out: Vec<Option<&AxisArg>> = vec![None; dims.len()];
        let mut fine = true;
        for arg in args {
            let Some(name) = &arg.name else { continue };
            match names.iter().position(|n| *n == name.name) {
                Some(i) if out[i].is_none() => out[i] = Some(arg),
                Some(_) => {
                    let title = format!("`{}` is given twice", name.name);
                    self.report(Diagnostic::error("M0105", title).label(name.span, "again here"));
                    fine = false;
                }
                None => {
                    let title = format!("`{callee}` has no axis `{}`", name.name);
                    let d = Diagnostic::error("M0117", title).label(name.span, "unknown axis");
                    let all = names.iter().copied();
                    self.report(with_near(d, name, all, &format!("`{callee}` has")));
                    fine = false;
                }
            }
        }
        let mut next = 0;
        for arg in args.iter().filter(|a| a.name.is_none()) {
            while out.get(next).is_some_and(|o| o.is_some()) {
                next += 1;
            }
            match out.get_mut(next) {
                Some(slot) => {
                    *slot = Some(arg);
                    fine = fine && self.not_swapped(&names, next, arg);
                }
                None => {
                    let n = names.len();
                    let title =
                        format!("`{callee}` has {n} ax{}", if n == 1 { "is" } else { "es" });
                    self.report(
                        Diagnostic::error("M0117", title)
                            .label(arg.span, "one too many")
                            .label(ast.name.span, "declared here"),
                    );
                    return None;
                }
            }
        }
        for (i, dim) in dims.iter().enumerate() {
            if out[i].is_none() && dim.default.is_none() && fine && !partial {
                let title = format!("`{callee}` needs a size for `{}`", names[i]);
                self.report(
                    Diagnostic::error("M0118", title)
                        .label(at, "not given here")
                        .label(dim.name.span, "declared here")
                        .help(format!("sizes stand in brackets: `{callee}[{}]`", sizes(&names))),
                );
                fine = false;
            }
        }
        fine.then_some(out)
    }

    /// `Attention[H, D]` for a layer with the header `[D, H]` is a slip, not a wish.
    fn not_swapped(&mut self, names: &[&str], at: usize, arg: &AxisArg) -> bool {
        let AxisKind::Size(expr) = &arg.axis.kind else { return true };
        let Some(name) = as_name(expr) else { return true };
        if name.name == names[at] || !names.contains(&name.name.as_str()) {
            return true;
        }
        let wanted = names[at];
        let title = format!("`{}` is given for axis `{wanted}`", name.name);
        self.report(
            Diagnostic::error("M0212", title)
                .label(arg.span, format!("axis `{wanted}` is due here"))
                .fix(
                    format!("if that is meant, write `{wanted} = {}`", name.name),
                    arg.span,
                    format!("{wanted} = {}", name.name),
                ),
        );
        false
    }

    pub fn size_arg(&mut self, place: &Place, arg: &AxisArg) -> Option<(Poly, Option<usize>)> {
        let AxisKind::Size(expr) = &arg.axis.kind else {
            self.report(
                Diagnostic::error("M0111", "a size is needed here")
                    .label(arg.axis.span, "not a size"),
            );
            return None;
        };
        if let Some(names) = place.layer {
            let names = names.clone();
            let local = |n: &str| names.get(n);
            let size = self.size_in_layer(place.file, &local, &names, expr)?;
            return Some((size, None));
        }
        let typed = self.fixed_of(&Names::top(place.file), expr, Ty::Number)?;
        let number = as_size(&typed.value).and_then(|p| p.as_number()).filter(|n| *n > 0);
        let Some(number) = number else {
            let text = match &typed.value {
                Static::Value(Value::Float(f)) => format!("{f:?}"),
                Static::Value(v) => crate::statics::show(v),
                _ => String::new(),
            };
            self.report(
                Diagnostic::error("M0211", format!("a size is a whole number from 1, not {text}"))
                    .label(expr.span, text),
            );
            return None;
        };
        let param = as_name(expr).and_then(|n| match self.lookup(place.file, &n.name) {
            Some(Entity::Param(id)) => Some(id),
            _ => None,
        });
        Some((Poly::number(number), param))
    }

    fn applied_fields(
        &mut self,
        place: &Place,
        layer: usize,
        args: &[Arg],
        at: Span,
    ) -> Option<Vec<Static>> {
        let fields = self.state.layers[layer].fields.clone();
        let declared: Vec<Declared> =
            fields.iter().map(|f| Declared { name: &f.name, required: !f.has_default }).collect();
        let callee = self.layer_name(layer);
        let matched = self.match_args(callee, at, &declared, args, 0)?;
        let mut out = Some(Vec::new());
        for (field, arg) in fields.iter().zip(matched) {
            let value = match arg {
                None => field.default.clone(),
                Some(arg) => self.field_arg(place, field, &arg.value),
            };
            match (value, &mut out) {
                (Some(value), Some(list)) => list.push(value),
                _ => out = None,
            }
        }
        out
    }

    /// As [`Self::applied_fields`], some left open; with the place of each.
    pub fn given_fields(
        &mut self,
        place: &Place,
        layer: usize,
        args: &[Arg],
        at: Span,
    ) -> Option<Vec<(Option<Static>, Span)>> {
        let fields = self.state.layers[layer].fields.clone();
        let declared: Vec<Declared> =
            fields.iter().map(|f| Declared { name: &f.name, required: false }).collect();
        let matched = self.match_args(self.layer_name(layer), at, &declared, args, 0)?;
        let mut out = Vec::new();
        for (field, arg) in fields.iter().zip(matched) {
            out.push(match arg {
                None => (None, at),
                Some(arg) => (Some(self.field_arg(place, field, &arg.value)?), arg.span),
            });
        }
        Some(out)
    }

    fn field_arg(
        &mut self,
        place: &Place,
        field: &crate::layers::Field,
        expr: &Expr,
    ) -> Option<Static> {
        let kind = field.kind?;
        let ty = kind.ty();
        let value = match place.layer {
            Some(names) => {
                let names = names.clone();
                self.layer_static(place.file, &names, expr, ty)?
            }
            None => self.fixed_of(&Names::top(place.file), expr, ty)?.value,
        };
        match (&value, kind) {
            (Static::Value(v), kind) => match kind.accept(v.clone()) {
                Ok(v) => Some(Static::Value(v)),
                Err(v) => {
                    let title = format!(
                        "`{}` is a whole number, not {}",
                        field.name,
                        crate::statics::show(&v)
                    );
                    self.report(
                        Diagnostic::error("M0111", title)
                            .label(expr.span, "not whole")
                            .label(field.span, "declared here"),
                    );
                    None
                }
            },
            _ => Some(value),
        }
    }
}

impl Application {
    fn push(&mut self, size: Poly, span: Span, param: Option<usize>) {
        self.dims.push(size);
        self.dim_spans.push(span);
        self.dim_params.push(param);
    }
}

/// `D = .., H = ..`
fn sizes(names: &[&str]) -> String {
    names.iter().map(|n| format!("{n} = ..")).collect::<Vec<_>>().join(", ")
}
