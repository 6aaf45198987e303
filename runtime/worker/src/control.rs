//! The thread that reads the control link, and what it has read.

use crate::WorkerError;
use crate::link::{ControlLink, Outlet, Received};
use monarch_collective::Stop;
use monarch_wire::{Due, Form, FromWorker, Start, ToWorker};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the reader waits before it looks whether the run is over.
const SLICE: Duration = Duration::from_millis(20);

/// What is to be done next.
#[derive(Debug)]
pub(crate) enum Order {
    /// Do this; the stated number of steps is done.
    Due(Due),
    /// Run the next step.
    Step,
    Finish,
}

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
    start: Option<Box<Start>>,
    form: Option<Box<Form>>,
    /// A generation for which the work at hand is to be dropped.
    halt: Option<u64>,
    /// Ends the waits of the generation at hand.
    stop: Stop,
    until: u64,
    dues: VecDeque<Due>,
    finish: bool,
    started: bool,
    /// Why the run ends early.
    end: Option<End>,
    /// The run is over: the reader may leave.
    over: bool,
}

#[derive(Clone)]
enum End {
    Closed(String),
    Aborted(String),
    Refused(String),
    Nonsense(String),
}

impl Orders {
    /// Starts the thread that reads `link`.
    pub(crate) fn listen(
        link: ControlLink,
        grace: Option<Duration>,
    ) -> Result<(Orders, Outlet, JoinHandle<()>), WorkerError> {
        let (outlet, mut receive) = link.split();
        let shared = Arc::new(Shared { state: Mutex::default(), came: Condvar::new() });
        let orders = Orders { shared };
        let (reader, pongs) = (orders.clone(), outlet.clone());
        let thread = std::thread::Builder::new().name("control".into()).stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            while reader.listens() {
                match receive(SLICE) {
                    Received::Nothing => {}
                    Received::Message(message) => reader.take(*message, &pongs),
                    Received::Closed(why) => reader.end(End::Closed(why)),
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

    /// Until the run is over, or told to end. A failure of our own must be told first.
    fn listens(&self) -> bool {
        let state = self.lock();
        !state.over && state.end.is_none()
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
        let mut state = self.lock();
        match message {
            ToWorker::Ping(number) => {
                drop(state);
                return outlet.send(FromWorker::Pong(number));
            }
            ToWorker::Refused { why } => {
                drop(state);
                return self.end(End::Refused(why));
            }
            ToWorker::Abort { why } => {
                drop(state);
                return self.end(End::Aborted(why));
            }
            ToWorker::Start(start) => {
                if state.start.is_some() || state.started {
                    drop(state);
                    return self.end(End::Nonsense("a second `Start`".into()));
                }
                state.start = Some(Box::new(start));
                state.started = true;
            }
            ToWorker::Halt { generation } => {
                // What was asked of the generation before is asked again of the next one.
                let State { form, until, dues, .. } = &mut *state;
                *form = None;
                *until = 0;
                dues.clear();
                state.halt = Some(generation);
                state.stop.set();
            }
            ToWorker::Form(form) => state.form = Some(Box::new(form)),
            ToWorker::Window(window) => {
                state.until = state.until.max(window.until);
                state.dues.extend(window.due);
            }
            ToWorker::Finish => state.finish = true,
        }
        drop(state);
        self.shared.came.notify_all();
    }

    fn end(&self, end: End) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        state.stop.set();
        drop(state);
        self.shared.came.notify_all();
    }

    /// Lets the reader leave; the link is dropped with it.
    pub(crate) fn over(&self) {
        self.lock().over = true;
    }

    /// Why the run ends early, once it does.
    pub(crate) fn check(&self) -> Result<(), WorkerError> {
        match self.lock().end.clone() {
            None => Ok(()),
            Some(End::Closed(why)) => Err(WorkerError::LinkClosed { why }),
            Some(End::Aborted(why)) => Err(WorkerError::Aborted { why }),
            Some(End::Refused(why)) => Err(WorkerError::Refused { why }),
            Some(End::Nonsense(what)) => Err(WorkerError::Protocol { what }),
        }
    }

    /// The switch that ends the waits of the generation at hand.
    pub(crate) fn stop(&self) -> Stop {
        self.lock().stop.clone()
    }

    /// Waits until the work at hand is to be dropped; the generation that comes after it.
    pub(crate) fn halted(&self) -> Result<u64, WorkerError> {
        self.wait_for(|state| state.halt)
    }

    pub(crate) fn is_halting(&self) -> bool {
        self.lock().halt.is_some()
    }

    /// All of the generation before is gone: waits are for the next one from now on. False when
    /// that is to be dropped already.
    pub(crate) fn renew(&self, generation: u64) -> bool {
        let mut state = self.lock();
        let current = state.halt == Some(generation);
        if current && state.end.is_none() {
            state.halt = None;
            state.stop = Stop::new();
        }
        current
    }

    /// Waits for a place in the next generation.
    pub(crate) fn form(&self) -> Result<Box<Form>, WorkerError> {
        self.wait(|state| state.form.take())
    }

    /// Waits for `Start`. Members may have changed again since: then it is good for all but the
    /// place in it.
    pub(crate) fn start(&self) -> Result<Box<Start>, WorkerError> {
        self.wait_for(|state| state.start.take())
    }

    /// Waits for what is to be done after `done` steps.
    pub(crate) fn next(&self, done: u64) -> Result<Order, WorkerError> {
        self.wait(|state| {
            if state.dues.front().is_some_and(|due| due.step <= done) {
                return state.dues.pop_front().map(Order::Due);
            }
            if state.until > done {
                return Some(Order::Step);
            }
            state.finish.then_some(Order::Finish)
        })
    }

    /// Like [`Self::wait_for`], until the work at hand is to be dropped.
    fn wait<T>(&self, mut find: impl FnMut(&mut State) -> Option<T>) -> Result<T, WorkerError> {
        let found = self.wait_for(|state| match state.halt {
            Some(_) => Some(None),
            None => find(state).map(Some),
        });
        found?.ok_or(WorkerError::Halted)
    }

    fn wait_for<T>(&self, mut find: impl FnMut(&mut State) -> Option<T>) -> Result<T, WorkerError> {
        loop {
            self.check()?;
            let mut state = self.lock();
            if state.end.is_none() {
                if let Some(found) = find(&mut state) {
                    return Ok(found);
                }
                // Every change is announced, and made under the lock.
                drop(self.shared.came.wait(state).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
