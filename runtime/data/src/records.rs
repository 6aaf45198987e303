//! Records of JSON lines and CSV files: columns of numbers, or texts.

use crate::csv::{Bad, Csv};
use crate::{DataError, file};
use monarch_graph::{DataFile, Field, FieldKind, RecordFormat};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// A longer line is no record but a mistake.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// The values of one column, one sample after another.
#[derive(Debug)]
pub(crate) enum Values {
    Text(Vec<String>),
    Float(Vec<f32>),
    Int(Vec<i32>),
}

/// All records, column by column, in the order of the fields.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rows: u64,
    pub(crate) columns: Vec<Values>,
}

/// Reads the planned files and verifies them.
pub(crate) fn read(
    files: &[DataFile],
    format: RecordFormat,
    fields: &[Field],
) -> Result<Table, DataError> {
    let column = |f: &Field| match f.kind {
        FieldKind::Text => Values::Text(Vec::new()),
        FieldKind::Float(_) => Values::Float(Vec::new()),
        FieldKind::Int(_) => Values::Int(Vec::new()),
    };
    let mut table = Table { rows: 0, columns: fields.iter().map(column).collect() };
    for planned in files {
        let content = file::read_planned(planned)?;
        let text = std::str::from_utf8(&content).map_err(|error| DataError::NotUtf8 {
            path: planned.path.clone(),
            offset: error.valid_up_to() as u64,
        })?;
        let found = match format {
            RecordFormat::Jsonl => table.json_lines(text, fields),
            RecordFormat::Csv => table.csv(text, fields),
        };
        let path = planned.path.clone();
        found.map_err(|(line, what)| DataError::Record { path, line, what })?;
    }
    match table.rows {
        0 => {
            let path = files.first().map(|f| f.path.clone()).unwrap_or_default();
            Err(DataError::NoSamples { path })
        }
        _ => Ok(table),
    }
}

impl Table {
    pub(crate) fn json_lines(&mut self, text: &str, fields: &[Field]) -> Result<(), Bad> {
        for (i, line) in text.split('\n').enumerate() {
            let at = i as u64 + 1;
            if line.trim().is_empty() {
                continue;
            }
            if line.len() > MAX_LINE_BYTES {
                let what = format!("{} bytes; at most {MAX_LINE_BYTES} are read", line.len());
                return Err((at, what));
            }
            let object: Object =
                serde_json::from_str(line).map_err(|e| (at, json_problem(&e.to_string())))?;
            for (field, column) in fields.iter().zip(&mut self.columns) {
                let found = object.0.iter().find(|(name, _)| *name == field.name);
                let Some((_, value)) = found else {
                    let names: Vec<String> = object.0.iter().map(|o| o.0.clone()).collect();
                    let has = crate::facts::list(&names);
                    return Err((at, format!("there is no `{}`; it has {has}", field.name)));
                };
                column.push_json(field, value).map_err(|what| (at, what))?;
            }
            self.rows += 1;
        }
        Ok(())
    }

    pub(crate) fn csv(&mut self, text: &str, fields: &[Field]) -> Result<(), Bad> {
        let mut csv = Csv::new(text);
        let Some(header) = csv.record() else {
            return Err((1, "there is no line with the names of the columns".into()));
        };
        let (line, header) = header?;
        let mut places = Vec::new();
        for field in fields {
            let mut hits = header.iter().enumerate().filter(|(_, n)| n.trim() == field.name);
            match (hits.next(), hits.next()) {
                (Some((place, _)), None) => places.push(place),
                (Some(_), Some(_)) => {
                    return Err((line, format!("two columns are called `{}`", field.name)));
                }
                (None, _) => {
                    let has = crate::facts::list(&header);
                    return Err((line, format!("there is no `{}`; it has {has}", field.name)));
                }
            }
        }
        while let Some(record) = csv.record() {
            let (line, record) = record?;
            if record.len() != header.len() {
                let (n, m) = (record.len(), header.len());
                return Err((line, format!("{n} fields, and the first line names {m}")));
            }
            for ((field, column), place) in fields.iter().zip(&mut self.columns).zip(&places) {
                let text = record.get(*place).map_or("", String::as_str);
                column.push_text(field, text).map_err(|what| (line, what))?;
            }
            self.rows += 1;
        }
        Ok(())
    }
}

/// Without the place in the line of text that was handed over, which is always line 1.
fn json_problem(text: &str) -> String {
    text.replace(" at line 1 column ", ", at character ")
}

impl Values {
    fn push_json(&mut self, field: &Field, value: &Value) -> Result<(), String> {
        let lengths = match &field.kind {
            FieldKind::Text => &[][..],
            FieldKind::Float(lengths) | FieldKind::Int(lengths) => lengths,
        };
        self.push_nested(field, value, lengths)
    }

    /// Numbers in nested lists of these lengths, outermost first.
    fn push_nested(&mut self, field: &Field, value: &Value, lengths: &[u64]) -> Result<(), String> {
        let name = &field.name;
        let Some((length, inner)) = lengths.split_first() else {
            return match (self, value) {
                (Values::Text(out), Value::String(text)) => {
                    out.push(text.clone());
                    Ok(())
                }
                (Values::Float(out), Value::Number(n)) => {
                    out.push(finite(name, n.as_f64())?);
                    Ok(())
                }
                (Values::Int(out), Value::Number(n)) => {
                    let whole = n.as_i64().and_then(|n| i32::try_from(n).ok());
                    out.push(whole.ok_or_else(|| format!("`{name}` is {n}, not an i32"))?);
                    Ok(())
                }
                (Values::Text(_), other) => Err(wrong(name, other, "a text")),
                (Values::Float(_), other) => Err(wrong(name, other, "a number")),
                (Values::Int(_), other) => Err(wrong(name, other, "a whole number")),
            };
        };
        match value {
            Value::Array(items) if items.len() as u64 == *length => {
                items.iter().try_for_each(|item| self.push_nested(field, item, inner))
            }
            Value::Array(items) => {
                Err(format!("`{name}` has {} numbers in a list, not {length}", items.len()))
            }
            other => Err(wrong(name, other, &format!("a list of {length}"))),
        }
    }

    fn push_text(&mut self, field: &Field, text: &str) -> Result<(), String> {
        let name = &field.name;
        match self {
            Values::Text(out) => out.push(text.to_owned()),
            Values::Float(out) => {
                let number = text.trim().parse::<f64>().ok();
                let number = number.ok_or_else(|| format!("`{name}` is `{text}`, not a number"))?;
                out.push(finite(name, Some(number))?);
            }
            Values::Int(out) => {
                let number = text.trim().parse().ok();
                out.push(number.ok_or_else(|| format!("`{name}` is `{text}`, not an i32"))?);
            }
        }
        Ok(())
    }
}

fn finite(name: &str, number: Option<f64>) -> Result<f32, String> {
    let found = number.map(|n| n as f32).filter(|n| n.is_finite());
    found.ok_or_else(|| format!("`{name}` is not a finite f32"))
}

fn wrong(name: &str, value: &Value, wanted: &str) -> String {
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("`{name}` is {is}, not {wanted}")
}

/// A JSON object in which every name occurs once.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a name for each value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut out: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if out.iter().any(|o| o.0 == name) {
                        let what = format!("`{name}` occurs twice");
                        return Err(serde::de::Error::custom(what));
                    }
                    out.push((name, value));
                }
                Ok(Object(out))
            }
        }
        from.deserialize_map(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(name: &str, kind: FieldKind) -> Field {
        Field { name: name.into(), kind }
    }

    fn table(fields: &[Field]) -> Table {
        let column = |f: &Field| match f.kind {
            FieldKind::Text => Values::Text(Vec::new()),
            FieldKind::Float(_) => Values::Float(Vec::new()),
            FieldKind::Int(_) => Values::Int(Vec::new()),
        };
        Table { rows: 0, columns: fields.iter().map(column).collect() }
    }

    fn three() -> Vec<Field> {
        vec![
            field("s", FieldKind::Text),
            field("x", FieldKind::Float(vec![2])),
            field("y", FieldKind::Int(vec![])),
        ]
    }

    #[test]
    fn lines_become_columns() {
        let mut t = table(&three());
        let text = "{\"s\": \"a\", \"x\": [1, 2.5], \"y\": -3, \"more\": null}\r\n\n\
                    {\"y\": 4, \"x\": [0, 1e3], \"s\": \"\"}\n";
        t.json_lines(text, &three()).unwrap();
        assert_eq!(t.rows, 2);
        assert!(matches!(&t.columns[0], Values::Text(s) if *s == ["a", ""]));
        assert!(matches!(&t.columns[1], Values::Float(x) if *x == [1.0, 2.5, 0.0, 1e3]));
        assert!(matches!(&t.columns[2], Values::Int(y) if *y == [-3, 4]));
    }

    #[test]
    fn bad_lines_are_named() {
        let good = "{\"s\": \"a\", \"x\": [1, 2], \"y\": 3}\n";
        for (bad, what) in [
            ("{\"s\": \"a\", \"x\": [1, 2]}", "there is no `y`"),
            ("{\"s\": 1, \"x\": [1, 2], \"y\": 3}", "`s` is a number, not a text"),
            ("{\"s\": \"\", \"x\": [1], \"y\": 3}", "`x` has 1 numbers"),
            ("{\"s\": \"\", \"x\": 1, \"y\": 3}", "`x` is a number, not a list of 2"),
            ("{\"s\": \"\", \"x\": [1, 1e60], \"y\": 3}", "`x` is not a finite f32"),
            ("{\"s\": \"\", \"x\": [1, 2], \"y\": 3.5}", "`y` is 3.5"),
            ("{\"s\": \"\", \"s\": \"\"}", "`s` occurs twice"),
            ("[1]", "an object"),
            ("{\"s\": ", "EOF"),
        ] {
            let (line, found) =
                table(&three()).json_lines(&format!("{good}\n{bad}\n"), &three()).unwrap_err();
            assert!(line == 3 && found.contains(what), "{bad}: {line} {found}");
        }
        let long = format!("{good}{}", "x".repeat(MAX_LINE_BYTES + 1));
        assert_eq!(table(&three()).json_lines(&long, &three()).unwrap_err().0, 2);
    }

    #[test]
    fn tables_become_columns() {
        let fields = [field("y", FieldKind::Int(vec![])), field("s", FieldKind::Text)];
        let mut t = table(&fields);
        t.csv("s, y,z\n\"a,b\",7,\nc, -1 ,x\n", &fields).unwrap();
        assert!(matches!(&t.columns[0], Values::Int(y) if *y == [7, -1]));
        assert!(matches!(&t.columns[1], Values::Text(s) if *s == ["a,b", "c"]));
        for (bad, line) in [("s,y\na,b\n", 2), ("s\n", 1), ("s,y,y\n", 1), ("s,y\n\na\n", 3)] {
            assert_eq!(table(&fields).csv(bad, &fields).unwrap_err().0, line, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_lines_never_panic(text in ".{0,200}") {
            let _ = table(&three()).json_lines(&text, &three());
            let _ = table(&three()).csv(&text, &three());
        }

        #[test]
        fn nearly_right_lines_never_panic(
            at in 0usize..60, byte in prop::char::range(' ', '~'),
        ) {
            let right = r#"{"s": "a", "x": [1, 2.5], "y": -3}"#;
            let mut line: Vec<char> = right.chars().collect();
            let at = at % line.len();
            line[at] = byte;
            let line: String = line.into_iter().collect();
            let mut t = table(&three());
            if t.json_lines(&line, &three()).is_ok() {
                prop_assert!(t.rows <= 1);
            }
        }
    }
}
