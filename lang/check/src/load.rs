//! Files: the program's own, those it imports, the library's.

use crate::library::{self, MODULES};
use crate::registry::LATER_MODULES;
use crate::world::MAX_PROGRAM_BYTES;
use crate::{World, WorldError};
use monarch_diagnostic::{Diagnostic, Sources, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::{self, ImportFrom, ItemKind};
use std::collections::HashMap;

/// All files of a program, parsed. The index of a file here is its number in the sources.
pub(crate) struct Loaded {
    pub sources: Sources,
    pub files: Vec<LoadedFile>,
    pub diagnostics: Vec<Diagnostic>,
    by_key: HashMap<String, u32>,
}

pub(crate) struct LoadedFile {
    /// `std.nn`, or the path of a file.
    pub key: String,
    pub ast: ast::File,
    /// It could not be read: what is missing in it is no mistake of its own.
    pub unreadable: bool,
    /// A text in Rhai: functions for hooks. Its tree is empty.
    pub is_script: bool,
    /// For each import item (by its span): the file it brings in.
    pub imports: HashMap<Span, Target>,
}

/// What an import resolves to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A whole module.
    Module(u32),
    /// A file of hooks.
    Script(u32),
    /// `use std.loss.cross_entropy`: this name of the module.
    Member(u32, ast::Ident),
    /// Something that has been reported.
    Nothing,
}

impl Loaded {
    /// The file with this module name or path.
    pub fn file(&self, key: &str) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// True for files that the user wrote.
    pub fn is_own(&self, file: u32) -> bool {
        self.files.get(file as usize).is_some_and(|f| !f.key.starts_with("std."))
    }
}

/// Reads and parses the program at `path`, and all that it imports. The library's prelude is
/// always there.
pub(crate) fn load(world: &dyn World, path: &str) -> Loaded {
    let mut loaded = Loaded {
        sources: Sources::new(),
        files: Vec::new(),
        diagnostics: Vec::new(),
        by_key: HashMap::new(),
    };
    open(world, &mut loaded, path, None);
    let prelude = library::PRELUDE.iter().map(|m| m.0);
    for name in prelude.chain([library::TEST_PRELUDE]) {
        add_module(&mut loaded, name);
    }
    let mut next = 0;
    while next < loaded.files.len() {
        resolve_imports(world, &mut loaded, next);
        next += 1;
    }
    loaded
}

/// Reads and parses a file of the user's; what cannot be read is reported and empty. `at` is the
/// import that asks for it.
fn open(world: &dyn World, loaded: &mut Loaded, path: &str, at: Option<Span>) -> u32 {
    let bytes = match world.read(path, MAX_PROGRAM_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => {
            let id = add_nothing(loaded, path, "");
            let d = match error {
                WorldError::TooLarge { bytes, .. } => monarch_syntax::too_large(id, bytes),
                other => Diagnostic::error("M0122", format!("the program cannot be read: {other}")),
            };
            loaded.diagnostics.push(match at {
                Some(at) => d.label(at, "imported here"),
                None => d,
            });
            return id;
        }
    };
    match monarch_syntax::decode(loaded.files.len() as u32, &bytes) {
        Ok(text) => add(loaded, path, text),
        Err(d) => {
            let id = add_nothing(loaded, path, &String::from_utf8_lossy(&bytes));
            loaded.diagnostics.push(d);
            id
        }
    }
}

fn add_nothing(loaded: &mut Loaded, key: &str, text: &str) -> u32 {
    let id = loaded.sources.add(key, text);
    let (key_text, ast, imports) = (key.to_owned(), ast::File::default(), HashMap::new());
    let file = LoadedFile { key: key_text, ast, unreadable: true, is_script: false, imports };
    loaded.files.push(file);
    loaded.by_key.insert(key.to_owned(), id);
    id
}

fn add(loaded: &mut Loaded, key: &str, text: &str) -> u32 {
    let id = loaded.sources.add(key, text);
    let (ast, diagnostics) = monarch_syntax::parse(id, text);
    loaded.diagnostics.extend(diagnostics);
    let (key_text, imports) = (key.to_owned(), HashMap::new());
    let (unreadable, is_script) = (false, false);
    loaded.files.push(LoadedFile { key: key_text, ast, unreadable, is_script, imports });
    loaded.by_key.insert(key.to_owned(), id);
    id
}

fn add_module(loaded: &mut Loaded, name: &str) -> Option<u32> {
    if let Some(id) = loaded.file(name) {
        return Some(id);
    }
    library::module(name).map(|text| add(loaded, name, text))
}

fn resolve_imports(world: &dyn World, loaded: &mut Loaded, index: usize) {
    let imports: Vec<ast::Import> = loaded.files[index]
        .ast
        .items
        .iter()
        .filter_map(|item| match &item.kind {
            ItemKind::Import(import) => Some(import.clone()),
            _ => None,
        })
        .collect();
    for import in imports {
        let target = match &import.from {
            ImportFrom::Path { path, names } => from_library(loaded, path, names.is_some()),
            ImportFrom::File { file, pin } => from_file(world, loaded, index, file, pin.as_ref()),
        };
        loaded.files[index].imports.insert(import.span, target);
    }
}

fn from_library(loaded: &mut Loaded, path: &ast::Path, has_names: bool) -> Target {
    let text = path.text();
    if let Some(id) = add_module(loaded, &text) {
        return Target::Module(id);
    }
    if let Some((last, parent)) = path.parts.split_last()
        && !has_names
        && !parent.is_empty()
    {
        let words: Vec<&str> = parent.iter().map(|p| p.name.as_str()).collect();
        if let Some(id) = add_module(loaded, &words.join(".")) {
            return Target::Member(id, last.clone());
        }
    }
    let later =
        |m: &&&str| text == **m || text.strip_prefix(**m).is_some_and(|r| r.starts_with('.'));
    if let Some(module) = LATER_MODULES.iter().find(later) {
        loaded.diagnostics.push(
            Diagnostic::error("M0906", format!("`{module}` is not built yet"))
                .label(path.span, "a later part of the library"),
        );
        return Target::Nothing;
    }
    let mut d = Diagnostic::error("M0108", format!("there is no module `{text}`"));
    let at = match path.parts.first() {
        Some(first) if first.name == "std" => path.span,
        Some(first) => first.span,
        None => path.span,
    };
    d = d.label(at, "no such module");
    let names = MODULES.iter().map(|m| m.0);
    d = match suggest(&text, names.clone()).or_else(|| nearest_module(&text)) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("there are: {}", names.collect::<Vec<_>>().join(", "))),
    };
    loaded.diagnostics.push(d);
    Target::Nothing
}

/// `std.los.cross_entropy` -> `std.loss`
fn nearest_module(text: &str) -> Option<&'static str> {
    let (parent, _) = text.rsplit_once('.')?;
    suggest(parent, MODULES.iter().map(|m| m.0))
}

fn from_file(
    world: &dyn World,
    loaded: &mut Loaded,
    index: usize,
    file: &ast::Str,
    pin: Option<&ast::Str>,
) -> Target {
    let refuse = |loaded: &mut Loaded, d: Diagnostic| {
        loaded.diagnostics.push(d);
        Target::Nothing
    };
    let path = beside(&loaded.files[index].key, &file.value);
    if let Some(pin) = pin
        && let Err(d) = check_pin(world, &path, pin)
    {
        return refuse(loaded, *d);
    }
    let is_script = file.value.ends_with(".rhai");
    let id = match loaded.file(&path) {
        Some(id) => id,
        None if is_script => open_script(world, loaded, &path, file.span),
        None => open(world, loaded, &path, Some(file.span)),
    };
    match is_script {
        true if loaded.files[id as usize].unreadable => Target::Nothing,
        true => Target::Script(id),
        false => Target::Module(id),
    }
}

/// Reads a file of hooks; its text is looked at when the metrics are known.
fn open_script(world: &dyn World, loaded: &mut Loaded, path: &str, at: Span) -> u32 {
    let read = world.read(path, MAX_PROGRAM_BYTES);
    let text = read.map(|bytes| String::from_utf8(bytes).map_err(|e| e.to_string()));
    let (text, wrong) = match text {
        Ok(Ok(text)) => (text, None),
        Ok(Err(why)) => (String::new(), Some(format!("`{path}` is no text: {why}"))),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    let id = add_nothing(loaded, path, &text);
    let file = &mut loaded.files[id as usize];
    (file.unreadable, file.is_script) = (wrong.is_some(), true);
    if let Some(wrong) = wrong {
        let d = Diagnostic::error("M0122", format!("this file of hooks cannot be read: {wrong}"));
        loaded.diagnostics.push(d.label(at, "imported here"));
    }
    id
}

fn check_pin(world: &dyn World, path: &str, pin: &ast::Str) -> Result<(), Box<Diagnostic>> {
    let facts = world.file(path).map_err(|e| {
        let d = Diagnostic::error("M0122", format!("this import cannot be read: {e}"));
        Box::new(d.label(pin.span, "pinned here"))
    })?;
    let hex = monarch_graph::hex(&facts.sha256);
    if pin_holds(&pin.value, &hex) {
        return Ok(());
    }
    let d = Diagnostic::error("M0123", format!("`{path}` is not the file that was pinned"))
        .label(pin.span, "another hash")
        .fix(format!("its sha256 is {hex}"), pin.span, format!("\"{hex}\""));
    Err(Box::new(d))
}

/// Whether a hash is the pinned one: all 64 digits, or the first ones (6 at least) and `...`. The
/// beginning finds accidents; only the whole keeps out those who mean harm.
pub(crate) fn pin_holds(pin: &str, hex: &str) -> bool {
    match pin.strip_suffix("...") {
        Some(head) => {
            let start = hex.get(..head.len());
            head.len() >= 6 && start.is_some_and(|s| s.eq_ignore_ascii_case(head))
        }
        None => pin.eq_ignore_ascii_case(hex),
    }
}

/// `name` as seen from the file `from`.
pub(crate) fn beside(from: &str, name: &str) -> String {
    match from.rsplit_once('/') {
        Some((folder, _)) if !name.starts_with('/') => format!("{folder}/{name}"),
        _ => name.to_owned(),
    }
}
