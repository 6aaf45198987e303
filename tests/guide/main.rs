//! The guide of the language is true: each page of `lang/guide` is carried out from top to bottom.
//!
//! - ` ```mon job.mon ` writes that file into the page's own folder; the program must check
//!   without an error. ` ```mon ` alone is a program without a name. After `wrong` (as in
//!   ` ```mon wrong M0201 `) a program must have exactly one error, of that code.
//! - ` ```sh ` is a list of commands, carried out in that folder. Each must succeed, unless its
//!   line ends with `# exit 2`.
//! - ` ```text ` is what the last command printed, standard output and error together, whole
//!   lines; a line `...` stands for any number of lines.
//! - ` ```json name ` and ` ```csv name ` write a file.
//!
//! Data that a page speaks of without showing it lies in `tests/guide/files`.

mod page;
mod run;

use page::{Block, blocks};
use run::Folder;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Carries a page out; the number of its commands and programs.
fn carry_out(name: &str) -> (usize, usize) {
    let path = root().join("lang/guide").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let folder = Folder::new();
    let (mut commands, mut programs) = (0, 0);
    let mut printed = String::new();
    for (line, block) in blocks(&text) {
        let at = format!("lang/guide/{name}:{line}");
        match block {
            Block::File { name, text } => folder.write(&name, &text),
            Block::Program { name, wrong, text } => {
                folder.check(&at, name.as_deref(), wrong.as_deref(), &text);
                programs += 1;
            }
            Block::Commands(lines) => {
                for command in &lines {
                    printed = folder.command(&at, command);
                }
                commands += lines.len();
            }
            Block::Printed(expected) => run::compare(&at, &expected, &printed),
        }
    }
    (commands, programs)
}

#[test]
fn the_tour() {
    let (commands, programs) = carry_out("tour.md");
    assert!(commands >= 8 && programs >= 4, "{commands} commands, {programs} programs");
}

#[test]
fn the_cookbook() {
    let (_, programs) = carry_out("cookbook.md");
    assert!(programs >= 12, "{programs} programs");
}

/// `monarch explain --reference` prints the page from the tables that the checker itself uses;
/// after a change: `UPDATE=1 cargo test -p monarch --test guide`.
#[test]
fn the_reference_is_the_one_that_the_tables_give() {
    let printed = Folder::new().command("reference", "monarch explain --reference");
    let path = root().join("lang/guide/reference.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &printed).expect("the reference can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == printed, "lang/guide/reference.md is old: UPDATE=1 writes it anew");
}
