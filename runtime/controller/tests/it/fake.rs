//! Workers that compute nothing: threads that speak the messages of real ones, and fail on demand.

use monarch_checkpoint::{Stored, Tensor, fingerprint, layout, write_shard};
use monarch_controller::{Child, ChildExit, Door, Launcher, Seat, WorkerEnd};
use monarch_graph as g;
use monarch_wire::*;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a worker does wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Trick {
    #[default]
    None,
    /// Ends before it says hello.
    DiesAtOnce,
    NeverReady,
    /// Ends before this step as if by a signal.
    KilledAt(u64),
    /// Reports a failure of its own at this step.
    FailsAt(u64),
    /// Sees that a peer is gone, and says so, at this step.
    ComplainsAt {
        step: u64,
        peer: u32,
    },
    OtherVersion,
    OtherJob,
    /// Takes its part of the checkpoint away again before it reports it.
    LosesFiles,
    /// Puts a file where the run's directory was, before this step.
    BlocksDirectory {
        step: u64,
        run_dir: PathBuf,
    },
    /// Sends another loss at this step.
    WrongLossAt(u64),
    HangsAt(u64),
    /// Panics at this step.
    PanicsAt(u64),
}

/// How workers of a test behave.
#[derive(Clone, Default)]
pub struct Fakes {
    pub count: u32,
    /// (slot, trick)
    pub trick: Option<(u32, Trick)>,
    pub step_time: Duration,
    pub save_time: Duration,
    pub ready_time: Duration,
    /// Threads of workers that are still running.
    pub alive: Arc<AtomicU32>,
    /// `Start` messages seen.
    pub starts: Arc<Mutex<Vec<Start>>>,
}

impl Fakes {
    pub fn new(count: u32) -> Fakes {
        Fakes { count, ..Fakes::default() }
    }

    pub fn with(count: u32, slot: u32, trick: Trick) -> Fakes {
        Fakes { trick: Some((slot, trick)), ..Fakes::new(count) }
    }
}

impl Launcher for Fakes {
    fn launch(&mut self, seat: &Seat) -> std::io::Result<Box<dyn Child>> {
        let trick = match &self.trick {
            Some((slot, trick)) if *slot == seat.slot => trick.clone(),
            _ => Trick::None,
        };
        let exit = Arc::new(Mutex::new(None));
        let (theirs, fakes) = (exit.clone(), self.clone());
        let (slot, job, door) = (seat.slot, seat.job_hash, seat.door.clone());
        fakes.alive.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            let body = || work(&fakes, slot, job, &door, &trick);
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            let panicked =
                ChildExit { text: "panicked: on demand".into(), signal: None, clean: false };
            *theirs.lock().unwrap() = Some(end.unwrap_or(panicked));
            fakes.alive.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(Box::new(FakeChild { exit }))
    }

    fn count(&self) -> u32 {
        self.count
    }
}

struct FakeChild {
    exit: Arc<Mutex<Option<ChildExit>>>,
}

impl Child for FakeChild {
    fn try_wait(&mut self) -> Option<ChildExit> {
        self.exit.lock().unwrap().clone()
    }
    fn kill(&mut self) {}
    fn stderr_tail(&self) -> Vec<String> {
        match &*self.exit.lock().unwrap() {
            Some(exit) if !exit.clean => vec!["famous last words".into()],
            _ => Vec::new(),
        }
    }
}

fn exit(text: &str, signal: Option<i32>) -> ChildExit {
    ChildExit { text: text.into(), signal, clean: text == "exit code 0" }
}

pub fn hello(slot: Option<u32>, job: [u8; 32], trick: &Trick) -> Hello {
    let version = if *trick == Trick::OtherVersion { "9.9.9" } else { env!("CARGO_PKG_VERSION") };
    Hello {
        version: version.into(),
        host: "here".into(),
        shm_domain: "boot/0".into(),
        pid: std::process::id(),
        cores: 4,
        peer_address: "127.0.0.1:1".into(),
        job: Some(if *trick == Trick::OtherJob { [9; 32] } else { job }),
        slot,
        pulse: None,
        back: None,
    }
}

/// The life of a worker. Returns how it ended.
fn work(fakes: &Fakes, slot: u32, job: [u8; 32], door: &Door, trick: &Trick) -> ChildExit {
    if *trick == Trick::DiesAtOnce {
        return exit("exit code 101", None);
    }
    let end = door.connect();
    let _ = end.send(FromWorker::Hello(hello(Some(slot), job, trick)));
    let start = loop {
        match end.recv() {
            Ok(ToWorker::Start(start)) => break start,
            Ok(ToWorker::Ping(n)) => drop(end.send(FromWorker::Pong(n))),
            _ => return exit("exit code 4", None),
        }
    };
    fakes.starts.lock().unwrap().push(start.clone());
    std::thread::sleep(fakes.ready_time);
    if *trick == Trick::NeverReady {
        while end.recv().is_ok_and(|m| !matches!(m, ToWorker::Abort { .. })) {}
        return exit("exit code 0", None);
    }
    let ready = Ready {
        generation: 0,
        fingerprint: print_at(&start.plan, start.first_step),
        bytes: 1 << 20,
        isa: "scalar".into(),
        threads: start.form.threads,
    };
    let _ = end.send(FromWorker::Ready(ready));
    Worker { fakes, end, start, trick, due: VecDeque::new(), step: 0, until: 0, finish: false }
        .run()
}

struct Worker<'a> {
    fakes: &'a Fakes,
    end: WorkerEnd,
    start: Start,
    trick: &'a Trick,
    due: VecDeque<Due>,
    step: u64,
    until: u64,
    finish: bool,
}

impl Worker<'_> {
    fn run(mut self) -> ChildExit {
        self.step = self.start.first_step;
        self.until = self.step;
        loop {
            let busy =
                self.until > self.step || self.due.front().is_some_and(|d| d.step <= self.step);
            let limit = if busy { Duration::ZERO } else { Duration::from_secs(60) };
            match self.end.recv_timeout(limit) {
                Ok(Some(ToWorker::Window(window))) => {
                    self.until = self.until.max(window.until);
                    self.due.extend(window.due);
                }
                Ok(Some(ToWorker::Finish)) => self.finish = true,
                Ok(Some(ToWorker::Ping(n))) => drop(self.end.send(FromWorker::Pong(n))),
                Ok(Some(_)) | Err(_) => return exit("exit code 0", None),
                Ok(None) => {}
            }
            if self.due.front().is_some_and(|d| d.step <= self.step) {
                self.do_due();
            } else if self.until > self.step {
                if let Some(end) = self.do_step() {
                    return end;
                }
            } else if self.finish {
                let fingerprint = print_at(&self.start.plan, self.step);
                let finished = Finished { step: self.step, fingerprint };
                let _ = self.end.send(FromWorker::Finished(finished));
                return exit("exit code 0", None);
            }
        }
    }

    fn do_step(&mut self) -> Option<ChildExit> {
        let step = self.step;
        let fail = |message: &str, lost_peer| {
            let (task, message) = ("load data".to_string(), message.to_string());
            let span = Some(g::Span { file: 0, start: 6, end: 9 });
            FromWorker::Failed(Failure { step: Some(step), task, message, span, lost_peer })
        };
        match self.trick {
            Trick::KilledAt(at) if *at == step => {
                return Some(exit("signal 11 (SIGSEGV)", Some(11)));
            }
            Trick::FailsAt(at) if *at == step => {
                let _ = self.end.send(fail("token id 99 is not below 65", None));
                return Some(exit("exit code 1", None));
            }
            Trick::ComplainsAt { step: at, peer } if *at == step => {
                let _ = self.end.send(fail("a peer is gone", Some(*peer)));
                return Some(exit("exit code 1", None));
            }
            Trick::BlocksDirectory { step: at, run_dir } if *at == step => {
                std::fs::remove_dir_all(run_dir).unwrap();
                std::fs::write(run_dir, "in the way").unwrap();
            }
            Trick::HangsAt(at) if *at == step => {
                while self.end.recv().is_ok_and(|m| !matches!(m, ToWorker::Abort { .. })) {}
                return Some(exit("exit code 0", None));
            }
            Trick::PanicsAt(at) if *at == step => std::panic::resume_unwind(Box::new("on demand")),
            _ => {}
        }
        if !self.fakes.step_time.is_zero() {
            std::thread::sleep(self.fakes.step_time);
        }
        let wrong = f64::from(*self.trick == Trick::WrongLossAt(step));
        let total_ns = 100_000_000;
        let phases = Phases { total_ns, wait_ns: total_ns / 4, ..Phases::default() };
        let span = TraceSpan {
            name: "reduce bucket 0".into(),
            stream: "communication".into(),
            start_ns: step * 100,
            end_ns: step * 100 + 50,
            bytes: 64,
        };
        let report = StepReport {
            step,
            epoch: step / 13,
            samples: 8,
            loss: 1.0 / (step + 1) as f64 + wrong * 1e-15,
            grad_norm: 0.5,
            lr: 1e-3,
            phases,
            spans: if self.start.trace.contains(&step) { vec![span] } else { Vec::new() },
            trouble: None,
        };
        let _ = self.end.send(FromWorker::Step(report));
        self.step += 1;
        None
    }

    fn do_due(&mut self) {
        let Some(due) = self.due.pop_front() else { return };
        let step = due.step;
        let message = match due.what {
            DueKind::Evaluate(evaluation) => FromWorker::Evaluated(EvalReport {
                step,
                evaluation,
                values: vec![step as f64 / 100.0],
                samples: 20,
                nanoseconds: 1000,
            }),
            DueKind::Save { directory } => {
                std::thread::sleep(self.fakes.save_time);
                FromWorker::Saved(self.save(step, Path::new(&directory)))
            }
        };
        let _ = self.end.send(message);
    }

    fn save(&self, step: u64, directory: &Path) -> SaveReport {
        let (rank, world) = (self.start.form.rank, self.start.form.world);
        let stored: Vec<_> =
            layout(&self.start.plan, world).into_iter().filter(|t| t.rank == rank).collect();
        let size = |t: &Stored| t.shape.iter().product::<u64>() as usize;
        let values = vec![step as f32; stored.iter().map(size).max().unwrap_or(0)];
        let tensors: Vec<Tensor> = stored
            .iter()
            .map(|t| Tensor { name: &t.name, shape: &t.shape, values: &values[..size(t)] })
            .collect();
        let written = write_shard(directory, rank, world, &tensors);
        let error = written.as_ref().err().map(|e| e.to_string());
        let file = written.ok().map(|info| SavedFile {
            name: info.file,
            bytes: info.bytes,
            sha256: info.sha256,
            tensors: stored.iter().map(|t| t.name.clone()).collect(),
            finite: info.finite,
        });
        if *self.trick == Trick::LosesFiles
            && let Some(file) = &file
        {
            std::fs::remove_file(directory.join(&file.name)).unwrap();
        }
        let fingerprint = print_at(&self.start.plan, step);
        SaveReport { step, file, fingerprint, nanoseconds: 1, error }
    }
}

/// The weights after `step` steps are all equal to it.
pub fn print_at(plan: &g::Plan, step: u64) -> String {
    let values = vec![step as f32; 16];
    let weights = plan.weights.iter().map(|w| (w.name.as_str(), values.as_slice()));
    fingerprint(weights).to_string()
}
