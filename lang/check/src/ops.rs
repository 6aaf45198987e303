//! Calls inside functions: sublayers, models, functions of the library, `x |> f`.

use crate::calls::{Declared, as_name};
use crate::function::{FnCx, Val};
use crate::hir::{Axis, Expr, ExprKind, ModelId, Op, Poly, Reduction, Static, Sym, TensorType};
use crate::layers::Signature;
use crate::operators::op_expr;
use crate::scope::{Checker, Entity};
use crate::statics::{Ty, Typed, math_fn};
use crate::types::same_axis;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{BinaryOp, DType, Span, UnaryOp};
use monarch_syntax::ast::{self, Arg, AxisKind, IndexKind, Kind};

/// What is called in a function.
enum Callee {
    Sub(usize),
    Model(usize),
    Op(usize),
}

/// What the names in an op's signature stand for in a call.
#[derive(Default)]
struct Bound {
    rest: Option<(bool, Vec<Axis>)>,
    axes: Vec<(String, Axis)>,
    /// The place from the end of the axis that `over` names, and the tensor it is in.
    over: Option<(usize, TensorType)>,
}

/// A matched call of a library function.
struct OpCall {
    tensors: Vec<Option<Expr>>,
    over: Option<usize>,
    numbers: Vec<(String, Static)>,
    ty: TensorType,
    span: Span,
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
                    None => {
                        self.unknown_in_function(cx, name);
                        return None;
                    }
                }
            }
            ast::ExprKind::Member(base, member) => match as_name(base) {
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
        cx.names.used.borrow_mut().insert(info.name.clone());
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
        let size = |p: &Poly| p.substitute(&|s| known.get(s.index())?.clone().map(|a| a.size));
        let mut axes = Vec::new();
        if let (true, Some((_, prefix))) = (signature.result.rest, &rest) {
            axes.extend(prefix.iter().cloned());
        }
        for axis in &signature.result.axes {
            let outer = axis.size.as_symbol().and_then(|s| known.get(s.index())?.clone());
            let name = outer.and_then(|a| a.name).or_else(|| axis.name.clone());
            axes.push(Axis { name, size: size(&axis.size)? });
        }
        for (sym, _) in self.state.layers[layer].mixed.clone() {
            if let Some(Some(axis)) = known.get(sym.index()) {
                cx.mixes(&axis.size.clone(), span);
            }
        }
        let rest = signature.result.rest && rest.is_some_and(|r| r.0);
        Some(TensorType { dtype: signature.result.dtype, rest, axes })
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
        self.report(d);
        None
    }

    fn op_call(
        &mut self,
        cx: &mut FnCx,
        op: usize,
        first: Option<Option<Val>>,
        args: &[Arg],
        span: Span,
    ) -> Option<Val> {
        let skip = usize::from(first.is_some());
        let ast = self.ops[op].ast;
        let name = ast.name.name.clone();
        let Some(matched) = self.match_op(op, span, args, skip) else {
            let tensors = args.iter().filter(|a| a.name.is_none());
            tensors.for_each(|a| {
                self.value(cx, &a.value);
            });
            return None;
        };
        let mut call = OpCall {
            tensors: Vec::new(),
            over: None,
            numbers: Vec::new(),
            ty: crate::types::scalar(DType::F32),
            span,
        };
        let mut fine = true;
        let mut first = first;
        for (i, field) in ast.fields.iter().enumerate() {
            let Some(Kind::Tensor(_)) = &field.kind else { continue };
            let tensor = match (first.take().filter(|_| i == 0), matched[i]) {
                (Some(value), _) => Some(value.and_then(|v| self.as_tensor(v))),
                (None, Some(arg)) => Some(self.tensor(cx, &arg.value)),
                (None, None) => None,
            };
            fine &= !matches!(tensor, Some(None));
            call.tensors.push(tensor.flatten());
        }
        let mut bound = Bound::default();
        for (field, arg) in ast.fields.iter().zip(&matched) {
            let Some(Kind::Name(kind)) = &field.kind else { continue };
            match (kind.name.as_str(), arg) {
                ("axis", Some(arg)) => {
                    let x = call.tensors.first().cloned().flatten()?;
                    let place = self.axis_of(cx, &x, &arg.value)?;
                    bound.over = Some((place, x.ty.clone()));
                    call.over = Some(place);
                }
                ("axis", None) => {}
                (_, Some(arg)) => match self.layer_number(cx, &arg.value) {
                    Some(v) => call.numbers.push((field.name.name.clone(), v)),
                    None => fine = false,
                },
                (_, None) => {
                    let default = field.default.as_ref()?;
                    let file = self.ops[op].file;
                    let value = self.plain_value(file, default)?;
                    call.numbers.push((field.name.name.clone(), Static::Value(value)));
                }
            }
        }
        if !fine {
            return None;
        }
        let mut index = 0;
        for field in &ast.fields {
            let Some(Kind::Tensor(pattern)) = &field.kind else { continue };
            let tensor = call.tensors[index].clone();
            index += 1;
            if let Some(tensor) = tensor {
                self.bind_pattern(cx, &name, field, pattern, &tensor, &mut bound)?;
            }
        }
        call.ty = op_type(ast, &bound)?;
        self.op_value(cx, &name, call)
    }

    fn layer_number(&mut self, cx: &mut FnCx, expr: &ast::Expr) -> Option<Static> {
        match self.value(cx, expr)? {
            Val::Static(typed, _) if typed.ty == Ty::Number => Some(typed.value),
            Val::Static(typed, at) => {
                self.wrong_type(at, "a number", typed.ty);
                None
            }
            other => {
                self.report(
                    Diagnostic::error("M0111", "a number known before the run is needed here")
                        .label(other.span(), "a tensor"),
                );
                None
            }
        }
    }

    /// Matches a tensor with the shape that an op's signature gives for it.
    fn bind_pattern(
        &mut self,
        cx: &FnCx,
        op: &str,
        field: &ast::Field,
        pattern: &ast::TensorType,
        x: &Expr,
        bound: &mut Bound,
    ) -> Option<()> {
        let dtype = match &pattern.dtype {
            Some(d) if d.name == "i32" => DType::I32,
            _ => DType::F32,
        };
        let text = self.loaded.sources.slice(pattern.span).to_owned();
        let given = cx.type_text(&x.ty);
        let what = &field.name.name;
        if x.ty.dtype != dtype {
            let title = format!(
                "`{what}` of `{op}` is {}, and this is {}",
                dtype.name(),
                x.ty.dtype.name()
            );
            let d = Diagnostic::error("M0210", title).label(x.span, given);
            let d = if dtype == DType::F32 { d.help("`float(..)` makes f32 of i32") } else { d };
            self.report(d);
            return None;
        }
        let over = pattern.axes.iter().any(|a| axis_name(a) == Some("over"));
        let mut axes = x.ty.axes.clone();
        if over {
            match &bound.over {
                Some((place, _)) => {
                    axes.remove(axes.len() - 1 - place);
                }
                None => return Some(()),
            }
        }
        let named: Vec<&str> =
            pattern.axes.iter().filter_map(axis_name).filter(|n| *n != "over").collect();
        let rest = pattern.axes.iter().any(|a| matches!(a.kind, AxisKind::Rest));
        let fits =
            if rest { axes.len() >= named.len() } else { axes.len() == named.len() && !x.ty.rest };
        let mut problem = (!fits).then(|| format!("`{op}` takes {text} as `{what}`, not {given}"));
        let lead = axes.len().saturating_sub(named.len());
        if fits && rest {
            let prefix = (x.ty.rest, axes[..lead].to_vec());
            match &bound.rest {
                Some(old) if !same_prefix(old, &prefix) => {
                    let of = |p: &(bool, Vec<Axis>)| {
                        let ty = TensorType { dtype: DType::F32, rest: p.0, axes: p.1.clone() };
                        cx.type_text(&ty)
                    };
                    problem = Some(format!(
                        "`{what}` of `{op}` has the axes {} where {} is needed",
                        of(&prefix),
                        of(old)
                    ));
                }
                Some(_) => {}
                None => bound.rest = Some(prefix),
            }
        }
        for (name, actual) in named.iter().zip(axes.iter().skip(lead)) {
            match bound.axes.iter().find(|b| b.0 == *name) {
                Some((_, old)) if old.size != actual.size => {
                    problem = Some(format!("`{name}` of `{op}` has two sizes"));
                }
                Some(_) => {}
                None => bound.axes.push(((*name).to_owned(), actual.clone())),
            }
        }
        match problem {
            None => Some(()),
            Some(title) => {
                self.report(
                    Diagnostic::error("M0209", title)
                        .label(x.span, given)
                        .help(format!("`{op}` takes {text} as `{what}`")),
                );
                None
            }
        }
    }

    /// The operation itself.
    fn op_value(&mut self, cx: &mut FnCx, name: &str, call: OpCall) -> Option<Val> {
        let OpCall { tensors, over, numbers, ty, span } = call;
        let number = |n: &str| numbers.iter().find(|x| x.0 == n).map(|x| x.1.clone());
        let mut args: Vec<Expr> = tensors.into_iter().flatten().collect();
        let axis_size = |args: &[Expr], place: usize| {
            args.first().and_then(|x| x.ty.axes.iter().rev().nth(place)).map(|a| a.size.clone())
        };
        if let Some(size) = over.and_then(|place| axis_size(&args, place)) {
            cx.mixes(&size, span);
        }
        if matches!(name, "rms_norm" | "layer_norm" | "cross_entropy" | "rope")
            && let Some(size) = axis_size(&args, 0)
        {
            cx.mixes(&size, span);
        }
        if name == "causal" {
            for size in (0..2).filter_map(|i| axis_size(&args, i)).collect::<Vec<_>>() {
                cx.mixes(&size, span);
            }
        }
        if name == "cross_entropy" {
            return self.cross_entropy(cx, args, span);
        }
        if name == "mean" && over.is_none() {
            let elements = args.pop()?;
            return Some(Val::Mean { elements, weight: None, span });
        }
        let unary = unary_op(name);
        let op = match (name, over) {
            ("float", _) => Op::ToFloat,
            ("causal", _) => Op::Causal,
            ("rms_norm", _) => Op::RmsNorm { eps: number("eps")? },
            ("layer_norm", _) => Op::LayerNorm { eps: number("eps")? },
            ("softmax", Some(from_end)) => Op::Softmax { from_end },
            ("rope", Some(from_end)) => Op::Rope { from_end, base: number("base")? },
            ("argmax", Some(from_end)) => Op::ArgMax { from_end },
            ("sum", Some(i)) => Op::Reduce { kind: Reduction::Sum, from_end: vec![i] },
            ("max", Some(i)) => Op::Reduce { kind: Reduction::Max, from_end: vec![i] },
            ("mean", Some(i)) => Op::Reduce { kind: Reduction::Mean, from_end: vec![i] },
            _ => Op::Unary(unary?),
        };
        Some(Val::Tensor(op_expr(op, args, ty, span)))
    }

    fn cross_entropy(&mut self, cx: &FnCx, mut args: Vec<Expr>, span: Span) -> Option<Val> {
        let weight = if args.len() > 2 { args.pop() } else { None };
        let ty = TensorType { dtype: DType::F32, ..args.get(1)?.ty.clone() };
        let nll = op_expr(Op::CrossEntropy, args, ty, span);
        let Some(weight) = weight else {
            return Some(Val::Mean { elements: nll, weight: None, span });
        };
        let ty = self.broadcast(cx, "*", span, &weight, &nll)?;
        let args = vec![weight.clone(), nll];
        let elements = op_expr(Op::Binary(BinaryOp::Mul), args, ty, span);
        Some(Val::Mean { elements, weight: Some(weight), span })
    }
}

fn axis_name(axis: &ast::Axis) -> Option<&str> {
    match &axis.kind {
        AxisKind::Size(e) => as_name(e).map(|n| n.name.as_str()),
        _ => None,
    }
}

fn same_prefix(a: &(bool, Vec<Axis>), b: &(bool, Vec<Axis>)) -> bool {
    a.0 == b.0 && a.1.len() == b.1.len() && a.1.iter().zip(&b.1).all(|(x, y)| same_axis(x, y))
}

/// The result of an op, from its signature.
fn op_type(ast: &ast::Op, bound: &Bound) -> Option<TensorType> {
    let Some(Kind::Tensor(result)) = &ast.result else { return None };
    let dtype = match &result.dtype {
        Some(d) if d.name == "i32" => DType::I32,
        _ => DType::F32,
    };
    let mut ty = TensorType { dtype, rest: false, axes: Vec::new() };
    let keeps_over = result.axes.iter().any(|a| axis_name(a) == Some("over"));
    if let (true, Some((_, whole))) = (keeps_over, &bound.over) {
        return Some(TensorType { dtype, ..whole.clone() });
    }
    for axis in &result.axes {
        match axis_name(axis) {
            None => {
                if let Some((rest, prefix)) = &bound.rest {
                    ty.rest = *rest;
                    ty.axes.extend(prefix.iter().cloned());
                }
            }
            Some(name) => {
                let found = bound.axes.iter().find(|b| b.0 == name)?;
                ty.axes.push(found.1.clone());
            }
        }
    }
    Some(ty)
}

pub(crate) fn unary_op(name: &str) -> Option<UnaryOp> {
    Some(match name {
        "exp" => UnaryOp::Exp,
        "log" => UnaryOp::Log,
        "sqrt" => UnaryOp::Sqrt,
        "rsqrt" => UnaryOp::Rsqrt,
        "square" => UnaryOp::Square,
        "abs" => UnaryOp::Abs,
        "tanh" => UnaryOp::Tanh,
        "sigmoid" => UnaryOp::Sigmoid,
        "relu" => UnaryOp::Relu,
        "gelu" => UnaryOp::Gelu,
        "silu" => UnaryOp::Silu,
        _ => return None,
    })
}
