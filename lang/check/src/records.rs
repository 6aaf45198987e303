//! `jsonl("file.jsonl") { fields = .., format = chat("llama3") { loss_on = answer }, pack = 2048 }`
//! and `csv(..)`.

use crate::calls::as_name;
use crate::data::DataFacts;
use crate::hir::Value;
use crate::load::beside;
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use crate::sources::UNKNOWN_ROWS;
use crate::statics::type_of;
use crate::{RecordFacts, WorldError};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{
    Chat, ChatTemplate, Column, DType, DataFile, Field, FieldKind, Order, RecordFormat, Source,
    Span, Split, Tokenizer, Turn,
};
use monarch_syntax::ast::{Arg, AxisKind, Body, EntryKind, Expr, ExprKind, Ident, IndexKind};

/// Elements of a field that is a list: a sample, not a data set.
const MAX_ELEMENTS: u64 = 1 << 24;
/// Tokens of one sample.
const MAX_PACK: u64 = 1 << 24;

const TEMPLATES: [(&str, ChatTemplate); 2] =
    [("llama3", ChatTemplate::Llama3), ("chatml", ChatTemplate::ChatMl)];

/// Fields with the place of each name.
type Fields = Vec<(Field, Span)>;

impl<'a> Checker<'a> {
    pub fn records_set(
        &mut self,
        file: u32,
        arg: &Arg,
        format: RecordFormat,
        settings: Option<&Settings<'a>>,
        order: Order,
        span: Span,
    ) -> Option<DataFacts> {
        let given = |name: &str| settings.and_then(|s| s.values.get(name).copied());
        let fields = match given("fields") {
            Some(expr) => self.fields(file, expr, format),
            None => {
                self.report(
                    Diagnostic::error("M0109", "these records have no `fields`")
                        .label(span, "what is in a record?")
                        .help("write `fields = { prompt = str, answer = str }`"),
                );
                None
            }
        };
        let pack = given("pack").map(|e| self.whole_setting(file, "data.pack", e, 1));
        let body = settings.and_then(|s| s.bodies.get("format").copied());
        let found = self.source_files(file, arg);
        let fields = fields?;
        let chat = match (given("format"), pack) {
            (Some(expr), pack) => {
                let template = self.chat_template(file, expr);
                let turns = self.turns(body, &fields, expr.span);
                let tokenizer = self.record_tokenizer(file, given("tokenizer"), expr.span);
                if pack.is_none() {
                    self.report(
                        Diagnostic::error("M0109", "these conversations have no `pack`")
                            .label(expr.span, "how many tokens are one sample?")
                            .help("write `pack = 2048`"),
                    );
                }
                let pack = self.pack_fits(pack??, given("pack"))?;
                let (template, turns, tokenizer) = (template?, turns?, tokenizer?);
                Some((Chat { template, tokenizer: Tokenizer::Bytes, turns, pack }, tokenizer))
            }
            (None, pack) => {
                self.only_with_format(given("pack").filter(|_| pack.is_some()), "pack");
                self.only_with_format(given("tokenizer"), "tokenizer");
                self.only_numbers(&fields)?;
                None
            }
        };
        let paths = found.map(|f| f.1);
        if let (Some(expr), Some(paths)) = (given("sha256"), &paths) {
            self.pin(file, paths.clone(), expr);
        }
        let plain = fields.into_iter().map(|f| f.0).collect();
        let set = RecordSet { format, fields: plain, order, span, at: arg.value.span };
        self.read_records(set, chat, paths)
    }

    /// The records themselves, as far as they are here.
    fn read_records(
        &mut self,
        set: RecordSet,
        chat: Option<(Chat, Option<(String, Span)>)>,
        paths: Option<Vec<String>>,
    ) -> Option<DataFacts> {
        let mut known = paths.is_some();
        let chat = match chat {
            None => None,
            Some((mut chat, Some((path, at)))) => {
                match self.world.file(&path) {
                    Ok(file) => chat.tokenizer = Tokenizer::File(file),
                    Err(WorldError::NotFound { .. }) => {
                        let title = format!("there is no file `{path}`");
                        self.not_here(title, at, "its tokenizer");
                        known = false;
                    }
                    Err(e) => {
                        let title = format!("the tokenizer cannot be read: {e}");
                        self.report(Diagnostic::error("M0607", title).label(at, "this file"));
                        return None;
                    }
                }
                Some(chat)
            }
            Some((chat, None)) => Some(chat),
        };
        let mut files = Vec::new();
        for path in paths.iter().flatten() {
            files.push(self.data_file(path, set.at)?);
        }
        if !known {
            let nothing = RecordFacts { samples: UNKNOWN_ROWS, vocabulary: None };
            return Some(DataFacts { rows_known: false, ..set.facts(files, chat, nothing) });
        }
        let source = set.source(files.clone(), chat.clone());
        match self.world.records(&source) {
            Ok(found) if found.samples > 0 => Some(set.facts(files, chat, found)),
            Ok(_) => {
                let title = "these files hold no samples";
                self.report(Diagnostic::error("M0607", title).label(set.at, "this data set"));
                None
            }
            Err(e) => {
                let title = format!("the data cannot be read: {e}");
                self.report(Diagnostic::error("M0607", title).label(set.at, "this data set"));
                None
            }
        }
    }

    fn pack_fits(&mut self, pack: u64, expr: Option<&Expr>) -> Option<u64> {
        if pack <= MAX_PACK {
            return Some(pack);
        }
        let title = format!("a sample has at most {MAX_PACK} tokens, not {pack}");
        let d = Diagnostic::error("M0112", title);
        self.report(match expr {
            Some(e) => d.label(e.span, "too many"),
            None => d,
        });
        None
    }

    fn only_with_format(&mut self, expr: Option<&Expr>, name: &str) {
        if let Some(expr) = expr {
            let title = format!("`{name}` is for records that become text");
            self.report(
                Diagnostic::error("M0101", title)
                    .label(expr.span, "these have no `format`")
                    .help("write `format = chat(\"llama3\") { loss_on = answer }`"),
            );
        }
    }

    /// Without a format only numbers can be columns.
    fn only_numbers(&mut self, fields: &Fields) -> Option<()> {
        let text = fields.iter().find(|f| f.0.kind == FieldKind::Text);
        let Some((field, span)) = text else { return Some(()) };
        self.report(
            Diagnostic::error("M0602", format!("field `{}` is text, not numbers", field.name))
                .label(*span, "how does it become numbers?")
                .help("write `format = chat(\"llama3\") { loss_on = answer }`, or leave it out"),
        );
        None
    }

    /// `{ prompt = str, x = f32[4], y = i32 }`
    fn fields(&mut self, file: u32, expr: &'a Expr, format: RecordFormat) -> Option<Fields> {
        let ExprKind::Record(record) = &expr.kind else {
            self.report(
                Diagnostic::error("M0111", "`fields` is a list of names and types")
                    .label(expr.span, "something else")
                    .help("write `fields = { prompt = str, answer = str }`"),
            );
            return None;
        };
        let mut out = Vec::new();
        let mut fine = true;
        for (name, value) in self.record(record)? {
            let Some(kind) = self.field_type(file, value) else {
                fine = false;
                continue;
            };
            let list = matches!(&kind, FieldKind::Float(n) | FieldKind::Int(n) if !n.is_empty());
            if list && format == RecordFormat::Csv {
                let title = format!("field `{}` of a CSV file is one number", name.name);
                self.report(Diagnostic::error("M0602", title).label(value.span, "a list"));
                fine = false;
            }
            out.push((Field { name: name.name.clone(), kind }, name.span));
        }
        if !fine {
            return None;
        }
        if out.is_empty() {
            let d = Diagnostic::error("M0109", "these records have no fields");
            self.report(d.label(expr.span, "nothing is read"));
            return None;
        }
        Some(out)
    }

    fn field_type(&mut self, file: u32, expr: &'a Expr) -> Option<FieldKind> {
        let (name, lengths) = match &expr.kind {
            ExprKind::Name(name) => (name, Some(Vec::new())),
            ExprKind::Index(base, index) => match (&base.kind, &index.kind) {
                (ExprKind::Name(name), IndexKind::Axes(args)) => {
                    let axes = args.iter().map(|a| match &a.axis.kind {
                        AxisKind::Size(e) if a.name.is_none() => Some(e),
                        _ => None,
                    });
                    match axes.collect::<Option<Vec<&Expr>>>() {
                        Some(sizes) => (name, self.lengths(file, &sizes)),
                        None => return self.no_field_type(expr),
                    }
                }
                _ => return self.no_field_type(expr),
            },
            _ => return self.no_field_type(expr),
        };
        let lengths = lengths?;
        match (name.name.as_str(), lengths.is_empty()) {
            ("str", true) => Some(FieldKind::Text),
            ("f32", _) => Some(FieldKind::Float(lengths)),
            ("i32", _) => Some(FieldKind::Int(lengths)),
            _ => {
                let title = format!("a field is not of type `{}`", name.name);
                let d = Diagnostic::error("M0121", title).label(name.span, "unknown type");
                let near = match name.name.as_str() {
                    "string" | "text" => "str",
                    "float" | "float32" | "f64" | "double" | "bf16" | "f16" => "f32",
                    "int" | "int32" | "i64" | "integer" | "u16" | "u32" | "bool" => "i32",
                    other => other,
                };
                self.report(match near == name.name {
                    true => with_near(d, name, ["str", "f32", "i32"].into_iter(), "types"),
                    false => d.fix(format!("did you mean `{near}`?"), name.span, near),
                });
                None
            }
        }
    }

    fn no_field_type<T>(&mut self, expr: &Expr) -> Option<T> {
        let d = Diagnostic::error("M0121", "a field has a type").label(expr.span, "not a type");
        self.report(d.help("`str`, `f32`, `i32`, or lists of numbers: `f32[4]`"));
        None
    }

    fn lengths(&mut self, file: u32, sizes: &[&Expr]) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        let mut elements = 1u64;
        for size in sizes {
            let n = match self.plain_value(file, size)? {
                Value::Int(n) if n > 0 => n as u64,
                other => {
                    let shown = crate::statics::show(&other);
                    let title = format!("a size is a whole number from 1, not {shown}");
                    let d = Diagnostic::error("M0211", title);
                    self.report(d.label(size.span, type_of(&other).noun()));
                    return None;
                }
            };
            elements = elements.saturating_mul(n);
            out.push(n);
        }
        if elements > MAX_ELEMENTS {
            let at = sizes.first().map_or(Span::default(), |e| e.span);
            let title = format!("a field has at most {MAX_ELEMENTS} numbers, not {elements}");
            self.report(Diagnostic::error("M0112", title).label(at, "too many"));
            return None;
        }
        Some(out)
    }

    /// `chat("llama3")`
    fn chat_template(&mut self, file: u32, expr: &'a Expr) -> Option<ChatTemplate> {
        let call = match &expr.kind {
            ExprKind::Call(callee, args) => as_name(callee).zip(Some(args.as_slice())),
            _ => None,
        };
        let Some((name, args)) = call else {
            let d = Diagnostic::error("M0111", "a format is needed here");
            let d = d.label(expr.span, "something else");
            self.report(d.help("write `format = chat(\"llama3\") { loss_on = answer }`"));
            return None;
        };
        if name.name != "chat" {
            let title = format!("there is no format `{}`", name.name);
            let d = Diagnostic::error("M0106", title).label(name.span, "unknown format");
            self.report(with_near(d, name, ["chat"].into_iter(), "there is"));
            return None;
        }
        let declared = [crate::calls::Declared { name: "template", required: true }];
        let matched = self.match_args("chat", expr.span, &declared, args, 0)?;
        let arg = matched.first().copied().flatten()?;
        let text = match self.plain_value(file, &arg.value)? {
            Value::Text(text) => text,
            other => {
                self.wrong_type(arg.value.span, "the name of a template", type_of(&other));
                return None;
            }
        };
        let found = TEMPLATES.iter().find(|t| t.0 == text);
        if found.is_none() {
            let title = format!("there is no chat template \"{text}\"");
            let d = Diagnostic::error("M0106", title).label(arg.value.span, "unknown template");
            let all = TEMPLATES.iter().map(|t| t.0);
            self.report(match monarch_diagnostic::suggest(&text, all.clone()) {
                Some(near) => {
                    let fixed = format!("\"{near}\"");
                    d.fix(format!("did you mean {fixed}?"), arg.value.span, fixed)
                }
                None => d.help(format!("templates: {}", all.collect::<Vec<_>>().join(", "))),
            });
        }
        found.map(|t| t.1)
    }

    /// `{ loss_on = answer }`: who says what, in the order of the fields.
    fn turns(&mut self, body: Option<&'a Body>, fields: &Fields, at: Span) -> Option<Vec<Turn>> {
        let mut learned: Option<Vec<&Ident>> = None;
        for entry in body.iter().flat_map(|b| &b.entries) {
            let EntryKind::Assign(assign) = &entry.kind else {
                if !matches!(entry.kind, EntryKind::Broken(_)) {
                    let d = Diagnostic::error("M0101", "a format has settings only");
                    self.report(d.label(entry.span, "not here"));
                }
                return None;
            };
            match assign.path.single() {
                Some(name) if name.name == "loss_on" && learned.is_none() => {
                    learned = Some(self.loss_on(&assign.value)?);
                }
                Some(name) if name.name == "loss_on" => {
                    let d = Diagnostic::error("M0105", "`loss_on` is set twice");
                    self.report(d.label(name.span, "again here"));
                    return None;
                }
                _ => {
                    let name = assign.path.parts.first()?;
                    let title = format!("`chat` has no setting `{}`", assign.path.text());
                    let d = Diagnostic::error("M0101", title).label(name.span, "unknown setting");
                    self.report(with_near(d, name, ["loss_on"].into_iter(), "settings"));
                    return None;
                }
            }
        }
        let Some(learned) = learned else {
            self.report(
                Diagnostic::error("M0109", "this format does not say what is learned")
                    .label(at, "no `loss_on`")
                    .help("write `chat(\"llama3\") { loss_on = answer }`, with a field"),
            );
            return None;
        };
        for name in &learned {
            let all = fields.iter().filter(|f| f.0.kind == FieldKind::Text);
            let mut all = all.map(|f| f.0.name.as_str());
            if !all.clone().any(|f| f == name.name) {
                let title = format!("these records have no text `{}`", name.name);
                let d = Diagnostic::error("M0601", title).label(name.span, "not a field of text");
                self.report(with_near(d, name, all.clone(), "fields of text"));
                return None;
            }
            let _ = all.next();
        }
        if let Some((field, span)) = fields.iter().find(|f| f.0.kind != FieldKind::Text) {
            let title = format!("field `{}` is no part of a conversation", field.name);
            let d = Diagnostic::error("M0602", title).label(*span, "a number");
            self.report(d.help("leave it out, or read it as `str`"));
            return None;
        }
        let turn = |f: &(Field, Span)| {
            let learned = learned.iter().any(|l| l.name == f.0.name);
            let role = match (learned, f.0.name.as_str()) {
                (true, _) => "assistant",
                (false, "system") => "system",
                (false, _) => "user",
            };
            Turn { role: role.to_owned(), field: f.0.name.clone(), learned }
        };
        Some(fields.iter().map(turn).collect())
    }

    fn loss_on<'e>(&mut self, expr: &'e Expr) -> Option<Vec<&'e Ident>> {
        let names = match &expr.kind {
            ExprKind::List(items) => items.iter().map(as_name).collect::<Option<Vec<_>>>(),
            _ => as_name(expr).map(|n| vec![n]),
        };
        match names {
            Some(names) if !names.is_empty() => Some(names),
            _ => {
                let d = Diagnostic::error("M0111", "the name of a field is needed here");
                self.report(d.label(expr.span, "something else"));
                None
            }
        }
    }

    /// The file of the tokenizer with the place that names it; inner None for bytes.
    fn record_tokenizer(
        &mut self,
        file: u32,
        expr: Option<&'a Expr>,
        at: Span,
    ) -> Option<Option<(String, Span)>> {
        let Some(expr) = expr else {
            return match self.model_folder() {
                Some(folder) => Some(Some((beside(&folder, "tokenizer.json"), at))),
                None => {
                    self.report(
                        Diagnostic::error("M0109", "which tokenizer makes ids of this text?")
                            .label(at, "no `tokenizer`")
                            .help("write `tokenizer = \"dir/tokenizer.json\"`, or `bytes`"),
                    );
                    None
                }
            };
        };
        if let Some(name) = as_name(expr).filter(|n| self.lookup(file, &n.name).is_none()) {
            if name.name == "bytes" {
                return Some(None);
            }
            let title = format!("records have no tokenizer `{}`", name.name);
            let d = Diagnostic::error("M0106", title).label(name.span, "unknown tokenizer");
            self.report(with_near(d, name, ["bytes"].into_iter(), "a file, or"));
            return None;
        }
        match self.plain_value(file, expr)? {
            Value::Text(path) => {
                let home = &self.loaded.files[file as usize].key;
                Some(Some((beside(home, &path), expr.span)))
            }
            other => {
                self.wrong_type(expr.span, "the path of a tokenizer.json", type_of(&other));
                None
            }
        }
    }

    /// The files of the program's model, if exactly one is loaded.
    fn model_folder(&self) -> Option<String> {
        let mut found = None;
        for item in &self.models {
            let value = item.ast.value.as_ref();
            let call = value.and_then(|v| self.load_call(item.file, v));
            let Some((_, _, [arg, ..])) = call else { continue };
            let ExprKind::Str(text) = &arg.value.kind else { continue };
            if found.is_some() {
                return None;
            }
            found = Some(beside(&self.loaded.files[item.file as usize].key, &text.value));
        }
        found
    }
}

/// What is said of records.
struct RecordSet {
    format: RecordFormat,
    fields: Vec<Field>,
    order: Order,
    span: Span,
    at: Span,
}

impl RecordSet {
    fn source(&self, files: Vec<DataFile>, chat: Option<Chat>) -> Source {
        Source::Records { files, format: self.format, fields: self.fields.clone(), chat }
    }

    fn facts(&self, files: Vec<DataFile>, chat: Option<Chat>, found: RecordFacts) -> DataFacts {
        let span = self.span;
        let column = |name: &str, dtype, shape: &[u64], below| Column {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            below,
            span,
        };
        let rows = found.samples;
        let mut members = Vec::new();
        let (columns, axes) = match &chat {
            Some(chat) => {
                members.extend(found.vocabulary.map(|v| ("V", v as i64)));
                members.push(("T", chat.pack as i64));
                let (t, v) = ([chat.pack], found.vocabulary);
                let ids = ["ids", "next"].map(|name| column(name, DType::I32, &t, v));
                let weight = column("weight", DType::F32, &t, None);
                (ids.into_iter().chain([weight]).collect(), vec![Some("T"); 3])
            }
            None => {
                let of = |f: &Field| match &f.kind {
                    FieldKind::Float(shape) => column(&f.name, DType::F32, shape, None),
                    FieldKind::Int(shape) => column(&f.name, DType::I32, shape, None),
                    FieldKind::Text => column(&f.name, DType::I32, &[], None),
                };
                let columns: Vec<Column> = self.fields.iter().map(of).collect();
                let axes = vec![None; columns.len()];
                (columns, axes)
            }
        };
        if rows != UNKNOWN_ROWS {
            members.push(("rows", rows as i64));
        }
        DataFacts {
            name: "these records".to_owned(),
            tokens_per_sample: chat.as_ref().map_or(1, |c| c.pack),
            source: self.source(files, chat),
            columns,
            axes,
            rows,
            rows_known: true,
            splits: vec![Split { name: "train".into(), start: 0, end: rows }],
            order: self.order,
            span,
            members,
        }
    }
}
