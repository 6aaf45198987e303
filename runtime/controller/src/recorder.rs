mod again;
mod spans;

pub(crate) use again::Notes;

use crate::config::RunConfig;
use crate::event::{EvalEvent, RunEvent, StartedEvent, StepEvent};
use crate::journal::Seen;
use crate::summary::{Logs, Summary, Why};
use again::{Again, is_of_step, stays};
use monarch_graph::Metrics;
use monarch_record::{Events, JsonLines, RecordError, Stamp, number, write_trace};
use monarch_sched::Facts;
use monarch_wire::TraceSpan;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records that may wait for the disk; more are dropped and counted.
const QUEUE: usize = 8192;
/// Spans kept for the trace: about 100 MB. Steps beyond are left out, and counted.
const SPANS: usize = 1 << 20;
/// Version of the lines in `events.jsonl`.
const LINES_VERSION: u32 = 1;

/// Hands what happens to a thread that writes it down. Never waits for it.
///
/// Nothing is written before the run begins: one that never does leaves no files.
pub(crate) struct Recorder {
    state: State,
    dropped: u64,
    shared: Arc<Shared>,
}

enum State {
    /// Records nothing, or has come to its end.
    Silent,
    /// The run has not begun: what has happened so far, and all that the thread will need.
    Waiting {
        early: Vec<Entry>,
        setup: Setup,
    },
    Writing(SyncSender<Entry>),
}

struct Setup {
    run_dir: PathBuf,
    job: Value,
    resume: Option<Again>,
    metrics: Metrics,
    notes: Option<Notes>,
}

/// What the thread tells.
#[derive(Default)]
struct Shared {
    lost: AtomicU64,
    logs: Mutex<Logs>,
    complaints: Mutex<Complaints>,
    done: AtomicU64,
}

#[derive(Default)]
struct Complaints {
    new: Vec<String>,
    /// A disk that is almost full takes a short record after it has refused a long one, and so on
    /// for ever: each thing is said once.
    said: BTreeSet<String>,
}

impl Shared {
    fn complain(&self, text: String) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.said.len() < 64 && complaints.said.insert(text.clone()) {
            complaints.new.push(text);
        }
    }
}

enum Entry {
    Event {
        at: f64,
        event: Box<RunEvent>,
    },
    Spans {
        step: u64,
        by_rank: Vec<Vec<TraceSpan>>,
    },
    /// All before this is of these facts.
    Note {
        facts: Box<Facts>,
        seen: Box<Seen>,
    },
    End {
        at: f64,
        summary: Box<Summary>,
    },
}

impl Recorder {
    pub fn new(config: &RunConfig, run_dir: &Path, notes: Option<Notes>) -> Recorder {
        let from_nothing = config.resume.is_none();
        let evaluates = from_nothing || config.scheduling().evaluates_at_first_step();
        let step = config.first_step();
        // There may be records of an attempt that was killed before its first checkpoint.
        let goes_on = !from_nothing || config.anew || config.restore.is_some();
        let facts = config.restore.as_ref().map(|j| &j.facts).filter(|f| f.begun);
        let resume = match facts {
            Some(f) => {
                let (step, evaluated, saved) = (f.recorded, f.evaluated, f.saved);
                Some(Again::Journal { step, evaluated, saved })
            }
            None => goes_on.then_some(Again::Checkpoint { step, evaluates }),
        };
        let (job, metrics) = (job_file(config), config.plan.metrics.clone());
        let setup = Setup { run_dir: run_dir.to_path_buf(), job, resume, metrics, notes };
        let state = State::Waiting { early: Vec::new(), setup };
        Recorder { state, dropped: 0, shared: Arc::default() }
    }

    /// Records nothing.
    pub fn silent() -> Recorder {
        Recorder { state: State::Silent, dropped: 0, shared: Arc::default() }
    }

    /// Files are being written.
    pub fn begun(&self) -> bool {
        matches!(self.state, State::Writing(_))
    }

    fn begin(&mut self) {
        let State::Waiting { early, setup } = std::mem::replace(&mut self.state, State::Silent)
        else {
            return;
        };
        let (queue, entries) = sync_channel(QUEUE + early.len());
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("monarch-record".to_string());
        let spawned = thread.spawn(move || {
            let mut writer = Writer::open(&setup.run_dir, setup.resume, shared);
            writer.metrics = setup.metrics;
            writer.notes = setup.notes;
            writer.job(&setup.job);
            writer.run(&entries);
        });
        match spawned {
            Ok(_) => self.state = State::Writing(queue),
            Err(error) => self.shared.complain(format!("nothing is recorded: {error}")),
        }
        for entry in early {
            self.send(entry);
        }
    }

    pub fn event(&mut self, event: &RunEvent) {
        if matches!(event, RunEvent::Started(_) | RunEvent::Restarted { .. }) {
            self.begin();
        }
        let entry = Entry::Event { at: wall_time(), event: Box::new(event.clone()) };
        self.send(entry);
    }

    pub fn spans(&mut self, step: u64, by_rank: Vec<Vec<TraceSpan>>) {
        self.send(Entry::Spans { step, by_rank });
    }

    /// For the journal, after all that was recorded before; not before the run has begun.
    pub fn note(&mut self, facts: Facts, seen: Seen) {
        if self.begun() {
            self.send(Entry::Note { facts: Box::new(facts), seen: Box::new(seen) });
        }
    }

    fn send(&mut self, entry: Entry) {
        match &mut self.state {
            State::Silent => {}
            State::Waiting { early, .. } => early.push(entry),
            State::Writing(queue) => {
                if queue.try_send(entry).is_err() {
                    self.dropped += 1;
                }
            }
        }
    }

    /// What the disk would not take, in words; once each.
    pub fn complaints(&self) -> Vec<String> {
        let complaints = self.shared.complaints.lock();
        std::mem::take(&mut complaints.unwrap_or_else(PoisonError::into_inner).new)
    }

    /// Writes the end and closes the files, within `limit`.
    pub fn finish(&mut self, summary: &Summary, limit: Duration) {
        let deadline = Instant::now() + limit;
        let State::Writing(queue) = std::mem::replace(&mut self.state, State::Silent) else {
            return;
        };
        let mut entry = Entry::End { at: wall_time(), summary: Box::new(summary.clone()) };
        // A full queue means a slow disk: it has until the deadline.
        while let Err(TrySendError::Full(back)) = queue.try_send(entry) {
            if Instant::now() >= deadline {
                self.dropped += 1;
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
            entry = back;
        }
        drop(queue);
        while self.shared.done.load(Ordering::Acquire) == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn logs(&self) -> Logs {
        self.shared.logs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that were not written.
    pub fn dropped(&self) -> u64 {
        self.dropped + self.shared.lost.load(Ordering::Relaxed)
    }
}

/// Seconds since 1970. Only shown; nothing depends on it.
fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// What a person needs to know which job this was.
fn job_file(config: &RunConfig) -> Value {
    let params: Map<String, Value> =
        config.params.iter().map(|(k, v)| (k.clone(), Value::from(v.clone()))).collect();
    json!({
        "version": LINES_VERSION,
        "run": config.run_id,
        "job": config.plan.name,
        "files": config.plan.files,
        "plan_sha256": monarch_graph::hex(&config.job_hash),
        "params": params,
        "seed": config.plan.seed,
        "steps": config.plan.steps,
        "batch": config.plan.batch,
        "shards": config.plan.shards,
        "workers": config.workers,
        "monarch": env!("CARGO_PKG_VERSION"),
    })
}

/// Where each worker's time went, in order of rank.
fn phases(step: &StepEvent) -> Value {
    let phase = |p: &monarch_wire::Phases| {
        json!({
            "total_ns": p.total_ns, "data_ns": p.data_ns, "compute_ns": p.compute_ns,
            "wait_ns": p.wait_ns, "communication_ns": p.communication_ns,
            "update_ns": p.update_ns, "load_ns": p.load_ns, "forward_ns": p.forward_ns,
            "backward_ns": p.backward_ns, "sent_bytes": p.sent_bytes,
        })
    };
    step.phases.iter().map(phase).collect()
}

/// The thread's side.
struct Writer {
    run_dir: PathBuf,
    lines: Option<JsonLines>,
    events: Option<Events>,
    spans: Vec<monarch_record::TraceSpan>,
    names: BTreeMap<u32, String>,
    /// What the job wants recorded of steps.
    metrics: Metrics,
    /// Bytes of the fullest worker.
    peak: u64,
    shared: Arc<Shared>,
    notes: Option<Notes>,
}

impl Writer {
    fn open(run_dir: &Path, resume: Option<Again>, shared: Arc<Shared>) -> Writer {
        let path = run_dir.join("events.jsonl");
        let (at, pid) = (wall_time(), std::process::id());
        let (lines, events) = match resume {
            Some(Again::Journal { step, evaluated, saved }) => {
                let mut curve = stays(step, evaluated, saved);
                let curve = move |at: u64, tag: &str| {
                    curve(at, if is_of_step(tag) { "step" } else { "eval" })
                };
                (
                    JsonLines::keep(&path, stays(step, evaluated, saved)),
                    Events::keep(run_dir, at, pid, curve),
                )
            }
            Some(Again::Checkpoint { step, evaluates }) => {
                // A step's record has the number of steps before it: the one at `step` is to come.
                let line = |event: &str| match event {
                    "eval" => !evaluates,
                    event => event == "checkpoint",
                };
                let curve = move |tag: &str| !is_of_step(tag) && !evaluates;
                (
                    JsonLines::resume(&path, step, line),
                    Events::resume(run_dir, step, at, pid, curve),
                )
            }
            None => (JsonLines::open(&path), Events::create(run_dir, at, pid)),
        };
        let mut writer = Writer {
            run_dir: run_dir.to_path_buf(),
            lines: None,
            events: None,
            spans: Vec::new(),
            names: BTreeMap::new(),
            metrics: Metrics::default(),
            peak: 0,
            shared,
            notes: None,
        };
        writer.lines = writer.or_complain(lines);
        writer.events = writer.or_complain(events);
        writer.set_logs(|logs| logs.events = Some(path));
        writer
    }

    fn set_logs(&self, change: impl FnOnce(&mut Logs)) {
        let mut logs = self.shared.logs.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut logs);
        if self.lines.is_none() {
            logs.events = None;
        }
        logs.tensorboard = self.events.as_ref().map(|_| self.run_dir.clone());
    }

    fn or_complain<T>(&self, result: Result<T, RecordError>) -> Option<T> {
        result.map_err(|error| self.shared.complain(error.to_string())).ok()
    }

    fn job(&self, job: &Value) {
        let path = self.run_dir.join("job.json");
        if let Err(error) = fs::write(&path, format!("{job:#}\n")) {
            self.shared.complain(format!("cannot write `{}`: {error}", path.display()));
        }
    }

    fn run(mut self, entries: &Receiver<Entry>) {
        for entry in entries {
            match entry {
                Entry::Event { at, event } => self.event(at, &event),
                Entry::Spans { step, by_rank } => self.keep_spans(step, by_rank),
                Entry::Note { facts, seen } => self.note(&facts, &seen),
                Entry::End { at, summary } => self.end(at, &summary),
            }
        }
        self.shared.done.store(1, Ordering::Release);
    }

    fn event(&mut self, at: f64, event: &RunEvent) {
        match event {
            RunEvent::Started(started) => self.started(at, started),
            RunEvent::Step(step) => self.step(at, step),
            RunEvent::Evaluated(eval) => self.evaluated(at, eval),
            RunEvent::CheckpointSaved(saved) => self.line(
                at,
                "checkpoint",
                json!({
                    "step": saved.step,
                    "path": saved.path.display().to_string(),
                    "fingerprint": saved.fingerprint,
                    "seconds": number(saved.seconds),
                }),
            ),
            RunEvent::NotFinite(e) => self.line(
                at,
                "not_finite",
                json!({
                    "step": e.step, "what": e.what, "shard": e.shard, "answer": e.answer,
                    "follows": e.follows,
                }),
            ),
            RunEvent::Warning { text } => self.line(at, "warning", json!({ "text": text })),
            RunEvent::WorkerLost { rank, host, why, step } => {
                let lost = json!({ "rank": rank, "host": host, "why": why, "step": step });
                self.line(at, "lost", lost);
            }
            RunEvent::WorkerSlow(slow) => {
                let shards = slow.shards.map(|(before, after)| json!([before, after]));
                let line = json!({
                    "rank": slow.rank, "host": slow.host, "phase": slow.phase,
                    "times": number(slow.times), "seconds": number(slow.seconds),
                    "others_seconds": number(slow.others_seconds), "shards": shards,
                });
                self.line(at, "slow", line);
            }
            RunEvent::WorkerRecovered { rank, host } => {
                self.line(at, "recovered", json!({ "rank": rank, "host": host }));
            }
            RunEvent::WorkerLeft { rank, host, pid, step } => {
                let left = json!({ "rank": rank, "host": host, "pid": pid, "step": step });
                self.line(at, "left", left);
            }
            RunEvent::Regrouped { generation, step, workers, seconds } => {
                let regrouped = json!({
                    "generation": generation, "step": step, "workers": workers,
                    "seconds": number(*seconds),
                });
                self.line(at, "regrouped", regrouped);
            }
            RunEvent::Listening { address } => {
                self.line(at, "listening", json!({ "address": address.to_string() }));
            }
            RunEvent::Joined { host, joined, .. } => {
                self.line(at, "joined", json!({ "host": host, "joined": joined }));
            }
            RunEvent::Restarted { incarnation, step, workers, seconds, .. } => {
                let restarted = json!({
                    "incarnation": incarnation, "step": step, "workers": workers,
                    "seconds": number(*seconds),
                });
                self.line(at, "restarted", restarted);
            }
            RunEvent::Finished(_) => {}
        }
    }

    /// `{"time": .., "event": .., ...}`
    fn line(&mut self, at: f64, event: &str, fields: Value) {
        let Some(lines) = &mut self.lines else { return self.lose() };
        let mut line = Map::new();
        line.insert("time".to_string(), number((at * 1e3).round() / 1e3));
        line.insert("event".to_string(), Value::from(event));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let before = lines.lost();
        let written = lines.write(&Value::Object(line));
        let lost = lines.lost() - before;
        self.shared.lost.fetch_add(lost, Ordering::Relaxed);
        self.or_complain(written);
    }

    fn scalars(&mut self, at: f64, step: u64, values: &[(&str, f64)]) {
        let Some(events) = &mut self.events else { return self.lose() };
        let before = events.lost();
        let written = events.scalars(Stamp { step, wall_time: at }, values);
        let lost = events.lost() - before;
        self.shared.lost.fetch_add(lost, Ordering::Relaxed);
        self.or_complain(written);
    }

    fn lose(&self) {
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn started(&mut self, at: f64, started: &StartedEvent) {
        let workers: Vec<Value> = started
            .workers
            .iter()
            .map(|w| {
                json!({
                    "rank": w.rank, "host": w.host, "pid": w.pid, "threads": w.threads,
                    "bytes": w.bytes, "isa": w.isa,
                })
            })
            .collect();
        self.peak = started.workers.iter().map(|w| w.bytes).max().unwrap_or(0);
        self.names = started
            .workers
            .iter()
            .map(|w| (w.rank, format!("worker {} on {}", w.rank, w.host)))
            .collect();
        let fields = json!({
            "version": LINES_VERSION,
            "run": started.run_id,
            "job": started.job,
            "plan_sha256": monarch_graph::hex(&started.job_hash),
            "first_step": started.first_step,
            "steps": started.steps,
            "transport": started.transport,
            "fingerprint": started.fingerprint,
            "workers": workers,
        });
        self.line(at, "start", fields);
    }

    fn step(&mut self, at: f64, step: &StepEvent) {
        if !self.metrics.records(step.step, step.steps) {
            return;
        }
        let mut fields = json!({
            "step": step.step,
            "epoch": step.epoch,
            "samples": step.samples,
        });
        let mut scalars = Vec::new();
        let mut add = |name: &str, field: &str, tag: &'static str, value: f64| {
            if self.metrics.logs(name) {
                fields[field] = number(value);
                scalars.push((tag, value));
            }
        };
        add("loss", "loss", "train/loss", step.loss);
        add("lr", "lr", "train/lr", step.lr);
        add("grad_norm", "grad_norm", "train/grad_norm", step.grad_norm);
        let (speed, wait) = (step.samples_per_second, step.wait_share);
        add("samples_per_s", "samples_per_second", "speed/samples_per_second", speed);
        add("wait_share", "wait_share", "speed/wait_share", wait);
        if let Some(tokens) = step.tokens_per_second {
            add("tokens_per_s", "tokens_per_second", "speed/tokens_per_second", tokens);
        }
        match &self.metrics.log {
            // Only for those who ask: it is the same in every step.
            Some(_) => add("memory.peak", "memory_peak", "memory/peak", self.peak as f64),
            None => {
                fields["seconds"] = number(step.seconds);
                fields["workers"] = phases(step);
            }
        }
        self.line(at, "step", fields);
        self.scalars(at, step.step, &scalars);
    }

    fn evaluated(&mut self, at: f64, eval: &EvalEvent) {
        let mut fields = json!({ "step": eval.step });
        let mut tags = Vec::new();
        for (name, value) in &eval.values {
            fields[name.as_str()] = number(*value);
            tags.push((name.replacen('.', "/", 1), *value));
        }
        fields["samples"] = Value::from(eval.samples);
        fields["seconds"] = number(eval.seconds);
        self.line(at, "eval", fields);
        let scalars: Vec<(&str, f64)> = tags.iter().map(|(tag, v)| (tag.as_str(), *v)).collect();
        self.scalars(at, eval.step, &scalars);
    }

    /// Records go on into a file that somebody has removed; nobody will find them there.
    fn miss(&mut self) {
        let gone = |path: &Path| {
            let gone = !path.exists();
            if gone {
                let path = path.display();
                self.shared.complain(format!("`{path}` was removed during the run; it is lost"));
            }
            gone
        };
        let lines_gone = self.lines.is_some() && gone(&self.run_dir.join("events.jsonl"));
        let curves_gone = self.events.as_ref().is_some_and(|events| gone(events.path()));
        self.lines.take_if(|_| lines_gone);
        self.events.take_if(|_| curves_gone);
        self.set_logs(|_| {});
    }

    fn end(&mut self, at: f64, summary: &Summary) {
        let why = match &summary.why {
            Why::Completed => "completed".to_string(),
            Why::Rule(text) => format!("rule: {text}"),
            Why::Stopped => "stopped".to_string(),
            Why::Interrupted { .. } => "interrupted".to_string(),
            Why::Failed => "failed".to_string(),
        };
        let checkpoint = summary.checkpoint.as_ref().map(|(p, _)| p.display().to_string());
        let fields = json!({
            "why": why,
            "steps": summary.steps,
            "loss": summary.loss.map(number),
            "fingerprint": summary.fingerprint,
            "checkpoint": checkpoint,
            "seconds": number(summary.wall.as_secs_f64()),
            "samples_per_second": number(summary.samples_per_second()),
            "wait_share": number(summary.wait_share),
        });
        self.line(at, "end", fields);
        if !self.spans.is_empty() {
            let path = self.run_dir.join("trace.json");
            let written = write_trace(&path, &self.names, &self.spans);
            if self.or_complain(written).is_some() {
                self.set_logs(|logs| logs.trace = Some(path));
            }
        }
        if let Some(lines) = &self.lines {
            self.or_complain(lines.sync());
        }
        if let Some(events) = &self.events {
            self.or_complain(events.sync());
        }
        self.miss();
    }
}
