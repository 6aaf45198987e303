//! What each request is answered with.

use super::convert::{self, Places};
use super::docs::{self, LIBRARY_SCHEME};
use super::server::Server;
use monarch_check::library;
use monarch_ide as ide;
use monarch_ide::Analysis;
use serde_json::{Value, json};
use std::rc::Rc;

/// Codes of the protocol.
pub const UNREADABLE: i64 = -32700;
pub const INVALID: i64 = -32600;
pub const UNKNOWN: i64 = -32601;
pub const WRONG_PARAMS: i64 = -32602;
pub const FAULT: i64 = -32603;
pub const NOT_YET: i64 = -32002;
pub const CANCELLED: i64 = -32800;
pub const FAILED: i64 = -32803;

/// The answer to a request.
pub enum Answer {
    Result(Value),
    Refused(i64, String),
}

/// What this server can do.
pub fn capabilities() -> Value {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": true, "change": 2, "save": {"includeText": false}},
            "hoverProvider": true,
            "completionProvider": {"triggerCharacters": [".", "{", "[", "(", "=", "~", " ", "@"]},
            "signatureHelpProvider": {"triggerCharacters": ["(", "[", ","]},
            "definitionProvider": true,
            "referencesProvider": true,
            "documentHighlightProvider": true,
            "documentSymbolProvider": true,
            "renameProvider": {"prepareProvider": true},
            "codeActionProvider": {"codeActionKinds": ["quickfix", "source.fixAll"]},
            "inlayHintProvider": true,
            "documentFormattingProvider": true,
        },
        "serverInfo": {"name": "monarch", "version": env!("CARGO_PKG_VERSION")},
    })
}

/// A question about a document, maybe about a place in it.
struct Question<'q> {
    uri: &'q str,
    analysis: Rc<Analysis>,
    offset: usize,
    params: &'q Value,
}

/// Answers a request.
pub fn answer(server: &mut Server, method: &str, params: &Value) -> Answer {
    if method == "monarch/source" {
        return source(params);
    }
    let with: fn(&Server, &Question) -> Answer = match method {
        "textDocument/hover" => hover,
        "textDocument/completion" => completion,
        "textDocument/signatureHelp" => signature,
        "textDocument/definition" => definition,
        "textDocument/references" => references,
        "textDocument/documentHighlight" => highlights,
        "textDocument/documentSymbol" => symbols,
        "textDocument/prepareRename" => prepare_rename,
        "textDocument/rename" => rename,
        "textDocument/codeAction" => code_actions,
        "textDocument/inlayHint" => inlay_hints,
        "textDocument/formatting" => formatting,
        _ => return Answer::Refused(UNKNOWN, format!("`{method}` is not known")),
    };
    let wrong = |why: &str| Answer::Refused(WRONG_PARAMS, why.to_owned());
    let Some(uri) = params["textDocument"]["uri"].as_str() else {
        return wrong("no `textDocument.uri`");
    };
    let Some(doc) = server.doc(uri) else { return wrong("this document is not open") };
    let at = docs::place(&params["position"]);
    let anywhere = ["documentSymbol", "codeAction", "inlayHint", "formatting"];
    if at.is_none() && !anywhere.iter().any(|name| method.ends_with(name)) {
        return wrong("no `position`");
    }
    let offset = at.map_or(0, |at| doc.offset(at));
    match server.analysis(uri) {
        Some(analysis) => with(server, &Question { uri, analysis, offset, params }),
        None => wrong("this document is not open"),
    }
}

fn found(value: Option<Value>) -> Answer {
    Answer::Result(value.unwrap_or(Value::Null))
}

fn hover(server: &Server, q: &Question) -> Answer {
    found(ide::hover(&q.analysis, q.offset).map(|hover| {
        let range = Places::new(server, &q.analysis).range(hover.span);
        json!({"contents": {"kind": "markdown", "value": hover.markdown}, "range": range})
    }))
}

fn completion(server: &Server, q: &Question) -> Answer {
    let (span, all) = ide::complete(&q.analysis, q.offset);
    let range = Places::new(server, &q.analysis).range(span);
    let item = |c: ide::Completion| {
        let snippet = c.insert.contains("$0") && server.client.snippets;
        let text = if snippet { c.insert } else { c.insert.replace("$0", "") };
        json!({
            "label": c.label,
            "kind": convert::completion_kind(c.kind),
            "detail": c.detail,
            "documentation": {"kind": "markdown", "value": c.docs},
            "sortText": format!("{}{}", c.rank, c.label),
            "filterText": c.label,
            "insertTextFormat": if snippet { 2 } else { 1 },
            "textEdit": {"range": range, "newText": text},
        })
    };
    let items: Vec<Value> = all.into_iter().map(item).collect();
    Answer::Result(json!({"isIncomplete": false, "items": items}))
}

fn signature(_: &Server, q: &Question) -> Answer {
    found(ide::signature(&q.analysis, q.offset).map(|s| {
        let utf16 = |at: usize| s.label.get(..at).unwrap_or("").encode_utf16().count();
        let arguments: Vec<Value> = s
            .arguments
            .iter()
            .map(|range| json!({"label": [utf16(range.start), utf16(range.end)]}))
            .collect();
        let docs = json!({"kind": "markdown", "value": s.docs});
        let one = json!({"label": s.label, "documentation": docs, "parameters": arguments});
        // An argument too many is none of them.
        let active = s.active.unwrap_or(s.arguments.len());
        json!({"signatures": [one], "activeSignature": 0, "activeParameter": active})
    }))
}

fn definition(server: &Server, q: &Question) -> Answer {
    let link = ide::definition(&q.analysis, q.offset);
    found(link.and_then(|link| Places::new(server, &q.analysis).location(link.name)))
}

fn references(server: &Server, q: &Question) -> Answer {
    let declaration = q.params["context"]["includeDeclaration"] != json!(false);
    let mut places = Places::new(server, &q.analysis);
    let all = ide::references(&q.analysis, q.offset, declaration);
    let all: Vec<Value> = all.into_iter().filter_map(|span| places.location(span)).collect();
    Answer::Result(json!(all))
}

fn highlights(server: &Server, q: &Question) -> Answer {
    let mut places = Places::new(server, &q.analysis);
    let all = ide::references(&q.analysis, q.offset, true);
    let here = all.into_iter().filter(|span| span.file == 0);
    let here: Vec<Value> = here.map(|span| json!({"range": places.range(span)})).collect();
    Answer::Result(json!(here))
}

fn symbols(server: &Server, q: &Question) -> Answer {
    let Some(file) = q.analysis.inspected.files.first() else { return found(None) };
    let all = ide::symbols(&file.tree, &|span| q.analysis.slice(span));
    let mut places = Places::new(server, &q.analysis);
    let all: Vec<Value> = all.iter().map(|s| convert::symbol(&mut places, s)).collect();
    Answer::Result(json!(all))
}

fn prepare_rename(server: &Server, q: &Question) -> Answer {
    match ide::prepare(&q.analysis, q.offset) {
        Ok(span) => {
            let range = Places::new(server, &q.analysis).range(span);
            let name = q.analysis.slice(span);
            Answer::Result(json!({"range": range, "placeholder": name}))
        }
        Err(refused) => Answer::Refused(FAILED, refused.0),
    }
}

fn rename(server: &Server, q: &Question) -> Answer {
    let Some(new) = q.params["newName"].as_str() else {
        return Answer::Refused(WRONG_PARAMS, "no `newName`".to_owned());
    };
    let reserved = crate::cli::args::reserved();
    match ide::rename(&server.world(), &q.analysis, reserved, q.offset, new) {
        Ok(edits) => Answer::Result(Places::new(server, &q.analysis).workspace_edit(&edits)),
        Err(refused) => Answer::Refused(FAILED, refused.0),
    }
}

fn code_actions(server: &Server, q: &Question) -> Answer {
    let Some(doc) = server.doc(q.uri) else { return found(None) };
    let range = docs::range(&q.params["range"]).unwrap_or_default();
    let (start, end) = (doc.offset(range.0), doc.offset(range.1));
    let only = q.params["context"]["only"].as_array();
    let wanted = |kind: &str| {
        only.is_none_or(|only| {
            let mut only = only.iter().filter_map(Value::as_str);
            only.any(|o| kind == o || kind.starts_with(&format!("{o}.")))
        })
    };
    let mut places = Places::new(server, &q.analysis);
    let mut out = Vec::new();
    if wanted("quickfix") {
        for fix in ide::fixes(&q.analysis, start, end) {
            let found = q.analysis.inspected.checked.diagnostics.get(fix.diagnostic);
            let found = found.and_then(|d| Some((d, d.span()?)));
            let about: Vec<Value> = found
                .map(|(d, span)| convert::diagnostic(&mut places, d, span))
                .into_iter()
                .collect();
            out.push(json!({
                "title": fix.title,
                "kind": "quickfix",
                "isPreferred": fix.preferred,
                "diagnostics": about,
                "edit": places.workspace_edit(&fix.edits),
            }));
        }
    }
    let all = ide::fix_all(&q.analysis);
    if wanted("source.fixAll") && !all.is_empty() {
        out.push(json!({
            "title": "Fix all that has one way out",
            "kind": "source.fixAll",
            "edit": places.workspace_edit(&all),
        }));
    }
    Answer::Result(json!(out))
}

fn inlay_hints(server: &Server, q: &Question) -> Answer {
    let Some(doc) = server.doc(q.uri) else { return found(None) };
    let range = docs::range(&q.params["range"]);
    let (start, end) = match range {
        Some((start, end)) => (doc.offset(start), doc.offset(end)),
        None => (0, doc.text.len()),
    };
    let hint = |h: ide::Hint| {
        json!({
            "position": convert::place(doc.lines.place(&doc.text, h.offset)),
            "label": h.text.trim_start(),
            "kind": if h.is_type { 1 } else { 2 },
            "paddingLeft": h.text.starts_with(' '),
        })
    };
    let all: Vec<Value> = ide::hints(&q.analysis, start, end).into_iter().map(hint).collect();
    Answer::Result(json!(all))
}

/// One edit from the first line that differs to the last, so that cursors elsewhere stay.
fn formatting(server: &Server, q: &Question) -> Answer {
    let Some(doc) = server.doc(q.uri) else { return found(None) };
    let old = doc.text.as_str();
    let new = monarch_syntax::format(0, old).text;
    if new == old {
        return Answer::Result(json!([]));
    }
    let pairs = old.split_inclusive('\n').zip(new.split_inclusive('\n'));
    let start: usize = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum();
    let rest = |text: &'_ str| text.get(start..).unwrap_or("").to_owned();
    let (old_rest, new_rest) = (rest(old), rest(&new));
    let lines =
        |text: &str| -> Vec<usize> { text.split_inclusive('\n').rev().map(str::len).collect() };
    let (mut old_end, mut new_end) = (old_rest.len(), new_rest.len());
    for (a, b) in lines(&old_rest).into_iter().zip(lines(&new_rest)) {
        let same = old_rest.get(old_end - a..old_end) == new_rest.get(new_end - b..new_end);
        if !same {
            break;
        }
        (old_end, new_end) = (old_end - a, new_end - b);
    }
    let range = convert::range(old, &doc.lines, start, start + old_end);
    let text = new_rest.get(..new_end).unwrap_or("");
    Answer::Result(json!([{"range": range, "newText": text}]))
}

/// The text behind a URI of the library's scheme: a module, or the page of a code.
fn source(params: &Value) -> Answer {
    let uri = params["uri"].as_str().unwrap_or_default();
    let rest = uri.strip_prefix(LIBRARY_SCHEME).and_then(|r| r.strip_prefix(':'));
    let path = rest.unwrap_or_default().trim_start_matches('/');
    let page = path.strip_prefix("codes/").and_then(|c| c.strip_suffix(".md"));
    let text = match page {
        Some(code) => monarch_diagnostic::page(code).map(|p| p.text),
        None => path.strip_suffix(".mon").and_then(|m| library::module(&m.replace('/', "."))),
    };
    match text {
        Some(text) => Answer::Result(json!({"text": text})),
        None => Answer::Refused(WRONG_PARAMS, format!("nothing is called `{uri}`")),
    }
}
