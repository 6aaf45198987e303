//! A UDP proxy that does to packets what bad networks do, under a test's control.
//!
//! Packets of each client are passed on from a socket of its own, as an address translator does,
//! so that several clients can be behind one proxy. What happens to a packet is drawn from a seed;
//! when it happens depends on the machine, as in a network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread looks whether the proxy is to end.
const LOOK: Duration = Duration::from_millis(20);
/// What waits longer than this for a slow line is dropped, as by a router.
const QUEUE: Duration = Duration::from_millis(200);
/// How much later a packet comes that others overtake.
const LATE: Duration = Duration::from_millis(8);

/// What happens to packets of one direction. Shares are per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u32,
    pub delay: Duration,
    /// Up to so much is added to the delay, anew for each packet.
    pub jitter: Duration,
    /// Come [`LATE`], so that others overtake them.
    pub reorder: u32,
    pub duplicate: u32,
    /// One byte of them is changed.
    pub corrupt: u32,
    pub bytes_per_second: Option<u64>,
    /// Nothing passes.
    pub black_hole: bool,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From whoever connects.
    Forth,
    /// To whoever has connected.
    Back,
}

pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    lines: Mutex<[Line; 2]>,
    delayed: Mutex<BinaryHeap<Reverse<Delayed>>>,
    came: Condvar,
    over: AtomicBool,
    number: AtomicU64,
}

/// One direction.
struct Line {
    faults: Faults,
    random: u64,
    /// When a slow line is free again.
    free: Instant,
}

impl Line {
    fn draw(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 33
    }

    fn hits(&mut self, share: u32) -> bool {
        self.draw() % 1000 < u64::from(share)
    }
}

struct Delayed {
    due: Instant,
    /// Packets that are due at once keep their order.
    number: u64,
    socket: Arc<UdpSocket>,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Delayed) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}
impl Eq for Delayed {}
impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Delayed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Delayed {
    fn cmp(&self, other: &Delayed) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl FaultProxy {
    /// Passes packets on to `target` from a free port of 127.0.0.1.
    pub fn start(target: SocketAddr, seed: u64) -> FaultProxy {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        FaultProxy::on(front, target, seed)
    }

    /// The same at the port that `front` has.
    pub fn on(front: UdpSocket, target: SocketAddr, seed: u64) -> FaultProxy {
        let addr = front.local_addr().expect("it is bound");
        let line = |random| Line { faults: Faults::default(), random, free: Instant::now() };
        let shared = Arc::new(Shared {
            lines: Mutex::new([line(seed), line(!seed)]),
            delayed: Mutex::default(),
            came: Condvar::new(),
            over: AtomicBool::new(false),
            number: AtomicU64::new(0),
        });
        let front = Arc::new(front);
        let (forth, later) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || forth.forth(&front, target)),
            std::thread::spawn(move || later.send_delayed()),
        ];
        FaultProxy { addr, shared, threads }
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn set(&self, way: Way, faults: Faults) {
        self.shared.lines()[way as usize].faults = faults;
    }

    pub fn both(&self, faults: Faults) {
        self.set(Way::Forth, faults);
        self.set(Way::Back, faults);
    }

    /// Nothing passes any more, in either direction.
    pub fn cut(&self) {
        self.both(Faults { black_hole: true, ..Faults::default() });
    }

    /// As it was in the beginning.
    pub fn heal(&self) {
        self.both(Faults::default());
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, [Line; 2]> {
        self.lines.lock().expect("nobody panics with it")
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Reads what clients send, until the end.
    fn forth(self: Arc<Shared>, front: &Arc<UdpSocket>, target: SocketAddr) {
        front.set_read_timeout(Some(LOOK)).expect("a timeout");
        let mut clients: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
        let mut threads = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while !self.is_over() {
            // An error is the answer to a packet that nobody took.
            let Ok((length, from)) = front.recv_from(&mut buffer) else { continue };
            let back = clients.entry(from).or_insert_with(|| {
                let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let back = Arc::new(UdpSocket::bind(any).expect("a free port"));
                let (shared, back_too, front) = (self.clone(), back.clone(), front.clone());
                threads.push(std::thread::spawn(move || shared.back(&back_too, &front, from)));
                back
            });
            self.pass(Way::Forth, back, target, &mut buffer[..length]);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Reads what the target answers to one client, until the end.
    fn back(&self, socket: &UdpSocket, front: &Arc<UdpSocket>, client: SocketAddr) {
        socket.set_read_timeout(Some(LOOK)).expect("a timeout");
        let mut buffer = vec![0; 1 << 16];
        while !self.is_over() {
            if let Ok((length, _)) = socket.recv_from(&mut buffer) {
                self.pass(Way::Back, front, client, &mut buffer[..length]);
            }
        }
    }

    fn pass(&self, way: Way, socket: &Arc<UdpSocket>, to: SocketAddr, bytes: &mut [u8]) {
        let now = Instant::now();
        let mut due = now;
        let copies = {
            let line = &mut self.lines()[way as usize];
            let faults = line.faults;
            if faults.black_hole || line.hits(faults.loss) {
                return;
            }
            if line.hits(faults.corrupt) && !bytes.is_empty() {
                let at = line.draw() as usize % bytes.len();
                bytes[at] ^= 1 << (line.draw() % 8);
            }
            if let Some(rate) = faults.bytes_per_second {
                let takes = Duration::from_secs_f64(bytes.len() as f64 / rate.max(1) as f64);
                let free = line.free.max(now);
                if free > now + QUEUE {
                    return;
                }
                line.free = free + takes;
                due = line.free;
            }
            due += faults.delay;
            if !faults.jitter.is_zero() {
                due += faults.jitter.mul_f64(line.draw() as f64 / (1u64 << 31) as f64);
            }
            if line.hits(faults.reorder) {
                due += LATE;
            }
            1 + u32::from(line.hits(faults.duplicate))
        };
        for _ in 0..copies {
            if due <= now {
                // Nobody may listen there: as in a network, nobody is told.
                let _ = socket.send_to(bytes, to);
                continue;
            }
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            let (socket, bytes) = (socket.clone(), bytes.to_vec());
            let delayed = Delayed { due, number, socket, to, bytes };
            self.delayed.lock().expect("nobody panics with it").push(Reverse(delayed));
            self.came.notify_one();
        }
    }

    fn send_delayed(&self) {
        let mut delayed = self.delayed.lock().expect("nobody panics with it");
        while !self.is_over() {
            let now = Instant::now();
            let wait = match delayed.peek() {
                Some(Reverse(first)) if first.due <= now => {
                    if let Some(Reverse(first)) = delayed.pop() {
                        let _ = first.socket.send_to(&first.bytes, first.to);
                    }
                    continue;
                }
                Some(Reverse(first)) => (first.due - now).min(LOOK),
                None => LOOK,
            };
            delayed = self.came.wait_timeout(delayed, wait).expect("nobody panics with it").0;
        }
    }
}
