//! Files under 600 lines, functions under 70, lines under 100 columns.

use super::{files, read};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

#[test]
fn files_and_lines() {
    let mut wrong = Vec::new();
    for file in files(".rs") {
        let text = read(&file);
        let count = text.lines().count();
        if count > FILE_LINES {
            wrong.push(format!("{}: {count} lines", file.display()));
        }
        for (i, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS {
                wrong.push(format!("{}:{}: {columns} columns", file.display(), i + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Functions of formatted code: from a line with `fn` to the `}` of the same indent.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let words = code.split('(').next().unwrap_or_default();
        let is_fn = words.split_whitespace().rev().nth(1) == Some("fn")
            && !code.starts_with("//")
            && !code.ends_with(';');
        if !is_fn {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        if let Some(length) = lines[i..].iter().position(|l| *l == close)
            && length + 1 > FUNCTION_LINES
        {
            found.push((i + 1, length + 1));
        }
    }
    found
}

#[test]
fn functions() {
    let mut wrong = Vec::new();
    for file in files(".rs") {
        for (line, length) in long_functions(&read(&file)) {
            wrong.push(format!("{}:{line}: {length} lines", file.display()));
        }
    }
    assert!(wrong.is_empty(), "functions over {FUNCTION_LINES} lines: {wrong:#?}");
}

#[test]
fn the_rule_can_fail() {
    let body = "    x();\n".repeat(80);
    assert_eq!(long_functions(&format!("fn f() {{\n{body}}}\n")), [(1, 82)]);
}
