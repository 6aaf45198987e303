//! A record that goes on, and what of it is on record for good.

use super::Writer;
use crate::journal::{Journal, Seen};
use monarch_sched::Facts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A run that goes on.
pub(super) enum Again {
    /// Evaluations at this very step come again, or not.
    Checkpoint { step: u64, evaluates: bool },
    /// What the controller before had on record for good.
    Journal { step: u64, evaluated: Option<(u64, u32)>, saved: Option<u64> },
}

/// The journal, and the number of steps that it has for good.
#[derive(Clone)]
pub(crate) struct Notes {
    pub journal: Arc<Mutex<Journal>>,
    pub kept: Arc<AtomicU64>,
}

/// What stays of the record before: what was there for good, and no word of what comes again.
/// Evaluations at one step come in the order of their numbers.
pub(super) fn stays(
    step: u64,
    evaluated: Option<(u64, u32)>,
    saved: Option<u64>,
) -> impl FnMut(u64, &str) -> bool {
    let mut left = evaluated.filter(|(at, _)| *at == step).map_or(0, |(_, n)| n + 1);
    move |at, event| match event {
        "step" => at < step,
        "eval" if at == step => {
            let stays = left > 0;
            left = left.saturating_sub(1);
            stays
        }
        "eval" => at < step,
        "checkpoint" => saved.is_some_and(|saved| at <= saved),
        _ => true,
    }
}

pub(super) fn is_of_step(tag: &str) -> bool {
    ["train/", "speed/", "memory/"].iter().any(|s| tag.starts_with(s))
}

impl Writer {
    pub(super) fn note(&mut self, facts: &Facts, seen: &Seen) {
        let Some(Notes { journal, kept }) = &self.notes else { return };
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        match journal.facts(facts, seen) {
            Ok(()) => kept.store(facts.recorded, Ordering::Release),
            Err(error) => {
                let why = "a killed controller could not go on from here";
                self.shared.complain(format!("cannot write the journal: {error}; {why}"));
            }
        }
    }
}
