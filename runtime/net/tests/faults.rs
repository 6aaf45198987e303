//! Connections over a bad network: what they survive, how soon they end and what they say then.

mod common;
#[path = "../../../tests/e2e/support/faultproxy.rs"]
mod faultproxy;

use std::sync::mpsc::Receiver;
use std::time::Duration;

use common::{LONG, cluster, control, pattern};
use faultproxy::{FaultProxy, Faults, Way};
use monarch_net::{
    ClientEvent, ConnId, ConnectError, ControlClient, ControlServer, Lost, MeshEvent, Options,
    PeerMesh, ServerEvent,
};

const SEED: u64 = 0x5eed;

fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A controller and a worker with a proxy between them.
struct Link {
    server: ControlServer,
    events: Receiver<ServerEvent>,
    proxy: FaultProxy,
    client: ControlClient,
    frames: Receiver<ClientEvent>,
    id: ConnId,
}

fn link(options: &Options, faults: Faults) -> Link {
    let cluster = cluster();
    let (server, events) =
        ControlServer::start("127.0.0.1:0", &cluster.controller, options).unwrap();
    let proxy = FaultProxy::start(server.local_addr(), SEED);
    proxy.both(faults);
    let addr = proxy.addr().to_string();
    let (client, frames) = ControlClient::connect(&addr, &cluster.worker, options, LONG).unwrap();
    let event = events.recv_timeout(LONG).unwrap();
    let ServerEvent::Connected { id, .. } = event else { panic!("{event:?}") };
    Link { server, events, proxy, client, frames, id }
}

impl Link {
    /// Why the controller's end was lost.
    fn lost_there(&self) -> Lost {
        match self.events.recv_timeout(LONG).unwrap() {
            ServerEvent::Closed { lost, .. } => lost,
            other => panic!("{other:?}"),
        }
    }

    fn lost_here(&self) -> Lost {
        match self.frames.recv_timeout(LONG).unwrap() {
            ClientEvent::Closed(lost) => lost,
            other => panic!("{other:?}"),
        }
    }

    /// Frames of all sizes arrive, whole and in order, both ways.
    fn carries(&self, rounds: u64) {
        for round in 0..rounds {
            let length = [0, 1, 900, 20_000, 300_000][round as usize % 5];
            self.client.send(pattern(length, round)).unwrap();
            self.server.send(self.id, pattern(length, round + 100)).unwrap();
            let bytes = pattern(length, round);
            let event = self.events.recv_timeout(LONG).unwrap();
            assert!(event == ServerEvent::Frame { id: self.id, bytes }, "round {round}: {event:?}");
            let bytes = pattern(length, round + 100);
            let event = self.frames.recv_timeout(LONG).unwrap();
            assert!(event == ClientEvent::Frame(bytes), "round {round}: {event:?}");
        }
    }
}

/// Short waits: the tests of ends are about who says what, not about how long it takes.
fn brisk() -> Options {
    Options { idle_timeout: milliseconds(700), keep_alive: milliseconds(100), ..control() }
}

#[test]
fn bad_lines_carry_everything() {
    let lines = [
        Faults { loss: 300, ..Faults::default() },
        Faults { delay: milliseconds(60), jitter: milliseconds(30), ..Faults::default() },
        Faults { reorder: 300, duplicate: 300, ..Faults::default() },
        Faults { corrupt: 200, ..Faults::default() },
        Faults { bytes_per_second: Some(2_000_000), loss: 20, ..Faults::default() },
    ];
    for faults in lines {
        println!("{faults:?}, seed {SEED:#x}");
        link(&control(), faults).carries(5);
    }
}

#[test]
fn a_line_cut_for_good_is_silent_at_both_ends() {
    let link = link(&brisk(), Faults::default());
    link.carries(2);
    link.proxy.cut();
    let idle = milliseconds(700);
    assert_eq!(link.lost_there(), Lost::Silent { idle });
    assert_eq!(link.lost_here(), Lost::Silent { idle });
}

/// Whoever hears nothing says so, and the other side knows which way is broken.
#[test]
fn the_broken_direction_is_known_at_both_ends() {
    let idle = milliseconds(700);
    let hole = Faults { black_hole: true, ..Faults::default() };
    let (silent, unheard) = (Lost::Silent { idle }, Lost::Unheard { idle: Some(idle) });
    for (way, there, here) in [(Way::Forth, &silent, &unheard), (Way::Back, &unheard, &silent)] {
        let link = link(&brisk(), Faults::default());
        link.carries(2);
        link.proxy.set(way, hole);
        assert_eq!((&link.lost_there(), &link.lost_here()), (there, here), "{way:?}");
    }
}

#[test]
fn interruptions_below_the_limit_are_survived() {
    let options = Options { idle_timeout: LONG, ..control() };
    let link = link(&options, Faults::default());
    for _ in 0..3 {
        link.proxy.cut();
        link.client.send(vec![1; 10_000]).unwrap();
        // What is asked here is that it comes once the line is there again.
        assert!(link.events.recv_timeout(milliseconds(150)).is_err());
        link.proxy.heal();
        let event = link.events.recv_timeout(LONG).unwrap();
        assert_eq!(event, ServerEvent::Frame { id: link.id, bytes: vec![1; 10_000] });
    }
    link.carries(5);
}

#[test]
fn an_address_without_an_answer_and_one_with_half_of_it() {
    let cluster = cluster();
    let connect = |proxy: &FaultProxy, options: &Options| {
        let addr = proxy.addr().to_string();
        let limit = milliseconds(300);
        match ControlClient::connect(&addr, &cluster.worker, options, limit) {
            Ok(_) => panic!("nobody can be reached"),
            Err(error) => error,
        }
    };
    let options = Options { handshake_timeout: milliseconds(600), ..control() };
    // More patient than the client: which side gives up first shall not be left to chance.
    let patient = Options { handshake_timeout: LONG, ..control() };
    let (server, _events) =
        ControlServer::start("127.0.0.1:0", &cluster.controller, &patient).unwrap();
    let hole = Faults { black_hole: true, ..Faults::default() };
    for way in [Way::Forth, Way::Back] {
        let proxy = FaultProxy::start(server.local_addr(), SEED);
        proxy.set(way, hole);
        let error = connect(&proxy, &options);
        let after = milliseconds(300);
        let addr = proxy.addr();
        assert!(
            matches!(error, ConnectError::NoAnswer { addr: a, after: t, refused: false }
                if a == addr && t == after),
            "{error:?}"
        );
    }
    // Everything that comes back is damaged: somebody is there, and nothing comes of it.
    let proxy = FaultProxy::start(server.local_addr(), SEED);
    proxy.set(Way::Back, Faults { corrupt: 1000, ..Faults::default() });
    let error = connect(&proxy, &options);
    assert!(matches!(error, ConnectError::Unfinished { .. }), "{error:?}");
}

/// A worker that is slow to be reached is not given up once it has answered.
#[test]
fn whoever_has_answered_may_take_its_time() {
    let cluster = cluster();
    let (server, _events) =
        ControlServer::start("127.0.0.1:0", &cluster.controller, &control()).unwrap();
    let proxy = FaultProxy::start(server.local_addr(), SEED);
    proxy.both(Faults { delay: milliseconds(200), loss: 100, ..Faults::default() });
    let addr = proxy.addr().to_string();
    let limit = milliseconds(600);
    let options = Options { handshake_timeout: LONG, ..control() };
    ControlClient::connect(&addr, &cluster.worker, &options, limit).unwrap();
}

/// Two peers of a mesh, the second of which is reached through a proxy.
#[test]
fn bulk_arrives_over_a_bad_line_and_a_cut_is_told_to_both() {
    let cluster = cluster();
    let options = Options { idle_timeout: milliseconds(900), ..Options::bulk() };
    let options = Options { keep_alive: milliseconds(150), ..options };
    let start = || PeerMesh::start("127.0.0.1:0", &cluster.worker, &options).unwrap();
    let ((low, low_addr), (high, high_addr)) = (start(), start());
    let proxy = FaultProxy::start(low_addr, SEED);
    let addrs = [proxy.addr(), high_addr];
    std::thread::scope(|scope| {
        scope.spawn(|| low.connect_all(0, &addrs, LONG).unwrap());
        high.connect_all(1, &addrs, LONG).unwrap();
    });
    proxy.both(Faults { loss: 50, reorder: 50, duplicate: 50, ..Faults::default() });
    for (mesh, peer) in [(&low, 1), (&high, 0)] {
        mesh.send(peer, [7; 32], pattern(2 << 20, u64::from(peer))).unwrap();
    }
    for (mesh, from, seed) in [(&low, 1, 0), (&high, 0, 1)] {
        match mesh.recv(LONG).unwrap() {
            MeshEvent::Message { peer, payload, .. } if peer == from => {
                assert!(payload == pattern(2 << 20, seed)[..]);
            }
            other => panic!("{other:?}"),
        }
    }
    proxy.cut();
    for mesh in [&low, &high] {
        let event = mesh.recv(LONG).unwrap();
        assert!(matches!(event, MeshEvent::Lost { lost: Lost::Silent { .. }, .. }), "{event:?}");
    }
}
