//! The asynchronous parts: what a partner that breaks the rules can do, and what idle
//! connections cost.

mod common;

use std::time::Duration;

use common::{LONG, cluster, control};
use monarch_net::{Connection, Endpoint, FrameError, Lost, Options, ReadError, Role};

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG, future).await.expect("a hang") })
}

/// A controller's and a worker's end of one connection, with their endpoints.
async fn pair(options: &Options) -> ((Endpoint, Connection), (Endpoint, Connection)) {
    let cluster = cluster();
    let server = Endpoint::bind("127.0.0.1:0", &cluster.controller, options).await.unwrap();
    let client = Endpoint::bind("127.0.0.1:0", &cluster.worker, options).await.unwrap();
    let (near, far) =
        tokio::join!(client.connect(server.local_addr(), Role::Controller, LONG), async {
            server.accept().await.unwrap().handshake().await.unwrap()
        });
    ((server, far), (client, near.unwrap()))
}

#[test]
fn both_sides_know_who_the_other_is() {
    run(async {
        let ((server, far), (client, near)) = pair(&control()).await;
        assert_eq!(far.peer_role(), Role::Worker);
        assert_eq!(near.peer_role(), Role::Controller);
        assert_eq!(far.remote_addr(), client.local_addr());
        assert_eq!(near.remote_addr(), server.local_addr());
        assert_eq!(near.close_reason(), None);
        near.close("enough");
        assert_eq!(far.closed().await, Lost::ClosedByPeer { reason: "enough".into() });
        assert_eq!(near.close_reason(), Some(Lost::ClosedHere { reason: "enough".into() }));
    });
}

#[test]
fn a_reason_too_long_for_a_packet_is_cut() {
    run(async {
        let ((_s, far), (_c, near)) = pair(&control()).await;
        let long = "é".repeat(4000);
        near.close(&long);
        let lost = far.closed().await;
        let Lost::ClosedByPeer { reason } = lost else { panic!("{lost:?}") };
        assert!(long.starts_with(&reason) && reason.len() == 1000, "{}", reason.len());
    });
}

#[test]
fn a_stream_that_ends_within_a_frame_is_told_from_a_clean_end() {
    run(async {
        let ((_s, far), (_c, near)) = pair(&control()).await;
        let (mut writer, _reader) = near.open_frames().await.unwrap();
        writer.write_frame(vec![5; 10]).await.unwrap();
        let (_writer, mut reader) = far.accept_frames().await.unwrap();
        assert_eq!(reader.read_frame().await, Ok(Some(vec![5; 10])));
        writer.finish().await.unwrap();
        assert_eq!(reader.read_frame().await, Ok(None));

        // A frame beyond the windows, of which the writer is dropped half-way.
        let (mut writer, _reader) = near.open_frames().await.unwrap();
        writer.push(vec![6; 9 << 20]).unwrap();
        assert!(tokio::time::timeout(Duration::ZERO, writer.flush()).await.is_err());
        drop(writer);
        let (_writer, mut reader) = far.accept_frames().await.unwrap();
        let end = reader.read_frame().await;
        let Err(ReadError::Frame(FrameError::Truncated { got, wanted })) = end else {
            panic!("{end:?}")
        };
        assert_eq!(wanted, 4 + (9 << 20));
        assert!(got > 4 && got < wanted, "{got}");
    });
}

#[test]
fn a_read_may_be_dropped_without_losing_bytes() {
    run(async {
        let ((_s, far), (_c, near)) = pair(&control()).await;
        let (mut writer, _reader) = near.open_frames().await.unwrap();
        writer.write_frame(Vec::new()).await.unwrap();
        let (_writer, mut reader) = far.accept_frames().await.unwrap();
        assert_eq!(reader.read_frame().await, Ok(Some(Vec::new())));
        let writing = tokio::spawn(async move {
            for index in 0..200u8 {
                writer.write_frame(vec![index; 10_000]).await.unwrap();
                tokio::task::yield_now().await;
            }
            writer
        });
        for index in 0..200u8 {
            let frame = loop {
                // A limit of zero drops the read whenever it would wait.
                let read = tokio::time::timeout(Duration::ZERO, reader.read_frame());
                match read.await {
                    Ok(frame) => break frame,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            assert_eq!(frame, Ok(Some(vec![index; 10_000])));
        }
        drop(writing.await.unwrap());
    });
}

#[test]
fn a_write_may_be_dropped_without_losing_bytes() {
    run(async {
        let ((_s, far), (_c, near)) = pair(&control()).await;
        let (mut writer, _reader) = near.open_frames().await.unwrap();
        let reading = tokio::spawn(async move {
            let (_writer, mut reader) = far.accept_frames().await.unwrap();
            let mut frames = Vec::new();
            while let Some(frame) = reader.read_frame().await.unwrap() {
                frames.push(frame);
            }
            frames
        });
        // Far more than the windows hold, so that flushes are dropped in the middle.
        for index in 0..40u8 {
            writer.push(vec![index; 1_000_000]).unwrap();
            let _ = tokio::time::timeout(Duration::ZERO, writer.flush()).await;
        }
        writer.finish().await.unwrap();
        let frames = reading.await.unwrap();
        assert_eq!(frames.len(), 40);
        for (index, frame) in (0..).zip(frames) {
            assert!(frame == vec![index; 1_000_000], "frame {index}");
        }
    });
}

#[test]
fn a_lost_connection_ends_every_wait() {
    run(async {
        let ((_s, far), (_c, near)) = pair(&control()).await;
        let (mut writer, mut reader) = near.open_frames().await.unwrap();
        writer.write_frame(vec![1]).await.unwrap();
        let (_writer, _reader) = far.accept_frames().await.unwrap();
        let waits = tokio::spawn(async move {
            let lost = reader.read_frame().await.unwrap_err();
            let also = near.accept_bulk().await.unwrap_err();
            (lost, also, near.open_bulk().await.unwrap_err())
        });
        tokio::task::yield_now().await;
        far.close("gone");
        let lost = Lost::ClosedByPeer { reason: "gone".into() };
        let expected = (ReadError::Lost(lost.clone()), lost.clone(), lost);
        assert_eq!(waits.await.unwrap(), expected);
    });
}

#[test]
fn a_greeting_that_never_comes_or_is_wrong_is_refused() {
    use monarch_net::{AcceptError, ControlServer, ServerEvent};
    let cluster = cluster();
    let options = Options { handshake_timeout: Duration::from_millis(300), ..control() };
    let (server, events) =
        ControlServer::start("127.0.0.1:0", &cluster.controller, &options).unwrap();
    run(async {
        let client = Endpoint::bind("127.0.0.1:0", &cluster.worker, &control()).await.unwrap();
        let connect = || client.connect(server.local_addr(), Role::Controller, LONG);
        let silent = connect().await.unwrap();
        assert!(matches!(silent.closed().await, Lost::ClosedByPeer { .. }));
        let rude = connect().await.unwrap();
        let (mut writer, _reader) = rude.open_frames().await.unwrap();
        writer.write_frame(b"no greeting".to_vec()).await.unwrap();
        assert!(matches!(rude.closed().await, Lost::ClosedByPeer { .. }));
    });
    let mut errors = [(); 2].map(|()| match events.recv_timeout(LONG).unwrap() {
        ServerEvent::Refused { error } => error,
        other => panic!("{other:?}"),
    });
    errors.sort_by_key(|error| !matches!(error, AcceptError::TimedOut { .. }));
    assert!(matches!(errors[0], AcceptError::TimedOut { .. }), "{errors:?}");
    assert!(
        matches!(
            &errors[1],
            AcceptError::Failed { lost: Lost::Framing(FrameError::Unexpected { .. }), .. }
        ),
        "{errors:?}"
    );
}

#[test]
fn idle_connections_cost_little_memory() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    run(async {
        let cluster = cluster();
        let server = Endpoint::bind("127.0.0.1:0", &cluster.controller, &control()).await.unwrap();
        let client = Endpoint::bind("127.0.0.1:0", &cluster.worker, &control()).await.unwrap();
        let mut open = Vec::new();
        let mut at_start = 0;
        for count in 0..110 {
            if count == 10 {
                at_start = resident();
            }
            let (near, far) =
                tokio::join!(client.connect(server.local_addr(), Role::Controller, LONG), async {
                    server.accept().await.unwrap().handshake().await.unwrap()
                });
            open.push((near.unwrap(), far));
        }
        let each = resident().saturating_sub(at_start) / 100;
        println!("{} KiB for both ends of a connection", each >> 10);
        assert!(each < 256 << 10, "{} KiB for both ends of a connection", each >> 10);
        for (near, far) in &open {
            assert_eq!((near.close_reason(), far.close_reason()), (None, None));
        }
    });
}
