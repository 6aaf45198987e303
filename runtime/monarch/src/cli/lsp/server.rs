//! The state of a session, and the way of a message through it.

use super::answer::{self, Answer};
use super::docs::{self, Doc};
use super::overlay::{Facts, Overlay, Texts};
use super::{convert, watch_parent};
use crate::cli::args;
use monarch_ide::Analysis;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// What a client can do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// It shows texts of the scheme `monarch-std`.
    pub library: bool,
    /// It knows `$0` in completions.
    pub snippets: bool,
}

/// Where the session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Running,
    ShutDown,
}

/// One session with one client.
pub struct Server {
    send: Box<dyn Fn(&Value)>,
    stage: Stage,
    pub client: Client,
    /// Where texts stand that are no files yet.
    folder: PathBuf,
    /// By URI.
    docs: BTreeMap<String, Doc>,
    texts: Texts,
    facts: Facts,
    /// Of the texts as they are now.
    analyses: BTreeMap<String, Rc<Analysis>>,
    /// Documents whose diagnostics are not those of their text.
    dirty: BTreeSet<String>,
    /// For each document the files that it gave diagnostics to.
    published: BTreeMap<String, BTreeSet<String>>,
}

impl Server {
    pub fn new(send: Box<dyn Fn(&Value)>) -> Server {
        Server {
            send,
            stage: Stage::New,
            client: Client::default(),
            folder: std::env::current_dir().unwrap_or_default(),
            docs: BTreeMap::new(),
            texts: Texts::new(),
            facts: Facts::default(),
            analyses: BTreeMap::new(),
            dirty: BTreeSet::new(),
            published: BTreeMap::new(),
        }
    }

    /// Whether diagnostics wait to be given.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whether the client has said goodbye.
    pub fn is_shut_down(&self) -> bool {
        self.stage == Stage::ShutDown
    }

    /// Takes one message. Some: the session is over, in good order or not.
    pub fn take(&mut self, message: Value) -> Option<bool> {
        let id = message.get("id").cloned();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            // An answer to a question that was never asked, or no message at all.
            let known = message.get("result").is_some() || message.get("error").is_some();
            if !known {
                self.refuse(id.unwrap_or(Value::Null), answer::INVALID, "this is no request");
            }
            return None;
        };
        let params = message.get("params").cloned().unwrap_or(Value::Null);
        match (method, id) {
            ("exit", _) => return Some(self.is_shut_down()),
            (method, Some(id)) => self.request(method, id, &params),
            (method, None) if self.stage == Stage::Running => self.notification(method, &params),
            _ => {}
        }
        None
    }

    /// Says that something was no message.
    pub fn malformed(&self, why: &str) {
        self.refuse(Value::Null, answer::UNREADABLE, why);
    }

    pub fn refuse(&self, id: Value, code: i64, why: &str) {
        let error = json!({"code": code, "message": why});
        (self.send)(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    fn request(&mut self, method: &str, id: Value, params: &Value) {
        match (self.stage, method) {
            (Stage::New, "initialize") => {
                let result = self.initialize(params);
                return self.reply(id, result);
            }
            (Stage::New, _) => {
                return self.refuse(id, answer::NOT_YET, "`initialize` comes first");
            }
            (Stage::ShutDown, _) => {
                return self.refuse(id, answer::INVALID, "the session is shut down");
            }
            (Stage::Running, "initialize") => {
                return self.refuse(id, answer::INVALID, "it is initialized already");
            }
            (Stage::Running, "shutdown") => {
                self.stage = Stage::ShutDown;
                return self.reply(id, Value::Null);
            }
            (Stage::Running, _) => {}
        }
        // A fault in one feature must not take the editor's other ones away.
        let found = catch_unwind(AssertUnwindSafe(|| answer::answer(self, method, params)));
        match found {
            Ok(Answer::Result(result)) => self.reply(id, result),
            Ok(Answer::Refused(code, why)) => self.refuse(id, code, &why),
            Err(_) => self.refuse(id, answer::FAULT, "an internal fault"),
        }
    }

    fn reply(&self, id: Value, result: Value) {
        (self.send)(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn initialize(&mut self, params: &Value) -> Value {
        self.stage = Stage::Running;
        if let Some(pid) = params["processId"].as_i64().and_then(|p| i32::try_from(p).ok())
            && pid > 0
        {
            watch_parent(pid);
        }
        if let Some(root) = params["rootUri"].as_str().filter(|u| u.starts_with("file://")) {
            self.folder = PathBuf::from(docs::key_of(root, &self.folder));
        }
        let item = &params["capabilities"]["textDocument"]["completion"]["completionItem"];
        self.client = Client {
            library: params["initializationOptions"]["libraryScheme"] == json!(true),
            snippets: item["snippetSupport"] == json!(true),
        };
        answer::capabilities()
    }

    fn notification(&mut self, method: &str, params: &Value) {
        let document = &params["textDocument"];
        let uri = document["uri"].as_str().unwrap_or_default().to_owned();
        match method {
            "textDocument/didOpen" => {
                let text = document["text"].as_str().unwrap_or_default().to_owned();
                let key = docs::key_of(&uri, &self.folder);
                self.docs.insert(
                    uri.clone(),
                    Doc::new(uri.clone(), key, text, document["version"].clone()),
                );
                self.changed(&uri);
            }
            "textDocument/didChange" => {
                let Some(doc) = self.docs.get_mut(&uri) else { return };
                let changes = params["contentChanges"].as_array();
                changes.into_iter().flatten().for_each(|change| doc.change(change));
                doc.version = document["version"].clone();
                self.changed(&uri);
            }
            "textDocument/didClose" => self.close(&uri),
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => {
                self.facts.forget();
                self.analyses.clear();
                self.dirty.extend(self.docs.keys().cloned());
            }
            _ => {}
        }
    }

    /// A text is another one: what was worked out of it is void.
    fn changed(&mut self, uri: &str) {
        let Some(doc) = self.docs.get(uri) else { return };
        let (key, text) = (doc.key.clone(), Arc::from(doc.text.as_str()));
        self.texts.insert(super::overlay::clean(key.as_ref()), text);
        self.forget_users(&key);
        self.analyses.remove(uri);
        self.dirty.insert(uri.to_owned());
    }

    /// Forgets what was worked out of programs that read a file.
    fn forget_users(&mut self, key: &str) {
        let path = super::overlay::clean(key.as_ref());
        let reads = |a: &Analysis| {
            a.inspected.files.iter().any(|f| super::overlay::clean(f.key.as_ref()) == path)
        };
        let users: Vec<String> =
            self.analyses.iter().filter(|(_, a)| reads(a)).map(|(uri, _)| uri.clone()).collect();
        for uri in users {
            self.analyses.remove(&uri);
            self.dirty.insert(uri);
        }
    }

    fn close(&mut self, uri: &str) {
        let Some(doc) = self.docs.remove(uri) else { return };
        self.texts.remove(&super::overlay::clean(doc.key.as_ref()));
        self.forget_users(&doc.key);
        self.analyses.remove(uri);
        self.dirty.remove(uri);
        for file in self.published.remove(uri).unwrap_or_default() {
            self.give(&file, Value::Null, Vec::new());
        }
    }

    /// An open document.
    pub fn doc(&self, uri: &str) -> Option<&Doc> {
        self.docs.get(uri)
    }

    /// The URI of an open file, as its client wrote it.
    pub fn open_uri(&self, key: &str) -> Option<&str> {
        let path = super::overlay::clean(key.as_ref());
        let mut open = self.docs.values();
        open.find(|d| super::overlay::clean(d.key.as_ref()) == path).map(|d| d.uri.as_str())
    }

    /// What there is to know of a document as it is now.
    pub fn analysis(&mut self, uri: &str) -> Option<Rc<Analysis>> {
        if let Some(found) = self.analyses.get(uri) {
            return Some(found.clone());
        }
        let key = self.docs.get(uri)?.key.clone();
        let analysis = Rc::new(Analysis::new(&self.world(), &key, args::reserved()));
        self.analyses.insert(uri.to_owned(), analysis.clone());
        Some(analysis)
    }

    /// The world with the open texts.
    pub fn world(&self) -> Overlay<'_> {
        Overlay::new(&self.texts, &self.facts)
    }

    /// Gives the diagnostics of the next document whose text has changed.
    pub fn publish(&mut self) {
        let Some(uri) = self.dirty.pop_first() else { return };
        let found = catch_unwind(AssertUnwindSafe(|| self.analysis(&uri)));
        let Ok(Some(analysis)) = found else { return };
        let Some(doc) = self.docs.get(&uri) else { return };
        let (version, library) = (doc.version.clone(), doc.key.starts_with("std."));
        let mut by_file = convert::diagnostics(self, &uri, &analysis);
        // The library is as it is; and an open file speaks for itself.
        by_file.retain(|file, _| *file == uri || !self.docs.contains_key(file));
        if library {
            by_file.clear();
        }
        by_file.entry(uri.clone()).or_default();
        let now: BTreeSet<String> = by_file.keys().cloned().collect();
        let before = self.published.insert(uri.clone(), now.clone()).unwrap_or_default();
        for file in before.difference(&now).filter(|f| !self.docs.contains_key(*f)) {
            self.give(file, Value::Null, Vec::new());
        }
        for (file, list) in by_file {
            let version = if file == uri { version.clone() } else { Value::Null };
            self.give(&file, version, list);
        }
    }

    fn give(&self, uri: &str, version: Value, list: Vec<Value>) {
        let mut params = json!({"uri": uri, "diagnostics": list});
        if version.is_i64() {
            params["version"] = version;
        }
        let method = "textDocument/publishDiagnostics";
        (self.send)(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }
}
