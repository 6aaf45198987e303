//! The scheduler's commands as messages, files and words.

use super::*;

impl EventLoop<'_> {
    pub(super) fn obey(&mut self, command: Command) {
        self.mark(&command);
        match command {
            Command::Refuse { worker, why } => self.refuse(worker, &why),
            Command::Start { placements, deal, links } => {
                self.joined_ns = self.now_ns();
                self.merge.regroup(placements.len() as u32);
                let (base, holders) = (self.config.first_step(), vec![false; placements.len()]);
                let source = Source::Members;
                let generation = 0;
                self.form(Forming { generation, base, placements, deal, holders, source, links });
            }
            Command::Halt { generation, workers } => {
                self.tell_all(&workers, &ToWorker::Halt { generation });
            }
            Command::Form(forming) => {
                self.merge.regroup(forming.placements.len() as u32);
                self.form(forming);
            }
            Command::Formed { generation, step, world, waited_ns } => {
                self.going_on(step, world);
                let seconds = waited_ns as f64 * 1e-9;
                self.emit(RunEvent::Regrouped { generation, step, workers: world, seconds });
            }
            Command::Replace { slot } => self.replace(slot),
            Command::Evict { worker, why } => self.evict(worker, &why),
            Command::Release { worker, step } => self.release(worker, step),
            Command::Slow { rank, worker, what, shards } => {
                let host = self.host_of(worker);
                self.emit(RunEvent::WorkerSlow(words::slow(rank, host, &what, shards)));
            }
            Command::Started { fingerprint } => self.all_ready(fingerprint),
            Command::Window { until, due } => self.window(until, due),
            Command::Step(numbers) => self.step(numbers),
            Command::Evaluated(numbers) => self.evaluated(numbers),
            Command::NotFinite { step, verdict, told } => self.not_finite(step, verdict, told),
            Command::Skip { step } => {
                self.tell_all(&self.ranks.clone(), &ToWorker::Skip { step });
            }
            Command::Commit { step, fingerprint, tried, only_finite } => {
                self.commit(step, &fingerprint, tried, only_finite);
            }
            // Dropping the staging directory removes it.
            Command::Discard { step, .. } => drop(self.save.take_if(|s| s.step == step)),
            Command::Warn(warning) => self.warn(&warning),
            Command::Abort { why } => self.tell_all(&self.everyone(), &ToWorker::Abort { why }),
            Command::Finish => self.tell_all(&self.ranks.clone(), &ToWorker::Finish),
            Command::Conclude(outcome) => self.outcome = Some(*outcome),
        }
    }

    pub(super) fn everyone(&self) -> Vec<WorkerId> {
        self.links.everyone()
    }

    pub(super) fn tell_all(&mut self, workers: &[WorkerId], message: &ToWorker) {
        if let Err(error) = self.links.send(workers, message) {
            self.later.push_back(Event::Broken { what: error.to_string() });
        }
    }

    pub(super) fn warn(&mut self, warning: &Warning) {
        if let Warning::WorkerLost { rank, worker, slot, why, step } = warning {
            return self.worker_lost(*rank, *worker, *slot, why, *step);
        }
        if let Warning::Recovered { rank, worker } = warning {
            let host = self.host_of(*worker);
            return self.emit(RunEvent::WorkerRecovered { rank: *rank, host });
        }
        let name = |worker: WorkerId| {
            let hello = self.workers.get(&worker).and_then(|w| w.hello.as_ref());
            hello.map_or("a worker".to_string(), |h| {
                format!("the worker on {} (process {})", h.host, h.pid)
            })
        };
        let text = words::warning(warning, name);
        if matches!(warning, Warning::Refused { .. } | Warning::LeftEarly { .. }) {
            return self.turned_away(text);
        }
        self.emit(RunEvent::Warning { text });
    }

    fn host_of(&self, worker: WorkerId) -> String {
        let hello = self.workers.get(&worker).and_then(|w| w.hello.as_ref());
        hello.map(|h| h.host.clone()).unwrap_or_default()
    }

    pub(super) fn all_ready(&mut self, fingerprint: String) {
        let describe = |worker: &WorkerId| {
            let info = self.workers.get(worker)?;
            let (hello, ready) = (info.hello.as_ref()?, info.ready.as_ref()?);
            Some(WorkerEvent {
                rank: info.rank?,
                host: hello.host.clone(),
                pid: hello.pid,
                threads: ready.threads,
                bytes: ready.bytes,
                isa: ready.isa.clone(),
            })
        };
        let event = StartedEvent {
            run_id: self.config.run_id.clone(),
            run_dir: self.run_dir.clone(),
            job: self.config.plan.name.clone(),
            job_hash: self.config.job_hash,
            workers: self.ranks.iter().filter_map(describe).collect(),
            transport: self.transport,
            fingerprint,
            first_step: self.config.first_step(),
            steps: self.config.plan.steps,
            joined_ns: self.joined_ns,
            ready_ns: self.now_ns(),
        };
        if let Some(probe) = &mut self.probe {
            probe.measure(&event, &self.ranks, &self.links, &self.inbox, &mut self.backlog);
        }
        self.emit(RunEvent::Started(event));
    }

    pub(super) fn window(&mut self, until: u64, due: Vec<Due>) {
        let mut list = Vec::new();
        for Due { step, what } in due {
            let what = match what {
                DueKind::Evaluate(n) => monarch_wire::DueKind::Evaluate(n),
                DueKind::Save => match self.begin_save(step) {
                    Some(directory) => monarch_wire::DueKind::Save { directory },
                    None => continue,
                },
            };
            list.push(monarch_wire::Due { step, what });
        }
        let window = ToWorker::Window(Window { until, due: list, kept: self.kept() });
        self.tell_all(&self.ranks.clone(), &window);
    }

    pub(super) fn step(&mut self, numbers: StepNumbers) {
        let merged = self.merge.take(&numbers);
        if merged.spans.iter().any(|s| !s.is_empty()) {
            self.recorder.spans(numbers.step, merged.spans);
        }
        let tokens = self.config.tokens_per_sample();
        let event = step_event(&numbers, merged.phases, self.config.plan.steps, tokens);
        self.emit(RunEvent::Step(event));
    }

    pub(super) fn evaluated(&mut self, numbers: EvalNumbers) {
        let Some(eval) = self.config.plan.evals.get(numbers.evaluation as usize) else { return };
        let named =
            |(m, &v): (&monarch_graph::Ratio, &f64)| (format!("{}.{}", eval.name, m.name), v);
        let values: Vec<(String, f64)> =
            eval.metrics.iter().zip(&numbers.values).map(named).collect();
        let here = self.evaluated.entry(numbers.step).or_default();
        for (name, value) in &values {
            here.insert(name.clone(), *value);
            self.metrics.insert(name.clone(), *value);
            let Some(smallest) = words::smallest_is_best(name) else { continue };
            let best = self.best.entry(name.clone()).or_insert((*value, numbers.step));
            let better = if smallest { *value < best.0 } else { *value > best.0 };
            if better {
                *best = (*value, numbers.step);
            }
        }
        while self.evaluated.len() > 16 {
            self.evaluated.pop_first();
        }
        let event = EvalEvent {
            step: numbers.step,
            name: eval.name.clone(),
            values,
            samples: numbers.samples,
            seconds: numbers.nanoseconds as f64 * 1e-9,
        };
        self.emit(RunEvent::Evaluated(event));
    }
}
