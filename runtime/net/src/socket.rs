//! The UDP socket as the QUIC implementation sees it.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};

/// The longest datagram the kernel hands over, coalesced from packets or not, in bytes.
const DATAGRAM_BYTES: usize = 65_535;

/// A socket that tells how many packets of the largest size one coalesced datagram can hold.
///
/// The receive buffer is that number times the largest packet, 32 times. The kernel's own limit of
/// 64 packets would make it 13 MiB, of which a datagram can never fill more than a sixth.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: Arc<dyn AsyncUdpSocket>,
    segments: usize,
    ears: Ears,
}

/// Addresses from which a first packet is awaited: whether one has come is all that is known of a
/// connection before it stands. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ears {
    /// Length of `awaited`, so that a socket of which nobody asks anything takes no lock.
    count: Arc<AtomicUsize>,
    awaited: Arc<Mutex<BTreeMap<SocketAddr, Awaited>>>,
}

#[derive(Debug, Default)]
struct Awaited {
    askers: usize,
    heard: bool,
}

impl Ears {
    /// Listens for packets from `addr` until the ear is dropped.
    pub(crate) fn prick(&self, addr: SocketAddr) -> Ear {
        let addr = canonical(addr);
        let mut awaited = self.lock();
        awaited.entry(addr).or_default().askers += 1;
        self.count.store(awaited.len(), Ordering::Relaxed);
        drop(awaited);
        Ear { ears: self.clone(), addr }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Awaited>> {
        // Nothing panics while it holds the lock.
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, from: impl Iterator<Item = SocketAddr>) {
        let mut awaited = self.lock();
        for addr in from {
            if let Some(awaited) = awaited.get_mut(&canonical(addr)) {
                awaited.heard = true;
            }
        }
    }
}

/// A socket of both families writes IPv4 addresses in its own way.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Listens for packets from one address.
#[derive(Debug)]
pub(crate) struct Ear {
    ears: Ears,
    addr: SocketAddr,
}

impl Ear {
    /// Whether a packet has come since.
    pub(crate) fn has_heard(&self) -> bool {
        self.ears.lock().get(&self.addr).is_some_and(|awaited| awaited.heard)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut awaited = self.ears.lock();
        if let Some(entry) = awaited.get_mut(&self.addr) {
            entry.askers -= 1;
            if entry.askers == 0 {
                awaited.remove(&self.addr);
            }
        }
        self.ears.count.store(awaited.len(), Ordering::Relaxed);
    }
}

impl Socket {
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        payload: u16,
        ears: Ears,
    ) -> io::Result<Arc<Socket>> {
        let inner = quinn::TokioRuntime.wrap_udp_socket(socket)?;
        let needed = DATAGRAM_BYTES.div_ceil(usize::from(payload).max(1));
        let coalesces = inner.max_receive_segments() > 1;
        Ok(Arc::new(Socket { inner, segments: if coalesces { needed } else { 1 }, ears }))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let Poll::Ready(Ok(count)) = received
            && self.ears.count.load(Ordering::Relaxed) > 0
        {
            self.ears.hear(meta.iter().take(count).map(|meta| meta.addr));
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.segments
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ears_hear_what_is_awaited_and_forget() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ears = Ears::default();
        let (ear, other) = (ears.prick(addr("127.0.0.1:7")), ears.prick(addr("127.0.0.1:8")));
        ears.hear([addr("[::ffff:127.0.0.1]:7"), addr("127.0.0.1:9")].into_iter());
        assert!(ear.has_heard() && !other.has_heard());
        let again = ears.prick(addr("127.0.0.1:7"));
        drop((ear, other));
        assert!(again.has_heard());
        assert_eq!(ears.count.load(Ordering::Relaxed), 1);
        drop(again);
        assert!(!ears.prick(addr("127.0.0.1:7")).has_heard());
    }
}
