//! Meshes over real sockets.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use common::{Cluster, LONG, cluster, has_ipv6, pattern};
use monarch_net::{
    FrameError, Header, Lost, MeshError, MeshEvent, Options, PeerMesh, RecvError, SendError,
};

fn header(from: u32, index: u32) -> Header {
    let mut header = [7; 32];
    header[..4].copy_from_slice(&from.to_le_bytes());
    header[4..8].copy_from_slice(&index.to_le_bytes());
    header
}

fn start(cluster: &Cluster, addr: &str, options: &Options) -> PeerMesh {
    PeerMesh::start(addr, &cluster.worker, options).unwrap().0
}

/// Forms a mesh of as many ranks as there are addresses to listen on.
fn form(cluster: &Cluster, listen: &[&str], options: &Options) -> Vec<PeerMesh> {
    let meshes: Vec<_> = listen.iter().map(|addr| start(cluster, addr, options)).collect();
    let addrs: Vec<_> = meshes.iter().map(PeerMesh::local_addr).collect();
    connect(&meshes, &addrs).into_iter().for_each(|formed| formed.unwrap());
    meshes
}

fn connect(meshes: &[PeerMesh], addrs: &[SocketAddr]) -> Vec<Result<(), MeshError>> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..)
            .zip(meshes)
            .map(|(rank, mesh)| scope.spawn(move || mesh.connect_all(rank, addrs, LONG)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn lost(mesh: &PeerMesh) -> (u32, Lost) {
    match mesh.recv(LONG).unwrap() {
        MeshEvent::Lost { peer, lost } => (peer, lost),
        other => panic!("{other:?}"),
    }
}

/// Every rank sends `count` payloads of `length` bytes to every other and checks what it gets.
fn exchange(meshes: &[PeerMesh], count: u32, length: usize) {
    let world = u32::try_from(meshes.len()).unwrap();
    std::thread::scope(|scope| {
        for (rank, mesh) in (0..).zip(meshes) {
            scope.spawn(move || {
                let seed = |from: u32, index: u32| u64::from(from * 1000 + index);
                for index in 0..count {
                    let payload = Bytes::from(pattern(length, seed(rank, index)));
                    for peer in (0..world).filter(|peer| *peer != rank) {
                        mesh.send(peer, header(rank, index), payload.clone()).unwrap();
                    }
                }
                let mut next = vec![0; meshes.len()];
                for _ in 0..count * (world - 1) {
                    let event = mesh.recv(LONG).unwrap();
                    let MeshEvent::Message { peer, header: found, payload } = event else {
                        panic!("{event:?}")
                    };
                    let index = &mut next[peer as usize];
                    assert_eq!(found, header(peer, *index), "in order");
                    assert!(payload == pattern(length, seed(peer, *index))[..]);
                    *index += 1;
                }
            });
        }
    });
}

#[test]
fn three_peers_exchange_8_mib_each() {
    let meshes = form(&cluster(), &["127.0.0.1:0"; 3], &Options::bulk());
    exchange(&meshes, 2, 8 << 20);
    exchange(&meshes, 50, 0);
    exchange(&meshes, 50, 33);
}

#[test]
fn a_mesh_over_ipv6_and_of_one() {
    if has_ipv6() {
        exchange(&form(&cluster(), &["[::1]:0"; 2], &Options::bulk()), 1, 100_000);
    }
    let alone = form(&cluster(), &["127.0.0.1:0"], &Options::bulk());
    let after = Duration::from_millis(1);
    assert_eq!(alone[0].recv(after).unwrap_err(), RecvError::TimedOut { after });
    assert_eq!(alone[0].send(0, [0; 32], vec![1]), Err(SendError::Unknown));
}

#[test]
fn slow_takers_hold_the_sender_back_and_lose_nothing() {
    // Both limits are far below what is sent, and one payload is above both.
    let options = Options {
        max_queued: 1 << 20,
        max_received: 1 << 20,
        // Closing waits so long for a peer that takes nothing.
        flush_timeout: Duration::from_millis(200),
        ..Options::bulk()
    };
    let meshes = form(&cluster(), &["127.0.0.1:0"; 2], &options);
    let lengths = [300_000, 3 << 20, 900_000, 1, 700_000];
    let total = 150u32;
    let length = |index: u32| lengths[index as usize % lengths.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0..total {
                let payload = pattern(length(index), u64::from(index));
                meshes[0].send_within(1, header(0, index), payload, LONG).unwrap();
            }
        });
        for index in 0..total {
            let event = meshes[1].recv(LONG).unwrap();
            let MeshEvent::Message { header: found, payload, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(found, header(0, index));
            assert!(payload == pattern(length(index), u64::from(index))[..]);
        }
    });
    // Nobody takes: what is not taken must end as an error, not as memory.
    let mut sent = 0usize;
    let error = loop {
        match meshes[0].send(1, [0; 32], Bytes::from_static(&[0; 100_000])) {
            Ok(()) => sent += 100_000,
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    assert!(matches!(error, SendError::Full { .. }), "{error:?}");
    // Two queues and what is on the way: the windows of a connection.
    assert!(sent < (2 << 20) + (160 << 20), "{sent} bytes were taken");
}

#[test]
fn a_close_delivers_everything_and_then_its_reason() {
    let meshes = form(&cluster(), &["127.0.0.1:0"; 3], &Options::bulk());
    let [zero, one, two] = meshes.try_into().unwrap();
    one.send(0, header(1, 0), pattern(5 << 20, 1)).unwrap();
    one.send(2, header(1, 0), pattern(5 << 20, 1)).unwrap();
    one.close("rank 1 is done");
    let reason = "rank 1 is done".to_string();
    for mesh in [&zero, &two] {
        let event = mesh.recv(LONG).unwrap();
        let MeshEvent::Message { peer: 1, payload, .. } = event else { panic!("{event:?}") };
        assert!(payload == pattern(5 << 20, 1)[..]);
        assert_eq!(lost(mesh), (1, Lost::ClosedByPeer { reason: reason.clone() }));
        let gone = SendError::Lost(Lost::ClosedByPeer { reason: reason.clone() });
        assert_eq!(mesh.send(1, [0; 32], vec![]), Err(gone));
    }
    // The others are not concerned.
    zero.send(2, header(0, 9), vec![9]).unwrap();
    let event = two.recv(LONG).unwrap();
    assert!(matches!(event, MeshEvent::Message { peer: 0, .. }), "{event:?}");
    drop(zero);
    let (peer, why) = lost(&two);
    assert!(peer == 0 && matches!(why, Lost::ClosedByPeer { .. }), "{why:?}");
}

#[test]
fn a_payload_over_the_limit_ends_the_connection_by_name() {
    let cluster = cluster();
    let narrow = Options { max_payload: 1000, ..Options::bulk() };
    let meshes =
        [start(&cluster, "127.0.0.1:0", &narrow), start(&cluster, "127.0.0.1:0", &Options::bulk())];
    let addrs = [meshes[0].local_addr(), meshes[1].local_addr()];
    connect(&meshes, &addrs).into_iter().for_each(|formed| formed.unwrap());
    meshes[1].send(0, [0; 32], vec![0; 1001]).unwrap();
    let error = FrameError::TooLong { length: 1001, limit: 1000 };
    assert_eq!(lost(&meshes[0]), (1, Lost::Framing(error)));
    assert!(matches!(lost(&meshes[1]), (0, Lost::ClosedByPeer { .. })));
}

#[test]
fn mixed_up_lists_of_addresses_are_errors() {
    let cluster = cluster();
    let pair = || [(); 2].map(|()| start(&cluster, "127.0.0.1:0", &Options::bulk()));
    let limit = Duration::from_millis(400);

    let meshes = pair();
    let addrs = meshes.each_ref().map(PeerMesh::local_addr);
    let error = meshes[0].connect_all(2, &addrs, limit).unwrap_err();
    assert!(matches!(error, MeshError::BadRank { rank: 2, world: 2 }), "{error:?}");

    // Rank 1 never comes.
    let error = meshes[0].connect_all(0, &addrs, limit).unwrap_err();
    assert!(matches!(&error, MeshError::Missing { ranks, .. } if ranks == &[1]), "{error:?}");
    let error = meshes[0].connect_all(0, &addrs, limit).unwrap_err();
    assert!(matches!(error, MeshError::Formed), "{error:?}");

    // Both believe to be rank 1: each connects to the other and is told at once.
    let meshes = pair();
    let addrs = meshes.each_ref().map(PeerMesh::local_addr);
    let swapped = [addrs[1], addrs[0]];
    let results = std::thread::scope(|scope| {
        let one = scope.spawn(|| meshes[0].connect_all(1, &swapped, limit));
        let two = scope.spawn(|| meshes[1].connect_all(1, &addrs, limit));
        [one.join().unwrap(), two.join().unwrap()]
    });
    for result in results {
        assert!(result.is_err(), "{result:?}");
    }

    // One counts three workers, the other two.
    let meshes = pair();
    let [a, b] = meshes.each_ref().map(PeerMesh::local_addr);
    let results = std::thread::scope(|scope| {
        let one = scope.spawn(|| meshes[0].connect_all(0, &[a, b], LONG));
        let two = scope.spawn(|| meshes[1].connect_all(1, &[a, b, b], LONG));
        [one.join().unwrap(), two.join().unwrap()]
    });
    assert!(
        matches!(results[0], Err(MeshError::WrongWorld { rank: 1, ours: 2, theirs: 3 })),
        "{results:?}"
    );
    assert!(results[1].is_err(), "{results:?}");
}

#[test]
fn a_stranger_is_no_peer() {
    let (ours, theirs) = (cluster(), cluster());
    let mesh = start(&ours, "127.0.0.1:0", &Options::bulk());
    let stranger = start(&theirs, "127.0.0.1:0", &Options::bulk());
    let addrs = [mesh.local_addr(), stranger.local_addr()];
    let error = stranger.connect_all(1, &addrs, LONG).unwrap_err();
    assert!(error.to_string().contains("holds another cluster key"), "{error}");
    let error = mesh.connect_all(0, &addrs, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(&error, MeshError::Missing { ranks, .. } if ranks == &[1]), "{error:?}");
}

/// Members change before all have connected: the next mesh listens at the same port.
#[test]
fn a_mesh_that_is_given_up_frees_its_port() {
    let cluster = cluster();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let start = |addr: &str| PeerMesh::start(addr, &cluster.worker, &Options::bulk()).unwrap();
    let (mut mesh, own) = start("127.0.0.1:0");
    // A lower rank that does not answer, a higher one that does not come, and too early a word.
    let addrs = [silent.local_addr().unwrap(), own];
    for (rank, early) in [(1, false), (0, false), (1, true)] {
        std::thread::scope(|scope| {
            if early {
                mesh.give_up();
            }
            let forming = scope.spawn(|| mesh.connect_all(rank, &addrs, LONG));
            mesh.give_up();
            let error = forming.join().unwrap().unwrap_err();
            assert!(matches!(error, MeshError::GivenUp), "{error:?}");
        });
        drop(mesh);
        mesh = start(&own.to_string()).0;
    }
}
