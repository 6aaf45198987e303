//! Entries of bodies.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P, Siblings, with_docs};
use crate::ast::{
    Assign, Block, Body, Broken, Entry, EntryKind, Expr, ExprKind, Func, Hook, Ident, Path,
    Rule as AxisRule, Script, TensorType, Weight,
};
use crate::lex;
use crate::parse::Rule;
use crate::slip;

impl<'t> Builder<'t> {
    pub(super) fn body(&mut self, pair: P<'t>) -> Body {
        let span = self.span(&pair);
        let mut entries: Vec<Entry> = Vec::new();
        let mut siblings = Siblings { comma_ends: true, ..Siblings::default() };
        let mut comma = Some(span);
        for part in pair.into_inner() {
            self.sibling(&mut siblings, part, |this, part| match part.as_rule() {
                Rule::comma => this.comma(&part, &mut comma),
                rule => {
                    comma = None;
                    if rule == Rule::junk_line
                        && (this.no_value_before(&part, entries.last())
                            || this.name_as_unit(&part, entries.last()))
                    {
                        return;
                    }
                    let docs = this.docs_before(this.start(&part));
                    this.entry(part, docs, &mut entries);
                }
            });
        }
        Body { span, entries }
    }

    /// A comma ends an entry; two in a row, or one in front, end nothing.
    pub(super) fn comma(&mut self, part: &P<'t>, last: &mut Option<Span>) {
        let span = self.span(part);
        if last.is_some() {
            self.error(
                Diagnostic::error("M0001", "this comma ends nothing")
                    .label(span, "nothing before it")
                    .fix("remove it", span, ""),
            );
        }
        *last = Some(span);
    }

    /// A line that ends in `lr =` or in an operator takes the next line's first word for a value;
    /// the `=` after that word tells.
    fn no_value_before(&mut self, junk: &P<'t>, before: Option<&Entry>) -> bool {
        let Some(entry) = before.filter(|_| junk.as_str().starts_with('=')) else { return false };
        if self.silent() {
            return false;
        }
        let start = self.start(junk);
        let text = self.text.get(..start).unwrap_or("").trim_end();
        let word = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let (begin, end) = (entry.span.start as usize, text.len());
        if word == end || word <= begin || !self.is_first_of_line(word) {
            return false;
        }
        let end = self.last_end(begin, word);
        let line = lex::line_start(self.text, end).max(begin);
        let line = self.text.get(line..end).unwrap_or("").trim();
        let title =
            format!("expected a value after `{}`, found the end of the line", slip::clip(line));
        let place = Span::new(self.file, end, end);
        self.error(Diagnostic::error("M0001", title).label(place, "missing here"));
        true
    }

    /// In `batch = 64 until = 3` the second name was taken for the unit of the first value.
    fn name_as_unit(&mut self, junk: &P<'t>, before: Option<&Entry>) -> bool {
        let Some(EntryKind::Assign(assign)) = before.map(|entry| &entry.kind) else { return false };
        let ExprKind::Number(number) = &assign.value.kind else { return false };
        let Some(unit) = number.unit.as_ref().filter(|_| junk.as_str().starts_with('=')) else {
            return false;
        };
        let title = format!("`{}` was read as a unit of `{}`", unit.name, number.raw);
        let place = Span { end: unit.span.start, ..unit.span };
        let place = Span { start: number.span.end, ..place };
        self.error(
            Diagnostic::error("M0001", title)
                .label(unit.span, "the name of the next setting?")
                .fix("put a comma or a line break before it", place, ", "),
        );
        true
    }

    fn entry(&mut self, part: P<'t>, docs: Vec<crate::ast::Doc>, entries: &mut Vec<Entry>) {
        let mut push = |docs: Vec<_>, span, kind| {
            entries.push(Entry { span: with_docs(&docs, span), docs, kind });
        };
        match part.as_rule() {
            Rule::hook => {
                let hook = self.hook(part);
                push(docs, hook.span, EntryKind::Hook(hook));
            }
            Rule::named => {
                for (span, kind) in self.named(part) {
                    push(docs.clone(), span, kind);
                }
            }
            _ => {
                self.junk_entry(&part);
                let broken = self.broken(&part);
                push(docs, broken.span, EntryKind::Broken(broken));
            }
        }
    }

    pub(super) fn junk_entry(&mut self, part: &P<'t>) {
        let start = self.start(part);
        let token = lex::next(self.text, start);
        let next = lex::next(self.text, token.end);
        let sets = matches!(next.text(self.text), "=" | ":");
        if let (true, Some(diagnostic)) = (sets, slip::reserved(self.file, self.text, token)) {
            return self.error(diagnostic);
        }
        if sets && token.tok == lex::Tok::Str {
            return self.quoted_name(token);
        }
        let help = match token.text(self.text) {
            word @ ("let" | "assert") => format!("`{word}` stands in scripts and at the top level"),
            word @ ("use" | "param" | "layer") => {
                format!("`{word}` stands at the top level, at the beginning of a line")
            }
            "if" if self.is_first_of_line(start) => {
                "blocks are always there; a value may depend: `a = if b { c } else { d }`"
                    .to_owned()
            }
            "=" | "==" => "a setting is `name = value`".to_owned(),
            _ if self.follows_thousand(token) => "digits are grouped with `_`: `1_000`".to_owned(),
            _ => String::new(),
        };
        self.junk(part, &help);
    }

    /// `{"a": 1}`
    fn quoted_name(&mut self, token: lex::Token) {
        let span = Span::new(self.file, token.start, token.end);
        let name = token.text(self.text).trim_matches('"');
        let title = format!("the name `{}` stands in quotes", slip::clip(name));
        let diagnostic = Diagnostic::error("M0012", title).label(span, "a name, not a string");
        let plain = name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        self.error(match plain && !name.is_empty() && !lex::RESERVED.contains(&name) {
            true => diagnostic.fix("write it without", span, name),
            false => diagnostic,
        });
    }

    /// `000` in `1,000`
    fn follows_thousand(&self, token: lex::Token) -> bool {
        let before = self.text.as_bytes().get(..token.start).unwrap_or(&[]);
        let comma = matches!(before, [.., digit, b','] if digit.is_ascii_digit());
        comma && token.tok == lex::Tok::Number && token.text(self.text).len() >= 3
    }

    pub(super) fn hook(&mut self, pair: P<'t>) -> Hook {
        let mut span = Span { end: self.start(&pair) as u32 + 2, ..self.span(&pair) };
        let mut event = self.no_path(span);
        let mut args = Vec::new();
        let mut action = Expr { span, kind: ExprKind::Broken };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::kw_on => {}
                Rule::path => {
                    event = self.path(&part);
                    span = span.to(event.span);
                }
                Rule::no_path => self.missing(&part, span, "an event's name", "on"),
                Rule::args => {
                    span = span.to(self.span(&part));
                    args = self.args(part);
                }
                Rule::arrow_slip => self.wrong_sign(&part, "=>", "what is to be done follows `=>`"),
                Rule::no_arrow => {
                    self.missing(&part, span, "`=>` and what to do", &event.text());
                }
                _ => {
                    action = self.value(part, span, "=>");
                    span = span.to(action.span);
                }
            }
        }
        Hook { span, event, args, action }
    }

    /// Another sign stands where `sign` belongs; reading goes on as if it were that.
    pub(super) fn wrong_sign(&mut self, part: &P<'t>, sign: &str, why: &str) {
        let span = self.span(part);
        let title = format!("`{}` where `{sign}` belongs", part.as_str());
        self.error(Diagnostic::error("M0010", title).label(span, why.to_owned()).fix(
            format!("write `{sign}`"),
            span,
            sign,
        ));
    }

    /// What begins with a path. A kind and a name on two lines are two entries.
    pub(super) fn named(&mut self, pair: P<'t>) -> Vec<(Span, EntryKind)> {
        let mut inner = pair.into_inner();
        let (Some(path), Some(part)) = (inner.next(), inner.next()) else { return Vec::new() };
        let path = self.path(&path);
        match part.as_rule() {
            Rule::assign_part => {
                let assign = self.assign(path, part);
                vec![(assign.span, EntryKind::Assign(assign))]
            }
            Rule::colon_part => vec![self.colon(path, part)],
            Rule::rule_part => {
                let value = part.into_inner().next();
                let to = self.value_or_broken(value, path.span, "->");
                let rule = AxisRule { span: path.span.to(to.span), from: path, to };
                vec![(rule.span, EntryKind::Rule(rule))]
            }
            Rule::func_part => vec![self.func(path, part)],
            Rule::block_part => self.block(path, part),
            _ => {
                self.bare(&path, &part);
                vec![(path.span, broken_path(&path))]
            }
        }
    }

    pub(super) fn value_or_broken(
        &mut self,
        pair: Option<P<'t>>,
        before: Span,
        after: &str,
    ) -> Expr {
        match pair {
            Some(pair) => self.value(pair, before, after),
            None => Expr { span: before, kind: ExprKind::Broken },
        }
    }

    fn assign(&mut self, path: Path, part: P<'t>) -> Assign {
        let mut span = path.span;
        let mut value = Expr { span, kind: ExprKind::Broken };
        let mut body = None;
        for part in part.into_inner() {
            match part.as_rule() {
                Rule::eq_slip if part.as_str() == "=>" => {
                    self.wrong_sign(&part, "->", "`B -> dp` sends an axis, `name = value` sets")
                }
                Rule::eq_slip => self.wrong_sign(&part, "=", "a setting is `name = value`"),
                Rule::body => {
                    let built = self.body(part);
                    span = span.to(built.span);
                    body = Some(built);
                }
                _ => {
                    value = self.value(part, path.span, &format!("{} =", path.text()));
                    span = span.to(value.span);
                }
            }
        }
        Assign { span, path, value, body }
    }

    /// `name: shape ~ init`, or `name: value` from someone used to YAML.
    fn colon(&mut self, path: Path, part: P<'t>) -> (Span, EntryKind) {
        let colon = self.start(&part);
        let colon = Span::new(self.file, colon, colon + 1);
        let mut shape: Option<TensorType> = None;
        let mut value = Expr { span: colon, kind: ExprKind::Broken };
        for part in part.into_inner() {
            match (part.as_rule(), &shape) {
                (Rule::tensor, _) => shape = Some(self.tensor(part)),
                (Rule::init_slip, _) => self.wrong_sign(&part, "~", "a weight begins as `~ init`"),
                (Rule::no_init, Some(shape)) => {
                    let place = shape.span;
                    self.no_init(&path, place, &part);
                }
                (_, Some(shape)) => {
                    let before = shape.span;
                    value = self.value(part, before, "~");
                }
                (_, None) => {
                    self.colon_slip(&path, colon, &part);
                    value = self.value(part, colon, ":");
                }
            }
        }
        let end = shape.as_ref().map_or(value.span, |shape| shape.span.to(value.span));
        let span = path.span.to(end);
        match (shape, path.single().cloned()) {
            (Some(shape), Some(name)) => {
                (span, EntryKind::Weight(Weight { span, name, shape, init: value }))
            }
            (Some(_), None) => {
                let title = format!("`{}` cannot be the name of a weight", path.text());
                let diagnostic = Diagnostic::error("M0001", title);
                self.error(diagnostic.label(path.span, "a name without dots"));
                (span, broken_path(&path))
            }
            (None, _) => (span, EntryKind::Assign(Assign { span, path, value, body: None })),
        }
    }

    fn no_init(&mut self, path: &Path, shape: Span, hole: &P<'t>) {
        if let Some(diagnostic) = slip::slip(self.file, self.text, self.start(hole)) {
            return self.error(diagnostic);
        }
        let end = Span { start: shape.end, ..shape };
        let title = format!("the weight `{}` does not say how it begins", path.text());
        self.error(
            Diagnostic::error("M0011", title)
                .label(shape, "expected `~` and an initialiser after the shape")
                .fix("as in `~ normal(0.02)` or `~ zeros`", end, " ~ normal(0.02)")
                .help(format!("for a setting, write `{} = ..`", path.text())),
        );
    }

    fn colon_slip(&mut self, path: &Path, colon: Span, value: &P<'t>) {
        if value.as_rule() == Rule::no_value {
            return;
        }
        let name = path.text();
        let between = self.text.get(colon.end as usize..self.start(value)).unwrap_or("");
        if between.contains('\n') {
            let title = format!("the block `{name}` opens with `{{`, not with `:`");
            return self.error(
                Diagnostic::error("M0010", title)
                    .label(colon, "`:` is for the shape of a weight and for types")
                    .help(format!("write `{name} {{ .. }}`; how far lines are indented is free")),
            );
        }
        let space = self.text.get(..colon.start as usize).is_some_and(|text| text.ends_with(' '));
        let with = if space { "=" } else { " =" };
        let title = format!("`{name}` is set with `=`, not with `:`");
        let diagnostic = Diagnostic::error("M0010", title)
            .label(colon, "`:` is for the shape of a weight and for types");
        self.error(match value.as_str().starts_with('{') {
            true => diagnostic.fix(format!("for a block, write `{name} {{ .. }}`"), colon, "").fix(
                format!("for a value, write `{name} = {{ .. }}`"),
                colon,
                with,
            ),
            false => diagnostic.fix(format!("write `{name} = ..`"), colon, with),
        });
    }

    fn func(&mut self, path: Path, part: P<'t>) -> (Span, EntryKind) {
        let mut span = path.span;
        let mut func = Func {
            span,
            name: self.no_ident(span),
            fields: Vec::new(),
            result: None,
            script: Script { span, stmts: Vec::new(), value: None },
            short: false,
        };
        for part in part.into_inner() {
            match part.as_rule() {
                Rule::fields => {
                    span = span.to(self.span(&part));
                    func.fields = self.fields(part);
                }
                Rule::tensor => {
                    let tensor = self.tensor(part);
                    span = span.to(tensor.span);
                    func.result = Some(tensor);
                }
                Rule::no_tensor => self.missing(&part, span, "a shape like `[B, D]`", "->"),
                Rule::script => {
                    func.script = self.script(part);
                    span = span.to(func.script.span);
                }
                Rule::eq_slip => self.wrong_sign(&part, "=", "its value follows `=`"),
                Rule::no_func_body => {
                    let what = "`= value` or `{ .. }`";
                    self.missing(&part, span, what, self.text_of(span));
                }
                _ => {
                    let value = self.value(part, span, "=");
                    span = span.to(value.span);
                    func.short = true;
                    func.script.span = value.span;
                    func.script.value = Some(Box::new(value));
                }
            }
        }
        func.span = span;
        match path.single() {
            Some(name) => func.name = name.clone(),
            None => {
                let title = format!("`{}` cannot be defined", path.text());
                let diagnostic = Diagnostic::error("M0001", title);
                self.error(diagnostic.label(path.span, "a name without dots"));
                return (span, broken_path(&path));
            }
        }
        (span, EntryKind::Func(func))
    }

    fn text_of(&self, span: Span) -> &'t str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    fn block(&mut self, path: Path, part: P<'t>) -> Vec<(Span, EntryKind)> {
        let mut span = path.span;
        let (mut name, mut on, mut value, mut body) = (None, None, None, None);
        for part in part.into_inner() {
            match part.as_rule() {
                Rule::ident => {
                    let ident = self.ident(&part);
                    span = span.to(ident.span);
                    name = Some(ident);
                }
                Rule::kw_on => span = span.to(self.span(&part)),
                Rule::path => {
                    let path = self.path(&part);
                    span = span.to(path.span);
                    on = Some(path);
                }
                Rule::no_path => self.missing(&part, span, "a name", "on"),
                Rule::eq_slip => self.wrong_sign(&part, "=", "its value follows `=`"),
                Rule::body => {
                    let built = self.body(part);
                    span = span.to(built.span);
                    body = Some(built);
                }
                _ => {
                    let built = self.value(part, span, "=");
                    span = span.to(built.span);
                    value = Some(built);
                }
            }
        }
        self.whole_block(path, Block { span, kind: self.no_ident(span), name, on, value, body })
    }

    /// Looks at a block as a whole: its kind is one word, on the line of its name.
    fn whole_block(&mut self, path: Path, mut block: Block) -> Vec<(Span, EntryKind)> {
        let span = block.span;
        let between = block
            .name
            .as_ref()
            .and_then(|name| self.text.get(path.span.end as usize..name.span.start as usize));
        if let (Some(name), true) = (&block.name, between.is_some_and(|text| text.contains('\n'))) {
            self.stands_alone(&path, path.span);
            let name = name.clone();
            let rest = Span { start: name.span.start, ..span };
            let second = match (block.value, block.on.is_some()) {
                (Some(value), false) => EntryKind::Assign(Assign {
                    span: rest,
                    path: Path { span: name.span, parts: vec![name] },
                    value,
                    body: block.body,
                }),
                (value, _) => {
                    EntryKind::Block(Block { span: rest, kind: name, name: None, value, ..block })
                }
            };
            return vec![(path.span, broken_path(&path)), (rest, second)];
        }
        match path.single() {
            Some(kind) => block.kind = kind.clone(),
            None => {
                let title = format!("`{}` does not say what to do with its block", path.text());
                self.error(
                    Diagnostic::error("M0001", title)
                        .label(path.span, "a block begins with one word")
                        .help(format!("for a setting, write `{} = ..`", path.text())),
                );
                return vec![(span, broken_path(&path))];
            }
        }
        vec![(span, EntryKind::Block(block))]
    }

    /// A path that nothing follows which could make it an entry.
    pub(super) fn bare(&mut self, path: &Path, hole: &P<'t>) {
        if self.silent() {
            self.muted = true;
            return;
        }
        let start = path.span.start as usize;
        let after = slip::slip(self.file, self.text, start)
            .or_else(|| slip::slip(self.file, self.text, self.start(hole)));
        match after {
            Some(diagnostic) => self.error(diagnostic),
            None => {
                let at = self.start(hole);
                let token = lex::next(self.text, at);
                let between = self.text.get(path.span.end as usize..token.start).unwrap_or("\n");
                let ends = matches!(token.tok, lex::Tok::Close(_)) || token.text(self.text) == ",";
                if between.contains('\n') || ends {
                    return self.stands_alone(path, path.span);
                }
                self.bare_name(path, hole, token);
            }
        }
    }

    /// `train a b`, `train a.b {`: a kind and a name that no block follows.
    fn bare_name(&mut self, path: &Path, hole: &P<'t>, token: lex::Token) {
        if token.tok != lex::Tok::Word {
            return self.missing(hole, path.span, "`=`, `:` or `{`", &path.text());
        }
        if path.single().is_some()
            && lex::line_start(self.text, path.span.start as usize) == path.span.start as usize
            && let Some(near) = monarch_diagnostic::suggest(&path.text(), ITEMS)
        {
            return self.error(
                Diagnostic::error("M0100", format!("nothing begins with `{}`", path.text()))
                    .label(path.span, "unknown word")
                    .fix(format!("did you mean `{near}`?"), path.span, near),
            );
        }
        let next = lex::next(self.text, token.end);
        let span = Span::new(self.file, token.start, token.end);
        if next.start == token.end && next.text(self.text) == "." {
            let diagnostic = Diagnostic::error("M0001", "the name of a block has no dots");
            return self.error(diagnostic.label(span, "a name of one word"));
        }
        let both = path.span.to(span);
        let line_end = lex::line_end(self.text.as_bytes(), token.end);
        let found = match next.start < line_end && next.tok != lex::Tok::Comment {
            true => slip::found(self.text, next),
            false => "the end of the line".to_owned(),
        };
        let title = format!("expected `=` or `{{` after `{}`, found {found}", self.text_of(both));
        let end = Span { start: both.end, ..both };
        self.error(Diagnostic::error("M0001", title).label(end, "missing here"));
    }

    fn stands_alone(&mut self, path: &Path, place: Span) {
        let name = path.text();
        // `warmup(..) thn` with `cosine(..)` on the next line.
        let line = lex::line_start(self.text, place.start as usize);
        let before = self.text.get(line..place.start as usize).unwrap_or("").trim_end();
        let infix = monarch_diagnostic::suggest(&name, ["then", "and", "or", "in"]);
        if let (false, Some(infix)) = (before.is_empty() || before.ends_with(['{', ',']), infix) {
            return self.error(
                Diagnostic::error("M0001", format!("unexpected `{name}`"))
                    .label(place, "not an operator")
                    .fix(format!("did you mean `{infix}`?"), place, infix),
            );
        }
        self.error(
            Diagnostic::error("M0001", format!("`{name}` stands alone"))
                .label(place, "expected `= value` or `{ .. }` after it")
                .help("a list of names stands in brackets: `[a, b]`"),
        );
    }
}

/// Words with which something at the top level begins.
const ITEMS: [&str; 11] =
    ["use", "param", "let", "layer", "model", "data", "train", "test", "cluster", "plan", "sweep"];

fn broken_path(path: &Path) -> EntryKind {
    let name: Option<Ident> = path.parts.first().cloned();
    EntryKind::Broken(Broken { span: path.span, keyword: name.clone(), name })
}
