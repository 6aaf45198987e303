//! Records.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P, Siblings};
use crate::ast::{Broken, EntryKind, Record, RecordEntry};
use crate::parse::Rule;

impl<'t> Builder<'t> {
    pub(super) fn record(&mut self, pair: P<'t>) -> Record {
        let mut record = Record { spread: None, entries: Vec::new() };
        let mut siblings = Siblings::default();
        let mut comma = Some(self.span(&pair));
        for part in pair.into_inner() {
            let before = siblings.failed.is_some();
            self.sibling(&mut siblings, part, |this, part| match part.as_rule() {
                Rule::comma if before => {}
                Rule::comma => this.comma(&part, &mut comma),
                _ => {
                    comma = None;
                    this.record_entry(part, &mut record);
                }
            });
        }
        record
    }

    fn record_entry(&mut self, part: P<'t>, record: &mut Record) {
        match part.as_rule() {
            Rule::spread => {
                let start = self.start(&part);
                let dots = Span::new(self.file, start, start + 2);
                match part.into_inner().next() {
                    Some(path) if path.as_rule() == Rule::path => {
                        if record.spread.is_some() || !record.entries.is_empty() {
                            let title = "`..` stands once, before everything else";
                            self.error(
                                Diagnostic::error("M0001", title).label(dots, "not expected here"),
                            );
                        }
                        record.spread = Some(self.path(&path));
                    }
                    Some(hole) => self.missing(&hole, dots, "a name", ".."),
                    None => {}
                }
            }
            Rule::named => {
                for (span, kind) in self.named(part) {
                    record.entries.push(match kind {
                        EntryKind::Assign(assign) => RecordEntry::Assign(assign),
                        EntryKind::Rule(rule) => RecordEntry::Rule(rule),
                        EntryKind::Broken(broken) => RecordEntry::Broken(broken),
                        _ => {
                            self.error(
                                Diagnostic::error("M0001", "a record holds only `name = value`")
                                    .label(span, "cannot stand in a record"),
                            );
                            RecordEntry::Broken(Broken { span, keyword: None, name: None })
                        }
                    });
                }
            }
            _ => {
                self.junk_entry(&part);
                record.entries.push(RecordEntry::Broken(self.broken(&part)));
            }
        }
    }
}
