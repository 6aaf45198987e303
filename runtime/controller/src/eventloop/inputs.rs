//! What comes in, as events for the scheduler.

use super::*;

impl EventLoop<'_> {
    pub(super) fn take(&mut self, input: Input) {
        match input {
            Input::Net(ServerEvent::Connected { id, .. }) => {
                let worker = self.links.connected_net(id);
                self.workers.insert(worker, WorkerInfo::default());
            }
            Input::Net(ServerEvent::Frame { id, bytes }) => {
                if let Some(worker) = self.links.worker(Origin::Net(id)) {
                    match decode::<FromWorker>(&bytes) {
                        Ok(message) => self.message(worker, message),
                        Err(error) => self.malformed(worker, &error),
                    }
                }
            }
            Input::Net(ServerEvent::Closed { id, lost }) => {
                if let Some(worker) = self.links.closed(Origin::Net(id)) {
                    self.closed(worker, lost.to_string());
                }
            }
            Input::Net(ServerEvent::Refused { error }) => {
                self.turned_away(format!("turned away: {error}"));
            }
            Input::Local(LocalEvent::Connected { id, to_worker }) => {
                let worker = self.links.connected_local(id, to_worker);
                self.workers.insert(worker, WorkerInfo::default());
            }
            Input::Local(LocalEvent::Message { id, message }) => {
                if let Some(worker) = self.links.worker(Origin::Local(id)) {
                    self.message(worker, *message);
                }
            }
            Input::Local(LocalEvent::Closed { id }) => {
                if let Some(worker) = self.links.closed(Origin::Local(id)) {
                    self.closed(worker, "its thread has ended".to_string());
                }
            }
            Input::Control(ControlRequest::Interrupt) => self.feed(Event::Interrupt),
            Input::Control(ControlRequest::Stop) => self.feed(Event::Stop),
            Input::Control(ControlRequest::Checkpoint) => self.feed(Event::Checkpoint),
            Input::Control(ControlRequest::Drain { rank }) => self.feed(Event::Drain { rank }),
            Input::Saved(saved) => self.saved(saved),
            Input::ChildEnded => self.look_at_children(),
            Input::Pulse(worker, sign) => self.sign(worker, sign),
        }
    }

    pub(super) fn malformed(&mut self, worker: WorkerId, error: &WireError) {
        let known = self.workers.get(&worker).is_some_and(|w| w.hello.is_some());
        if known {
            return self.feed(Event::Failed { worker, failure: breach(&error.to_string()) });
        }
        // It has not said who it is, and what it says cannot be understood.
        let why = error.to_string();
        self.refuse(worker, &why);
        self.turned_away(format!("turned away a worker: {why}"));
    }

    pub(super) fn message(&mut self, worker: WorkerId, message: FromWorker) {
        let rank = self.workers.get(&worker).and_then(|w| w.rank);
        let event = match message {
            FromWorker::Hello(hello) => return self.hello(worker, hello),
            FromWorker::Ready(ready) => {
                let (generation, fingerprint) = (ready.generation, ready.fingerprint.clone());
                if let Some(info) = self.workers.get_mut(&worker) {
                    info.ready = Some(ready);
                }
                Event::Ready { worker, generation, fingerprint }
            }
            FromWorker::Halted(Halted { generation, done, peer_address, kept: _ }) => {
                Event::Halted { worker, generation, done, peer_address }
            }
            FromWorker::Step(report) => {
                let numbers = match rank {
                    Some(rank) => self.merge.add(rank, report),
                    None if self.waits_for_return() => self.merge.add_again(report),
                    None => return,
                };
                Event::Step { worker, numbers }
            }
            FromWorker::Evaluated(r) => Event::Evaluated {
                worker,
                step: r.step,
                evaluation: r.evaluation,
                values: r.values,
                samples: r.samples,
                nanoseconds: r.nanoseconds,
            },
            FromWorker::Saved(report) => self.part_saved(worker, report),
            FromWorker::Finished(f) => {
                Event::Finished { worker, step: f.step, fingerprint: f.fingerprint }
            }
            FromWorker::Failed(f) => Event::Failed {
                worker,
                failure: Failure {
                    step: f.step,
                    task: f.task,
                    message: f.message,
                    span: f.span,
                    lost_peer: f.lost_peer,
                },
            },
            FromWorker::Leaving => Event::Leaving { worker },
            FromWorker::Pulse(pulse) => return self.pulses.heard(worker, &pulse),
            FromWorker::Pong(_) => return,
        };
        self.feed(event);
    }

    pub(super) fn hello(&mut self, worker: WorkerId, hello: Hello) {
        let info = self.workers.entry(worker).or_default();
        if info.hello.is_some() {
            return self.feed(Event::Failed { worker, failure: breach("it said hello twice") });
        }
        info.hello = Some(hello.clone());
        let back = hello.back.clone();
        if let Some(back) = &back {
            if !self.adopt(worker, &hello, back) {
                return;
            }
            if let Some(info) = self.workers.get_mut(&worker) {
                info.started = back.run.is_some();
            }
        }
        self.pulses.joined(worker, &hello);
        let objection = words::objection(&hello, &self.config.job_hash);
        let host = hello.host.clone();
        let joined = Joined {
            worker,
            host: hello.host,
            shm_domain: hello.shm_domain,
            cores: hello.cores,
            peer_address: hello.peer_address,
            slot: hello.slot,
            objection,
        };
        self.feed(match back.filter(|back| back.run.is_some()) {
            Some(back) => Event::Returned { joined, generation: back.generation },
            None => Event::Joined(joined),
        });
        if self.workers.get(&worker).is_some_and(|w| !w.is_gone) {
            let here = |w: &&WorkerInfo| w.hello.is_some() && !w.is_gone;
            let joined = self.workers.values().filter(here).count() as u32;
            self.emit(RunEvent::Joined { host, joined, world: self.config.workers });
        }
    }
}
