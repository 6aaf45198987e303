//! The files for editors agree with the language.

use serde_json::Value;

fn grammar() -> Value {
    let text = include_str!("../editors/vscode/syntaxes/mon.tmLanguage.json");
    serde_json::from_str(text).expect("JSON")
}

/// Calls `found` with every pattern.
fn patterns(value: &Value, found: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str() {
                    Some(text) if matches!(key.as_str(), "match" | "begin" | "end") => found(text),
                    _ => patterns(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|v| patterns(v, found)),
        _ => {}
    }
}

#[test]
fn every_word_of_the_language_is_coloured() {
    let mut words: Vec<String> = Vec::new();
    patterns(&grammar(), &mut |pattern| {
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // `\b` is no letter of a word.
        let plain = pattern.replace("\\b", " ").replace("\\s", " ");
        words.extend(plain.split(|c| !letter(c)).map(str::to_owned));
    });
    let blocks = ["model", "data", "train", "plan", "cluster", "sweep", "test"];
    for word in monarch_syntax::reserved_words().iter().chain(&blocks) {
        assert!(words.iter().any(|w| w == word), "`{word}` is not in the grammar");
    }
}

#[test]
fn includes_lead_somewhere() {
    let grammar = grammar();
    let text = grammar.to_string();
    for (_, rest) in
        text.match_indices("\"include\":\"#").map(|(at, m)| (at, &text[at + m.len()..]))
    {
        let name = rest.split('"').next().expect("a name");
        assert!(grammar["repository"][name].is_object(), "no `{name}`");
    }
}

#[test]
fn the_extension_starts_the_server() {
    let package: Value =
        serde_json::from_str(include_str!("../editors/vscode/package.json")).expect("JSON");
    let language = &package["contributes"]["languages"][0];
    assert_eq!(language["extensions"][0], ".mon");
    let files = [
        &package["main"],
        &language["configuration"],
        &package["contributes"]["grammars"][0]["path"],
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("editors/vscode");
    for file in files {
        assert!(folder.join(file.as_str().expect("a path")).is_file(), "{file}");
    }
    let config = include_str!("../editors/vscode/language-configuration.json");
    serde_json::from_str::<Value>(config).expect("JSON");
}
