//! Data sets: `digits`, `tensors("x.safetensors")`, `text(glob) { window = T }`. Other sources are
//! in `sources` and `records`.

use crate::calls::as_name;
use crate::hir::Value;
use crate::load::beside;
use crate::registry::DATA;
use crate::scope::{Checker, Entity, In, Lazy, with_near};
use crate::settings::Settings;
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::{Column, DType, DataFile, Order, RecordFormat, Source, Span, Split};
use monarch_syntax::ast::{Arg, Expr, ExprKind, Ident};

/// What is known of a data set.
#[derive(Clone, Debug)]
pub(crate) struct DataFacts {
    /// As messages call it.
    pub name: String,
    pub source: Source,
    pub columns: Vec<Column>,
    /// Names of the axes after the sample axis, where the set names them.
    pub axes: Vec<Option<&'static str>>,
    /// A stand-in if they are not known.
    pub rows: u64,
    pub rows_known: bool,
    pub tokens_per_sample: u64,
    pub splits: Vec<Split>,
    pub order: Order,
    pub span: Span,
    /// Numbers that programs may ask for: `plays.V`.
    pub members: Vec<(&'static str, i64)>,
}

impl DataFacts {
    /// Whether samples are sequences of whole numbers, which is what tokens are.
    pub fn has_tokens(&self) -> bool {
        self.columns.iter().any(|c| c.dtype == DType::I32 && c.shape.len() == 1)
    }
}

/// Images in the bundled set.
const DIGITS: u64 = 1797;

impl<'a> Checker<'a> {
    pub fn check_datas(&mut self) {
        for id in 0..self.datas.len() {
            self.data_value(id);
        }
    }

    /// `plays.V`
    pub fn data_member(&mut self, id: usize, member: &Ident) -> Option<Value> {
        let facts = self.data_value(id)?;
        if let Some((_, n)) = facts.members.iter().find(|m| m.0 == member.name) {
            return Some(Value::Int(*n));
        }
        let title = format!("`{}` has no `{}`", facts.name, member.name);
        let d = Diagnostic::error("M0120", title).label(member.span, "unknown");
        let all = facts.members.iter().map(|m| m.0);
        self.report(with_near(d, member, all, "it has"));
        None
    }

    pub fn data_value(&mut self, id: usize) -> Option<DataFacts> {
        match &self.state.datas[id] {
            Lazy::Done(found) => return found.clone(),
            Lazy::Running => {
                let block = self.datas[id].ast;
                let name = block.name.as_ref().map_or("this data set", |n| n.name.as_str());
                self.circular(name, block.kind.span);
                return None;
            }
            Lazy::Waiting => self.state.datas[id] = Lazy::Running,
        }
        let In { file, ast, .. } = self.datas[id];
        let settings = self.settings(&DATA, ast.body.as_ref());
        let found = match &ast.value {
            Some(value) => self.data_expr(file, value, Some(&settings)),
            None => {
                self.report(
                    Diagnostic::error("M0109", "this data set has no source")
                        .label(ast.kind.span, "no `=`")
                        .help("write `data name = tensors(\"file.safetensors\")`"),
                );
                None
            }
        };
        let found = found.map(|mut facts| {
            if let Some(name) = &ast.name {
                facts.name = name.name.clone();
            }
            facts
        });
        self.state.datas[id] = Lazy::Done(found.clone());
        found
    }

    /// A data set where it is used: a name or a source.
    pub fn data_expr(
        &mut self,
        file: u32,
        expr: &'a Expr,
        settings: Option<&Settings<'a>>,
    ) -> Option<DataFacts> {
        let (base, shares) = match &crate::calls::bare(expr).kind {
            ExprKind::Call(callee, args) => match &callee.kind {
                ExprKind::Member(base, member) if member.name == "split" => {
                    (&**base, Some(self.split_args(file, args)))
                }
                ExprKind::Member(base, member) if as_name(base).is_none() => {
                    let title = format!("a data set has no `{}`", member.name);
                    let d = Diagnostic::error("M0120", title).label(member.span, "unknown");
                    self.report(with_near(d, member, ["split"].into_iter(), "it has"));
                    return None;
                }
                ExprKind::Member(base, member) if self.is_source(file, base) => {
                    let title = format!("a data set has no `{}`", member.name);
                    let d = Diagnostic::error("M0120", title).label(member.span, "unknown");
                    self.report(with_near(d, member, ["split"].into_iter(), "it has"));
                    return None;
                }
                _ => (expr, None),
            },
            _ => (expr, None),
        };
        let facts = self.source(file, base, settings);
        let given = settings.and_then(|s| s.values.get("split").copied());
        let shares = match (shares, given) {
            (Some(shares), Some(again)) => {
                self.report(
                    Diagnostic::error("M0105", "this data set is split twice")
                        .label(again.span, "again here")
                        .label(expr.span, "first here"),
                );
                shares
            }
            (Some(shares), None) => shares,
            (None, Some(given)) => self.split_record(file, given),
            (None, None) => return facts,
        };
        let (mut facts, shares) = (facts?, shares?);
        facts.splits = self.cut(&facts, &shares, expr.span)?;
        facts.span = expr.span;
        Some(facts)
    }

    fn is_source(&self, file: u32, expr: &Expr) -> bool {
        let entity = as_name(expr).and_then(|n| self.lookup(file, &n.name));
        matches!(entity, Some(Entity::Op(_) | Entity::Data(_)))
    }

    fn source(
        &mut self,
        file: u32,
        expr: &'a Expr,
        settings: Option<&Settings<'a>>,
    ) -> Option<DataFacts> {
        let (callee, args): (&Expr, &'a [Arg]) = match &crate::calls::bare(expr).kind {
            ExprKind::Call(callee, args) => (callee, args),
            ExprKind::Broken => return None,
            _ => (expr, &[]),
        };
        let (name, entity) = match &crate::calls::bare(callee).kind {
            ExprKind::Name(name) => (name, self.lookup(file, &name.name)),
            ExprKind::Member(base, member) => {
                let module = as_name(base).and_then(|n| self.lookup(file, &n.name));
                match module {
                    Some(Entity::Module(id)) => (member, Some(self.member_of(id, member))),
                    _ => return self.no_source(expr),
                }
            }
            _ => return self.no_source(expr),
        };
        // A param of the same name is no source: `tokens("..")` beside `param tokens`.
        let is_call = !std::ptr::eq(callee, expr);
        let entity = match entity {
            Some(Entity::Param(_) | Entity::Let(_)) if is_call => {
                self.prelude.get(&name.name).map(|named| named.entity)
            }
            other => other,
        };
        match entity {
            Some(Entity::Data(id)) if args.is_empty() && settings.is_none() => self.data_value(id),
            Some(Entity::Op(op)) if self.op_result(op) == Some("data") => {
                let matched = self.match_op(op, expr.span, args, 0)?;
                let order = self.order(op, &matched)?;
                let what = self.op_name(op).to_owned();
                self.settings_of_source(&what, settings);
                match what.as_str() {
                    "digits" => Some(digits(order, expr.span)),
                    "tensors" => self.tensors(file, matched[0]?, settings, order, expr.span),
                    "tokens" => self.tokens_set(file, matched[0]?, settings, order, expr.span),
                    "jsonl" | "csv" => {
                        let format = match what.as_str() {
                            "csv" => RecordFormat::Csv,
                            _ => RecordFormat::Jsonl,
                        };
                        self.records_set(file, matched[0]?, format, settings, order, expr.span)
                    }
                    _ => self.text_set(file, matched[0]?, settings, order, expr.span),
                }
            }
            Some(Entity::Broken) => None,
            Some(other) => {
                self.wrong_entity(name, other, "a data set");
                None
            }
            None => {
                self.unknown_name(
                    file,
                    name,
                    &["csv", "digits", "jsonl", "tensors", "text", "tokens"],
                );
                None
            }
        }
    }

    fn no_source(&mut self, expr: &Expr) -> Option<DataFacts> {
        self.report(
            Diagnostic::error("M0124", "a data set is needed here")
                .label(expr.span, "something else")
                .help("digits, tensors(..), text(..), tokens(..), jsonl(..), csv(..), or a name"),
        );
        None
    }

    fn order(&mut self, op: usize, matched: &[Option<&Arg>]) -> Option<Order> {
        let fields = &self.ops[op].ast.fields;
        let at = fields.iter().position(|f| f.name.name == "order");
        let Some(arg) = at.and_then(|i| matched.get(i).copied().flatten()) else {
            return Some(Order::Shuffled);
        };
        match as_name(&arg.value) {
            Some(name) if name.name == "shuffled" => Some(Order::Shuffled),
            Some(name) if name.name == "file" => Some(Order::File),
            Some(name) => {
                let d = Diagnostic::error("M0106", format!("there is no order `{}`", name.name))
                    .label(name.span, "unknown order");
                self.report(with_near(d, name, ["shuffled", "file"].into_iter(), "orders"));
                None
            }
            None => {
                self.report(
                    Diagnostic::error("M0111", "an order is `shuffled` or `file`")
                        .label(arg.value.span, "neither"),
                );
                None
            }
        }
    }

    /// Whether a value is a param that the command line gives.
    fn is_typed(&self, file: u32, expr: &Expr) -> bool {
        match as_name(expr).and_then(|n| self.lookup(file, &n.name)) {
            Some(Entity::Param(id)) => self.state.overrides.contains_key(&id),
            _ => false,
        }
    }

    /// A path; relative to the file that holds it, or to the current folder if it comes from
    /// the command line.
    pub fn path_arg(&mut self, file: u32, arg: &Arg) -> Option<String> {
        match self.plain_value(file, &arg.value)? {
            // Who types a path means it from where they are.
            Value::Text(t) if self.is_typed(file, &arg.value) => Some(t),
            Value::Text(t) => Some(beside(&self.loaded.files[file as usize].key, &t)),
            other => {
                let ty = crate::statics::type_of(&other);
                self.wrong_type(arg.value.span, "the path of a file", ty);
                None
            }
        }
    }

    fn tensors(
        &mut self,
        file: u32,
        arg: &Arg,
        settings: Option<&Settings<'a>>,
        order: Order,
        span: Span,
    ) -> Option<DataFacts> {
        let path = self.path_arg(file, arg)?;
        if let Some(expr) = settings.and_then(|s| s.values.get("sha256").copied()) {
            self.pin(file, vec![path.clone()], expr);
        }
        let refuse = |this: &mut Self, title: String| {
            this.report(Diagnostic::error("M0607", title).label(arg.value.span, "this data set"));
            None
        };
        let found = match self.world.tensors(&path) {
            Ok(found) => found,
            Err(e) => return refuse(self, format!("the data cannot be read: {e}")),
        };
        let mut columns = Vec::new();
        let mut rows: Option<(String, u64)> = None;
        for t in &found {
            let dtype = match t.dtype.as_str() {
                "F32" => DType::F32,
                "I32" => DType::I32,
                other => {
                    let title = format!("column `{}` is {other}; F32 and I32 are read", t.name);
                    return refuse(self, title);
                }
            };
            let Some((n, shape)) = t.shape.split_first() else {
                return refuse(self, format!("`{}` is a single number, not a column", t.name));
            };
            match &rows {
                Some((first, m)) if m != n => {
                    let title = format!("`{first}` has {m} samples and `{}` has {n}", t.name);
                    return refuse(self, title);
                }
                _ => rows = Some((t.name.clone(), *n)),
            }
            let shape = shape.to_vec();
            columns.push(Column { name: t.name.clone(), dtype, shape, below: None, span });
        }
        let rows = match rows {
            Some((_, n)) if n > 0 => n,
            _ => return refuse(self, format!("`{path}` holds no samples")),
        };
        let ids = columns.iter().find(|c| c.dtype == DType::I32 && c.shape.len() == 1);
        let tokens_per_sample = ids.map_or(1, |c| c.shape[0]);
        let file = self.data_file(&path, arg.value.span)?;
        let split = Split { name: "train".into(), start: 0, end: rows };
        Some(DataFacts {
            name: format!("tensors(\"{path}\")"),
            source: Source::Tensors { file },
            axes: columns.iter().map(|_| None).collect(),
            columns,
            rows,
            rows_known: true,
            tokens_per_sample,
            splits: vec![split],
            order,
            span,
            members: vec![("rows", rows as i64)],
        })
    }

    pub fn data_file(&mut self, path: &str, at: Span) -> Option<DataFile> {
        match self.world.file(path) {
            Ok(file) => Some(file),
            Err(e) => {
                let title = format!("the data cannot be read: {e}");
                self.report(Diagnostic::error("M0607", title).label(at, "this data set"));
                None
            }
        }
    }

    fn text_set(
        &mut self,
        file: u32,
        arg: &Arg,
        settings: Option<&Settings<'a>>,
        order: Order,
        span: Span,
    ) -> Option<DataFacts> {
        let at = arg.value.span;
        let tokenizer = settings.and_then(|s| s.values.get("tokenizer").copied());
        let fine = tokenizer.is_none_or(|t| self.tokenizer(t));
        let window = self.window(settings, span);
        let paths = self.text_files(file, arg)?;
        if let Some(expr) = settings.and_then(|s| s.values.get("sha256").copied()) {
            self.pin(file, paths.clone(), expr);
        }
        let facts = match self.world.text(&paths) {
            Ok(facts) => facts,
            Err(e) => {
                let title = format!("the text cannot be read: {e}");
                self.report(Diagnostic::error("M0607", title).label(at, "this text"));
                return None;
            }
        };
        let window = window.filter(|_| fine)?;
        // Windows lie side by side, each with one character more for its last target.
        let rows = facts.chars / window.saturating_add(1);
        if rows == 0 {
            let title = format!("the text has {} characters, fewer than one window", facts.chars);
            self.report(
                Diagnostic::error("M0607", title)
                    .label(at, format!("a window of {window} needs {}", window + 1)),
            );
            return None;
        }
        let files: Vec<Option<DataFile>> = paths.iter().map(|p| self.data_file(p, at)).collect();
        let files: Option<Vec<DataFile>> = files.into_iter().collect();
        let v = facts.vocabulary.len() as u64;
        let column = |name: &str| Column {
            name: name.to_owned(),
            dtype: DType::I32,
            shape: vec![window],
            below: Some(v),
            span,
        };
        let members = vec![("V", v as i64), ("T", window as i64), ("rows", rows as i64)];
        Some(DataFacts {
            name: "this text".to_owned(),
            source: Source::Text { files: files?, window, vocabulary: facts.vocabulary },
            columns: vec![column("ids"), column("next")],
            axes: vec![Some("T"), Some("T")],
            rows,
            rows_known: true,
            tokens_per_sample: window,
            splits: vec![Split { name: "train".into(), start: 0, end: rows }],
            order,
            span,
            members,
        })
    }

    pub fn window(&mut self, settings: Option<&Settings<'a>>, span: Span) -> Option<u64> {
        if let Some(window) = settings.and_then(|s| s.values.get("window").copied()) {
            return self.whole_setting(span.file, "data.window", window, 1);
        }
        if !settings.is_some_and(|s| s.broken || s.meant.contains(&"window")) {
            self.report(
                Diagnostic::error("M0109", "this text has no `window`")
                    .label(span, "how many tokens are one sample?")
                    .help("write `data name = text(..) { window = 256 }`"),
            );
        }
        None
    }

    /// The files of a text; there is at least one.
    fn text_files(&mut self, file: u32, arg: &Arg) -> Option<Vec<String>> {
        let at = arg.value.span;
        let pattern = self.path_arg(file, arg)?;
        let (code, title, label) = match self.world.glob(&pattern) {
            Ok(paths) if !paths.is_empty() => return Some(paths),
            Ok(_) => ("M0107", format!("`{pattern}` matches no file"), "no match"),
            Err(e) => ("M0607", format!("the text cannot be read: {e}"), "this text"),
        };
        let d = Diagnostic::error(code, title).label(at, label);
        self.report(d.help("a path is relative to the file it is written in"));
        None
    }

    fn tokenizer(&mut self, expr: &Expr) -> bool {
        match as_name(expr) {
            Some(name) if name.name == "chars" => true,
            Some(name) => {
                let title = format!("a text has no tokenizer `{}`", name.name);
                let d = Diagnostic::error("M0106", title).label(name.span, "unknown tokenizer");
                let d = match suggest(&name.name, ["chars"]) {
                    Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
                    None => d.help("`chars` is the one there is"),
                };
                self.report(d);
                false
            }
            None => {
                self.report(
                    Diagnostic::error(
                        "M0906",
                        "a text with a tokenizer from a file is not built yet",
                    )
                    .label(expr.span, "`chars` is the one there is")
                    .help("`jsonl(..)` takes one; or make a file of ids for `tokens(..)`"),
                );
                false
            }
        }
    }
}

fn digits(order: Order, span: Span) -> DataFacts {
    let column = |name: &str, dtype, shape, below| Column {
        name: String::from(name),
        dtype,
        shape,
        below,
        span,
    };
    DataFacts {
        name: "digits".to_owned(),
        source: Source::Digits,
        columns: vec![
            column("x", DType::F32, vec![64], None),
            column("y", DType::I32, vec![], Some(10)),
        ],
        axes: vec![None, None],
        rows: DIGITS,
        rows_known: true,
        tokens_per_sample: 1,
        splits: vec![Split { name: "train".into(), start: 0, end: DIGITS }],
        order,
        span,
        members: vec![("rows", DIGITS as i64)],
    }
}
