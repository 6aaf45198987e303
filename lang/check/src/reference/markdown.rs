//! The whole reference as one page, from the tables that the checker itself uses.

use super::{block_extra, entries, events, hooks};
use crate::library::MODULES;
use crate::registry::{BLOCKS, BlockDoc, Form};
use monarch_diagnostic::pages;
use std::fmt::Write;

/// Markdown: blocks with their settings, events, hooks, units, the library, all diagnostics.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Reference\n\n\
         Printed by `monarch explain --reference`. `monarch explain WORD` shows one entry,\n\
         `monarch show std.nn` the source of a module.\n\n\
         ## Blocks\n",
    );
    let mut blocks: Vec<&BlockDoc> = BLOCKS.iter().collect();
    blocks.sort_by_key(|b| b.name);
    for block in blocks {
        of_block(&mut out, block);
    }
    let _ = writeln!(out, "\n## Events\n\n```text\n{}\n```", events().trim_end());
    let _ = writeln!(out, "\n## Hooks\n\n```text\n{}\n```", hooks().trim_end());
    let _ = writeln!(out, "\n## Units\n\n```text\n{}\n```", crate::units::page().trim_end());
    out.push_str("\n## The standard library\n");
    for (module, text) in MODULES {
        of_module(&mut out, module, text);
    }
    out.push_str("\n## Diagnostics\n\n| code | |\n| --- | --- |\n");
    for page in pages() {
        let code = page.code;
        let title = cell(page.title);
        let _ = writeln!(out, "| [{code}](../diagnostic/codes/{code}.md) | {title} |");
    }
    out
}

fn of_block(out: &mut String, block: &BlockDoc) {
    let _ = writeln!(out, "\n### `{}`\n{}\n", block.name, block.doc);
    out.push_str("| setting | takes | default | |\n| --- | --- | --- | --- |\n");
    for s in block.settings {
        let takes = match s.form {
            Form::Value => cell(s.takes),
            Form::Block => "a block".to_owned(),
            Form::Function => format!("a function of {}", s.takes),
        };
        let default = s.default.map_or(String::new(), |d| format!("`{}`", cell(d)));
        let _ = writeln!(out, "| `{}` | {takes} | {default} | {} |", s.name, cell(s.doc));
    }
    let extra = block_extra(block);
    if !extra.trim().is_empty() {
        let _ = writeln!(out, "\n```text\n{}\n```", extra.trim());
    }
}

fn of_module(out: &mut String, module: &str, text: &str) {
    let about: Vec<&str> = text
        .lines()
        .take_while(|l| l.starts_with("##"))
        .map(|l| l.trim_start_matches('#').trim())
        .collect();
    // The first lines are about the module only when a blank line ends them.
    let about = match text.lines().nth(about.len()) {
        Some("") => about.join("\n"),
        _ => String::new(),
    };
    let _ = writeln!(out, "\n### `{module}`\n{about}");
    for entry in entries(text) {
        let doc = entry.doc();
        let _ = writeln!(out, "\n```text\n{}\n```\n{doc}", entry.signature);
    }
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_place() {
        let page = markdown();
        for block in BLOCKS {
            assert!(page.contains(&format!("### `{}`\n", block.name)), "{}", block.name);
            for setting in block.settings {
                assert!(page.contains(&format!("| `{}` |", setting.name)), "{}", setting.name);
            }
        }
        for (module, text) in MODULES {
            assert!(page.contains(&format!("### `{module}`\n")), "{module}");
            for name in crate::reference::names(text) {
                assert!(page.contains(name), "{name}");
            }
        }
    }
}
