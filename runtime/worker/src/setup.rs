//! From `Start` and a place among the members to a worker that can run steps.

use crate::WorkerError;
use crate::comm::{Comm, Wires};
use crate::control::Orders;
use crate::crew::Crew;
use crate::engine::{Engine, EngineError};
use crate::link::Outlet;
use crate::model::Model;
use crate::peers::Listening;
use crate::run::Worker;
use crate::save::Saver;
use crate::shard::Lane;
use crate::share::Owed;
use crate::step::StepJob;
use crate::tasks::Tasks;
use monarch_collective::{Fold, Layout, Pool, Settings, Stop};
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
    pub(crate) model: Arc<Model>,
    /// Steps that they have seen.
    pub(crate) done: u64,
}

/// Threads and sums that outlive the generation that they were made in.
#[derive(Default)]
pub(crate) struct Kit {
    pub(crate) crew: Option<Crew>,
    pub(crate) fold: Option<Fold>,
    /// The step that the sums are of, when it has not come to its end.
    pub(crate) underway: Option<Arc<StepJob>>,
}

impl Kit {
    /// Shards of step `step` whose gradients and losses are here.
    pub(crate) fn kept(&self, step: u64) -> Vec<u32> {
        match (&self.fold, &self.underway) {
            (Some(fold), Some(job)) if job.step == step => {
                let shards = fold.complete_shards().into_iter();
                shards.filter(|shard| job.knows(*shard)).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Job {
    pub(crate) fn open(start: Start) -> Result<(Job, Form), WorkerError> {
        let Start { plan, resume, first_step, trace, form, run: _, incarnation: _ } = start;
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
        match &form.source {
            Source::Members => {}
            Source::Beginning => {
                *held = None;
                return Ok(Arc::new(Model::init(&self.plan)?));
            }
            Source::Checkpoint { directory, step } => {
                *held = None;
                let directory = Path::new(directory);
                return Ok(Arc::new(Model::load(&self.plan, directory, *step)?));
            }
        }
        if form.is_shared() {
            let copy = held.as_ref().map(|own| own.model.copy(&self.plan));
            return match (copy, held.take()) {
                // What is here stays until the newer is: who has that may be lost meanwhile.
                (Some(Some(copy)), own) => {
                    *held = own;
                    Ok(Arc::new(copy))
                }
                // There is room for one alone; nobody shall take it for weights until it is whole.
                (_, Some(own)) => Ok(own.model),
                (_, None) => Ok(Arc::new(Model::frozen(&self.plan)?)),
            };
        }
        *held = None;
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

    /// Takes its place among the members. `held` and `kit` are what the generation before has left,
    /// and are left to the next one.
    pub(crate) fn take_place(
        &self,
        form: &Form,
        held: &mut Option<Held>,
        kit: &mut Kit,
        listening: Option<Listening>,
        orders: &Orders,
        outlet: &Outlet,
    ) -> Result<(Worker, Ready), WorkerError> {
        let (stop, plan) = (orders.stop(), &self.plan);
        let layout = self.layout(form)?;
        let model = self.model(form, held)?;
        let threads = (form.threads.max(1) as usize).min(layout.held().len().max(1));
        let owed = Owed::of(form);
        self.equip(form, kit, &layout, threads, owed.is_some(), &orders.ended())?;
        let bulk = match (&form.links, listening) {
            (Links::Quic { peers }, Some(listening)) if form.world > 1 => {
                Some(listening.connect(form.rank, peers, CONNECT, &stop)?)
            }
            _ => None,
        };
        let settings = Settings { attach: CONNECT, stop: stop.clone(), ..Settings::default() };
        let lacking = || WorkerError::setup("start lanes", "no lane");
        let fold = kit.fold.take().ok_or_else(lacking)?;
        let pool = fold.pool().clone();
        let bench = Arc::new(Bench {
            plan: plan.clone(),
            tasks: self.tasks.clone(),
            model,
            fold,
            stop: stop.clone(),
            isa: self.isa,
        });
        let under = runs_under(form, &layout);
        // The only bucket is whole when backward is over: nothing is left that it could run under,
        // and another thread would have to be woken for it.
        let apart =
            form.world > 1 && (plan.overlap && plan.buckets.len() > 1 || owed.is_some() && under);
        let wires = Wires { links: form.links.clone(), settings, bulk };
        let comm = match Comm::open(wires, &bench, apart) {
            Ok(comm) => comm,
            Err(error) => {
                kit.fold = Arc::into_inner(bench).map(|bench| bench.fold);
                return Err(error);
            }
        };
        let crew = kit.crew.take().ok_or_else(lacking)?;
        let bytes = crew.lane_bytes() * threads as u64 + bench.model.bytes() + pool.bytes();
        let mut worker = Worker {
            crew,
            comm,
            saver: Saver::new(plan.clone(), form.rank, form.world, outlet.clone(), stop),
            pending: Vec::new(),
            traced: self.trace.iter().copied().collect(),
            underway: kit.underway.take(),
            has_weights: owed.is_none() || form.holders.get(form.rank as usize) == Some(&true),
            owed,
            bench,
        };
        let later = worker.owed.is_some() && under;
        if !later && let Err(error) = worker.settle(form.base, held) {
            *kit = worker.dismantle();
            return Err(error);
        }
        let kept = later || !form.holders.contains(&false);
        let fingerprint = if kept { String::new() } else { worker.bench.model.fingerprint(plan) };
        let (isa, threads) = (self.isa.name().into(), threads as u32);
        Ok((worker, Ready { generation: form.generation, fingerprint, bytes, isa, threads }))
    }

    /// Lanes and sums for the place: what is there already, as far as it fits.
    fn equip(
        &self,
        form: &Form,
        kit: &mut Kit,
        layout: &Layout,
        threads: usize,
        shares: bool,
        ended: &Stop,
    ) -> Result<(), WorkerError> {
        let make = |number| lane(&self.plan, &self.data, layout, self.isa, number, ended);
        let mut crew = match kit.crew.take() {
            Some(crew) => crew,
            None => Crew::new(make(0)?),
        };
        crew.resize(threads, make)?;
        kit.crew = Some(crew);
        let failed = |e| WorkerError::setup("make room for gradients", e);
        let shared = form.world > 1 && matches!(form.links, Links::SharedMemory { .. });
        let pool = |lanes| match shared {
            true => Pool::shared(layout, lanes).map(Arc::new),
            false => Pool::private(layout, lanes).map(Arc::new),
        };
        // Partial sums are good for these weights and this step alone.
        let holds = form.holders.get(form.rank as usize) == Some(&true);
        kit.underway.take_if(|job| job.step != form.base || !holds);
        let known = kit.underway.clone().map(|job| {
            job.resume();
            move |shard| job.knows(shard)
        });
        let known = known.as_ref().map(|known| known as &dyn Fn(u32) -> bool);
        kit.fold = Some(match kit.fold.take() {
            None => Fold::new(layout.clone(), pool(threads).map_err(failed)?),
            Some(fold) => {
                // Private memory is the faster one, but moving costs more than it gains.
                let fits = fold.pool().is_shared() || !shared;
                let pool = if fits { Ok(fold.pool().clone()) } else { pool(threads) };
                let spare = usize::from(shares);
                let pool = pool.map_err(failed)?;
                fold.renew(layout.clone(), (threads, spare), pool, known).map_err(failed)?
            }
        });
        Ok(())
    }
}

/// Who receives weights and has nothing to compute does so while the others compute.
fn runs_under(form: &Form, layout: &Layout) -> bool {
    let idle = |rank: u32| layout.nodes(rank).is_empty();
    (0..).zip(&form.holders).all(|(rank, holds)| *holds || idle(rank))
}

/// A lane with all programs, made ready for the shards of a full batch.
fn lane(
    plan: &Plan,
    data: &Arc<Dataset>,
    layout: &Layout,
    isa: Isa,
    number: usize,
    stop: &Stop,
) -> Result<Lane, WorkerError> {
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
    let make = || {
        let mut train = Engine::new(&plan.train.program, data, layout.slab(), isa)?;
        for &size in &sizes {
            train.prepare(size)?;
        }
        let evals = plan.evals.iter().map(|e| Engine::new(&e.program, data, 0, isa));
        let evals = evals.collect::<Result<Vec<_>, _>>()?;
        Ok(Lane { number, stop: stop.clone(), train, evals })
    };
    make().map_err(failed)
}
