//! Finding a vanished peer before the idle timeout.
//!
//! A killed process sends nothing, but the operating system that still runs there answers a packet
//! to a closed port with "port unreachable". An unconnected socket, as QUIC uses it, is not told;
//! a connected one is. So while a peer is silent, a connected socket sends it a single byte, which
//! every QUIC implementation drops unread, and looks for a refusal.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use quinn::VarInt;
use tokio::net::UdpSocket;

use crate::connection::Verdict;
use crate::lost::Lost;

/// Refusals in a row, without a packet from the peer, after which it counts as gone. One alone
/// may answer a packet that crossed a restart, or be forged blindly.
const REFUSALS: u32 = 2;

/// Closes `connection` as [`Lost::Vanished`] once the peer's socket is gone. Runs until the
/// connection has ended. It asks only after `grace` of silence: where a question costs more than
/// the time it saves, that is longer than a living peer is ever silent.
pub(crate) async fn watch(
    connection: quinn::Connection,
    verdict: Verdict,
    interval: Duration,
    grace: Duration,
) {
    let received = || connection.stats().udp_rx.datagrams;
    let (mut heard, mut heard_at, mut refusals) = (received(), Instant::now(), 0);
    let mut socket = None;
    while connection.close_reason().is_none() {
        tokio::select! {
            _ = connection.closed() => return,
            () = tokio::time::sleep(interval) => {}
        }
        let now = received();
        if now != heard {
            (heard, heard_at, refusals, socket) = (now, Instant::now(), 0, None);
            continue;
        }
        if heard_at.elapsed() < grace {
            continue;
        }
        // The answer to the packet of the last round has had one interval to arrive.
        if socket.as_ref().is_some_and(is_refused) {
            refusals += 1;
        }
        if refusals >= REFUSALS {
            verdict.set(Lost::Vanished);
            connection.close(VarInt::from_u32(0), b"");
            return;
        }
        socket = knock(connection.remote_address()).await.ok();
    }
}

/// Whether nothing listens at `addr`, as far as that is known at once: on this machine the answer
/// is there before the call returns, elsewhere it says no.
pub(crate) async fn is_refused_now(addr: SocketAddr) -> bool {
    match knock(addr).await {
        Ok(socket) => is_refused(&socket),
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    }
}

async fn knock(addr: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(addr).await?;
    socket.send(&[0]).await?;
    Ok(socket)
}

fn is_refused(socket: &UdpSocket) -> bool {
    // `take_error` asks the socket itself; `try_recv` would ask the runtime, which learns of the
    // error only when it next polls.
    matches!(socket.take_error(), Ok(Some(error))
        if error.kind() == io::ErrorKind::ConnectionRefused)
}
