//! Control connections over real sockets.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use common::{Cluster, LONG, cluster, control, has_ipv6, pattern};
use monarch_net::{
    AcceptError, BindError, ClientEvent, ConnId, ConnectError, ControlClient, ControlServer,
    FrameError, Lost, Options, ResolveError, Role, SendError, ServerEvent,
};

type Events = Receiver<ServerEvent>;

fn serve(cluster: &Cluster, options: &Options) -> (ControlServer, Events, String) {
    let (server, events) =
        ControlServer::start("127.0.0.1:0", &cluster.controller, options).unwrap();
    let addr = server.local_addr().to_string();
    (server, events, addr)
}

fn join(cluster: &Cluster, addr: &str) -> (ControlClient, Receiver<ClientEvent>) {
    ControlClient::connect(addr, &cluster.worker, &control(), LONG).unwrap()
}

fn connected(events: &Events) -> (ConnId, SocketAddr) {
    match events.recv_timeout(LONG).unwrap() {
        ServerEvent::Connected { id, addr } => (id, addr),
        other => panic!("{other:?}"),
    }
}

fn refused(events: &Events) -> AcceptError {
    match events.recv_timeout(LONG).unwrap() {
        ServerEvent::Refused { error } => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_go_both_ways_in_order() {
    let cluster = cluster();
    let (server, events, addr) = serve(&cluster, &control());
    let (client, frames) = join(&cluster, &addr);
    let (id, _) = connected(&events);
    // Lengths around the limits of copying, packets and windows; the last one is 9 MiB.
    let lengths = [0, 1, 64, 4095, 4096, 6500, 70_000, 9 << 20];
    for (seed, length) in (1..).zip(lengths) {
        client.send(pattern(length, seed)).unwrap();
        server.send(id, pattern(length, seed + 100)).unwrap();
    }
    for (seed, length) in (1..).zip(lengths) {
        let bytes = pattern(length, seed);
        assert!(events.recv_timeout(LONG).unwrap() == ServerEvent::Frame { id, bytes });
        let bytes = pattern(length, seed + 100);
        assert!(frames.recv_timeout(LONG).unwrap() == ClientEvent::Frame(bytes));
    }
}

#[test]
fn a_close_delivers_what_was_sent_and_then_its_reason() {
    let cluster = cluster();
    let (server, events, addr) = serve(&cluster, &control());
    for round in 0..20u8 {
        let (client, frames) = join(&cluster, &addr);
        let (id, _) = connected(&events);
        let reason = format!("round {round}: évidemment");
        let by_peer = Lost::ClosedByPeer { reason: reason.clone() };
        let here = Lost::ClosedHere { reason: reason.clone() };
        let bytes = pattern(200_000, u64::from(round));
        if round % 2 == 0 {
            server.send(id, bytes.clone()).unwrap();
            server.close(id, &reason);
            assert!(frames.recv_timeout(LONG).unwrap() == ClientEvent::Frame(bytes));
            assert_eq!(frames.recv_timeout(LONG).unwrap(), ClientEvent::Closed(by_peer.clone()));
            assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Closed { id, lost: here });
            assert_eq!(client.send(vec![1]), Err(SendError::Lost(by_peer)));
            assert_eq!(server.send(id, vec![1]), Err(SendError::Unknown));
        } else {
            client.send(bytes.clone()).unwrap();
            client.close(&reason);
            assert!(events.recv_timeout(LONG).unwrap() == ServerEvent::Frame { id, bytes });
            assert_eq!(
                events.recv_timeout(LONG).unwrap(),
                ServerEvent::Closed { id, lost: by_peer }
            );
            assert_eq!(frames.recv_timeout(LONG).unwrap(), ClientEvent::Closed(here));
        }
    }
}

#[test]
fn a_shutdown_tells_every_client_and_is_quick() {
    let cluster = cluster();
    let (server, events, addr) = serve(&cluster, &control());
    let clients: Vec<_> = (0..4).map(|_| join(&cluster, &addr)).collect();
    for _ in &clients {
        connected(&events);
    }
    let began = Instant::now();
    server.shutdown("the run is complete");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let reason = "the run is complete".to_string();
    for (_client, frames) in &clients {
        let closed = ClientEvent::Closed(Lost::ClosedByPeer { reason: reason.clone() });
        assert_eq!(frames.recv_timeout(LONG).unwrap(), closed);
    }
}

#[test]
fn who_comes_while_the_server_closes_is_told_so() {
    let cluster = cluster();
    let (server, events, addr) = serve(&cluster, &control());
    server.close_all("the run is over");
    let (_client, frames) = join(&cluster, &addr);
    connected(&events);
    let reason = "the run is over".to_string();
    assert_eq!(
        frames.recv_timeout(LONG).unwrap(),
        ClientEvent::Closed(Lost::ClosedByPeer { reason })
    );
}

#[test]
fn a_dropped_facade_closes() {
    let cluster = cluster();
    let (server, events, addr) = serve(&cluster, &control());
    let (client, _frames) = join(&cluster, &addr);
    connected(&events);
    drop(client);
    let event = events.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&event, ServerEvent::Closed { lost: Lost::ClosedByPeer { reason }, .. }
            if reason.contains("ended")),
        "{event:?}"
    );
    let (_client, frames) = join(&cluster, &addr);
    drop(server);
    let event = frames.recv_timeout(LONG).unwrap();
    assert!(matches!(event, ClientEvent::Closed(Lost::ClosedByPeer { .. })), "{event:?}");
}

#[test]
fn another_key_is_told_on_both_sides_at_once() {
    let (ours, theirs) = (cluster(), cluster());
    let (_server, events, addr) = serve(&ours, &control());
    let began = Instant::now();
    let error = ControlClient::connect(&addr, &theirs.worker, &control(), LONG).unwrap_err();
    let ConnectError::WrongKey { expected, shown, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*expected, theirs.worker.fingerprint(Role::Controller));
    assert_eq!(shown.as_ref(), Some(&ours.worker.fingerprint(Role::Controller)));
    let text = error.to_string();
    assert!(text.contains("holds another cluster key") && text.contains(expected), "{text}");
    let error = refused(&events);
    assert!(matches!(error, AcceptError::WrongKey { .. }), "{error:?}");
    assert!(error.to_string().contains("holds another cluster key"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // The server serves on.
    let (_client, _frames) = join(&ours, &addr);
    connected(&events);
}

#[test]
fn another_role_is_refused() {
    let cluster = cluster();
    let (_server, events, addr) = serve(&cluster, &control());
    let error = ControlClient::connect(&addr, &cluster.controller, &control(), LONG).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Refused { reason, .. } if reason.contains("workers")),
        "{error:?}"
    );
    let error = refused(&events);
    assert!(matches!(error, AcceptError::WrongRole { found: Role::Controller, .. }), "{error:?}");

    // A worker where the controller should be.
    let (server, _events) =
        ControlServer::start("127.0.0.1:0", &cluster.worker, &control()).unwrap();
    let addr = server.local_addr().to_string();
    let error = ControlClient::connect(&addr, &cluster.worker, &control(), LONG).unwrap_err();
    assert!(matches!(error, ConnectError::WrongRole { found: Role::Worker, .. }), "{error:?}");
}

#[test]
fn another_version_is_told_on_both_sides() {
    let cluster = cluster();
    let (_server, events, addr) = serve(&cluster, &control());
    let newer = Options { version: 7, ..control() };
    let error = ControlClient::connect(&addr, &cluster.worker, &newer, LONG).unwrap_err();
    assert!(
        matches!(error, ConnectError::OtherVersion { ours: 7, theirs: Some(1), .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("version 1") && text.contains("version 7"), "{text}");
    let error = refused(&events);
    assert!(
        matches!(error, AcceptError::OtherVersion { ours: 1, theirs: Some(7), .. }),
        "{error:?}"
    );
}

#[test]
fn garbage_does_not_disturb() {
    let cluster = cluster();
    let (server, events, addr) = serve(&cluster, &control());
    let (client, frames) = join(&cluster, &addr);
    let (id, _) = connected(&events);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..200u64 {
        let mut bytes = pattern(1 + (round as usize * 37) % 1400, round);
        if round % 3 == 0 {
            // The look of a first packet: long header, version 1.
            bytes[0] = 0xc3;
            bytes.splice(1..1, [0, 0, 0, 1, 8]);
        }
        stranger.send_to(&bytes, &addr).unwrap();
    }
    client.send(b"still here".to_vec()).unwrap();
    let bytes = b"still here".to_vec();
    assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Frame { id, bytes });
    server.send(id, b"so am I".to_vec()).unwrap();
    assert_eq!(frames.recv_timeout(LONG).unwrap(), ClientEvent::Frame(b"so am I".to_vec()));
}

#[test]
fn a_frame_over_the_limit_ends_the_connection_by_name() {
    let cluster = cluster();
    let (_server, events, addr) = serve(&cluster, &Options { max_frame: 1000, ..control() });
    let (client, frames) = join(&cluster, &addr);
    let (id, _) = connected(&events);
    client.send(vec![1; 1000]).unwrap();
    let bytes = vec![1; 1000];
    assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Frame { id, bytes });
    client.send(vec![1; 1001]).unwrap();
    let lost = Lost::Framing(FrameError::TooLong { length: 1001, limit: 1000 });
    assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Closed { id, lost });
    let event = frames.recv_timeout(LONG).unwrap();
    let ClientEvent::Closed(Lost::ClosedByPeer { reason }) = event else { panic!("{event:?}") };
    assert!(reason.contains("1001 bytes, the limit is 1000"), "{reason}");
}

#[test]
fn a_full_queue_is_an_error_and_not_a_wait() {
    let cluster = cluster();
    let options = Options { max_queued: 100_000, ..control() };
    let (server, events, addr) = serve(&cluster, &options);
    // The client's sink blocks its network thread, so that it reads nothing.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let client =
        ControlClient::connect_with(&addr, &cluster.worker, &control(), LONG, move |event| {
            if matches!(event, ClientEvent::Frame(_)) {
                let _ = held.recv();
            }
        })
        .unwrap();
    let (id, _) = connected(&events);
    let mut sent = 0;
    let error = loop {
        match server.send(id, vec![0; 50_000]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10_000, "nothing holds the sender back");
    };
    assert!(matches!(error, SendError::Full { limit: 100_000, .. }), "{error:?}");
    drop(hold);
    drop(client);
}

#[test]
fn nobody_there_is_told_apart_from_no_answer() {
    let cluster = cluster();
    let limit = Duration::from_millis(300);
    // A port that was free a moment ago.
    let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = ControlClient::connect(&addr, &cluster.worker, &control(), limit).unwrap_err();
    assert!(matches!(error, ConnectError::NoAnswer { refused: true, .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("nothing listens on {addr}")), "{error}");
    // A socket that never answers.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let error = ControlClient::connect(&addr, &cluster.worker, &control(), limit).unwrap_err();
    assert!(matches!(error, ConnectError::NoAnswer { refused: false, .. }), "{error:?}");
}

#[test]
fn a_client_waits_for_a_server_that_starts_later() {
    let cluster = cluster();
    let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let worker = cluster.worker.clone();
    let client = std::thread::spawn(move || {
        ControlClient::connect(&addr.to_string(), &worker, &control(), LONG).map(|_| ())
    });
    std::thread::sleep(Duration::from_millis(50));
    let (_server, events) =
        ControlServer::start(&addr.to_string(), &cluster.controller, &control()).unwrap();
    connected(&events);
    client.join().unwrap().unwrap();
}

#[test]
fn addresses_that_do_not_work_are_named() {
    let cluster = cluster();
    let (_server, _events, addr) = serve(&cluster, &control());
    let start = |addr: &str| {
        ControlServer::start(addr, &cluster.controller, &control()).map(|_| ()).unwrap_err()
    };
    let error = start(&addr);
    assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains(&addr), "{error}");
    let error = start("no-such-host.invalid:1");
    assert!(matches!(error, BindError::Resolve(ResolveError::Unknown { .. })), "{error:?}");
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    assert!(matches!(start("203.0.113.7:0"), BindError::NotHere { .. }));
    for bad in ["localhost", "", ":1", "localhost:70000", "::1", "a:b:1"] {
        let error = start(bad);
        assert!(matches!(error, BindError::Resolve(ResolveError::NoPort { .. })), "{error:?}");
    }
    let bad = Options { keep_alive: LONG, ..control() };
    let error = ControlServer::start("127.0.0.1:0", &cluster.controller, &bad).unwrap_err();
    assert!(matches!(error, BindError::Setting(_)), "{error:?}");
    let error = ControlClient::connect("nowhere.invalid:9", &cluster.worker, &control(), LONG);
    assert!(matches!(error, Err(ConnectError::Resolve(_))));
}

#[test]
fn names_and_both_families_work() {
    let cluster = cluster();
    let mut listen = vec!["localhost:0", "0.0.0.0:0"];
    if has_ipv6() {
        listen.extend(["[::1]:0", "[::]:0"]);
    }
    for listen in listen {
        let (server, events) =
            ControlServer::start(listen, &cluster.controller, &control()).unwrap();
        let port = server.local_addr().port();
        let host = match listen {
            "0.0.0.0:0" => "127.0.0.1",
            "[::1]:0" => "[::1]",
            // A socket for both families is reached by either.
            _ => "localhost",
        };
        let (client, _frames) = join(&cluster, &format!("{host}:{port}"));
        let (id, _) = connected(&events);
        client.send(listen.into()).unwrap();
        let bytes = listen.into();
        assert_eq!(events.recv_timeout(LONG).unwrap(), ServerEvent::Frame { id, bytes });
    }
}
