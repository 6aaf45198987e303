//! Each feature once, over the wire.

use super::client::{Client, edited, example, place};
use serde_json::{Value, json};

fn opened(name: &str, options: Value) -> (Client, String, String) {
    let mut client = Client::ready(options);
    let text = example(name).replace("../{lang,runtime,stdlib}/**/*.{rs,mon}", "corpus.txt");
    std::fs::write(client.path("corpus.txt"), "to be or not to be ".repeat(3000)).expect("written");
    let uri = client.open(name, &text);
    (client, uri, text)
}

#[test]
fn hover_and_hints() {
    let (mut client, uri, text) = opened("chargpt.mon", json!({}));
    let (line, column) = place(&text, "x @ up)", 0, 2);
    let hover = client.at("hover", &uri, line, column);
    let said = hover["contents"]["value"].as_str().expect("a text");
    assert!(said.contains("`[B, T, F]` = `[B, 256, 1536]`") && said.contains("FLOP"), "{said}");
    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}});
    let params = json!({"textDocument": {"uri": uri}, "range": range});
    let hints = client.request("textDocument/inlayHint", params)["result"].clone();
    let labels: Vec<&str> =
        hints.as_array().expect("hints").iter().filter_map(|h| h["label"].as_str()).collect();
    assert!(labels.contains(&"= 64") && labels.contains(&": [B, H, T, S]"), "{labels:?}");
    assert_eq!(client.at("hover", &uri, 9999, 0), Value::Null);
}

#[test]
fn completion_in_the_middle_of_a_word() {
    let (mut client, uri, text) = opened("chargpt.mon", json!({}));
    let (line, column) = place(&text, "  batch = 64", 0, 0);
    let range = json!({"start": {"line": line, "character": column},
                       "end": {"line": line, "character": column + 12}});
    client.change(&uri, 2, json!([{"range": range, "text": "  bat"}]));
    let list = client.at("completion", &uri, line, 5);
    let items = list["items"].as_array().expect("items");
    let batch = items.iter().find(|i| i["label"] == "batch").expect("batch");
    assert_eq!(batch["textEdit"]["newText"], "batch = ");
    assert_eq!(batch["textEdit"]["range"]["start"]["character"], 2);
    assert!(batch["documentation"]["value"].as_str().expect("docs").contains("Size of one step"));
    let eval = |i: &Value| i["label"] == "fault" && i["insertTextFormat"] == 2;
    assert!(items.iter().any(eval), "{items:?}");
    let help = client.at("signatureHelp", &uri, 0, 0);
    assert_eq!(help, Value::Null);
    let (line, column) = place(&text, "causal(score), over", 0, 7);
    let help = client.at("signatureHelp", &uri, line, column);
    assert_eq!(help["signatures"][0]["label"], "causal(x: f32[.., T, S])");
}

#[test]
fn definitions_lead_into_the_library() {
    let (mut client, uri, text) = opened("chargpt.mon", json!({}));
    let (line, column) = place(&text, "= RmsNorm[D]", 0, 4);
    let found = client.at("definition", &uri, line, column);
    let file = found["uri"].as_str().and_then(|u| u.strip_prefix("file://")).expect("a file");
    let library = std::fs::read_to_string(file).expect("readable");
    let at = found["range"]["start"]["line"].as_u64().expect("a line") as usize;
    assert!(library.lines().nth(at).expect("a line").starts_with("layer RmsNorm[D]"));
    assert!(file.contains("/cache/monarch/") && file.ends_with("/std/nn.mon"), "{file}");
    // A client that shows the library itself.
    let (mut client, uri, text) = opened("chargpt.mon", json!({"libraryScheme": true}));
    let (line, column) = place(&text, "= RmsNorm[D]", 0, 4);
    let found = client.at("definition", &uri, line, column);
    assert_eq!(found["uri"], "monarch-std:/std/nn.mon");
    let source = client.request("monarch/source", json!({"uri": found["uri"]}))["result"].clone();
    let library = source["text"].as_str().expect("a text").to_owned();
    assert!(library.contains("layer RmsNorm[D]"));
    let page = client.request("monarch/source", json!({"uri": "monarch-std:/codes/M0201.md"}));
    assert!(page["result"]["text"].as_str().expect("a page").contains("M0201"));
    let nothing = client.request("monarch/source", json!({"uri": "monarch-std:/../etc/passwd"}));
    assert_eq!(nothing["error"]["code"], -32602);
    // In the library everything works as in a job, and nothing is complained about.
    client.open_uri("monarch-std:/std/nn.mon", &library);
    assert!(client.diagnostics("monarch-std:/std/nn.mon", 1).is_empty());
    let (line, column) = place(&library, "= rms_norm(x", 0, 3);
    let inner = client.at("definition", "monarch-std:/std/nn.mon", line, column);
    let (line, _) = place(&library, "op rms_norm", 0, 0);
    assert_eq!(inner["range"]["start"]["line"], line);
    assert_eq!(inner["uri"], "monarch-std:/std/nn.mon");
}

#[test]
fn renames() {
    let (mut client, uri, text) = opened("chargpt.mon", json!({}));
    let (line, column) = place(&text, "layer Mlp[D, F]", 0, 13);
    let prepared = client.at("prepareRename", &uri, line, column);
    assert_eq!(prepared["placeholder"], "F");
    let ask = |new: &str| {
        json!({"textDocument": {"uri": uri}, "newName": new,
               "position": {"line": line, "character": column}})
    };
    let edit = client.request("textDocument/rename", ask("Hidden"))["result"].clone();
    let renamed = edited(&text, &edit["changes"][&uri]);
    assert!(renamed.contains("layer Mlp[D, Hidden]") && renamed.contains("Hidden = 4 * D"));
    client.change(&uri, 2, json!([{"text": renamed}]));
    assert!(client.diagnostics(&uri, 2).iter().all(|d| d["severity"] != 1));
    client.change(&uri, 3, json!([{"text": text}]));
    let refused = client.request("textDocument/rename", ask("D"));
    let why = refused["error"]["message"].as_str().expect("a reason");
    assert!(why.contains("taken: axis `D`"), "{why}");
    let (line, column) = place(&text, "softmax(causal", 0, 2);
    let params = json!({"textDocument": {"uri": uri},
                        "position": {"line": line, "character": column}});
    let refused = client.request("textDocument/prepareRename", params);
    assert!(refused["error"]["message"].as_str().expect("why").contains("standard library"));
}

#[test]
fn outline_references_and_fixing_all() {
    let (mut client, uri, text) = opened("digits.mon", json!({}));
    let params = json!({"textDocument": {"uri": uri}});
    let outline = client.request("textDocument/documentSymbol", params)["result"].clone();
    let names: Vec<&str> =
        outline.as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names[..5], ["width", "lr", "Mlp", "net", "images"]);
    let (line, column) = place(&text, "param width", 0, 7);
    let params = json!({"textDocument": {"uri": uri}, "context": {"includeDeclaration": false},
                        "position": {"line": line, "character": column}});
    let uses = client.request("textDocument/references", params)["result"].clone();
    assert_eq!(uses.as_array().expect("a list").len(), 1);
    assert_eq!(
        client.at("documentHighlight", &uri, line, column).as_array().map(Vec::len),
        Some(2)
    );
    let wrong = text.replace("  batch = 64", "  bach = 64").replace("  optim =", "  optm =");
    client.change(&uri, 2, json!([{"text": wrong}]));
    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}});
    let context = json!({"diagnostics": [], "only": ["source.fixAll"]});
    let params = json!({"textDocument": {"uri": uri}, "range": range, "context": context});
    let actions = client.request("textDocument/codeAction", params)["result"].clone();
    assert_eq!(actions.as_array().map(Vec::len), Some(1), "{actions:#}");
    assert_eq!(edited(&wrong, &actions[0]["edit"]["changes"][&uri]), text);
}

#[test]
fn formatting_touches_only_what_changes() {
    let mut client = Client::ready(json!({}));
    let head = "param a: int = 1\n\nlayer A[D] {\n";
    let tail = "  forward(x: [B, D]) -> [B, D] = x * w\n}\n\nmodel m = A[D = 3]\n";
    let text = format!("{head}  w:[D]~ones   # \u{1f600}\n{tail}");
    let uri = client.open("a.mon", &text);
    let options = json!({"tabSize": 2, "insertSpaces": true});
    let params = json!({"textDocument": {"uri": uri}, "options": options});
    let edits = client.request("textDocument/formatting", params.clone())["result"].clone();
    let formatted = edited(&text, &edits);
    assert!(formatted.starts_with(head) && formatted.contains("  w: [D] ~ ones"), "{formatted}");
    assert!(formatted.contains("# \u{1f600}\n") && formatted.ends_with(tail), "{formatted}");
    let line = edits[0]["range"]["start"]["line"].as_u64();
    assert_eq!((edits.as_array().map(Vec::len), line), (Some(1), Some(3)), "{edits:#}");
    client.change(&uri, 2, json!([{"text": formatted}]));
    let again = client.request("textDocument/formatting", params)["result"].clone();
    assert_eq!(again, json!([]));
}
