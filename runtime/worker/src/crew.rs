//! The lanes: threads that each run whole shards, or shares of an update.

use crate::WorkerError;
use crate::shard::Lane;
use monarch_collective::Stop;
use monarch_pulse::{Phase, Role, enter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What every lane does at once; each takes its share from counters in what the job captures.
pub(crate) type Job = Arc<dyn Fn(&mut Lane) -> Result<(), WorkerError> + Send + Sync>;

/// The lanes of a worker. The first runs on the thread that calls [`Crew::run`].
pub(crate) struct Crew {
    first: Lane,
    others: Vec<Helper>,
    say: Sender<Result<(), WorkerError>>,
    done: Receiver<Result<(), WorkerError>>,
}

struct Helper {
    /// None once it shall leave.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Crew {
    pub(crate) fn new(first: Lane) -> Crew {
        let (say, done) = channel();
        Crew { first, others: Vec::new(), say, done }
    }

    /// As many lanes as this, the first included; each of the others has a thread.
    pub(crate) fn resize(
        &mut self,
        lanes: usize,
        make: impl Fn(usize) -> Result<Lane, WorkerError>,
    ) -> Result<(), WorkerError> {
        for helper in self.others.drain(lanes.saturating_sub(1).min(self.others.len())..) {
            helper.leave();
        }
        while self.lanes() < lanes {
            let lane = make(self.lanes())?;
            let (jobs, mine) = channel::<Job>();
            let (name, say) = (format!("lane {}", lane.number), self.say.clone());
            let pulse = monarch_pulse::current();
            let work = move || {
                let role = Role::Lane(lane.number.min(usize::from(u16::MAX)) as u16);
                let _shown = pulse.map(|p| p.join(role));
                serve(lane, &mine, &say);
            };
            let thread = std::thread::Builder::new().name(name).spawn(work);
            let thread = thread.map_err(|e| WorkerError::setup("start lanes", e))?;
            self.others.push(Helper { jobs: Some(jobs), thread: Some(thread) });
        }
        Ok(())
    }

    /// Bytes that a lane holds; all hold the same.
    pub(crate) fn lane_bytes(&self) -> u64 {
        self.first.bytes()
    }

    pub(crate) fn lanes(&self) -> usize {
        1 + self.others.len()
    }

    /// Runs a job on all lanes and waits for all. The first cause of several errors is returned.
    /// A lane that fails sets `stop` at once, so that nobody waits for it.
    pub(crate) fn run(&mut self, stop: &Stop, job: Job) -> Result<(), WorkerError> {
        let (stop, mut running) = (stop.clone(), 0);
        let job: Job = Arc::new(move |lane| {
            let watch = Watch(&stop);
            job(lane)?;
            std::mem::forget(watch);
            Ok(())
        });
        for helper in &self.others {
            let sent = helper.jobs.as_ref().is_some_and(|jobs| jobs.send(job.clone()).is_ok());
            running += usize::from(sent);
        }
        let mut worst = guarded(&mut self.first, &job);
        drop(job);
        enter(Phase::Waiting);
        for _ in 0..running {
            let gone = || {
                let (task, message) = ("lanes".into(), "a lane has ended".into());
                Err(WorkerError::Panic { task, message })
            };
            let result = self.done.recv().unwrap_or_else(|_| gone());
            match (&worst, &result) {
                (Ok(()), Err(_)) => worst = result,
                (Err(old), Err(new)) if old.is_echo() && !new.is_echo() => worst = result,
                _ => {}
            }
        }
        worst
    }

    /// Runs a job on the first lane alone: for work too small to be shared.
    pub(crate) fn run_alone(&mut self, job: &Job) -> Result<(), WorkerError> {
        guarded(&mut self.first, job)
    }
}

impl Helper {
    fn leave(mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Its panics have been turned into errors.
            let _ = thread.join();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.others.drain(..).for_each(Helper::leave);
    }
}

fn serve(mut lane: Lane, jobs: &Receiver<Job>, say: &Sender<Result<(), WorkerError>>) {
    while let Ok(job) = jobs.recv() {
        let result = guarded(&mut lane, &job);
        enter(Phase::Idle);
        // What the job holds is free before it counts as done.
        drop(job);
        if say.send(result).is_err() {
            return;
        }
    }
}

/// Stops all when it is dropped, by an error or in a panic.
struct Watch<'a>(&'a Stop);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// A panic is a bug, but it must be reported, and must not leave the others waiting.
fn guarded(lane: &mut Lane, job: &Job) -> Result<(), WorkerError> {
    let number = lane.number;
    let result = catch_unwind(AssertUnwindSafe(|| job(lane)));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "no message".into());
        Err(WorkerError::Panic { task: format!("lane {number}"), message })
    })
}
