//! A folder in which a page's commands are carried out.

use super::root;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub struct Folder(TempDir);

impl Folder {
    /// A fresh folder with the data of `tests/guide/files`.
    pub fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        copy(&root().join("tests/guide/files"), folder.0.path());
        folder
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        let parent = path.parent().expect("a file lies in a folder");
        fs::create_dir_all(parent).expect("a folder can be made");
        fs::write(&path, text).expect("a file can be written");
    }

    /// Carries out one line of a shell; what it printed.
    pub fn command(&self, at: &str, line: &str) -> String {
        let (command, expected) = match line.rsplit_once("# exit ") {
            Some((command, code)) => (command, code.trim().parse().expect("a number")),
            None => (line, 0),
        };
        let binary = Path::new(env!("CARGO_BIN_EXE_monarch")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let done = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(self.0.path())
            .env("PATH", format!("{}:{path}", binary.display()))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let printed = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.status.code(), Some(expected), "{at}: `{line}` printed\n{printed}");
        printed
    }

    /// Checks a program, which keeps its name if it has one.
    pub fn check(&self, at: &str, name: Option<&str>, wrong: Option<&str>, text: &str) {
        let file = name.unwrap_or("program.mon");
        self.write(file, text);
        let exit = if wrong.is_some() { 2 } else { 0 };
        let printed = self.command(at, &format!("monarch check {file} # exit {exit}"));
        let errors: Vec<&str> = printed.lines().filter(|l| is_error(l)).collect();
        match wrong {
            None => assert!(errors.is_empty(), "{at}:\n{printed}"),
            Some(code) => {
                assert!(errors.len() == 1 && errors[0].starts_with(code), "{at}:\n{printed}");
            }
        }
        // What people copy is laid out as `fmt` lays it out.
        self.command(at, &format!("monarch fmt --check {file}"));
        if name.is_none() {
            fs::remove_file(self.0.path().join(file)).expect("it was written above");
        }
    }
}

/// `M0201 × ...`
fn is_error(line: &str) -> bool {
    line.starts_with('M') && line.split_whitespace().nth(1) == Some("×")
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder of the tests") {
        let entry = entry.expect("an entry");
        let there = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&there).expect("a folder can be made");
            copy(&entry.path(), &there);
        } else {
            fs::copy(entry.path(), &there).expect("a file can be copied");
        }
    }
}

/// Whole lines; `...` stands for any number of them.
pub fn compare(at: &str, expected: &str, printed: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim_end).collect();
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let fits = matches(&expected, &printed);
    let printed = printed.join("\n");
    assert!(fits, "{at}: the page shows\n{}\nprinted is\n{printed}", expected.join("\n"));
}

fn matches(expected: &[&str], printed: &[&str]) -> bool {
    match expected {
        [] => printed.is_empty(),
        ["...", rest @ ..] => (0..=printed.len()).any(|n| matches(rest, &printed[n..])),
        [line, rest @ ..] => printed.first() == Some(line) && matches(rest, &printed[1..]),
    }
}

#[test]
fn dots_stand_for_lines() {
    assert!(matches(&["a", "...", "c"], &["a", "b", "b", "c"]));
    assert!(matches(&["...", "c", "..."], &["c"]));
    assert!(!matches(&["a", "...", "d"], &["a", "b", "c"]));
    assert!(!matches(&["a"], &["a", "b"]));
}
