//! Calls inside functions: sublayers, models, functions of the library, `x |> f`.

use crate::calls::{Declared, as_name};
use crate::function::{FnCx, Val};
use crate::hir::{Axis, Expr, ExprKind, ModelId, Poly, Static, Sym, TensorType};
use crate::layers::Signature;
use crate::scope::{Checker, Entity};
use crate::statics::{Ty, Typed, math_fn};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};
use monarch_syntax::ast::{self, Arg, IndexKind};

/// What is called in a function.
enum Callee {
    Sub(usize),
    Model(usize),
    Op(usize),
}

impl Checker<'_> {
    pub fn pipe(
        &mut self,
        cx: &mut FnCx,
        left: Option<Val>,
        right: &ast::Expr,
        span: Span,
    ) -> Option<Val> {
        let first = Some(left);
        match &crate::calls::bare(right).kind {
            ast::ExprKind::Call(callee, args) => self.call_value(cx, callee, first, args, span),
            ast::ExprKind::Name(_) | ast::ExprKind::Member(..) | ast::ExprKind::Index(..) => {
                self.call_value(cx, right, first, &[], span)
            }
            ast::ExprKind::Broken => None,
            _ => {
                self.report(
                    Diagnostic::error("M0124", "`|>` leads into a layer or a function")
                        .label(right.span, "neither"),
                );
                None
            }
        }
    }

    /// A call. `first` is what came before `|>`; its inner None was reported.
    pub fn call_value(
        &mut self,
        cx: &mut FnCx,
        callee: &ast::Expr,
        first: Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Val> {
        if let Some(found) = self.test_call(cx, callee, &first, args, span) {
            return found;
        }
        if let ast::ExprKind::Index(base, index) = &callee.kind
            && let IndexKind::Einops(pattern) = &index.kind
            && let Some(name) = as_name(base)
            && matches!(name.name.as_str(), "einsum" | "rearrange")
        {
            let tensors = self.plain_tensors(cx, &name.name, first, args)?;
            return match name.name.as_str() {
                "einsum" => self.einsum(cx, pattern, tensors, index.span, span),
                _ => match <[Expr; 1]>::try_from(tensors) {
                    Ok([one]) => self.rearrange(cx, pattern, one, index.span, span),
                    Err(_) => {
                        let d = Diagnostic::error("M0208", "`rearrange` takes one tensor");
                        self.report(d.label(span, "not one"));
                        None
                    }
                },
            }
            .map(Val::Tensor);
        }
        if let Some(name) = as_name(callee)
            && let Some(function) = math_fn(&name.name)
            && first.is_none()
            && args.iter().all(|a| a.name.is_none())
            && let Some(value) = self.static_call(cx, function, args, span)
        {
            return value;
        }
        match self.callee(cx, callee)? {
            Callee::Sub(sub) => self.sub_call(cx, sub, first, args, span),
            Callee::Model(model) => self.model_call(cx, model, first, args, span),
            Callee::Op(op) => self.op_call(cx, op, first, args, span),
        }
    }

    /// `sqrt(K)`: a function of numbers. Outer None: an argument is a tensor.
    fn static_call(
        &mut self,
        cx: &mut FnCx,
        function: crate::hir::MathFn,
        args: &[Arg],
        span: Span,
    ) -> Option<Option<Val>> {
        // Look before reporting anything: the tensor functions of these names come later.
        if args.is_empty() || !args.iter().all(|a| self.seems_static(cx, &a.value)) {
            return None;
        }
        let mut values = Vec::new();
        for arg in args {
            match self.value(cx, &arg.value) {
                Some(Val::Static(typed, at)) if typed.ty != Ty::Number => {
                    self.wrong_type(at, "a number", typed.ty);
                    return Some(None);
                }
                Some(Val::Static(typed, _)) => values.push(typed.value),
                _ => return Some(None),
            }
        }
        let typed = Typed { value: Static::Call(function, values), ty: Ty::Number };
        Some(self.fold_or_report(typed, span).map(|t| Val::Static(t, span)))
    }

    /// Whether an expression speaks of no tensor.
    fn seems_static(&self, cx: &FnCx, expr: &ast::Expr) -> bool {
        use ast::ExprKind as K;
        match &expr.kind {
            K::Name(name) => {
                let n = &name.name;
                let weight = |layer| {
                    self.weight_index(layer, n).is_some() || self.sub_index(layer, n).is_some()
                };
                !cx.by_name.contains_key(n) && !cx.layer.is_some_and(weight)
            }
            K::Number(_) => true,
            K::Paren(e) | K::Unary(_, _, e) => self.seems_static(cx, e),
            K::Binary(op, _, a, b) => {
                crate::statics::static_op(*op).is_some()
                    && self.seems_static(cx, a)
                    && self.seems_static(cx, b)
            }
            K::Call(callee, args) => {
                as_name(callee).is_some_and(|n| math_fn(&n.name).is_some())
                    && args.iter().all(|a| a.name.is_none() && self.seems_static(cx, &a.value))
            }
            K::Member(base, _) => self.seems_static(cx, base),
            _ => false,
        }
    }

    fn plain_tensors(
        &mut self,
        cx: &mut FnCx,
        callee: &str,
        first: Option<Option<Val>>,
        args: &[Arg],
    ) -> Option<Vec<Expr>> {
        let mut out: Vec<Option<Expr>> = Vec::new();
        if let Some(first) = first {
            out.push(first.and_then(|v| self.as_tensor(v)));
        }
        for arg in args {
            if let Some(name) = &arg.name {
                let title = format!("`{callee}` takes plain tensors");
                self.report(Diagnostic::error("M0117", title).label(name.span, "no name needed"));
            }
            out.push(self.tensor(cx, &arg.value));
        }
        out.into_iter().collect()
    }

    fn callee(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Callee> {
        let (name, entity) = match &crate::calls::bare(expr).kind {
            ast::ExprKind::Name(name) => {
                if let Some(layer) = cx.layer
                    && let Some(sub) = self.sub_index(layer, &name.name)
                {
                    return Some(Callee::Sub(sub));
                }
                if cx.by_name.contains_key(&name.name) || cx.names.statics.contains_key(&name.name)
                {
                    let title = format!("`{}` is a value, not something to call", name.name);
                    self.report(Diagnostic::error("M0124", title).label(name.span, "a value"));
                    return None;
                }
                match self.lookup(cx.file, &name.name) {
                    Some(entity) => (name, entity),
                    None if matches!(name.name.as_str(), "einsum" | "rearrange") => {
                        self.no_pattern(name);
                        return None;
                    }
                    None => {
                        self.unknown_in_function(cx, name);
                        return None;
                    }
                }
            }
            ast::ExprKind::Member(base, member) => match as_name(base) {
                Some(base) if self.method(cx, base, member) => return None,
                Some(module) => match self.lookup(cx.file, &module.name) {
                    Some(Entity::Module(id)) => (member, self.member_of(id, member)),
                    Some(_) => return self.no_callee(expr.span),
                    None => {
                        self.unknown_in_function(cx, module);
                        return None;
                    }
                },
                None => return self.no_callee(expr.span),
            },
            ast::ExprKind::Index(base, _) => {
                match as_name(base) {
                    Some(name) => match self.lookup(cx.file, &name.name) {
                        Some(Entity::Layer(_)) => self.layer_in_function(name),
                        Some(_) => return self.no_callee(expr.span),
                        None => self.unknown_in_function(cx, name),
                    },
                    None => return self.no_callee(expr.span),
                }
                return None;
            }
            ast::ExprKind::Broken => return None,
            _ => return self.no_callee(expr.span),
        };
        match entity {
            Entity::Op(op) if self.op_result(op).is_none() => Some(Callee::Op(op)),
            Entity::Model(model) => Some(Callee::Model(model)),
            Entity::Layer(_) => {
                self.layer_in_function(name);
                None
            }
            other => {
                self.wrong_entity(name, other, "a layer or a function of tensors");
                None
            }
        }
    }

    fn no_pattern(&mut self, name: &ast::Ident) {
        let (title, pattern) = match name.name.as_str() {
            "einsum" => ("`einsum` has its pattern in `[ ]`", "einsum[B I, I O -> B O](x, w)"),
            _ => ("`rearrange` has its pattern in `[ ]`", "rearrange[B H K -> B (H K)](x)"),
        };
        let d = Diagnostic::error("M0207", title).label(name.span, "no pattern");
        self.report(d.help(format!("axes by name: `{pattern}`")));
    }

    fn no_callee<T>(&mut self, at: Span) -> Option<T> {
        self.report(
            Diagnostic::error("M0124", "this cannot be called").label(at, "not a function"),
        );
        None
    }

    /// Tensors for the parameters of a signature, by name or in order.
    fn signature_args(
        &mut self,
        cx: &mut FnCx,
        callee: &str,
        signature: &Signature,
        first: Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Vec<Expr>> {
        let declared: Vec<Declared> =
            signature.params.iter().map(|p| Declared { name: &p.name, required: true }).collect();
        let skip = usize::from(first.is_some());
        if skip > declared.len() {
            let title = format!("`{callee}` takes no input");
            self.report(Diagnostic::error("M0117", title).label(span, "one too many"));
            return None;
        }
        let matched = self.match_args(callee, span, &declared, args, skip);
        let mut out: Vec<Option<Expr>> = Vec::new();
        if let Some(first) = first {
            out.push(first.and_then(|v| self.as_tensor(v)));
        }
        match matched {
            Some(matched) => {
                for arg in matched.into_iter().skip(skip).flatten() {
                    out.push(self.tensor(cx, &arg.value));
                }
            }
            None => {
                // Mistakes inside the arguments are still worth a word.
                args.iter().for_each(|a| {
                    self.tensor(cx, &a.value);
                });
                return None;
            }
        }
        out.into_iter().collect()
    }

    fn sub_call(
        &mut self,
        cx: &mut FnCx,
        sub: usize,
        first: Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Val> {
        let outer = cx.layer?;
        let info = self.state.layers[outer].subs[sub].clone();
        cx.names.note(&info.name);
        let signature =
            info.def.as_ref().and_then(|d| self.state.layers[d.layer.0 as usize].signature.clone());
        let Some((def, signature)) = info.def.zip(signature) else {
            args.iter().for_each(|a| {
                self.value(cx, &a.value);
            });
            return None;
        };
        let layer = def.layer.0 as usize;
        let args = self.signature_args(cx, &info.name, &signature, first, args, span)?;
        let mut known: Vec<Option<Axis>> = def
            .dims
            .iter()
            .map(|p| {
                let name = p.as_symbol().map(|s| cx.sym_name(s));
                Some(Axis { name, size: p.clone() })
            })
            .collect();
        for (field, value) in self.state.layers[layer].fields.iter().zip(&def.fields) {
            if field.symbol.is_some() {
                let size = crate::statics::as_size(value);
                known.push(size.map(|size| Axis { name: None, size }));
            }
        }
        let ty = self.apply_signature(cx, layer, &signature, known, &args, span)?;
        let kind = ExprKind::Sub { sub: sub as u32, args };
        Some(Val::Tensor(Expr { kind, ty, span }))
    }

    fn model_call(
        &mut self,
        cx: &mut FnCx,
        model: usize,
        first: Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Val> {
        if cx.layer.is_some() {
            self.report(
                Diagnostic::error("M0124", "a layer cannot use a model")
                    .label(span, "a model")
                    .help("make its layer a sublayer: `part = Name[..]`"),
            );
            return None;
        }
        let Some(instance) = self.model_value(model) else {
            args.iter().for_each(|a| {
                self.value(cx, &a.value);
            });
            return None;
        };
        let layer = instance.root.layer.0 as usize;
        let signature = self.state.layers[layer].signature.clone()?;
        let name = instance.name.clone();
        let args = self.signature_args(cx, &name, &signature, first, args, span)?;
        let number = |n: &u64| {
            let size = Poly::number(i64::try_from(*n).unwrap_or(i64::MAX));
            Some(Axis { name: None, size })
        };
        let known = instance.root.sizes.iter().map(number).collect();
        let ty = self.apply_signature(cx, layer, &signature, known, &args, span)?;
        let kind = ExprKind::Model { model: ModelId(model as u32), args };
        Some(Val::Tensor(Expr { kind, ty, span }))
    }

    /// The type of a call of a layer, whose first symbols are `known`.
    fn apply_signature(
        &mut self,
        cx: &mut FnCx,
        layer: usize,
        signature: &Signature,
        mut known: Vec<Option<Axis>>,
        args: &[Expr],
        span: Span,
    ) -> Option<TensorType> {
        known.resize(self.state.layers[layer].symbols.len(), None);
        let mut rest: Option<(bool, Vec<Axis>)> = None;
        for (param, arg) in signature.params.iter().zip(args) {
            let fits = self.bind_arg(cx, layer, param, arg, &mut known, &mut rest);
            fits?;
        }
        let mut axes = Vec::new();
        if let (true, Some((_, prefix))) = (signature.result.rest, &rest) {
            axes.extend(prefix.iter().cloned());
        }
        for axis in &signature.result.axes {
            let size = self.size_of_result(cx, layer, &axis.size, &known, span)?;
            axes.push(Axis { name: outer_name(axis, &size, &known), size });
        }
        for (sym, _) in self.state.layers[layer].mixed.clone() {
            if let Some(Some(axis)) = known.get(sym.index()) {
                cx.mixes(&axis.size.clone(), span);
            }
        }
        let rest = signature.result.rest && rest.is_some_and(|r| r.0);
        Some(TensorType { dtype: signature.result.dtype, rest, axes })
    }

    /// A size of a layer's result where it is called. None: reported.
    fn size_of_result(
        &mut self,
        cx: &FnCx,
        layer: usize,
        size: &Poly,
        known: &[Option<Axis>],
        span: Span,
    ) -> Option<Poly> {
        let given = |s: Sym| known.get(s.index())?.clone().map(|a| a.size);
        if let Some(found) = size.substitute(&given) {
            return Some(found);
        }
        let symbols = &self.state.layers[layer].symbols;
        let name = |s: Sym| symbols.get(s.index()).map_or("?".to_owned(), |x| x.name.clone());
        let divisor = size.symbols().into_iter().filter(|s| size.divides_by(*s));
        let divisor = divisor.filter_map(|s| Some((name(s), given(s)?)));
        let bad = divisor.into_iter().find(|(_, by)| Poly::number(1).div(by).is_none());
        let (callee, text) = (self.layer_name(layer), size.text(&name));
        let d = Diagnostic::error("M0211", format!("a size of `{callee}` cannot be told: {text}"));
        self.report(match bad {
            Some((divisor, by)) => {
                let shown = cx.size_text(&by);
                let d = d.label(span, format!("{divisor} = {shown}"));
                match by.as_number() {
                    Some(_) => d.help(format!("`{divisor}` is a whole number from 1")),
                    None => d.help(format!("give `{divisor}` a number, or one axis")),
                }
            }
            None => d.label(span, "too many terms"),
        });
        None
    }

    fn bind_arg(
        &mut self,
        cx: &FnCx,
        layer: usize,
        param: &crate::hir::ParamDef,
        arg: &Expr,
        known: &mut [Option<Axis>],
        rest: &mut Option<(bool, Vec<Axis>)>,
    ) -> Option<()> {
        if arg.ty.dtype != param.ty.dtype {
            return self.misfit(cx, layer, param, arg, known, None);
        }
        let lead = arg.ty.axes.len().checked_sub(param.ty.axes.len());
        let lead = match lead {
            Some(lead) if param.ty.rest || (lead == 0 && !arg.ty.rest) => lead,
            _ => return self.misfit(cx, layer, param, arg, known, None),
        };
        if param.ty.rest {
            let prefix = (arg.ty.rest, arg.ty.axes[..lead].to_vec());
            match rest {
                Some(old) if *old != prefix => {
                    return self.misfit(cx, layer, param, arg, known, None);
                }
                _ => *rest = Some(prefix),
            }
        }
        for (axis, actual) in param.ty.axes.iter().zip(&arg.ty.axes[lead..]) {
            if let Some(sym) = axis.size.as_symbol()
                && let Some(slot @ None) = known.get_mut(sym.index())
            {
                *slot = Some(actual.clone());
                continue;
            }
            let wanted = axis.size.substitute(&|s| known.get(s.index())?.clone().map(|a| a.size));
            if wanted.as_ref() != Some(&actual.size) {
                return self.misfit(cx, layer, param, arg, known, Some((axis, actual)));
            }
        }
        Some(())
    }

    /// Says that an argument does not fit; always None.
    fn misfit(
        &mut self,
        cx: &FnCx,
        layer: usize,
        param: &crate::hir::ParamDef,
        arg: &Expr,
        known: &[Option<Axis>],
        at: Option<(&Axis, &Axis)>,
    ) -> Option<()> {
        let callee = self.layer_name(layer);
        let symbols = &self.state.layers[layer].symbols;
        let name = |s: Sym| symbols.get(s.index()).map_or("?".to_owned(), |x| x.name.clone());
        let dtype = if param.ty.dtype == DType::I32 { "i32" } else { "" };
        let dots = if param.ty.rest { vec!["..".to_owned()] } else { Vec::new() };
        let axes = param.ty.axes.iter().map(|a| a.name.clone().unwrap_or(a.size.text(&name)));
        let words: Vec<String> = dots.into_iter().chain(axes).collect();
        let wanted = format!("{dtype}[{}]", words.join(", "));
        let given = cx.type_text(&arg.ty);
        if arg.ty.dtype != param.ty.dtype {
            let title = format!("`{callee}` takes {wanted}, and this is {given}");
            let d = Diagnostic::error("M0210", title)
                .label(arg.span, given)
                .label(param.span, "declared here");
            self.report(d);
            return None;
        }
        let mut d = match at {
            Some((axis, actual)) => {
                let size = axis.size.substitute(&|s| known.get(s.index())?.clone().map(|a| a.size));
                let outer = |p: &Poly| {
                    let axis = Axis { name: None, size: p.clone() };
                    cx.size_note(&axis).unwrap_or_else(|| cx.size_text(p))
                };
                let own = axis.name.clone().unwrap_or_else(|| axis.size.text(&name));
                let needs = size.as_ref().map(outer).unwrap_or_default();
                let has = cx.axis_text(actual);
                let title = match own == needs {
                    true => format!("`{callee}` takes {own} where this has {has}"),
                    false => format!("`{callee}` takes {needs} (its {own}) where this has {has}"),
                };
                Diagnostic::error("M0209", title)
                    .label(arg.span, cx.type_note(&arg.ty, Some(actual)))
            }
            None => {
                let title = format!("`{callee}` takes {wanted}, and this is {given}");
                Diagnostic::error("M0209", title).label(arg.span, given)
            }
        };
        d = d.label(param.span, format!("takes {wanted}"));
        // A model of the wrong size does not fit its loss, and so none of its metrics.
        let same = |o: &Diagnostic| {
            let second = |d: &Diagnostic| d.labels.get(1).map(|l| l.span);
            o.code == d.code && o.title == d.title && second(o) == second(&d)
        };
        if cx.layer.is_none() && self.diagnostics.iter().any(same) {
            return None;
        }
        self.report(d);
        None
    }
}

/// What a result's axis is called outside of the layer: as the argument's axis of the same size
/// that it was computed from; by its own name only where outside there is a plain number.
fn outer_name(axis: &Axis, size: &Poly, known: &[Option<Axis>]) -> Option<String> {
    let of = |s: Sym| known.get(s.index()).and_then(|a| a.as_ref());
    let outer = axis.size.symbols().into_iter().filter_map(of).find(|a| a.size == *size);
    match outer {
        Some(outer) if outer.name.is_some() => outer.name.clone(),
        Some(outer) if outer.size.as_number().is_none() => None,
        _ => axis.name.clone(),
    }
}
