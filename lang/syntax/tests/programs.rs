//! The four programs of `examples/` parse without a word.

use std::path::PathBuf;

use monarch_syntax::ast::*;
use monarch_syntax::parse;

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn no_diagnostics() {
    for name in ["digits.mon", "chargpt.mon", "llama3d.mon", "lora.mon"] {
        let (file, diagnostics) = parse(0, &read(name));
        assert!(diagnostics.is_empty(), "{name}: {diagnostics:#?}");
        assert!(file.items.len() > 8, "{name}: {}", file.items.len());
        assert!(!file.items.iter().any(|item| matches!(item.kind, ItemKind::Broken(_))));
    }
}
