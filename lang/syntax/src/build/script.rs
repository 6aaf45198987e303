//! Statements of scripts.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P, Siblings};
use crate::ast::{Assert, Broken, Expr, ExprKind, Script, Stmt};
use crate::parse::Rule;
use crate::slip;

impl<'t> Builder<'t> {
    pub(super) fn script(&mut self, pair: P<'t>) -> Script {
        let span = self.span(&pair);
        let mut script = Script { span, stmts: Vec::new(), value: None };
        let mut siblings = Siblings::default();
        for part in pair.into_inner() {
            self.sibling(&mut siblings, part, |this, part| this.stmt(part, &mut script));
        }
        script
    }

    fn stmt(&mut self, part: P<'t>, script: &mut Script) {
        let rule = part.as_rule();
        let covered = self.muted;
        if rule != Rule::junk_stmt
            && let Some(value) = script.value.take()
        {
            // About the statement before, so this one keeps its own.
            self.unused(*value, &part, script);
            self.muted = covered;
        }
        match rule {
            Rule::bind => {
                let bind = self.bind(part);
                script.stmts.push(Stmt::Let(bind));
            }
            Rule::check => {
                let start = self.start(&part);
                let mut span = Span::new(self.file, start, start + "assert".len());
                let value = part.into_inner().find(|part| part.as_rule() != Rule::kw_assert);
                let condition = self.value_or_broken(value, span, "assert");
                span = span.to(condition.span);
                script.stmts.push(Stmt::Assert(Assert { span, condition }));
            }
            Rule::expr if covered => {
                let span = self.expr(part).span;
                script.stmts.push(Stmt::Broken(Broken { span, keyword: None, name: None }));
            }
            Rule::expr => script.value = Some(Box::new(self.expr(part))),
            _ => {
                let before = script.value.take();
                self.junk_in_script(&part, before.as_deref());
                if let Some(ExprKind::Name(name)) = before.map(|value| value.kind) {
                    let (span, name) = (name.span, Some(name));
                    script.stmts.push(Stmt::Broken(Broken { span, keyword: None, name }));
                }
                script.stmts.push(Stmt::Broken(self.broken(&part)));
            }
        }
    }

    /// A value that is not the last thing of a script.
    fn unused(&mut self, value: Expr, next: &P<'t>, script: &mut Script) {
        let span = value.span;
        if !matches!(value.kind, ExprKind::Broken) {
            let word = slip::slip(self.file, self.text, span.start as usize);
            let start = Span { end: span.start, ..span };
            self.error(word.unwrap_or_else(|| {
                let next = self.start(next) as u32;
                let next = Span { start: next, end: next, ..span };
                Diagnostic::error("M0013", "this value is not used")
                    .label(span, "computed, then dropped")
                    .label(next, "the script goes on here")
                    .fix("give it a name", start, "let value = ")
            }));
        }
        script.stmts.push(Stmt::Broken(Broken { span, keyword: None, name: None }));
    }

    fn junk_in_script(&mut self, junk: &P<'t>, before: Option<&Expr>) {
        let text = junk.as_str();
        let sets = text.starts_with('=') && !text.starts_with("==");
        match before.map(|value| (value.span, &value.kind)) {
            Some((span, ExprKind::Name(name))) if sets => {
                let start = Span { end: span.start, ..span };
                self.error(
                    Diagnostic::error("M0010", format!("`{}` needs `let`", name.name))
                        .label(span, "a new name begins with `let`")
                        .fix("add `let`", start, "let "),
                );
            }
            _ if sets => {
                let start = self.start(junk);
                let span = Span::new(self.file, start, start + 1);
                self.error(
                    Diagnostic::error("M0010", "`=` compares nothing")
                        .label(span, "to compare, write `==`")
                        .fix("write `==`", span, "=="),
                );
            }
            _ => self.junk(junk, ""),
        }
    }
}
