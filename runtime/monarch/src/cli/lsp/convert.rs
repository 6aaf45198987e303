//! From the plain data of `monarch-ide` to the words of the protocol.

use super::docs::{LIBRARY_SCHEME, file_uri};
use super::server::Server;
use monarch_check::library;
use monarch_diagnostic::{Diagnostic, Edit, Severity};
use monarch_graph::Span;
use monarch_ide::index::Kind;
use monarch_ide::text::{Lines, Place};
use monarch_ide::{Analysis, CompletionKind, Symbol};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A place.
pub fn place(place: Place) -> Value {
    json!({"line": place.line, "character": place.column})
}

/// A range of bytes of a text.
pub fn range(text: &str, lines: &Lines, start: usize, end: usize) -> Value {
    json!({"start": place(lines.place(text, start)), "end": place(lines.place(text, end))})
}

/// Places of several files, each looked through for its lines once.
pub struct Places<'a> {
    server: &'a Server,
    analysis: &'a Analysis,
    lines: BTreeMap<u32, Lines>,
}

impl<'a> Places<'a> {
    pub fn new(server: &'a Server, analysis: &'a Analysis) -> Places<'a> {
        Places { server, analysis, lines: BTreeMap::new() }
    }

    /// The range of a span in its file.
    pub fn range(&mut self, span: Span) -> Value {
        let text = self.analysis.sources().get(span.file).map_or("", |s| s.text());
        let lines = self.lines.entry(span.file).or_insert_with(|| Lines::new(text));
        range(text, lines, span.start as usize, span.end as usize)
    }

    /// The URI of a file of the program.
    pub fn uri(&self, file: u32) -> Option<String> {
        let key = self.analysis.file_key(file)?;
        uri_of(self.server, key)
    }

    /// A location; None for a place in no file.
    pub fn location(&mut self, span: Span) -> Option<Value> {
        Some(json!({"uri": self.uri(span.file)?, "range": self.range(span)}))
    }

    /// An edit.
    pub fn edit(&mut self, edit: &Edit) -> Value {
        json!({"range": self.range(edit.span), "newText": edit.replacement})
    }

    /// Edits of any files.
    pub fn workspace_edit(&mut self, edits: &[Edit]) -> Value {
        let mut changes = serde_json::Map::new();
        for edit in edits {
            let Some(uri) = self.uri(edit.span.file) else { continue };
            let list = changes.entry(uri).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(self.edit(edit));
            }
        }
        json!({"changes": changes})
    }
}

/// The URI of a file of the user's, or of the library.
fn uri_of(server: &Server, key: &str) -> Option<String> {
    if let Some(uri) = server.open_uri(key) {
        return Some(uri.to_owned());
    }
    if library::module(key).is_none() {
        return Some(file_uri(&super::overlay::clean(Path::new(key))));
    }
    if server.client.library {
        return Some(format!("{LIBRARY_SCHEME}:/{}.mon", key.replace('.', "/")));
    }
    library_file(key).map(|path| file_uri(&path))
}

/// A file with the text of a module, for clients that can only show files.
fn library_file(module: &str) -> Option<PathBuf> {
    let text = library::module(module)?;
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = cache.or_else(home)?.join("monarch").join(env!("CARGO_PKG_VERSION"));
    let path = folder.join(format!("{}.mon", module.replace('.', "/")));
    if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Some(path);
    }
    std::fs::create_dir_all(path.parent()?).ok()?;
    // Another session may be writing the same text: each writes its own file and puts it in place.
    let own = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = std::fs::write(&own, text).and_then(|()| {
        let mut permissions = std::fs::metadata(&own)?.permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&own, permissions)?;
        std::fs::rename(&own, &path)
    });
    if written.is_err() {
        // Nothing is left half-done; the definition is then not shown.
        let _ = std::fs::remove_file(&own);
        return None;
    }
    Some(path)
}

/// The diagnostics of a document, by the URI of the file that each stands in.
pub fn diagnostics(
    server: &Server,
    uri: &str,
    analysis: &Analysis,
) -> BTreeMap<String, Vec<Value>> {
    let mut places = Places::new(server, analysis);
    let mut out: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for d in &analysis.inspected.checked.diagnostics {
        let home = d.span().and_then(|s| Some((s, places.uri(s.file)?)));
        let (file, value) = match home {
            Some((span, file)) if !analysis.is_library(span.file) => {
                (file, diagnostic(&mut places, d, span))
            }
            _ => (uri.to_owned(), diagnostic(&mut places, d, Span::default())),
        };
        out.entry(file).or_default().push(value);
    }
    out
}

/// One diagnostic.
pub fn diagnostic(places: &mut Places, d: &Diagnostic, span: Span) -> Value {
    let severity = match d.severity {
        Severity::Error => 1,
        Severity::Warning => 2,
        Severity::Note => 3,
    };
    let mut message = d.title.clone();
    let first = d.labels.first().map_or("", |l| l.text.as_str());
    if !first.is_empty() {
        message.push_str(&format!("\n{first}"));
    }
    for help in &d.help {
        message.push_str(&format!("\nhelp: {}", help.text));
    }
    let mut related = Vec::new();
    for label in d.labels.iter().skip(1) {
        let text = if label.text.is_empty() { "here" } else { label.text.as_str() };
        if let Some(location) = places.location(label.span) {
            related.push(json!({"location": location, "message": text}));
        }
    }
    let mut out = json!({
        "range": places.range(span),
        "severity": severity,
        "code": d.code,
        "source": "monarch",
        "message": message,
    });
    if !related.is_empty() {
        out["relatedInformation"] = json!(related);
    }
    if places.server.client.library {
        // Shown by the same client that shows the library's files.
        out["codeDescription"] = json!({"href": format!("{LIBRARY_SCHEME}:/codes/{}.md", d.code)});
    }
    if d.severity == Severity::Warning && d.title.ends_with("is not used") {
        out["tags"] = json!([1]);
    }
    out
}

/// The outline.
pub fn symbol(places: &mut Places, symbol: &Symbol) -> Value {
    let kind = match symbol.kind {
        Kind::Param | Kind::Constant => 14,
        Kind::Layer => 5,
        Kind::Op => 12,
        Kind::Model | Kind::Data => 13,
        Kind::Weight | Kind::Sublayer => 8,
        Kind::Metric => 24,
        Kind::Local => 6,
        Kind::Field => 7,
        _ => 2,
    };
    let children: Vec<Value> = symbol.children.iter().map(|s| self::symbol(places, s)).collect();
    json!({
        "name": symbol.name,
        "detail": symbol.detail,
        "kind": kind,
        "range": places.range(symbol.whole),
        "selectionRange": places.range(symbol.name_span),
        "children": children,
    })
}

/// The protocol's number for a kind of completion.
pub fn completion_kind(kind: CompletionKind) -> u8 {
    match kind {
        CompletionKind::Keyword => 14,
        CompletionKind::Setting => 10,
        CompletionKind::Block => 22,
        CompletionKind::Unit => 11,
        CompletionKind::Choice => 20,
        CompletionKind::Argument => 5,
        CompletionKind::Name(kind) => match kind {
            Kind::Param | Kind::Constant | Kind::Size | Kind::Field => 21,
            Kind::Layer => 7,
            Kind::Op => 3,
            Kind::Module => 9,
            Kind::Axis | Kind::FreeAxis | Kind::MeshAxis => 25,
            Kind::Weight | Kind::Sublayer => 5,
            _ => 6,
        },
    }
}
