//! What is left to the next controller, and what the one before has left.

use super::EventLoop;
use crate::event::{CheckpointEvent, RunEvent};
use crate::journal::Seen;
use monarch_sched::{Command, DueKind, WorkerId};
use monarch_wire::{Adopted, Back, Hello, ToWorker};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl EventLoop<'_> {
    /// Takes up what the journal says.
    pub(super) fn restore(&mut self) {
        let Some(journaled) = &self.config.restore else { return };
        self.comes_back = journaled.facts.begun;
        self.metrics = journaled.seen.metrics.clone();
        self.best = journaled.seen.best.clone();
        self.checkpoint = journaled.seen.checkpoint.clone().or(self.checkpoint.take());
        if let Some((step, loss)) = journaled.seen.loss {
            self.merge.remember(step, loss);
        }
        if let Some((step, _)) = journaled.facts.evaluated {
            self.evaluated.insert(step, self.metrics.clone());
        }
    }

    /// A checkpoint that became whole when its controller could not say so any more.
    pub(crate) fn found_whole(&mut self, found: Option<CheckpointEvent>) {
        let Some(found) = found else { return };
        self.checkpoint = Some((found.path.clone(), found.step));
        self.saved_fingerprint = Some(found.fingerprint.clone());
        self.emit(RunEvent::CheckpointSaved(found));
    }

    /// Whether a command is of something that the journal is to know at once.
    pub(super) fn mark(&mut self, command: &Command) {
        self.note_now |= match command {
            Command::Window { due, .. } => due.iter().any(|d| d.what == DueKind::Save),
            Command::Step(_) | Command::Refuse { .. } | Command::Replace { .. } => false,
            _ => true,
        };
    }

    /// Leaves the facts to the next controller, if they have changed.
    pub(super) fn note(&mut self) {
        if self.notes.is_none() || !self.recorder.begun() {
            return;
        }
        let facts = self.scheduler.facts();
        if facts == self.noted {
            return;
        }
        self.noted = facts.clone();
        let seen = Seen {
            metrics: self.metrics.clone(),
            best: self.best.clone(),
            loss: self.merge.last_step(),
            checkpoint: self.checkpoint.clone(),
        };
        self.recorder.note(facts, seen);
    }

    /// Leaves the numbers of the processes to the next controller.
    pub(crate) fn note_workers(&mut self) {
        let Some(notes) = &self.notes else { return };
        let is_guest = |worker: &&WorkerId| {
            let hello = self.workers.get(worker).and_then(|w| w.hello.as_ref());
            hello.is_some_and(|h| h.slot.is_none())
        };
        let guests = self.ranks.iter().filter(is_guest).count() as u32;
        let mut journal = notes.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let written = journal.who(&self.children.marks(), guests);
        drop(journal);
        if let Err(error) = written {
            let text = format!("cannot write the journal: {error}");
            self.emit(RunEvent::Warning { text });
        }
    }

    /// Steps that the journal has for good.
    pub(super) fn kept(&self) -> u64 {
        self.notes.as_ref().map_or(0, |notes| notes.kept.load(Ordering::Acquire))
    }

    /// Workers of the controller before this one are still to go on.
    pub(super) fn waits_for_return(&self) -> bool {
        self.comes_back
    }

    /// The first steps after the controller was started again.
    pub(super) fn going_on(&mut self, step: u64, workers: u32) {
        if !std::mem::take(&mut self.comes_back) {
            return;
        }
        self.emit(RunEvent::Restarted {
            run_id: self.config.run_id.clone(),
            run_dir: self.run_dir.clone(),
            incarnation: self.config.incarnation(),
            step,
            steps: self.config.plan.steps,
            workers,
            seconds: self.started.elapsed().as_secs_f64(),
        });
    }

    /// Whether one that has lost its controller belongs here; says so to it.
    pub(super) fn adopt(&mut self, worker: WorkerId, hello: &Hello, back: &Back) -> bool {
        let incarnation = self.config.incarnation();
        let other = back.run.as_ref().filter(|run| **run != self.config.run_id);
        let why = match other {
            Some(other) => format!("this is the run {}, not {other}", self.config.run_id),
            None if back.run.is_some() && back.incarnation >= incarnation => {
                "the run has gone on without this worker".to_string()
            }
            None if back.run.is_some() && self.config.restore.is_none() => {
                "the run has begun again without this worker".to_string()
            }
            None => {
                let here = hello.slot.is_some();
                let lifeline = self.lifeline.as_ref().filter(|_| here).map(|l| l.path.clone());
                let adopted = ToWorker::Adopted(Adopted { incarnation, lifeline });
                self.tell_all(&[worker], &adopted);
                return true;
            }
        };
        self.refuse(worker, &why);
        false
    }
}
