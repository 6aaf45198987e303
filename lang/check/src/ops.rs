//! Calls of functions of the library: `softmax(x, over = S)`.

use crate::calls::as_name;
use crate::function::{FnCx, Val};
use crate::hir::{Axis, Composed, Expr, Op, Reduction, Static, TensorType};
use crate::operators::op_expr;
use crate::scope::Checker;
use crate::types::same_axis;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{BinaryOp, DType, Span, UnaryOp};
use monarch_syntax::ast::{self, Arg, AxisKind, Kind};

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
    pub fn op_call(
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
        fine &= self.op_numbers(cx, op, &matched, &mut call, &mut bound)?;
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
        if matches!(name.as_str(), "conv2d" | "max_pool2d" | "avg_pool2d") {
            let args = call.tensors.into_iter().flatten().collect();
            return self.image_op(cx, &name, args, &call.numbers, span).map(Val::Tensor);
        }
        call.ty = op_type(ast, &bound)?;
        self.op_value(cx, &name, call)
    }

    /// The arguments that are no tensors. None or false: reported.
    fn op_numbers(
        &mut self,
        cx: &mut FnCx,
        op: usize,
        matched: &[Option<&Arg>],
        call: &mut OpCall,
        bound: &mut Bound,
    ) -> Option<bool> {
        let mut fine = true;
        let ast = self.ops[op].ast;
        for (field, arg) in ast.fields.iter().zip(matched) {
            let Some(Kind::Name(kind)) = &field.kind else { continue };
            let name = field.name.name.clone();
            match (kind.name.as_str(), arg) {
                ("axis", Some(arg)) => {
                    let x = call.tensors.first().cloned().flatten()?;
                    let place = self.axis_of(cx, &x, &arg.value)?;
                    bound.over = Some((place, x.ty.clone()));
                    call.over = Some(place);
                }
                ("axis", None) => {}
                (kind, Some(arg)) => match self.op_number(cx, kind, &name, &arg.value) {
                    Some(v) => call.numbers.push((name, v)),
                    None => fine = false,
                },
                (_, None) => {
                    let default = field.default.as_ref()?;
                    if as_name(default).is_some_and(|n| n.name == "none") {
                        continue;
                    }
                    let value = self.plain_value(self.ops[op].file, default)?;
                    call.numbers.push((name, Static::Value(value)));
                }
            }
        }
        Some(fine)
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
        let problem = self.pattern_problem(cx, op, field, pattern, (x.ty.rest, axes), bound);
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

    /// Binds the names of a pattern to these axes, or says why that cannot be.
    fn pattern_problem(
        &self,
        cx: &FnCx,
        op: &str,
        field: &ast::Field,
        pattern: &ast::TensorType,
        (more, axes): (bool, Vec<Axis>),
        bound: &mut Bound,
    ) -> Option<String> {
        let what = &field.name.name;
        let text = |rest: bool, axes: &[Axis]| {
            cx.type_text(&TensorType { dtype: DType::F32, rest, axes: axes.to_vec() })
        };
        let named: Vec<&str> =
            pattern.axes.iter().filter_map(axis_name).filter(|n| *n != "over").collect();
        let rest = pattern.axes.iter().any(|a| matches!(a.kind, AxisKind::Rest));
        let fits = match rest {
            true => axes.len() >= named.len(),
            false => axes.len() == named.len() && !more,
        };
        if !fits {
            let wanted = self.loaded.sources.slice(pattern.span);
            return Some(format!("`{op}` takes {wanted} as `{what}`, not {}", text(more, &axes)));
        }
        let lead = axes.len() - named.len();
        if rest {
            let prefix = (more, axes[..lead].to_vec());
            match &bound.rest {
                Some(old) if !same_prefix(old, &prefix) => {
                    let (have, want) = (text(prefix.0, &prefix.1), text(old.0, &old.1));
                    let title = format!("`{what}` of `{op}` has the axes {have}, not {want}");
                    return Some(title);
                }
                Some(_) => {}
                None => bound.rest = Some(prefix),
            }
        }
        for (name, actual) in named.iter().zip(axes.iter().skip(lead)) {
            match bound.axes.iter().find(|b| b.0 == *name) {
                Some((_, old)) if old.size != actual.size => {
                    return Some(format!("`{name}` of `{op}` has two sizes"));
                }
                Some(_) => {}
                None => bound.axes.push(((*name).to_owned(), actual.clone())),
            }
        }
        None
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
        if matches!(name, "rms_norm" | "layer_norm" | "cross_entropy" | "rope" | "kl")
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
            return self.cross_entropy(cx, args, number("smoothing")?, span);
        }
        let composed = |function, numbers: &[&str]| {
            let numbers: Option<Vec<Static>> = numbers.iter().map(|n| number(n)).collect();
            Some(Op::Composed { function, numbers: numbers? })
        };
        let loss = loss_function(name).and_then(|(function, numbers)| composed(function, numbers));
        if let Some(loss) = loss {
            let mut ty = args.first()?.ty.clone();
            if name == "kl" {
                ty.axes.pop();
            }
            let elements = op_expr(loss, args, ty, span);
            return Some(Val::Mean { elements, weight: None, span });
        }
        if name == "mean" && over.is_none() {
            return args.pop().map(|elements| Val::Mean { elements, weight: None, span });
        }
        let op = match (name, over) {
            ("float", _) => Op::ToFloat,
            ("causal", _) => Op::Causal,
            ("dropout", _) => Op::Dropout { p: number("p")? },
            ("rms_norm", _) => Op::RmsNorm { eps: number("eps")? },
            ("layer_norm", _) => Op::LayerNorm { eps: number("eps")? },
            ("softmax", Some(from_end)) => Op::Softmax { from_end },
            ("log_softmax", Some(from_end)) => {
                let function = Composed::LogSoftmax { from_end };
                Op::Composed { function, numbers: Vec::new() }
            }
            ("logsumexp", Some(from_end)) => Op::LogSumExp { from_end },
            ("leaky_relu", _) => composed(Composed::LeakyRelu, &["slope"])?,
            ("elu", _) => composed(Composed::Elu, &["alpha"])?,
            ("log_sigmoid", _) => composed(Composed::LogSigmoid, &[])?,
            ("gelu_tanh", _) => composed(Composed::GeluTanh, &[])?,
            ("clamp", _) => composed(Composed::Clamp, &["low", "high"])?,
            ("swiglu", _) => composed(Composed::Swiglu, &[])?,
            ("maximum", _) => Op::Binary(BinaryOp::Max),
            ("minimum", _) => Op::Binary(BinaryOp::Min),
            ("min", Some(i)) => Op::Reduce { kind: Reduction::Min, from_end: vec![i] },
            ("rope", Some(from_end)) => rope(from_end, &number)?,
            ("argmax", Some(from_end)) => Op::ArgMax { from_end },
            ("sum", Some(i)) => Op::Reduce { kind: Reduction::Sum, from_end: vec![i] },
            ("max", Some(i)) => Op::Reduce { kind: Reduction::Max, from_end: vec![i] },
            ("mean", Some(i)) => Op::Reduce { kind: Reduction::Mean, from_end: vec![i] },
            _ => Op::Unary(unary_op(name)?),
        };
        Some(Val::Tensor(op_expr(op, args, ty, span)))
    }

    fn cross_entropy(
        &mut self,
        cx: &FnCx,
        mut args: Vec<Expr>,
        smoothing: Static,
        span: Span,
    ) -> Option<Val> {
        let weight = if args.len() > 2 { args.pop() } else { None };
        let ty = TensorType { dtype: DType::F32, ..args.get(1)?.ty.clone() };
        let plain = matches!(&smoothing, Static::Value(v) if v.number() == Some(0.0));
        let op = match plain {
            true => Op::CrossEntropy,
            false => {
                let function = Composed::SmoothCrossEntropy;
                Op::Composed { function, numbers: vec![smoothing] }
            }
        };
        let nll = op_expr(op, args, ty, span);
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

/// A loss of two tensors, and the numbers that it takes.
fn loss_function(name: &str) -> Option<(Composed, &'static [&'static str])> {
    Some(match name {
        "mse" => (Composed::Mse, &[]),
        "l1" => (Composed::L1, &[]),
        "huber" => (Composed::Huber, &["delta"]),
        "bce_with_logits" => (Composed::BceWithLogits, &[]),
        "kl" => (Composed::Kl, &[]),
        _ => return None,
    })
}

fn rope(from_end: usize, number: &impl Fn(&str) -> Option<Static>) -> Option<Op> {
    let stretch = [number("factor")?, number("low")?, number("high")?, number("context")?];
    Some(Op::Rope { from_end, base: number("base")?, stretch: Some(Box::new(stretch)) })
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
        "softplus" => UnaryOp::Softplus,
        _ => return None,
    })
}
