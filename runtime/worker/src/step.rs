//! A step: shards on lanes, reductions under them, then the update.

use crate::WorkerError;
use crate::engine::Share;
use crate::run::Worker;
use crate::shard::TRAIN;
use crate::trace::{Spans, now_ns};
use crate::update::Update;
use monarch_collective::{CollectiveError, Scalars, Stop};
use monarch_data::{Position, position};
use monarch_graph::Span;
use monarch_pulse::{Phase, enter};
use monarch_wire::{Phases, StepReport, TraceSpan};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a sleeper waits before it looks at `Stop` again.
const SLICE: Duration = Duration::from_millis(5);

/// What lanes and the communication stream share in one step.
pub(crate) struct StepJob {
    pub(crate) step: u64,
    pub(crate) at: Position,
    pub(crate) traced: bool,
    progress: Mutex<Progress>,
    losses: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Of each shard whose loss is known.
    shares: BTreeMap<u32, Share>,
    /// Shards computed among the members at hand.
    computed: u32,
    data_ns: u64,
    spent: Spent,
    spans: Vec<TraceSpan>,
}

/// Nanoseconds that a lane was busy with its shards.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) load_ns: u64,
    pub(crate) forward_ns: u64,
    pub(crate) backward_ns: u64,
}

impl StepJob {
    pub(crate) fn new(step: u64, at: Position, traced: bool) -> StepJob {
        StepJob { step, at, traced, progress: Mutex::default(), losses: Condvar::new() }
    }

    /// Whether the loss of a shard is known.
    pub(crate) fn knows(&self, shard: u32) -> bool {
        self.lock().shares.contains_key(&shard)
    }

    /// Goes on among other members.
    pub(crate) fn resume(&self) {
        self.lock().computed = 0;
    }

    pub(crate) fn shard_computed(&self) {
        self.lock().computed += 1;
    }

    pub(crate) fn shard_done(&self, shard: u32, share: Share) {
        let mut progress = self.lock();
        progress.shares.insert(shard, share);
        drop(progress);
        self.losses.notify_all();
    }

    pub(crate) fn lane_done(&self, spent: Spent, spans: Vec<TraceSpan>) {
        let mut progress = self.lock();
        progress.data_ns = progress.data_ns.max(spent.load_ns);
        progress.spent.load_ns += spent.load_ns;
        progress.spent.forward_ns += spent.forward_ns;
        progress.spent.backward_ns += spent.backward_ns;
        progress.spans.extend(spans);
    }

    /// Loss and counts of the shards `held`, once all are known. Flag s % 64 is set for a shard s
    /// whose loss is not finite.
    pub(crate) fn wait_scalars(
        &self,
        held: &[u32],
        stop: &Stop,
    ) -> Result<Scalars, CollectiveError> {
        let mut progress = self.lock();
        loop {
            stop.check()?;
            let share = |shard| progress.shares.get(shard).copied();
            let shares: Option<Vec<Share>> = held.iter().map(share).collect();
            if let Some(shares) = shares {
                let mut out = Scalars::default();
                for (shard, share) in held.iter().zip(&shares) {
                    out.values.push(vec![share.numerator, share.denominator]);
                    if !share.numerator.is_finite() || !share.denominator.is_finite() {
                        out.flags |= 1 << (shard % 64);
                    }
                }
                return Ok(out);
            }
            let waited = self.losses.wait_timeout(progress, SLICE);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Runs one step and reports it.
    pub(crate) fn step(&mut self, step: u64) -> Result<StepReport, WorkerError> {
        let begun = now_ns();
        monarch_pulse::step(step);
        let bench = self.bench.clone();
        let at = position(&bench.plan, step).ok_or_else(|| WorkerError::Task {
            step,
            task: "load data".into(),
            message: format!("split `{TRAIN}` has no whole batch"),
            span: Some(bench.plan.data.span),
        })?;
        let traced = self.traced.contains(&step);
        let job = self.underway.take_if(|job| job.step == step).unwrap_or_else(|| {
            bench.fold.begin();
            Arc::new(StepJob::new(step, at, traced))
        });
        self.underway = Some(job.clone());
        let owed = self.owed.take();
        self.comm.begin_step(&job, owed.as_ref());
        let computed = self.compute(&job);
        let computed_ns = now_ns();
        let reduced = self.comm.end_step(&bench, &job, owed.as_ref());
        if owed.is_some_and(|owed| owed.is_made()) {
            self.has_weights = true;
        }
        let reduced_ns = now_ns();
        // A failed lane stops the reductions, and failed reductions stop the lanes.
        let reduced = match (computed, reduced) {
            (Ok(()), reduced) => reduced?,
            (Err(lane), Err(comm)) if lane.is_echo() && !comm.is_echo() => return Err(comm),
            (Err(lane), _) => return Err(lane),
        };
        enter(Phase::Update);
        let update = Update::new(&bench, step, &reduced.scalars);
        let (sent_bytes, busy_ns) = (reduced.sent_bytes, reduced.busy_ns);
        let mut spans = Spans::new(traced, "host");
        let buckets = Arc::new(reduced.buckets);
        let made = match update {
            Ok(update) => self.update(update, &buckets)?,
            Err(bad) => Err(bad),
        };
        self.underway = None;
        for piece in Arc::into_inner(buckets).into_iter().flatten().flatten() {
            bench.fold.pool().give(piece);
        }
        let (loss, grad_norm, trouble) = match made {
            Ok((loss, norm)) => (loss, norm, None),
            Err(bad) => (bad.loss, bad.norm, Some(self.explain(step, at, bad))),
        };
        let ended = now_ns();
        spans.add(&bench.tasks.update, reduced_ns, ended, 0);
        let mut progress = job.lock();
        let mut all = std::mem::take(&mut self.pending);
        all.append(&mut progress.spans);
        all.extend(reduced.spans);
        all.extend(spans.take());
        let Spent { load_ns, forward_ns, backward_ns } = progress.spent;
        let phases = Phases {
            total_ns: ended - begun,
            data_ns: progress.data_ns,
            compute_ns: computed_ns - begun,
            wait_ns: reduced_ns - computed_ns,
            communication_ns: busy_ns,
            update_ns: ended - reduced_ns,
            load_ns,
            forward_ns,
            backward_ns,
            sent_bytes,
            shards: progress.computed,
        };
        let lr = bench.plan.schedule.at(step);
        let (epoch, samples) = (at.epoch, at.count);
        Ok(StepReport { step, epoch, samples, loss, grad_norm, lr, phases, spans: all, trouble })
    }
}

impl Worker {
    /// Shards on all lanes.
    fn compute(&mut self, job: &Arc<StepJob>) -> Result<(), WorkerError> {
        let (bench, job) = (self.bench.clone(), job.clone());
        let stop = bench.stop.clone();
        self.crew.run(&stop, Arc::new(move |lane| lane.train(&bench, &job)))
    }
}

/// The shards of flags set by [`StepJob::wait_scalars`], in words.
pub(crate) fn flagged_shards(flags: u64, shards: u32) -> String {
    let bad = (0..shards).filter(|s| flags >> (s % 64) & 1 == 1);
    bad.map(|s| s.to_string()).collect::<Vec<_>>().join(", ")
}

/// A span of the job for the loss: of the node that it is summed from.
pub(crate) fn loss_span(plan: &monarch_graph::Plan) -> Option<Span> {
    let node = plan.train.loss.numerator.index();
    plan.train.program.graph.nodes.get(node).map(|n| n.span)
}
