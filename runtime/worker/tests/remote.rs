//! A worker over QUIC, and in a process of its own.

mod common;

use common::plan::{plan, write_data};
use common::window;
use monarch_net::{ClusterKey, ControlServer, Identity, Options, Role, ServerEvent};
use monarch_wire::*;
use monarch_worker::{Config, ControlLink, Parting, Received, WorkerError, connect, run};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

fn next(events: &Receiver<ServerEvent>) -> ServerEvent {
    events.recv_timeout(LIMIT).expect("the worker says something")
}

fn message(events: &Receiver<ServerEvent>) -> FromWorker {
    match next(events) {
        ServerEvent::Frame { bytes, .. } => decode(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A controller's socket, a worker thread connected to it, and the connection.
struct Line {
    server: ControlServer,
    events: Receiver<ServerEvent>,
    id: monarch_net::ConnId,
    worker: std::thread::JoinHandle<Result<Parting, WorkerError>>,
}

fn line() -> Line {
    let key = ClusterKey::generate().unwrap();
    let identity = Identity::new(&key, Role::Controller);
    let (server, events) =
        ControlServer::start("127.0.0.1:0", &identity, &Options::default()).unwrap();
    let address = server.local_addr().to_string();
    let worker = std::thread::spawn(move || {
        let identity = Identity::new(&key, Role::Worker);
        let link = connect(&address, &identity, &Options::default(), LIMIT).unwrap();
        run(link, Config::default())
    });
    let ServerEvent::Connected { id, .. } = next(&events) else { panic!("not connected") };
    assert!(matches!(message(&events), FromWorker::Hello(_)));
    Line { server, events, id, worker }
}

impl Line {
    fn say(&self, message: &ToWorker) {
        self.server.send(self.id, encode(message).unwrap()).unwrap();
    }
}

#[test]
fn a_run_over_quic() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let line = line();
    let start = Start {
        plan: plan(&data, true),
        run: "test".into(),
        resume: None,
        first_step: 0,
        trace: vec![],
        incarnation: 1,
        form: Form {
            generation: 0,
            rank: 0,
            world: 1,
            threads: 2,
            links: Links::None,
            base: 0,
            holders: vec![false],
            deal: vec![0; 8],
            source: Source::Members,
        },
    };
    line.say(&ToWorker::Start(start));
    assert!(matches!(message(&line.events), FromWorker::Ready(_)));
    line.say(&ToWorker::Window(window(4, &[(4, DueKind::Evaluate(0))])));
    for step in 0..4 {
        let FromWorker::Step(report) = message(&line.events) else { panic!("no step") };
        assert_eq!(report.step, step);
    }
    assert!(matches!(message(&line.events), FromWorker::Evaluated(_)));
    let start = Instant::now();
    for number in 0..100 {
        line.say(&ToWorker::Ping(number));
        assert_eq!(message(&line.events), FromWorker::Pong(number));
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?} for 100 pings", start.elapsed());
    line.say(&ToWorker::Finish);
    let FromWorker::Finished(finished) = message(&line.events) else { panic!("not finished") };
    assert_eq!(finished.step, 4);
    line.worker.join().unwrap().unwrap();
    assert!(matches!(next(&line.events), ServerEvent::Closed { .. }));
}

#[test]
fn a_worker_leaves_with_its_controller() {
    let line = line();
    let start = Instant::now();
    line.server.shutdown("gone");
    let error = line.worker.join().unwrap().unwrap_err();
    assert!(matches!(error, WorkerError::LinkClosed { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// A worker whose work does not end: here it cannot even say `Hello`.
#[test]
fn a_process_whose_controller_is_gone_ends_within_its_grace() {
    if std::env::var_os("MONARCH_TEST_STUCK").is_some() {
        let link = ControlLink::new(
            |_| {
                std::thread::sleep(Duration::from_secs(60));
                Ok(())
            },
            |_| Received::Closed("the controller was killed".into()),
        );
        let config = Config { grace: Some(Duration::from_millis(300)), ..Config::default() };
        let _ = run(link, config);
        return;
    }
    let start = Instant::now();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_whose_controller_is_gone_ends_within_its_grace"])
        .env("MONARCH_TEST_STUCK", "1")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
