//! Standard output: data for people and programs.

use super::Failure;
use monarch::front::Findings;
use monarch_diagnostic::Style;
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal, Write};

/// Version of the JSON that verbs print.
const JSON_VERSION: u32 = 1;

/// Prints a text. A reader that has gone is no failure (`monarch plan .. | head`).
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match result {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// The first line of everything that `--json` prints.
pub fn json_head(verb: &str) -> Result<(), Failure> {
    json_line(&json!({ "monarch": env!("CARGO_PKG_VERSION"), "json": JSON_VERSION, "verb": verb }))
}

pub fn json_line(value: &Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}

/// Colours for a person at a terminal who has not asked for none.
pub fn style() -> Style {
    let colour = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    Style { color: colour, width: columns().unwrap_or(Style::default().width) }
}

/// Columns of the terminal at standard error; None for a pipe, or if it does not say.
fn columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` outlives the call, which writes nothing but it.
    let done = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size) };
    (done == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Shows diagnostics: as JSON on standard output, or to people on standard error.
pub fn findings(findings: &Findings, json: bool) -> Result<(), Failure> {
    if findings.diagnostics.is_empty() {
        return Ok(());
    }
    if json {
        let line = |d| format!("{}\n", monarch_diagnostic::json(d, &findings.sources));
        let lines: Vec<String> = findings.diagnostics.iter().map(line).collect();
        return print(&lines.concat());
    }
    super::progress::eprint_line(findings.text(style()).trim_end());
    Ok(())
}

/// `1 error`, `2 errors and 1 warning`.
pub fn tally(findings: &Findings) -> String {
    let errors = findings.errors();
    let others = findings.diagnostics.len() - errors;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    match (errors, others) {
        (0, 0) => "no errors".to_string(),
        (e, 0) => count(e, "error"),
        (0, w) => format!("no errors, {}", count(w, "remark")),
        (e, w) => format!("{} and {}", count(e, "error"), count(w, "remark")),
    }
}

/// The failure of a program that is wrong.
pub fn wrong_program(found: &Findings, json: bool) -> Failure {
    if let Err(failure) = findings(found, json) {
        return failure;
    }
    let message = if json { String::new() } else { tally(found) };
    Failure { code: 2, message }
}
