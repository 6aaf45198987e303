//! Renaming: every place of a name at once, refused where that would change what a program means.

use crate::analysis::Analysis;
use crate::index::{Def, Kind};
use monarch_check::{World, WorldError};
use monarch_diagnostic::{Diagnostic, Edit};
use monarch_graph::{DataFile, Span};
use std::collections::BTreeMap;
use std::fmt;

/// Why something is not renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn refuse<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(why.into()))
}

/// The name at byte `offset` of the program, if it can be renamed.
pub fn prepare(analysis: &Analysis, offset: usize) -> Result<Span, Refused> {
    let Some((id, span)) = analysis.def_at(offset) else {
        return refuse("nothing here has a name that can be changed");
    };
    let Some(def) = analysis.index.def(id) else { return refuse("this name is not known") };
    if analysis.is_library(def.span.file) {
        return refuse(format!("`{}` belongs to the standard library", def.name));
    }
    if def.kind == Kind::Module {
        return refuse("a module is named by its file");
    }
    if def.kind == Kind::MeshAxis {
        return refuse(format!("`{}` is a word of the language: meshes have fixed axes", def.name));
    }
    if analysis.slice(span) != def.name {
        return refuse(format!("this is not written as `{}`", def.name));
    }
    Ok(span)
}

/// The edits that give the name at byte `offset` of the program another name. `world` and
/// `reserved` are those that the program was checked with: the result is checked again.
pub fn rename(
    world: &dyn World,
    analysis: &Analysis,
    reserved: &[&str],
    offset: usize,
    new: &str,
) -> Result<Vec<Edit>, Refused> {
    prepare(analysis, offset)?;
    let Some((id, _)) = analysis.def_at(offset) else { return refuse("no name") };
    let Some(def) = analysis.index.def(id) else { return refuse("no name") };
    if new == def.name {
        return Ok(Vec::new());
    }
    well_formed(def, new)?;
    collides(analysis, def, new)?;
    shards(analysis, def, new)?;
    let places = analysis.index.uses(id).filter(|s| analysis.slice(*s) == def.name);
    let replacement = || new.to_owned();
    let edits: Vec<Edit> = places.map(|span| Edit { span, replacement: replacement() }).collect();
    if edits.iter().any(|e| analysis.is_library(e.span.file)) {
        return refuse(format!("`{}` is used by the standard library", def.name));
    }
    still_means_the_same(world, analysis, reserved, def, new, &edits)?;
    Ok(edits)
}

fn well_formed(def: &Def, new: &str) -> Result<(), Refused> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = new.chars().next();
    if !first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_') || !new.chars().all(letter) {
        return refuse(format!("`{new}` is no name: letters, digits and `_`, no digit first"));
    }
    if new == "_" || monarch_syntax::reserved_words().contains(&new) {
        return refuse(format!("`{new}` is a word of the language"));
    }
    let _ = def;
    Ok(())
}

/// Names that the new one would be mistaken for.
fn collides(analysis: &Analysis, def: &Def, new: &str) -> Result<(), Refused> {
    let taken = |what: &Def| {
        refuse(format!("`{new}` is taken: {} `{new}`{}", what.kind.noun(), at(analysis, what)))
    };
    let file = def.span.file as usize;
    let top = analysis.index.scopes.get(file).and_then(|s| s.get(new));
    let prelude = analysis.index.prelude.get(new);
    if let Some(owner) = def.owner
        && let Some(members) = analysis.index.members.get(&owner)
    {
        let inner = members.statics.get(new).or_else(|| members.values.get(new));
        let axis = matches!(def.kind, Kind::Axis | Kind::Size | Kind::FreeAxis | Kind::Field);
        let inner = inner.or_else(|| members.free.get(new).filter(|_| axis));
        if let Some(other) = inner.and_then(|d| analysis.index.def(*d)) {
            return taken(other);
        }
    }
    // Within a layer or a function: another local of that name.
    let local = |d: &&Def| {
        d.name == new
            && d.owner == def.owner
            && matches!(d.kind, Kind::Local | Kind::Argument)
            && matches!(def.kind, Kind::Local | Kind::Argument | Kind::Weight | Kind::Sublayer)
            && d.span.file == def.span.file
    };
    if let Some(other) = analysis.index.defs.iter().find(local) {
        return taken(other);
    }
    // Names within a layer may be those of the file: the two do not meet, which is checked later.
    let inner = matches!(def.kind, Kind::Axis | Kind::Size | Kind::FreeAxis | Kind::Field);
    match top.or(prelude).filter(|_| !inner).and_then(|d| analysis.index.def(*d)) {
        Some(other) => taken(other),
        None => Ok(()),
    }
}

fn at(analysis: &Analysis, def: &Def) -> String {
    let place = analysis.sources().place(def.span);
    if place.is_empty() { place } else { format!(" ({place})") }
}

/// `H -> tp` means the axes of that name in all layers: one that leaves would no longer be sharded.
fn shards(analysis: &Analysis, def: &Def, new: &str) -> Result<(), Refused> {
    if !matches!(def.kind, Kind::Axis | Kind::FreeAxis | Kind::Size) {
        return Ok(());
    }
    let rule = analysis.index.sharded.iter().find(|(n, _)| *n == def.name || n == new);
    match rule {
        Some((name, span)) => refuse(format!(
            "a plan shards every axis called `{name}` ({}): under another name this one would be \
             left out, or taken in",
            analysis.sources().place(*span)
        )),
        None => Ok(()),
    }
}

/// Applies edits to the texts of the program's files: the new text of each file that changes.
pub fn apply(analysis: &Analysis, edits: &[Edit]) -> BTreeMap<String, String> {
    let mut by_file: BTreeMap<u32, Vec<&Edit>> = BTreeMap::new();
    for edit in edits {
        by_file.entry(edit.span.file).or_default().push(edit);
    }
    let mut out = BTreeMap::new();
    for (file, mut edits) in by_file {
        let (Some(source), Some(key)) = (analysis.sources().get(file), analysis.file_key(file))
        else {
            continue;
        };
        edits.sort_by_key(|e| std::cmp::Reverse(e.span));
        let mut text = source.text().to_owned();
        for edit in edits {
            let (start, end) = (edit.span.start as usize, edit.span.end as usize);
            if text.get(start..end).is_some() {
                text.replace_range(start..end, &edit.replacement);
            }
        }
        out.insert(key.to_owned(), text);
    }
    out
}

/// Checks the renamed program, and compares what is said about it.
fn still_means_the_same(
    world: &dyn World,
    analysis: &Analysis,
    reserved: &[&str],
    def: &Def,
    new: &str,
    edits: &[Edit],
) -> Result<(), Refused> {
    let changed = Changed { world, texts: apply(analysis, edits) };
    let Some(root) = analysis.file_key(0) else { return refuse("the program is not there") };
    let after = Analysis::new(&changed, root, reserved);
    let before = &analysis.inspected.checked.diagnostics;
    for d in after.inspected.checked.diagnostics.iter().filter(|d| d.is_error()) {
        let known = |old: &&Diagnostic| old.is_error() && old.code == d.code;
        let count = |all: &[Diagnostic]| all.iter().filter(known).count();
        if count(&after.inspected.checked.diagnostics) > count(before) {
            let place = d.span().map(|s| after.sources().place(s)).unwrap_or_default();
            return refuse(format!("the program would be wrong: {} {} {place}", d.code, d.title));
        }
    }
    let unknown = |a: &Analysis| a.index.refs.len();
    if unknown(&after) != unknown(analysis) {
        return refuse(format!("`{new}` would be mistaken for another name than `{}`", def.name));
    }
    // The same names must lead to the same definitions: none was caught by another scope.
    let shape = |a: &Analysis| a.index.refs.iter().map(|r| r.def).collect::<Vec<_>>();
    if shape(&after) != shape(analysis) {
        return refuse(format!("`{new}` would hide, or be hidden by, another name"));
    }
    Ok(())
}

/// The world, with other texts for some files.
struct Changed<'w> {
    world: &'w dyn World,
    texts: BTreeMap<String, String>,
}

impl World for Changed<'_> {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        match self.texts.get(path) {
            Some(text) => Ok(text.clone().into_bytes()),
            None => self.world.read(path, limit_bytes),
        }
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        self.world.glob(pattern)
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        self.world.file(path)
    }

    fn tensors(&self, path: &str) -> Result<Vec<monarch_check::TensorFact>, WorldError> {
        self.world.tensors(path)
    }

    fn text(&self, paths: &[String]) -> Result<monarch_check::TextFacts, WorldError> {
        self.world.text(paths)
    }
}
