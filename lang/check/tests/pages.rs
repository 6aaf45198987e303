//! The programs on the pages of the checker's codes do what the pages say.

mod common;

use common::{Memory, shown};
use monarch_diagnostic::pages;

/// Codes of the parser, of the planner and of running tests are tested where they are given.
fn own(code: &str) -> bool {
    if matches!(code, "M1001" | "M1002" | "M1005") {
        return false;
    }
    let parser = ("M0001".."M0020").contains(&code);
    let planner = code.starts_with("M03") || code.starts_with("M04");
    !parser && !planner
}

#[test]
fn failing_programs_fail_and_fixed_ones_do_not() {
    let mut seen = 0;
    for page in pages().iter().filter(|page| own(page.code)) {
        let programs = page.programs();
        let [bad, good] = programs.as_slice() else {
            assert!(programs.is_empty(), "{} has one program", page.code);
            continue;
        };
        seen += 1;
        let checked = Memory::with("page.mon", bad).check("page.mon");
        let gate = checked.program.as_ref().map(monarch_check::run_gate).unwrap_or_default();
        let found = || checked.diagnostics.iter().chain(&gate);
        assert!(found().any(|d| d.code == page.code), "{}: {}", page.code, shown(&checked));
        let mut errors = found().filter(|d| d.is_error());
        assert!(errors.all(|d| d.code == page.code), "{}: {}", page.code, shown(&checked));
        let checked = Memory::with("page.mon", good).check("page.mon");
        let clean = checked.diagnostics.iter().all(|d| d.code != page.code && !d.is_error());
        assert!(clean && checked.program.is_some(), "{}: {}", page.code, shown(&checked));
        let runs = checked.program.as_ref().is_some_and(|p| monarch_check::run_gate(p).is_empty());
        // Layouts of machines that are only declared are planned, not run.
        assert!(
            runs || page.code.starts_with("M08"),
            "{}: the fixed program is not run",
            page.code
        );
    }
    assert!(seen > 50, "{seen} pages with programs");
}

/// Every code that the checker can give has a page.
#[test]
fn every_code_has_a_page() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut missing = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("sources") {
            let path = entry.expect("a file").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for (at, _) in text.match_indices("\"M") {
                let code = text.get(at + 1..at + 6).unwrap_or("");
                let is_code = code.len() == 5 && code[1..].bytes().all(|b| b.is_ascii_digit());
                if is_code && monarch_diagnostic::page(code).is_none() {
                    missing.push(code.to_owned());
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
