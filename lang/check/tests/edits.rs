//! Edits in help: each, applied to its program of the suite, leaves a program without that
//! diagnostic and without a new error.

mod common;

use common::{Memory, shown};
use monarch_check::Checked;
use monarch_diagnostic::Edit;
use std::collections::{BTreeMap, BTreeSet};

fn suite() -> Vec<(String, String)> {
    let folder = format!("{}/../../tests/suite", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(folder).expect("the suite is there");
    let mut all: Vec<(String, String)> = entries
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "mon"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a text"))
        })
        .collect();
    all.sort();
    all
}

/// The text after all edits of one help; `None` if one lies in another file or two overlap.
fn applied(text: &str, edits: &[Edit]) -> Option<String> {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut out = String::new();
    let mut at = 0;
    for edit in edits {
        let (start, end) = (edit.span.start as usize, edit.span.end as usize);
        if edit.span.file != 0 || start < at {
            return None;
        }
        out.push_str(text.get(at..start)?);
        out.push_str(&edit.replacement);
        at = end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

/// How often each error is given, by code and title.
fn errors(checked: &Checked) -> BTreeMap<(String, String), usize> {
    let mut out = BTreeMap::new();
    for d in checked.diagnostics.iter().filter(|d| d.is_error()) {
        *out.entry((d.code.to_owned(), d.title.clone())).or_default() += 1;
    }
    out
}

/// Mistakes that an edit brings to light: what they are about was not looked at before, since the
/// name of the setting, the block or the value beside it was not known.
const REVEALED: &[(&str, &str, &str)] = &[
    // The corpus of the test is smaller than the batch.
    ("batch_unit.mon", "M0103", "M0506"),
    // The value of a setting, once its name is right.
    ("elsewhere.mon", "M0101", "M0103"),
    // A layer that begins as one has to have a `forward`.
    ("follows.mon", "M0100", "M0217"),
    // The right name is there already, beside the wrong one.
    ("overlap.mon", "M0101", "M0105"),
    ("shard_axes.mon", "M0803", "M0105"),
    ("recompute_globs.mon", "M0106", "M0124"),
    ("sequence.mon", "M0802", "M0801"),
    // Both sizes are swapped, and each has its edit.
    ("sizes_swapped.mon", "M0212", "M0212"),
    // A list of hashes is only read once it is called one.
    ("tokens_hashes.mon", "M0106", "M0609"),
    ("fault_unknown.mon", "M0101", "*"),
    ("metrics_every.mon", "M0101", "*"),
    ("metrics_names.mon", "M0110", "*"),
    ("unit_wrong.mon", "M0103", "*"),
    // A field of text, once its type is one.
    ("records_fields.mon", "M0121", "M0602"),
    // The value of a bound, once its name is right.
    ("sweep_values.mon", "M0101", "M0111"),
    // A plan of many misspelt settings: with one of them right, the others are still missing.
    ("mesh_axes.mon", "M0101", "*"),
    ("plan_settings.mon", "M0101", "*"),
    // `2B` may be bytes or a count; the type of the param decides between its edits.
    ("unit_ambiguous.mon", "M0104", "*"),
];

/// Whether an error after the edit was there before, unseen.
fn revealed(file: &str, code: &str, new: &str) -> bool {
    let any = |known: &str| known == new || known == "*";
    REVEALED.iter().any(|(f, c, known)| *f == file && *c == code && any(known))
}

#[test]
fn edits_fix_what_they_are_for() {
    let mut with_fix = BTreeSet::new();
    let mut codes = BTreeSet::new();
    let (mut tried, mut wrong) = (0, String::new());
    for (name, text) in suite() {
        let before = Memory::with(&name, &text).check(&name);
        let known = errors(&before);
        for d in &before.diagnostics {
            codes.insert(d.code);
            for help in d.help.iter().filter(|help| !help.edits.is_empty()) {
                tried += 1;
                with_fix.insert(d.code);
                let Some(fixed) = applied(&text, &help.edits) else {
                    wrong.push_str(&format!("{name} {}: edits that overlap\n", d.code));
                    continue;
                };
                let after = Memory::with(&name, &fixed).check(&name);
                let count = |checked: &Checked| {
                    let same = |other: &&monarch_diagnostic::Diagnostic| {
                        other.code == d.code && other.title == d.title
                    };
                    checked.diagnostics.iter().filter(same).count()
                };
                let gone = count(&after) < count(&before);
                let new: Vec<_> = errors(&after)
                    .into_iter()
                    .filter(|(error, n)| *n > known.get(error).copied().unwrap_or(0))
                    .filter(|((code, _), _)| !revealed(&name, d.code, code))
                    .collect();
                if !gone || !new.is_empty() {
                    wrong.push_str(&format!(
                        "== {name}: {} {}: `{}` {}\n{new:?}\n{}",
                        d.code,
                        d.title,
                        help.text,
                        if gone { "brings new errors" } else { "does not fix it" },
                        shown(&after)
                    ));
                }
            }
        }
    }
    println!(
        "{tried} edits of {} codes of {} in the suite: {with_fix:?}",
        with_fix.len(),
        codes.len()
    );
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(with_fix.len() >= 15, "{with_fix:?}");
}
