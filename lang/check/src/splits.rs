//! Parts of a data set: `split = { train = 90%, eval = 10% }`.

use crate::data::DataFacts;
use crate::hir::{Quantity, Unit, Value};
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Span, Split};
use monarch_syntax::ast::{Arg, EntryKind, Expr, ExprKind, Ident};

/// A split before it is cut: name, share, place.
type Share = (String, f64, Span);

impl<'a> Checker<'a> {
    /// `eval { batches = 64 }` on a set without a part `eval` evaluates on the last so many
    /// batches of the set, which are not trained on.
    pub fn held_out(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        mut data: DataFacts,
        batch: Option<u64>,
    ) -> DataFacts {
        let Some(train) = data.splits.first().filter(|_| data.splits.len() == 1).cloned() else {
            return data;
        };
        let Some(block) = given.blocks.get("eval") else { return data };
        let batches = block.body.iter().flat_map(|b| &b.entries).find_map(|e| match &e.kind {
            EntryKind::Assign(a) if a.path.text() == "batches" => Some(&a.value),
            _ => None,
        });
        let value = batches.and_then(|e| self.plain_value(file, e));
        let part = |name: &str, start, end| Split { name: name.to_owned(), start, end };
        if batches.is_some() && batch.is_none() {
            // The size of a batch was reported; how many are held out is no mistake of its own.
            data.splits.push(part("eval", 0, 1));
        }
        let (Some(Value::Int(n)), Some(batch)) = (value, batch) else { return data };
        let held = u64::try_from(n).unwrap_or(0).saturating_mul(batch);
        let (start, end) = (train.start, train.end);
        if train.name != "train" || held == 0 || held >= end - start {
            return data;
        }
        let title = format!("the last {n} batches, {held} samples, are held out for `eval`");
        let at = batches.map_or(block.kind.span, |e| e.span);
        let d = Diagnostic::note("M0614", title).label(at, "no part `eval` in the data set");
        self.report(d.help("or say it: `split = { train = 99%, eval = 1% }`"));
        data.splits = vec![part("train", start, end - held), part("eval", end - held, end)];
        data
    }

    pub fn split_args(&mut self, file: u32, args: &'a [Arg]) -> Option<Vec<Share>> {
        let mut out = Some(Vec::new());
        for arg in args {
            let share = match &arg.name {
                Some(name) => self.share(file, name, &arg.value),
                None => {
                    self.report(
                        Diagnostic::error("M0118", "a part of the set has a name")
                            .label(arg.span, "which part?")
                            .help("write `split(train = 80%, eval = 20%)`"),
                    );
                    None
                }
            };
            match (share, &mut out) {
                (Some(share), Some(list)) => list.push(share),
                _ => out = None,
            }
        }
        out
    }

    pub fn split_record(&mut self, file: u32, expr: &'a Expr) -> Option<Vec<Share>> {
        let ExprKind::Record(record) = &expr.kind else {
            self.report(
                Diagnostic::error("M0111", "`split` is a list of shares")
                    .label(expr.span, "something else")
                    .help("write `split = { train = 90%, eval = 10% }`"),
            );
            return None;
        };
        let mut out = Some(Vec::new());
        for (name, value) in self.record(record)? {
            let share = self.share(file, name, value);
            match (share, &mut out) {
                (Some(share), Some(list)) => list.push(share),
                _ => out = None,
            }
        }
        out
    }

    fn share(&mut self, file: u32, name: &Ident, value: &Expr) -> Option<Share> {
        if !["train", "eval"].contains(&name.name.as_str()) {
            let d = Diagnostic::error("M0101", format!("a split has no part `{}`", name.name))
                .label(name.span, "unknown part");
            let held_out = ["test", "val", "valid", "validation", "dev", "holdout", "held_out"];
            self.report(match held_out.contains(&name.name.as_str()) {
                true => d.fix("what is held out is called `eval`", name.span, "eval"),
                false => with_near(d, name, ["train", "eval"].into_iter(), "parts"),
            });
            return None;
        }
        match self.plain_value(file, value)? {
            Value::Quantity(Quantity { amount, unit: Unit::Share }) if amount > 0.0 => {
                Some((name.name.clone(), amount, name.span))
            }
            other => {
                let title =
                    format!("a part of a set is a share, not {}", crate::statics::show(&other));
                let d = Diagnostic::error("M0103", title)
                    .label(value.span, crate::statics::type_of(&other).noun());
                self.report(match other.number().filter(|n| (0.0..=1.0).contains(n)) {
                    Some(n) => {
                        // Shares are written with few digits: 0.55 * 100 is not 55 in binary.
                        let share = format!("{}%", (n * 1e8).round() / 1e6);
                        d.fix(format!("write `{share}`"), value.span, share)
                    }
                    None => d.help("write `80%`"),
                });
                None
            }
        }
    }

    /// Shares as ranges of samples, in the order written; borders are rounded down.
    pub fn cut(&mut self, facts: &DataFacts, shares: &[Share], at: Span) -> Option<Vec<Split>> {
        let total: f64 = shares.iter().map(|s| s.1).sum();
        if (total - 1.0).abs() > 1e-9 {
            let sum = crate::units::show(Quantity { amount: total, unit: Unit::Share });
            let title = format!("the parts of a set make 100%, and these make {sum}");
            let places = shares.iter().map(|s| s.2);
            let place = places.clone().next_back().unwrap_or(at);
            self.report(Diagnostic::error("M0606", title).label(place, "in this split"));
            return None;
        }
        let mut out: Vec<Split> = Vec::new();
        let (mut start, mut sum) = (0, 0.0);
        for (i, (name, share, span)) in shares.iter().enumerate() {
            sum += share;
            let end = match i + 1 == shares.len() {
                true => facts.rows,
                false => (facts.rows as f64 * sum + 1e-6) as u64,
            };
            if out.iter().any(|s| s.name == *name) || end <= start {
                let title = match end <= start {
                    true => format!("`{name}` gets no sample of {}", facts.rows),
                    false => format!("`{name}` occurs twice in this split"),
                };
                let d = Diagnostic::error("M0606", title).label(*span, "this part");
                self.report(match end <= start {
                    true => d.help("give it a larger share, or leave the split out"),
                    false => d,
                });
                return None;
            }
            out.push(Split { name: name.clone(), start, end });
            start = end;
        }
        Some(out)
    }
}
