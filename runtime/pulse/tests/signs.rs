//! Real processes that die, freeze and wake up, seen through their pages.

use monarch_pulse::{Life, Limits, Monitor, Options, Page, Phase, Pulse, Role, Sign, What};
use monarch_pulse::{enter, tick};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// No test waits as long.
const LIMIT: Duration = Duration::from_secs(60);

/// What the test binary is when `ROLE` says so: a worker that shows a page until its standard
/// input ends. Otherwise it tests nothing.
#[test]
fn worker() {
    let Ok(role) = std::env::var("PULSE_TEST_ROLE") else { return };
    let pulse = Pulse::start(Options::default()).expect("a pulse");
    pulse.step(41);
    let stuck = pulse.clone();
    let lane = std::thread::spawn(move || {
        let _stream = stuck.join(Role::Lane(1));
        enter(Phase::Compute);
        for step in 0..4 {
            stuck.step(41 + step);
            std::thread::sleep(Duration::from_millis(20));
            tick();
        }
        #[allow(clippy::while_immutable_condition)]
        while role == "stuck" {
            std::hint::spin_loop();
        }
        enter(Phase::Waiting);
        std::thread::park();
    });
    println!("page {}", pulse.fd());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop((pulse, lane));
    // The lane still holds the page: the end of the process is not in good order.
    std::process::exit(0);
}

struct Worker {
    child: Child,
    page: Page,
}

impl Worker {
    fn start(role: &str) -> Worker {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "worker", "--nocapture"]).env("PULSE_TEST_ROLE", role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let fd = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("page ")?.1.trim().parse().ok())
            .expect("it says where its page is");
        let page = Page::open(child.id(), fd).expect("its page");
        Worker { child, page }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes no pointers; the child is not reaped yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn monitor() -> (Monitor, Receiver<(u64, Sign)>) {
    let (say, signs) = channel();
    let monitor = Monitor::start(move |worker, sign| {
        let _ = say.send((worker, sign));
    });
    (monitor.expect("a monitor"), signs)
}

fn watch(monitor: &Monitor, number: u64, worker: &Worker) {
    let mut limits = Limits::near();
    limits.later_ns[Phase::Compute as usize] = 300_000_000;
    monitor.watch(number, worker.child.id(), worker.page.clone(), limits, true);
}

#[test]
fn the_end_of_a_process_is_seen_before_it_is_reaped() {
    for signal in [libc::SIGKILL, libc::SIGABRT, libc::SIGTERM] {
        let worker = Worker::start("quiet");
        assert_eq!(worker.page.life(), Life::Alive);
        let (monitor, signs) = monitor();
        watch(&monitor, 3, &worker);
        worker.signal(signal);
        assert_eq!(signs.recv_timeout(LIMIT), Ok((3, Sign::Died)));
    }
}

#[test]
fn exit_without_a_word_is_a_death() {
    let mut worker = Worker::start("quiet");
    let (monitor, signs) = monitor();
    watch(&monitor, 1, &worker);
    drop(worker.child.stdin.take());
    assert_eq!(signs.recv_timeout(LIMIT), Ok((1, Sign::Died)));
}

#[test]
fn a_frozen_process_is_told_from_a_healthy_one() {
    let (frozen, healthy) = (Worker::start("quiet"), Worker::start("quiet"));
    let (monitor, signs) = monitor();
    watch(&monitor, 1, &frozen);
    watch(&monitor, 2, &healthy);
    frozen.signal(libc::SIGSTOP);
    let (number, sign) = signs.recv_timeout(LIMIT).expect("a sign");
    let Sign::Hung(hang, evidence) = sign else { panic!("{sign:?}") };
    assert_eq!((number, hang.what), (1, What::Frozen));
    let evidence = evidence.expect("the kernel says it");
    assert!(evidence.contains("stopped by a signal"), "{evidence}");
    // It is told of once, also when it wakes up and dies later.
    frozen.signal(libc::SIGCONT);
    frozen.signal(libc::SIGKILL);
    healthy.signal(libc::SIGKILL);
    assert_eq!(signs.recv_timeout(LIMIT), Ok((2, Sign::Died)));
}

#[test]
fn a_process_that_answers_while_a_lane_spins() {
    let worker = Worker::start("stuck");
    let (monitor, signs) = monitor();
    watch(&monitor, 9, &worker);
    let (_, sign) = signs.recv_timeout(LIMIT).expect("a sign");
    let Sign::Hung(hang, evidence) = sign else { panic!("{sign:?}") };
    assert!(matches!(hang.what, What::Stuck { role: Role::Lane(1), .. }), "{hang:?}");
    assert_eq!((hang.phase, hang.step), (Phase::Compute, Some(44)));
    assert_eq!(evidence.as_deref(), Some("the thread is running"));
}

#[test]
fn what_is_forgotten_is_not_told() {
    let (first, second) = (Worker::start("quiet"), Worker::start("quiet"));
    let (monitor, signs) = monitor();
    watch(&monitor, 1, &first);
    watch(&monitor, 2, &second);
    monitor.forget(1);
    first.signal(libc::SIGKILL);
    second.signal(libc::SIGKILL);
    assert_eq!(signs.recv_timeout(LIMIT), Ok((2, Sign::Died)));
    drop(monitor);
    assert!(signs.try_recv().is_err());
}

#[test]
fn good_order_is_no_death() {
    let pulse = Pulse::start(Options::default()).expect("a pulse");
    let page = Page::open(std::process::id(), pulse.fd()).expect("its page");
    let beats = page.sample().beats;
    while page.sample().beats == beats {
        std::thread::yield_now();
    }
    let stream = pulse.join(Role::Main);
    enter(Phase::Data);
    tick();
    let seen = page.sample().streams;
    assert!(seen.len() == 1 && seen[0].phase == Phase::Data && seen[0].count >= 2, "{seen:?}");
    drop(stream);
    assert!(page.sample().streams.is_empty());
    drop(pulse);
    assert_eq!(page.life(), Life::Left);
    // On a thread that has joined nothing, a word is lost.
    enter(Phase::Compute);
    tick();
}

#[test]
fn what_is_no_page_is_not_opened() {
    use std::os::fd::AsRawFd;
    let file = templess();
    let fd = file.as_raw_fd() as u32;
    let error = Page::open(std::process::id(), fd).map(|_| ()).expect_err("no page");
    assert!(error.to_string().contains("is no page of a worker"), "{error}");
    assert!(Page::open(std::process::id(), 9_999).is_err());
}

/// Any open file.
fn templess() -> std::fs::File {
    std::fs::File::open("/dev/null").expect("/dev/null")
}
