//! Arguments of calls, matched with what the callee declares.

use crate::scope::{Checker, with_near};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{self, Arg, Expr, ExprKind, Ident};

/// What a callee says about one of its arguments.
pub(crate) struct Declared<'d> {
    pub name: &'d str,
    pub required: bool,
}

/// Strips parentheses.
pub(crate) fn bare(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}

/// The name that an expression is, if it is nothing else.
pub(crate) fn as_name(expr: &Expr) -> Option<&Ident> {
    match &bare(expr).kind {
        ExprKind::Name(name) => Some(name),
        _ => None,
    }
}

impl Checker<'_> {
    /// For each declared argument the one given: named ones by name, the others in the order of
    /// what is left. `skip` leading ones are given already (by `|>`). None if reported.
    pub fn match_args<'x>(
        &mut self,
        callee: &str,
        at: Span,
        declared: &[Declared],
        args: &'x [Arg],
        skip: usize,
    ) -> Option<Vec<Option<&'x Arg>>> {
        let mut out: Vec<Option<&Arg>> = declared.iter().map(|_| None).collect();
        let mut fine = true;
        for arg in args {
            let Some(name) = &arg.name else { continue };
            let found = declared.iter().position(|d| d.name == name.name);
            match found {
                Some(i) if i < skip => {
                    let title = format!("`{}` of `{callee}` is what comes before `|>`", name.name);
                    self.report(Diagnostic::error("M0117", title).label(name.span, "given twice"));
                    fine = false;
                }
                Some(i) => match out[i] {
                    Some(old) => {
                        let title = format!("`{}` is given twice", name.name);
                        self.report(
                            Diagnostic::error("M0105", title)
                                .label(name.span, "again here")
                                .label(old.span, "first here"),
                        );
                        fine = false;
                    }
                    None => out[i] = Some(arg),
                },
                None => {
                    let title = format!("`{callee}` has no argument `{}`", name.name);
                    let d = Diagnostic::error("M0117", title).label(name.span, "unknown argument");
                    let all = declared.iter().skip(skip).map(|d| d.name);
                    self.report(with_near(d, name, all, &format!("`{callee}` takes")));
                    fine = false;
                }
            }
        }
        let mut next = skip;
        for arg in args.iter().filter(|a| a.name.is_none()) {
            while out.get(next).is_some_and(|o| o.is_some()) {
                next += 1;
            }
            match out.get_mut(next) {
                Some(slot) => *slot = Some(arg),
                None => {
                    let n = declared.len();
                    let title = match n {
                        0 => format!("`{callee}` takes no arguments"),
                        n => format!("`{callee}` takes {n} argument{}", plural(n)),
                    };
                    let d = Diagnostic::error("M0117", title).label(arg.span, "one too many");
                    self.report(takes(d, callee, declared));
                    fine = false;
                    break;
                }
            }
        }
        for (i, d) in declared.iter().enumerate().skip(skip) {
            if d.required && out[i].is_none() && fine {
                let title = format!("`{callee}` needs `{}`", d.name);
                let missing = Diagnostic::error("M0118", title).label(at, "not given here");
                self.report(takes(missing, callee, declared));
                fine = false;
            }
        }
        fine.then_some(out)
    }

    /// Arguments of a function of the library.
    pub fn match_op<'x>(
        &mut self,
        op: usize,
        at: Span,
        args: &'x [Arg],
        skip: usize,
    ) -> Option<Vec<Option<&'x Arg>>> {
        let ast: &ast::Op = self.ops[op].ast;
        let declared: Vec<Declared> = ast
            .fields
            .iter()
            .map(|f| Declared { name: &f.name.name, required: f.default.is_none() })
            .collect();
        self.match_args(&ast.name.name, at, &declared, args, skip)
    }

    /// The kind of thing that a function of the library gives: `init`, `schedule`; None for a
    /// tensor.
    pub fn op_result(&self, op: usize) -> Option<&str> {
        match &self.ops[op].ast.result {
            Some(ast::Kind::Name(name)) => Some(&name.name),
            _ => None,
        }
    }

    pub fn op_name(&self, op: usize) -> &str {
        &self.ops[op].ast.name.name
    }
}

/// Adds what a callee takes, if that says more than the title.
fn takes(d: Diagnostic, callee: &str, declared: &[Declared]) -> Diagnostic {
    if declared.len() < 2 {
        return d;
    }
    let name = |d: &Declared| match d.required {
        true => d.name.to_owned(),
        false => format!("{} (optional)", d.name),
    };
    let names: Vec<String> = declared.iter().map(name).collect();
    d.help(format!("`{callee}` takes: {}", names.join(", ")))
}

pub(crate) fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
