//! The interpreter for programs that embed it.

use crate::front::{self, Findings, Job};
use crate::launch::Threads;
use crate::resume;
use crate::run_id::{self, Claim};
use monarch_controller::{
    ControlRequest, Observer, RunConfig, RunError, RunEvent, Summary, control,
};
use monarch_plan::Facts;
use std::fmt;
use std::path::PathBuf;

/// Whether a run shall go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// Save a checkpoint and end in good order.
    Stop,
    /// Go on without the worker of this rank, with the same bits.
    Drain(u32),
}

/// Why there is no result.
#[derive(Debug)]
pub enum EngineError {
    /// The program is wrong.
    Program(Findings),
    /// There is nothing to resume from.
    Resume(resume::ResumeError),
    /// The run failed.
    Run(RunError),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Program(findings) => findings.fmt(f),
            EngineError::Resume(error) => error.fmt(f),
            EngineError::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EngineError {}

/// Runs a program within this process: workers are threads, no socket is opened.
///
/// ```no_run
/// use monarch::{Engine, Flow, RunEvent};
///
/// let summary = Engine::new("examples/digits.mon").param("width", 64).workers(2).run(|event| {
///     if let RunEvent::Step(step) = event {
///         println!("step {} loss {:.4}", step.step, step.loss);
///     }
///     Flow::Continue
/// })?;
/// println!("weights {}", summary.fingerprint.unwrap_or_default());
/// # Ok::<(), monarch::EngineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    path: PathBuf,
    params: Vec<(String, String)>,
    workers: u32,
    threads: Option<u32>,
    resume: Option<String>,
    run_dir: Option<PathBuf>,
    trace: Vec<u64>,
}

impl Engine {
    /// An engine for the program in this file, on one worker.
    pub fn new(path: impl Into<PathBuf>) -> Engine {
        Engine {
            path: path.into(),
            params: Vec::new(),
            workers: 1,
            threads: None,
            resume: None,
            run_dir: None,
            trace: Vec::new(),
        }
    }

    /// Sets a param of the program, as `--name value` does on the command line.
    pub fn param(mut self, name: impl Into<String>, value: impl ToString) -> Engine {
        self.params.push((name.into(), value.to_string()));
        self
    }

    /// Number of workers. Never changes a result.
    pub fn workers(mut self, workers: u32) -> Engine {
        self.workers = workers;
        self
    }

    /// Threads of each worker; by default the machine's cores are shared. Never changes a result.
    pub fn threads(mut self, threads: u32) -> Engine {
        self.threads = Some(threads);
        self
    }

    /// Goes on from a run's last whole checkpoint: its id, its directory, a checkpoint's
    /// directory, or an empty text for what lies in [`run_dir`](Self::run_dir), else for the newest
    /// run of the job.
    pub fn resume(mut self, run: impl Into<String>) -> Engine {
        self.resume = Some(run.into());
        self
    }

    /// Directory for checkpoints and logs, instead of the program's.
    pub fn run_dir(mut self, run_dir: impl Into<PathBuf>) -> Engine {
        self.run_dir = Some(run_dir.into());
        self
    }

    /// Steps whose tasks go into a Chrome trace.
    pub fn trace(mut self, steps: impl IntoIterator<Item = u64>) -> Engine {
        self.trace = steps.into_iter().collect();
        self
    }

    /// Checks and plans, and runs nothing.
    ///
    /// # Errors
    /// [`Findings`] with all mistakes of the program.
    pub fn plan(&self) -> Result<Job, Findings> {
        let facts =
            Facts { workers: self.workers, threads: self.threads.unwrap_or(1), ..Facts::default() };
        front::plan(&self.path, &self.params, &[], |_| facts)
    }

    /// Trains. `on_event` gets every event of the run as it happens, on the calling thread.
    ///
    /// # Errors
    /// [`EngineError`] when the program is wrong or the run fails.
    pub fn run(&self, mut on_event: impl FnMut(&RunEvent) -> Flow) -> Result<Summary, EngineError> {
        let job = self.plan().map_err(EngineError::Program)?;
        job.runnable().map_err(EngineError::Program)?;
        let (config, _claim) = self.config(job)?;
        let (handle, inbox) = control();
        let mut stopped = false;
        let mut observer = |event: &RunEvent| match on_event(event) {
            Flow::Stop if !stopped => {
                stopped = true;
                handle.send(ControlRequest::Stop);
            }
            Flow::Drain(rank) => {
                handle.drain(rank);
            }
            Flow::Stop | Flow::Continue => {}
        };
        let observer: &mut dyn Observer = &mut observer;
        let mut launcher = Threads { count: self.workers };
        monarch_controller::run(&config, &mut launcher, observer, inbox).map_err(EngineError::Run)
    }

    fn config(&self, job: Job) -> Result<(RunConfig, Claim), EngineError> {
        let dir_of = |id: &str| self.run_dir.clone().unwrap_or_else(|| job.run_dir(id));
        let (id, claim) = match self.resume {
            Some(_) => Default::default(),
            None => run_id::fresh(&job.plan.name, dir_of),
        };
        let run_dir = dir_of(&id);
        let runs = job.runs();
        let mut config = job.run_config(id, run_dir, self.workers);
        if let Some(wanted) = &self.resume {
            let wanted = match &self.run_dir {
                Some(dir) if wanted.is_empty() => dir.display().to_string(),
                _ => wanted.clone(),
            };
            let found = resume::find(&config.plan, &runs, &wanted).map_err(EngineError::Resume)?;
            config.run_id = found.run_id;
            config.run_dir = found.run_dir;
            config.resume = Some(found.resume);
        }
        config.threads = self.threads;
        config.trace_steps = self.trace.clone();
        Ok((config, claim))
    }
}
