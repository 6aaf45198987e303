//! A client: it starts the binary, frames messages, and keeps what the server says by itself.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    said: VecDeque<Value>,
    next: i64,
    pub folder: tempfile::TempDir,
}

impl Client {
    /// Starts a server whose user and cache are those of a folder of its own.
    pub fn start() -> Client {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(env!("CARGO_BIN_EXE_monarch"))
            .arg("lsp")
            .current_dir(folder.path())
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let out = child.stdout.take().expect("piped");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            while let Some(message) = read(&mut out) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Client { child, stdin, messages, said: VecDeque::new(), next: 0, folder }
    }

    /// The same, after `initialize` with these options.
    pub fn ready(options: Value) -> Client {
        let mut client = Client::start();
        let params = json!({
            "processId": std::process::id(),
            "rootUri": client.uri(""),
            "initializationOptions": options,
            "capabilities": {"textDocument": {"completion": {"completionItem":
                {"snippetSupport": true}}}},
        });
        let answer = client.request("initialize", params);
        assert_eq!(answer["result"]["serverInfo"]["name"], "monarch");
        client.notify("initialized", json!({}));
        client
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn uri(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("open");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).expect("written");
    }

    pub fn send(&mut self, message: &Value) {
        let text = message.to_string();
        self.raw(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request without waiting; its id.
    pub fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: &Value) -> Value {
        self.wait(|m| m.get("method").is_none() && m["id"] == *id)
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(&json!(id))
    }

    /// The first message that fits; others are kept.
    pub fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.said.iter().position(&fits) {
            return self.said.remove(at).expect("found");
        }
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) if fits(&message) => return message,
                Ok(message) => self.said.push_back(message),
                Err(RecvTimeoutError::Timeout) => panic!("no answer; said: {:?}", self.said),
                Err(RecvTimeoutError::Disconnected) => panic!("gone; said: {:?}", self.said),
            }
        }
    }

    pub fn open(&mut self, name: &str, text: &str) -> String {
        let uri = self.uri(name);
        self.open_uri(&uri, text);
        uri
    }

    pub fn open_uri(&mut self, uri: &str, text: &str) {
        let item = json!({"uri": uri, "languageId": "mon", "version": 1, "text": text});
        self.notify("textDocument/didOpen", json!({"textDocument": item}));
    }

    pub fn change(&mut self, uri: &str, version: i64, changes: Value) {
        let document = json!({"uri": uri, "version": version});
        let params = json!({"textDocument": document, "contentChanges": changes});
        self.notify("textDocument/didChange", params);
    }

    /// The diagnostics of this version of a document.
    pub fn diagnostics(&mut self, uri: &str, version: i64) -> Vec<Value> {
        let method = "textDocument/publishDiagnostics";
        let message = self.wait(|m| {
            m["method"] == method && m["params"]["uri"] == uri && m["params"]["version"] == version
        });
        message["params"]["diagnostics"].as_array().expect("a list").clone()
    }

    /// Asks about a place of a document.
    pub fn at(&mut self, method: &str, uri: &str, line: u32, character: u32) -> Value {
        let params = json!({
            "textDocument": {"uri": uri},
            "position": {"line": line, "character": character},
        });
        self.request(&format!("textDocument/{method}"), params)["result"].clone()
    }

    /// Closes the stream to the server.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// The code that the server ends with.
    pub fn ends(&mut self) -> i32 {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(out: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if out.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().split_once(": ") {
            Some(("Content-Length", n)) => length = n.parse().expect("a length"),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    out.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("JSON from the server"))
}

/// Line and UTF-16 column of the `n`th (from 0) `what`, `inside` characters into it.
pub fn place(text: &str, what: &str, n: usize, inside: usize) -> (u32, u32) {
    let at = text.match_indices(what).nth(n).unwrap_or_else(|| panic!("{what} #{n}")).0;
    let before = &text[..at];
    let line = before.matches('\n').count();
    let start = before.rfind('\n').map_or(0, |n| n + 1);
    (line as u32, (before[start..].encode_utf16().count() + inside) as u32)
}

/// The text after edits of the protocol.
pub fn edited(text: &str, edits: &Value) -> String {
    let mut edits = edits.as_array().expect("edits").clone();
    let offset = |place: &Value| {
        let (line, column) = (place["line"].as_u64(), place["character"].as_u64());
        let lines = text.split_inclusive('\n').take(line.expect("a line") as usize);
        let start: usize = lines.map(str::len).sum();
        let mut units = 0;
        for (at, c) in text[start..].char_indices() {
            if units >= column.expect("a column") {
                return start + at;
            }
            units += c.len_utf16() as u64;
        }
        text.len()
    };
    edits.sort_by_key(|e| std::cmp::Reverse(offset(&e["range"]["start"])));
    let mut out = text.to_owned();
    for edit in &edits {
        let range = offset(&edit["range"]["start"])..offset(&edit["range"]["end"]);
        out.replace_range(range, edit["newText"].as_str().expect("a text"));
    }
    out
}

/// A file of the repository.
pub fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    std::fs::read_to_string(folder.join(name)).expect("an example")
}
