//! Comma-separated values (RFC 4180): quotes, doubled quotes, line ends within quotes.

/// A line, counted from 1, and the fields that begin on it.
pub(crate) type Record = (u64, Vec<String>);
/// A line, and what is wrong in it.
pub(crate) type Bad = (u64, String);

/// Reads one record after another.
pub(crate) struct Csv<'t> {
    rest: &'t str,
    /// Of the record to come, counted from 1.
    line: u64,
}

impl<'t> Csv<'t> {
    pub(crate) fn new(text: &'t str) -> Csv<'t> {
        // A mark that some programs write before anything else.
        Csv { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 }
    }

    /// The next record with its line; None at the end. Empty lines are no records.
    pub(crate) fn record(&mut self) -> Option<Result<Record, Bad>> {
        loop {
            let empty = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
            let Some(rest) = empty else { break };
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            match self.field() {
                Ok((field, more)) => {
                    fields.push(field);
                    if !more {
                        return Some(Ok((line, fields)));
                    }
                }
                Err(what) => {
                    self.rest = "";
                    return Some(Err((line, what)));
                }
            }
        }
    }

    /// A field, and whether another one follows in the record.
    fn field(&mut self) -> Result<(String, bool), String> {
        let Some(mut rest) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
            let (field, rest) = self.rest.split_at(end);
            let last = !rest.starts_with(',');
            let field = if last { field.strip_suffix('\r').unwrap_or(field) } else { field };
            if field.contains('"') {
                return Err("a quote within a field that does not begin with one".into());
            }
            self.next(rest);
            return Ok((field.to_owned(), !last));
        };
        let mut field = String::new();
        loop {
            let Some(end) = rest.find('"') else {
                return Err("a quote that is never closed".into());
            };
            let (part, after) = rest.split_at(end);
            self.line += part.matches('\n').count() as u64;
            field.push_str(part);
            rest = after.strip_prefix('"').unwrap_or(after);
            match rest.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    rest = more;
                }
                None => break,
            }
        }
        let rest = rest.strip_prefix('\r').filter(|r| r.starts_with('\n')).unwrap_or(rest);
        if !(rest.is_empty() || rest.starts_with([',', '\n'])) {
            return Err("something between a closing quote and the next comma".into());
        }
        let more = rest.starts_with(',');
        self.next(rest);
        Ok((field, more))
    }

    /// Goes on behind a comma or the end of a line.
    fn next(&mut self, rest: &'t str) {
        self.line += u64::from(rest.starts_with('\n'));
        self.rest = rest.strip_prefix([',', '\n']).unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> Result<Vec<Record>, Bad> {
        let mut csv = Csv::new(text);
        std::iter::from_fn(|| csv.record()).collect()
    }

    #[test]
    fn records_are_read() {
        let found = all("\u{feff}a,b\r\n\n1,\"x, \"\"y\"\"\n z\"\r\n,\n\"\",3").unwrap();
        let texts: Vec<(u64, Vec<&str>)> =
            found.iter().map(|(l, r)| (*l, r.iter().map(String::as_str).collect())).collect();
        let want = [
            (1, vec!["a", "b"]),
            (3, vec!["1", "x, \"y\"\n z"]),
            (5, vec!["", ""]),
            (6, vec!["", "3"]),
        ];
        assert_eq!(texts, want);
    }

    #[test]
    fn mistakes_are_at_their_line() {
        assert_eq!(all("a\nb\"c\n").unwrap_err().0, 2);
        assert_eq!(all("a\n\nx,\"b").unwrap_err().0, 3);
        assert_eq!(all("\"a\"b").unwrap_err().0, 1);
    }

    proptest! {
        #[test]
        fn anything_ends(text in "[a,\"\r\n ]{0,40}") {
            let _ = all(&text);
        }

        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec(
            prop::collection::vec("[a-c,\"\r\n ]{0,6}", 2..4), 1..5)
        ) {
            let quoted = |f: &String| format!("\"{}\"", f.replace('"', "\"\""));
            let line = |r: &Vec<String>| r.iter().map(quoted).collect::<Vec<_>>().join(",");
            let text = rows.iter().map(line).collect::<Vec<_>>().join("\n");
            let found: Vec<_> = all(&text).unwrap().into_iter().map(|r| r.1).collect();
            prop_assert_eq!(found, rows);
        }
    }
}
