//! The byte format is a promise: golden bytes, round trips, and decoders that survive anything.
use monarch_graph::Plan;
use monarch_wire::*;
use proptest::prelude::*;

fn hello() -> FromWorker {
    FromWorker::Hello(Hello {
        version: "0.1.0".into(),
        host: "a".into(),
        shm_domain: String::new(),
        pid: 7,
        cores: 2,
        peer_address: "127.0.0.1:1".into(),
        job: None,
        slot: Some(3),
        pulse: Some(5),
        back: Some(Back { incarnation: 1, run: Some("r".into()), generation: 2 }),
    })
}

#[test]
fn golden_bytes() {
    let bytes = encode(&ToWorker::Ping(0x0102_0304)).unwrap();
    // protocol 1, variant 3, u64; all little-endian and fixed-width.
    assert_eq!(bytes, [1, 0, 0, 0, 3, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
}

#[test]
fn signs_of_life_have_golden_bytes_too() {
    let stream = PulseStream { role: 1, phase: 3, count: 9, thread: 77 };
    let pulse = Pulse { beats: 2, step: Some(4), streams: vec![stream] };
    let bytes = encode(&FromWorker::Pulse(pulse)).unwrap();
    let mut golden = vec![1, 0, 0, 0, 10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    golden.extend([1, 4, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3]);
    golden.extend([9, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0]);
    assert_eq!(bytes, golden);
}

#[test]
fn round_trip() {
    let bytes = encode(&hello()).unwrap();
    assert_eq!(decode::<FromWorker>(&bytes).unwrap(), hello());
}

#[test]
fn another_version_is_named() {
    let mut bytes = encode(&hello()).unwrap();
    bytes[0] = 9;
    assert_eq!(decode::<FromWorker>(&bytes), Err(WireError::Version { theirs: 9 }));
}

#[test]
fn left_over_bytes_are_an_error() {
    let mut bytes = encode(&hello()).unwrap();
    bytes.push(0);
    assert!(decode::<FromWorker>(&bytes).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(body);
        let _ = decode::<FromWorker>(&bytes);
        let _ = decode::<ToWorker>(&bytes);
        let _ = decode::<Plan>(&bytes);
    }

    #[test]
    fn a_flipped_byte_is_survived(at in 4usize..80, to in any::<u8>()) {
        let mut bytes = encode(&hello()).unwrap();
        if let Some(b) = bytes.get_mut(at) { *b = to; }
        let _ = decode::<FromWorker>(&bytes);
    }
}
