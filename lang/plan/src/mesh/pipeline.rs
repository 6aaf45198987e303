//! Pipeline schedules as task lists, and an event simulator that runs them.
//!
//! Every schedule is a list of tasks per stage, in the order in which the stage does them: GPipe
//! (Huang et al. 2019), 1F1B and interleaved 1F1B (Narayanan et al. 2021), and ZB-H1 (Qi et al.
//! 2023), which splits backward in the gradient of the input and the gradient of the weights. The
//! simulator knows only the lists and what a task waits for; it finds deadlocks and counts the
//! micro-batches whose activations a stage holds.

use monarch_check::hir::PipelineSchedule;

/// What a stage does with a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Forward,
    /// Of all, or of the input alone where a schedule splits backward.
    Backward,
    /// The weights' gradients, where a schedule splits backward.
    Weights,
}

/// A task of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub work: Work,
    pub micro: u64,
    /// Chunk of the model that the stage holds; 0 unless interleaved.
    pub chunk: u32,
}

/// Seconds of a stage's tasks on one micro-batch; `backward` without `weights`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    pub forward: f64,
    pub backward: f64,
    pub weights: f64,
    /// To the next stage, and back.
    pub send: f64,
}

/// What a simulation shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// When the last task ends.
    pub end: f64,
    /// Per stage: when it ends, how long it works, and most micro-batches held at once (chunks
    /// count in shares).
    pub stages: Vec<StageTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    pub end: f64,
    pub busy: f64,
    /// When the last backward begins.
    pub last_backward: f64,
    pub in_flight: f64,
}

/// Why a list of tasks cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// Each stage waits for another.
    Deadlock { done: usize, tasks: usize },
    /// A task is missing or there twice.
    Incomplete { stage: usize },
}

impl std::fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ScheduleError::Deadlock { done, tasks } => {
                write!(f, "the schedule stops after {done} of {tasks} tasks")
            }
            ScheduleError::Incomplete { stage } => {
                write!(f, "stage {stage} does not do every task once")
            }
        }
    }
}

impl std::error::Error for ScheduleError {}

/// Chunks of the model per stage.
pub fn chunks(schedule: PipelineSchedule) -> u32 {
    match schedule {
        PipelineSchedule::Interleaved { chunks } => chunks.max(1),
        _ => 1,
    }
}

/// The task lists of all stages.
pub fn tasks(schedule: PipelineSchedule, stages: u64, micro: u64) -> Vec<Vec<Task>> {
    match schedule {
        PipelineSchedule::GPipe => (0..stages).map(|_| gpipe(micro)).collect(),
        PipelineSchedule::OneFOneB => (0..stages).map(|s| one_f_one_b(stages, s, micro)).collect(),
        PipelineSchedule::Interleaved { chunks } => {
            let chunks = u64::from(chunks.max(1));
            (0..stages).map(|s| interleaved(stages, s, micro, chunks)).collect()
        }
        PipelineSchedule::ZeroBubbleH1 => {
            (0..stages).map(|s| zero_bubble(stages, s, micro)).collect()
        }
    }
}

fn task(work: Work, micro: u64) -> Task {
    Task { work, micro, chunk: 0 }
}

fn gpipe(micro: u64) -> Vec<Task> {
    let forward = (0..micro).map(|i| task(Work::Forward, i));
    forward.chain((0..micro).map(|i| task(Work::Backward, i))).collect()
}

fn one_f_one_b(stages: u64, stage: u64, micro: u64) -> Vec<Task> {
    let warm = micro.min(stages - stage - 1);
    let mut out: Vec<Task> = (0..warm).map(|i| task(Work::Forward, i)).collect();
    for i in warm..micro {
        out.push(task(Work::Forward, i));
        out.push(task(Work::Backward, i - warm));
    }
    out.extend((micro - warm..micro).map(|i| task(Work::Backward, i)));
    out
}

/// Megatron-LM's order: micro-batches in groups of as many as there are stages, chunk by chunk.
fn interleaved(stages: u64, stage: u64, micro: u64, chunks: u64) -> Vec<Task> {
    let total = micro * chunks;
    let group = stages * chunks;
    let place = |k: u64, backward: bool| {
        let (round, within) = (k / group, k % group);
        // A last group may be smaller.
        let width = stages.min(micro - round * stages).max(1);
        let chunk = (within / width).min(chunks - 1);
        let chunk = if backward { chunks - 1 - chunk } else { chunk };
        let micro = round * stages + within % width;
        let work = if backward { Work::Backward } else { Work::Forward };
        Task { work, micro, chunk: chunk as u32 }
    };
    let warm = ((stages - stage - 1) * 2 + (chunks - 1) * stages).min(total);
    let mut out: Vec<Task> = (0..warm).map(|k| place(k, false)).collect();
    for k in warm..total {
        out.push(place(k, false));
        out.push(place(k - warm, true));
    }
    out.extend((total - warm..total).map(|k| place(k, true)));
    out
}

/// 1F1B with the weights' gradients put off: stage s lets s of them wait, which fills the gaps at
/// the end. Activations are held until then, so no stage holds more than the first one of 1F1B.
fn zero_bubble(stages: u64, stage: u64, micro: u64) -> Vec<Task> {
    let warm = micro.min(stages - stage - 1);
    let mut out: Vec<Task> = (0..warm).map(|i| task(Work::Forward, i)).collect();
    let mut weights = 0;
    for i in 0..micro {
        if i + warm < micro {
            out.push(task(Work::Forward, i + warm));
        }
        out.push(task(Work::Backward, i));
        if i + 1 - weights > stage {
            out.push(task(Work::Weights, weights));
            weights += 1;
        }
    }
    out.extend((weights..micro).map(|i| task(Work::Weights, i)));
    out
}

/// Every stage does every task once.
pub fn verify(
    lists: &[Vec<Task>],
    schedule: PipelineSchedule,
    micro: u64,
) -> Result<(), ScheduleError> {
    let splits = schedule == PipelineSchedule::ZeroBubbleH1;
    let kinds = if splits { 3 } else { 2 };
    let chunks = u64::from(chunks(schedule));
    for (stage, list) in lists.iter().enumerate() {
        let mut keys: Vec<(Work, u64, u32)> =
            list.iter().map(|t| (t.work, t.micro, t.chunk)).collect();
        keys.sort_unstable();
        keys.dedup();
        let right = keys.iter().all(|k| k.1 < micro && u64::from(k.2) < chunks);
        let all = micro * chunks * kinds;
        if !right || keys.len() as u64 != all || list.len() as u64 != all {
            return Err(ScheduleError::Incomplete { stage });
        }
    }
    Ok(())
}

/// Runs the lists: a stage does its tasks in order, each as soon as what it waits for has arrived.
pub fn simulate(
    lists: &[Vec<Task>],
    schedule: PipelineSchedule,
    paces: &[Pace],
    micro: u64,
) -> Result<Timeline, ScheduleError> {
    verify(lists, schedule, micro)?;
    let chunks = chunks(schedule);
    let mut run = Run::new(lists.len(), chunks, micro, paces);
    let splits = schedule == PipelineSchedule::ZeroBubbleH1;
    let tasks: usize = lists.iter().map(Vec::len).sum();
    let mut at = vec![0; lists.len()];
    let mut done = 0;
    while done < tasks {
        let before = done;
        for (stage, list) in lists.iter().enumerate() {
            while let Some(task) = list.get(at[stage])
                && let Some(ready) = run.ready(stage, task)
            {
                run.execute(stage, task, ready, splits);
                at[stage] += 1;
                done += 1;
            }
        }
        if done == before {
            return Err(ScheduleError::Deadlock { done, tasks });
        }
    }
    let end = run.stages.iter().map(|s| s.end).fold(0.0, f64::max);
    Ok(Timeline { end, stages: run.stages })
}

struct Run<'a> {
    chunks: u32,
    micro: u64,
    paces: &'a [Pace],
    /// Per stage, chunk and micro-batch: when forward and backward end; not a number before.
    forward: Vec<f64>,
    backward: Vec<f64>,
    held: Vec<f64>,
    stages: Vec<StageTime>,
}

impl<'a> Run<'a> {
    fn new(stages: usize, chunks: u32, micro: u64, paces: &'a [Pace]) -> Run<'a> {
        let size = stages * chunks as usize * micro as usize;
        let (forward, backward) = (vec![f64::NAN; size], vec![f64::NAN; size]);
        let held = vec![0.0; stages];
        let stages = vec![StageTime::default(); stages];
        Run { chunks, micro, paces, forward, backward, held, stages }
    }

    fn slot(&self, stage: usize, task: &Task) -> usize {
        let place = stage * self.chunks as usize + task.chunk as usize;
        place * self.micro as usize + task.micro as usize
    }

    fn pace(&self, stage: usize) -> Pace {
        self.paces.get(stage).copied().unwrap_or_default()
    }

    /// When the task's inputs are there; None as long as they are not.
    fn ready(&self, stage: usize, task: &Task) -> Option<f64> {
        let known = |t: f64| (!t.is_nan()).then_some(t);
        let last = self.stages.len() - 1;
        let of = |times: &[f64], stage: usize, chunk: u32| {
            let other = Task { chunk, ..*task };
            known(times[self.slot(stage, &other)])
        };
        match task.work {
            Work::Forward if stage > 0 => {
                Some(of(&self.forward, stage - 1, task.chunk)? + self.pace(stage - 1).send)
            }
            Work::Forward if task.chunk > 0 => {
                Some(of(&self.forward, last, task.chunk - 1)? + self.pace(last).send)
            }
            Work::Forward => Some(0.0),
            Work::Backward => {
                let own = of(&self.forward, stage, task.chunk)?;
                let next = if stage < last {
                    of(&self.backward, stage + 1, task.chunk)? + self.pace(stage).send
                } else if task.chunk + 1 < self.chunks {
                    of(&self.backward, 0, task.chunk + 1)? + self.pace(last).send
                } else {
                    own
                };
                Some(own.max(next))
            }
            Work::Weights => of(&self.backward, stage, task.chunk),
        }
    }

    fn execute(&mut self, stage: usize, task: &Task, ready: f64, splits: bool) {
        let (pace, slot, share) =
            (self.pace(stage), self.slot(stage, task), 1.0 / f64::from(self.chunks));
        let seconds = share
            * match task.work {
                Work::Forward => pace.forward,
                Work::Backward if splits => pace.backward,
                Work::Backward => pace.backward + pace.weights,
                Work::Weights => pace.weights,
            };
        let time = &mut self.stages[stage];
        let begin = time.end.max(ready);
        time.end = begin + seconds;
        time.busy += seconds;
        match task.work {
            Work::Forward => self.forward[slot] = time.end,
            Work::Backward => {
                self.backward[slot] = time.end;
                time.last_backward = begin;
            }
            Work::Weights => {}
        }
        let frees = if splits { Work::Weights } else { Work::Backward };
        if task.work == Work::Forward {
            self.held[stage] += share;
            time.in_flight = time.in_flight.max(self.held[stage]);
        } else if task.work == frees {
            self.held[stage] -= share;
        }
    }
}
