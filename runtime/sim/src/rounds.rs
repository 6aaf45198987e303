//! What a worker computes and saves: rounds of reductions, and its part of a checkpoint.

use crate::cluster::{Cluster, PeerSaying, PeerWord, Thing};
use crate::node::{Part, ROUNDS, Saying, Stage, Work, dealt, print};
use crate::weights::SHARDS;
use monarch_sched::{Event, Failure, WorkerId};

impl Cluster {
    pub fn begin_round(&mut self, number: usize, round: u64) {
        let (shards, shard_ns) = (self.schedule.job.shards, self.schedule.job.shard_ns);
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.fails {
            let (task, message) = ("load data".to_string(), "token 99".to_string());
            let failure = Failure { step: None, task, message, span: None, lost_peer: None };
            node.fails = false;
            self.done_to.failures += 1;
            self.say(number, Saying::Failed(failure));
            return self.end_process(number, false, "exit code 1");
        }
        (node.round, node.mask) = (round, 0);
        let mine = node.form.as_ref().map_or(0, |f| dealt(f, shards));
        self.work(number, Work::Compute, shard_ns * u64::from(mine.count_ones()));
        let Some(node) = self.nodes.get_mut(number) else { return };
        for word in std::mem::take(&mut node.early) {
            self.peer_said(number, word);
        }
    }

    /// Its own part of a round is done.
    pub fn computed(&mut self, number: usize) {
        let shards = self.schedule.job.shards;
        let Some(node) = self.nodes.get_mut(number) else { return };
        let (Some((done, weights)), Some(form)) = (node.held, node.form.as_ref()) else { return };
        let mask = dealt(form, shards);
        let mut sums = [0; SHARDS];
        for (v, sum) in (0..shards).zip(&mut sums) {
            if mask & 1 << v != 0 {
                *sum = match node.round % ROUNDS == ROUNDS - 1 {
                    true => crate::weights::gradient(weights, done, v),
                    false => crate::weights::score(weights, done, v),
                };
            }
        }
        let what = PeerSaying::Sums { round: node.round, mask, sums };
        let word = PeerWord { generation: node.generation, from: form.rank, what };
        node.stage = Stage::Reducing;
        self.tell_peers(number, word);
        self.peer_said(number, word);
    }

    /// The sums are complete, and what follows from them is done.
    pub fn updated(&mut self, number: usize) {
        let shards = self.schedule.job.shards as usize;
        let Some(node) = self.nodes.get_mut(number) else { return };
        let Some((done, weights)) = node.held else { return };
        node.stage = Stage::Idle;
        let sum = crate::weights::sum(node.sums.get(..shards).unwrap_or_default());
        let worker = WorkerId(number as u64);
        if node.round % ROUNDS == ROUNDS - 1 {
            node.held = Some((done + 1, crate::weights::update(weights, sum, done)));
            let numbers = crate::check::numbers(done, sum);
            self.send_up(number, Event::Step { worker, numbers });
        } else {
            let evaluation = (node.round % ROUNDS) as u32;
            self.send_up(
                number,
                Event::Evaluated {
                    worker,
                    step: done,
                    evaluation,
                    values: vec![crate::weights::accuracy(sum)],
                    samples: 100,
                    nanoseconds: 1,
                },
            );
        }
    }

    pub fn begin_save(&mut self, number: usize, attempt: usize, step: u64, weights: u64) {
        let takes_ns = self.schedule.job.save_ns * self.random.within(30, 200) / 100;
        let Some(node) = self.nodes.get_mut(number) else { return };
        let Some(form) = node.form.as_ref() else { return };
        let (generation, rank, world) = (form.generation, form.rank, form.world);
        let part = Part { attempt, step, generation, rank, world, weights };
        node.saves += 1;
        node.saving = Some(node.saves);
        self.queue.push(self.now_ns + takes_ns, Thing::Written(number, node.saves, part));
    }

    /// By a thread of its own: also after the generation that asked for it.
    pub fn written(&mut self, number: usize, token: u64, part: Part) {
        let full = self.now_ns < self.disk.full_until_ns;
        if !full {
            self.disk.write(part);
        }
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.saving == Some(token) {
            node.saving = None;
            let worker = WorkerId(number as u64);
            let error = full.then(|| "no space left on device".to_string());
            let fingerprint = print(part.weights);
            self.send_up(number, Event::Saved { worker, step: part.step, fingerprint, error });
            self.poke(number);
        }
    }
}
