//! A worker from its first word to its last.

use crate::WorkerError;
use crate::comm::Comm;
use crate::control::Orders;
use crate::crew::Crew;
use crate::leave::Leave;
use crate::link::{ControlLink, Outlet, Way};
use crate::peers::{Listening, PeerSettings};
use crate::protocol::{Next, Order};
use crate::save::Saver;
use crate::setup::{Bench, Held, Job, Kit};
use crate::share::Owed;
use crate::step::StepJob;
use crate::trace::{Spans, now_ns};
use monarch_pulse::{Phase, Pulse, Role, enter};
use monarch_wire::{Due, DueKind, Finished, Form, FromWorker, Halted, Hello, TraceSpan};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a port of one's own may still be in use by the generation before.
const REBIND: Duration = Duration::from_secs(1);

/// What a worker is told by whoever starts it.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Echoed in `Hello`: the controller's number for a process that it started.
    pub slot: Option<u32>,
    /// Hash of the job that it was started for.
    pub job: Option<[u8; 32]>,
    /// How peers reach it; None where only shared memory will be used.
    pub peers: Option<PeerSettings>,
    /// End the process when a run that was told to stop has not ended by then. None for a worker
    /// that is a thread.
    pub grace: Option<Duration>,
    /// Asks for its release while it works.
    pub leave: Leave,
}

/// How a worker's part in a run ended in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// With the run.
    Finished,
    /// The others go on without it.
    Released,
}

/// Works for the controller at the other end of `link` until it says `Finish` or `Release`.
///
/// # Errors
/// Why the run ended early; the controller has been told, if it can be.
pub fn run(link: ControlLink, config: Config) -> Result<Parting, WorkerError> {
    run_again(link, config, None)
}

/// The same for a worker that may outlive its controller: by `way` it finds one that was started
/// again. Weights, optimizer and reports stay here meanwhile, and the window at hand is finished.
///
/// # Errors
/// Those of [`run`]; also that no controller came in time.
pub fn run_again(
    link: ControlLink,
    config: Config,
    way: Option<Box<dyn Way>>,
) -> Result<Parting, WorkerError> {
    let (orders, outlet, reader) = Orders::listen(link, config.grace, config.leave.clone(), way)?;
    let pulse = crate::pulse::show(&config, &outlet);
    let shown = pulse.as_ref().map(|p| p.join(Role::Main));
    let result = match drive(&orders, &outlet, config, pulse.as_ref().map(Pulse::fd)) {
        Ok(()) => Ok(Parting::Finished),
        Err(WorkerError::Released) => Ok(Parting::Released),
        Err(error) => Err(error),
    };
    orders.over();
    drop(shown);
    if let Some(pulse) = pulse {
        // All is said: what follows is no death.
        pulse.leave();
    }
    drop(outlet);
    // It leaves within its slice; then the link closes, after all that was sent.
    let _ = reader.join();
    result
}

fn drive(
    orders: &Orders,
    outlet: &Outlet,
    config: Config,
    pulse: Option<u32>,
) -> Result<(), WorkerError> {
    let tell = |error| told(orders, outlet, error);
    let listen =
        |patience| config.peers.as_ref().map(|p| Listening::start(p, patience)).transpose();
    let mut listening = listen(Duration::ZERO).map_err(tell)?;
    let address = listening.as_ref().map_or_else(String::new, |l| l.address.clone());
    orders.introduce(hello(&config, address, pulse), outlet);
    let (job, mut form) = orders.start().and_then(|start| Job::open(*start)).map_err(tell)?;
    let (mut held, mut kit) = (None, Kit::default());
    loop {
        let listening_now = listening.take();
        enter(Phase::Setup);
        let ended = serve(&job, &form, &mut held, &mut kit, listening_now, orders, outlet);
        enter(Phase::Idle);
        let Err(error) = ended else { return Ok(()) };
        let mut generation = dropped(orders, outlet, error)?;
        // Members may change again before all have taken their places.
        form = loop {
            listening = listen(REBIND).map_err(tell)?;
            if orders.renew(generation) {
                let done = held.as_ref().map(|h: &Held| h.done);
                let peer_address =
                    listening.as_ref().map_or_else(String::new, |l| l.address.clone());
                let kept = done.map_or_else(Vec::new, |done| kit.kept(done));
                outlet.send(FromWorker::Halted(Halted { generation, done, peer_address, kept }));
            }
            match orders.form() {
                Ok(next) => break *next,
                Err(WorkerError::Halted) => generation = orders.halted()?,
                Err(error) => return Err(tell(error)),
            }
        };
    }
}

/// One generation, from taking a place in it to its end.
fn serve(
    job: &Job,
    form: &Form,
    held: &mut Option<Held>,
    kit: &mut Kit,
    listening: Option<Listening>,
    orders: &Orders,
    outlet: &Outlet,
) -> Result<(), WorkerError> {
    let (mut worker, ready) = job.take_place(form, held, kit, listening, orders, outlet)?;
    outlet.send(FromWorker::Ready(ready));
    let ended = worker.work(orders, outlet, form.base, held);
    // Told before the peers see this worker leave.
    *kit = worker.dismantle();
    ended
}

/// What follows from the end of a generation: the number of the next one, if there is to be one.
fn dropped(orders: &Orders, outlet: &Outlet, error: WorkerError) -> Result<u64, WorkerError> {
    match orders.after(error.trouble()) {
        Next::Wait => {}
        Next::Complain => error.failure().into_iter().for_each(|failure| {
            outlet.send(FromWorker::Failed(failure));
        }),
        Next::Leave => return Err(told(orders, outlet, error)),
    }
    orders.halted()
}

/// The first cause of an error: what the controller said comes before what followed from it. The
/// controller is told, unless it knows.
fn told(orders: &Orders, outlet: &Outlet, error: WorkerError) -> WorkerError {
    let error = match orders.check() {
        Err(cause) => cause,
        Ok(()) => error,
    };
    if let Some(failure) = error.failure() {
        outlet.send(FromWorker::Failed(failure));
    }
    orders.stop().set();
    error
}

/// A worker that is set up.
pub(crate) struct Worker {
    pub(crate) bench: Arc<Bench>,
    pub(crate) crew: Crew,
    pub(crate) comm: Comm,
    pub(crate) saver: Saver,
    /// Steps whose spans are recorded.
    pub(crate) traced: BTreeSet<u64>,
    /// Spans between steps, reported with the next step.
    pub(crate) pending: Vec<TraceSpan>,
    /// The step at hand, until its update.
    pub(crate) underway: Option<Arc<StepJob>>,
    /// Weights that some members are still to receive.
    pub(crate) owed: Option<Owed>,
    pub(crate) has_weights: bool,
}

impl Worker {
    /// Does what is due after `done` steps.
    fn due(&mut self, what: DueKind, done: u64, outlet: &Outlet) -> Result<(), WorkerError> {
        let traced = self.traced.contains(&done)
            || done.checked_sub(1).is_some_and(|before| self.traced.contains(&before));
        let mut spans = Spans::new(traced, "host");
        let start_ns = now_ns();
        match what {
            DueKind::Evaluate(number) => {
                let report = self.evaluate(number, done)?;
                spans.add("evaluate", start_ns, now_ns(), 0);
                outlet.send(FromWorker::Evaluated(report));
            }
            DueKind::Save { directory } => {
                self.saver.begin(&self.bench.model, done, directory)?;
                // The snapshot; it is written while training goes on.
                spans.add("save", start_ns, now_ns(), 0);
            }
        }
        self.pending.extend(spans.take());
        Ok(())
    }

    /// `done` counts the steps that the weights have seen.
    fn work(
        &mut self,
        orders: &Orders,
        outlet: &Outlet,
        mut done: u64,
        held: &mut Option<Held>,
    ) -> Result<(), WorkerError> {
        loop {
            enter(Phase::Idle);
            match orders.next(done)? {
                Order::Step => {
                    let report = self.step(done);
                    match &report {
                        Ok(report) if report.trouble.is_none() => done += 1,
                        Ok(_) => orders.hold(done),
                        Err(_) => {}
                    }
                    self.hold(done, held);
                    outlet.send(FromWorker::Step(report?));
                }
                Order::Due(Due { step, what }) => {
                    if step < done {
                        let what = format!("`{what:?}` is due at step {step}, {done} are done");
                        return Err(WorkerError::Protocol { what });
                    }
                    if matches!(what, DueKind::Save { .. }) {
                        self.settle(done, held)?;
                    }
                    self.due(what, done, outlet)?;
                }
                Order::Skip => {
                    done += 1;
                    self.hold(done, held);
                }
                Order::Finish => {
                    self.settle(done, held)?;
                    self.saver.wait()?;
                    let fingerprint = self.bench.model.fingerprint(&self.bench.plan);
                    outlet.send(FromWorker::Finished(Finished { step: done, fingerprint }));
                    return Ok(());
                }
            }
        }
    }

    /// Makes the copy of the weights that is still owed.
    pub(crate) fn settle(&mut self, done: u64, held: &mut Option<Held>) -> Result<(), WorkerError> {
        if let Some(owed) = self.owed.take() {
            self.comm.share(&self.bench, &owed)?;
            self.has_weights = true;
        }
        self.hold(done, held);
        Ok(())
    }

    /// What is held here from now on, once it is whole. What was there before is let go.
    fn hold(&self, done: u64, held: &mut Option<Held>) {
        match held {
            _ if !self.has_weights => {}
            Some(held) if Arc::ptr_eq(&held.model, &self.bench.model) => held.done = done,
            _ => *held = Some(Held { model: self.bench.model.clone(), done }),
        }
    }

    /// What is left when the members change.
    pub(crate) fn dismantle(self) -> Kit {
        let Worker { bench, crew, comm, underway, .. } = self;
        // Its thread holds the bench too.
        drop(comm);
        let fold = Arc::into_inner(bench).map(|bench| bench.fold);
        let underway = underway.filter(|_| fold.is_some());
        Kit { crew: Some(crew), fold, underway }
    }
}

fn hello(config: &Config, peer_address: String, pulse: Option<u32>) -> Hello {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    Hello {
        version: env!("CARGO_PKG_VERSION").into(),
        host: read("/proc/sys/kernel/hostname"),
        shm_domain: monarch_pulse::domain(),
        pid: std::process::id(),
        cores,
        peer_address,
        job: config.job,
        slot: config.slot,
        pulse,
        back: None,
    }
}
