//! Texts in Rhai, read and never executed here: syntax, functions, names, metrics.
//!
//! Rhai takes a call of an unknown function until the line is reached. A hook may run for the
//! first time after days, so all calls are looked up now, in the tree that Rhai makes.

use crate::calls::plural;
use crate::events::{RHAI, SCRIPT, SETTABLE};
use crate::hooks::may;
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use rhai::{AST, ASTNode, Engine, Expr, FnCallExpr, ParseErrorType, Position, Stmt};
use std::collections::BTreeSet;

/// Longest text of a hook: more than any person reads.
const MAX_BYTES: usize = 64 << 10;
/// Nesting of expressions, at the top and in functions.
const MAX_DEPTH: usize = 64;

/// Where a text stands in its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub file: u32,
    /// Its first byte.
    pub start: u32,
}

/// A text that was read.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Functions that it defines, with their numbers of parameters.
    pub functions: Vec<(String, usize)>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub script: Option<Script>,
    /// All errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the text of a hook or, with `library`, a file of functions for hooks. `metrics` are what
/// it may read.
pub(crate) fn read(text: &str, at: Place, metrics: &[&str], library: bool) -> Reading {
    let lines = Lines { text, at };
    if text.len() > MAX_BYTES {
        let title = format!("a hook of {} bytes; at most {MAX_BYTES} are read", text.len());
        let d =
            Diagnostic::error("M0701", title).label(lines.span(Position::new(1, 1)), "too long");
        return Reading { script: None, diagnostics: vec![d] };
    }
    let ast = match engine(false).compile(text) {
        Ok(ast) => ast,
        Err(error) => {
            let d = lines.syntax(error.err_type(), error.position());
            return Reading { script: None, diagnostics: vec![d] };
        }
    };
    let functions: Vec<(String, usize)> =
        ast.iter_functions().map(|f| (f.name.to_owned(), f.params.len())).collect();
    let mut walk = Walk { lines: &lines, functions: &functions, metrics, found: Vec::new() };
    walk.all(&ast);
    let mut diagnostics = walk.found;
    if library && let Some(first) = ast.statements().first() {
        let d = Diagnostic::error("M0705", "a file of hooks holds functions, and nothing else");
        let d = d.label(lines.span(first.position()), "never reached");
        diagnostics.push(d.help("put it into a function: `fn name() { .. }`"));
    }
    if diagnostics.is_empty()
        && let Err(error) = engine(true).compile(text)
        && let ParseErrorType::VariableUndefined(name) = error.err_type()
    {
        // Defined somewhere, and not where it is used.
        diagnostics.push(lines.unknown_name(name, error.position(), &BTreeSet::new()));
    }
    Reading { script: Some(Script { functions }), diagnostics }
}

/// Reads and cannot run anything.
fn engine(strict: bool) -> Engine {
    let mut engine = Engine::new_raw();
    engine.set_max_expr_depths(MAX_DEPTH, MAX_DEPTH);
    engine.set_strict_variables(strict);
    engine.set_max_string_size(MAX_BYTES);
    for word in ["eval", "import", "export"] {
        engine.disable_symbol(word);
    }
    engine
}

/// From Rhai's lines and columns to spans.
struct Lines<'t> {
    text: &'t str,
    at: Place,
}

impl Lines<'_> {
    /// The token at a position of Rhai (lines and characters from 1; none for the end).
    fn span(&self, at: Position) -> Span {
        let start = self.offset(at).unwrap_or(self.text.trim_end().len().saturating_sub(1));
        let rest = self.text.get(start..).unwrap_or("");
        let length = token(rest).max(1).min(rest.len());
        let base = self.at.start as usize + start;
        Span::new(self.at.file, base, base + length)
    }

    fn offset(&self, at: Position) -> Option<usize> {
        let (line, column) = (at.line()?, at.position().unwrap_or(1));
        let start = match line {
            1 => 0,
            n => self.text.match_indices('\n').nth(n - 2)?.0 + 1,
        };
        let rest = self.text.get(start..)?;
        let in_line = rest.char_indices().nth(column.saturating_sub(1));
        let offset = start + in_line.map_or(rest.len(), |c| c.0);
        (offset < self.text.len()).then_some(offset)
    }

    /// `(Rhai 2:50)`: as Rhai counts, for who looks at its own messages later.
    fn rhai(&self, at: Position) -> String {
        match (at.line(), at.position()) {
            (Some(line), Some(column)) => format!(" (Rhai {line}:{column})"),
            _ => String::new(),
        }
    }

    fn syntax(&self, error: &ParseErrorType, at: Position) -> Diagnostic {
        let (title, label) = match error {
            ParseErrorType::UnexpectedEOF => {
                ("this hook ends too early".to_owned(), "something is open here".to_owned())
            }
            ParseErrorType::MissingToken(token, why) => {
                (format!("this hook needs a `{token}`"), format!("expected {why}"))
            }
            ParseErrorType::ExprTooDeep => {
                let title = format!("this hook nests deeper than {MAX_DEPTH} levels");
                (title, "too deep".to_owned())
            }
            ParseErrorType::AssignmentToConstant(name) => {
                (format!("`{name}` is a constant"), "cannot be set".to_owned())
            }
            ParseErrorType::Reserved(word) => {
                (format!("hooks have no `{word}`"), "not allowed here".to_owned())
            }
            ParseErrorType::LoopBreak => {
                ("`break` outside a loop".to_owned(), "no loop here".to_owned())
            }
            other => ("this hook cannot be read".to_owned(), lower(&other.to_string())),
        };
        let label = format!("{label}{}", self.rhai(at));
        Diagnostic::error("M0701", title).label(self.span(at), label)
    }

    fn unknown_name(&self, name: &str, at: Position, known: &BTreeSet<String>) -> Diagnostic {
        let span = self.span(at);
        let d = Diagnostic::error("M0704", format!("this hook has no `{name}`"))
            .label(span, format!("unknown name{}", self.rhai(at)));
        if SCRIPT.iter().any(|f| f.name == name && f.arity.contains(&0)) {
            return d.fix(format!("write `{name}()`"), span, format!("{name}()"));
        }
        if crate::events::METRICS.iter().any(|m| m.0 == name) {
            let call = format!("metric(\"{name}\")");
            return d.fix(format!("write `{call}`"), span, call);
        }
        match suggest(name, known) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), span, near),
            None => d.help("give it a value before: `let name = ..;`"),
        }
    }
}

/// Bytes of the token that a text begins with.
fn token(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    if first.is_alphanumeric() || first == '_' {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        return end.unwrap_or(text.len());
    }
    if first == '"' {
        let mut escaped = false;
        for (i, c) in text.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return i + 1,
                '\n' => return i,
                _ => {}
            }
        }
        return text.len();
    }
    first.len_utf8()
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Looks at every call and every name.
struct Walk<'w> {
    lines: &'w Lines<'w>,
    functions: &'w [(String, usize)],
    metrics: &'w [&'w str],
    found: Vec<Diagnostic>,
}

impl Walk<'_> {
    fn all(&mut self, ast: &AST) {
        let mut names: BTreeSet<String> = ast
            .iter_functions()
            .flat_map(|f| f.params.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
            .collect();
        ast.walk(&mut |path: &[ASTNode]| {
            if let Some(ASTNode::Stmt(stmt)) = path.last() {
                defines(stmt, &mut names);
            }
            true
        });
        ast.walk(&mut |path: &[ASTNode]| {
            match path.last() {
                Some(ASTNode::Stmt(Stmt::FnCall(call, at))) => self.call(call, *at, 0),
                Some(ASTNode::Expr(Expr::FnCall(call, at))) => self.call(call, *at, 0),
                Some(ASTNode::Expr(Expr::MethodCall(call, at))) => self.call(call, *at, 1),
                Some(ASTNode::Expr(Expr::Variable(name, _, at))) if !names.contains(&*name.1) => {
                    self.found.push(self.lines.unknown_name(&name.1, *at, &names));
                }
                _ => {}
            }
            self.found.len() < 20
        });
    }

    /// A call; `before` is 1 for `value.name()`.
    fn call(&mut self, call: &FnCallExpr, at: Position, before: usize) {
        let name = call.name.as_str();
        let word = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if call.is_operator_call() || !word {
            return;
        }
        let given = call.args.len() + before;
        if let Some((_, params)) = self.functions.iter().find(|f| f.0 == name) {
            let fits = self.functions.iter().any(|f| f.0 == name && f.1 == given);
            if !fits {
                self.arity(name, at, given - before, &[*params], None);
            }
            return;
        }
        let own = SCRIPT.iter().find(|f| f.name == name).filter(|_| before == 0);
        let arity = own.map(|f| f.arity);
        let arity = arity.or(RHAI.iter().find(|f| f.0 == name).map(|f| f.1));
        let Some(arity) = arity else { return self.unknown(name, at) };
        if !arity.contains(&given) {
            let takes: Vec<usize> = arity.iter().map(|n| n - before.min(*n)).collect();
            return self.arity(name, at, given - before, &takes, own.map(|f| f.usage));
        }
        if own.is_some() {
            self.words(name, call);
        }
    }

    fn unknown(&mut self, name: &str, at: Position) {
        let span = self.lines.span(at);
        let title = format!("this hook calls `{name}`, which hooks do not have");
        let d = Diagnostic::error("M0702", title)
            .label(span, format!("unknown function{}", self.lines.rhai(at)));
        let names = SCRIPT.iter().map(|f| f.name).chain(RHAI.iter().map(|f| f.0));
        let local = suggest(name, self.functions.iter().map(|f| f.0.as_str()));
        self.found.push(match (local, may(name, names)) {
            (Some(near), _) => d.fix(format!("did you mean `{near}`?"), span, near),
            (None, (Some(near), help)) => d.fix(help, span, near),
            (None, (None, help)) => d.help(help),
        });
    }

    fn arity(
        &mut self,
        name: &str,
        at: Position,
        given: usize,
        takes: &[usize],
        usage: Option<&str>,
    ) {
        let n: Vec<String> = takes.iter().map(usize::to_string).collect();
        let n = n.join(" or ");
        let many = takes.last().copied().unwrap_or(0);
        let title = format!("`{name}` takes {n} argument{}, not {given}", plural(many));
        let label = format!("{given} given{}", self.lines.rhai(at));
        let d = Diagnostic::error("M0703", title).label(self.lines.span(at), label);
        self.found.push(match usage {
            Some(usage) => d.help(format!("write `{usage}`")),
            None => d,
        });
    }

    /// Names of metrics and settings that stand there as texts.
    fn words(&mut self, name: &str, call: &FnCallExpr) {
        let Some(Expr::StringConstant(word, at)) = call.args.first() else { return };
        let (all, what, unknown): (Vec<&str>, &str, &str) = match name {
            "metric" | "ema" => (self.metrics.to_vec(), "metric", "unknown metric"),
            "set" => (SETTABLE.to_vec(), "setting that hooks can change", "unknown setting"),
            _ => return,
        };
        if all.contains(&word.as_str()) {
            return;
        }
        let span = self.lines.span(*at);
        let d = Diagnostic::error("M0110", format!("there is no {what} called `{word}`"))
            .label(span, format!("{unknown}{}", self.lines.rhai(*at)));
        self.found.push(match suggest(word, all.iter().copied()) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), span, format!("\"{near}\"")),
            None => d.help(format!("there are: {}", all.join(", "))),
        });
    }
}

/// Names that a statement gives a value.
fn defines(stmt: &Stmt, names: &mut BTreeSet<String>) {
    match stmt {
        Stmt::Var(var, ..) => {
            names.insert(var.0.name.to_string());
        }
        Stmt::For(of, ..) => {
            names.insert(of.0.name.to_string());
            names.extend(of.1.as_ref().map(|counter| counter.name.to_string()));
        }
        Stmt::TryCatch(flow, ..) => {
            if let Expr::Variable(name, ..) = &flow.expr {
                names.insert(name.1.to_string());
            }
        }
        _ => {}
    }
}
