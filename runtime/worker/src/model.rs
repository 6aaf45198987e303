//! Weights and the optimizer's state.

use crate::WorkerError;
use monarch_checkpoint::{
    Content, OwnedTensor, Stored, fingerprint, layout, load_file_tensors, open,
};
use monarch_device::{OutOfMemory, Weights, init};
use monarch_graph::{Contents, Float, Init, Plan, Weight};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const INIT: &str = "initialise the weights";
const RESUME: &str = "load the checkpoint";

/// Weights and what the optimizer keeps for each.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) weights: Weights,
    /// In the order of `OptimizerKind::slots`; empty tensors for frozen weights.
    pub(crate) slots: Vec<Weights>,
}

impl State {
    /// The weights (0), or a slot of the optimizer (1 and up).
    pub(crate) fn kind(&self, kind: usize) -> Option<&Weights> {
        match kind.checked_sub(1) {
            None => Some(&self.weights),
            Some(slot) => self.slots.get(slot),
        }
    }

    pub(crate) fn kind_mut(&mut self, kind: usize) -> Option<&mut Weights> {
        match kind.checked_sub(1) {
            None => Some(&mut self.weights),
            Some(slot) => self.slots.get_mut(slot),
        }
    }
}

/// The state between threads: read by all lanes in a step, written in an update.
#[derive(Debug)]
pub(crate) struct Model {
    state: RwLock<State>,
}

impl Model {
    /// The plan's initial values, and an optimizer that has seen nothing.
    pub(crate) fn init(plan: &Plan) -> Result<Model, WorkerError> {
        Model::fill(plan, |_| true)
    }

    /// Weights that are never trained, and room for those of another worker.
    pub(crate) fn frozen(plan: &Plan) -> Result<Model, WorkerError> {
        Model::fill(plan, |weight| !weight.trainable)
    }

    /// Another one with the same values; None when memory is short.
    pub(crate) fn copy(&self, plan: &Plan) -> Option<Model> {
        if self.bytes() > available_bytes() / 2 {
            return None;
        }
        let mut state = State::zeros(plan, INIT).ok()?;
        let own = self.read();
        for kind in 0..=own.slots.len() {
            let (from, to) = (own.kind(kind)?, state.kind_mut(kind)?);
            for i in 0..from.len().min(to.len()) {
                let (from, to) = (from.get(i), to.get_mut(i));
                if from.len() == to.len() {
                    to.copy_from_slice(from);
                }
            }
        }
        Some(Model { state: RwLock::new(state) })
    }

    fn fill(plan: &Plan, wanted: impl Fn(&Weight) -> bool) -> Result<Model, WorkerError> {
        let mut state = State::zeros(plan, INIT)?;
        fill_initial(&plan.weights, wanted, plan.seed, &mut state.weights)?;
        Ok(Model { state: RwLock::new(state) })
    }

    /// Weights and optimizer as a checkpoint holds them after `step` steps.
    pub(crate) fn load(plan: &Plan, directory: &Path, step: u64) -> Result<Model, WorkerError> {
        let failed = |e: &dyn std::fmt::Display| WorkerError::setup(RESUME, e);
        let shown = directory.display();
        let what = plan.checkpoint.as_ref().map_or(Contents::All, |c| c.what);
        if what == Contents::Weights {
            let why = "holds weights alone (`checkpoint { what = weights }`): there is no \
                       optimizer state to go on with";
            return Err(failed(&format_args!("`{shown}` {why}")));
        }
        let checkpoint = open(directory).map_err(|e| failed(&format_args!("`{shown}`: {e}")))?;
        let found = checkpoint.manifest.step;
        if found != step {
            let what = format!("`{shown}` is of step {found}, the run goes on at step {step}");
            return Err(failed(&what));
        }
        let stored = layout(plan, 1);
        let names: Vec<&str> = stored.iter().map(|s| s.name.as_str()).collect();
        let tensors = checkpoint.load(&names).map_err(|e| failed(&e))?;
        let mut state = match what {
            // Weights that are not trained are those that the job begins with.
            Contents::Adapters => {
                let begun = Model::init(plan)?.state;
                begun.into_inner().unwrap_or_else(PoisonError::into_inner)
            }
            _ => State::zeros(plan, RESUME)?,
        };
        for (stored, tensor) in stored.iter().zip(tensors) {
            let (Content::Weight(i) | Content::Slot { weight: i, .. }) = stored.content;
            let tensors = match stored.content {
                Content::Weight(_) => Some(&mut state.weights),
                Content::Slot { slot, .. } => state.slots.get_mut(slot),
            };
            let tensors = tensors.filter(|t| i < t.len());
            let tensors = tensors.ok_or_else(|| failed(&format_args!("`{}`", stored.name)))?;
            let weight = plan.weights.get(i);
            put(RESUME, &stored.name, weight, &tensor, tensors.get_mut(i))?;
        }
        Ok(Model { state: RwLock::new(state) })
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes held, the optimizer's included.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.read();
        let all = std::iter::once(&state.weights).chain(&state.slots);
        4 * all.flat_map(|w| (0..w.len()).map(|i| w.get(i).len())).sum::<usize>() as u64
    }

    pub(crate) fn fingerprint(&self, plan: &Plan) -> String {
        let state = self.read();
        let names = plan.weights.iter().enumerate();
        fingerprint(names.map(|(i, w)| (w.name.as_str(), state.weights.get(i)))).to_string()
    }

    /// Copies of all weights, and of the state that `rank` saves.
    pub(crate) fn snapshot(&self, stored: &[Stored], rank: u32) -> Snapshot {
        let state = self.read();
        let weights = (0..state.weights.len()).map(|i| state.weights.get(i).to_vec());
        let slots = stored.iter().filter(|s| s.rank == rank).filter_map(|s| match s.content {
            Content::Weight(_) => None,
            Content::Slot { slot, weight } => {
                let tensors = state.slots.get(slot).filter(|t| weight < t.len())?;
                Some(((slot, weight), tensors.get(weight).to_vec()))
            }
        });
        Snapshot { weights: weights.collect(), slots: slots.collect() }
    }
}

/// The model at one step, as far as one rank saves it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) weights: Vec<Vec<f32>>,
    /// By slot and weight.
    slots: BTreeMap<(usize, usize), Vec<f32>>,
}

impl Snapshot {
    pub(crate) fn values(&self, content: Content) -> Option<&[f32]> {
        let values = match content {
            Content::Weight(weight) => self.weights.get(weight),
            Content::Slot { slot, weight } => self.slots.get(&(slot, weight)),
        };
        values.map(Vec::as_slice)
    }
}

/// The initial values of these weights, on this machine: functions of the seed and their names, or
/// what their files hold.
///
/// # Errors
/// [`WorkerError`] when memory or a file is missing, or a file holds something else.
pub fn initial_weights(weights: &[Weight], seed: u64) -> Result<Weights, WorkerError> {
    let mut out = Weights::new(weights.iter().map(Weight::elements))
        .map_err(|e| WorkerError::setup(INIT, e))?;
    fill_initial(weights, |_| true, seed, &mut out)?;
    Ok(out)
}

fn fill_initial(
    weights: &[Weight],
    wanted: impl Fn(&Weight) -> bool,
    seed: u64,
    values: &mut Weights,
) -> Result<(), WorkerError> {
    let mut files: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (i, weight) in weights.iter().enumerate().filter(|(_, w)| wanted(w)) {
        let out = values.get_mut(i);
        if let Init::File { path, name, .. } = &weight.init {
            files.entry(path).or_default().push((i, name));
        } else if init::fill(&weight.init, seed, &weight.name, &weight.shape, out).is_err() {
            let what = format!("`{}` has no initial values", weight.name);
            return Err(WorkerError::setup(INIT, what));
        }
    }
    for (path, wanted) in files {
        let names: Vec<&str> = wanted.iter().map(|(_, name)| *name).collect();
        let tensors = load_file_tensors(Path::new(path), &names);
        let tensors = tensors.map_err(|e| WorkerError::setup(INIT, e))?;
        for ((i, name), tensor) in wanted.into_iter().zip(tensors) {
            let weight = weights.get(i);
            let turned = match weight.map(|w| &w.init) {
                Some(Init::File { transpose: true, .. }) => transposed(tensor),
                _ => tensor,
            };
            put(INIT, name, weight, &turned, values.get_mut(i))?;
        }
    }
    for (i, weight) in weights.iter().enumerate() {
        if weight.stored != Float::F32 {
            let values = values.get_mut(i).iter_mut();
            values.for_each(|x| *x = weight.stored.round(*x));
        }
    }
    Ok(())
}

impl State {
    fn zeros(plan: &Plan, task: &str) -> Result<State, WorkerError> {
        let memory = |e: OutOfMemory| WorkerError::setup(task, e);
        let elements = plan.weights.iter().map(|w| w.elements());
        let kind = &plan.optimizer.kind;
        let slots = (0..kind.slots().len()).map(|slot| {
            let has = |w: &Weight| w.trainable && kind.has_slot(slot, w);
            Weights::new(plan.weights.iter().map(|w| if has(w) { w.elements() } else { 0 }))
        });
        Ok(State {
            weights: Weights::new(elements).map_err(memory)?,
            slots: slots.collect::<Result<Vec<_>, _>>().map_err(memory)?,
        })
    }
}

/// Memory that this machine has left, as far as it says so.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// A matrix with rows and columns exchanged; anything else as it is.
fn transposed(tensor: OwnedTensor) -> OwnedTensor {
    let &[rows, columns] = tensor.shape.as_slice() else { return tensor };
    let (n, m) = (rows as usize, columns as usize);
    let mut values = vec![0.0; tensor.values.len()];
    for (i, row) in tensor.values.chunks_exact(m.max(1)).enumerate() {
        for (j, x) in row.iter().enumerate() {
            if let Some(place) = values.get_mut(j * n + i) {
                *place = *x;
            }
        }
    }
    OwnedTensor { shape: vec![columns, rows], values, ..tensor }
}

fn put(
    task: &str,
    name: &str,
    weight: Option<&Weight>,
    tensor: &OwnedTensor,
    place: &mut [f32],
) -> Result<(), WorkerError> {
    let same = weight.is_some_and(|w| w.shape == tensor.shape);
    if !same || tensor.values.len() != place.len() {
        let planned = weight.map(|w| w.shape.clone()).unwrap_or_default();
        return Err(WorkerError::Setup {
            task: task.into(),
            message: format!("`{name}` is {:?}; the plan says {planned:?}", tensor.shape),
            span: weight.map(|w| w.span),
        });
    }
    place.copy_from_slice(&tensor.values);
    Ok(())
}
