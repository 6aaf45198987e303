//! Which settings a source of data has, and `tokens("dir/*.bin")`.

use crate::calls::as_name;
use crate::data::DataFacts;
use crate::hir::{Quantity, Unit, Value};
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use crate::statics::{show, type_of};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{
    Column, DType, DataFile, MIX_WHOLE, MixPart, Order, Source, Span, Split, TokenWidth, mix,
};
use monarch_syntax::ast::{Arg, Expr, ExprKind};

/// Settings that only some sources have.
const OF_SOURCES: &[(&str, &[&str])] = &[
    ("tokenizer", &["text", "jsonl", "csv"]),
    ("window", &["text", "tokens"]),
    ("dtype", &["tokens"]),
    ("mix", &["tokens"]),
    ("fields", &["jsonl", "csv"]),
    ("format", &["jsonl", "csv"]),
    ("pack", &["jsonl", "csv"]),
    ("sha256", &["tensors", "text", "tokens", "jsonl", "csv"]),
];

/// Stands for the number of samples where it is not known.
pub(crate) const UNKNOWN_ROWS: u64 = 1 << 60;

/// A list of hashes has a line for each file.
const MAX_LIST_BYTES: u64 = 64 << 20;

impl<'a> Checker<'a> {
    /// Reports settings that a source does not have.
    pub fn settings_of_source(&mut self, source: &str, settings: Option<&Settings<'a>>) {
        for (name, sources) in OF_SOURCES {
            let given = settings.and_then(|s| s.values.get(name));
            if let Some(value) = given.filter(|_| !sources.contains(&source)) {
                let title = format!("`{name}` is for {}", sources.join(", "));
                let label = format!("`{source}` has none");
                self.report(Diagnostic::error("M0101", title).label(value.span, label));
            }
        }
    }

    /// The files that a source names; None if reported, or if there are none.
    pub fn source_files(&mut self, file: u32, arg: &Arg) -> Option<(String, Vec<String>)> {
        let pattern = self.path_arg(file, arg)?;
        let at = arg.value.span;
        match self.world.glob(&pattern) {
            Ok(paths) if !paths.is_empty() => Some((pattern, paths)),
            Ok(_) => {
                self.not_here(format!("`{pattern}` matches no file"), at, "this data set");
                None
            }
            Err(e) => {
                let title = format!("the data cannot be read: {e}");
                self.report(Diagnostic::error("M0607", title).label(at, "this data set"));
                None
            }
        }
    }

    /// Windows of token ids.
    pub fn tokens_set(
        &mut self,
        file: u32,
        arg: &Arg,
        settings: Option<&Settings<'a>>,
        order: Order,
        span: Span,
    ) -> Option<DataFacts> {
        let given = |name: &str| settings.and_then(|s| s.values.get(name).copied());
        let window = self.window(settings, span);
        let width = match given("dtype") {
            Some(expr) => self.token_width(expr),
            None => Some(TokenWidth::U32),
        };
        let shares = match given("mix") {
            Some(expr) => self.mix_shares(file, expr).map(Some),
            None => Some(None),
        };
        let pattern = self.path_arg(file, arg)?;
        let mut set = TokenSet { window: window?, width: width?, order, span, at: arg.value.span };
        let shares = shares?;
        if pattern.contains("://") {
            let help = "copy the files to a folder that all machines share";
            self.not_run_yet(set.at, "reading from object stores", help);
            if let Some(expr) = given("sha256") {
                self.hash_list(file, expr, &[]);
            }
            return Some(self.remote_tokens(&mut set, pattern));
        }
        let found = self.source_files(file, arg);
        let hashes = match given("sha256") {
            Some(expr) => {
                let paths = found.as_ref().map_or(&[][..], |f| &f.1);
                self.hash_list(file, expr, paths)
            }
            None => None,
        };
        let Some((_, paths)) = found else { return Some(self.remote_tokens(&mut set, pattern)) };
        self.local_tokens(&set, paths, hashes, shares)
    }

    /// Token files that cannot be looked at: all but their number is known.
    fn remote_tokens(&mut self, set: &mut TokenSet, pattern: String) -> DataFacts {
        let files = vec![DataFile { path: pattern, bytes: 0, sha256: [0; 32] }];
        let mut facts = set.facts(files, Vec::new(), UNKNOWN_ROWS);
        facts.rows_known = false;
        facts.members.retain(|m| m.0 != "rows");
        facts
    }

    fn local_tokens(
        &mut self,
        set: &TokenSet,
        paths: Vec<String>,
        hashes: Option<Vec<[u8; 32]>>,
        shares: Option<Vec<(String, u32, Span)>>,
    ) -> Option<DataFacts> {
        let mut files = Vec::new();
        let mut rows = Vec::new();
        for (i, path) in paths.into_iter().enumerate() {
            let bytes = match self.world.size(&path) {
                Ok(bytes) => bytes,
                Err(e) => {
                    let title = format!("the data cannot be read: {e}");
                    self.report(Diagnostic::error("M0607", title).label(set.at, "this data set"));
                    return None;
                }
            };
            let each = set.width.bytes();
            if bytes % each != 0 {
                let title = format!("`{path}` has {bytes} bytes: no whole number of ids");
                let label = format!("ids of {each} bytes");
                let d = Diagnostic::error("M0607", title).label(set.at, label);
                self.report(d.help("`dtype = u16` or `dtype = u32` says how an id is stored"));
                return None;
            }
            rows.push(bytes / each / (set.window + 1));
            // A plan hashes what a check only looks at: these files may be large.
            let sha256 = hashes.as_ref().and_then(|h| h.get(i)).copied().unwrap_or_default();
            files.push(DataFile { path, bytes, sha256 });
        }
        let parts = match shares {
            Some(shares) => self.mix_parts(set, &files, shares)?,
            None => Vec::new(),
        };
        let total = match parts.is_empty() {
            true => rows.iter().sum(),
            false => {
                let of = |p: &MixPart| p.files.iter().filter_map(|f| rows.get(*f as usize)).sum();
                let have: Vec<u64> = parts.iter().map(of).collect();
                let mix = mix::Mix::new(&parts.iter().map(|p| p.share).collect::<Vec<_>>());
                let total = mix.samples(&have);
                self.left_out(set, &parts, &have, &mix, total);
                total
            }
        };
        if total == 0 {
            let title = "these files hold less than one window".to_owned();
            let label = format!("a window of {} needs {} ids", set.window, set.window + 1);
            self.report(Diagnostic::error("M0607", title).label(set.at, label));
            return None;
        }
        Some(set.facts(files, parts, total))
    }

    /// What a mix does not use, since another part runs out.
    fn left_out(
        &mut self,
        set: &TokenSet,
        parts: &[MixPart],
        have: &[u64],
        mix: &mix::Mix,
        total: u64,
    ) {
        let used = |i: usize| mix.count(i, total);
        let rest = (0..parts.len()).map(|i| have[i].saturating_sub(used(i)));
        let most = rest.enumerate().max_by_key(|(i, n)| (*n, parts.len() - i));
        let Some((i, n)) = most.filter(|(i, n)| *n * 100 > have[*i]) else { return };
        let short = (0..parts.len()).min_by_key(|j| have[*j].saturating_sub(used(*j)));
        let short = short.map_or("", |j| &*parts[j].name);
        let title = format!(
            "{n} of {} samples of `{}` are left out: `{short}` runs out first",
            have[i], parts[i].name
        );
        self.report(Diagnostic::note("M0616", title).label(set.at, "these files"));
    }

    fn token_width(&mut self, expr: &Expr) -> Option<TokenWidth> {
        let widths = [TokenWidth::U16, TokenWidth::U32];
        let Some(name) = as_name(expr) else {
            let d = Diagnostic::error("M0111", "ids are stored as `u16` or `u32`");
            self.report(d.label(expr.span, "neither"));
            return None;
        };
        let found = widths.into_iter().find(|w| w.name() == name.name);
        if found.is_none() {
            let title = format!("ids are not stored as `{}`", name.name);
            let d = Diagnostic::error("M0121", title).label(name.span, "unknown type");
            self.report(with_near(d, name, ["u16", "u32"].into_iter(), "as"));
        }
        found
    }

    /// Shares of the parts of a mix, in millionths.
    fn mix_shares(&mut self, file: u32, expr: &'a Expr) -> Option<Vec<(String, u32, Span)>> {
        let ExprKind::Record(record) = &expr.kind else {
            self.report(
                Diagnostic::error("M0111", "`mix` is a list of shares")
                    .label(expr.span, "something else")
                    .help("write `mix = { web = 85%, code = 15% }`"),
            );
            return None;
        };
        let mut out = Vec::new();
        for (name, value) in self.record(record)? {
            match self.plain_value(file, value)? {
                Value::Quantity(Quantity { amount, unit: Unit::Share })
                    if amount > 0.0 && amount <= 1.0 =>
                {
                    let share = (amount * f64::from(MIX_WHOLE)).round() as u32;
                    out.push((name.name.clone(), share, name.span));
                }
                other => {
                    let title = format!("a part of a mix is a share, not {}", show(&other));
                    let d = Diagnostic::error("M0103", title);
                    let d = d.label(value.span, type_of(&other).noun());
                    self.report(d.help("write `85%`"));
                    return None;
                }
            }
        }
        let total: u64 = out.iter().map(|s| u64::from(s.1)).sum();
        if total != u64::from(MIX_WHOLE) || out.iter().any(|s| s.1 == 0) {
            let sum = Quantity { amount: total as f64 / f64::from(MIX_WHOLE), unit: Unit::Share };
            let sum = crate::units::show(sum);
            let title = format!("the parts of a mix make 100%, and these make {sum}");
            self.report(Diagnostic::error("M0615", title).label(expr.span, "in this mix"));
            return None;
        }
        Some(out)
    }

    /// Each file belongs to the part whose name is in its path.
    fn mix_parts(
        &mut self,
        set: &TokenSet,
        files: &[DataFile],
        shares: Vec<(String, u32, Span)>,
    ) -> Option<Vec<MixPart>> {
        let mut parts: Vec<MixPart> = shares
            .iter()
            .map(|(name, share, _)| MixPart { name: name.clone(), files: vec![], share: *share })
            .collect();
        let short = |f: &DataFile| f.path.rsplit('/').take(2).collect::<Vec<_>>().join("/");
        let names: Vec<String> = files.iter().map(short).collect();
        let recognised = "parts are recognised by their name in a file's path";
        for (name, _, span) in &shares {
            if !names.iter().any(|file| file.contains(name)) {
                let title = format!("no file of this data set is of `{name}`");
                let d = Diagnostic::error("M0615", title).label(*span, recognised);
                self.report(d.label(set.at, "these files"));
                return None;
            }
        }
        for (i, name) in names.iter().enumerate() {
            let hits: Vec<usize> =
                (0..parts.len()).filter(|p| name.contains(&parts[*p].name)).collect();
            let path = &files[i].path;
            let title = match hits.as_slice() {
                [one] => {
                    parts[*one].files.push(i as u32);
                    continue;
                }
                [] => format!("`{path}` belongs to no part of this mix"),
                [a, b, ..] => {
                    let (a, b) = (&parts[*a].name, &parts[*b].name);
                    format!("`{path}` belongs to `{a}` and to `{b}`")
                }
            };
            let at = shares.first().map_or(set.at, |s| s.2);
            let d = Diagnostic::error("M0615", title).label(at, recognised);
            self.report(d.label(set.at, "these files"));
            return None;
        }
        Some(parts)
    }

    /// `sha256 = file("list.sha256")`: the hashes of these files, in order, as `sha256sum` writes
    /// them. A text is the hash of all files, which the plan verifies.
    fn hash_list(&mut self, file: u32, expr: &'a Expr, paths: &[String]) -> Option<Vec<[u8; 32]>> {
        let ExprKind::Call(callee, args) = &expr.kind else {
            if !paths.is_empty() {
                self.pin(file, paths.to_vec(), expr);
            }
            return None;
        };
        let (name, [arg]) = (as_name(callee)?, args.as_slice()) else {
            let d =
                Diagnostic::error("M0111", "a hash, or `file(\"list.sha256\")`, is needed here");
            self.report(d.label(expr.span, "something else"));
            return None;
        };
        if name.name != "file" {
            let title = format!("there is no list of hashes `{}`", name.name);
            let d = Diagnostic::error("M0106", title).label(name.span, "unknown");
            self.report(with_near(d, name, ["file"].into_iter(), "there is"));
            return None;
        }
        let path = self.path_arg(file, arg)?;
        if paths.is_empty() {
            return None;
        }
        let text = match self.world.read(&path, MAX_LIST_BYTES) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(crate::WorldError::NotFound { .. }) => {
                let title = format!("there is no file `{path}`");
                self.not_here(title, arg.value.span, "this list of hashes");
                return None;
            }
            Err(e) => {
                let title = format!("the hashes cannot be read: {e}");
                self.report(Diagnostic::error("M0607", title).label(arg.value.span, "this list"));
                return None;
            }
        };
        let mut out = Vec::new();
        for wanted in paths {
            let name = wanted.rsplit('/').next().unwrap_or(wanted);
            let found = text.lines().filter_map(hash_line).find(|(_, n)| *n == name);
            let Some((hash, _)) = found else {
                let title = format!("`{path}` has no hash of `{name}`");
                let d = Diagnostic::error("M0609", title).label(arg.value.span, "this list");
                self.report(d.help(format!("make it anew: `sha256sum *.bin > {path}`")));
                return None;
            };
            out.push(hash);
        }
        Some(out)
    }
}

/// `<64 digits>  name`, as `sha256sum` writes it.
fn hash_line(line: &str) -> Option<([u8; 32], &str)> {
    let (digits, rest) = line.split_once(' ')?;
    if digits.len() != 64 {
        return None;
    }
    let mut hash = [0; 32];
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    let name = rest.trim_start_matches([' ', '*']).trim_end();
    Some((hash, name.rsplit('/').next().unwrap_or(name)))
}

/// What is said of files of tokens.
struct TokenSet {
    window: u64,
    width: TokenWidth,
    order: Order,
    span: Span,
    at: Span,
}

impl TokenSet {
    fn facts(&self, files: Vec<DataFile>, mix: Vec<MixPart>, rows: u64) -> DataFacts {
        let (window, span) = (self.window, self.span);
        let column = |name: &str| Column {
            name: name.to_owned(),
            dtype: DType::I32,
            shape: vec![window],
            below: None,
            span,
        };
        DataFacts {
            name: "these tokens".to_owned(),
            source: Source::Tokens { files, window, width: self.width, mix },
            columns: vec![column("ids"), column("next")],
            axes: vec![Some("T"), Some("T")],
            rows,
            rows_known: true,
            tokens_per_sample: window,
            splits: vec![Split { name: "train".into(), start: 0, end: rows }],
            order: self.order,
            span,
            members: vec![("T", window as i64), ("rows", rows as i64)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::hash_line;

    #[test]
    fn lists_of_sha256sum_are_read() {
        let digits = "ab".repeat(32);
        for line in [format!("{digits}  x.bin"), format!("{digits} *dir/x.bin")] {
            assert_eq!(hash_line(&line), Some(([0xab; 32], "x.bin")));
        }
        for bad in ["", "ab x", &digits, &format!("{}zz  x", "ab".repeat(31))] {
            assert_eq!(hash_line(bad), None, "{bad}");
        }
    }
}
