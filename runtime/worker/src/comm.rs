//! The communication stream: reductions in the plan's order, on a thread of its own when they
//! shall run under backward.

use crate::WorkerError;
use crate::setup::Bench;
use crate::share::share;
use crate::step::StepJob;
use crate::trace::{Spans, now_ns};
use monarch_collective::{
    Alone, CollectiveError, Layout, Mesh, Piece, Pool, Scalars, Settings, SharedMemory, Transport,
    all_reduce_scalars,
};
use monarch_graph::{Task, TaskKind};
use monarch_wire::{Links, TraceSpan};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::peers::PeerBulk;

/// What it takes to reach the peers.
pub(crate) struct Wires {
    pub(crate) links: Links,
    pub(crate) layout: Layout,
    pub(crate) lanes: usize,
    pub(crate) settings: Settings,
    /// For [`Links::Quic`].
    pub(crate) bulk: Option<PeerBulk>,
}

impl Wires {
    fn open(self) -> Result<(Box<dyn Transport>, Pool), WorkerError> {
        let failed = |source| WorkerError::Collective {
            step: None,
            task: "connect to the other workers".into(),
            source,
        };
        let Wires { links, layout, lanes, settings, bulk } = self;
        match (links, bulk) {
            _ if layout.world() == 1 => {
                let pool = Pool::private(&layout, lanes).map_err(failed)?;
                Ok((Box::new(Alone::new(layout)), pool))
            }
            (Links::SharedMemory { path }, _) => {
                let opened = SharedMemory::attach(&path, &layout, lanes, &settings);
                let (shared, pool) = opened.map_err(failed)?;
                Ok((Box::new(shared), pool))
            }
            (Links::Quic { .. }, Some(bulk)) => {
                let pool = Pool::private(&layout, lanes).map_err(failed)?;
                Ok((Box::new(Mesh::new(layout, bulk, settings)), pool))
            }
            _ => {
                let what = format!("{} workers, but no way between them", layout.world());
                Err(failed(CollectiveError::Layout(what)))
            }
        }
    }
}

/// What a step's communication came to.
#[derive(Default)]
pub(crate) struct Reduced {
    /// Per bucket: the sum first, then pieces to be given back.
    pub(crate) buckets: Vec<Vec<Piece>>,
    pub(crate) scalars: Scalars,
    pub(crate) busy_ns: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) spans: Vec<TraceSpan>,
}

pub(crate) enum Request {
    Step(Arc<StepJob>),
    Scalars(u64, Scalars),
    /// Weights and optimizer of this rank, as after so many steps, to all.
    Share(u32, u64),
}

type Reply = Result<Reduced, WorkerError>;

/// The communication stream of a worker.
pub(crate) enum Comm {
    /// On the calling thread, when there is nothing to overlap with.
    Here(Box<dyn Transport>),
    Thread {
        requests: Option<Sender<Request>>,
        replies: Receiver<Reply>,
        thread: Option<JoinHandle<()>>,
    },
}

/// A communication stream whose transport is open, before the rest of the worker stands.
pub(crate) enum Opened {
    Here(Box<dyn Transport>),
    Thread { bench: Sender<Arc<Bench>>, comm: Comm },
}

impl Opened {
    /// Opens the transport; `apart` puts it on a thread of its own.
    pub(crate) fn open(wires: Wires, apart: bool) -> Result<(Opened, Pool), WorkerError> {
        if !apart {
            let (transport, pool) = wires.open()?;
            return Ok((Opened::Here(transport), pool));
        }
        let (bench, its_bench) = channel();
        let (requests, its_requests) = channel();
        let (reply, replies) = channel();
        let (pool_to, pool_from) = channel();
        let work = move || {
            // The transport lives and dies on this thread.
            let mut transport = match wires.open() {
                Ok((transport, pool)) => {
                    if pool_to.send(Ok(pool)).is_err() {
                        return;
                    }
                    transport
                }
                Err(error) => {
                    let _ = pool_to.send(Err(error));
                    return;
                }
            };
            if let Ok(bench) = its_bench.recv() {
                serve(&mut *transport, &bench, &its_requests, &reply);
            }
        };
        let thread = std::thread::Builder::new().name("communication".into()).spawn(work);
        let thread = thread.map_err(|e| WorkerError::setup("start communication", e))?;
        let ended = || WorkerError::setup("connect to the other workers", "the thread has ended");
        let pool = pool_from.recv().unwrap_or_else(|_| Err(ended()))?;
        let comm = Comm::Thread { requests: Some(requests), replies, thread: Some(thread) };
        Ok((Opened::Thread { bench, comm }, pool))
    }

    pub(crate) fn begin(self, bench: &Arc<Bench>) -> Comm {
        match self {
            Opened::Here(transport) => Comm::Here(transport),
            Opened::Thread { bench: to, comm } => {
                // A thread that has ended is noticed at the first request.
                let _ = to.send(bench.clone());
                comm
            }
        }
    }
}

impl Comm {
    /// Lets the reductions of a step begin as soon as their buckets are folded.
    pub(crate) fn begin_step(&self, job: &Arc<StepJob>) {
        if let Comm::Thread { requests: Some(requests), .. } = self {
            let _ = requests.send(Request::Step(job.clone()));
        }
    }

    /// Waits for the reductions of the step that has begun.
    pub(crate) fn end_step(&mut self, bench: &Bench, job: &Arc<StepJob>) -> Reply {
        match self {
            Comm::Here(transport) => step(&mut **transport, bench, job),
            Comm::Thread { replies, .. } => replies.recv().unwrap_or_else(|_| Err(ended())),
        }
    }

    /// Sums numbers over all ranks.
    pub(crate) fn scalars(
        &mut self,
        bench: &Bench,
        step: u64,
        mine: Scalars,
    ) -> Result<Scalars, WorkerError> {
        match self {
            Comm::Here(transport) => numbers(&mut **transport, bench, step, &mine),
            Comm::Thread { requests, replies, .. } => {
                if let Some(requests) = requests {
                    let _ = requests.send(Request::Scalars(step, mine));
                }
                let reply = replies.recv().unwrap_or_else(|_| Err(ended()));
                reply.map(|reduced| reduced.scalars)
            }
        }
    }

    /// Gives all ranks the weights and the optimizer's state of one.
    pub(crate) fn share(
        &mut self,
        bench: &Bench,
        donor: u32,
        step: u64,
    ) -> Result<(), WorkerError> {
        match self {
            Comm::Here(transport) => share(&mut **transport, bench, donor, step),
            Comm::Thread { requests, replies, .. } => {
                if let Some(requests) = requests {
                    let _ = requests.send(Request::Share(donor, step));
                }
                replies.recv().unwrap_or_else(|_| Err(ended())).map(|_| ())
            }
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if let Comm::Thread { requests, thread, .. } = self {
            *requests = None;
            if let Some(thread) = thread.take() {
                // Its panics have been turned into errors.
                let _ = thread.join();
            }
        }
    }
}

fn ended() -> WorkerError {
    let (task, message) = ("communication".into(), "its thread has ended".into());
    WorkerError::Panic { task, message }
}

fn serve(
    transport: &mut dyn Transport,
    bench: &Arc<Bench>,
    requests: &Receiver<Request>,
    replies: &Sender<Reply>,
) {
    while let Ok(request) = requests.recv() {
        let answer = AssertUnwindSafe(|| match request {
            Request::Step(job) => step(transport, bench, &job),
            Request::Scalars(step, mine) => numbers(transport, bench, step, &mine)
                .map(|scalars| Reduced { scalars, ..Reduced::default() }),
            Request::Share(donor, step) => {
                share(transport, bench, donor, step).map(|()| Reduced::default())
            }
        });
        let reply = catch_unwind(answer).unwrap_or_else(|_| Err(ended()));
        if replies.send(reply).is_err() {
            return;
        }
    }
}

fn numbers(
    transport: &mut dyn Transport,
    bench: &Bench,
    step: u64,
    mine: &Scalars,
) -> Result<Scalars, WorkerError> {
    let sums = all_reduce_scalars(transport, bench.fold.layout(), step, mine);
    let task = "reduce metrics".into();
    sums.map_err(|source| WorkerError::Collective { step: Some(step), task, source })
}

/// All reductions of a step. Lanes fold meanwhile, or have done so.
fn step(transport: &mut dyn Transport, bench: &Bench, job: &StepJob) -> Reply {
    let sent = transport.sent_bytes();
    let mut out = Reduced::default();
    let mut spans = Spans::new(job.traced, "communication");
    let done = reduce(transport, bench, job, &mut out, &mut spans);
    if done.is_err() {
        // Lanes must not wait for slabs that never come back.
        bench.stop.set();
    }
    done?;
    out.sent_bytes = transport.sent_bytes() - sent;
    out.spans = spans.take();
    Ok(out)
}

fn reduce(
    transport: &mut dyn Transport,
    bench: &Bench,
    job: &StepJob,
    out: &mut Reduced,
    spans: &mut Spans,
) -> Result<(), WorkerError> {
    let mut run = |task: &Task| -> Result<(), CollectiveError> {
        let start_ns;
        let mut bytes = 0;
        match task.kind {
            TaskKind::AllReduce { bucket } => {
                let bucket = bucket.index();
                let parts = bench.fold.wait(bucket, &bench.stop)?;
                start_ns = now_ns();
                let room = || CollectiveError::Layout(format!("no room for bucket {bucket}"));
                let mut sum = bench.fold.pool().take(bucket).ok_or_else(room)?;
                transport.all_reduce(job.step, bucket, &parts, &mut sum)?;
                bytes = 4 * bench.fold.layout().elements(bucket) as u64;
                out.buckets.push(std::iter::once(sum).chain(parts).collect());
            }
            _ => {
                let mine = job.wait_scalars(&bench.stop)?;
                start_ns = now_ns();
                out.scalars = all_reduce_scalars(transport, bench.fold.layout(), job.step, &mine)?;
            }
        }
        let end_ns = now_ns();
        out.busy_ns += end_ns - start_ns;
        spans.add(&task.name, start_ns, end_ns, bytes);
        Ok(())
    };
    for task in &bench.tasks.communication {
        run(task).map_err(|source| WorkerError::Collective {
            step: Some(job.step),
            task: task.name.clone(),
            source,
        })?;
    }
    Ok(())
}
