//! What the transport costs: `cargo bench -p monarch-net`. Both ends run in this process, so on a
//! machine with few cores they share them.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use monarch_net::{
    ClusterKey, ControlClient, ControlServer, Identity, MeshEvent, Options, PeerMesh, Role,
    ServerEvent,
};

const LONG: Duration = Duration::from_secs(60);

fn main() {
    let key = ClusterKey::generate().expect("randomness");
    let controller = Identity::new(&key, Role::Controller);
    let worker = Identity::new(&key, Role::Worker);
    idle(&controller, &worker);
    start_up(&key);
    round_trips(&controller, &worker);
    bulk(&worker);
}

/// Sorted samples to p50 and p99.
fn quantiles(mut samples: Vec<Duration>) -> (Duration, Duration) {
    samples.sort();
    (samples[samples.len() / 2], samples[samples.len() * 99 / 100])
}

fn report(what: &str, samples: Vec<Duration>) {
    let count = samples.len();
    let (p50, p99) = quantiles(samples);
    println!("{what:44} p50 {p50:>9.1?}   p99 {p99:>9.1?}   ({count} samples)");
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let since = Instant::now();
    let result = what();
    (result, since.elapsed())
}

fn idle(controller: &Identity, worker: &Identity) {
    let before = resident();
    let options = Options::default();
    let (server, _events) =
        ControlServer::start("127.0.0.1:0", controller, &options).expect("bind");
    let with_server = resident();
    let addr = server.local_addr().to_string();
    let client = ControlClient::connect(&addr, worker, &options, LONG).expect("connect");
    let with_client = resident();
    let mesh = PeerMesh::start("127.0.0.1:0", worker, &Options::bulk()).expect("bind");
    println!(
        "resident memory: {} KiB before, server {} KiB, client {} KiB, mesh {} KiB",
        before >> 10,
        (with_server - before) >> 10,
        (with_client - with_server) >> 10,
        (resident() - with_client) >> 10
    );
    drop((mesh, client));
}

fn start_up(key: &ClusterKey) {
    let mut samples = [const { Vec::new() }; 4];
    for _ in 0..200 {
        let (controller, identity) = timed(|| Identity::new(key, Role::Controller));
        let worker = Identity::new(key, Role::Worker);
        let options = Options::default();
        let ((server, _events), bind) =
            timed(|| ControlServer::start("127.0.0.1:0", &controller, &options).expect("bind"));
        let addr = server.local_addr().to_string();
        let (client, connect) =
            timed(|| ControlClient::connect(&addr, &worker, &options, LONG).expect("connect"));
        let ((), close) = timed(|| client.0.close("done"));
        for (list, sample) in samples.iter_mut().zip([identity, bind, connect, close]) {
            list.push(sample);
        }
    }
    let [identity, bind, connect, close] = samples;
    report("identity derived from the cluster key", identity);
    report("control server started", bind);
    report("control client connected (both proven)", connect);
    report("control client closed and flushed", close);
}

fn round_trips(controller: &Identity, worker: &Identity) {
    let options = Options::default();
    let (server, events) = ControlServer::start("127.0.0.1:0", controller, &options).expect("bind");
    let addr = server.local_addr().to_string();
    let (client, frames) = ControlClient::connect(&addr, worker, &options, LONG).expect("connect");
    // The worker echoes from a thread of its own, as a real one answers.
    let echo = std::thread::spawn(move || {
        for event in frames {
            let monarch_net::ClientEvent::Frame(bytes) = event else { break };
            if client.send(bytes).is_err() {
                break;
            }
        }
    });
    let ServerEvent::Connected { id, .. } = next(&events) else { panic!("no connection") };
    for (pause, count) in [(Duration::ZERO, 20_000), (Duration::from_millis(2), 1_000)] {
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            std::thread::sleep(pause);
            let since = Instant::now();
            server.send(id, vec![7; 64]).expect("send");
            let ServerEvent::Frame { .. } = next(&events) else { panic!("no echo") };
            samples.push(since.elapsed());
        }
        report(&format!("64 bytes there and back, every {pause:?}"), samples);
    }
    server.shutdown("done");
    echo.join().expect("echo");
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = statm.split_whitespace().nth(1).and_then(|field| field.parse::<usize>().ok());
    pages.expect("a count of pages") * 4096
}

fn next(events: &mpsc::Receiver<ServerEvent>) -> ServerEvent {
    events.recv_timeout(LONG).expect("an event")
}

fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the struct it is given; zeroed it is valid in any case.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn bulk(worker: &Identity) {
    let options = Options::bulk();
    let meshes = [(); 2].map(|()| PeerMesh::start("127.0.0.1:0", worker, &options).expect("bind"));
    let addrs = [meshes[0].1, meshes[1].1];
    let [zero, one] = meshes.map(|(mesh, _)| mesh);
    std::thread::scope(|scope| {
        scope.spawn(|| zero.connect_all(0, &addrs, LONG).expect("mesh"));
        scope.spawn(|| one.connect_all(1, &addrs, LONG).expect("mesh"));
    });
    for (length, count) in [(64usize << 20, 24), (4 << 20, 256), (256 << 10, 2048)] {
        let payload = Bytes::from(vec![3; length]);
        let mut place = vec![0; length];
        let (since, cpu) = (Instant::now(), cpu_time());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..count {
                    one.send_within(0, [0; 32], payload.clone(), LONG).expect("send");
                }
            });
            for _ in 0..count {
                let MeshEvent::Message { payload, .. } = zero.recv(LONG).expect("message") else {
                    panic!("lost")
                };
                assert!(payload.copy_to(&mut place));
            }
        });
        let gigabytes = (length * count) as f64 / 1e9;
        let (wall, cpu) = (since.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
        println!(
            "bulk, {count:4} payloads of {:6} KiB             {:.2} GB/s   {:.2} CPU s/GB",
            length >> 10,
            gigabytes / wall,
            cpu / gigabytes
        );
    }
}
