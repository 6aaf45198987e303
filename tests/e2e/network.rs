//! Lines between real processes that are slow, lossy, cut, broken in one direction or flapping:
//! the same weights at the end, and whoever is lost is named with what was seen.

use crate::machines::{controller, join};
use crate::support::{FaultProxy, Faults, Outcome, Place, Running, Way, digits, process, swap};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const SEED: u64 = 0x5eed;

fn program(until: &str) -> String {
    let text = swap(&digits(until), "above = 98%", "above = 100%");
    swap(&text, "  batch = 64", "  batch = 64\n  checkpoint { every = 90 steps }")
}

/// The run that nothing disturbs.
fn quiet(until: &str) -> Outcome {
    Place::with(&program(until)).train(&["--workers", "2"]).ok()
}

fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn black_hole() -> Faults {
    Faults { black_hole: true, ..Faults::default() }
}

/// A controller with `--workers`, and a proxy before it.
fn behind_proxy(place: &Place, workers: &str, guests: &str) -> (Running, FaultProxy) {
    let (running, address) = controller(place, guests, &["--workers", workers]);
    let target: SocketAddr = address.parse().expect("an address");
    (running, FaultProxy::start(target, SEED))
}

fn join_by(place: &Place, proxy: &FaultProxy) -> Running {
    join(place, &proxy.addr().to_string(), "cluster.key")
}

#[track_caller]
fn same(out: &Outcome, quiet: &Outcome, lost: usize) {
    assert_eq!(out.fingerprint(), quiet.fingerprint(), "{}", out.story());
    assert_eq!(out.numbers(), quiet.numbers(), "{}", out.story());
    assert_eq!(out.of("lost").count(), lost, "{}\n{}", out.story(), out.warnings());
}

/// What was said of the one that was lost.
#[track_caller]
fn why(out: &Outcome) -> String {
    let lost = out.last("lost");
    assert!(lost["rank"].is_u64() && lost["host"].as_str().is_some_and(|h| !h.is_empty()));
    lost["why"].as_str().unwrap_or_default().to_string()
}

/// A guest whose line is cut is missed after two seconds, named with what was seen of which
/// direction, and ends by itself.
#[test]
fn a_line_that_is_cut_costs_one_worker_and_says_which_way_it_broke() {
    let quiet = quiet("100 epochs");
    let cases = [
        (None, "nothing heard from the other side for 2s"),
        (Some(Way::Forth), "nothing heard from the other side for 2s"),
        (Some(Way::Back), "the other side has heard nothing from here for 2s"),
    ];
    for (way, words) in cases {
        let mut place = Place::with(&program("100 epochs"));
        place.killed = true;
        let (mut running, proxy) = behind_proxy(&place, "1", "1");
        let guest = join_by(&place, &proxy);
        running.until_step(60);
        match way {
            None => proxy.cut(),
            Some(way) => proxy.set(way, black_hole()),
        }
        running.until_event("lost");
        let out = guest.finish();
        assert!(out.code.is_some_and(|code| code != 0), "{}", out.story());
        let out = running.finish().ok();
        same(&out, &quiet, 1);
        assert!(why(&out).contains(words), "{way:?}: {}", why(&out));
    }
}

#[test]
fn a_bad_line_changes_nothing() {
    let quiet = quiet("4 epochs");
    for faults in [
        Faults { loss: 200, ..Faults::default() },
        Faults { delay: milliseconds(20), jitter: milliseconds(20), ..Faults::default() },
        Faults { corrupt: 100, duplicate: 100, reorder: 100, ..Faults::default() },
    ] {
        let place = Place::with(&program("4 epochs"));
        let (running, proxy) = behind_proxy(&place, "1", "1");
        proxy.both(faults);
        let guest = join_by(&place, &proxy);
        let out = running.finish().ok();
        same(&out, &quiet, 0);
        assert_eq!(out.of("regrouped").count(), 0, "{faults:?}: {}", out.story());
        guest.finish().ok();
    }
}

#[test]
fn a_line_that_flaps_below_the_limit_loses_nobody() {
    let quiet = quiet("100 epochs");
    let place = Place::with(&program("100 epochs"));
    let (mut running, proxy) = behind_proxy(&place, "1", "1");
    let guest = join_by(&place, &proxy);
    for at in [20, 60, 100] {
        running.until_step(at);
        proxy.cut();
        // This is how long it is away, not a wait for anything.
        std::thread::sleep(milliseconds(400));
        proxy.heal();
    }
    let out = running.finish().ok();
    same(&out, &quiet, 0);
    assert_eq!(out.of("regrouped").count(), 0, "{}", out.story());
    guest.finish().ok();
}

/// The controller's side goes on; the other one stops by itself, and commits nothing.
#[test]
fn of_two_halves_the_one_with_the_controller_goes_on() {
    let quiet = quiet("100 epochs");
    let mut place = Place::with(&program("100 epochs"));
    place.killed = true;
    let (mut running, proxy) = behind_proxy(&place, "2", "2");
    let guests = [(); 2].map(|()| join_by(&place, &proxy));
    running.until_step(60);
    proxy.cut();
    for guest in guests {
        let out = guest.finish();
        assert!(out.code.is_some_and(|code| code != 0), "{}", out.story());
    }
    let out = running.finish().ok();
    same(&out, &quiet, 2);
    // Every checkpoint is one that the controller has told of.
    let told = |out: &Outcome| -> Vec<String> {
        out.of("checkpoint").map(|e| e["step"].to_string()).collect()
    };
    let mut made: Vec<String> = std::fs::read_dir(place.run_dir())
        .expect("a run")
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().to_string_lossy().into_owned();
            name.strip_prefix("step-").and_then(|n| n.parse::<u64>().ok()).map(|n| n.to_string())
        })
        .collect();
    made.sort();
    let told = told(&out);
    assert!(made.iter().all(|step| told.contains(step)), "{made:?} {told:?}");
    // One that comes back later is a newcomer, or is told that it is not needed: never both sides.
    assert!(process::marked(place.mark()).is_empty());
}

/// Two guests that reach the controller and reach each other through a proxy.
fn two_guests(place: &Place) -> (Running, [Running; 2], FaultProxy) {
    let more = ["--workers", "1", "--transport", "quic"];
    let (mut running, address) = controller(place, "2", &more);
    // Its port must be known before it listens: it is free until a moment before.
    let free = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let listen = free.local_addr().expect("an address");
    let proxy = FaultProxy::start(listen, SEED);
    drop(free);
    let (listen, told) = (listen.to_string(), proxy.addr().to_string());
    let common = ["worker", "--join", &address, "--key", "cluster.key"];
    let first = place.start(&[&common[..], &["--listen", &listen, "--advertise", &told]].concat());
    running.until("first guest", |e| e["event"] == "joined" && e["joined"] == 2);
    let second = join(place, &address, "cluster.key");
    (running, [first, second], proxy)
}

/// A link between two workers breaks while both reach the controller: it may be whole again.
#[test]
fn a_broken_link_that_heals_costs_nobody() {
    let quiet = quiet("100 epochs");
    let place = Place::with(&program("100 epochs"));
    let (mut running, guests, proxy) = two_guests(&place);
    running.until_step(60);
    proxy.cut();
    running.until("word of the link", |e| {
        e["text"].as_str().is_some_and(|t| t.contains("does not reach worker"))
    });
    proxy.heal();
    let out = running.finish().ok();
    same(&out, &quiet, 0);
    assert!(out.of("regrouped").count() >= 1, "{}", out.story());
    for guest in guests {
        guest.finish().ok();
    }
}

/// Whoever cannot be reached is told of with the true cause, and soon.
#[test]
fn addresses_that_lead_nowhere_say_why() {
    let place = Place::with(&digits("1 epochs"));
    place.run(&["key", "cluster.key"]).ok();
    let closed = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = closed.local_addr().expect("an address").to_string();
    // Something has the port, and says nothing.
    let out = join(&place, &address, "cluster.key").finish().expect_code(4);
    out.says(&["no answer from", &address, "1.5s"]);
    drop(closed);
    let out = join(&place, &address, "cluster.key").finish().expect_code(4);
    out.says(&["nothing listens on", &address]);
    let args = ["worker", "--join", &address, "--key", "cluster.key", "--wait", "100ms"];
    place.run(&args).expect_code(4).says(&["nothing listens on", "100ms"]);
    let args = ["worker", "--join", &address, "--key", "cluster.key", "--wait", "soon"];
    place.run(&args).expect_code(2).says(&["30s"]);
}

/// With `--wait` the worker may come first.
#[test]
fn a_worker_that_waits_may_come_before_its_controller() {
    let place = Place::with(&digits("1 epochs"));
    place.run(&["key", "cluster.key"]).ok();
    let free = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let early =
        place.start(&["worker", "--join", &address, "--key", "cluster.key", "--wait", "60s"]);
    let (running, _) = controller(&place, "1", &["--listen", &address]);
    running.finish().ok();
    early.finish().ok();
}
