//! Units are types: bytes, time, tokens, samples, steps, epochs, rates, shares.

use crate::hir::{Quantity, Unit};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph::Span;
use monarch_syntax::ast::Number;

impl Unit {
    /// What it counts, as messages say it.
    pub fn noun(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Seconds => "time",
            Unit::Tokens => "tokens",
            Unit::Samples => "samples",
            Unit::Steps => "steps",
            Unit::Epochs => "epochs",
            Unit::Batches => "batches",
            Unit::Checkpoints => "checkpoints",
            Unit::BytesPerSecond => "a rate",
            Unit::Share => "a share",
        }
    }

    /// What a quantity of it is, as a label says it.
    pub fn label(self) -> &'static str {
        match self {
            Unit::Bytes => "a size in memory",
            Unit::Seconds => "a time",
            Unit::Tokens => "a number of tokens",
            Unit::Samples => "a number of samples",
            Unit::Steps => "a number of steps",
            Unit::Epochs => "a number of epochs",
            Unit::Batches => "a number of batches",
            Unit::Checkpoints => "a number of checkpoints",
            Unit::BytesPerSecond => "a rate",
            Unit::Share => "a share",
        }
    }

    /// An example to write.
    pub fn example(self) -> &'static str {
        match self {
            Unit::Bytes => "4 GiB",
            Unit::Seconds => "10 min",
            Unit::Tokens => "4M tokens",
            Unit::Samples => "1000 samples",
            Unit::Steps => "100 steps",
            Unit::Epochs => "20 epochs",
            Unit::Batches => "50 batches",
            Unit::Checkpoints => "1 checkpoint",
            Unit::BytesPerSecond => "50 GB/s",
            Unit::Share => "10%",
        }
    }
}

const KI: f64 = 1024.0;

/// Every unit as written, what it counts and how much of the base unit it is.
pub(crate) const UNITS: &[(&str, Unit, f64)] = &[
    ("kB", Unit::Bytes, 1e3),
    ("KB", Unit::Bytes, 1e3),
    ("MB", Unit::Bytes, 1e6),
    ("GB", Unit::Bytes, 1e9),
    ("TB", Unit::Bytes, 1e12),
    ("KiB", Unit::Bytes, KI),
    ("MiB", Unit::Bytes, KI * KI),
    ("GiB", Unit::Bytes, KI * KI * KI),
    ("TiB", Unit::Bytes, KI * KI * KI * KI),
    ("bytes", Unit::Bytes, 1.0),
    ("ns", Unit::Seconds, 1e-9),
    ("us", Unit::Seconds, 1e-6),
    ("ms", Unit::Seconds, 1e-3),
    ("s", Unit::Seconds, 1.0),
    ("min", Unit::Seconds, 60.0),
    ("h", Unit::Seconds, 3600.0),
    ("d", Unit::Seconds, 86400.0),
    ("day", Unit::Seconds, 86400.0),
    ("days", Unit::Seconds, 86400.0),
    ("token", Unit::Tokens, 1.0),
    ("tokens", Unit::Tokens, 1.0),
    ("sample", Unit::Samples, 1.0),
    ("samples", Unit::Samples, 1.0),
    ("step", Unit::Steps, 1.0),
    ("steps", Unit::Steps, 1.0),
    ("epoch", Unit::Epochs, 1.0),
    ("epochs", Unit::Epochs, 1.0),
    ("batch", Unit::Batches, 1.0),
    ("batches", Unit::Batches, 1.0),
    ("checkpoint", Unit::Checkpoints, 1.0),
    ("checkpoints", Unit::Checkpoints, 1.0),
    ("bytes/s", Unit::BytesPerSecond, 1.0),
    ("kB/s", Unit::BytesPerSecond, 1e3),
    ("MB/s", Unit::BytesPerSecond, 1e6),
    ("GB/s", Unit::BytesPerSecond, 1e9),
    ("TB/s", Unit::BytesPerSecond, 1e12),
    ("MiB/s", Unit::BytesPerSecond, KI * KI),
    ("GiB/s", Unit::BytesPerSecond, KI * KI * KI),
    ("%", Unit::Share, 0.01),
];

/// Multipliers that may stand before `tokens` and `steps`: `2B tokens`.
pub(crate) const MULTIPLES: &[(&str, f64)] = &[("K", 1e3), ("M", 1e6), ("B", 1e9), ("T", 1e12)];

/// The quantity of a number with this unit.
pub(crate) fn quantity(amount: f64, unit: &str) -> Result<Quantity, UnitError> {
    if let Some((_, unit, scale)) = UNITS.iter().find(|u| u.0 == unit) {
        return Ok(Quantity { amount: amount * scale, unit: *unit });
    }
    if let Some((multiple, noun)) = unit.split_once(' ')
        && let Some((_, scale)) = MULTIPLES.iter().find(|m| m.0 == multiple)
        && let Some((_, unit, _)) = UNITS.iter().find(|u| u.0 == noun)
        && matches!(unit, Unit::Tokens | Unit::Steps | Unit::Samples)
    {
        return Ok(Quantity { amount: amount * scale, unit: *unit });
    }
    match MULTIPLES.iter().any(|m| m.0 == unit) {
        true => Err(UnitError::Ambiguous),
        false => Err(UnitError::Unknown),
    }
}

pub(crate) enum UnitError {
    Unknown,
    /// `2B` alone.
    Ambiguous,
}

/// The quantity that a number with a unit stands for, or what to say about it.
pub(crate) fn of_number(number: &Number) -> Result<Option<Quantity>, Box<Diagnostic>> {
    let Some(unit) = &number.unit else {
        return match unsound(number, number.value, number.span) {
            Some(d) => Err(Box::new(d)),
            None => Ok(None),
        };
    };
    if let Ok(q) = quantity(number.value, &unit.name)
        && let Some(d) = unsound(number, q.amount, number.span.to(unit.span))
    {
        return Err(Box::new(d));
    }
    quantity(number.value, &unit.name).map(Some).map_err(|error| {
        let whole = number.span.to(unit.span);
        Box::new(match error {
            UnitError::Ambiguous => {
                let (raw, m) = (&number.raw, &unit.name);
                let bytes = match m.as_str() {
                    "B" => ("GB", "GiB"),
                    "M" => ("MB", "MiB"),
                    "T" => ("TB", "TiB"),
                    _ => ("kB", "KiB"),
                };
                Diagnostic::error("M0104", format!("`{raw}{m}` could be bytes or a count"))
                    .label(whole, "of what?")
                    .fix(format!("`{raw} {}`", bytes.0), whole, format!("{raw} {}", bytes.0))
                    .fix(format!("`{raw} {}`", bytes.1), whole, format!("{raw} {}", bytes.1))
                    .fix(format!("`{raw}{m} tokens`"), whole, format!("{raw}{m} tokens"))
            }
            UnitError::Unknown => {
                let d = Diagnostic::error("M0102", format!("there is no unit `{}`", unit.name))
                    .label(unit.span, "unknown unit");
                if let Some(prefix) = bits(&unit.name) {
                    let bytes = format!("{} {prefix}B/s", number.value / 8.0);
                    let text = format!("rates are in bytes, of 8 bits: `{bytes}`");
                    return Box::new(d.fix(text, whole, bytes));
                }
                match suggest(&unit.name, UNITS.iter().map(|u| u.0)) {
                    Some(near) => d.fix(format!("did you mean `{near}`?"), unit.span, near),
                    None => d.help(
                        "units: kB MB GB KiB MiB GiB, us ms s min h d, tokens samples steps \
                         epochs, GB/s, %",
                    ),
                }
            }
        })
    })
}

/// A number that no float64 is near: infinite, or 0 where something else is written.
fn unsound(number: &Number, amount: f64, at: Span) -> Option<Diagnostic> {
    let error = |title: &str| Some(Diagnostic::error("M0111", title));
    if !amount.is_finite() {
        return error("this number is too large").map(|d| d.label(at, "infinite"));
    }
    let digits = number.raw.split(['e', 'E']).next().unwrap_or_default();
    if amount == 0.0 && digits.contains(|c| ('1'..='9').contains(&c)) {
        return error("this number is too small").map(|d| d.label(at, "would be 0"));
    }
    None
}

/// The prefix of a rate in bits, which is an eighth of what it looks like: `G` of `Gbit/s`.
fn bits(unit: &str) -> Option<&str> {
    let prefix = ["bits/s", "bit/s", "bps", "b/s"].iter().find_map(|b| unit.strip_suffix(b))?;
    ["k", "M", "G", "T"].contains(&prefix).then_some(prefix)
}

/// A quantity as a person writes it.
pub(crate) fn show(q: Quantity) -> String {
    let n = |x: f64| match x.fract() == 0.0 && x.abs() < 1e15 {
        true => format!("{x:.0}"),
        false if (1e-6..1e15).contains(&x.abs()) => format!("{x}"),
        false => format!("{x:e}"),
    };
    match q.unit {
        Unit::Share => format!("{}%", n((q.amount * 1e12).round() / 1e10)),
        Unit::Bytes => format!("{} bytes", n(q.amount)),
        Unit::Seconds if q.amount >= 60.0 && q.amount % 60.0 == 0.0 => {
            format!("{} min", n(q.amount / 60.0))
        }
        Unit::Seconds => format!("{} s", n(q.amount)),
        Unit::BytesPerSecond => format!("{} bytes/s", n(q.amount)),
        Unit::Tokens if q.amount >= 1e9 && q.amount % 1e8 == 0.0 => {
            format!("{}B tokens", n(q.amount / 1e9))
        }
        Unit::Tokens if q.amount >= 1e6 && q.amount % 1e5 == 0.0 => {
            format!("{}M tokens", n(q.amount / 1e6))
        }
        unit => {
            let noun = unit.noun();
            let one = match unit {
                Unit::Batches => "batch",
                _ => noun.trim_end_matches('s'),
            };
            format!("{} {}", n(q.amount), if q.amount == 1.0 { one } else { noun })
        }
    }
}

/// The page `monarch explain units`.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "Units are types: no two mix. A number and its unit stand side by side: `10 min`.\n\n",
    );
    let mut seen: Vec<Unit> = Vec::new();
    for (_, unit, _) in UNITS {
        if seen.contains(unit) {
            continue;
        }
        seen.push(*unit);
        let written: Vec<&str> = UNITS.iter().filter(|u| u.1 == *unit).map(|u| u.0).collect();
        let (label, example) = (unit.label(), unit.example());
        out.push_str(&format!("{label:<24}  {:<42}  `{example}`\n", written.join(" ")));
    }
    out.push_str(
        "\nK, M, B and T may stand before tokens, samples and steps: `4M tokens`. A number with \
         one\nof them and nothing else is an error: `2B` could be bytes or a count.\nLike units \
         add, numbers scale, a share of anything is of its kind: `90% * 400 steps`.\n",
    );
    out
}

/// Whether a word is a unit as written, or what one counts.
pub(crate) fn is_unit(word: &str) -> bool {
    UNITS.iter().any(|u| u.0 == word || u.1.noun() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_and_bytes() {
        let of = |n, u| quantity(n, u).ok().map(|q| (q.amount, q.unit));
        assert_eq!(of(4.0, "M tokens"), Some((4e6, Unit::Tokens)));
        assert_eq!(of(2.0, "GiB"), Some((2147483648.0, Unit::Bytes)));
        assert_eq!(of(10.0, "%"), Some((0.1, Unit::Share)));
        assert_eq!(of(10.0, "B"), None);
        assert_eq!(of(10.0, "M GiB"), None);
    }

    #[test]
    fn shown_as_written() {
        let text = |n, u| quantity(n, u).ok().map(show);
        assert_eq!(text(98.0, "%").as_deref(), Some("98%"));
        assert_eq!(text(10.0, "min").as_deref(), Some("10 min"));
        assert_eq!(text(1.0, "epoch").as_deref(), Some("1 epoch"));
        assert_eq!(text(20.0, "B tokens").as_deref(), Some("20B tokens"));
        assert_eq!(text(3.0, "batches").as_deref(), Some("3 batches"));
        assert_eq!(text(1e300, "steps").as_deref(), Some("1e300 steps"));
        assert_eq!(text(0.5, "s").as_deref(), Some("0.5 s"));
        assert_eq!(text(1e-300, "s").as_deref(), Some("1e-300 s"));
    }
}
