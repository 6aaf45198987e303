//! Finding files by a pattern, the same list on every machine.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MAX_ALTERNATIVES: usize = 1024;
const MAX_ENTRIES: usize = 1_000_000;
const MAX_DEPTH: usize = 64;

/// Why a pattern finds nothing to say.
#[derive(Debug)]
pub enum GlobError {
    /// The pattern itself is wrong.
    Pattern {
        pattern: String,
        what: &'static str,
    },
    Io {
        path: String,
        error: io::Error,
    },
    /// More than a million directory entries, or directories deeper than 64.
    TooMany {
        pattern: String,
        path: String,
    },
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlobError::Pattern { pattern, what } => write!(f, "the pattern `{pattern}` {what}"),
            GlobError::Io { path, error } => write!(f, "cannot list `{path}`: {error}"),
            GlobError::TooMany { pattern, path } => write!(
                f,
                "the pattern `{pattern}` leads through too many files (stopped at `{path}`); make \
                 it narrower"
            ),
        }
    }
}

impl std::error::Error for GlobError {}

/// Regular files that match `pattern`, sorted, each once; empty when there are none.
///
/// `*` and `?` match within a name, `[a-z]` and `[!a-z]` one character, `**` any directories,
/// `{a,b}` alternatives and `{000..255}` numbers of that many digits. Wildcards do not match a
/// leading dot. A pattern that does not begin with `/` is relative to `base`. `**` does not follow
/// symbolic links, so that a loop ends.
pub fn glob(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, GlobError> {
    let mut walk = Walk { pattern, entries: 0, found: BTreeSet::new() };
    for alternative in expand(pattern)? {
        let parts: Vec<&str> = alternative.split('/').filter(|p| !p.is_empty()).collect();
        for part in &parts {
            check_part(part).map_err(|what| walk.wrong(what))?;
        }
        let start = if alternative.starts_with('/') { Path::new("/") } else { base };
        walk.visit(start, &parts, 0)?;
    }
    Ok(walk.found.into_iter().collect())
}

struct Walk<'a> {
    pattern: &'a str,
    entries: usize,
    found: BTreeSet<PathBuf>,
}

impl Walk<'_> {
    fn wrong(&self, what: &'static str) -> GlobError {
        GlobError::Pattern { pattern: self.pattern.to_string(), what }
    }

    fn visit(&mut self, dir: &Path, parts: &[&str], depth: usize) -> Result<(), GlobError> {
        let Some((&part, rest)) = parts.split_first() else {
            return Ok(());
        };
        if depth > MAX_DEPTH {
            return Err(self.too_many(dir));
        }
        if !part.contains(['*', '?', '[']) {
            return self.enter(&dir.join(part), rest, depth);
        }
        if part == "**" {
            // No directory at all, then every directory below.
            self.visit(dir, if rest.is_empty() { &["*"] } else { rest }, depth)?;
        }
        for (name, is_link) in self.list(dir)? {
            let path = dir.join(&name);
            if part == "**" {
                if !is_link && !name.starts_with('.') && path.is_dir() {
                    self.visit(&path, parts, depth + 1)?;
                }
            } else if matches(part, &name) {
                self.enter(&path, rest, depth)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: &Path, rest: &[&str], depth: usize) -> Result<(), GlobError> {
        if !rest.is_empty() {
            return if path.is_dir() { self.visit(path, rest, depth + 1) } else { Ok(()) };
        }
        if path.is_file() {
            self.found.insert(path.to_path_buf());
        }
        Ok(())
    }

    /// Names in a directory, and whether each is a symbolic link; none when it is no directory.
    fn list(&mut self, dir: &Path) -> Result<Vec<(String, bool)>, GlobError> {
        let io = |error| GlobError::Io { path: dir.display().to_string(), error };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io)?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(self.too_many(dir));
            }
            // A plan cannot hold names that are not UTF-8, so a pattern does not match them.
            if let Ok(name) = entry.file_name().into_string() {
                names.push((name, entry.file_type().map_err(io)?.is_symlink()));
            }
        }
        Ok(names)
    }

    fn too_many(&self, dir: &Path) -> GlobError {
        GlobError::TooMany { pattern: self.pattern.to_string(), path: dir.display().to_string() }
    }
}

fn check_part(part: &str) -> Result<(), &'static str> {
    if part != "**" && part.contains("**") {
        return Err("has `**` beside other characters; it stands for whole directories");
    }
    let mut rest = part;
    while let Some(open) = rest.find('[') {
        rest = class(&rest[open..]).ok_or("has a `[` without its `]`")?.2;
    }
    Ok(())
}

/// Whether a name matches a part without `/` and braces. Linear in the name for each `*`.
fn matches(part: &str, name: &str) -> bool {
    if name.starts_with('.') && !part.starts_with('.') {
        return false;
    }
    let (mut part, mut name) = (part, name);
    // Where to go on after a mismatch: behind the last `*`, one character later in the name.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        if let Some(rest) = part.strip_prefix('*') {
            part = rest;
            retry = Some((rest, name));
            continue;
        }
        match (one(part, name), name.is_empty()) {
            (Some((rest, tail)), _) => (part, name) = (rest, tail),
            (None, true) => return part.is_empty(),
            (None, false) => {
                let Some((rest, tail)) = retry else { return false };
                let mut tail = tail.chars();
                if tail.next().is_none() {
                    return false;
                }
                (part, name) = (rest, tail.as_str());
                retry = Some((part, name));
            }
        }
    }
}

/// Matches one character of `name`; what is left of both.
fn one<'a, 'b>(part: &'a str, name: &'b str) -> Option<(&'a str, &'b str)> {
    let mut chars = name.chars();
    let c = chars.next()?;
    if part.starts_with('[') {
        let (negated, set, rest) = class(part)?;
        return (in_set(set, c) != negated).then_some((rest, chars.as_str()));
    }
    let mut wanted = part.chars();
    let w = wanted.next()?;
    (w == '?' || w == c).then_some((wanted.as_str(), chars.as_str()))
}

/// Splits `[!set]rest`; a `]` that comes first belongs to the set.
fn class(part: &str) -> Option<(bool, &str, &str)> {
    let inner = part.strip_prefix('[')?;
    let (negated, inner) = match inner.strip_prefix(['!', '^']) {
        Some(inner) => (true, inner),
        None => (false, inner),
    };
    let first = inner.chars().next()?.len_utf8();
    let close = first + inner.get(first..)?.find(']')?;
    Some((negated, &inner[..close], &inner[close + 1..]))
}

fn in_set(set: &str, c: char) -> bool {
    let mut chars = set.chars().peekable();
    while let Some(low) = chars.next() {
        let mut ahead = chars.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) => {
                if (low..=high).contains(&c) {
                    return true;
                }
                chars = ahead;
            }
            _ if low == c => return true,
            _ => {}
        }
    }
    false
}

/// Writes out all braces, innermost last; at most [`MAX_ALTERNATIVES`].
fn expand(pattern: &str) -> Result<Vec<String>, GlobError> {
    let wrong = |what| GlobError::Pattern { pattern: pattern.to_string(), what };
    let mut todo = vec![pattern.to_string()];
    let mut done = Vec::new();
    while let Some(text) = todo.pop() {
        let Some(open) = text.find('{') else {
            if text.contains('}') {
                return Err(wrong("has a `}` without its `{`"));
            }
            done.push(text);
            continue;
        };
        let (choices, close) = choices(&text, open).ok_or_else(|| wrong("has a `{` unclosed"))?;
        let choices = match choices.as_slice() {
            [one] => numbers(one).ok_or_else(|| wrong("needs `,` or `..` within its braces"))?,
            _ => choices.iter().map(|c| c.to_string()).collect(),
        };
        if todo.len() + done.len() + choices.len() > MAX_ALTERNATIVES {
            return Err(wrong("has more than 1024 alternatives"));
        }
        let (head, tail) = (&text[..open], &text[close + 1..]);
        todo.extend(choices.iter().map(|choice| format!("{head}{choice}{tail}")));
    }
    Ok(done)
}

/// The alternatives of the brace at `open`, and where it closes.
fn choices(text: &str, open: usize) -> Option<(Vec<&str>, usize)> {
    let mut depth = 0;
    let mut start = open + 1;
    let mut found = Vec::new();
    for (i, b) in text.bytes().enumerate().skip(open) {
        match b {
            b'{' => depth += 1,
            b'}' if depth == 1 => {
                found.push(&text[start..i]);
                return Some((found, i));
            }
            b'}' => depth -= 1,
            b',' if depth == 1 => {
                found.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    None
}

/// `000..255`, with as many digits as the first number has.
fn numbers(choice: &str) -> Option<Vec<String>> {
    let (from, to) = choice.split_once("..")?;
    let digits = |s: &str| !s.is_empty() && s.len() < 10 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(from) || !digits(to) {
        return None;
    }
    let (low, high): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
    let count = (high as usize).checked_sub(low as usize)?;
    // One too many is enough for the caller to refuse.
    let high = low + count.min(MAX_ALTERNATIVES) as u32;
    Some((low..=high).map(|n| format!("{n:0width$}", width = from.len())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in [
            "lang/a.rs",
            "lang/deep/er/b.rs",
            "lang/deep/c.mon",
            "lang/.hidden/d.rs",
            "runtime/e.rs",
            "runtime/f.txt",
            "other/g.rs",
            "part-000",
            "part-001",
            "part-010",
            "examples/job.mon",
        ] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        dir
    }

    fn names(dir: &Path, pattern: &str) -> Vec<String> {
        let found = glob(dir, pattern).unwrap();
        let short = |p: PathBuf| p.strip_prefix(dir).unwrap().display().to_string();
        found.into_iter().map(short).collect()
    }

    #[test]
    fn patterns_of_the_language() {
        let dir = tree();
        let all = ["lang/a.rs", "lang/deep/c.mon", "lang/deep/er/b.rs", "runtime/e.rs"];
        assert_eq!(names(dir.path(), "{lang,runtime,stdlib}/**/*.{rs,mon}"), all);
        let from = dir.path().join("examples");
        let up = glob(&from, "../{lang,runtime}/**/*.{rs,mon}").unwrap();
        assert_eq!(up.len(), 4);
        assert_eq!(names(dir.path(), "part-{000..001}"), ["part-000", "part-001"]);
        assert_eq!(names(dir.path(), "part-[0-9]?[!0]"), ["part-001"]);
        assert_eq!(names(dir.path(), "lang/a.rs"), ["lang/a.rs"]);
        assert_eq!(names(dir.path(), "lang/**"), all[..3]);
        assert_eq!(names(dir.path(), "**/.hidden/*"), ["lang/.hidden/d.rs"]);
        assert!(names(dir.path(), "nothing/**/*.rs").is_empty());
        assert!(names(dir.path(), "lang").is_empty());
    }

    #[test]
    fn links_do_not_loop() {
        let dir = tree();
        std::os::unix::fs::symlink("..", dir.path().join("lang/up")).unwrap();
        std::os::unix::fs::symlink("self", dir.path().join("lang/self")).unwrap();
        assert_eq!(names(dir.path(), "lang/**/*.rs"), ["lang/a.rs", "lang/deep/er/b.rs"]);
        assert_eq!(names(dir.path(), "lang/*/runtime/*.rs"), ["lang/up/runtime/e.rs"]);
    }

    #[test]
    fn wrong_patterns_are_named() {
        let wrong = |p: &str| matches!(glob(Path::new("."), p), Err(GlobError::Pattern { .. }));
        for pattern in ["{a", "a}", "a**", "[a", "{a}", "{9..1}", "{0000..9999}", "[]"] {
            assert!(wrong(pattern), "{pattern}");
        }
        assert!(wrong(&"{a,b}".repeat(12)));
        assert!(wrong(&"{".repeat(10_000)));
    }

    #[test]
    fn names_match() {
        assert!(matches("a*b*c", "aXbXbXc"));
        assert!(!matches("a*b*c", "aXbXbX"));
        assert!(matches("*", "x") && !matches("*", ".x") && matches(".*", ".x"));
        assert!(matches("[]x]", "]") && matches("é?", "éü"));
        // Takes for ever where a matcher backtracks through every star.
        assert!(!matches(&"*a".repeat(40), &"ab".repeat(2000)));
    }

    proptest! {
        #[test]
        fn never_panics(pattern in "[a*?\\[\\]{},.!^/é-]{0,24}", name in "[a.é-]{0,8}") {
            let dir = tempfile::tempdir().unwrap();
            let _ = glob(dir.path(), pattern.trim_start_matches('/'));
            if !pattern.contains('/') {
                let _ = matches(&pattern, &name);
            }
        }
    }
}
