//! Texts that change: diagnostics follow, and the newest text wins.

use super::client::{Client, edited, place};
use serde_json::{Value, json};

fn codes(diagnostics: &[Value]) -> Vec<&str> {
    diagnostics.iter().map(|d| d["code"].as_str().expect("a code")).collect()
}

const LAYER: &str = "layer A[D] {\n  forward(x: [B, D]) -> [B, D] = x\n}\n";

#[test]
fn places_are_counted_in_utf16() {
    let mut client = Client::ready(json!({}));
    // An emoji is two units, an accent one, a tab one; lines end in CR LF.
    let text = format!(
        "## caf\u{e9} \u{1f600}\r\n{LAYER}model m = A[D = 3] # \u{1f600}\r\n\
                        param p: string = \"\u{1f600}\u{1f600}\"\tin nowher\r\n\
                        model n = A[D = q]\r\n"
    );
    let uri = client.open("a.mon", &text);
    let found = client.diagnostics(&uri, 1);
    let q = found.iter().find(|d| d["message"].as_str().is_some_and(|m| m.contains("`q`")));
    let (line, column) = place(&text, "q]", 0, 0);
    let start = json!({"line": line, "character": column});
    assert_eq!(q.expect("unknown q")["range"]["start"], start, "{found:#?}");
    let nowhere =
        found.iter().find(|d| d["message"].as_str().is_some_and(|m| m.contains("nowher")));
    if let Some(nowhere) = nowhere {
        let (line, column) = place(&text, "nowher", 0, 0);
        assert_eq!(nowhere["range"]["start"], json!({"line": line, "character": column}));
    }
    // After the emojis of a line, an edit by units.
    let (line, column) = place(&text, "nowher", 0, 0);
    let range = json!({"start": {"line": line, "character": column - 3},
                       "end": {"line": line, "character": column + 6}});
    client.change(&uri, 2, json!([{"range": range, "text": ""}]));
    let (line, column) = place(&text, "q]", 0, 0);
    let range = json!({"start": {"line": line, "character": column},
                       "end": {"line": line, "character": column + 1}});
    client.change(&uri, 3, json!([{"range": range, "text": "4"}]));
    let found = client.diagnostics(&uri, 3);
    assert!(found.iter().all(|d| d["severity"] != 1), "{found:#?}");
}

#[test]
fn the_newest_text_wins() {
    let mut client = Client::ready(json!({}));
    let uri = client.open("a.mon", LAYER);
    for version in 2..60 {
        let text = format!("{LAYER}model m{version} = A[D = {version}] q\n");
        client.change(&uri, version, json!([{"text": text}]));
    }
    client.change(&uri, 60, json!([{"text": format!("{LAYER}model last = A[D = oops]\n")}]));
    let found = client.diagnostics(&uri, 60);
    assert!(found[0]["message"].as_str().expect("a text").contains("oops"), "{found:#?}");
    // Whoever asks meanwhile is answered about the newest text too.
    client.change(&uri, 61, json!([{"text": "param fresh: int = 1\n"}]));
    let hover = client.at("hover", &uri, 0, 7);
    assert!(hover["contents"]["value"].as_str().expect("a text").contains("fresh"));
    assert!(client.diagnostics(&uri, 61).iter().all(|d| d["severity"] != 1));
}

#[test]
fn imports_are_seen_as_they_are_typed() {
    let mut client = Client::ready(json!({}));
    std::fs::write(client.path("layers.mon"), LAYER).expect("written");
    let job = "use \"layers.mon\" as own\nmodel m = own.A[D = 3]\n";
    let uri = client.open("job.mon", job);
    assert!(client.diagnostics(&uri, 1).iter().all(|d| d["severity"] != 1));
    // The same file, changed in the editor and not saved.
    let layers = client.open("layers.mon", &LAYER.replace("A[D]", "Other[D]"));
    assert!(client.diagnostics(&layers, 1).iter().all(|d| d["severity"] != 1));
    let found = client.diagnostics(&uri, 1);
    assert_eq!(codes(&found), ["M0108"], "{found:#?}");
    client.notify("textDocument/didClose", json!({"textDocument": {"uri": layers}}));
    assert!(client.diagnostics(&uri, 1).iter().all(|d| d["severity"] != 1));
    // An error in a file that is not open is shown in that file, and taken away when it is gone.
    std::fs::write(client.path("layers.mon"), LAYER.replace("= x", "= y")).expect("written");
    client.notify("textDocument/didSave", json!({"textDocument": {"uri": uri}}));
    let of_file = |m: &Value| {
        m["method"] == "textDocument/publishDiagnostics"
            && m["params"]["uri"].as_str().is_some_and(|u| u.ends_with("layers.mon"))
            && m["params"].get("version").is_none()
    };
    let first = client.wait(of_file);
    let first = match first["params"]["diagnostics"].as_array().expect("a list").is_empty() {
        // That of the document which was closed.
        true => client.wait(of_file),
        false => first,
    };
    assert_eq!(first["params"]["diagnostics"][0]["code"], "M0106", "{first:#}");
    std::fs::write(client.path("layers.mon"), LAYER).expect("written");
    client.notify("workspace/didChangeWatchedFiles", json!({"changes": []}));
    let last = client.wait(of_file);
    assert_eq!(last["params"]["diagnostics"], json!([]));
}

#[test]
fn labels_and_helps_come_along() {
    let mut client = Client::ready(json!({}));
    let text = "layer A[D, F] {\n  up: [D, F] ~ ones\n  down: [F, D] ~ ones\n  \
                forward(x: [B, D]) -> [B, D] = x @ up @ up * sum(down, over = D)\n}\n";
    let uri = client.open("a.mon", text);
    let found = client.diagnostics(&uri, 1);
    let at = found.iter().find(|d| d["code"] == "M0201").expect("M0201");
    let message = at["message"].as_str().expect("a text");
    assert!(message.contains("`@` joins F with D") && message.contains("help: "), "{message}");
    let related = at["relatedInformation"].as_array().expect("labels");
    assert!(related.iter().any(|r| r["message"] == "declared here"), "{at:#}");
    assert_eq!(related[0]["location"]["uri"], uri);
    // The quick fix of that diagnostic makes the product right.
    let range = at["range"].clone();
    let params =
        json!({"textDocument": {"uri": uri}, "range": range, "context": {"diagnostics": []}});
    let actions = client.request("textDocument/codeAction", params)["result"].clone();
    let fix = actions.as_array().expect("actions").iter().find(|a| a["kind"] == "quickfix");
    let fix = fix.expect("a quick fix");
    assert_eq!(fix["isPreferred"], true);
    let fixed = edited(text, &fix["edit"]["changes"][&uri]);
    assert!(fixed.contains("x @ up @ down"), "{fixed}");
    client.change(&uri, 2, json!([{"text": fixed}]));
    assert!(client.diagnostics(&uri, 2).iter().all(|d| d["code"] != "M0201"));
}
