//! Workers as threads, and a controller that follows a script.
#![allow(dead_code)]

pub mod plan;

use monarch_collective::shm;
use monarch_graph::{Plan, even_deal};
use monarch_net::{ClusterKey, Identity, Options, Role};
use monarch_wire::*;
use monarch_worker::{Config, ControlLink, PeerSettings, Received, WorkerError, run};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Shared,
    Quic,
}

/// A worker thread and the controller's end of its link.
pub struct Rank {
    pub to: Option<Sender<ToWorker>>,
    pub from: Receiver<FromWorker>,
    pub hello: Hello,
    thread: Option<JoinHandle<Result<(), WorkerError>>>,
}

impl Rank {
    pub fn start(config: Config) -> Rank {
        let (to, its_messages) = channel();
        let (say, from) = channel();
        let send = move |message| say.send(message).map_err(|e| e.to_string());
        let receive = move |limit| match its_messages.recv_timeout(limit) {
            Ok(message) => Received::Message(Box::new(message)),
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => Received::Closed("hung up".into()),
        };
        let link = ControlLink::new(send, receive);
        let thread = Some(std::thread::spawn(move || run(link, config).map(|_| ())));
        let Ok(FromWorker::Hello(hello)) = from.recv_timeout(Duration::from_secs(10)) else {
            panic!("a worker begins with `Hello`");
        };
        Rank { to: Some(to), from, hello, thread }
    }

    pub fn say(&self, message: ToWorker) {
        // A worker that has failed hears nothing more.
        let _ = self.to.as_ref().unwrap().send(message);
    }

    /// The next message but for pulses, which come by the clock; None when the worker has left.
    pub fn hear(&self) -> Option<FromWorker> {
        loop {
            match self.from.recv_timeout(Duration::from_secs(30)) {
                Ok(FromWorker::Pulse(_)) => {}
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("silence"),
            }
        }
    }

    pub fn join(&mut self) -> Result<(), WorkerError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

/// How workers are reached by their peers.
pub fn ranks_config(way: Way) -> Config {
    // One key for all of this process.
    static KEY: OnceLock<ClusterKey> = OnceLock::new();
    let key = KEY.get_or_init(|| ClusterKey::generate().unwrap());
    let peers = (way == Way::Quic).then(|| PeerSettings {
        identity: Identity::new(key, Role::Worker),
        options: Options::bulk(),
        listen: "127.0.0.1:0".into(),
        advertise: None,
    });
    Config { peers, ..Config::default() }
}

/// How a run is set up.
#[derive(Clone)]
pub struct Setup {
    pub plan: Plan,
    pub world: u32,
    pub threads: u32,
    pub way: Way,
    pub resume: Option<String>,
    pub first_step: u64,
    pub trace: Vec<u64>,
}

impl Setup {
    pub fn new(plan: Plan, world: u32, threads: u32, way: Way) -> Setup {
        Setup { plan, world, threads, way, resume: None, first_step: 0, trace: vec![] }
    }

    /// Workers that have been told to start; also what must stay open for them.
    pub fn start(&self) -> (Vec<Rank>, Box<dyn Send>) {
        let config = ranks_config(self.way);
        let ranks: Vec<Rank> = (0..self.world).map(|_| Rank::start(config.clone())).collect();
        let (file, path) = shm::create_file().unwrap();
        let links = match self.way {
            _ if self.world == 1 => Links::None,
            Way::Shared => Links::SharedMemory { path },
            Way::Quic => {
                Links::Quic { peers: ranks.iter().map(|r| r.hello.peer_address.clone()).collect() }
            }
        };
        for (rank, worker) in (0..).zip(&ranks) {
            worker.say(ToWorker::Start(Start {
                plan: self.plan.clone(),
                run: "test".into(),
                resume: self.resume.clone(),
                first_step: self.first_step,
                trace: self.trace.clone(),
                incarnation: 1,
                form: Form {
                    generation: 0,
                    rank,
                    world: self.world,
                    threads: self.threads,
                    links: links.clone(),
                    base: self.first_step,
                    holders: vec![false; self.world as usize],
                    deal: even_deal(self.plan.shards, self.world),
                    source: Source::Members,
                },
            }));
        }
        (ranks, Box::new(file))
    }

    /// Starts, waits for `Ready`, sends the windows, then `Finish`, and returns what each rank
    /// said.
    pub fn run(&self, windows: &[Window]) -> Vec<Transcript> {
        let (mut ranks, _open) = self.start();
        let mut out = Vec::new();
        for rank in &ranks {
            match rank.hear() {
                Some(FromWorker::Ready(ready)) => {
                    out.push(Transcript { ready: ready.fingerprint, ..Transcript::default() });
                }
                other => panic!("{other:?} instead of `Ready`"),
            }
        }
        for window in windows {
            ranks.iter().for_each(|r| r.say(ToWorker::Window(window.clone())));
        }
        ranks.iter().for_each(|r| r.say(ToWorker::Finish));
        for (rank, transcript) in ranks.iter_mut().zip(&mut out) {
            while let Some(message) = rank.hear() {
                transcript.take(message);
            }
            rank.join().unwrap();
        }
        out
    }
}

/// What a worker said.
#[derive(Debug, Default)]
pub struct Transcript {
    pub ready: String,
    pub steps: Vec<StepReport>,
    pub evals: Vec<EvalReport>,
    pub saves: Vec<SaveReport>,
    pub finished: Option<Finished>,
}

impl Transcript {
    fn take(&mut self, message: FromWorker) {
        match message {
            FromWorker::Step(report) => self.steps.push(report),
            FromWorker::Evaluated(report) => self.evals.push(report),
            FromWorker::Saved(report) => self.saves.push(report),
            FromWorker::Finished(finished) => self.finished = Some(finished),
            FromWorker::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// All that must be equal on all ranks and in all clusters, to the bit.
    pub fn numbers(&self) -> (Vec<[u64; 3]>, Vec<u64>, String) {
        let step = |s: &StepReport| [s.loss.to_bits(), s.grad_norm.to_bits(), s.lr.to_bits()];
        let evals = self.evals.iter().flat_map(|e| e.values.iter().map(|v| v.to_bits()));
        let finished = self.finished.as_ref().map(|f| f.fingerprint.clone());
        (self.steps.iter().map(step).collect(), evals.collect(), finished.unwrap_or_default())
    }
}

pub fn window(until: u64, due: &[(u64, DueKind)]) -> Window {
    let due = due.iter().map(|(step, what)| Due { step: *step, what: what.clone() }).collect();
    Window { until, due, kept: 0 }
}
