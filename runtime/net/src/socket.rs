//! The UDP socket as the QUIC implementation sees it.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
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
}

impl Socket {
    pub(crate) fn new(socket: std::net::UdpSocket, payload: u16) -> io::Result<Arc<Socket>> {
        let inner = quinn::TokioRuntime.wrap_udp_socket(socket)?;
        let needed = DATAGRAM_BYTES.div_ceil(usize::from(payload).max(1));
        let coalesces = inner.max_receive_segments() > 1;
        Ok(Arc::new(Socket { inner, segments: if coalesces { needed } else { 1 } }))
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
        self.inner.poll_recv(cx, bufs, meta)
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
