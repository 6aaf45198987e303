//! Checkpoints: a directory for the workers, their parts, and the word to make it whole.

use super::EventLoop;
use crate::event::{CheckpointEvent, RunEvent};
use crate::saver::{Job, Saved};
use monarch_checkpoint::{About, Answered, Fingerprint, ShardInfo, Staging};
use monarch_sched::{Event, Tried, WorkerId};
use monarch_wire::SaveReport;
use std::time::Instant;

/// A checkpoint that is being written.
pub(super) struct Save {
    pub step: u64,
    staging: Staging,
    since: Instant,
    parts: Vec<SaveReport>,
}

impl EventLoop<'_> {
    pub(super) fn part_saved(&mut self, worker: WorkerId, mut report: SaveReport) -> Event {
        if let Some(why) = &mut report.error {
            let host = |w: &WorkerId| {
                self.workers.get(w).and_then(|i| i.hello.as_ref()).map(|h| h.host.clone())
            };
            if self.ranks.iter().any(|r| host(r) != host(&worker)) {
                why.push_str(" (all hosts must see the checkpoint directory under one path)");
            }
        }
        let event = Event::Saved {
            worker,
            step: report.step,
            fingerprint: report.fingerprint.clone(),
            error: report.error.clone(),
        };
        // The last words of one that is no member any more are of a checkpoint that was given up.
        let member = self.ranks.contains(&worker);
        if let Some(save) = self.save.as_mut().filter(|s| s.step == report.step && member) {
            save.parts.push(report);
        }
        event
    }

    pub(super) fn saved(&mut self, saved: Saved) {
        self.committing = None;
        let Saved { step, fingerprint, finite, result, seconds, complaints } = saved;
        let error = match result {
            Ok(path) => {
                self.checkpoint = Some((path.clone(), step));
                self.saved_fingerprint = Some(fingerprint.clone());
                let event = CheckpointEvent { path, step, fingerprint, seconds };
                self.emit(RunEvent::CheckpointSaved(event));
                None
            }
            Err(why) => Some(why),
        };
        for text in complaints {
            self.emit(RunEvent::Warning { text });
        }
        self.feed(Event::Committed { step, finite, error });
    }

    /// A checkpoint that became whole after the run had been concluded.
    pub fn late_save(&mut self, saved: Saved) {
        self.saved(saved);
    }

    pub(super) fn begin_save(&mut self, step: u64) -> Option<String> {
        match Staging::create(&self.run_dir, step) {
            Ok(staging) => {
                let directory = staging.path().display().to_string();
                let (since, parts) = (Instant::now(), Vec::new());
                self.save = Some(Save { step, staging, since, parts });
                Some(directory)
            }
            Err(error) => {
                let why = error.to_string();
                self.later.push_back(Event::SaveRefused { step, why });
                None
            }
        }
    }

    pub(super) fn commit(&mut self, step: u64, fingerprint: &str, tried: Tried, only_finite: bool) {
        let job = match self.save.take_if(|s| s.step == step) {
            Some(save) => {
                self.commit_job(save, fingerprint, tried).map(|job| Job { only_finite, ..job })
            }
            None => Err("its directory is gone".to_string()),
        };
        let sent = job.map(|job| self.saver.commit(job));
        let error = match sent {
            Ok(true) => return self.committing = Some(step),
            Ok(false) => "the thread that saves is gone".to_string(),
            Err(why) => why,
        };
        self.later.push_back(Event::Committed { step, finite: false, error: Some(error) });
    }

    fn commit_job(&self, save: Save, fingerprint: &str, tried: Tried) -> Result<Job, String> {
        let Save { step, staging, since, parts } = save;
        let plan = &self.config.plan;
        let fingerprint: Fingerprint = fingerprint.parse()?;
        let evaluated = self.evaluated.range(..=step).next_back();
        let Tried { answer, times, until } = tried;
        let answered = Answered { answer, times, until };
        let program = monarch_graph::hex(&self.config.job_hash);
        let about = About {
            loss: step.checked_sub(1).and_then(|s| self.merge.loss(s)),
            metrics: evaluated.map(|(_, m)| m.clone()).unwrap_or_default(),
            evaluated: evaluated.map(|(step, _)| *step),
            answered: (tried != Tried::default()).then_some(answered),
            ..About::of(plan, step, &program, self.config.workers, fingerprint)
        };
        let mut shards: Vec<ShardInfo> = parts
            .into_iter()
            .filter_map(|p| p.file)
            .map(|f| ShardInfo { file: f.name, bytes: f.bytes, sha256: f.sha256, finite: f.finite })
            .collect();
        shards.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(Job { step, staging, about, shards, only_finite: false, since })
    }
}
