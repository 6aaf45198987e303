//! The thread that reads the control link, and what it has read.

use crate::WorkerError;
use crate::again::Again;
use crate::leave::Leave;
use crate::link::{ControlLink, Outlet, Received, Way};
use crate::protocol::{End, Halting, Next, Order, Protocol, Trouble};
use monarch_collective::Stop;
use monarch_wire::{Back, Form, FromWorker, Hello, Start, ToWorker};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the reader waits before it looks whether the run is over.
const SLICE: Duration = Duration::from_millis(20);

/// Orders that have come and are not carried out yet. Clones share it.
#[derive(Clone)]
pub(crate) struct Orders {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    protocol: Protocol<Box<Start>>,
    /// Ends the waits of the generation at hand.
    stop: Stop,
    /// Set when the run ends early: also what would outlive a generation is dropped.
    end: Stop,
    /// The run is over: the reader may leave.
    over: bool,
    /// What this worker said of itself.
    hello: Option<Hello>,
    /// What a controller that was started again must know.
    back: Back,
}

/// What is brought to another controller follows from what this one says.
fn note(back: &mut Back, message: &ToWorker) {
    match message {
        ToWorker::Start(start) => {
            back.run = Some(start.run.clone());
            back.incarnation = start.incarnation;
            back.generation = back.generation.max(start.form.generation);
        }
        ToWorker::Halt { generation } => back.generation = back.generation.max(*generation),
        ToWorker::Adopted(adopted) => back.incarnation = adopted.incarnation,
        _ => {}
    }
}

impl Orders {
    /// Starts the thread that reads `link`.
    pub(crate) fn listen(
        link: ControlLink,
        grace: Option<Duration>,
        leave: Leave,
        way: Option<Box<dyn Way>>,
    ) -> Result<(Orders, Outlet, JoinHandle<()>), WorkerError> {
        let keeps = way.as_ref().is_some_and(|way| !way.patience().is_zero());
        let (outlet, mut receive) = link.split(keeps);
        let mut again = Again::new(way);
        let shared = Arc::new(Shared { state: Mutex::default(), came: Condvar::new() });
        let orders = Orders { shared };
        let (reader, pongs) = (orders.clone(), outlet.clone());
        let thread = std::thread::Builder::new().name("control".into()).stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            while reader.listens() {
                if leave.take_wish(reader.is_introduced()) {
                    pongs.send(FromWorker::Leaving);
                }
                let ended = match receive(SLICE) {
                    Received::Nothing => again.check(),
                    Received::Message(message) => {
                        let ended = again.hear(&message);
                        reader.take(*message, &pongs);
                        ended
                    }
                    Received::Closed(why) => Err(End::Closed(why)),
                    Received::Gone(why) => again.lost(why),
                };
                let found = match ended {
                    Ok(None) => continue,
                    Ok(Some(why)) => again.look(why, &reader, &pongs),
                    Err(end) => Err(end),
                };
                match found {
                    Ok(next) => {
                        crate::link::drop_aside(std::mem::replace(&mut receive, next));
                        leave.untold();
                    }
                    Err(end) => reader.end(end),
                }
            }
            drop((receive, pongs));
            if let Some(grace) = grace {
                reader.watch(grace);
            }
        });
        let thread = spawned.map_err(|e| WorkerError::setup("start the control thread", e))?;
        Ok((orders, outlet, thread))
    }

    /// The controller knows who this is.
    fn is_introduced(&self) -> bool {
        self.lock().hello.is_some()
    }

    /// Until the run is over, or told to end. A failure of our own must be told first.
    pub(crate) fn listens(&self) -> bool {
        let state = self.lock();
        !state.over && state.protocol.end().is_none()
    }

    /// Ends the process if the run does not end within `grace`: a controller that is gone must
    /// not wait for a long kernel or a slow disk.
    fn watch(&self, grace: Duration) {
        let since = Instant::now();
        while !self.lock().over {
            if since.elapsed() > grace {
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn take(&self, message: ToWorker, outlet: &Outlet) {
        if let ToWorker::Ping(number) = message {
            return outlet.send(FromWorker::Pong(number));
        }
        match &message {
            ToWorker::Form(form) => outlet.take_back(form.base),
            ToWorker::Window(window) => outlet.forget(window.kept),
            _ => {}
        }
        note(&mut self.lock().back, &message);
        self.change(|protocol| match message {
            // Heard already.
            ToWorker::Ping(_) | ToWorker::Adopted(_) => {}
            ToWorker::Refused { why } => protocol.close(End::Refused(why)),
            ToWorker::Abort { why } => protocol.close(End::Aborted(why)),
            ToWorker::Start(start) => protocol.begin(Box::new(start)),
            ToWorker::Halt { generation } => protocol.halt(generation),
            ToWorker::Form(form) => protocol.place(form),
            ToWorker::Window(window) => protocol.window(window),
            ToWorker::Skip { step } => protocol.skip(step),
            ToWorker::Finish => protocol.finish(),
            ToWorker::Release => protocol.close(End::Released),
        });
    }

    fn end(&self, end: End) {
        self.change(|protocol| protocol.close(end));
    }

    /// Every change is announced, and made under the lock.
    fn change(&self, change: impl FnOnce(&mut Protocol<Box<Start>>)) {
        let mut state = self.lock();
        change(&mut state.protocol);
        if state.protocol.stops() {
            state.stop.set();
        }
        if state.protocol.end().is_some() {
            state.end.set();
        }
        drop(state);
        self.shared.came.notify_all();
    }

    /// Says who this worker is.
    pub(crate) fn introduce(&self, hello: Hello, outlet: &Outlet) {
        self.lock().hello = Some(hello.clone());
        outlet.send(FromWorker::Hello(hello));
    }

    /// The same to another controller, with what this worker brings; None before the first time.
    pub(crate) fn back(&self) -> Option<Hello> {
        let state = self.lock();
        let hello = state.hello.clone()?;
        Some(Hello { back: Some(state.back.clone()), ..hello })
    }

    /// Lets the reader leave; the link is dropped with it.
    pub(crate) fn over(&self) {
        self.lock().over = true;
    }

    /// Why the run ends early, once it does.
    pub(crate) fn check(&self) -> Result<(), WorkerError> {
        match self.lock().protocol.end().cloned() {
            None => Ok(()),
            Some(End::Closed(why)) => Err(WorkerError::LinkClosed { why }),
            Some(End::Aborted(why)) => Err(WorkerError::Aborted { why }),
            Some(End::Refused(why)) => Err(WorkerError::Refused { why }),
            Some(End::Released) => Err(WorkerError::Released),
            Some(End::Nonsense(what)) => Err(WorkerError::Protocol { what }),
        }
    }

    /// The switch that ends the waits of the generation at hand.
    pub(crate) fn stop(&self) -> Stop {
        self.lock().stop.clone()
    }

    /// The switch that is set when the run ends early.
    pub(crate) fn ended(&self) -> Stop {
        self.lock().end.clone()
    }

    /// Waits until the work at hand is to be dropped; the generation that comes after it.
    pub(crate) fn halted(&self) -> Result<u64, WorkerError> {
        self.wait(|protocol| Ok(protocol.halted()))
    }

    /// What follows from trouble in the generation at hand.
    pub(crate) fn after(&self, trouble: Trouble) -> Next {
        self.lock().protocol.after(trouble)
    }

    /// All of the generation before is gone: waits are for the next one from now on. False when
    /// that is to be dropped already.
    pub(crate) fn renew(&self, generation: u64) -> bool {
        let mut state = self.lock();
        let current = state.protocol.renew(generation);
        if !state.protocol.stops() {
            state.stop = Stop::new();
        }
        current
    }

    /// Waits for a place in the next generation.
    pub(crate) fn form(&self) -> Result<Box<Form>, WorkerError> {
        self.wait(Protocol::take_place)
    }

    /// Waits for `Start`. Members may have changed again since: then it is good for all but the
    /// place in it.
    pub(crate) fn start(&self) -> Result<Box<Start>, WorkerError> {
        self.wait(|protocol| Ok(protocol.take_job()))
    }

    /// The update of this step cannot be made: only the controller says what follows.
    pub(crate) fn hold(&self, step: u64) {
        self.change(|protocol| protocol.hold(step));
    }

    /// Waits for what is to be done after `done` steps.
    pub(crate) fn next(&self, done: u64) -> Result<Order, WorkerError> {
        self.wait(|protocol| protocol.next(done))
    }

    fn wait<T>(
        &self,
        mut find: impl FnMut(&mut Protocol<Box<Start>>) -> Result<Option<T>, Halting>,
    ) -> Result<T, WorkerError> {
        loop {
            self.check()?;
            let mut state = self.lock();
            if state.protocol.end().is_none() {
                match find(&mut state.protocol) {
                    Err(Halting) => return Err(WorkerError::Halted),
                    Ok(Some(found)) => return Ok(found),
                    // Every change is announced, and made under the lock.
                    Ok(None) => {
                        let waited = self.shared.came.wait(state);
                        drop(waited.unwrap_or_else(PoisonError::into_inner));
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
