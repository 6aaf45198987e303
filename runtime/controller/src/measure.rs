use crate::children::Launcher;
use crate::config::RunConfig;
use crate::control::control;
use crate::event::{RunEvent, StartedEvent};
use crate::link::{Input, Links, LocalEvent, Origin};
use crate::run::carry_out;
use crate::summary::RunError;
use monarch_net::ServerEvent;
use monarch_sched::WorkerId;
use monarch_wire::{FromWorker, ToWorker, decode};
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// What starting a cluster and talking to it costs.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From the call until all workers had joined.
    pub joined_ns: u64,
    /// From the call until all were ready for the first step.
    pub ready_ns: u64,
    /// Round trips of a small message, worker after worker, in the order in which they were made.
    pub round_trips_ns: Vec<u64>,
}

/// Starts the workers of `config`, measures `pings` round trips, and ends without a step.
///
/// # Errors
/// As [`crate::run`].
pub fn measure(
    mut config: RunConfig,
    launcher: &mut dyn Launcher,
    pings: u32,
) -> Result<Measured, RunError> {
    config.plan.steps = 0;
    config.plan.rules.clear();
    config.resume = None;
    config.save_at_end = false;
    let (_handle, inbox) = control();
    let probe = Probe { pings, measured: Measured::default() };
    let mut ignore = |_: &RunEvent| {};
    let (_, probe) = carry_out(&config, launcher, &mut ignore, inbox, Some(probe))?;
    Ok(probe.map(|p| p.measured).unwrap_or_default())
}

/// Sends pings when all workers are ready.
pub(crate) struct Probe {
    pub pings: u32,
    pub measured: Measured,
}

/// A worker that does not answer is found by the run's own means afterwards.
const LIMIT: Duration = Duration::from_secs(5);

impl Probe {
    pub fn measure(
        &mut self,
        started: &StartedEvent,
        ranks: &[WorkerId],
        links: &Links,
        inbox: &Receiver<Input>,
        backlog: &mut VecDeque<Input>,
    ) {
        self.measured.joined_ns = started.joined_ns;
        self.measured.ready_ns = started.ready_ns;
        let targets = ranks.iter().cycle();
        for (number, &worker) in (0..self.pings).zip(targets) {
            let since = Instant::now();
            let number = u64::from(number);
            if links.send(&[worker], &ToWorker::Ping(number)).is_err() {
                return;
            }
            loop {
                let Some(left) = LIMIT.checked_sub(since.elapsed()) else { return };
                match inbox.recv_timeout(left) {
                    Ok(input) if is_pong(&input, links, worker, number) => break,
                    Ok(input) => backlog.push_back(input),
                    Err(_) => return,
                }
            }
            self.measured.round_trips_ns.push(since.elapsed().as_nanos() as u64);
        }
    }
}

fn is_pong(input: &Input, links: &Links, worker: WorkerId, number: u64) -> bool {
    let (origin, pong) = match input {
        Input::Net(ServerEvent::Frame { id, bytes }) => {
            let pong = matches!(decode(bytes), Ok(FromWorker::Pong(n)) if n == number);
            (Origin::Net(*id), pong)
        }
        Input::Local(LocalEvent::Message { id, message }) => {
            (Origin::Local(*id), **message == FromWorker::Pong(number))
        }
        _ => return false,
    };
    pong && links.worker(origin) == Some(worker)
}
