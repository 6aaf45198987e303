//! Wrong programs: `tests/suite/*.mon` say beside the code what is wrong and where,
//! `# error M0201 30:53`, and nothing else may be said. `# gate M0906 12:3`: the check accepts it,
//! and a run refuses it.

mod common;

use common::{Memory, shown};
use monarch_diagnostic::Diagnostic;
use std::collections::BTreeMap;

/// Files beside each program: a text, columns, weights; see `common`.
fn cases() -> BTreeMap<String, String> {
    let folder = format!("{}/../../tests/suite", env!("CARGO_MANIFEST_DIR"));
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the suite is there") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|e| e == "mon") {
            let name = path.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
            out.insert(name, std::fs::read_to_string(&path).expect("a text"));
        }
    }
    out
}

/// `error M0201 30:53` for each expectation written in a program.
fn expected(program: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in program.lines() {
        for word in ["# error ", "# warning ", "# note ", "# gate "] {
            let mut rest = line;
            while let Some((_, after)) = rest.split_once(word) {
                let mut parts = after.split_whitespace();
                let (code, place) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
                out.push(format!("{} {code} {place}", word.trim_matches(['#', ' '])));
                rest = after;
            }
        }
    }
    out.sort();
    out
}

#[test]
fn every_mistake_is_found_where_it_is() {
    let mut wrong = String::new();
    let cases = cases();
    assert!(cases.len() >= 40, "{} cases", cases.len());
    for (name, program) in &cases {
        let checked = Memory::with(name, program).check(name);
        let shown_as = |word: &str, d: &Diagnostic| {
            let at = d.span().and_then(|s| checked.sources.position(s));
            let at = at.map_or(String::new(), |p| format!("{}:{}", p.line, p.column));
            format!("{word} {} {at}", d.code)
        };
        // What is not built yet says so in a note of its own.
        let counts = |d: &&Diagnostic| d.severity.name() != "note" || !d.code.starts_with("M09");
        let said = checked.diagnostics.iter().filter(counts);
        let mut found: Vec<String> = said.map(|d| shown_as(d.severity.name(), d)).collect();
        let gate = checked.program.as_ref().map(monarch_check::run_gate).unwrap_or_default();
        found.extend(gate.iter().map(|d| shown_as("gate", d)));
        found.sort();
        if found != expected(program) {
            wrong.push_str(&format!("== {name}: {:?}\n{}", expected(program), shown(&checked)));
        }
        let errors = checked.diagnostics.iter().any(|d| d.is_error());
        // Without its files a program may be right and not there.
        let here = checked.absent.is_empty();
        assert!(checked.program.is_some() != errors || !here, "{name}");
        assert!(!errors || checked.program.is_none(), "{name}");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
