//! This rank's part of a checkpoint: a snapshot between two steps, written while training goes on.

use crate::link::Outlet;
use crate::model::Snapshot;
use crate::trace::now_ns;
use crate::{WorkerError, model::Model};
use monarch_checkpoint::{Stored, Tensor, layout, write_shard};
use monarch_collective::Stop;
use monarch_graph::Plan;
use monarch_pulse::{Phase, Role, enter};
use monarch_wire::{FromWorker, SaveReport, SavedFile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a save in the way is looked at.
const SLICE: Duration = Duration::from_millis(1);

/// Saves, one at a time.
pub(crate) struct Saver {
    plan: Arc<Plan>,
    rank: u32,
    world: u32,
    stored: Arc<Vec<Stored>>,
    outlet: Outlet,
    stop: Stop,
    running: Option<JoinHandle<()>>,
    /// Nobody wants to hear of a save of this generation any more.
    void: Arc<Mutex<bool>>,
}

impl Saver {
    pub(crate) fn new(plan: Arc<Plan>, rank: u32, world: u32, outlet: Outlet, stop: Stop) -> Saver {
        let stored = Arc::new(layout(&plan, world));
        Saver { plan, rank, world, stored, outlet, stop, running: None, void: Arc::default() }
    }

    /// Begins a save of what `model` is after `step` steps. Waits for the one before: a disk that
    /// is too slow slows training down instead of filling the memory.
    pub(crate) fn begin(
        &mut self,
        model: &Model,
        step: u64,
        directory: String,
    ) -> Result<(), WorkerError> {
        self.wait()?;
        let start_ns = now_ns();
        let snapshot = model.snapshot(&self.stored, self.rank);
        let part = Part {
            plan: self.plan.clone(),
            stored: self.stored.clone(),
            rank: self.rank,
            world: self.world,
            step,
            directory,
            start_ns,
        };
        let outlet = self.outlet.clone();
        let thread = std::thread::Builder::new().name("save".into());
        let void = self.void.clone();
        let pulse = monarch_pulse::current();
        let work = move || {
            let _shown = pulse.map(|p| p.join(Role::Saver));
            enter(Phase::Save);
            let report = part.write(&snapshot);
            let void = void.lock().unwrap_or_else(PoisonError::into_inner);
            if !*void {
                outlet.send(FromWorker::Saved(report));
            }
        };
        let spawned = thread.spawn(work);
        let spawned = spawned.map_err(|e| WorkerError::task(step, "save a checkpoint", e))?;
        self.running = Some(spawned);
        Ok(())
    }

    /// Waits for the save at hand, or for the end of the run.
    pub(crate) fn wait(&mut self) -> Result<(), WorkerError> {
        let Some(thread) = self.running.take() else { return Ok(()) };
        while !thread.is_finished() {
            self.stop.check().map_err(|source| WorkerError::Collective {
                step: None,
                task: "save a checkpoint".into(),
                source,
            })?;
            std::thread::sleep(SLICE);
        }
        // It reports its own errors, and its panics.
        let _ = thread.join();
        Ok(())
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        *self.void.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

struct Part {
    plan: Arc<Plan>,
    stored: Arc<Vec<Stored>>,
    rank: u32,
    world: u32,
    step: u64,
    directory: String,
    start_ns: u64,
}

impl Part {
    /// A report in any case: the controller waits for one.
    fn write(&self, snapshot: &Snapshot) -> SaveReport {
        let mut report = SaveReport {
            step: self.step,
            file: None,
            fingerprint: String::new(),
            nanoseconds: 0,
            error: None,
        };
        let work = AssertUnwindSafe(|| self.try_write(snapshot));
        match catch_unwind(work).unwrap_or_else(|_| Err("the worker panicked".into())) {
            Ok(file) => report.file = file,
            Err(why) => report.error = Some(why),
        }
        report.fingerprint = self.fingerprint(snapshot);
        report.nanoseconds = now_ns().saturating_sub(self.start_ns);
        report
    }

    /// None when this rank has nothing to write.
    fn try_write(&self, snapshot: &Snapshot) -> Result<Option<SavedFile>, String> {
        let own = self.stored.iter().filter(|s| s.rank == self.rank);
        let tensors: Vec<Tensor> = own
            .filter_map(|s| {
                let values = snapshot.values(s.content)?;
                Some(Tensor { name: &s.name, shape: &s.shape, values })
            })
            .collect();
        if tensors.is_empty() {
            return Ok(None);
        }
        let directory = Path::new(&self.directory);
        let file = write_shard(directory, self.rank, self.world, &tensors);
        let file = file.map_err(|e| e.to_string())?;
        Ok(Some(SavedFile {
            name: file.file,
            bytes: file.bytes,
            sha256: file.sha256,
            tensors: tensors.iter().map(|t| t.name.to_string()).collect(),
            finite: file.finite,
        }))
    }

    fn fingerprint(&self, snapshot: &Snapshot) -> String {
        let names = self.plan.weights.iter().map(|w| w.name.as_str());
        let values = snapshot.weights.iter().map(Vec::as_slice);
        monarch_checkpoint::fingerprint(names.zip(values)).to_string()
    }
}
