//! What stands at the top level.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P, with_docs};
use crate::ast::{
    Bind, Body, Broken, EntryKind, Expr, ExprKind, Ident, Import, ImportFrom, Item, ItemKind,
    Layer, Op, Param, Pattern, Script, Test,
};
use crate::parse::Rule;

impl<'t> Builder<'t> {
    pub(super) fn item(&mut self, pair: P<'t>, items: &mut Vec<Item>) {
        let docs = self.docs_before(self.start(&pair));
        let mut push = |docs: Vec<_>, span, kind| {
            items.push(Item { span: with_docs(&docs, span), docs, kind });
        };
        match pair.as_rule() {
            Rule::import => {
                let import = self.import(pair);
                push(docs, import.span, ItemKind::Import(import));
            }
            Rule::param => {
                let param = self.param(pair);
                push(docs, param.span, ItemKind::Param(param));
            }
            Rule::bind => {
                let bind = self.bind(pair);
                push(docs, bind.span, ItemKind::Let(bind));
            }
            Rule::layer => {
                let layer = self.layer(pair);
                push(docs, layer.span, ItemKind::Layer(layer));
            }
            Rule::op => {
                let op = self.op(pair);
                push(docs, op.span, ItemKind::Op(op));
            }
            Rule::test => {
                let test = self.test(pair);
                push(docs, test.span, ItemKind::Test(test));
            }
            Rule::hook => {
                let hook = self.hook(pair);
                let kind = self.misplaced(hook.span, EntryKind::Hook(hook));
                push(docs, kind.0, kind.1);
            }
            Rule::named => {
                for (span, kind) in self.named(pair) {
                    let (span, kind) = self.misplaced(span, kind);
                    push(docs.clone(), span, kind);
                }
            }
            _ => {
                let hint =
                    "at the top level stand `use`, `param`, `let`, `layer`, `test` and blocks";
                let hint = if self.is_first_of_line(self.start(&pair)) { hint } else { "" };
                self.junk(&pair, hint);
                let broken = self.broken(&pair);
                push(docs, broken.span, ItemKind::Broken(broken));
            }
        }
    }

    /// At the top level only blocks stand; the rest belongs into one.
    fn misplaced(&mut self, span: Span, kind: EntryKind) -> (Span, ItemKind) {
        let name = |ident: &Ident| Some(ident.clone());
        let (title, place, help, name) = match kind {
            EntryKind::Block(block) => {
                if block.kind.name == "test" && block.name.is_none() {
                    self.error(
                        Diagnostic::error("M0001", "a test says what it shows")
                            .label(block.kind.span, "expected a string after `test`")
                            .help("as in `test \"one batch can be memorised\" { .. }`"),
                    );
                }
                return (span, ItemKind::Block(block));
            }
            EntryKind::Broken(broken) => return (span, ItemKind::Broken(broken)),
            EntryKind::Assign(assign) => return self.top_level_assign(assign),
            EntryKind::Hook(hook) => {
                let help = "hooks stand in a `train` block, at its end";
                ("a hook stands in a block".to_owned(), hook.event.span, help, None)
            }
            EntryKind::Weight(weight) => {
                let title = format!("the weight `{}` is in no layer", weight.name.name);
                let help = "put it into a `layer Name[..] { .. }`";
                (title, weight.name.span, help, name(&weight.name))
            }
            EntryKind::Func(func) => {
                let title = format!("the function `{}` is in no layer", func.name.name);
                let help = "a layer computes in its `forward(x: [B, D]) -> [B, D] = ..`";
                (title, func.name.span, help, name(&func.name))
            }
            EntryKind::Rule(rule) => {
                let help = "as in `plan name { shard { B -> dp } }`";
                ("`->` stands in a block".to_owned(), rule.from.span, help, None)
            }
        };
        let diagnostic = Diagnostic::error("M0017", title).label(place, "not at the top level");
        self.error(diagnostic.help(help));
        (span, ItemKind::Broken(Broken { span, keyword: name.clone(), name }))
    }

    /// `lr = 3` at the top level is read as `let lr = 3`.
    fn top_level_assign(&mut self, assign: crate::ast::Assign) -> (Span, ItemKind) {
        let (span, text) = (assign.span, assign.path.text());
        let start = Span { end: assign.path.span.start, ..assign.path.span };
        let diagnostic = Diagnostic::error("M0017", format!("`{text}` is set in no block"))
            .label(assign.path.span, "not at the top level");
        match assign.path.single().cloned() {
            Some(name) => {
                self.error(
                    diagnostic
                        .fix("for a value of your own, write `let`", start, "let ")
                        .help(format!("for the command line: `param {text}: float = ..`")),
                );
                let bind = Bind { span, pattern: Pattern::One(name), value: assign.value };
                (span, ItemKind::Let(bind))
            }
            None => {
                self.error(diagnostic.help("settings stand in the block that they are for"));
                (span, ItemKind::Broken(Broken { span, keyword: None, name: None }))
            }
        }
    }

    /// The span of a keyword at the start of a pair.
    fn keyword(&self, pair: &P<'t>, word: &str) -> Span {
        let start = self.start(pair);
        Span::new(self.file, start, start + word.len())
    }

    fn import(&mut self, pair: P<'t>) -> Import {
        let mut span = self.keyword(&pair, "use");
        let mut from = ImportFrom::Path { path: self.no_path(span), names: None };
        let mut alias = None;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::string => {
                    let file = self.string(&part);
                    span = span.to(file.span);
                    from = ImportFrom::File { file, pin: None };
                }
                Rule::pin => {
                    let built = self.pin(part);
                    span = span.to(built.span);
                    if let ImportFrom::File { pin, .. } = &mut from {
                        *pin = Some(built);
                    }
                }
                Rule::path => {
                    let path = self.path(&part);
                    span = span.to(path.span);
                    from = ImportFrom::Path { path, names: None };
                }
                Rule::names => {
                    span = span.to(self.span(&part));
                    let built = self.names(part);
                    if let ImportFrom::Path { names, .. } = &mut from {
                        *names = Some(built);
                    }
                }
                Rule::no_path => {
                    self.missing(&part, span, "a name or a file", "use");
                }
                Rule::ident => {
                    let name = self.ident(&part);
                    span = span.to(name.span);
                    alias = Some(name);
                }
                Rule::no_name => self.missing(&part, span, "a name", "as"),
                _ => span = span.to(self.span(&part)),
            }
        }
        Import { span, from, alias }
    }

    fn pin(&mut self, pair: P<'t>) -> crate::ast::Str {
        let before = self.keyword(&pair, "sha256");
        match pair.into_inner().next() {
            Some(part) if part.as_rule() == Rule::string => self.string(&part),
            hole => {
                if let Some(hole) = hole {
                    self.missing(&hole, before, "the hash as a string", "sha256");
                }
                self.no_string(before)
            }
        }
    }

    fn param(&mut self, pair: P<'t>) -> Param {
        let mut span = self.keyword(&pair, "param");
        let name = self.no_ident(span);
        let kind = self.no_kind(span);
        let mut param = Param { span, name, kind, default: None, range: None };
        let mut range = false;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::kw_param => {}
                Rule::ident => {
                    param.name = self.ident(&part);
                    span = span.to(param.name.span);
                }
                Rule::no_name => self.missing(&part, span, "a name", "param"),
                Rule::kind => {
                    param.kind = self.kind(part);
                    span = span.to(param.kind.span());
                }
                Rule::no_kind => self.missing(&part, span, "a type", ":"),
                Rule::eq_slip => self.wrong_sign(&part, "=", "its default follows `=`"),
                Rule::no_colon => {
                    let name = param.name.name.clone();
                    self.missing(&part, span, "`:` and a type", &name);
                }
                Rule::kw_in => {
                    range = true;
                    span = span.to(self.span(&part));
                }
                _ => {
                    let after = if range { "in" } else { "=" };
                    let value = self.value(part, span, after);
                    span = span.to(value.span);
                    match range {
                        true => param.range = Some(value),
                        false => param.default = Some(value),
                    }
                }
            }
        }
        Param { span, ..param }
    }

    pub(super) fn bind(&mut self, pair: P<'t>) -> Bind {
        let mut span = self.keyword(&pair, "let");
        let mut pattern = Pattern::One(self.no_ident(span));
        let mut value = Expr { span, kind: ExprKind::Broken };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::kw_let => {}
                Rule::pattern => {
                    let place = self.span(&part);
                    pattern = self.pattern(part);
                    span = span.to(match &pattern {
                        Pattern::One(name) => name.span,
                        Pattern::Many(..) => place,
                    });
                }
                Rule::no_name => self.missing(&part, span, "a name", "let"),
                Rule::eq_slip => self.wrong_sign(&part, "=", "its value follows `=`"),
                Rule::no_equals => {
                    let after = self.text.get(span.start as usize..span.end as usize);
                    self.missing(&part, span, "`=`", after.unwrap_or(""));
                }
                _ => {
                    value = self.value(part, span, "=");
                    span = span.to(value.span);
                }
            }
        }
        Bind { span, pattern, value }
    }

    fn layer(&mut self, pair: P<'t>) -> Layer {
        let mut span = self.keyword(&pair, "layer");
        let name = self.no_ident(span);
        let body = Body { span, entries: Vec::new() };
        let mut layer = Layer { span, name, dims: None, fields: None, body };
        for part in pair.into_inner() {
            let place = self.span(&part);
            match part.as_rule() {
                Rule::kw_layer => continue,
                Rule::ident => layer.name = self.ident(&part),
                Rule::no_name => {
                    self.missing(&part, span, "a name", "layer");
                    continue;
                }
                Rule::dims => layer.dims = Some(self.fields(part)),
                Rule::fields => layer.fields = Some(self.fields(part)),
                Rule::no_body => {
                    let name = layer.name.name.clone();
                    self.missing(&part, span, "`{ .. }`", &name);
                    continue;
                }
                _ => layer.body = self.body(part),
            }
            span = span.to(place);
        }
        Layer { span, ..layer }
    }

    fn op(&mut self, pair: P<'t>) -> Op {
        let mut span = self.keyword(&pair, "op");
        let name = self.no_ident(span);
        let mut op = Op { span, name, dims: None, fields: Vec::new(), result: None };
        for part in pair.into_inner() {
            let place = self.span(&part);
            match part.as_rule() {
                Rule::kw_op => continue,
                Rule::ident => op.name = self.ident(&part),
                Rule::dims => op.dims = Some(self.fields(part)),
                Rule::fields => op.fields = self.fields(part),
                Rule::kind => op.result = Some(self.kind(part)),
                Rule::no_fields => {
                    let name = op.name.name.clone();
                    self.missing(&part, span, "parameters in `( )`", &name);
                    continue;
                }
                _ => {
                    self.missing(&part, span, "a type", "->");
                    continue;
                }
            }
            span = span.to(place);
        }
        Op { span, ..op }
    }

    fn test(&mut self, pair: P<'t>) -> Test {
        let mut span = self.keyword(&pair, "test");
        let script = Script { span, stmts: Vec::new(), value: None };
        let mut test = Test { span, name: self.no_string(span), rejects: None, script };
        for part in pair.into_inner() {
            let place = self.span(&part);
            match part.as_rule() {
                Rule::kw_test => continue,
                Rule::string => test.name = self.string(&part),
                Rule::kw_rejects => {}
                Rule::ident => test.rejects = Some(self.ident(&part)),
                Rule::no_code => {
                    self.missing(&part, span, "a code like M0312", "rejects");
                    continue;
                }
                Rule::no_script => {
                    self.missing(&part, span, "`{ .. }`", "test");
                    continue;
                }
                _ => test.script = self.script(part),
            }
            span = span.to(place);
        }
        Test { span, ..test }
    }
}
