//! What follows `=>`: an action, a text in Rhai, a function of an imported file.

use crate::calls::{as_name, bare};
use crate::events::{ACTIONS, MAIN_ACTIONS, find};
use crate::hir::{HookAction, Request};
use crate::rules::Known;
use crate::scope::{Checker, Entity, with_near};
use crate::script::{Place, Script, read};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::{self, Arg, Expr, ExprKind, Ident};

/// What the checker knows of an imported file of hooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct HookFile {
    /// Public functions and how many parameters each takes.
    pub functions: Vec<(String, usize)>,
    /// Something in it was reported.
    pub broken: bool,
}

impl<'a> Checker<'a> {
    pub fn hook_action(
        &mut self,
        file: u32,
        hook: &'a ast::Hook,
        known: &Known,
    ) -> Option<HookAction> {
        let expr = bare(&hook.action);
        let (callee, args): (&Expr, &'a [Arg]) = match &expr.kind {
            ExprKind::Rhai(rhai) => {
                let place = Place { file: rhai.span.file, start: rhai.span.start };
                let script = self.read_script(&rhai.source, place, known, false)?;
                if let Some((name, _)) = script.functions.first() {
                    self.own_function(name, rhai.span);
                    return None;
                }
                let (source, span) = (rhai.source.clone(), rhai.span);
                return Some(HookAction::Rhai { source, span });
            }
            ExprKind::Call(callee, args) => (callee, args),
            ExprKind::Broken => return None,
            _ => (expr, &[]),
        };
        if let ExprKind::Member(base, member) = &bare(callee).kind {
            if let Some(arg) = args.first() {
                let d = Diagnostic::error("M0117", "a hook calls its function without arguments");
                let help = "what it needs it reads: `metric(\"loss\")`, `step()`";
                self.report(d.label(arg.span, "not passed on").help(help));
                return None;
            }
            return self.function_of_file(file, base, member, known);
        }
        let Some(name) = as_name(callee) else {
            let d = Diagnostic::error("M0111", "an action or a hook is needed here");
            let help = "for example `=> checkpoint`, `=> note(\"spike\")`, or a text in Rhai";
            self.report(d.label(expr.span, "neither").help(help));
            return None;
        };
        self.request(file, name, expr.span, args).map(HookAction::Ask)
    }

    /// `checkpoint`, `note("spike")`
    fn request(&mut self, file: u32, name: &Ident, at: Span, args: &'a [Arg]) -> Option<Request> {
        let Some(doc) = find(ACTIONS, &name.name) else {
            if let Some(Entity::Script(_)) = self.lookup(file, &name.name) {
                let title = format!("which function of `{}`?", name.name);
                let d = Diagnostic::error("M0124", title).label(name.span, "a file of hooks");
                self.report(d.help(format!("write `{}.name`", name.name)));
                return None;
            }
            let title = format!("no rule can `{}`", name.name);
            let d = Diagnostic::error("M0110", title).label(name.span, "unknown action");
            self.report(with_near(d, name, ACTIONS.iter().map(|a| a.name), "it can"));
            return None;
        };
        let given = self.typed_args(file, doc.name, doc.args, at, args, None)?;
        Some(match doc.name {
            "note" => Request::Note(given.text("text")?.to_owned()),
            "checkpoint" => Request::Checkpoint,
            "set" => Request::SetLr(given.number("lr")?),
            "rollback" => Request::Rollback(given.whole("by").unwrap_or(1)),
            "pause" => Request::Pause,
            _ => Request::Stop,
        })
    }

    /// `alerts.post`
    fn function_of_file(
        &mut self,
        file: u32,
        base: &Expr,
        member: &Ident,
        known: &Known,
    ) -> Option<HookAction> {
        let Some(alias) = as_name(base) else {
            let d = Diagnostic::error("M0124", "a function of a file of hooks is needed here");
            self.report(d.label(base.span, "not a file of hooks"));
            return None;
        };
        let id = match self.lookup(file, &alias.name) {
            Some(Entity::Script(id)) => id,
            Some(other) => {
                self.wrong_entity(alias, other, "a file of hooks");
                return None;
            }
            None => {
                self.unknown_name(file, alias, &[]);
                return None;
            }
        };
        let found = self.hook_file(id, known);
        let Some((_, params)) = found.functions.iter().find(|f| f.0 == member.name) else {
            if !found.broken {
                let title = format!("`{}` has no function `{}`", alias.name, member.name);
                let d = Diagnostic::error("M0108", title).label(member.span, "unknown function");
                let all = found.functions.iter().map(|f| f.0.as_str());
                self.report(with_near(d, member, all, &format!("`{}` has", alias.name)));
            }
            return None;
        };
        if *params > 0 {
            let title = format!("`{}` has parameters, and a hook passes none", member.name);
            let d = Diagnostic::error("M0703", title).label(member.span, "called without any");
            let help = "what it needs it reads: `metric(\"loss\")`, `step()`";
            self.report(d.help(help));
            return None;
        }
        if found.broken {
            return None;
        }
        let loaded = &self.loaded.files[id as usize];
        let source = self.loaded.sources.get(id).map_or("", |s| s.text()).to_owned();
        let (file, name) = (loaded.key.clone(), member.name.clone());
        Some(HookAction::Function { file, name, source, span: member.span })
    }

    /// What an imported file of hooks defines; it is read once.
    fn hook_file(&mut self, id: u32, known: &Known) -> HookFile {
        if let Some(found) = self.state.hook_files.get(&id) {
            return found.clone();
        }
        let text = self.loaded.sources.get(id).map_or("", |s| s.text());
        let place = Place { file: id, start: 0 };
        let script = self.read_script(text, place, known, true);
        let functions = |s: Script| s.functions;
        let found =
            HookFile { broken: script.is_none(), functions: script.map_or(Vec::new(), functions) };
        self.state.hook_files.insert(id, found.clone());
        found
    }

    /// Files of hooks that no hook calls are read too: what is wrong in them is told at once.
    pub fn check_hook_files(&mut self, known: &Known) {
        let loaded = self.loaded;
        for (id, file) in loaded.files.iter().enumerate() {
            if file.is_script && !file.unreadable {
                self.hook_file(id as u32, known);
            }
        }
    }

    fn read_script(
        &mut self,
        text: &str,
        at: Place,
        known: &Known,
        library: bool,
    ) -> Option<Script> {
        let result = read(text, at, &known.readable(), library);
        let fine = result.diagnostics.is_empty();
        result.diagnostics.into_iter().for_each(|d| self.report(d));
        result.script.filter(|_| fine)
    }

    fn own_function(&mut self, name: &str, at: Span) {
        let d = Diagnostic::error("M0705", format!("`{name}` belongs in a file of hooks"));
        let help = "put it into a file and import that: `use \"hooks/mine.rhai\" as mine`";
        self.report(d.label(at, "functions cannot be defined here").help(help));
    }
}

/// `did you mean`, and what hooks may do.
pub(crate) fn may(
    name: &str,
    names: impl Iterator<Item = &'static str>,
) -> (Option<&'static str>, String) {
    let main: Vec<&str> = ACTIONS.iter().take(MAIN_ACTIONS).map(|a| a.name).collect();
    let main = format!("a hook may: {}", main.join(", "));
    let near = match name {
        "print" | "debug" | "log" | "println" => Some("note"),
        "save" => Some("checkpoint"),
        "abort" | "exit" | "quit" => Some("stop"),
        _ => suggest(name, names.collect::<Vec<_>>()),
    };
    match near {
        Some(near) => (Some(near), format!("did you mean `{near}`? {main}")),
        None => (None, main),
    }
}
