//! The house rules that a machine can check: who may depend on whom, how long a file, a function
//! and a line may be, that every diagnostic has a page and a test, that every example which can
//! be planned has its golden plan, and what stands at the top level.

mod layers;
mod sizes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Files that git tracks or would track, relative to the root.
fn files(extension: &str) -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let listing = String::from_utf8(out.stdout).expect("UTF-8 paths");
    let mut files: Vec<PathBuf> = listing
        .lines()
        .filter(|l| l.ends_with(extension))
        .map(PathBuf::from)
        .filter(|p| root().join(p).exists())
        .collect();
    files.sort();
    files.dedup();
    assert!(!files.is_empty(), "no {extension} files found: does git see the checkout?");
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn top_level_is_as_drawn() {
    let allowed =
        ["Cargo.toml", "Cargo.lock", "README.md", "lang", "runtime", "stdlib", "examples", "tests"];
    for file in files("") {
        let first = file.iter().next().and_then(|s| s.to_str()).unwrap_or_default();
        let known = allowed.contains(&first) || first.starts_with('.');
        assert!(known, "`{first}` does not belong at the top level");
    }
}

/// A code has a test when a test or a golden file names it, or when its page shows programs, for
/// `lang/check/tests/pages.rs` runs those.
#[test]
fn every_diagnostic_has_a_test() {
    let mut tests = String::new();
    for file in files(".rs").iter().chain(&files(".mon")).chain(&files(".txt")) {
        if file.to_string_lossy().contains("test") {
            tests.push_str(&read(file));
        }
    }
    let mut missing = Vec::new();
    for file in files(".md") {
        if file.starts_with("lang/diagnostic/codes") {
            let code = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_string();
            let shows = read(&file).matches("```mon").count() >= 2;
            if !tests.contains(&code) && !shows {
                missing.push(code);
            }
        }
    }
    assert!(missing.is_empty(), "diagnostics without a test: {missing:?}");
}

#[test]
fn every_diagnostic_has_a_page() {
    let pages: Vec<String> = files(".md")
        .iter()
        .filter(|f| f.starts_with("lang/diagnostic/codes"))
        .filter_map(|f| Some(f.file_stem()?.to_str()?.to_string()))
        .collect();
    let mut missing = Vec::new();
    for file in files(".rs") {
        if !file.starts_with("lang") || file.to_string_lossy().contains("/tests/") {
            continue;
        }
        let text = read(&file);
        for part in text.split("\"M").skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let code = format!("M{digits}");
            let quoted = part[digits.len()..].starts_with('"');
            if digits.len() == 4 && quoted && !pages.contains(&code) {
                missing.push(format!("{code} in {}", file.display()));
            }
        }
    }
    missing.dedup();
    assert!(missing.is_empty(), "codes without a page: {missing:#?}");
}

#[test]
fn every_example_has_a_golden_plan() {
    for file in files(".mon") {
        let name = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_string();
        if file.starts_with("examples") {
            let golden = root().join(format!("tests/golden/{name}.plan.txt"));
            assert!(golden.exists(), "{} has no {}", file.display(), golden.display());
        }
    }
}

#[test]
fn nothing_is_left_undone() {
    let words = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ig", "nore")];
    for file in files(".rs") {
        let text = read(&file);
        for word in words {
            assert!(!text.contains(word), "{} contains `{word}`", file.display());
        }
    }
}
