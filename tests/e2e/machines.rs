//! Workers that come by themselves, as from other machines; who is not let in.

use crate::support::{LIMIT, Outcome, Place, Running, digits};
use monarch_net::{ClientEvent, ClusterKey, ControlClient, Identity, Options, Role};
use monarch_wire::{FromWorker, Hello, ToWorker, decode, encode};
use std::time::Duration;

/// A controller that waits for `count` workers; its address.
pub fn controller(place: &Place, count: &str, more: &[&str]) -> (Running, String) {
    let key = place.file("cluster.key");
    if !key.exists() {
        place.run(&["key", "cluster.key"]).ok();
    }
    let args = ["--join", count, "--key", "cluster.key"];
    let listen: &[&str] =
        if more.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    let mut running = place.begin(&[&args, listen, more].concat());
    let event = running.until_event("listening");
    let address = event["address"].as_str().expect("an address").to_string();
    (running, address)
}

pub fn join(place: &Place, address: &str, key: &str) -> Running {
    place.start(&["worker", "--join", address, "--key", key])
}

/// The fingerprint of two workers that were started by hand.
fn by_hand(place: &Place, more: &[&str]) -> (String, Outcome) {
    let (running, address) = controller(place, "2", more);
    let workers = [(); 2].map(|()| join(place, &address, "cluster.key"));
    let out = running.finish().ok();
    for worker in workers {
        worker.finish().ok();
    }
    (out.fingerprint(), out)
}

#[test]
fn two_workers_come_by_themselves() {
    let place = Place::with(&digits("1 epochs"));
    let alone = place.train(&["--workers", "2"]).ok();
    let (print, out) = by_hand(&place, &[]);
    assert_eq!(print, alone.fingerprint());
    assert_eq!(out.numbers(), alone.numbers());
    let (over_quic, out) = by_hand(&place, &["--transport", "quic"]);
    assert_eq!(over_quic, alone.fingerprint());
    assert_eq!(out.last("started")["transport"], "QUIC");
}

/// Overlap is the controller's affair: a worker that was given the program fits either way.
#[test]
fn a_worker_that_insists_on_the_program() {
    let place = Place::with(&digits("1 epochs"));
    let alone = place.train(&["--workers", "2", "--run-id", "alone"]).ok();
    let (running, address) = controller(&place, "1", &["--workers", "1", "--no-overlap"]);
    let args = ["worker", "job.mon", "--join", &address, "--key", "cluster.key"];
    let worker = place.start(&args);
    let out = running.finish().ok();
    worker.finish().ok();
    assert_eq!(out.fingerprint(), alone.fingerprint());
    let run = out.checkpoint().parent().expect("a run").display().to_string();
    let again = place.train(&["--workers", "1", "--resume", &run]).ok();
    assert!(!again.stderr.contains("has changed"), "{}", again.story());
}

#[test]
fn over_ipv6_and_beside_workers_of_its_own() {
    let place = Place::with(&digits("1 epochs"));
    let alone = place.train(&["--workers", "2"]).ok();
    if std::net::UdpSocket::bind("[::1]:0").is_ok() {
        let (print, _) = by_hand(&place, &["--listen", "[::1]:0", "--transport", "quic"]);
        assert_eq!(print, alone.fingerprint());
    } else {
        eprintln!("not tried: this machine has no IPv6");
    }
    let (running, address) = controller(&place, "1", &["--workers", "2"]);
    let third = join(&place, &address, "cluster.key");
    let out = running.finish().ok();
    third.finish().ok();
    assert_eq!(out.last("started")["workers"], 3);
    assert_eq!(out.fingerprint(), alone.fingerprint());
}

#[test]
fn a_key_is_needed_and_guarded() {
    let place = Place::with(&digits("1 epochs"));
    let out = place.train(&["--join", "1"]).expect_code(2);
    out.says(&["monarch key cluster.key"]);
    place.run(&["key", "cluster.key"]).ok();
    // A key that is there already is not overwritten.
    let before = std::fs::read(place.file("cluster.key")).expect("a key");
    place.run(&["key", "cluster.key"]).expect_code(1).says(&["cluster.key"]);
    assert_eq!(before, std::fs::read(place.file("cluster.key")).expect("a key"));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(place.file("cluster.key")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read the key: {mode:o}");
    place.write("bad.key", "not a key\n");
    let out = join(&place, "127.0.0.1:9", "bad.key").finish().expect_code(2);
    out.says(&["bad.key"]);
    let out = place.run(&["worker", "--join", "127.0.0.1:9"]).expect_code(2);
    out.says(&["--key"]);
}

/// Strangers are refused with both sides shown, and the run waits for the right one.
#[test]
fn another_key_job_or_version_is_turned_away() {
    let place = Place::with(&digits("1 epochs"));
    place.write("other.mon", digits("3 epochs"));
    let (mut running, address) = controller(&place, "1", &[]);

    place.run(&["key", "other.key"]).ok();
    let out = join(&place, &address, "other.key").finish().expect_code(4);
    out.says(&["key"]);
    running.until("warning", |e| e["event"] == "warning");

    let args = ["worker", "other.mon", "--join", &address, "--key", "cluster.key"];
    let out = place.run(&args).expect_code(1);
    out.says(&["was started for job", "the controller runs job"]);
    running.until("warning", |e| e["text"].as_str().is_some_and(|t| t.contains("for job")));

    let why = hello_as(&place, &address, "0.0.9");
    assert!(why.contains("version 0.0.9") && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
    running.until("warning", |e| e["text"].as_str().is_some_and(|t| t.contains("0.0.9")));

    // One that was given the very program is welcome.
    let args = ["worker", "job.mon", "--join", &address, "--key", "cluster.key"];
    let worker = place.start(&args);
    running.finish().ok();
    worker.finish().ok();
}

/// Says hello as a worker of another version would; the answer.
fn hello_as(place: &Place, address: &str, version: &str) -> String {
    let key = ClusterKey::from_file(place.file("cluster.key")).expect("a key");
    let identity = Identity::new(&key, Role::Worker);
    let limit = Duration::from_secs(10);
    let (client, events) =
        ControlClient::connect(address, &identity, &Options::default(), limit).expect("let in");
    let hello = Hello {
        version: version.into(),
        host: "elsewhere".into(),
        shm_domain: "elsewhere".into(),
        pid: 1,
        cores: 1,
        peer_address: "127.0.0.1:1".into(),
        job: None,
        slot: None,
        pulse: None,
        back: None,
    };
    client.send(encode(&FromWorker::Hello(hello)).expect("encoded")).expect("sent");
    loop {
        match events.recv_timeout(limit).expect("an answer") {
            ClientEvent::Frame(bytes) => {
                if let Ok(ToWorker::Refused { why }) = decode(&bytes) {
                    return why;
                }
            }
            ClientEvent::Closed(lost) => return lost.to_string(),
        }
    }
}

#[test]
fn a_port_in_use_and_a_name_that_leads_nowhere() {
    let place = Place::with(&digits("1 epochs"));
    // QUIC speaks UDP.
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let out = place.train(&["--workers", "1", "--listen", &address]).expect_code(4);
    out.says(&[&address]);
    let out = place.train(&["--workers", "1", "--listen", "no.such.host.invalid:1"]);
    out.expect_code(4).says(&["no.such.host.invalid"]);
    assert!(place.run_dirs().is_empty(), "{:?}", place.run_dirs());
    place.run(&["key", "cluster.key"]).ok();
    let out = join(&place, "no.such.host.invalid:1", "cluster.key").finish().expect_code(4);
    out.says(&["no.such.host.invalid"]);
    place.check_untouched(&["job.mon", "cluster.key"]);
}

/// Interrupted while it waits, the controller leaves at once, and so do workers that came.
#[test]
fn waiting_can_be_given_up() {
    let place = Place::with(&digits("1 epochs"));
    let (mut running, address) = controller(&place, "2", &[]);
    let worker = join(&place, &address, "cluster.key");
    running.until_event("joined");
    running.signal(libc::SIGINT);
    let out = running.finish().expect_code(130);
    assert!(out.took < LIMIT / 4, "{}", out.story());
    let out = worker.finish();
    assert!(out.code.is_some_and(|c| c != 0), "{}", out.story());
}
