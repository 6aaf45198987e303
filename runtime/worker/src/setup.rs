//! From `Start` to a worker that can run steps.

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
use monarch_wire::{Links, Ready, Start};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for all workers to connect to each other.
const CONNECT: Duration = Duration::from_secs(60);

/// What all threads of a worker share.
pub(crate) struct Bench {
    pub(crate) plan: Arc<Plan>,
    pub(crate) tasks: Tasks,
    pub(crate) model: Model,
    pub(crate) fold: Fold,
    pub(crate) stop: Stop,
    pub(crate) isa: Isa,
}

pub(crate) fn set_up(
    start: Start,
    listening: Option<Listening>,
    orders: &Orders,
    outlet: &Outlet,
) -> Result<(Worker, Ready), WorkerError> {
    let Start { plan, rank, world, threads, links, resume, first_step, trace, run: _ } = start;
    let stop = orders.stop.clone();
    let plan = Arc::new(plan);
    let job = monarch_wire::job_hash(&plan).map_err(|e| WorkerError::setup("read the plan", e))?;
    let layout = layout(&plan, rank, world, &job)?;
    let tasks = Tasks::new(&plan)?;
    let isa = Isa::detect().map_err(|e| WorkerError::setup("choose instructions", e))?;
    let data = Dataset::open(&plan.data, plan.seed).map_err(|e| WorkerError::Setup {
        task: "open the data".into(),
        message: e.to_string(),
        span: Some(plan.data.span),
    })?;
    let model = match &resume {
        Some(directory) => Model::load(&plan, Path::new(directory), first_step)?,
        None => Model::init(&plan)?,
    };
    let threads = (threads.max(1) as usize).min(layout.held().len().max(1));
    let lanes = lanes(&plan, &Arc::new(data), &layout, isa, threads, &stop)?;
    orders.check()?;
    let bulk = match (&links, listening) {
        (Links::Quic { peers }, Some(listening)) if world > 1 => {
            Some(listening.connect(rank, peers, CONNECT, &stop)?)
        }
        _ => None,
    };
    let settings = Settings { attach: CONNECT, stop: stop.clone(), ..Settings::default() };
    // The only bucket is whole when backward is over: nothing is left that it could run under, and
    // another thread would have to be woken for it.
    let apart = world > 1 && plan.overlap && plan.buckets.len() > 1;
    let wires = Wires { links, layout: layout.clone(), lanes: threads, settings, bulk };
    let (opened, pool) = Opened::open(wires, apart)?;
    let copies = layout.copies(threads) * layout.slab() * 4;
    let bytes = lanes.iter().map(Lane::bytes).sum::<u64>() + model.bytes() + copies as u64;
    let fold = Fold::new(layout, pool);
    let bench = Arc::new(Bench { plan: plan.clone(), tasks, model, fold, stop, isa });
    let ready = Ready {
        fingerprint: bench.model.fingerprint(&plan),
        bytes,
        isa: isa.name().into(),
        threads: threads as u32,
    };
    let mut lanes = lanes.into_iter();
    let first = lanes.next().ok_or_else(|| WorkerError::setup("start lanes", "no lane"))?;
    let worker = Worker {
        crew: Crew::new(first, lanes.collect())?,
        comm: opened.begin(&bench),
        saver: Saver::new(plan, rank, world, outlet.clone(), orders.stop.clone()),
        pending: Vec::new(),
        traced: trace.into_iter().collect(),
        bench,
    };
    Ok((worker, ready))
}

fn layout(plan: &Plan, rank: u32, world: u32, job: &[u8; 32]) -> Result<Layout, WorkerError> {
    let buckets: Vec<_> = plan.buckets.iter().map(|b| (b.start, b.elements)).collect();
    let job = job.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    Layout::new(plan.shards, world, rank, &buckets, job)
        .map_err(|e| WorkerError::setup("read the plan", e))
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
    let sizes = layout.held().map(|shard| {
        let range = shard_range(plan.batch, plan.shards, shard);
        range.end - range.start
    });
    let sizes: Vec<u64> = sizes.filter(|&n| n > 0).collect();
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
