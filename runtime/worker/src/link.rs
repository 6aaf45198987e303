use monarch_wire::{FromWorker, Hello, ToWorker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Reports that are kept for a controller to come. It says often which of them it has on record;
/// should it fall so far behind, a run without it goes on from a checkpoint.
const KEPT: usize = 1 << 16;

/// What came over a control link.
#[derive(Debug)]
pub enum Received {
    Message(Box<ToWorker>),
    /// Nothing within the limit.
    Nothing,
    /// The controller has ended the link, and why.
    Closed(String),
    /// The controller has ended without a word, and the sign of it. Another one may go on.
    Gone(String),
}

type Send_ = dyn Fn(FromWorker) -> Result<(), String> + Send + Sync;
pub(crate) type Receive = dyn FnMut(Duration) -> Received + Send;

/// Both directions of a worker's link to its controller, in a process of its own or in this one.
pub struct ControlLink {
    send: Arc<Send_>,
    receive: Box<Receive>,
}

impl ControlLink {
    /// `send` does not wait, and says why when the other side is gone. `receive` waits up to the
    /// limit for the next message.
    pub fn new(
        send: impl Fn(FromWorker) -> Result<(), String> + Send + Sync + 'static,
        receive: impl FnMut(Duration) -> Received + Send + 'static,
    ) -> ControlLink {
        ControlLink { send: Arc::new(send), receive: Box::new(receive) }
    }

    /// `keeps`: what was reported may be asked for again, by another controller.
    pub(crate) fn split(self, keeps: bool) -> (Outlet, Box<Receive>) {
        let out = Out { send: self.send, kept: keeps.then(VecDeque::new) };
        (Outlet(Arc::new(Mutex::new(out))), self.receive)
    }
}

/// How a worker comes back to a controller that was killed and started again.
pub trait Way: Send {
    /// The controller is gone. Called once for each that goes.
    fn lost(&mut self);
    /// Tries to reach the next one, for `limit` at most.
    ///
    /// # Errors
    /// [`NoWay`].
    fn connect(&mut self, limit: Duration) -> Result<ControlLink, NoWay>;
    /// The next one goes on with the run. `lifeline`: a file that ends with it, for a process on
    /// the same machine; from now on its end is the sign that the controller is gone.
    ///
    /// # Errors
    /// Why this worker would not notice the end of that controller.
    fn found(&mut self, lifeline: Option<&str>) -> Result<(), String>;
    /// How long to look for it.
    fn patience(&self) -> Duration;
}

/// Why a controller is not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWay {
    /// Nobody is there yet.
    Nobody(String),
    /// Somebody is, and will not have this worker.
    Never(String),
}

/// The sending half, for any thread.
#[derive(Clone)]
pub(crate) struct Outlet(Arc<Mutex<Out>>);

struct Out {
    send: Arc<Send_>,
    /// Reports that the controller has not said to have on record, the oldest first.
    kept: Option<VecDeque<FromWorker>>,
}

/// Step or edge that a report of work is about.
fn edge(report: &FromWorker) -> Option<u64> {
    match report {
        FromWorker::Step(report) => Some(report.step),
        FromWorker::Evaluated(report) => Some(report.step),
        _ => None,
    }
}

impl Outlet {
    /// Sends; a link that is gone is noticed by the thread that receives.
    pub(crate) fn send(&self, message: FromWorker) {
        let mut out = self.lock();
        if let Some(kept) = &mut out.kept
            && edge(&message).is_some()
        {
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(message.clone());
        }
        let _ = (out.send)(message);
    }

    /// Reports of steps below this one are not asked for again.
    pub(crate) fn forget(&self, below: u64) {
        let mut out = self.lock();
        let Some(kept) = &mut out.kept else { return };
        while kept.front().and_then(edge).is_some_and(|edge| edge < below) {
            kept.pop_front();
        }
    }

    /// Work goes on at this edge: what was reported of steps beyond it is void.
    pub(crate) fn take_back(&self, edge_at: u64) {
        let mut out = self.lock();
        let Some(kept) = &mut out.kept else { return };
        kept.retain(|report| match report {
            FromWorker::Step(report) => report.step < edge_at,
            report => edge(report).is_some_and(|edge| edge <= edge_at),
        });
    }

    /// From now on to another controller, which first hears who this is, and what it may not know.
    pub(crate) fn turn_to(&self, link: ControlLink, hello: Hello) -> Box<Receive> {
        let mut out = self.lock();
        let before = std::mem::replace(&mut out.send, link.send);
        let _ = (out.send)(FromWorker::Hello(hello));
        for report in out.kept.iter().flatten() {
            let _ = (out.send)(report.clone());
        }
        drop(out);
        drop_aside(before);
        link.receive
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closing a link waits until the other side has everything. One that is dead never will.
pub(crate) fn drop_aside<T: Send + 'static>(link: T) {
    let thread = std::thread::Builder::new().name("farewell".into()).stack_size(64 << 10);
    // Without a thread it is dropped here, after that wait.
    let _ = thread.spawn(move || drop(link));
}
