//! Peers that die: processes killed for real, found by probe, by idle timeout, by reset.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{LONG, control};
use monarch_net::{
    ClientEvent, ClusterKey, ControlClient, ControlServer, Identity, Lost, MeshEvent, Options,
    PeerMesh, Role, ServerEvent,
};

/// Set for the processes that are killed; the value says what to be.
const ROLE: &str = "MONARCH_NET_TEST_CHILD";
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn identity(role: Role) -> Identity {
    Identity::new(&ClusterKey::parse(KEY).unwrap(), role)
}

/// A child of this very test binary, which runs the test `as_child`.
struct Killed {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Killed {
    fn start(role: &str) -> Killed {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "as_child", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Killed { child, lines }
    }

    /// What follows `word` in the child's next line that holds it.
    fn line(&mut self, word: &str) -> String {
        let line = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(word));
        line.unwrap().split_once(word).unwrap().1.trim().to_string()
    }

    fn kill(&mut self) -> Instant {
        let now = Instant::now();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        now
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: what the processes do that the tests kill.
#[test]
fn as_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (word, rest) = role.split_once(' ').unwrap_or((&role, ""));
    // The parent kills this process, or ends and with it the pipe.
    let wait = || drop(std::io::stdin().lock().lines().next());
    match word {
        "server" => {
            let worker = identity(Role::Controller);
            let (server, events) = ControlServer::start(rest, &worker, &control()).unwrap();
            println!("listening {}", server.local_addr());
            let event = events.recv_timeout(LONG).unwrap();
            println!("got {event:?}");
            wait();
        }
        "client" => {
            let _client =
                ControlClient::connect(rest, &identity(Role::Worker), &control(), LONG).unwrap();
            println!("joined");
            wait();
        }
        "peer" => {
            let (mesh, local) =
                PeerMesh::start("127.0.0.1:0", &identity(Role::Worker), &Options::bulk()).unwrap();
            println!("listening {local}");
            mesh.connect_all(1, &[rest.parse().unwrap(), local], LONG).unwrap();
            mesh.send(0, [1; 32], vec![1; 1000]).unwrap();
            wait();
        }
        other => panic!("no such child: {other}"),
    }
    std::io::stdout().flush().unwrap();
}

fn serve(options: &Options) -> (ControlServer, std::sync::mpsc::Receiver<ServerEvent>) {
    ControlServer::start("127.0.0.1:0", &identity(Role::Controller), options).unwrap()
}

#[test]
fn a_killed_worker_is_found_by_probe() {
    let (server, events) = serve(&control());
    let mut child = Killed::start(&format!("client {}", server.local_addr()));
    let event = events.recv_timeout(LONG).unwrap();
    assert!(matches!(event, ServerEvent::Connected { .. }), "{event:?}");
    child.line("joined");
    let killed = child.kill();
    let event = events.recv_timeout(LONG).unwrap();
    assert!(matches!(event, ServerEvent::Closed { lost: Lost::Vanished, .. }), "{event:?}");
    // Three probe intervals and a margin for a busy machine; the idle timeout is 2 s.
    assert!(killed.elapsed() < Duration::from_millis(2500), "{:?}", killed.elapsed());
}

/// Without any probe: the one that leaves asks by itself.
#[test]
fn leaving_does_not_wait_for_the_dead() {
    let options = || Options { probe: None, flush_timeout: LONG, ..control() };
    let (server, events) = serve(&options());
    let mut child = Killed::start(&format!("client {}", server.local_addr()));
    events.recv_timeout(LONG).unwrap();
    child.line("joined");
    child.kill();
    let begun = Instant::now();
    server.shutdown("the run is over");
    assert!(begun.elapsed() < LONG / 4, "server: {:?}", begun.elapsed());

    let mut child = Killed::start("server 127.0.0.1:0");
    let addr = child.line("listening");
    let worker = identity(Role::Worker);
    let (client, _frames) = ControlClient::connect(&addr, &worker, &options(), LONG).unwrap();
    child.line("got Connected");
    child.kill();
    let begun = Instant::now();
    client.close("done");
    assert!(begun.elapsed() < LONG / 4, "client: {:?}", begun.elapsed());

    let options = Options { probe: None, flush_timeout: LONG, ..Options::bulk() };
    let (mesh, local) = PeerMesh::start("127.0.0.1:0", &identity(Role::Worker), &options).unwrap();
    let mut child = Killed::start(&format!("peer {local}"));
    let addr = child.line("listening").parse().unwrap();
    mesh.connect_all(0, &[local, addr], LONG).unwrap();
    mesh.recv(LONG).unwrap();
    child.kill();
    let begun = Instant::now();
    mesh.close("done");
    assert!(begun.elapsed() < LONG / 4, "mesh: {:?}", begun.elapsed());
}

#[test]
fn a_killed_worker_is_found_by_idle_timeout() {
    let idle = Duration::from_millis(600);
    let keep_alive = Duration::from_millis(100);
    let (server, events) =
        serve(&Options { idle_timeout: idle, keep_alive, probe: None, ..control() });
    let mut child = Killed::start(&format!("client {}", server.local_addr()));
    events.recv_timeout(LONG).unwrap();
    child.line("joined");
    let killed = child.kill();
    let event = events.recv_timeout(LONG).unwrap();
    let ServerEvent::Closed { lost, .. } = event else { panic!("{event:?}") };
    assert_eq!(lost, Lost::Silent { idle });
    assert!(killed.elapsed() < Duration::from_secs(4), "{:?}", killed.elapsed());
}

#[test]
fn a_killed_controller_is_found_and_its_successor_tells_old_connections() {
    // Found by probe where nothing takes its place.
    let mut child = Killed::start("server 127.0.0.1:0");
    let addr = child.line("listening");
    let worker = identity(Role::Worker);
    let (_client, frames) = ControlClient::connect(&addr, &worker, &control(), LONG).unwrap();
    child.line("got Connected");
    child.kill();
    let event = frames.recv_timeout(LONG).unwrap();
    assert_eq!(event, ClientEvent::Closed(Lost::Vanished));

    // Started again at the same port, it answers packets of old connections with a reset. The
    // keep-alive is what asks.
    let mut child = Killed::start("server 127.0.0.1:0");
    let addr = child.line("listening");
    let options = Options { probe: None, idle_timeout: LONG, ..control() };
    let (_client, frames) = ControlClient::connect(&addr, &worker, &options, LONG).unwrap();
    child.line("got Connected");
    child.kill();
    let mut child = Killed::start(&format!("server {addr}"));
    child.line("listening");
    let event = frames.recv_timeout(LONG).unwrap();
    assert_eq!(event, ClientEvent::Closed(Lost::Restarted));
}

#[test]
fn a_killed_peer_is_lost_after_its_last_message() {
    for probe in [None, Some(Duration::from_millis(50))] {
        let options = Options {
            probe,
            // Where the probe is to win, the idle timeout must not come first on a busy machine.
            idle_timeout: Duration::from_millis(if probe.is_some() { 20_000 } else { 600 }),
            keep_alive: Duration::from_millis(200),
            ..Options::bulk()
        };
        let (mesh, local) =
            PeerMesh::start("127.0.0.1:0", &identity(Role::Worker), &options).unwrap();
        let mut child = Killed::start(&format!("peer {local}"));
        let addr = child.line("listening").parse().unwrap();
        mesh.connect_all(0, &[local, addr], LONG).unwrap();
        let event = mesh.recv(LONG).unwrap();
        assert!(matches!(event, MeshEvent::Message { peer: 1, .. }), "{event:?}");
        child.kill();
        let event = mesh.recv(LONG).unwrap();
        let MeshEvent::Lost { peer: 1, lost } = event else { panic!("{event:?}") };
        match probe {
            None => assert!(matches!(lost, Lost::Silent { .. }), "{lost:?}"),
            Some(_) => assert_eq!(lost, Lost::Vanished),
        }
    }
}

#[test]
fn a_silent_connection_stays() {
    // Three idle timeouts of silence by the callers, with the probe at work all the time.
    let options = Options {
        probe: Some(Duration::from_millis(5)),
        idle_timeout: Duration::from_millis(800),
        keep_alive: Duration::from_millis(100),
        ..control()
    };
    let (server, events) = serve(&options);
    let (client, _frames) = ControlClient::connect(
        &server.local_addr().to_string(),
        &identity(Role::Worker),
        &options,
        LONG,
    )
    .unwrap();
    events.recv_timeout(LONG).unwrap();
    let silence = events.recv_timeout(Duration::from_millis(2400));
    assert!(silence.is_err(), "{silence:?}");
    client.send(vec![1]).unwrap();
    let event = events.recv_timeout(LONG).unwrap();
    assert!(matches!(event, ServerEvent::Frame { .. }), "{event:?}");
}
