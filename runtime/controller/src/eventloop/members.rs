//! Who takes part: places in a generation, workers started again, workers that are lost.

use super::{EventLoop, STRANGERS};
use crate::event::RunEvent;
use monarch_sched::{Event, Exit, Forming, LinkPlan, Placement, Source, WorkerId};
use monarch_wire::{Form, Links, Start, ToWorker};

impl EventLoop<'_> {
    /// Sends every member its place; the job too, to those that have not had it.
    pub(super) fn form(&mut self, forming: Forming) {
        let Forming { generation, base, placements, deal, holders, source, links } = forming;
        self.ranks = placements.iter().map(|p| p.worker).collect();
        for info in self.workers.values_mut() {
            info.rank = None;
        }
        self.forget();
        let Some(links) = self.way_between(links) else { return };
        let source = match source {
            Source::Members => monarch_wire::Source::Members,
            Source::Beginning => monarch_wire::Source::Beginning,
            Source::Checkpoint(step) => {
                let directory = monarch_checkpoint::directory(&self.run_dir, step);
                let directory = directory.display().to_string();
                monarch_wire::Source::Checkpoint { directory, step }
            }
        };
        for place in &placements {
            let form = Form {
                generation,
                rank: place.rank,
                world: placements.len() as u32,
                threads: place.threads,
                links: links.clone(),
                base,
                holders: holders.clone(),
                deal: deal.clone(),
                source: source.clone(),
            };
            self.place(place, form);
        }
        self.note_workers();
    }

    fn place(&mut self, place: &Placement, form: Form) {
        let info = self.workers.entry(place.worker).or_default();
        info.rank = Some(place.rank);
        info.threads = place.threads;
        let message = if std::mem::replace(&mut info.started, true) {
            ToWorker::Form(form)
        } else {
            let resume = self.config.resume.as_ref();
            ToWorker::Start(Start {
                plan: self.config.plan.clone(),
                run: self.config.run_id.clone(),
                resume: resume.map(|r| r.directory.display().to_string()),
                first_step: self.config.first_step(),
                trace: self.config.trace_steps.clone(),
                incarnation: self.config.incarnation(),
                form,
            })
        };
        self.tell_all(&[place.worker], &message);
    }

    /// None when there is none, which ends the run.
    fn way_between(&mut self, links: LinkPlan) -> Option<Links> {
        match links {
            LinkPlan::None => Some(Links::None),
            LinkPlan::Quic { peers } => {
                self.transport = "QUIC";
                Some(Links::Quic { peers })
            }
            LinkPlan::SharedMemory => match monarch_collective::shm::create_file() {
                Ok((file, path)) => {
                    self.transport = "shared memory";
                    // Empty: every worker adds what it needs.
                    self.memory = Some(file);
                    Some(Links::SharedMemory { path })
                }
                Err(error) => {
                    self.later.push_back(Event::Broken { what: error.to_string() });
                    None
                }
            },
        }
    }

    pub(super) fn refuse(&mut self, worker: WorkerId, why: &str) {
        self.pulses.forget(worker);
        let _ = self.links.send(&[worker], &ToWorker::Refused { why: why.to_string() });
        self.links.close(worker, why);
        if let Some(info) = self.workers.get_mut(&worker) {
            info.is_gone = true;
        }
    }

    /// The connection of a worker is closed. Who never became a member leaves no trace.
    pub(super) fn closed(&mut self, worker: WorkerId, why: String) {
        self.pulses.forget(worker);
        if let Some(info) = self.workers.get_mut(&worker) {
            info.is_gone = true;
        }
        self.feed(Event::Lost { worker, why });
        if self.workers.get(&worker).is_some_and(|w| !w.started) {
            self.workers.remove(&worker);
        }
        self.forget();
    }

    /// Of those who were members, are gone and have been told of, nothing is needed any more.
    fn forget(&mut self) {
        let ranks = &self.ranks;
        self.workers.retain(|w, info| !(info.is_gone && info.is_told_of) || ranks.contains(w));
    }

    pub(super) fn replace(&mut self, slot: u32) {
        if let Err(error) = self.children.replace(slot) {
            let text = format!("it could not be started: {error}");
            let exit = Exit { text, by_signal: false, clean: false };
            self.later.push_back(Event::Exited { slot, exit });
        }
        self.note_workers();
    }

    /// Ends a worker that does not answer: should it wake up, it finds nobody.
    pub(super) fn evict(&mut self, worker: WorkerId, why: &str) {
        self.pulses.forget(worker);
        let info = self.workers.get(&worker).and_then(|w| w.hello.as_ref());
        if let Some((slot, pid)) = info.and_then(|h| Some((h.slot?, h.pid))) {
            self.children.kill(slot, pid);
        }
        self.links.close(worker, why);
    }

    /// Lets a worker leave that the others do not need any more.
    pub(super) fn release(&mut self, worker: WorkerId, step: u64) {
        self.tell_all(&[worker], &ToWorker::Release);
        let Some(info) = self.workers.get_mut(&worker) else { return };
        info.is_told_of = true;
        // One that never had a place is missed by nobody.
        if let (Some(rank), Some(hello)) = (info.rank, info.hello.as_ref()) {
            let (host, pid) = (hello.host.clone(), hello.pid);
            self.emit(RunEvent::WorkerLeft { rank, host, pid, step });
        }
    }

    pub(super) fn worker_lost(
        &mut self,
        rank: u32,
        worker: WorkerId,
        slot: Option<u32>,
        why: &str,
        step: u64,
    ) {
        if let Some(info) = self.workers.get_mut(&worker) {
            info.is_told_of = true;
        }
        let hello = self.workers.get(&worker).and_then(|w| w.hello.as_ref());
        let host = hello.map(|h| h.host.clone()).unwrap_or_default();
        let story = slot.zip(hello).map(|(slot, h)| self.children.story_of(slot, h.pid));
        let mut why = why.to_string();
        if let Some(last) = story.and_then(|(_, mut words)| words.pop()) {
            why = format!("{why} (its last words: {last})");
        }
        self.emit(RunEvent::WorkerLost { rank, host, why, step });
        self.forget();
    }

    /// Somebody who tries again and again is told of a few times.
    pub(super) fn turned_away(&mut self, text: String) {
        self.strangers += 1;
        let text = match self.strangers {
            n if n < STRANGERS => text,
            STRANGERS => format!("{text} (of others that are turned away, no more is said)"),
            _ => return,
        };
        self.emit(RunEvent::Warning { text });
    }
}
