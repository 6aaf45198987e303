//! `loss` and metrics: their signature is the contract with the data set.

use crate::data::DataFacts;
use crate::function::Val;
use crate::hir::{
    Eval, Expr, ExprKind, Function, LocalId, ModelId, Objective, ParamDef, Poly, Sym, Symbol,
};
use crate::layers::LayerNames;
use crate::scope::{Checker, with_near};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Column, Span};
use monarch_syntax::ast;
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// A loss or metric, against the data set.
    pub fn objective(
        &mut self,
        file: u32,
        func: &'a ast::Func,
        data: Option<&DataFacts>,
        _model: Option<usize>,
    ) -> Option<Objective> {
        let names = Rc::new(LayerNames::default());
        let mut symbols = Vec::new();
        let params = self.function_params(file, &names, &mut symbols, func);
        if let Some(result) = &func.result
            && !result.axes.is_empty()
        {
            let title = format!("`{}` is one number", func.name.name);
            self.report(Diagnostic::error("M0203", title).label(result.span, "not a number"));
        }
        let (mut params, data) = (params?, data?);
        let sample = self.sample_axis(&params, &symbols)?;
        self.contract(&mut params, &symbols, sample, data)?;
        let mut cx = self.function_cx(file, names, symbols.clone(), 0, &params);
        let (lets, value) = self.script(&mut cx, &func.script);
        self.observe_locals(&cx);
        let (elements, weight, span) = match value? {
            Val::Mean { elements, weight, span } => (elements, weight, span),
            other => {
                let title = format!("`{}` is a mean over the whole batch", func.name.name);
                self.report(
                    Diagnostic::error("M0213", title)
                        .label(other.span(), "not a mean")
                        .help("end it with `cross_entropy(..)` or `mean(..)`"),
                );
                return None;
            }
        };
        self.unused_locals(&cx, func.fields.len());
        if let Some((_, at)) = cx.mixed.iter().find(|m| m.0 == sample) {
            self.report(
                Diagnostic::error("M0214", "samples of a batch meet each other")
                    .label(*at, format!("along `{}`", cx.sym_name(sample)))
                    .help("a sample's result must not depend on its neighbours in the batch"),
            );
            return None;
        }
        if !elements.ty.axes.iter().any(|a| a.size == Poly::symbol(sample)) {
            self.report(
                Diagnostic::error("M0213", "a mean over the batch is over its samples")
                    .label(elements.span, cx.type_text(&elements.ty)),
            );
            return None;
        }
        Some(Objective {
            name: func.name.name.clone(),
            function: Function {
                symbols,
                params,
                locals: cx.locals,
                lets: lets?,
                result: elements,
                span: func.name.span,
            },
            weight,
            span,
        })
    }

    /// The axis that counts samples: the first one of every column.
    fn sample_axis(&mut self, params: &[ParamDef], symbols: &[Symbol]) -> Option<Sym> {
        let mut found: Option<(Sym, Span)> = None;
        for p in params {
            let first = p.ty.axes.first().filter(|_| !p.ty.rest);
            let sym = first.and_then(|a| a.size.as_symbol());
            let Some(sym) = sym else {
                let title = format!("the first axis of `{}` counts samples", p.name);
                self.report(
                    Diagnostic::error("M0603", title)
                        .label(p.span, "no axis for samples")
                        .help(format!("write `{}: f32[B, ..]`", p.name)),
                );
                return None;
            };
            match found {
                Some((old, _)) if old != sym => {
                    let name = |s: Sym| symbols[s.index()].name.clone();
                    let title = format!("`{}` and `{}` both count samples", name(old), name(sym));
                    self.report(
                        Diagnostic::error("M0603", title)
                            .label(symbols[sym.index()].span, "another name")
                            .label(symbols[old.index()].span, "the first name")
                            .help("the first axis of every column is the same one"),
                    );
                    return None;
                }
                _ => found = Some((sym, p.span)),
            }
        }
        if found.is_none() {
            self.report(Diagnostic::error("M0601", "this reads no column of the data set"));
        }
        found.map(|f| f.0)
    }

    /// Each parameter is a column, and says of it what is true. Sizes become numbers.
    fn contract(
        &mut self,
        params: &mut [ParamDef],
        symbols: &[Symbol],
        sample: Sym,
        data: &DataFacts,
    ) -> Option<()> {
        let mut fine = true;
        let mut numbers: Vec<Option<u64>> = vec![None; symbols.len()];
        for p in params.iter() {
            let found = data.columns.iter().position(|c| c.name == p.name);
            let Some(i) = found else {
                self.no_column(p, data);
                fine = false;
                continue;
            };
            fine &= self.column(p, &data.columns[i], data.axes[i], symbols, &mut numbers, data);
        }
        if !fine {
            return None;
        }
        for p in params.iter_mut() {
            for axis in p.ty.axes.iter_mut().skip(1) {
                let by = |s: Sym| {
                    let n = numbers.get(s.index()).copied().flatten()?;
                    i64::try_from(n).ok().map(Poly::number)
                };
                axis.size = axis.size.substitute(&by)?;
                if axis.size.symbols().contains(&sample) {
                    let d = Diagnostic::error("M0603", "only the first axis counts samples");
                    self.report(d.label(p.span, "again in another axis"));
                    return None;
                }
            }
        }
        Some(())
    }

    fn no_column(&mut self, p: &ParamDef, data: &DataFacts) {
        let title = format!("the data has no column `{}`", p.name);
        let d = Diagnostic::error("M0601", title)
            .label(p.span, "not a column")
            .label(data.span, "this data set");
        let ident = ast::Ident { name: p.name.clone(), span: p.span };
        let all: Vec<&str> = data.columns.iter().map(|c| c.name.as_str()).collect();
        self.report(with_near(d, &ident, all.into_iter(), "its columns"));
    }

    /// One parameter against its column; notes what its axes stand for.
    fn column(
        &mut self,
        p: &ParamDef,
        column: &Column,
        axis_name: Option<&'static str>,
        symbols: &[Symbol],
        numbers: &mut [Option<u64>],
        data: &DataFacts,
    ) -> bool {
        let shape: Vec<String> = column.shape.iter().map(u64::to_string).collect();
        let is = match shape.is_empty() {
            true => format!("{}[B]", column.dtype.name()),
            false => format!("{}[B, {}]", column.dtype.name(), shape.join(", ")),
        };
        if p.ty.dtype != column.dtype {
            let (want, have) = (p.ty.dtype.name(), column.dtype.name());
            let title = format!("column `{}` is {have}, not {want}", p.name);
            self.report(
                Diagnostic::error("M0602", title)
                    .label(p.span, format!("read as {want}"))
                    .label(data.span, format!("`{}` is {is}", p.name))
                    .help(format!("write `{}: {is}`", p.name)),
            );
            return false;
        }
        let own = &p.ty.axes[1..];
        let name = |s: Sym| symbols[s.index()].name.clone();
        let mut problem =
            (own.len() != column.shape.len()).then(|| format!("column `{}` is {is}", p.name));
        let same_rank = own.len() == column.shape.len();
        for (axis, n) in own.iter().zip(&column.shape).filter(|_| same_rank) {
            match axis.size.as_symbol() {
                Some(sym) => {
                    if let Some(known) = axis_name
                        && name(sym) != known
                    {
                        problem = Some(format!(
                            "the axis of `{}` is called `{known}`, not `{}`",
                            p.name,
                            name(sym)
                        ));
                    }
                    match numbers[sym.index()] {
                        Some(old) if old != *n => {
                            problem = Some(format!("`{}` is {old} and {n} at once", name(sym)));
                        }
                        _ => numbers[sym.index()] = Some(*n),
                    }
                }
                None if axis.size.eval(&|s| numbers[s.index()]) != Some(*n) => {
                    problem = Some(format!(
                        "column `{}` is {is}: {n} where the contract says {}",
                        p.name,
                        axis.size.text(&name)
                    ));
                }
                None => {}
            }
        }
        let Some(title) = problem else { return true };
        self.report(
            Diagnostic::error("M0603", title)
                .label(p.span, "another shape")
                .label(data.span, format!("`{}` is {is}", p.name)),
        );
        false
    }

    /// The loss must use the model that is trained, and no other.
    pub fn loss_uses(&mut self, loss: &Objective, model: Option<usize>, at: Span) -> Option<()> {
        let model = ModelId(model? as u32);
        let mut used = Vec::new();
        for l in &loss.function.lets {
            models_in(&l.value, &mut used);
        }
        models_in(&loss.function.result, &mut used);
        if let Some((_, other)) = used.iter().find(|u| u.0 != model) {
            self.report(
                Diagnostic::error("M0906", "a loss with two models is not built yet")
                    .label(*other, "not the model that is trained"),
            );
            return None;
        }
        if used.is_empty() {
            let name = self.models[model.0 as usize].ast.name.as_ref();
            let name = name.map_or("", |n| n.name.as_str()).to_owned();
            self.report(
                Diagnostic::error("M0219", format!("this loss does not use `{name}`"))
                    .label(at, "nothing would be trained")
                    .help(format!("call the model: `{name}(x)`")),
            );
            return None;
        }
        Some(())
    }

    /// Columns that nothing reads are worth a word.
    pub fn unread_columns(
        &mut self,
        data: &DataFacts,
        loss: &Objective,
        eval: Option<&Option<Eval>>,
    ) {
        let metrics = eval.and_then(|e| e.as_ref()).map(|e| e.metrics.as_slice()).unwrap_or(&[]);
        let read = |name: &str| {
            let of = |o: &Objective| o.function.params.iter().any(|p| p.name == name);
            of(loss) || metrics.iter().any(of)
        };
        for column in data.columns.iter().filter(|c| !read(&c.name)) {
            let title = format!("nothing reads column `{}`", column.name);
            self.report(
                Diagnostic::warning("M0604", title)
                    .label(data.span, "it is in this data set")
                    .label(loss.function.span, "and not in this contract"),
            );
        }
    }
}

fn models_in(expr: &Expr, out: &mut Vec<(ModelId, Span)>) {
    match &expr.kind {
        ExprKind::Model { model, args } => {
            out.push((*model, expr.span));
            args.iter().for_each(|a| models_in(a, out));
        }
        ExprKind::Sub { args, .. } | ExprKind::Op { args, .. } => {
            args.iter().for_each(|a| models_in(a, out));
        }
        ExprKind::If { yes, no, .. } => {
            models_in(yes, out);
            models_in(no, out);
        }
        ExprKind::Local(LocalId(_)) | ExprKind::Weight(_) | ExprKind::Static(_) => {}
    }
}
