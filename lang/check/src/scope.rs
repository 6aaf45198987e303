//! The checker's tables: every item of every file, and which name means which.

use crate::World;
use crate::load::{Loaded, Target};
use crate::registry::{LATER_NAMES, from_elsewhere};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::{self, Ident, ItemKind};
use std::cell::Cell;
use std::collections::HashMap;

/// What a name at the top level of a file means. Numbers are indices into the checker's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entity {
    Param(usize),
    Let(usize),
    Layer(usize),
    Op(usize),
    Model(usize),
    Data(usize),
    Train(usize),
    Cluster(usize),
    Plan(usize),
    Sweep(usize),
    Module(u32),
    /// A file of hooks.
    Script(u32),
    /// Defined by something that was reported.
    Broken,
}

impl Entity {
    /// `a layer`, for messages.
    pub fn noun(self) -> &'static str {
        match self {
            Entity::Param(_) => "a param",
            Entity::Let(_) => "a constant",
            Entity::Layer(_) => "a layer",
            Entity::Op(_) => "a function",
            Entity::Model(_) => "a model",
            Entity::Data(_) => "a data set",
            Entity::Train(_) => "a train block",
            Entity::Cluster(_) => "a cluster",
            Entity::Plan(_) => "a plan",
            Entity::Sweep(_) => "a sweep",
            Entity::Module(_) => "a module",
            Entity::Script(_) => "a file of hooks",
            Entity::Broken => "broken",
        }
    }
}

/// One name of a file.
pub(crate) struct Named {
    pub entity: Entity,
    pub span: Span,
    pub imported: bool,
    pub used: Cell<bool>,
}

/// Names of one file, in the order of definition, found by name.
#[derive(Default)]
pub(crate) struct Scope {
    pub names: Vec<(String, Named)>,
    by_name: HashMap<String, usize>,
}

impl Scope {
    pub fn get(&self, name: &str) -> Option<&Named> {
        self.by_name.get(name).map(|i| &self.names[*i].1)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Named> {
        self.by_name.get(name).map(|i| &mut self.names[*i].1)
    }

    fn insert(&mut self, name: &str, named: Named) {
        self.by_name.insert(name.to_owned(), self.names.len());
        self.names.push((name.to_owned(), named));
    }
}

/// An item with the file it stands in.
pub(crate) struct In<'a, T> {
    pub file: u32,
    pub docs: &'a [ast::Doc],
    pub ast: &'a T,
}

/// How far a thing that is worked out on demand has come.
#[derive(Clone, Debug, Default)]
pub(crate) enum Lazy<T> {
    #[default]
    Waiting,
    Running,
    /// None: reported.
    Done(Option<T>),
}

pub(crate) struct Checker<'a> {
    pub world: &'a dyn World,
    pub loaded: &'a Loaded,
    pub diagnostics: Vec<Diagnostic>,
    pub scopes: Vec<Scope>,
    pub prelude: Scope,
    pub test_prelude: Scope,
    pub params: Vec<In<'a, ast::Param>>,
    pub lets: Vec<In<'a, ast::Bind>>,
    pub layers: Vec<In<'a, ast::Layer>>,
    pub ops: Vec<In<'a, ast::Op>>,
    pub tests: Vec<In<'a, ast::Test>>,
    pub models: Vec<In<'a, ast::Block>>,
    pub datas: Vec<In<'a, ast::Block>>,
    pub trains: Vec<In<'a, ast::Block>>,
    pub clusters: Vec<In<'a, ast::Block>>,
    pub plans: Vec<In<'a, ast::Block>>,
    pub sweeps: Vec<In<'a, ast::Block>>,
    pub state: crate::state::State,
}

/// Diagnostics kept.
const MAX_REPORTED: usize = 2_000;
/// Unknown names that are compared with all that exist.
const MAX_SUGGESTIONS: usize = 200;

/// Kinds of blocks at the top level.
pub(crate) const BLOCKS: &[&str] = &["cluster", "data", "model", "plan", "sweep", "train"];

impl<'a> Checker<'a> {
    pub fn has_errors(&self) -> bool {
        let all = self.loaded.diagnostics.iter().chain(&self.diagnostics);
        all.into_iter().any(Diagnostic::is_error)
    }

    pub fn report(&mut self, diagnostic: Diagnostic) {
        // Far more than anyone is shown; the rest would only cost memory.
        if self.diagnostics.len() < MAX_REPORTED {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Names from elsewhere are fine, ours must be unique. Reports duplicates.
    fn define(&mut self, file: u32, name: &Ident, entity: Entity, imported: bool) {
        let scope = &self.scopes[file as usize];
        if let Some(old) = scope.get(&name.name) {
            let (at, how) = (old.span, if old.imported { "imported" } else { "defined" });
            if old.entity == Entity::Broken || entity == Entity::Broken {
                return;
            }
            let title = format!("`{}` is defined twice", name.name);
            self.report(
                Diagnostic::error("M0105", title)
                    .label(name.span, "again here")
                    .label(at, format!("{how} here"))
                    .help("give one of them another name"),
            );
            // Which one is meant is open: uses are no mistakes of their own.
            if let Some(old) = self.scopes[file as usize].get_mut(&name.name) {
                old.entity = Entity::Broken;
                old.used.set(true);
            }
            return;
        }
        let used = Cell::new(false);
        let named = Named { entity, span: name.span, imported, used };
        self.scopes[file as usize].insert(&name.name, named);
    }

    /// First pass: every item gets a number and a name.
    pub fn collect(&mut self) {
        let loaded = self.loaded;
        self.scopes = loaded.files.iter().map(|_| Scope::default()).collect();
        for (file, loaded_file) in loaded.files.iter().enumerate() {
            for item in &loaded_file.ast.items {
                self.collect_item(file as u32, item);
            }
        }
        self.collect_prelude();
        for (file, loaded_file) in loaded.files.iter().enumerate() {
            for item in &loaded_file.ast.items {
                if let ItemKind::Import(import) = &item.kind {
                    self.collect_import(file as u32, import);
                }
            }
        }
    }

    fn collect_item(&mut self, file: u32, item: &'a ast::Item) {
        let docs = item.docs.as_slice();
        macro_rules! add {
            ($table:ident, $ast:expr) => {{
                self.$table.push(In { file, docs, ast: $ast });
                self.$table.len() - 1
            }};
        }
        match &item.kind {
            ItemKind::Import(_) => {}
            ItemKind::Param(p) => {
                let id = add!(params, p);
                self.define(file, &p.name, Entity::Param(id), false);
            }
            ItemKind::Let(b) => {
                let id = add!(lets, b);
                match &b.pattern {
                    ast::Pattern::One(name) => self.define(file, name, Entity::Let(id), false),
                    ast::Pattern::Many(names, span) => {
                        names.iter().for_each(|n| self.define(file, n, Entity::Broken, false));
                        self.report(
                            Diagnostic::error("M0124", "only a tensor can be split into names")
                                .label(*span, "a constant has one name"),
                        );
                    }
                }
            }
            ItemKind::Layer(l) => {
                let id = add!(layers, l);
                self.define(file, &l.name, Entity::Layer(id), false);
            }
            ItemKind::Op(o) => {
                let id = add!(ops, o);
                self.define(file, &o.name, Entity::Op(id), false);
                if self.loaded.is_own(file) {
                    self.own_op(o);
                }
            }
            ItemKind::Test(t) => {
                let _ = add!(tests, t);
            }
            ItemKind::Block(b) => self.collect_block(file, docs, b),
            ItemKind::Broken(b) => {
                if let Some(name) = &b.name {
                    self.define(file, name, Entity::Broken, false);
                }
            }
        }
    }

    fn own_op(&mut self, op: &ast::Op) {
        self.report(
            Diagnostic::error("M0125", "`op` signatures belong to the standard library")
                .label(op.name.span, "no kernel would do this")
                .help("write a layer: `layer Name[D] { forward(x: [.., D]) -> [.., D] = .. }`"),
        );
    }

    fn collect_block(&mut self, file: u32, docs: &'a [ast::Doc], block: &'a ast::Block) {
        let item = In { file, docs, ast: block };
        let add = |table: &mut Vec<In<'a, ast::Block>>| {
            table.push(item);
            table.len() - 1
        };
        let entity = match block.kind.name.as_str() {
            "model" => Entity::Model(add(&mut self.models)),
            "data" => Entity::Data(add(&mut self.datas)),
            "train" => Entity::Train(add(&mut self.trains)),
            "cluster" => Entity::Cluster(add(&mut self.clusters)),
            "plan" => Entity::Plan(add(&mut self.plans)),
            "sweep" => Entity::Sweep(add(&mut self.sweeps)),
            _ => return self.unknown_block(file, block),
        };
        self.header_of(block);
        match &block.name {
            Some(name) => self.define(file, name, entity, false),
            None => {
                let kind = &block.kind.name;
                self.report(
                    Diagnostic::error("M0109", format!("this `{kind}` has no name"))
                        .label(block.kind.span, "a name must follow")
                        .help(format!("write `{kind} something ..`")),
                );
            }
        }
    }

    /// What may stand between a block's name and its body.
    fn header_of(&mut self, block: &ast::Block) {
        let kind = block.kind.name.as_str();
        let no = |what: &str, at| {
            let title = format!("a `{kind}` block has no {what}");
            Diagnostic::error("M0101", title).label(at, "not here")
        };
        if let Some(value) = block.value.as_ref().filter(|_| !["model", "data"].contains(&kind)) {
            let d = no("value", value.span);
            self.report(d.help(format!("write `{kind} name {{ .. }}`")));
        }
        if let Some(on) = block.on.as_ref().filter(|_| ["model", "data", "cluster"].contains(&kind))
        {
            let d = no("`on`", on.span);
            self.report(d.help("`train name on plan { .. }` says where something is trained"));
        }
    }

    fn unknown_block(&mut self, file: u32, block: &ast::Block) {
        let kind = &block.kind.name;
        let words = BLOCKS.iter().copied().chain(["layer", "param", "use", "let", "test", "op"]);
        let mut d = Diagnostic::error("M0100", format!("there is no block `{kind}`"))
            .label(block.kind.span, "unknown block");
        d = match suggest(kind, words) {
            Some(near) => d.fix(format!("did you mean `{near}`?"), block.kind.span, near),
            None => d.help(format!("there are: {}, layer, param, test", BLOCKS.join(", "))),
        };
        self.report(d);
        if let Some(name) = &block.name {
            self.define(file, name, Entity::Broken, false);
        }
    }

    fn collect_prelude(&mut self) {
        for (module, only) in crate::library::PRELUDE {
            let Some(file) = self.loaded.file(module) else { continue };
            for (name, named) in &self.scopes[file as usize].names {
                if only.is_none_or(|only| only.contains(&name.as_str())) {
                    let (entity, span) = (named.entity, named.span);
                    let used = Cell::new(true);
                    self.prelude.insert(name, Named { entity, span, imported: true, used });
                }
            }
        }
        if let Some(file) = self.loaded.file(crate::library::TEST_PRELUDE) {
            for (name, named) in &self.scopes[file as usize].names {
                let (entity, span) = (named.entity, named.span);
                let used = Cell::new(true);
                self.test_prelude.insert(name, Named { entity, span, imported: true, used });
            }
        }
    }

    fn collect_import(&mut self, file: u32, import: &'a ast::Import) {
        let target = self.loaded.files[file as usize].imports.get(&import.span).cloned();
        let names = match &import.from {
            ast::ImportFrom::Path { names, .. } => names.as_deref(),
            ast::ImportFrom::File { .. } => None,
        };
        match (target.unwrap_or(Target::Nothing), names) {
            (Target::Nothing, names) => self.import_nothing(file, import, names),
            (Target::Member(module, name), _) => match &import.alias {
                None => self.import_member(file, module, &name),
                Some(alias) => {
                    let entity = self.member_of(module, &name);
                    self.define(file, alias, entity, true);
                }
            },
            (Target::Script(script), _) => {
                if let Some(name) = module_name(import) {
                    self.define(file, &name, Entity::Script(script), true);
                }
            }
            (Target::Module(module), Some(names)) => {
                if let Some(alias) = &import.alias {
                    self.report(
                        Diagnostic::error("M0124", "`as` names one thing, not a list")
                            .label(alias.span, "which of them?"),
                    );
                }
                for name in names {
                    self.import_member(file, module, name);
                }
            }
            (Target::Module(module), None) => {
                if let Some(name) = module_name(import) {
                    self.define(file, &name, Entity::Module(module), true);
                }
            }
        }
    }

    fn import_member(&mut self, file: u32, module: u32, name: &Ident) {
        let entity = self.member_of(module, name);
        self.define(file, name, entity, true);
        if entity == Entity::Broken {
            // Uses of what was probably meant are not mistakes of their own.
            let scope = &self.scopes[module as usize];
            let own = scope.names.iter().filter(|n| !n.1.imported).map(|n| n.0.as_str());
            let near = suggest(&name.name, own).map(str::to_owned);
            if let Some(near) = near {
                let meant = Ident { name: near, span: name.span };
                self.define(file, &meant, Entity::Broken, true);
            }
        }
    }

    fn import_nothing(&mut self, file: u32, import: &ast::Import, names: Option<&[Ident]>) {
        match (names, &import.alias, module_name(import)) {
            (Some(names), _, _) => {
                names.iter().for_each(|n| self.define(file, n, Entity::Broken, true));
            }
            (None, Some(alias), _) => self.define(file, alias, Entity::Broken, true),
            (None, None, Some(name)) => self.define(file, &name, Entity::Broken, true),
            (None, None, None) => {}
        }
    }

    /// The item `name` of a module, as an import or `module.name` asks for it.
    pub fn member_of(&mut self, module: u32, name: &Ident) -> Entity {
        let scope = &self.scopes[module as usize];
        match scope.get(&name.name) {
            Some(named) if !named.imported => {
                named.used.set(true);
                named.entity
            }
            _ => {
                let own = scope.names.iter().filter(|n| !n.1.imported).map(|n| n.0.as_str());
                let key = &self.loaded.files[module as usize].key;
                if LATER_NAMES.contains(&(key.as_str(), name.name.as_str())) {
                    let title = format!("`{}` is not built yet", name.name);
                    let d = Diagnostic::error("M0906", title);
                    self.report(d.label(name.span, "a later part of the library"));
                    return Entity::Broken;
                }
                if self.loaded.files[module as usize].unreadable {
                    return Entity::Broken;
                }
                let title = format!("`{key}` has no `{}`", name.name);
                let d = Diagnostic::error("M0108", title).label(name.span, "unknown");
                let all: Vec<&str> = own.collect();
                let d = with_near(d, name, all.iter().copied(), &format!("`{key}` has"));
                self.report(d);
                Entity::Broken
            }
        }
    }

    /// The meaning of a name in a file, or in the prelude. Marks it as used.
    pub fn lookup(&self, file: u32, name: &str) -> Option<Entity> {
        if let Some(named) = self.scopes[file as usize].get(name) {
            named.used.set(true);
            return Some(named.entity);
        }
        self.prelude.get(name).map(|named| named.entity)
    }

    /// All names that a file may use at the top level.
    pub fn visible(&self, file: u32) -> impl Iterator<Item = &str> {
        let own = self.scopes[file as usize].names.iter();
        own.chain(self.prelude.names.iter()).map(|n| n.0.as_str())
    }

    /// `there is no foo here`, with a suggestion out of `more` and all that the file knows.
    pub fn unknown_name(&mut self, file: u32, name: &Ident, more: &[&str]) {
        if self.library_home(&name.name).is_some() && self.has_broken_import(file) {
            return;
        }
        if self.in_broken_import(file, &name.name) {
            return;
        }
        let d = Diagnostic::error("M0106", format!("nothing here is called `{}`", name.name))
            .label(name.span, "unknown name");
        let few = self.diagnostics.len() < MAX_SUGGESTIONS;
        let home = self.library_home(&name.name);
        let most = if few && home.is_none() { 10_000 } else { 0 };
        let near = suggest(&name.name, more.iter().copied().chain(self.visible(file)).take(most));
        let d = match near {
            Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
            None => match (home, self.library_near(&name.name)) {
                (Some(module), _) => d.help(format!("add `use {module}.{}`", name.name)),
                (None, Some((module, near))) if few => {
                    d.help(format!("did you mean `{near}`? add `use {module}.{near}`"))
                }
                _ => d.help("define it, import it with `use`, or correct its spelling"),
            },
        };
        self.report(d);
    }

    /// Whether something that did not parse was meant to be a `use`.
    fn has_broken_import(&self, file: u32) -> bool {
        let items = &self.loaded.files[file as usize].ast.items;
        items.iter().any(|item| match &item.kind {
            ItemKind::Broken(broken) => broken.keyword.as_ref().is_some_and(|k| {
                IMPORTS.contains(&&*k.name) || suggest(&k.name, ["use"]).is_some()
            }),
            _ => false,
        })
    }

    /// Whether a name stands in something at the top level that did not parse and may be an import.
    fn in_broken_import(&self, file: u32, name: &str) -> bool {
        let items = &self.loaded.files[file as usize].ast.items;
        items.iter().any(|item| {
            let ItemKind::Broken(broken) = &item.kind else { return false };
            let import = broken.keyword.as_ref().is_none_or(|k| IMPORTS.contains(&&*k.name));
            let text = self.loaded.sources.slice(broken.span);
            let words = || text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            import && text.len() < 10_000 && words().any(|word| word == name)
        })
    }

    /// What the library has under nearly this name.
    fn library_near(&self, name: &str) -> Option<(&'static str, &'static str)> {
        let all = || {
            let texts =
                crate::library::MODULES.iter().filter(|m| m.0 != crate::library::TEST_PRELUDE);
            texts.flat_map(|m| crate::reference::names(m.1).map(move |n| (m.0, n)))
        };
        let near = suggest(name, all().map(|n| n.1))?;
        all().find(|n| n.1 == near)
    }

    /// The module of the library that defines a name, looked for in its texts.
    fn library_home(&self, name: &str) -> Option<&'static str> {
        let defines = |text: &str| {
            text.lines().any(|line| {
                let rest = line.strip_prefix("op ").or_else(|| line.strip_prefix("layer "));
                let rest = rest.and_then(|r| r.strip_prefix(name));
                rest.is_some_and(|r| r.starts_with(['(', '[', ' ']))
            })
        };
        crate::library::MODULES.iter().find(|m| defines(m.1)).map(|m| m.0)
    }

    /// `Mlp` is a layer, where something else is needed.
    pub fn wrong_entity(&mut self, name: &Ident, is: Entity, needed: &str) {
        if is == Entity::Broken {
            return;
        }
        let title = format!("`{}` is {}, and {needed} is needed here", name.name, is.noun());
        self.report(Diagnostic::error("M0124", title).label(name.span, is.noun()));
    }

    pub fn layer_name(&self, id: usize) -> &'a str {
        &self.layers[id].ast.name.name
    }
}

/// What imports begin with, here and elsewhere.
const IMPORTS: [&str; 5] = ["use", "import", "from", "include", "require"];

/// Adds `did you mean` with an edit, or the list of what there is.
pub(crate) fn with_near<'s>(
    d: Diagnostic,
    name: &Ident,
    all: impl Iterator<Item = &'s str> + Clone,
    there_are: &str,
) -> Diagnostic {
    let near = from_elsewhere(&name.name, all.clone()).or_else(|| suggest(&name.name, all.clone()));
    match near {
        Some(near) => d.fix(format!("did you mean `{near}`?"), name.span, near),
        None => {
            let all: Vec<&str> = all.collect();
            match all.is_empty() {
                true => d.help("there are none"),
                false => d.help(format!("{there_are}: {}", all.join(", "))),
            }
        }
    }
}

fn module_name(import: &ast::Import) -> Option<Ident> {
    if let Some(alias) = &import.alias {
        return Some(alias.clone());
    }
    match &import.from {
        ast::ImportFrom::Path { path, .. } => path.parts.last().cloned(),
        ast::ImportFrom::File { file, .. } => {
            let name = file.value.rsplit('/').next().unwrap_or(&file.value);
            let name = name.split('.').next().unwrap_or(name).replace('-', "_");
            Some(Ident { name, span: file.span })
        }
    }
}
