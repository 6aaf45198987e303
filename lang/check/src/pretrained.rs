//! `Llama.load("dir/*.safetensors") { names = .., freeze = true }`: a layer whose sizes come from
//! the tensors of a checkpoint and from the `config.json` beside them.

use crate::apply::Place;
use crate::calls::{Declared, as_name, bare};
use crate::hir::{Model, Pin, Poly, Static, Value};
use crate::names::{ConfigUse, NameMap, config_text, config_value};
use crate::scope::{Checker, Entity};
use crate::settings::Settings;
use crate::sizes::Sizes;
use crate::statics::{show, type_of};
use crate::weights::{Checkpoint, Tensor};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Float, Span};
use monarch_syntax::ast::{Arg, Axis, AxisArg, AxisKind, Expr, ExprKind, Ident, IndexKind, Str};

/// A configuration is a page, not a book.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// `Name[sizes](values).load("files")`, some sizes and values left open.
pub(crate) struct Loading {
    pub layer: usize,
    /// For each header axis what the program says: number, param, place.
    pub dims: Vec<Option<(u64, Option<usize>, Span)>>,
    pub fields: Vec<Option<(Value, Span)>>,
    /// Beside the program.
    pub pattern: String,
    /// The text that names the files.
    pub files: Str,
    pub at: Span,
}

/// What is known of a model whose files are not here, for checks that need no numbers.
#[derive(Clone)]
pub(crate) struct Outline {
    pub layer: usize,
    pub names: NameMap,
}

impl<'a> Checker<'a> {
    /// The parts of `base.load(args)`.
    pub fn load_call<'e>(
        &self,
        file: u32,
        expr: &'e Expr,
    ) -> Option<(&'e Expr, &'e Ident, &'e [Arg])> {
        let ExprKind::Call(callee, args) = &bare(expr).kind else { return None };
        let ExprKind::Member(base, member) = &callee.kind else { return None };
        let module = as_name(base).and_then(|n| self.lookup(file, &n.name));
        (!matches!(module, Some(Entity::Module(_)))).then_some((&**base, member, args.as_slice()))
    }

    /// A model from a checkpoint. None if reported, or if its files are not here.
    pub fn pretrained(
        &mut self,
        file: u32,
        id: usize,
        value: &'a Expr,
        settings: &Settings<'a>,
    ) -> Option<Model> {
        let names = match settings.values.get("names") {
            Some(expr) => self.name_map(file, expr),
            None => Some(NameMap::default()),
        };
        let stored = match settings.values.get("dtype") {
            Some(expr) => self.stored_as(expr),
            None => Some(Float::F32),
        };
        let loading = self.loading(file, value)?;
        let names = names?;
        let outline = Outline { layer: loading.layer, names: names.clone() };
        self.state.outlines.insert(id, outline);
        let tensors = self.checkpoint_tensors(&loading)?;
        if let Some(expr) = settings.values.get("sha256") {
            let files = tensors.iter().map(|t| t.file.clone()).collect();
            self.pin(file, files, expr);
        }
        let found = self.translated(&loading, tensors, &names)?;
        let (sizes, fields) = self.settle_sizes(&loading, &names, &found)?;
        let name = self.models[id].ast.name.as_ref()?;
        let params = loading.dims.iter().map(|d| d.as_ref().and_then(|d| d.1)).collect();
        let mut model = self.build(name, loading.layer, sizes, params, fields, loading.at)?;
        self.take_weights(&loading, &names, found, &mut model.weights)?;
        for weight in &mut model.weights {
            weight.stored = stored?;
        }
        self.freeze(file, settings, &mut model)?;
        Some(model)
    }

    fn loading(&mut self, file: u32, value: &'a Expr) -> Option<Loading> {
        let (base, member, args) = self.load_call(file, value)?;
        if member.name != "load" {
            let d = Diagnostic::error("M0120", format!("a layer has no `{}`", member.name))
                .label(member.span, "unknown");
            self.report(crate::scope::with_near(d, member, ["load"].into_iter(), "a layer has"));
            return None;
        }
        let declared = [Declared { name: "file", required: true }];
        let matched = self.match_args("load", value.span, &declared, args, 0);
        let partial = self.partial(file, base);
        let arg = matched?.first().copied().flatten()?;
        let pattern = self.path_arg(file, arg)?;
        let Some(Value::Text(text)) = self.plain_value(file, &arg.value) else { return None };
        let (layer, dims, fields) = partial?;
        let files = Str { span: arg.value.span, value: text };
        Some(Loading { layer, dims, fields, pattern, files, at: value.span })
    }

    /// A layer with some of its sizes and values.
    #[allow(clippy::type_complexity)]
    fn partial(
        &mut self,
        file: u32,
        base: &Expr,
    ) -> Option<(usize, Vec<Option<(u64, Option<usize>, Span)>>, Vec<Option<(Value, Span)>>)> {
        let place = Place { file, layer: None };
        let (head, args): (&Expr, &[Arg]) = match &bare(base).kind {
            ExprKind::Call(callee, args) => (callee, args),
            _ => (base, &[]),
        };
        let (head, index) = match &bare(head).kind {
            ExprKind::Index(head, index) => (&**head, Some(index)),
            _ => (head, None),
        };
        let layer = self.layer_of(file, head)?;
        let sizes = match index.map(|i| &i.kind) {
            None => &[][..],
            Some(IndexKind::Axes(args)) => args,
            Some(IndexKind::Einops(_)) => {
                let d = Diagnostic::error("M0117", "a layer takes sizes, not a pattern");
                self.report(d.label(head.span, "a pattern of einsum"));
                return None;
            }
        };
        let chosen = self.match_dims(layer, sizes, base.span, true)?;
        let mut dims = Vec::new();
        for arg in chosen {
            dims.push(match arg {
                None => None,
                Some(arg) => {
                    let (size, param) = self.size_arg(&place, arg)?;
                    Some((size.eval(&|_| None)?, param, arg.span))
                }
            });
        }
        let given = self.given_fields(&place, layer, args, base.span)?;
        let mut fields = Vec::new();
        for (value, at) in given {
            fields.push(match value {
                Some(Static::Value(v)) => Some((v, at)),
                Some(_) => return None,
                None => None,
            });
        }
        Some((layer, dims, fields))
    }

    /// The lines of `names = ..`.
    fn name_map(&mut self, file: u32, expr: &'a Expr) -> Option<NameMap> {
        let value = self.setting_value(file, "model.names", expr)?;
        let Value::List(lines) = value else {
            self.wrong_type(expr.span, "a list of names", type_of(&value));
            return None;
        };
        let mut map = NameMap::default();
        for line in &lines {
            let wrong = match line {
                Value::Text(text) => map.add(text).err().map(|why| (show(line), why)),
                other => Some((show(other), "not a text".to_owned())),
            };
            if let Some((line, why)) = wrong {
                self.report(
                    Diagnostic::error("M0612", format!("{line} names nothing: {why}"))
                        .label(expr.span, "in these names")
                        .help("write `\"name.in.the.file -> name.here\"`, `*` for any part"),
                );
                return None;
            }
        }
        Some(map)
    }

    fn stored_as(&mut self, expr: &Expr) -> Option<Float> {
        let types = [Float::F32, Float::Bf16, Float::F16];
        let Some(name) = as_name(expr) else {
            let d = Diagnostic::error("M0111", "an element type is needed here");
            self.report(d.label(expr.span, "bf16, f16 or f32"));
            return None;
        };
        let found = types.into_iter().find(|t| t.name() == name.name);
        if found.is_none() {
            let title = format!("weights are not stored as `{}`", name.name);
            let d = Diagnostic::error("M0121", title).label(name.span, "unknown type");
            let all = types.iter().map(|t| t.name());
            self.report(crate::scope::with_near(d, name, all, "element types"));
        }
        found
    }

    /// All tensors of the files. None if reported, or not here.
    fn checkpoint_tensors(&mut self, loading: &Loading) -> Option<Vec<Tensor>> {
        let at = loading.files.span;
        let pattern = loading.pattern.as_str();
        let wild = pattern.contains(['*', '?', '[', '{']);
        let paths = match wild && !pattern.contains("://") {
            true => match self.world.glob(pattern) {
                Ok(paths) => paths,
                Err(e) => return self.cannot_load(at, &e),
            },
            false => vec![pattern.to_owned()],
        };
        if paths.is_empty() {
            let title = format!("`{pattern}` matches no file");
            self.not_here(title, at, "these weights");
            return None;
        }
        let mut out = Vec::new();
        for path in paths {
            match self.world.tensors(&path) {
                Ok(found) => {
                    out.extend(found.into_iter().map(|fact| Tensor { file: path.clone(), fact }));
                }
                Err(crate::WorldError::NotFound { .. }) => {
                    let title = format!("there is no file `{path}`");
                    self.not_here(title, at, "these weights");
                    return None;
                }
                Err(e) => return self.cannot_load(at, &e),
            }
        }
        Some(out)
    }

    fn cannot_load<T>(&mut self, at: Span, error: &crate::WorldError) -> Option<T> {
        let title = format!("the weights cannot be loaded: {error}");
        self.report(Diagnostic::error("M0607", title).label(at, "this file"));
        None
    }

    /// Something that a plan needs and that is not on this machine: a check says so and goes on.
    pub fn not_here(&mut self, title: String, at: Span, what: &str) {
        let d = Diagnostic::error("M0608", title).label(at, what);
        let d =
            d.help("a path is relative to the file it is written in; a plan needs what it names");
        self.state.absent.push(d);
    }

    /// Notes hashes that the plan verifies. `expr` is a text, or `file("list.sha256")`.
    pub fn pin(&mut self, file: u32, mut files: Vec<String>, expr: &'a Expr) {
        files.dedup();
        let Some(value) = self.setting_value(file, "sha256", expr) else { return };
        let Value::Text(text) = value else {
            self.wrong_type(expr.span, "the text of a hash", type_of(&value));
            return;
        };
        let digits = text.strip_suffix("...").unwrap_or(&text);
        let whole = digits.len() == text.len();
        let fine = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let long = if whole { digits.len() == 64 } else { (6..64).contains(&digits.len()) };
        if !fine || !long {
            self.report(
                Diagnostic::error("M0609", format!("`{text}` is no SHA-256"))
                    .label(expr.span, format!("{} characters", text.chars().count()))
                    .help("64 hexadecimal digits, or at least the first 6 and `...`"),
            );
            return;
        }
        let sha256 = digits.to_ascii_lowercase();
        self.state.pins.push(Pin { files, sha256, span: expr.span });
    }

    /// Numbers for all axes and fields: the program's, else the configuration's, else those that
    /// the tensors have.
    fn settle_sizes(
        &mut self,
        loading: &Loading,
        names: &NameMap,
        found: &Checkpoint,
    ) -> Option<(Vec<u64>, Vec<Value>)> {
        let state = &self.state.layers[loading.layer];
        let symbols: Vec<String> =
            state.symbols[..state.fixed].iter().map(|s| s.name.clone()).collect();
        let dims = state.dims;
        let infos = state.fields.clone();
        let mut sizes = Sizes::new(&symbols);
        for (i, dim) in loading.dims.iter().enumerate() {
            if let Some((n, _, span)) = dim {
                sizes.say(i, *n, format!("{n} here"), Some(*span));
            }
        }
        let mut fields: Vec<Option<Value>> = Vec::new();
        for (info, given) in infos.iter().zip(&loading.fields) {
            if let (Some(symbol), Some((Value::Int(n), span))) = (info.symbol, given) {
                sizes.say(symbol.index(), (*n).max(0) as u64, format!("{n} here"), Some(*span));
            }
            fields.push(given.as_ref().map(|g| g.0.clone()));
        }
        self.use_config(loading, names, found, &mut sizes, &mut fields)?;
        for (i, default) in self.state.layers[loading.layer].dim_defaults.iter().enumerate() {
            if let Some(n) = default.as_ref().and_then(Poly::as_number) {
                sizes.default(i, n.max(0) as u64);
            }
        }
        if (0..symbols.len()).any(|i| sizes.get(i).is_none()) {
            self.solve(loading.layer, found, &mut sizes);
        }
        if let Some(clash) = sizes.clash.take() {
            let mut d = Diagnostic::error("M0610", clash.title);
            for at in clash.places {
                d = d.label(at, "said here");
            }
            self.report(d.label(loading.files.span, "this checkpoint"));
            return None;
        }
        for (i, symbol) in symbols.iter().enumerate().take(dims) {
            if sizes.get(i).is_none()
                && let Some(n) = self.length_of_data(symbol)
            {
                sizes.say(i, n, format!("{n} in the data"), None);
            }
        }
        for (info, value) in infos.iter().zip(&mut fields) {
            match (info.symbol.and_then(|s| sizes.get(s.index())), &info.default) {
                (Some(n), _) => *value = Some(Value::Int(i64::try_from(n).ok()?)),
                (None, Some(Static::Value(v))) if value.is_none() => *value = Some(v.clone()),
                _ => {}
            }
        }
        let open: Vec<&str> =
            (0..dims).filter(|i| sizes.get(*i).is_none()).map(|i| &*symbols[i]).collect();
        let unset = infos.iter().zip(&fields).filter(|f| f.1.is_none()).map(|f| &*f.0.name);
        let open: Vec<&str> = open.into_iter().chain(unset).collect();
        if !open.is_empty() {
            self.open_sizes(loading, &open);
            return None;
        }
        let out = (0..dims).filter_map(|i| sizes.get(i)).collect();
        Some((out, fields.into_iter().flatten().collect()))
    }

    fn open_sizes(&mut self, loading: &Loading, open: &[&str]) {
        if !self.state.absent.is_empty() && open == ["T"] {
            // The length of the data is known when the data are here.
            return;
        }
        let name = self.layer_name(loading.layer);
        let all: Vec<String> = open.iter().map(|n| format!("`{n}`")).collect();
        let title = format!("nothing says what {} of `{name}` is", all.join(", "));
        let axes: Vec<String> = open.iter().map(|n| format!("{n} = ..")).collect();
        self.report(
            Diagnostic::error("M0118", title)
                .label(loading.at, "no shape of a tensor shows it")
                .help(format!(
                    "put the checkpoint's `config.json` beside its files, or say it: \
                     `{name}[{}].load(..)`",
                    axes.join(", ")
                )),
        );
    }

    /// What `config.json` says. None if reported.
    fn use_config(
        &mut self,
        loading: &Loading,
        names: &NameMap,
        found: &Checkpoint,
        sizes: &mut Sizes,
        fields: &mut [Option<Value>],
    ) -> Option<()> {
        if names.config.is_empty() {
            return Some(());
        }
        let at = loading.files.span;
        let beside = found.a_file().unwrap_or(&loading.pattern);
        let path = crate::load::beside(beside, "config.json");
        let bytes = match self.world.read(&path, MAX_CONFIG_BYTES) {
            Ok(bytes) => bytes,
            Err(crate::WorldError::NotFound { .. }) => return Some(()),
            Err(e) => return self.cannot_load(at, &e),
        };
        let config: serde_json::Value = match serde_json::from_slice(&bytes) {
            Ok(config) => config,
            Err(e) => {
                let title = format!("`{path}` cannot be read: {e}");
                self.report(Diagnostic::error("M0607", title).label(at, "beside these files"));
                return None;
            }
        };
        for rule in &names.config {
            match (&rule.what, config_value(&config, &rule.key)) {
                (ConfigUse::Is(want), found) => {
                    let found = found.map(config_text);
                    if let Some(found) = found.filter(|f| f != want) {
                        let (key, name) = (&rule.key, self.layer_name(loading.layer));
                        let title = format!("this checkpoint has {key} = {found}");
                        let label = format!("`{name}` computes with {key} = {want} only");
                        self.report(Diagnostic::error("M0611", title).label(at, label));
                        return None;
                    }
                }
                (ConfigUse::Sets(name), Some(value)) => {
                    self.config_sets(loading, &rule.key, name, value, sizes, fields)?;
                }
                (ConfigUse::Sets(_), None) => {}
            }
        }
        Some(())
    }

    fn config_sets(
        &mut self,
        loading: &Loading,
        key: &str,
        name: &str,
        value: &serde_json::Value,
        sizes: &mut Sizes,
        fields: &mut [Option<Value>],
    ) -> Option<()> {
        let at = loading.files.span;
        if let Some(symbol) = sizes.symbol(name) {
            let Some(n) = value.as_u64() else {
                let title = format!("{key} of this checkpoint is {}", config_text(value));
                let d = Diagnostic::error("M0611", title).label(at, "not a size");
                self.report(d);
                return None;
            };
            sizes.say(symbol, n, format!("{n} by `{key}` of its config.json"), None);
            return Some(());
        }
        let infos = &self.state.layers[loading.layer].fields;
        let Some(i) = infos.iter().position(|f| f.name == name) else {
            let layer = self.layer_name(loading.layer);
            let title = format!("`{layer}` has no axis or field `{name}`");
            self.report(Diagnostic::error("M0612", title).label(at, "named for this checkpoint"));
            return None;
        };
        let said = match value {
            serde_json::Value::Bool(b) => Some(Value::Bool(*b)),
            serde_json::Value::Number(n) => n.as_f64().map(Value::Float),
            serde_json::Value::String(s) => Some(Value::Text(s.clone())),
            _ => None,
        };
        let said = said.zip(infos[i].kind).and_then(|(v, kind)| kind.accept(v).ok());
        let Some(said) = said else {
            let title = format!("{key} of this checkpoint is {}", config_text(value));
            let label = format!("`{name}` cannot be that");
            self.report(Diagnostic::error("M0611", title).label(at, label));
            return None;
        };
        match &fields[i] {
            Some(given)
                if given.number() != said.number()
                    || type_of(given) != type_of(&said)
                    || (said.number().is_none() && *given != said) =>
            {
                let here = show(given);
                let title =
                    format!("`{name}` is {} in the checkpoint and {here} here", show(&said));
                let span = loading.fields[i].as_ref().map_or(at, |f| f.1);
                self.report(
                    Diagnostic::error("M0610", title)
                        .label(span, here)
                        .label(at, format!("`{key}` of its config.json")),
                );
                None
            }
            _ => {
                fields[i] = Some(said);
                Some(())
            }
        }
    }

    /// The length that an axis of this name has in the data sets of the program, if they agree.
    fn length_of_data(&mut self, axis: &str) -> Option<u64> {
        let mut found = None;
        for id in 0..self.datas.len() {
            let Some(facts) = self.data_value(id) else { continue };
            let n = facts.members.iter().find(|m| m.0 == axis).map(|m| m.1);
            match (n.and_then(|n| u64::try_from(n).ok()), found) {
                (Some(n), Some(old)) if n != old => return None,
                (Some(n), _) => found = Some(n),
                (None, _) => {}
            }
        }
        found
    }

    /// `freeze = true`, or patterns of weights.
    fn freeze(&mut self, file: u32, settings: &Settings<'a>, model: &mut Model) -> Option<()> {
        let Some(expr) = settings.values.get("freeze").copied() else { return Some(()) };
        if !matches!(expr.kind, ExprKind::List(_)) {
            let frozen = self.bool_setting(file, "model.freeze", expr)?;
            model.weights.iter_mut().for_each(|w| w.trainable = !frozen);
            return Some(());
        }
        self.remember("model.freeze", expr);
        for (pattern, span) in self.globs(expr)? {
            let mut matched = false;
            for weight in model.weights.iter_mut().filter(|w| covers(&pattern, &w.name)) {
                weight.trainable = false;
                matched = true;
            }
            if !matched {
                let n = model.weights.len();
                let title = format!("`{pattern}` matches none of {n} weights");
                let d = Diagnostic::error("M0107", title).label(span, "no match");
                let all: Vec<String> =
                    crate::adapters::generalised(model.weights.iter().map(|w| w.name.as_str()));
                let near = monarch_diagnostic::suggest(&pattern, &all);
                self.report(match near {
                    Some(near) => d.fix(format!("did you mean `{near}`?"), span, near),
                    None => d.help(format!("weights: {}", all.join(", "))),
                });
                return None;
            }
        }
        Some(())
    }

    /// A list of patterns: `[blocks.*.attn.q, tok]`.
    pub fn globs(&mut self, expr: &Expr) -> Option<Vec<(String, Span)>> {
        let ExprKind::List(items) = &expr.kind else {
            self.report(
                Diagnostic::error("M0111", "a list of patterns is needed here")
                    .label(expr.span, "something else")
                    .help("write `[blocks.*.attn.q]`"),
            );
            return None;
        };
        let mut out = Some(Vec::new());
        for item in items {
            match (path_text(item), &mut out) {
                (Some(text), Some(list)) => list.push((text, item.span)),
                (None, _) => {
                    let d = Diagnostic::error("M0111", "a pattern is names and `*`, with dots");
                    self.report(d.label(item.span, "something else"));
                    out = None;
                }
                (_, None) => {}
            }
        }
        out
    }
}

/// Whether a pattern names a weight or something that holds it.
pub(crate) fn covers(pattern: &str, weight: &str) -> bool {
    let depth = pattern.split('.').count();
    let head: Vec<&str> = weight.split('.').take(depth).collect();
    crate::names::fits(pattern, &head.join("."))
}

fn path_text(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name.name.clone()),
        ExprKind::Str(text) => Some(text.value.clone()),
        ExprKind::Member(base, member) => Some(format!("{}.{}", path_text(base)?, member.name)),
        // One copy of what is repeated: `blocks[3].attn.q`.
        ExprKind::Index(base, index) => match &index.kind {
            IndexKind::Axes(args) => match args.as_slice() {
                [AxisArg { name: None, axis: Axis { kind: AxisKind::Size(size), .. }, .. }] => {
                    let ExprKind::Number(number) = &size.kind else { return None };
                    let copy = number.integer.filter(|_| number.unit.is_none())?;
                    Some(format!("{}.{copy}", path_text(base)?))
                }
                _ => None,
            },
            IndexKind::Einops(_) => None,
        },
        _ => None,
    }
}
