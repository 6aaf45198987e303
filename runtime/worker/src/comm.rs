//! The communication stream: reductions in the plan's order, on a thread of its own when they
//! shall run under backward.

use crate::WorkerError;
use crate::setup::Bench;
use crate::share::{Owed, share};
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
    pub(crate) settings: Settings,
    /// For [`Links::Quic`].
    pub(crate) bulk: Option<PeerBulk>,
}

impl Wires {
    fn open(self, layout: &Layout, pool: &Arc<Pool>) -> Result<Box<dyn Transport>, WorkerError> {
        let failed = |source| WorkerError::Collective {
            step: None,
            task: "connect to the other workers".into(),
            source,
        };
        let Wires { links, settings, bulk } = self;
        match (links, bulk) {
            _ if layout.world() == 1 => Ok(Box::new(Alone::new(layout.clone()))),
            (Links::SharedMemory { path }, _) => {
                let shared = SharedMemory::attach(&path, layout, pool, &settings);
                Ok(Box::new(shared.map_err(failed)?))
            }
            (Links::Quic { .. }, Some(bulk)) => {
                Ok(Box::new(Mesh::new(layout.clone(), bulk, settings)))
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
    /// With the copy of the weights that is to be made before its reductions.
    Step(Arc<StepJob>, Option<Owed>),
    Scalars(u64, Scalars),
    Share(Owed),
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

impl Comm {
    /// Opens the transport; `apart` puts it on a thread of its own.
    pub(crate) fn open(wires: Wires, bench: &Arc<Bench>, apart: bool) -> Result<Comm, WorkerError> {
        if !apart {
            return wires.open(bench.fold.layout(), bench.fold.pool()).map(Comm::Here);
        }
        let (requests, its_requests) = channel();
        let (reply, replies) = channel();
        let bench = bench.clone();
        let work = move || {
            // The transport lives and dies on this thread.
            let opened = wires.open(bench.fold.layout(), bench.fold.pool());
            let (first, transport) = match opened {
                Ok(transport) => (Ok(Reduced::default()), Some(transport)),
                Err(error) => (Err(error), None),
            };
            if reply.send(first).is_ok()
                && let Some(mut transport) = transport
            {
                serve(&mut *transport, &bench, &its_requests, &reply);
            }
        };
        let thread = std::thread::Builder::new().name("communication".into()).spawn(work);
        let thread = thread.map_err(|e| WorkerError::setup("start communication", e))?;
        let comm = Comm::Thread { requests: Some(requests), replies, thread: Some(thread) };
        if let Comm::Thread { replies, .. } = &comm {
            replies.recv().unwrap_or_else(|_| Err(ended()))?;
        }
        Ok(comm)
    }

    /// Lets the reductions of a step begin as soon as their buckets are folded.
    pub(crate) fn begin_step(&self, job: &Arc<StepJob>, owed: Option<&Owed>) {
        if let Comm::Thread { requests: Some(requests), .. } = self {
            let _ = requests.send(Request::Step(job.clone(), owed.cloned()));
        }
    }

    /// Waits for the reductions of the step that has begun.
    pub(crate) fn end_step(
        &mut self,
        bench: &Bench,
        job: &Arc<StepJob>,
        owed: Option<&Owed>,
    ) -> Reply {
        match self {
            Comm::Here(transport) => step(&mut **transport, bench, job, owed),
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

    /// Gives others the weights and the optimizer's state of one.
    pub(crate) fn share(&mut self, bench: &Bench, owed: &Owed) -> Result<(), WorkerError> {
        match self {
            Comm::Here(transport) => share(&mut **transport, bench, owed),
            Comm::Thread { requests, replies, .. } => {
                if let Some(requests) = requests {
                    let _ = requests.send(Request::Share(owed.clone()));
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
            Request::Step(job, owed) => step(transport, bench, &job, owed.as_ref()),
            Request::Scalars(step, mine) => numbers(transport, bench, step, &mine)
                .map(|scalars| Reduced { scalars, ..Reduced::default() }),
            Request::Share(owed) => share(transport, bench, &owed).map(|()| Reduced::default()),
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
fn step(transport: &mut dyn Transport, bench: &Bench, job: &StepJob, owed: Option<&Owed>) -> Reply {
    let sent = transport.sent_bytes();
    let mut out = Reduced::default();
    let mut spans = Spans::new(job.traced, "communication");
    let copied = owed.map_or(Ok(()), |owed| share(transport, bench, owed));
    let done = copied.and_then(|()| reduce(transport, bench, job, &mut out, &mut spans));
    if let Err(error) = done {
        // Lanes begin no other shard; the sums of those that they have done are kept.
        bench.stop.set();
        out.give_up(bench);
        return Err(error);
    }
    out.sent_bytes = transport.sent_bytes() - sent;
    out.spans = spans.take();
    Ok(out)
}

impl Reduced {
    /// The step does not come to its end among these members.
    pub(crate) fn give_up(self, bench: &Bench) {
        for (bucket, pieces) in self.buckets.into_iter().enumerate() {
            let mut pieces = pieces.into_iter();
            pieces.next().into_iter().for_each(|sum| bench.fold.pool().give(sum));
            bench.fold.put_back(bucket, pieces.collect());
        }
    }
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
                if let Err(error) = transport.all_reduce(job.step, bucket, &parts, &mut sum) {
                    // Who is slow to hear of the end may still write into it.
                    bench.fold.pool().quarantine(sum);
                    bench.fold.put_back(bucket, parts);
                    return Err(error);
                }
                out.buckets.push(std::iter::once(sum).chain(parts).collect());
                bytes = 4 * bench.fold.layout().elements(bucket) as u64;
            }
            _ => {
                let mine = job.wait_scalars(bench.fold.layout().held(), &bench.stop)?;
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
