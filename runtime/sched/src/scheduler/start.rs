//! From the first worker to the first step.

use super::*;

impl Scheduler {
    pub(crate) fn joined(&mut self, now_ns: u64, joined: Joined) {
        let (worker, guest) = (joined.worker, joined.slot.is_none());
        if let Some(why) = joined.objection {
            self.out.push(Command::Refuse { worker, why: why.clone() });
            if !guest && matches!(self.phase, Phase::Gathering) {
                self.fail(Cause::Refused { worker, why });
            } else {
                self.out.push(Command::Warn(Warning::Refused { worker, why }));
            }
            return;
        }
        if matches!(self.phase, Phase::Gathering) {
            let same = |w: &Joined| w.slot.is_some() && w.slot == joined.slot;
            if !guest {
                if self.workers.iter().any(|w| same(w) && w.worker > worker) {
                    return;
                }
                self.awaited.retain(|slot| Some(*slot) != joined.slot);
                // The one before it has ended, and the news of that is still under way.
                self.workers.retain(|w| !same(w));
            }
            self.workers.push(joined);
            if self.workers.len() == self.config.world as usize {
                self.start(now_ns);
            }
        } else if matches!(self.phase, Phase::Returning(_)) {
            self.joined_meanwhile(joined);
        } else if let Err(why) = self.late(joined) {
            self.out.push(Command::Refuse { worker, why: why.clone() });
            // Nobody but the controller waits for one that it has started.
            if guest {
                self.out.push(Command::Warn(Warning::Refused { worker, why }));
            }
        }
    }

    pub(crate) fn start(&mut self, now_ns: u64) {
        let Config { first_step, steps, .. } = self.config;
        if first_step > steps {
            return self.fail(Cause::BeyondEnd { first_step, steps });
        }
        let (placements, deal) = self.deal(now_ns, None);
        match ranks::links(&self.config, &self.workers) {
            Ok(links) => self.out.push(Command::Start { placements, deal, links }),
            Err(hosts) => return self.fail(Cause::NoSharedMemory { hosts }),
        }
        self.enter(now_ns, Phase::Starting);
    }

    pub(crate) fn ready(
        &mut self,
        now_ns: u64,
        worker: WorkerId,
        generation: u64,
        fingerprint: String,
    ) {
        let Some(rank) = self.rank(worker) else { return };
        if !self.begun && !fingerprint.is_empty() {
            // Those who keep what they hold do not say it again.
            self.first_print = Some(fingerprint.clone());
        }
        if generation < self.generation {
            // Under way when that generation was halted.
            return;
        }
        if !matches!(self.phase, Phase::Starting) {
            return self.out_of_turn(rank, "said `ready` out of turn");
        }
        self.print(rank, fingerprint);
        if self.printed < self.prints.len() {
            return;
        }
        let world = self.prints.len();
        let prints = std::mem::replace(&mut self.prints, vec![None; world]);
        self.printed = 0;
        let prints: Vec<String> = prints.into_iter().flatten().collect();
        if let Err(reject) = agree(self.config.first_step, "weights at the start", &prints) {
            return self.reject(rank, reject);
        }
        self.newcomers.clear();
        self.run.arrived();
        if self.begun {
            let (generation, step) = (self.generation, self.run.done());
            let world = self.workers.len() as u32;
            let waited_ns = now_ns.saturating_sub(self.since_ns);
            self.out.push(Command::Formed { generation, step, world, waited_ns });
        } else {
            self.begun = true;
            let fingerprint = self.first_print.take().unwrap_or_default();
            self.out.push(Command::Started { fingerprint });
            let config = Config { world: self.workers.len() as u32, ..self.config.clone() };
            self.run = Run::new(config, now_ns);
        }
        self.enter(now_ns, Phase::Running);
    }
}
