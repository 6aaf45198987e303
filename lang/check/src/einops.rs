//! `einsum[B T D, V D -> B T V](x, w)` and `rearrange[B T (H K) -> B H T K](x)`.

use crate::calls::plural;
use crate::function::{FnCx, named_axis};
use crate::hir::{Axis, Expr, Labels, Op, Poly, Rearrange, TensorType};
use crate::operators::op_expr;
use crate::scope::{Checker, with_near};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{DType, Span};
use monarch_syntax::ast::{Einops, EinopsAxes, EinopsAxis, EinopsKind, Ident};

/// Labels of a pattern with their axes, in the order of first occurrence.
#[derive(Default)]
struct Table {
    names: Vec<String>,
    /// None until a size is known.
    sizes: Vec<Option<Poly>>,
    spans: Vec<Span>,
    /// In how many operands, and in the result.
    inputs: Vec<u32>,
    output: Vec<bool>,
}

/// More than any pattern needs; labels are one byte in a plan.
const MAX_LABELS: usize = 52;

impl Table {
    fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }

    fn add(&mut self, name: &str, span: Span) -> usize {
        self.names.push(name.to_owned());
        self.sizes.push(None);
        self.spans.push(span);
        self.inputs.push(0);
        self.output.push(false);
        self.names.len() - 1
    }
}

/// An axis of a pattern that must be a plain name.
enum Part<'p> {
    Rest,
    Name(&'p str),
    Other(&'static str),
}

fn part(axis: &EinopsAxis) -> Part<'_> {
    match &axis.kind {
        EinopsKind::Rest => Part::Rest,
        EinopsKind::Name(name) => Part::Name(name),
        EinopsKind::Int(_) => Part::Other("a number has no name: call the axis something"),
        EinopsKind::Group(_) => Part::Other("`(..)` joins axes in `rearrange` only"),
    }
}

impl Checker<'_> {
    fn pattern_error(&mut self, code: &'static str, title: String, at: Span, label: &str) {
        self.report(Diagnostic::error(code, title).label(at, label));
    }

    /// The size that a label's name has in this function, if it has one there.
    fn scope_size(&self, cx: &FnCx, label: &str) -> Option<Poly> {
        if let Some(found) = cx.names.get(label) {
            return found.and_then(|t| crate::statics::as_size(&t.value));
        }
        let sym = cx.symbols.iter().position(|s| s.name == label)?;
        Some(Poly::symbol(crate::hir::Sym(sym as u32)))
    }

    pub fn einsum(
        &mut self,
        cx: &mut FnCx,
        pattern: &Einops,
        args: Vec<Expr>,
        at: Span,
        span: Span,
    ) -> Option<Expr> {
        if pattern.inputs.len() != args.len() {
            let n = pattern.inputs.len();
            let title = format!("this pattern is for {n} tensor{}, not {}", plural(n), args.len());
            self.pattern_error("M0207", title, at, "the pattern");
            return None;
        }
        let mut table = Table::default();
        let mut inputs = Vec::new();
        let mut rest: Option<(bool, Vec<Axis>)> = None;
        for (axes, arg) in pattern.inputs.iter().zip(&args) {
            self.float_only("einsum", arg)?;
            inputs.push(self.operand(cx, &mut table, axes, arg, &mut rest)?);
        }
        let output = self.einsum_output(&mut table, &pattern.output, rest.is_some())?;
        self.lone_labels(&table)?;
        let mut ty = TensorType { dtype: DType::F32, rest: false, axes: Vec::new() };
        if let (true, Some((more, axes))) = (output.rest, &rest) {
            ty.rest = *more;
            ty.axes.extend(axes.iter().cloned());
        }
        for label in &output.axes {
            let i = usize::from(*label);
            ty.axes.push(named_axis(&table.names[i], table.sizes[i].clone()?));
        }
        for i in 0..table.names.len() {
            if let (false, Some(size)) = (table.output[i], &table.sizes[i]) {
                cx.mixes(&size.clone(), span);
            }
        }
        let op = Op::Einsum { inputs, output, names: table.names };
        Some(op_expr(op, args, ty, span))
    }

    fn operand(
        &mut self,
        cx: &FnCx,
        table: &mut Table,
        axes: &EinopsAxes,
        arg: &Expr,
        rest: &mut Option<(bool, Vec<Axis>)>,
    ) -> Option<Labels> {
        let (has_rest, named) = self.leading_rest(axes)?;
        let lead = self.pattern_fits(cx, axes, named.len(), has_rest, arg)?;
        if has_rest {
            let prefix = (arg.ty.rest, arg.ty.axes[..lead].to_vec());
            match rest {
                Some(old) if *old != prefix => {
                    let title = "`..` stands for other axes here than before".to_owned();
                    self.pattern_error("M0207", title, axes.span, "other leading axes");
                    return None;
                }
                _ => *rest = Some(prefix),
            }
        }
        let mut labels = Labels { rest: has_rest, axes: Vec::new() };
        for (axis, actual) in named.iter().zip(&arg.ty.axes[lead..]) {
            let name = match part(axis) {
                Part::Name(name) => name,
                Part::Rest => return self.rest_first(axis.span),
                Part::Other(why) => {
                    self.pattern_error("M0207", why.to_owned(), axis.span, "not here");
                    return None;
                }
            };
            let i = self.label(cx, table, name, axis.span, &actual.size)?;
            if labels.axes.contains(&(i as u8)) {
                let title = format!("`{name}` occurs twice in one operand");
                self.pattern_error("M0207", title, axis.span, "again here");
                return None;
            }
            table.inputs[i] += 1;
            labels.axes.push(i as u8);
        }
        Some(labels)
    }

    fn rest_first<T>(&mut self, at: Span) -> Option<T> {
        let title = "`..` stands first: it is any leading axes".to_owned();
        self.pattern_error("M0207", title, at, "not here");
        None
    }

    fn leading_rest<'p>(&mut self, axes: &'p EinopsAxes) -> Option<(bool, &'p [EinopsAxis])> {
        match axes.axes.split_first() {
            Some((first, more)) if matches!(first.kind, EinopsKind::Rest) => Some((true, more)),
            _ => Some((false, &axes.axes)),
        }
    }

    /// Number of leading axes that `..` stands for.
    fn pattern_fits(
        &mut self,
        cx: &FnCx,
        axes: &EinopsAxes,
        named: usize,
        has_rest: bool,
        arg: &Expr,
    ) -> Option<usize> {
        let have = arg.ty.axes.len();
        let fits = if has_rest { have >= named } else { have == named && !arg.ty.rest };
        if fits {
            return Some(have - named);
        }
        let n = named + usize::from(has_rest);
        let title = match arg.ty.rest {
            true => "the pattern must begin with `..` as the tensor does".to_owned(),
            false => format!("the pattern has {n} ax{} and the tensor {have}", es(n)),
        };
        self.report(
            Diagnostic::error("M0207", title)
                .label(axes.span, "the pattern")
                .label(arg.span, cx.type_text(&arg.ty)),
        );
        None
    }

    /// Ties a label to an axis of this size.
    fn label(
        &mut self,
        cx: &FnCx,
        table: &mut Table,
        name: &str,
        at: Span,
        size: &Poly,
    ) -> Option<usize> {
        let i = match table.find(name) {
            Some(i) => i,
            None => {
                if table.names.len() >= MAX_LABELS {
                    let title = format!("a pattern has at most {MAX_LABELS} names");
                    self.pattern_error("M0207", title, at, "one too many");
                    return None;
                }
                if let Some(scope) = self.scope_size(cx, name)
                    && scope != *size
                {
                    self.not_this_axis(cx, name, at, &scope, size);
                    return None;
                }
                table.add(name, at)
            }
        };
        match &table.sizes[i] {
            Some(old) if old != size => {
                let (a, b) = (cx.size_text(old), cx.size_text(size));
                self.report(
                    Diagnostic::error("M0207", format!("`{name}` is {a} and {b} at once"))
                        .label(at, b)
                        .label(table.spans[i], a),
                );
                None
            }
            _ => {
                table.sizes[i] = Some(size.clone());
                Some(i)
            }
        }
    }

    fn not_this_axis(&mut self, cx: &FnCx, name: &str, at: Span, scope: &Poly, size: &Poly) {
        let note = |p: &Poly| {
            let axis = Axis { name: None, size: p.clone() };
            cx.size_note(&axis).unwrap_or_else(|| cx.size_text(p))
        };
        let title = format!("`{name}` stands for an axis of another size");
        self.report(
            Diagnostic::error("M0207", title)
                .label(at, format!("the tensor has {} here", note(size)))
                .help(format!(
                    "in this function `{name}` is {}: choose another name, or another order",
                    note(scope)
                )),
        );
    }

    fn einsum_output(
        &mut self,
        table: &mut Table,
        axes: &EinopsAxes,
        rest: bool,
    ) -> Option<Labels> {
        let (has_rest, named) = self.leading_rest(axes)?;
        if has_rest != rest {
            let title = match has_rest {
                true => "`..` in the result stands for nothing".to_owned(),
                false => "the result must begin with `..` as the operands do".to_owned(),
            };
            self.pattern_error("M0207", title, axes.span, "the result");
            return None;
        }
        let mut labels = Labels { rest: has_rest, axes: Vec::new() };
        for axis in named {
            let name = match part(axis) {
                Part::Name(name) => name,
                Part::Rest => return self.rest_first(axis.span),
                Part::Other(why) => {
                    self.pattern_error("M0207", why.to_owned(), axis.span, "not here");
                    return None;
                }
            };
            let i = self.output_label(table, name, axis.span, "M0207")?;
            labels.axes.push(i as u8);
        }
        Some(labels)
    }

    fn output_label(
        &mut self,
        table: &mut Table,
        name: &str,
        at: Span,
        code: &'static str,
    ) -> Option<usize> {
        let Some(i) = table.find(name) else {
            let title = format!("`{name}` comes from none of the tensors");
            let ident = Ident { name: name.to_owned(), span: at };
            let d = Diagnostic::error(code, title).label(at, "unknown axis");
            let missing: Vec<&str> = (0..table.names.len())
                .filter(|i| !table.output[*i])
                .map(|i| table.names[i].as_str())
                .collect();
            self.report(with_near(d, &ident, missing.into_iter(), "not in the result yet"));
            return None;
        };
        if std::mem::replace(&mut table.output[i], true) {
            let title = format!("`{name}` occurs twice in the result");
            self.pattern_error(code, title, at, "again here");
            return None;
        }
        Some(i)
    }

    fn lone_labels(&mut self, table: &Table) -> Option<()> {
        for i in 0..table.names.len() {
            if table.inputs[i] == 1 && !table.output[i] {
                let name = &table.names[i];
                let title = format!("`{name}` occurs once: it meets nothing and is not kept");
                let ident = Ident { name: name.clone(), span: table.spans[i] };
                let others: Vec<&str> = (0..table.names.len())
                    .filter(|j| *j != i && table.inputs[*j] == 1)
                    .map(|j| table.names[j].as_str())
                    .collect();
                let mut d = Diagnostic::error("M0207", title).label(table.spans[i], "only here");
                d = match others.is_empty() {
                    true => d.help(format!("sum it first: `sum(x, over = {name})`")),
                    false => with_near(d, &ident, others.into_iter(), "others occur once"),
                };
                self.report(d);
                return None;
            }
        }
        Some(())
    }

    pub fn rearrange(
        &mut self,
        cx: &mut FnCx,
        pattern: &Einops,
        arg: Expr,
        at: Span,
        span: Span,
    ) -> Option<Expr> {
        let [input] = pattern.inputs.as_slice() else {
            let title = "`rearrange` takes one tensor".to_owned();
            self.pattern_error("M0208", title, at, "the pattern");
            return None;
        };
        let mut table = Table::default();
        let (has_rest, named) = self.leading_rest(input)?;
        let lead = self.pattern_fits(cx, input, named.len(), has_rest, &arg)?;
        let mut split = Vec::new();
        for (axis, actual) in named.iter().zip(&arg.ty.axes[lead..]) {
            split.push(self.split_axis(cx, &mut table, axis, actual)?);
        }
        let (out_rest, out) = self.leading_rest(&pattern.output)?;
        if out_rest != has_rest {
            let title = "`..` must stand on both sides, or on none".to_owned();
            self.pattern_error("M0208", title, pattern.output.span, "the result");
            return None;
        }
        let mut ty = TensorType {
            dtype: arg.ty.dtype,
            rest: has_rest && arg.ty.rest,
            axes: arg.ty.axes[..lead].to_vec(),
        };
        let mut output = Vec::new();
        for axis in out {
            let (labels, joined) = self.joined_axis(&mut table, axis)?;
            output.push(labels);
            ty.axes.push(joined);
        }
        if let Some(i) = table.output.iter().position(|kept| !kept) {
            let title = format!("`{}` is lost: `rearrange` keeps every axis", table.names[i]);
            let d = Diagnostic::error("M0208", title).label(table.spans[i], "not in the result");
            self.report(d);
            return None;
        }
        let op = Op::Rearrange(Rearrange { rest: has_rest, input: split, output });
        Some(op_expr(op, vec![arg], ty, span))
    }

    fn split_axis(
        &mut self,
        cx: &FnCx,
        table: &mut Table,
        axis: &EinopsAxis,
        actual: &Axis,
    ) -> Option<Vec<(u8, Poly)>> {
        let parts: Vec<&EinopsAxis> = match &axis.kind {
            EinopsKind::Group(parts) => parts.iter().collect(),
            _ => vec![axis],
        };
        let mut known = Poly::number(1);
        let mut unknown = None;
        let mut labels = Vec::new();
        for one in &parts {
            let EinopsKind::Name(name) = &one.kind else {
                let title = "an axis of a pattern is a name".to_owned();
                self.pattern_error("M0208", title, one.span, "not a name");
                return None;
            };
            if table.find(name).is_some() {
                let title = format!("`{name}` occurs twice in the pattern");
                self.pattern_error("M0208", title, one.span, "again here");
                return None;
            }
            let i = table.add(name, one.span);
            labels.push(i);
            match self.scope_size(cx, name) {
                Some(size) => {
                    cx.names.as_size(name);
                    known = known.mul(&size)?;
                    table.sizes[i] = Some(size);
                }
                None if unknown.is_none() => unknown = Some(i),
                None => {
                    let title = format!("nothing says how long `{name}` is");
                    self.pattern_error("M0208", title, one.span, "two unknown sizes in one axis");
                    return None;
                }
            }
        }
        let left = actual.size.div(&known);
        // A name for the whole axis: that it is a size has been settled where it came from.
        let alone = known.as_number() == Some(1);
        match (unknown, left) {
            (Some(i), Some(size)) if alone || size.is_whole() => table.sizes[i] = Some(size),
            (None, Some(size)) if size.as_number() == Some(1) => {}
            _ => {
                let have = cx.size_note(&Axis { name: None, size: actual.size.clone() });
                let have = have.unwrap_or_else(|| cx.size_text(&actual.size));
                let title = format!("an axis of {have} does not split like this");
                let label = format!("these make {}", cx.size_text(&known));
                self.pattern_error("M0208", title, axis.span, &label);
                return None;
            }
        }
        labels.iter().map(|i| Some((*i as u8, table.sizes[*i].clone()?))).collect()
    }

    fn joined_axis(&mut self, table: &mut Table, axis: &EinopsAxis) -> Option<(Vec<u8>, Axis)> {
        let parts: Vec<&EinopsAxis> = match &axis.kind {
            EinopsKind::Group(parts) => parts.iter().collect(),
            _ => vec![axis],
        };
        let mut labels = Vec::new();
        let mut size = Poly::number(1);
        for one in &parts {
            let EinopsKind::Name(name) = &one.kind else {
                let title = "an axis of a pattern is a name".to_owned();
                self.pattern_error("M0208", title, one.span, "not a name");
                return None;
            };
            let i = self.output_label(table, name, one.span, "M0208")?;
            size = size.mul(table.sizes[i].as_ref()?)?;
            labels.push(i as u8);
        }
        let name = match labels.as_slice() {
            [one] => Some(table.names[usize::from(*one)].clone()),
            _ => None,
        };
        Some((labels, Axis { name, size }))
    }
}

fn es(n: usize) -> &'static str {
    if n == 1 { "is" } else { "es" }
}
