//! The session itself: its beginning, its end, and clients that do not keep to the protocol.

use super::client::{Client, LIMIT};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Instant;

#[test]
fn from_beginning_to_end() {
    let mut client = Client::start();
    let early = client.request("textDocument/hover", json!({}));
    assert_eq!(early["error"]["code"], -32002, "{early}");
    let answer = client.request("initialize", json!({"capabilities": {}}));
    let capabilities = &answer["result"]["capabilities"];
    for wanted in ["hoverProvider", "definitionProvider", "renameProvider", "inlayHintProvider"] {
        assert!(!capabilities[wanted].is_null(), "{wanted}");
    }
    assert_eq!(capabilities["positionEncoding"], "utf-16");
    client.notify("initialized", json!({}));
    let again = client.request("initialize", json!({}));
    assert_eq!(again["error"]["code"], -32600);
    assert_eq!(client.request("shutdown", json!(null))["result"], Value::Null);
    let late = client.request("textDocument/hover", json!({}));
    assert_eq!(late["error"]["code"], -32600);
    client.notify("exit", json!(null));
    assert_eq!(client.ends(), 0);
}

#[test]
fn ends_that_are_no_farewell() {
    let mut client = Client::ready(json!({}));
    client.notify("exit", json!(null));
    assert_eq!(client.ends(), 1);
    let mut client = Client::ready(json!({}));
    client.hang_up();
    assert_eq!(client.ends(), 1);
    let mut client = Client::ready(json!({}));
    client.request("shutdown", json!(null));
    client.hang_up();
    assert_eq!(client.ends(), 0);
    // In the middle of a message.
    let mut client = Client::ready(json!({}));
    client.raw(b"Content-Length: 100\r\n\r\n{");
    client.hang_up();
    assert_eq!(client.ends(), 1);
}

#[test]
fn the_death_of_the_parent() {
    let mut parent = Command::new("sleep").arg("60").spawn().expect("started");
    let mut client = Client::start();
    client.request("initialize", json!({"processId": parent.id(), "capabilities": {}}));
    parent.kill().and_then(|()| parent.wait()).expect("ended");
    // The stream is still open.
    let start = Instant::now();
    assert_eq!(client.ends(), 1);
    assert!(start.elapsed() < LIMIT);
}

#[test]
fn noise_is_answered_and_survived() {
    let mut client = Client::ready(json!({}));
    client.raw(b"Content-Length: 9\r\n\r\n{\"id\": 7,");
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32700);
    for (message, code) in [
        (json!([]), -32600),
        (json!({"jsonrpc": "2.0"}), -32600),
        (json!({"jsonrpc": "2.0", "id": 900, "method": 7}), -32600),
    ] {
        client.send(&message);
        let id = message.get("id").cloned().unwrap_or(Value::Null);
        assert_eq!(client.answer(&id)["error"]["code"], code, "{message}");
    }
    let unknown = client.request("textDocument/nothing", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
    client.notify("textDocument/nothing", json!({}));
    client.notify("textDocument/didChange", json!({"textDocument": {"uri": "file:///no.mon"}}));
    client.notify("textDocument/didOpen", json!(null));
    let text_ids = json!({"jsonrpc": "2.0", "id": "a", "method": "textDocument/hover",
                          "params": {"textDocument": {"uri": "file:///no.mon"}}});
    client.send(&text_ids);
    assert_eq!(client.answer(&json!("a"))["error"]["code"], -32602);
    for params in [json!({}), json!(7), json!({"textDocument": 7}), json!({"textDocument": {}})] {
        let answer = client.request("textDocument/completion", params);
        assert_eq!(answer["error"]["code"], -32602);
    }
    // Longer than is read: skipped.
    let long = 33 << 20;
    client.raw(format!("Content-Length: {long}\r\n\r\n").as_bytes());
    client.raw(&vec![b' '; long]);
    assert_eq!(client.answer(&Value::Null)["error"]["code"], -32700);
    let uri = client.open("a.mon", "param a: int = 1\n");
    assert_eq!(client.at("hover", &uri, 0, 7)["contents"]["kind"], "markdown");
    // Places that are nowhere.
    for (line, column) in [(0, 9999), (9999, 0), (u32::MAX, u32::MAX)] {
        client.at("hover", &uri, line, column);
        client.at("completion", &uri, line, column);
    }
    let wrong = client.request(
        "textDocument/hover",
        json!({"textDocument": {"uri": uri}, "position": {"line": -1, "character": 0.5}}),
    );
    assert_eq!(wrong["error"]["code"], -32602);
}

#[test]
fn a_request_that_was_cancelled_is_not_worked_on() {
    let mut client = Client::ready(json!({}));
    let uri = client.open("a.mon", &super::client::example("chargpt.mon"));
    let params = json!({"textDocument": {"uri": uri}, "position": {"line": 20, "character": 5}});
    // All in one piece, so that they wait together.
    let mut piece = Vec::new();
    let mut add = |message: Value| {
        let text = message.to_string();
        piece.extend(format!("Content-Length: {}\r\n\r\n{text}", text.len()).bytes());
    };
    for id in 100..140 {
        add(json!({"jsonrpc": "2.0", "id": id, "method": "textDocument/hover", "params": params}));
    }
    add(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 139}}));
    client.raw(&piece);
    let answer = client.answer(&json!(139));
    // It may have been answered before the word came; then with a result.
    let cancelled = answer["error"]["code"] == -32800;
    assert!(cancelled || answer.get("result").is_some(), "{answer}");
    for id in 100..139 {
        assert!(client.answer(&json!(id)).get("result").is_some());
    }
}
