//! From `Start` and a place among the members to a worker that can run steps.

use crate::WorkerError;
use crate::comm::{Opened, Wires};
use crate::control::Orders;
use crate::crew::Crew;
use crate::engine::{Engine, EngineError};
use crate::link::Outlet;
use crate::model::Model;
use crate::peers::Listening;
use crate::run::Worker;
use crate::save::Saver;
use crate::shard::Lane;
use crate::tasks::Tasks;
use monarch_collective::{Fold, Layout, Settings, Stop};
use monarch_data::Dataset;
use monarch_device::Isa;
use monarch_graph::{Plan, shard_range};
use monarch_wire::{Form, Links, Ready, Source, Start};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for all workers to connect to each other.
const CONNECT: Duration = Duration::from_secs(60);

/// What all threads of a worker share.
pub(crate) struct Bench {
    pub(crate) plan: Arc<Plan>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) model: Arc<Model>,
    pub(crate) fold: Fold,
    pub(crate) stop: Stop,
    pub(crate) isa: Isa,
}

/// What a worker knows of its job, whoever its peers are.
pub(crate) struct Job {
    plan: Arc<Plan>,
    hash: [u8; 32],
    tasks: Arc<Tasks>,
    data: Arc<Dataset>,
    isa: Isa,
    /// The checkpoint that the run goes on from, and its step.
    resume: Option<PathBuf>,
    first_step: u64,
    trace: Vec<u64>,
}

/// Weights and optimizer, which outlive the generation that they were made in.
pub(crate) struct Held {
    model: Arc<Model>,
    /// Steps that they have seen.
    pub(crate) done: u64,
}

impl Job {
    pub(crate) fn open(start: Start) -> Result<(Job, Form), WorkerError> {
        let Start { plan, resume, first_step, trace, form, run: _ } = start;
        let plan = Arc::new(plan);
        let hash = monarch_wire::job_hash(&plan);
        let hash = hash.map_err(|e| WorkerError::setup("read the plan", e))?;
        let tasks = Arc::new(Tasks::new(&plan)?);
        let isa = Isa::detect().map_err(|e| WorkerError::setup("choose instructions", e))?;
        let data = Dataset::open(&plan.data, plan.seed).map_err(|e| WorkerError::Setup {
            task: "open the data".into(),
            message: e.to_string(),
            span: Some(plan.data.span),
        })?;
        let (data, resume) = (Arc::new(data), resume.map(PathBuf::from));
        Ok((Job { plan, hash, tasks, data, isa, resume, first_step, trace }, form))
    }

    /// Weights for a member of the generation, to be filled by others unless it holds them.
    fn model(&self, form: &Form, held: &mut Option<Held>) -> Result<Arc<Model>, WorkerError> {
        if form.holders.get(form.rank as usize) == Some(&true) {
            return match held {
                Some(own) if own.done == form.base => Ok(own.model.clone()),
                _ => {
                    let (done, base) = (held.as_ref().map(|h| h.done), form.base);
                    let what = format!("{done:?} steps are done here, the others go on at {base}");
                    Err(WorkerError::Protocol { what })
                }
            };
        }
        // What is here is about to be overwritten: nobody shall take it for weights until then.
        let own = held.take().map(|h| h.model);
        match &form.source {
            Source::Members => {}
            Source::Beginning => return Ok(Arc::new(Model::init(&self.plan)?)),
            Source::Checkpoint { directory, step } => {
                let directory = Path::new(directory);
                return Ok(Arc::new(Model::load(&self.plan, directory, *step)?));
            }
        }
        if form.is_shared() {
            return own.map_or_else(|| Ok(Arc::new(Model::frozen(&self.plan)?)), Ok);
        }
        Ok(Arc::new(match &self.resume {
            Some(directory) => Model::load(&self.plan, directory, self.first_step)?,
            None => Model::init(&self.plan)?,
        }))
    }

    fn layout(&self, form: &Form) -> Result<Layout, WorkerError> {
        let buckets: Vec<_> = self.plan.buckets.iter().map(|b| (b.start, b.elements)).collect();
        let hash = self.hash.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        let layout =
            Layout::new(&form.deal, form.world, form.rank, &buckets, hash ^ form.generation);
        let layout = layout.map_err(|e| WorkerError::setup("read the plan", e))?;
        if layout.shards() != self.plan.shards {
            let what = format!("{} of {} shards are dealt", layout.shards(), self.plan.shards);
            return Err(WorkerError::Protocol { what });
        }
        Ok(layout)
    }

    /// Takes its place among the members. `held` is what the generation before has left, and is
    /// left to the next one.
    pub(crate) fn take_place(
        &self,
        form: &Form,
        held: &mut Option<Held>,
        listening: Option<Listening>,
        orders: &Orders,
        outlet: &Outlet,
    ) -> Result<(Worker, Ready), WorkerError> {
        let (stop, plan) = (orders.stop(), &self.plan);
        let layout = self.layout(form)?;
        let model = self.model(form, held)?;
        let threads = (form.threads.max(1) as usize).min(layout.held().len().max(1));
        let lanes = lanes(plan, &self.data, &layout, self.isa, threads, &stop)?;
        let bulk = match (&form.links, listening) {
            (Links::Quic { peers }, Some(listening)) if form.world > 1 => {
                Some(listening.connect(form.rank, peers, CONNECT, &stop)?)
            }
            _ => None,
        };
        let settings = Settings { attach: CONNECT, stop: stop.clone(), ..Settings::default() };
        // The only bucket is whole when backward is over: nothing is left that it could run under,
        // and another thread would have to be woken for it.
        let apart = form.world > 1 && plan.overlap && plan.buckets.len() > 1;
        let links = form.links.clone();
        let wires = Wires { links, layout: layout.clone(), lanes: threads, settings, bulk };
        let (opened, pool) = Opened::open(wires, apart)?;
        let copies = layout.copies(threads) * layout.slab() * 4;
        let bytes = lanes.iter().map(Lane::bytes).sum::<u64>() + model.bytes() + copies as u64;
        let fold = Fold::new(layout, pool);
        let (tasks, isa) = (self.tasks.clone(), self.isa);
        let (plan, model) = (plan.clone(), model.clone());
        let bench =
            Arc::new(Bench { plan: plan.clone(), tasks, model, fold, stop: stop.clone(), isa });
        let mut comm = opened.begin(&bench);
        if form.is_shared() {
            let donor = form.holders.iter().position(|h| *h).unwrap_or(0) as u32;
            comm.share(&bench, donor, form.base)?;
        }
        *held = Some(Held { model: bench.model.clone(), done: form.base });
        let kept = form.holders.iter().all(|h| *h);
        let ready = Ready {
            generation: form.generation,
            fingerprint: if kept { String::new() } else { bench.model.fingerprint(&plan) },
            bytes,
            isa: isa.name().into(),
            threads: threads as u32,
        };
        let mut lanes = lanes.into_iter();
        let first = lanes.next().ok_or_else(|| WorkerError::setup("start lanes", "no lane"))?;
        let worker = Worker {
            crew: Crew::new(first, lanes.collect())?,
            comm,
            saver: Saver::new(plan, form.rank, form.world, outlet.clone(), stop),
            pending: Vec::new(),
            traced: self.trace.iter().copied().collect(),
            bench,
        };
        Ok((worker, ready))
    }
}

/// Lanes with all programs, made ready for the shards of a full batch.
fn lanes(
    plan: &Plan,
    data: &Arc<Dataset>,
    layout: &Layout,
    isa: Isa,
    threads: usize,
    stop: &Stop,
) -> Result<Vec<Lane>, WorkerError> {
    let failed = |e: EngineError| WorkerError::Setup {
        task: "prepare the program".into(),
        message: e.message,
        span: e.span,
    };
    // Of all shards, whoever has them now: there are two sizes at most.
    let sizes = (0..layout.shards()).map(|shard| {
        let range = shard_range(plan.batch, plan.shards, shard);
        range.end - range.start
    });
    let mut sizes: Vec<u64> = sizes.filter(|&n| n > 0).collect();
    sizes.dedup();
    let lane = |number| {
        let mut train = Engine::new(&plan.train.program, data, layout.slab(), isa)?;
        for &size in &sizes {
            train.prepare(size)?;
        }
        let evals = plan.evals.iter().map(|e| Engine::new(&e.program, data, 0, isa));
        let evals = evals.collect::<Result<Vec<_>, _>>()?;
        Ok(Lane { number, stop: stop.clone(), train, evals })
    };
    (0..threads).map(lane).collect::<Result<Vec<_>, _>>().map_err(failed)
}
